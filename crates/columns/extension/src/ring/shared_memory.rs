//! What the server's processes share: whose redo records may be inserted, and since when each backend's statement runs.
//!
//! Invariants: L4 (a record gets into the log only while the zone that sealed it is the one that the log is replayed to, under a lock
//! that the worker holds exclusively when it changes that), G4 (a backend that may hold a permanent identifier says since which sweep).
//! Must not: wait for anything while the lock is held; hold anything of a value.

use std::cell::Cell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use pg_sys::LWLockMode::{LW_EXCLUSIVE, LW_SHARED};
use pgrx::pg_sys;

use crate::call::guarded;

const NAME: &CStr = c"strongroom_columns";
/// Sweeps whose position in the log is remembered.
const SWEEPS: usize = 64;

/// The beginning of the shared structure; a number for each backend follows: 0 while it holds nothing, otherwise one more than
/// the last sweep that had ended when its statement began.
#[repr(C)]
struct Shared {
    /// The zone whose records may be inserted, in two halves; zeros before the first one is known. Changed under the lock.
    incarnation: [AtomicU64; 2],
    /// The last sweep that has ended.
    swept: AtomicU64,
    /// Sweeps that ended, and where the log was then; used in turn. Changed under the lock.
    sweeps: [(AtomicU64, AtomicU64); SWEEPS],
    /// How many of them there were.
    count: AtomicU64,
}

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(std::ptr::null_mut());
static LOCK: AtomicPtr<pg_sys::LWLock> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    static REQUEST: Cell<pg_sys::shmem_request_hook_type> = const { Cell::new(None) };
    static STARTUP: Cell<pg_sys::shmem_startup_hook_type> = const { Cell::new(None) };
    /// Whether this backend has said that it may hold identifiers.
    static BUSY: Cell<bool> = const { Cell::new(false) };
    /// Whether this backend gives its place back when it ends.
    static LEAVES: Cell<bool> = const { Cell::new(false) };
}

/// Hangs this module into the server.
pub(crate) fn install() {
    // SAFETY: hooks are set while the library is loaded, before anything runs.
    unsafe {
        REQUEST.set(pg_sys::shmem_request_hook);
        STARTUP.set(pg_sys::shmem_startup_hook);
        pg_sys::shmem_request_hook = Some(request);
        pg_sys::shmem_startup_hook = Some(startup);
    }
}

fn backends() -> usize {
    // SAFETY: the server has set it before it asks for shared memory.
    usize::try_from(unsafe { pg_sys::MaxBackends }).unwrap_or(0)
}

fn size() -> usize {
    size_of::<Shared>() + backends() * size_of::<AtomicU64>()
}

extern "C-unwind" fn request() {
    guarded(|| {
        if let Some(hook) = REQUEST.get() {
            // SAFETY: the hook that stood here before.
            unsafe { crate::call::outside(|| hook()) };
        }
        // SAFETY: called where shared memory is asked for.
        unsafe {
            pg_sys::RequestAddinShmemSpace(size());
            pg_sys::RequestNamedLWLockTranche(NAME.as_ptr(), 1);
        }
    });
}

extern "C-unwind" fn startup() {
    guarded(|| {
        if let Some(hook) = STARTUP.get() {
            // SAFETY: the hook that stood here before.
            unsafe { crate::call::outside(|| hook()) };
        }
        let mut found = false;
        // SAFETY: called where shared memory is given out, by the one process that there is then; fresh memory is cleared, and all of
        // it zeros is a valid structure.
        unsafe {
            let at = pg_sys::ShmemInitStruct(NAME.as_ptr(), size(), &raw mut found);
            if !found {
                at.cast::<u8>().write_bytes(0, size());
            }
            SHARED.store(at.cast(), Ordering::Release);
            let lock = pg_sys::GetNamedLWLockTranche(NAME.as_ptr());
            LOCK.store(&raw mut (*lock).lock, Ordering::Release);
        }
    });
}

fn shared() -> &'static Shared {
    let at = SHARED.load(Ordering::Acquire);
    // SAFETY: set before any backend was started, and there until the last one has ended; only atomics are in it.
    unsafe { at.as_ref() }.unwrap_or_else(|| {
        crate::fault::internal("there is no shared memory of strongroom_columns")
    })
}

/// The backends' numbers.
fn holders() -> &'static [AtomicU64] {
    let first: *const Shared = shared();
    // SAFETY: as many numbers follow the structure as were asked for.
    unsafe { std::slice::from_raw_parts(first.add(1).cast(), backends()) }
}

