//! This backend's connection to the zone: made when it is first needed, and lost with the zone.
//!
//! Invariants: there is one connection at a time. After the zone was lost, the current statement
//! ends with an error and the next statement connects anew (R5); all plans are made again then,
//! because their literals are identifiers of the lost arena. Every wait checks for interrupts (X5).
//! Callbacks at the end of a transaction never wait without a limit and never raise. Must not: be
//! entered while it is entered.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use pgrx::pg_sys;
use strongroom_columns_ring::{Broken, Host};

use crate::execution::activity;
use crate::ring::connection::{self, Connection};
use crate::ring::{deferred_fault, server_generation};
use crate::{fault, interrupts, settings};

/// How long the zone may take to answer a new connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

thread_local! {
    static CONNECTION: RefCell<Option<Connection>> = const { RefCell::new(None) };
    /// A connection was lost during the current statement.
    static LOST: Cell<bool> = const { Cell::new(false) };
    /// A client of this backend has had the zone answer a sealed message.
    static HAS_CLIENT: Cell<bool> = const { Cell::new(false) };
}

/// Notes that a client has opened a session, or kept one, by a sealed message.
pub(crate) fn note_client() {
    HAS_CLIENT.set(true);
}

/// Returns whether a client of this backend has ever had a session with the zone, which may be over
/// by now.
pub(crate) fn has_client() -> bool {
    HAS_CLIENT.get()
}

/// Runs `work` with the connection, which is made if there is none, and returns its result. Raises
/// an ERROR if `work` fails, no connection can be made, or an earlier one was lost in this
/// statement; a kept fault that is due is raised first.
pub(crate) fn with<R>(work: impl FnOnce(&mut Connection) -> Result<R, Broken>) -> R {
    deferred_fault::raise_due();
    let done = CONNECTION.with(|cell| {
        let Ok(mut slot) = cell.try_borrow_mut() else {
            fault::raise_internal("the connection to the zone is in use");
        };
        if activity::is_statement_over()
            && slot
                .as_mut()
                .is_some_and(|connection| !connection.is_alive())
        {
            // Between statements nothing holds an identifier of the lost arena: the next statement
            // need not fail.
            *slot = None;
            LOST.set(true);
        }
        if slot.is_none() {
            *slot = Some(connect());
        }
        let result = slot.as_mut().map_or(Err(Broken::Lost), |connection| {
            connection.send_record_name()?;
            work(connection)
        });
        if result.as_ref().is_err_and(|broken| *broken == Broken::Lost) {
            *slot = None;
            LOST.set(true);
        }
        result
    });
    done.unwrap_or_else(|broken| fault::raise_broken(broken))
}

/// Runs `work` over the connection of this number, and returns its result. Raises an ERROR if there
/// is another connection by now, or `work` fails.
pub(crate) fn with_connection<R>(
    number: u32,
    work: impl FnOnce(&mut Connection) -> Result<R, Broken>,
) -> R {
    with(|connection| {
        if connection::latest_number() == number {
            work(connection)
        } else {
            Err(Broken::Lost)
        }
    })
}

/// Runs `work` if there is a connection that is not in use. Its errors are ignored, except that a
/// lost connection is given up.
fn if_connected(work: impl FnOnce(&mut Connection) -> Result<(), Broken>) {
    CONNECTION.with(|cell| {
        if let Ok(mut slot) = cell.try_borrow_mut()
            && let Some(connection) = slot.as_mut()
            && work(connection) == Err(Broken::Lost)
        {
            *slot = None;
            LOST.set(true);
        }
    });
}

/// Runs `work` with the connection, if there is one, at the end of a transaction: waits for at most
/// 2 seconds, and never raises. If the zone cannot be told, values stay in it as garbage, for a
/// sweep to find.
pub(crate) fn at_transaction_end(work: impl FnOnce(&mut Connection) -> Result<(), Broken>) {
    interrupts::with_deadline(|| if_connected(work));
}

/// Whether operations were posted whose faults nothing has asked for. False without a connection.
pub(crate) fn has_unconfirmed() -> bool {
    CONNECTION.with(|cell| {
        let slot = cell.try_borrow();
        slot.is_ok_and(|slot| slot.as_ref().is_some_and(Connection::has_unconfirmed))
    })
}

/// Whether there is a connection, or one could be made now. Waits for the zone at most 5 seconds;
/// reports nothing.
pub(crate) fn is_reachable() -> bool {
    let connected = CONNECTION.with(|cell| cell.try_borrow().is_ok_and(|slot| slot.is_some()));
    connected || try_connect()
}

