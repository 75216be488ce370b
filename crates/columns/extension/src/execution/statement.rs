//! When a statement is over: then its ephemerals are freed.
//!
//! A statement is over when there is no executor, no utility command and no portal that could still
//! hold one of its identifiers: a cursor that is read later, a portal whose parameters are bound
//! and that has not run yet, a block of PL/pgSQL that commits in its middle. Each of these is
//! counted as a holder when it begins, and is counted off when PostgreSQL frees its memory context,
//! however it ends. Invariant: faults of posted operations are raised before an execution returns,
//! before a subtransaction ends and before a transaction commits (R2). Must not: raise where a
//! transaction ends.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};

use pgrx::pg_sys;

use crate::call::{call_postgres, guarded};
use crate::execution::{activity, row_sealing};
use crate::ring::{settle, shared_memory, standby, zone};
use crate::scanning::{batching, scans};

thread_local! {
    /// The memory context of the portal that was counted last.
    static COUNTED_PORTAL: Cell<pg_sys::MemoryContext> = const { Cell::new(std::ptr::null_mut()) };
    static PREVIOUS_HOOKS: Cell<Hooks> = const { Cell::new(Hooks::NONE) };
}

/// The hooks that were installed before this library's.
#[derive(Clone, Copy)]
struct Hooks {
    start: pg_sys::ExecutorStart_hook_type,
    run: pg_sys::ExecutorRun_hook_type,
    finish: pg_sys::ExecutorFinish_hook_type,
    end: pg_sys::ExecutorEnd_hook_type,
}

impl Hooks {
    const NONE: Self = Self {
        start: None,
        run: None,
        finish: None,
        end: None,
    };
}

/// How long the value of an envelope is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// Until the statement is over.
    Statement,
    /// Until the connection ends, because a plan may contain it.
    Connection,
}

/// Installs the hooks of the executor; they call those installed before.
pub(crate) fn install() {
    // SAFETY: hooks are set while the library is loaded, before anything runs.
    unsafe {
        PREVIOUS_HOOKS.set(Hooks {
            start: pg_sys::ExecutorStart_hook,
            run: pg_sys::ExecutorRun_hook,
            finish: pg_sys::ExecutorFinish_hook,
            end: pg_sys::ExecutorEnd_hook,
        });
        pg_sys::ExecutorStart_hook = Some(on_start);
        pg_sys::ExecutorRun_hook = Some(on_run);
        pg_sys::ExecutorFinish_hook = Some(on_finish);
        pg_sys::ExecutorEnd_hook = Some(on_end);
    }
}

/// Ends the statement if nothing holds an identifier of it any more: forgets answers, tells the
/// zone without waiting, has plans made again after a lost connection, and announces this backend
/// as idle. Nothing otherwise.
pub(crate) fn end_if_over() {
    if activity::is_statement_over() {
        batching::forget_answers();
        zone::end_statement();
        zone::discard_plans_after_loss();
        shared_memory::announce_idle();
    }
}

/// Runs a utility command as part of the statement. At the outermost level, raises the faults of
/// posted operations afterwards.
pub(crate) fn run_utility(work: impl FnOnce()) {
    hold_active_portal();
    let command = activity::Command::enter();
    work();
    if activity::depth() == 1 {
        settle::raise_faults();
    }
    drop(command);
}

/// The hook for the start of an executor: runs it, and counts it and its portal as holders of
/// identifiers until they are freed. Before a parallel query, makes this session the leader of a
/// group.
extern "C-unwind" fn on_start(query: *mut pg_sys::QueryDesc, flags: c_int) {
    guarded(|| {
        hold_active_portal();
        // SAFETY: PostgreSQL's own query.
        let parallel = unsafe { (*(*query).plannedstmt).parallelModeNeeded };
        // SAFETY: asks the server. Workers that run already have their settings.
        if parallel && !unsafe { pg_sys::IsInParallelMode() } {
            zone::lead_group();
        }
        match PREVIOUS_HOOKS.get().start {
            // SAFETY: the hook that was installed before, with its arguments.
            Some(hook) => unsafe { call_postgres(|| hook(query, flags)) },
            // SAFETY: as above.
            None => unsafe { pg_sys::standard_ExecutorStart(query, flags) },
        }
        // SAFETY: a query that has been planned, and has its snapshot.
        unsafe { standby::wait_for_values_of(query) };
        // SAFETY: the executor has been started, so it has a state with a memory context.
        hold_until_freed(unsafe { (*(*query).estate).es_query_cxt });
    });
}

/// The hook for a run of an executor: runs it, with rows sealed on their way to the client. At the
/// outermost level, raises the faults of posted operations afterwards.
extern "C-unwind" fn on_run(
    query: *mut pg_sys::QueryDesc,
    direction: pg_sys::ScanDirection::Type,
    count: u64,
    once: bool,
) {
    guarded(|| {
        let run = activity::Run::enter();
        let sealing = row_sealing::install(query);
        match PREVIOUS_HOOKS.get().run {
            // SAFETY: the hook that was installed before, with its arguments.
            Some(hook) => unsafe { call_postgres(|| hook(query, direction, count, once)) },
            // SAFETY: as above.
            None => unsafe { pg_sys::standard_ExecutorRun(query, direction, count, once) },
        }
        drop(sealing);
        if activity::depth() == 1 {
            settle::raise_faults();
        }
        drop(run);
    });
}

