//! When a statement is over: then its ephemerals are freed.
//!
//! A statement is over when no executor, no utility command and no portal is left that could still hold one of its
//! identifiers: a cursor that is read later, a portal whose parameters are bound and that was not run yet, a block of PL/pgSQL that
//! commits in its middle. Each of these counts itself alive in a memory context of its own and is counted off when PostgreSQL
//! frees that, however it ends. Invariant: posted faults are asked for before an execution returns, before a subtransaction ends and
//! before a transaction commits (R2). Must not: raise where a transaction ends.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};

use pgrx::pg_sys;

use crate::call::{guarded, outside};
use crate::execution::row_sealing;
use crate::ring::{shared_memory, zone};
use crate::scanning::batching;
use crate::storage::transaction_end;

thread_local! {
    /// Depth of executor runs and utility commands.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Depth of executor runs.
    static RUNNING: Cell<u32> = const { Cell::new(0) };
    /// Executor states and portals that may hold identifiers.
    static ALIVE: Cell<u32> = const { Cell::new(0) };
    /// The portal that was counted last.
    static BOUND: Cell<pg_sys::MemoryContext> = const { Cell::new(std::ptr::null_mut()) };
    static HOOKS: Cell<Hooks> = const { Cell::new(Hooks::NONE) };
}

/// Who stood in the hooks before.
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

/// How long the value of an envelope lives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// Until the statement is over.
    Statement,
    /// Until the connection ends: it may be in a plan.
    Connection,
}

/// Hangs this module into the server.
pub(crate) fn install() {
    // SAFETY: hooks are set while the library is loaded, before anything runs.
    unsafe {
        HOOKS.set(Hooks {
            start: pg_sys::ExecutorStart_hook,
            run: pg_sys::ExecutorRun_hook,
            finish: pg_sys::ExecutorFinish_hook,
            end: pg_sys::ExecutorEnd_hook,
        });
        pg_sys::ExecutorStart_hook = Some(start);
        pg_sys::ExecutorRun_hook = Some(run);
        pg_sys::ExecutorFinish_hook = Some(finish);
        pg_sys::ExecutorEnd_hook = Some(end);
    }
}

/// Whether nothing is left that could hold an identifier of the statement.
pub(crate) fn is_over() -> bool {
    DEPTH.get() == 0 && ALIVE.get() == 0
}

/// Whether an executor runs.
pub(crate) fn is_running() -> bool {
    RUNNING.get() > 0
}

/// Ends the statement if it is over.
pub(crate) fn end_if_over() {
    if is_over() {
        batching::forget_answers();
        zone::end_statement();
        zone::forget_loss();
        shared_memory::idle();
    }
}