/// Does something under the lock. PostgreSQL gives it back when an error ends the work.
fn locked<R>(mode: pg_sys::LWLockMode::Type, work: impl FnOnce() -> R) -> R {
    let lock = LOCK.load(Ordering::Acquire);
    // SAFETY: the server's lock for this library.
    unsafe { pg_sys::LWLockAcquire(lock, mode) };
    let result = work();
    // SAFETY: taken above.
    unsafe { pg_sys::LWLockRelease(lock) };
    result
}

fn halves(incarnation: [u8; 16]) -> [u64; 2] {
    let (halves, _) = incarnation.as_chunks::<8>();
    [0, 1].map(|at| halves.get(at).map_or(0, |half| u64::from_le_bytes(*half)))
}

fn current() -> [u64; 2] {
    let [low, high] = &shared().incarnation;
    [low.load(Ordering::Relaxed), high.load(Ordering::Relaxed)]
}

fn admit(halves: [u64; 2]) {
    for (place, half) in shared().incarnation.iter().zip(halves) {
        place.store(half, Ordering::Relaxed);
    }
}

/// Inserts a record of the zone of this incarnation into the log, unless the log is another zone's by now; whether it did.
pub(crate) fn insert(incarnation: [u8; 16], insert: impl Fn()) -> bool {
    let own = halves(incarnation);
    let done = locked(LW_SHARED, || {
        let admitted = current() == own;
        if admitted {
            insert();
        }
        admitted
    });
    // The first zone that anyone speaks with since the server was started: no backend has a record of an earlier one.
    let first = !done
        && locked(LW_EXCLUSIVE, || {
            let first = current() == [0, 0];
            if first {
                admit(own);
            }
            first
        });
    done || (first && self::insert(incarnation, insert))
}

/// From now on only records of the zone of this incarnation get into the log.
pub(crate) fn flip(incarnation: [u8; 16]) {
    let own = halves(incarnation);
    locked(LW_EXCLUSIVE, || admit(own));
}

/// The place of this backend's number. A process without a place reads no tables.
fn own_place() -> Option<&'static AtomicU64> {
    // SAFETY: reads a number of this process.
    let number = usize::try_from(unsafe { pg_sys::MyBackendId }).ok()?;
    holders().get(number.checked_sub(1)?)
}

/// This backend may hold identifiers from now on. To be called before it reads any.
pub(crate) fn busy() {
    if BUSY.get() {
        return;
    }
    if let Some(place) = own_place() {
        if !LEAVES.replace(true) {
            // SAFETY: registers a function that only writes a number, so that nobody waits for a backend that has ended.
            unsafe { pg_sys::before_shmem_exit(Some(left), pg_sys::Datum::null()) };
        }
        let since = shared().swept.load(Ordering::SeqCst);
        // SeqCst: what is read behind this is read after whoever sweeps can see it.
        place.store(since + 1, Ordering::SeqCst);
        BUSY.set(true);
    }
}

/// This backend holds no identifier any more.
pub(crate) fn idle() {
    if BUSY.get()
        && let Some(place) = own_place()
    {
        place.store(0, Ordering::SeqCst);
        BUSY.set(false);
    }
}

/// A sweep has ended, with the log at this position.
pub(crate) fn swept(sweep: u64, position: u64) {
    let shared = shared();
    locked(LW_EXCLUSIVE, || {
        let at = shared.count.load(Ordering::Relaxed);
        let at_most = usize::try_from(at).unwrap_or(0) % SWEEPS;
        if let Some((number, end)) = shared.sweeps.get(at_most) {
            number.store(sweep, Ordering::Relaxed);
            end.store(position, Ordering::Relaxed);
        }
        shared.count.store(at + 1, Ordering::Relaxed);
        shared.swept.fetch_max(sweep, Ordering::SeqCst);
    });
}

/// The last sweep before which no statement under way began (G4). `decoded` is the position up to which every logical slot has decoded
/// the log; `None` when there is no such slot.
pub(crate) fn free_upto(decoded: Option<u64>) -> u64 {
    let shared = shared();
    locked(LW_SHARED, || {
        let swept = shared.swept.load(Ordering::SeqCst);
        let since = holders().iter().map(|place| place.load(Ordering::SeqCst));
        let oldest = since
            .filter(|since| *since != 0)
            .map(|since| since - 1)
            .min();
        let held = oldest.unwrap_or(swept).min(swept);
        let Some(decoded) = decoded else { return held };
        let known = shared.sweeps.iter().filter_map(|(number, end)| {
            let number = number.load(Ordering::Relaxed);
            let passed = number != 0 && end.load(Ordering::Relaxed) <= decoded;
            passed.then_some(number)
        });
        known.max().unwrap_or(0).min(held)
    })
}

extern "C-unwind" fn left(_code: i32, _arg: pg_sys::Datum) {
    guarded(idle);
}