/// Makes a connection, and returns whether that succeeded. Reports nothing, but may raise an
/// interrupt.
fn try_connect() -> bool {
    let made = settings::zone_socket()
        .map(|path| Host::connect(&path, CONNECT_LIMIT, interrupts::check_while_waiting));
    let Some(Ok(mut host)) = made else {
        return false;
    };
    if server_generation::send(&mut host).is_err() {
        return false;
    }
    CONNECTION.with(|cell| {
        let Ok(mut slot) = cell.try_borrow_mut() else {
            return false;
        };
        *slot = Some(Connection::new(host));
        true
    })
}

/// Makes a connection, if there is none, before the commit of a transaction whose outcome the zone
/// has to learn. Only a WARNING if the zone does not answer.
pub(crate) fn connect_before_commit() {
    let connected = CONNECTION.with(|cell| cell.try_borrow().map_or(true, |slot| slot.is_some()));
    if connected || LOST.get() {
        return;
    }
    if !try_connect() {
        fault::Report::new(
            "01000",
            "the zone cannot be reached: values of dropped tables stay in it as garbage",
        )
        .warn();
    }
}

/// Makes a connection; a parallel worker's joins its leader's group. Raises an ERROR if a
/// connection was lost in this statement, no zone is configured, or it cannot be reached.
fn connect() -> Connection {
    if activity::is_statement_over() {
        discard_plans_after_loss();
    }
    if LOST.get() {
        // The current statement may still hold identifiers of the lost arena, and the new arena may
        // have its number.
        fault::raise_broken(Broken::Lost);
    }
    let Some(path) = settings::zone_socket() else {
        fault::Report::new("55000", "no zone is configured for confidential columns")
            .hint("Set strongroom.zone to the path of the zone's socket.")
            .raise()
    };
    let mut host = match Host::connect(&path, CONNECT_LIMIT, interrupts::check_while_waiting) {
        Ok(host) => host,
        Err(error) => fault::raise_unconnected(&error),
    };
    if let Err(broken) = server_generation::send(&mut host) {
        fault::raise_broken(broken);
    }
    let mut connection = Connection::new(host);
    // SAFETY: reads the number of this worker.
    if unsafe { pg_sys::ParallelWorkerNumber } >= 0
        && let Some((arena, secret)) = settings::parallel_group()
        && let Err(broken) = connection.join_group(arena, secret)
    {
        fault::raise_broken(broken);
    }
    connection
}

/// If a connection was lost, has every plan made again when it is next used, because literals in
/// plans are identifiers of the lost connection. To be called after the statement in which it was
/// lost.
pub(crate) fn discard_plans_after_loss() {
    if LOST.get() {
        // SAFETY: marks plans, and neither reads a catalog nor allocates.
        unsafe { pg_sys::ResetPlanCache() };
        LOST.set(false);
    }
}

/// Tells the zone, if there is a connection, that the statement is over, so that it frees its
/// values. Neither waits nor raises: what cannot be sent now is sent at the next end of a
/// statement.
pub(crate) fn end_statement() {
    if_connected(Connection::end_statement);
}

/// Whether the zone takes programs. Connects if there is no connection; never raises: false if the
/// zone cannot be reached.
pub(crate) fn knows_programs() -> bool {
    let connected = CONNECTION.with(|cell| cell.try_borrow().map_or(true, |slot| slot.is_some()));
    if !connected && (LOST.get() || !try_connect()) {
        return false;
    }
    let mut knows = false;
    if_connected(|connection| {
        knows = connection.knows_programs()?;
        Ok(())
    });
    knows
}

/// Gives the answer to a batch up, if there is a connection: nobody will ask for it.
pub(crate) fn forget_batch(ticket: u64) {
    if_connected(|connection| {
        connection.forget_batch(ticket);
        Ok(())
    });
}

/// Has the zone forget a program, if there is a connection. Neither waits nor raises: what cannot
/// be sent now is forgotten at the end of the statement.
pub(crate) fn forget_program(id: u64) {
    if_connected(|connection| connection.forget_program(id));
}

/// Makes this session the leader of a parallel group, if it has a connection, and puts the group
/// into the setting that parallel workers inherit; without a connection, clears the setting. To be
/// called before the workers are started. Raises the zone's faults as an ERROR.
///
/// The setting is compared each time, because an aborted transaction and RESET ALL take it back.
pub(crate) fn lead_group() {
    let wanted = CONNECTION.with(|cell| {
        let slot = cell.try_borrow();
        slot.map_or(None, |slot| slot.as_ref().map(Connection::group))
    });
    let known = settings::parallel_group();
    match wanted {
        Some(group) if group.is_some() && group == known => {}
        Some(_) => {
            let group = with(Connection::lead_group);
            settings::set_parallel_group(Some(group));
        }
        None if known.is_some() => settings::set_parallel_group(None),
        None => {}
    }
}
