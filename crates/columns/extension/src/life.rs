//! Which life of the server this is: a random number that is drawn whenever its shared memory is made anew, at a start and after the crash of
//! a backend.
//!
//! What was in the log's buffers only is lost with the memory, and the zone, which may have lived on, must not build on it. Must not: mean
//! anything else.

use std::cell::Cell;
use std::ffi::c_void;

use pgrx::pg_sys;
use strongroom_columns_ring::{Broken, Descriptor, Host, Op};

use crate::call::guarded;
use crate::{fault, zone};

/// Former owners of the hooks.
struct Former {
    request: Cell<pg_sys::shmem_request_hook_type>,
    startup: Cell<pg_sys::shmem_startup_hook_type>,
}

// SAFETY: a backend has one thread.
unsafe impl Sync for Former {}

static FORMER: Former = Former {
    request: Cell::new(None),
    startup: Cell::new(None),
};

thread_local! {
    /// The number, in shared memory.
    static LIFE: Cell<*mut u64> = const { Cell::new(std::ptr::null_mut()) };
}

/// Hangs this module into the server's start.
pub(crate) fn install() {
    // SAFETY: the server's hooks, before any shared memory is made; this process has one thread.
    unsafe {
        FORMER.request.set(pg_sys::shmem_request_hook);
        pg_sys::shmem_request_hook = Some(request);
        FORMER.startup.set(pg_sys::shmem_startup_hook);
        pg_sys::shmem_startup_hook = Some(startup);
    }
}

extern "C-unwind" fn request() {
    guarded(|| {
        if let Some(former) = FORMER.request.get() {
            // SAFETY: who was there before.
            unsafe { former() };
        }
        // SAFETY: asked for in the hook that is for it.
        unsafe { pg_sys::RequestAddinShmemSpace(size_of::<u64>()) };
    });
}

extern "C-unwind" fn startup() {
    guarded(|| {
        if let Some(former) = FORMER.startup.get() {
            // SAFETY: who was there before.
            unsafe { former() };
        }
        let (mut found, mut drawn) = (false, 0_u64);
        // SAFETY: in the hook that is for it: the postmaster, which is alone.
        let place = unsafe {
            pg_sys::ShmemInitStruct(
                c"strongroom_columns life".as_ptr(),
                size_of::<u64>(),
                &raw mut found,
            )
        };
        let place = place.cast::<u64>();
        if !found {
            // SAFETY: writes into a variable.
            let done = unsafe {
                pg_sys::pg_strong_random((&raw mut drawn).cast::<c_void>(), size_of::<u64>())
            };
            if !done {
                fault::Report::new("XX000", "no random numbers are to be had").raise();
            }
            // SAFETY: eight bytes of shared memory, aligned by the server.
            unsafe { place.write(drawn) };
        }
        LIFE.set(place);
    });
}

/// Tells the zone at the other end of a new connection. Nothing of this life may get into the log before.
pub(crate) fn tell(host: &mut Host) -> Result<(), Broken> {
    let place = LIFE.get();
    // SAFETY: shared memory of the server, written before there were other processes; a server in recovery inserts nothing.
    let (a, b, n) = unsafe {
        let life = if place.is_null() { 0 } else { place.read() };
        let mut timeline = 0;
        let flushed = if pg_sys::RecoveryInProgress() {
            0
        } else {
            // What a crash could take must not be passed over when the log is read again.
            pg_sys::GetFlushRecPtr(&raw mut timeline)
        };
        (life, flushed, timeline)
    };
    let descriptor = Descriptor {
        a,
        b,
        n,
        ..Descriptor::of(Op::ServerGeneration)
    };
    host.call(descriptor, zone::check).map(drop)
}
