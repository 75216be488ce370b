//! The workers that sweep by a schedule: one that waits, and one for each database in turn.
//!
//! A table is swept when it looks as if a fifth of its values, and a thousand at least, were garbage: by the number of values
//! that the zone has for it against the rows and the fractions of nulls in the statistics. A sweep that fails is tried again in the next round.
//! Must not: hold anybody up: a table that is locked, or written to by a transaction that goes on, is left out.

use std::time::{Duration, Instant};

use pgrx::bgworkers::{
    BackgroundWorker, BackgroundWorkerBuilder, BgWorkerStartTime, SignalWakeFlags,
};
use pgrx::pg_sys;
use pgrx::prelude::{FromDatum, IntoDatum, Spi};

use crate::call::guarded;
use crate::ring::zone;
use crate::storage::sweep::{self, Patience};
use crate::storage::{access_method, marking, partition};
use crate::{fault, settings};

/// How often the worker that waits looks at the clock.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a table's writers are waited for.
const PATIENCE_MILLISECONDS: i32 = 5000;
/// Less garbage than this is not worth a sweep.
const LEAST: u64 = 1000;

/// Tables with confidential columns, and how many values their rows have by the statistics.
const TABLES: &str = "
    SELECT c.oid, (greatest(c.reltuples, pg_catalog.pg_stat_get_live_tuples(c.oid), 0) * sum(1 - coalesce(s.stanullfrac, 0)))::bigint
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_am m ON m.oid = c.relam
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_catalog.pg_type t ON t.oid = a.atttypid AND t.typname LIKE 'enc\\_%'
    LEFT JOIN pg_catalog.pg_statistic s ON s.starelid = c.oid AND s.staattnum = a.attnum AND NOT s.stainherit
    WHERE m.amname = 'strongroom' AND c.relkind IN ('r', 'm') AND c.relpersistence <> 't'
    GROUP BY c.oid, c.reltuples ORDER BY pg_catalog.random()";

/// Registers the worker that waits.
pub(crate) fn register() {
    BackgroundWorkerBuilder::new("strongroom columns sweeper")
        .set_function("strongroom_sweeper_main")
        .set_library("strongroom_columns")
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(Some(Duration::from_secs(30)))
        .load();
}

/// The worker that waits, and starts a worker for each database in turn.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn strongroom_sweeper_main(_arg: pg_sys::Datum) {
    guarded(|| {
        BackgroundWorker::attach_signal_handlers(
            SignalWakeFlags::SIGHUP | SignalWakeFlags::SIGTERM,
        );
        // SAFETY: to no database: shared catalogs only.
        unsafe {
            pg_sys::BackgroundWorkerInitializeConnection(std::ptr::null(), std::ptr::null(), 0);
        }
        let mut last = Instant::now();
        while BackgroundWorker::wait_latch(Some(PAUSE)) {
            if BackgroundWorker::sighup_received() {
                // SAFETY: as every process of the server reads its settings again.
                unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
            }
            let interval = u64::try_from(settings::sweep_interval()).unwrap_or(0);
            let due = interval > 0 && last.elapsed() >= Duration::from_secs(interval);
            if !due || settings::zone().is_none() {
                continue;
            }
            for database in BackgroundWorker::transaction(databases) {
                sweep_database(database);
            }
            last = Instant::now();
        }
    });
}

/// The databases that can be connected to and are not templates.
fn databases() -> Vec<pg_sys::Oid> {
    let mode = pg_sys::AccessShareLock.cast_signed();
    let mut found = Vec::new();
    // SAFETY: reads a shared catalog in a transaction; each row is a FormData_pg_database.
    unsafe {
        let catalog = pg_sys::table_open(pg_sys::DatabaseRelationId, mode);
        let none = std::ptr::null_mut();
        let scan = pg_sys::systable_beginscan(
            catalog,
            pg_sys::InvalidOid,
            false,
            none,
            0,
            std::ptr::null_mut(),
        );
        loop {
            let row = pg_sys::systable_getnext(scan);
            if row.is_null() {
                break;
            }
            let form = crate::catalog::types::row::<pg_sys::FormData_pg_database>(row);
            if (*form).datallowconn && !(*form).datistemplate {
                found.push((*form).oid);
            }
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(catalog, mode);
    }
    found
}

/// Starts the worker of a database and waits for its end.
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

/// The worker of one database.
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
            BackgroundWorker::transaction(|| consider(table, values));
        }
    });
}

fn tables() -> Vec<(pg_sys::Oid, u64)> {
    let found = Spi::connect(|client| {
        let rows = client.select(TABLES, None, &[])?;
        let tables = rows.map(|row| Ok((row.get::<pg_sys::Oid>(1)?, row.get::<i64>(2)?)));
        tables.collect::<Result<Vec<_>, pgrx::spi::Error>>()
    });
    let Ok(found) = found else {
        fault::internal("the catalog cannot be read");
    };
    let known = found.into_iter().filter_map(|(table, values)| {
        Some((table?, u64::try_from(values.unwrap_or(0)).unwrap_or(0)))
    });
    known.collect()
}

/// Sweeps a table if it seems worth it.
fn consider(table: pg_sys::Oid, expected: u64) {
    let mode = pg_sys::ShareUpdateExclusiveLock.cast_signed();
    // SAFETY: takes the lock, or leaves the table out; it is given back with the transaction.
    let relation = unsafe {
        if !pg_sys::ConditionalLockRelationOid(table, mode) {
            return;
        }
        pg_sys::try_table_open(table, pg_sys::NoLock.cast_signed())
    };
    if relation.is_null() {
        return;
    }
    let storage = partition::storage(relation);
    let ours = access_method::is_ours(relation);
    // SAFETY: opened above.
    unsafe { pg_sys::table_close(relation, pg_sys::NoLock.cast_signed()) };
    if !ours || !zone::is_there() {
        return;
    }
    let values = zone::with(|link| sweep::values_of(link, storage));
    let values = values.map_or(0, |answer| u64::from(answer.aux));
    if values.saturating_sub(expected) >= LEAST.max(values / 5) {
        sweep::table(table, Patience::Limited(PATIENCE_MILLISECONDS));
    }
    marking::check_for_interrupts();
}