/// The hook for the last run of an executor, of its triggers: runs it. At the outermost level,
/// raises the faults of posted operations afterwards.
extern "C-unwind" fn on_finish(query: *mut pg_sys::QueryDesc) {
    guarded(|| {
        let run = activity::Run::enter();
        match PREVIOUS_HOOKS.get().finish {
            // SAFETY: the hook that was installed before, with its argument.
            Some(hook) => unsafe { call_postgres(|| hook(query)) },
            // SAFETY: as above.
            None => unsafe { pg_sys::standard_ExecutorFinish(query) },
        }
        if activity::depth() == 1 {
            settle::raise_faults();
        }
        drop(run);
    });
}

/// The hook for the end of an executor: ends it, and the statement if that is over.
extern "C-unwind" fn on_end(query: *mut pg_sys::QueryDesc) {
    guarded(|| {
        match PREVIOUS_HOOKS.get().end {
            // SAFETY: the hook that was installed before, with its argument.
            Some(hook) => unsafe { call_postgres(|| hook(query)) },
            // SAFETY: as above.
            None => unsafe { pg_sys::standard_ExecutorEnd(query) },
        }
        end_if_over();
    });
}

/// Counts the owner of a memory context as a holder of identifiers, until PostgreSQL frees or
/// resets the context.
fn hold_until_freed(context: pg_sys::MemoryContext) {
    // SAFETY: the callback lives in the context, as MemoryContextRegisterResetCallback wants it.
    unsafe {
        let size = size_of::<pg_sys::MemoryContextCallback>();
        let callback: *mut pg_sys::MemoryContextCallback =
            pg_sys::MemoryContextAlloc(context, size).cast();
        callback.write(pg_sys::MemoryContextCallback {
            func: Some(on_freed),
            arg: context.cast(),
            next: std::ptr::null_mut(),
        });
        pg_sys::MemoryContextRegisterResetCallback(context, callback);
    }
    activity::add_holder();
}

/// Called when the memory context of a holder is freed: counts one holder less, and ends the
/// statement if it is over.
extern "C-unwind" fn on_freed(context: *mut c_void) {
    guarded(|| {
        activity::remove_holder();
        if COUNTED_PORTAL.get().cast() == context {
            COUNTED_PORTAL.set(std::ptr::null_mut());
        }
        end_if_over();
    });
}

/// At the outermost level, keeps the statement's identifiers as long as the portal that runs it:
/// its rows may be stored first and be sent to the client after its executor has ended (INSERT ...
/// RETURNING, EXECUTE, CALL).
fn hold_active_portal() {
    // SAFETY: reads a pointer of the server.
    let portal = unsafe { pg_sys::ActivePortal };
    if activity::depth() > 0 {
        return;
    }
    // SAFETY: the active portal is valid.
    if let Some(portal) = unsafe { portal.as_ref() } {
        hold_portal(portal.portalContext);
    }
}

/// Counts a portal as a holder of identifiers, unless it was the last one counted, until PostgreSQL
/// frees or resets its memory context, `context`. Identifiers stay valid as long as there is a
/// holder.
fn hold_portal(context: pg_sys::MemoryContext) {
    if COUNTED_PORTAL.get() != context {
        hold_until_freed(context);
        COUNTED_PORTAL.set(context);
    }
}

/// Keeps the statement's identifiers as long as the portal of this name: a cursor WITH HOLD keeps
/// rows after its executor has ended.
pub(crate) fn hold_cursor(name: *const std::ffi::c_char) {
    // SAFETY: looks a portal up; the name is a string of the parse tree.
    let portal = unsafe { pg_sys::GetPortalByName(name) };
    // SAFETY: a portal that was found is valid.
    if let Some(portal) = unsafe { portal.as_ref() } {
        hold_until_freed(portal.portalContext);
    }
}

/// How long to keep the value of a text that an input function reads now; a portal whose parameters
/// are read is counted as a holder.
///
/// A text that is read while a query is analysed becomes a constant of a plan, which may be kept. A
/// text that is read for a bound parameter, a copied row or a cast is needed by the statement only.
/// The current memory context tells them apart: parameters are bound in their portal's context
/// (`exec_bind_message`), rows and expressions are evaluated in an expression's context.
pub(crate) fn lifetime_of_input() -> Lifetime {
    let context = context_name();
    if context == c"ExprContext" {
        Lifetime::Statement
    } else if context == c"PortalContext" && activity::depth() == 0 {
        lifetime_of_parameter()
    } else {
        Lifetime::Connection
    }
}

/// How long to keep the value of a binary form, which is never part of a query's text: until the
/// statement is over. A portal whose parameters are read is counted as a holder.
pub(crate) fn lifetime_of_parameter() -> Lifetime {
    // SAFETY: reads a pointer of the server.
    let context = unsafe { pg_sys::CurrentMemoryContext };
    if context_name() == c"PortalContext" && activity::depth() == 0 {
        hold_portal(context);
    }
    Lifetime::Statement
}

/// The name of the current memory context, which tells what PostgreSQL is doing.
fn context_name() -> &'static CStr {
    // SAFETY: there is always a current context, and its name is a constant of the server
    // (MemoryContextCreate).
    unsafe { CStr::from_ptr((*pg_sys::CurrentMemoryContext).name) }
}

/// Called at the end of a transaction: forgets its scans, and ends the statement if it is over.
pub(crate) fn end_with_transaction() {
    scans::forget_all();
    end_if_over();
}
