//! The background workers that sweep on a schedule: a launcher, and a worker for each database in
//! turn.
//!
//! A table is swept when probably a fifth of its values, and at least a thousand, are garbage: the
//! number of its values in the zone is compared with the rows and the fractions of nulls in the
//! statistics. A sweep that fails is tried again in the next round. Must not: delay other
//! transactions; a table that is locked, or that a long transaction writes to, is left out.

use std::time::{Duration, Instant};

use pgrx::bgworkers::{
    BackgroundWorker, BackgroundWorkerBuilder, BgWorkerStartTime, SignalWakeFlags,
};
use pgrx::pg_sys;
use pgrx::prelude::{FromDatum, IntoDatum, Spi};

use crate::call::guarded;
use crate::ring::{shared_memory, zone};
use crate::storage::retired::Retired;
use crate::storage::storage_id::StorageId;
use crate::storage::sweep::{self, Wait};
use crate::storage::{access_method, orphans, partition};
use crate::{fault, interrupts, settings};

/// How often the launcher checks the time.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a sweep waits for the transactions that write to a table.
const WRITERS_WAIT_MILLISECONDS: i32 = 5000;
/// Fewest garbage values that are worth a sweep.
const GARBAGE_MIN: u64 = 1000;

/// Tables with confidential columns, and how many values their rows have according to the
/// statistics.
const TABLES: &str = "
    SELECT c.oid, (greatest(c.reltuples, pg_catalog.pg_stat_get_live_tuples(c.oid), 0)
        * sum(1 - coalesce(s.stanullfrac, 0)))::bigint
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_am m ON m.oid = c.relam
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_catalog.pg_type t ON t.oid = a.atttypid AND t.typname LIKE 'enc\\_%'
    LEFT JOIN pg_catalog.pg_statistic s
        ON s.starelid = c.oid AND s.staattnum = a.attnum AND NOT s.stainherit
    WHERE m.amname = 'strongroom' AND c.relkind IN ('r', 'm') AND c.relpersistence <> 't'
    GROUP BY c.oid, c.reltuples ORDER BY pg_catalog.random()";

/// Registers the launcher as a background worker, which the server starts after recovery, and again
/// 30 seconds after it has ended.
pub(crate) fn register() {
    BackgroundWorkerBuilder::new("strongroom columns sweeper")
        .set_function("strongroom_sweeper_main")
        .set_library("strongroom_columns")
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(Some(Duration::from_secs(30)))
        .load();
}

/// The main function of the launcher: has retired partitions dropped when nothing can read them any
/// more; when it begins, and at each interval of the setting, has what databases that are gone have
/// left dropped; then, at each interval, has every database swept, one after the other. Ends at
/// SIGTERM.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn strongroom_sweeper_main(_arg: pg_sys::Datum) {
    guarded(|| {
        BackgroundWorker::attach_signal_handlers(
            SignalWakeFlags::SIGHUP | SignalWakeFlags::SIGTERM,
        );
        // SAFETY: connects to no database: shared catalogs only.
        unsafe {
            pg_sys::BackgroundWorkerInitializeConnection(std::ptr::null(), std::ptr::null(), 0);
        }
        let mut last = Instant::now();
        // What was dropped while the zone was away may still be in it.
        let mut may_have_orphans = true;
        let mut retired = Retired::default();
        let mut retired_before = 0;
        while BackgroundWorker::wait_latch(Some(CHECK_INTERVAL)) {
            if BackgroundWorker::sighup_received() {
                // SAFETY: as every process of the server reads its settings again.
                unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
            }
            let interval = u64::try_from(settings::sweep_interval()).unwrap_or(0);
            let due = interval > 0 && last.elapsed() >= Duration::from_secs(interval);
            let retired_count = shared_memory::retired_count();
            let has_new = due || retired_count != retired_before;
            if !(has_new || may_have_orphans || !retired.is_empty())
                || settings::zone_socket().is_none()
                || !zone::is_reachable()
            {
                continue;
            }
            if has_new || !retired.is_empty() {
                retired_before = retired_count;
                let known = std::mem::take(&mut retired);
                retired = BackgroundWorker::transaction(move || known.drop_unread(has_new));
                shared_memory::set_retired_now(retired.count());
            }
            if !(due || may_have_orphans) {
                continue;
            }
            may_have_orphans = !BackgroundWorker::transaction(orphans::reclaim);
            if !due {
                continue;
            }
            let swept = BackgroundWorker::transaction(orphans::databases);
            for (database, _) in swept.into_iter().filter(|(_, may_be_swept)| *may_be_swept) {
                sweep_database(database);
            }
            last = Instant::now();
        }
    });
}