/// A level of execution, left however the work ends.
struct Level(&'static std::thread::LocalKey<Cell<u32>>);

impl Level {
    fn enter(of: &'static std::thread::LocalKey<Cell<u32>>) -> Self {
        shared_memory::busy();
        of.set(of.get() + 1);
        Self(of)
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// Runs a utility command as part of the statement.
pub(crate) fn as_utility(work: impl FnOnce()) {
    keep_active_portal();
    let level = Level::enter(&DEPTH);
    work();
    if DEPTH.get() == 1 {
        zone::settle();
    }
    drop(level);
}

extern "C-unwind" fn start(query: *mut pg_sys::QueryDesc, flags: c_int) {
    guarded(|| {
        keep_active_portal();
        // SAFETY: PostgreSQL's own query.
        let parallel = unsafe { (*(*query).plannedstmt).parallelModeNeeded };
        // SAFETY: asks the server. Workers that run have their settings already.
        if parallel && !unsafe { pg_sys::IsInParallelMode() } {
            zone::lead();
        }
        match HOOKS.get().start {
            // SAFETY: the hook that stood here before, with its arguments.
            Some(hook) => unsafe { outside(|| hook(query, flags)) },
            // SAFETY: as above.
            None => unsafe { pg_sys::standard_ExecutorStart(query, flags) },
        }
        // SAFETY: the executor has been started, so it has a state with a memory context.
        stay_alive(unsafe { (*(*query).estate).es_query_cxt });
    });
}

extern "C-unwind" fn run(
    query: *mut pg_sys::QueryDesc,
    direction: pg_sys::ScanDirection::Type,
    count: u64,
    once: bool,
) {
    guarded(|| {
        let levels = (Level::enter(&DEPTH), Level::enter(&RUNNING));
        let sending = row_sealing::begin(query);
        match HOOKS.get().run {
            // SAFETY: the hook that stood here before, with its arguments.
            Some(hook) => unsafe { outside(|| hook(query, direction, count, once)) },
            // SAFETY: as above.
            None => unsafe { pg_sys::standard_ExecutorRun(query, direction, count, once) },
        }
        drop(sending);
        if DEPTH.get() == 1 {
            zone::settle();
        }
        drop(levels);
    });
}

extern "C-unwind" fn finish(query: *mut pg_sys::QueryDesc) {
    guarded(|| {
        let levels = (Level::enter(&DEPTH), Level::enter(&RUNNING));
        match HOOKS.get().finish {
            // SAFETY: the hook that stood here before, with its argument.
            Some(hook) => unsafe { outside(|| hook(query)) },
            // SAFETY: as above.
            None => unsafe { pg_sys::standard_ExecutorFinish(query) },
        }
        if DEPTH.get() == 1 {
            zone::settle();
        }
        drop(levels);
    });
}

extern "C-unwind" fn end(query: *mut pg_sys::QueryDesc) {
    guarded(|| {
        match HOOKS.get().end {
            // SAFETY: the hook that stood here before, with its argument.
            Some(hook) => unsafe { outside(|| hook(query)) },
            // SAFETY: as above.
            None => unsafe { pg_sys::standard_ExecutorEnd(query) },
        }
        end_if_over();
    });
}

/// Counts the owner of a memory context alive until the context is freed.
fn stay_alive(context: pg_sys::MemoryContext) {
    // SAFETY: the callback lives in the context, as MemoryContextRegisterResetCallback wants it.
    unsafe {
        let size = size_of::<pg_sys::MemoryContextCallback>();
        let callback: *mut pg_sys::MemoryContextCallback =
            pg_sys::MemoryContextAlloc(context, size).cast();
        callback.write(pg_sys::MemoryContextCallback {
            func: Some(freed),
            arg: context.cast(),
            next: std::ptr::null_mut(),
        });
        pg_sys::MemoryContextRegisterResetCallback(context, callback);
    }
    shared_memory::busy();
    ALIVE.set(ALIVE.get() + 1);
}

extern "C-unwind" fn freed(context: *mut c_void) {
    guarded(|| {
        ALIVE.set(ALIVE.get().saturating_sub(1));
        if BOUND.get().cast() == context {
            BOUND.set(std::ptr::null_mut());
        }
        end_if_over();
    });
}

/// Keeps the statement's identifiers as long as the portal that runs it: what it returns may be put aside first and be sent to the
/// client after its executor has ended (INSERT ... RETURNING, EXECUTE, CALL).
fn keep_active_portal() {
    // SAFETY: reads a pointer of the server.
    let portal = unsafe { pg_sys::ActivePortal };
    if DEPTH.get() > 0 {
        return;
    }
    // SAFETY: the active portal is valid.
    if let Some(portal) = unsafe { portal.as_ref() } {
        keep_context(portal.portalContext);
    }
}

/// Counts a portal's context alive, once.
fn keep_context(context: pg_sys::MemoryContext) {
    if BOUND.get() != context {
        stay_alive(context);
        BOUND.set(context);
    }
}

/// Keeps the statement's identifiers as long as the portal of this name: a cursor WITH HOLD keeps rows after its executor ended.
pub(crate) fn keep_portal(name: *const std::ffi::c_char) {
    // SAFETY: looks a portal up; the name is a string of the parse tree.
    let portal = unsafe { pg_sys::GetPortalByName(name) };
    // SAFETY: a portal that was found is valid.
    if let Some(portal) = unsafe { portal.as_ref() } {
        stay_alive(portal.portalContext);
    }
}

/// How long the value of a text lives that is read now.
///
/// A text is read when a query is analysed, and then its value is a constant of a plan that may be kept; or when a parameter is
/// bound, a row is copied in, a cast is computed, and then the statement needs it. The memory context tells: values are bound in their
/// portal's (`exec_bind_message`), rows and expressions are evaluated in an expression's.
pub(crate) fn lifetime_of_input() -> Lifetime {
    let context = context_name();
    if context == c"ExprContext" {
        Lifetime::Statement
    } else if context == c"PortalContext" && DEPTH.get() == 0 {
        lifetime_of_parameter()
    } else {
        Lifetime::Connection
    }
}

/// How long the value of a binary form lives: those are never part of a query's text.
pub(crate) fn lifetime_of_parameter() -> Lifetime {
    // SAFETY: reads a pointer of the server.
    let context = unsafe { pg_sys::CurrentMemoryContext };
    if context_name() == c"PortalContext" && DEPTH.get() == 0 {
        keep_context(context);
    }
    Lifetime::Statement
}

fn context_name() -> &'static CStr {
    // SAFETY: there is always a current context, and its name is a constant of the server (MemoryContextCreate).
    unsafe { CStr::from_ptr((*pg_sys::CurrentMemoryContext).name) }
}

/// At a transaction's end.
pub(crate) fn transaction_ended() {
    batching::forget_scans();
    end_if_over();
    transaction_end::forget();
}
