//! The server's generation: a random number that is drawn whenever the server's shared memory is
//! made anew, at a start and after the crash of a backend.
//!
//! Write-ahead log that was only in memory is lost then, and the zone, which may have kept running,
//! must not rely on it (L2). Must not: be used for anything else.

use std::cell::Cell;
use std::ffi::c_void;

use pgrx::pg_sys;
use strongroom_columns_ring::{Broken, Descriptor, Host, Op};

use crate::call::guarded;
use crate::{fault, interrupts};

/// The hooks that were installed before this library's.
struct PreviousHooks {
    request: Cell<pg_sys::shmem_request_hook_type>,
    startup: Cell<pg_sys::shmem_startup_hook_type>,
}

// SAFETY: a backend has one thread.
unsafe impl Sync for PreviousHooks {}

static PREVIOUS_HOOKS: PreviousHooks = PreviousHooks {
    request: Cell::new(None),
    startup: Cell::new(None),
};

thread_local! {
    /// The number, in shared memory.
    static GENERATION: Cell<*mut u64> = const { Cell::new(std::ptr::null_mut()) };
}

/// Installs the hooks of the server's start; they call those installed before.
pub(crate) fn install() {
    // SAFETY: the server's hooks, before any shared memory is made; this process has one thread.
    unsafe {
        PREVIOUS_HOOKS.request.set(pg_sys::shmem_request_hook);
        pg_sys::shmem_request_hook = Some(request_memory);
        PREVIOUS_HOOKS.startup.set(pg_sys::shmem_startup_hook);
        pg_sys::shmem_startup_hook = Some(init_memory);
    }
}

/// The hook that asks for shared memory: asks for 8 bytes.
extern "C-unwind" fn request_memory() {
    guarded(|| {
        if let Some(hook) = PREVIOUS_HOOKS.request.get() {
            // SAFETY: the hook that was installed before.
            unsafe { hook() };
        }
        // SAFETY: called in the hook for requests of shared memory.
        unsafe { pg_sys::RequestAddinShmemSpace(size_of::<u64>()) };
    });
}

/// The hook that makes shared memory: draws the generation, unless it is there already. Raises an
/// ERROR without random numbers.
extern "C-unwind" fn init_memory() {
    guarded(|| {
        if let Some(hook) = PREVIOUS_HOOKS.startup.get() {
            // SAFETY: the hook that was installed before.
            unsafe { hook() };
        }
        let (mut found, mut drawn) = (false, 0_u64);
        // SAFETY: called in the hook that makes shared memory, by the postmaster, which is the only
        // process then.
        let number = unsafe {
            pg_sys::ShmemInitStruct(
                c"strongroom_columns life".as_ptr(),
                size_of::<u64>(),
                &raw mut found,
            )
        };
        let number = number.cast::<u64>();
        if !found {
            // SAFETY: writes into a variable.
            let done = unsafe {
                pg_sys::pg_strong_random((&raw mut drawn).cast::<c_void>(), size_of::<u64>())
            };
            if !done {
                fault::Report::new("XX000", "no random numbers are to be had").raise();
            }
            // SAFETY: eight bytes of shared memory, aligned by the server.
            unsafe { number.write(drawn) };
        }
        GENERATION.set(number);
    });
}

/// Sends the zone the server's generation, with the timeline of its log, over a new connection, and
/// waits for the answer. No record of this generation may get into the log before.
///
/// # Errors
///
/// The zone's fault, as for a log on another timeline than before; `Lost` if it is gone;
/// `Interrupted` at the end of a transaction.
pub(super) fn send(host: &mut Host) -> Result<(), Broken> {
    let number = GENERATION.get();
    // SAFETY: shared memory of the server, written before there were other processes; a server in
    // recovery inserts nothing.
    let (a, n) = unsafe {
        let generation = if number.is_null() { 0 } else { number.read() };
        let mut timeline = 0;
        if !pg_sys::RecoveryInProgress() {
            pg_sys::GetFlushRecPtr(&raw mut timeline);
        }
        (generation, timeline)
    };
    let descriptor = Descriptor {
        a,
        n,
        ..Descriptor::of(Op::ServerGeneration)
    };
    host.call(descriptor, interrupts::check_while_waiting)
        .map(drop)
}