/// Starts the worker that sweeps a database, and waits until it has ended. Writes a WARNING if no
/// worker can be started.
fn sweep_database(database: pg_sys::Oid) {
    // SAFETY: this process's number.
    let own = unsafe { pg_sys::MyProcPid };
    let started = BackgroundWorkerBuilder::new("strongroom columns sweep")
        .set_function("strongroom_sweep_main")
        .set_library("strongroom_columns")
        .enable_spi_access()
        .set_argument(database.into_datum())
        .set_notify_pid(own)
        .load_dynamic();
    match started {
        Ok(worker) => {
            let _ended = worker.wait_for_shutdown();
        }
        Err(_) => fault::Report::new("53400", "no worker is left to sweep confidential values")
            .hint("Raise max_worker_processes.")
            .warn(),
    }
}

/// The main function of the worker of one database, whose OID is the argument: sweeps its tables
/// with enough garbage, each in a transaction of its own. Ends after the last, or at SIGTERM.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn strongroom_sweep_main(arg: pg_sys::Datum) {
    guarded(|| {
        BackgroundWorker::attach_signal_handlers(
            SignalWakeFlags::SIGHUP | SignalWakeFlags::SIGTERM,
        );
        // SAFETY: PostgreSQL's argument is what the worker was registered with.
        let database = unsafe { pg_sys::Oid::from_datum(arg, false) };
        // SAFETY: connects once, as a superuser.
        unsafe {
            pg_sys::BackgroundWorkerInitializeConnectionByOid(
                database.unwrap_or(pg_sys::InvalidOid),
                pg_sys::InvalidOid,
                0,
            );
        }
        let tables = BackgroundWorker::transaction(tables);
        for (table, values) in tables {
            if BackgroundWorker::sigterm_received() {
                return;
            }
            BackgroundWorker::transaction(|| sweep_if_worthwhile(table, values));
        }
    });
}

/// The tables with confidential columns of this database, in random order, and how many values
/// their rows have according to the statistics. Raises an internal ERROR if the catalog cannot be
/// read.
fn tables() -> Vec<(pg_sys::Oid, u64)> {
    let found = Spi::connect(|client| {
        let rows = client.select(TABLES, None, &[])?;
        let tables = rows.map(|row| Ok((row.get::<pg_sys::Oid>(1)?, row.get::<i64>(2)?)));
        tables.collect::<Result<Vec<_>, pgrx::spi::Error>>()
    });
    let Ok(found) = found else {
        fault::raise_internal("the catalog cannot be read");
    };
    let known = found.into_iter().filter_map(|(table, values)| {
        Some((table?, u64::try_from(values.unwrap_or(0)).unwrap_or(0)))
    });
    known.collect()
}

/// Sweeps a table if at least 1000, and a fifth, of its values are probably garbage. `expected` is
/// the number of values of its rows. Nothing if the table is locked or gone, or the zone cannot be
/// reached. Raises failures as an ERROR.
fn sweep_if_worthwhile(table: pg_sys::Oid, expected: u64) {
    let mode = pg_sys::ShareUpdateExclusiveLock.cast_signed();
    // SAFETY: takes the lock, or leaves the table out; the lock is released with the transaction.
    let relation = unsafe {
        if !pg_sys::ConditionalLockRelationOid(table, mode) {
            return;
        }
        pg_sys::try_table_open(table, pg_sys::NoLock.cast_signed())
    };
    if relation.is_null() {
        return;
    }
    let storage = StorageId::of(relation);
    let ours = access_method::has_access_method(relation);
    // SAFETY: opened above.
    unsafe { pg_sys::table_close(relation, pg_sys::NoLock.cast_signed()) };
    if !ours || !zone::is_reachable() {
        return;
    }
    let values = zone::with(|connection| partition::find(connection, storage));
    let values = values.map_or(0, |answer| u64::from(answer.aux));
    if values.saturating_sub(expected) >= GARBAGE_MIN.max(values / 5) {
        sweep::sweep_table(table, Wait::Milliseconds(WRITERS_WAIT_MILLISECONDS));
    }
    interrupts::check();
}
