//! Shared memory of the server's processes: which zone's redo records may be inserted into the
//! write-ahead log, after which sweep each backend's statement began, and how far the zone of a
//! standby has followed the log.
//!
//! Invariants: L4 (a record gets into the log only while the zone that sealed it is the one that
//! the log is replayed to; the background worker changes that zone under an exclusive lock), G4 (a
//! backend that may hold a permanent identifier announces after which sweep its statement began).
//! Must not: wait for anything while the lock is held; hold anything of a value.

use std::cell::Cell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use pg_sys::LWLockMode::{LW_EXCLUSIVE, LW_SHARED};
use pgrx::pg_sys;

use crate::call::{call_postgres, guarded};
use crate::fault;

const NAME: &CStr = c"strongroom_columns";
/// Number of sweeps whose position in the log is remembered.
const SWEEPS: usize = 64;

/// The beginning of the shared structure. A number for each backend follows: 0 while it holds no
/// identifier, otherwise one more than the last sweep that had ended when its statement began.
#[repr(C)]
struct Shared {
    /// The incarnation of the zone whose records may be inserted, in two halves; zeros before the
    /// first zone is known. Changed under the lock.
    incarnation: [AtomicU64; 2],
    /// Number of the last sweep that has ended.
    swept: AtomicU64,
    /// The last sweeps, and the end of the log when each ended; entries are reused in turn. Changed
    /// under the lock.
    sweeps: [(AtomicU64, AtomicU64); SWEEPS],
    /// How many sweeps have ended.
    count: AtomicU64,
    /// How many partitions were retired.
    retired: AtomicU64,
    /// How many of them are left, as the launcher of the sweepers has found.
    retired_now: AtomicU64,
    /// On a standby: the zone has every redo record before this position of the log.
    followed: AtomicU64,
    /// The latch of the worker that reads the log to the zone; null while it does not run.
    follower: AtomicPtr<pg_sys::Latch>,
}

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(std::ptr::null_mut());
static LOCK: AtomicPtr<pg_sys::LWLock> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    static PREVIOUS_REQUEST_HOOK: Cell<pg_sys::shmem_request_hook_type> = const { Cell::new(None) };
    static PREVIOUS_STARTUP_HOOK: Cell<pg_sys::shmem_startup_hook_type> = const { Cell::new(None) };
    /// Whether this backend has announced that it may hold identifiers.
    static BUSY: Cell<bool> = const { Cell::new(false) };
    /// Whether the callback for the end of this backend is registered.
    static HAS_EXIT_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Installs the hooks of the server's start; they call those installed before.
pub(crate) fn install() {
    // SAFETY: hooks are set while the library is loaded, before anything runs.
    unsafe {
        PREVIOUS_REQUEST_HOOK.set(pg_sys::shmem_request_hook);
        PREVIOUS_STARTUP_HOOK.set(pg_sys::shmem_startup_hook);
        pg_sys::shmem_request_hook = Some(request_memory);
        pg_sys::shmem_startup_hook = Some(init_memory);
    }
}

/// The greatest number of backends that the server allows.
fn backend_count() -> usize {
    // SAFETY: the server has set it before it asks for shared memory.
    usize::try_from(unsafe { pg_sys::MaxBackends }).unwrap_or(0)
}

/// Size of the shared memory in bytes.
fn size() -> usize {
    size_of::<Shared>() + backend_count() * size_of::<AtomicU64>()
}

/// The hook that asks for shared memory: asks for the structure, and for one lock.
extern "C-unwind" fn request_memory() {
    guarded(|| {
        if let Some(hook) = PREVIOUS_REQUEST_HOOK.get() {
            // SAFETY: the hook that was installed before.
            unsafe { call_postgres(|| hook()) };
        }
        // SAFETY: called in the hook for requests of shared memory.
        unsafe {
            pg_sys::RequestAddinShmemSpace(size());
            pg_sys::RequestNamedLWLockTranche(NAME.as_ptr(), 1);
        }
    });
}

/// The hook that makes shared memory: makes and clears the structure, unless it is there already,
/// and finds the lock.
extern "C-unwind" fn init_memory() {
    guarded(|| {
        if let Some(hook) = PREVIOUS_STARTUP_HOOK.get() {
            // SAFETY: the hook that was installed before.
            unsafe { call_postgres(|| hook()) };
        }
        let mut found = false;
        // SAFETY: called in the hook that makes shared memory, by the postmaster, which is the only
        // process then; fresh memory is cleared, and zeros are a valid structure.
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

/// The extension's shared memory. Raises an internal ERROR if there is none.
fn shared() -> &'static Shared {
    let at = SHARED.load(Ordering::Acquire);
    // SAFETY: set before any backend was started, and there until the last one has ended; only
    // atomics are in it.
    unsafe { at.as_ref() }
        .unwrap_or_else(|| fault::raise_internal("there is no shared memory of strongroom_columns"))
}

/// The number that each backend has announced, by backend.
fn backends() -> &'static [AtomicU64] {
    let first: *const Shared = shared();
    // SAFETY: as many numbers follow the structure as were asked for.
    unsafe { std::slice::from_raw_parts(first.add(1).cast(), backend_count()) }
}

/// Runs `work` under the lock, shared or exclusive, and returns its result. PostgreSQL releases the
/// lock if an error ends the work.
fn with_lock<R>(mode: pg_sys::LWLockMode::Type, work: impl FnOnce() -> R) -> R {
    let lock = LOCK.load(Ordering::Acquire);
    // SAFETY: the server's lock for this library.
    unsafe { pg_sys::LWLockAcquire(lock, mode) };
    let result = work();
    // SAFETY: taken above.
    unsafe { pg_sys::LWLockRelease(lock) };
    result
}

/// An incarnation as two little-endian words.
fn halves(incarnation: [u8; 16]) -> [u64; 2] {
    let (halves, _) = incarnation.as_chunks::<8>();
    [0, 1].map(|at| halves.get(at).map_or(0, |half| u64::from_le_bytes(*half)))
}

/// The incarnation of the zone whose records may be inserted; zeros before the first zone is known.
fn admitted() -> [u64; 2] {
    let [low, high] = &shared().incarnation;
    [low.load(Ordering::Relaxed), high.load(Ordering::Relaxed)]
}

/// From now on, only records of this zone may be inserted. The caller holds the exclusive lock.
fn admit(halves: [u64; 2]) {
    for (word, half) in shared().incarnation.iter().zip(halves) {
        word.store(half, Ordering::Relaxed);
    }
}

/// Runs `insert`, which puts a record of the zone of this incarnation into the log, under the
/// shared lock. False, and it is not run, if another zone's records are admitted by now. The first
/// zone since the server's start is admitted.
pub(crate) fn insert_record(incarnation: [u8; 16], insert: impl Fn()) -> bool {
    let own = halves(incarnation);
    let done = with_lock(LW_SHARED, || {
        let is_admitted = admitted() == own;
        if is_admitted {
            insert();
        }
        is_admitted
    });
    // The first zone since the server was started: no backend has a record of an earlier one.
    let first = !done
        && with_lock(LW_EXCLUSIVE, || {
            let first = admitted() == [0, 0];
            if first {
                admit(own);
            }
            first
        });
    done || (first && insert_record(incarnation, insert))
}

/// From now on, only records of the zone of this incarnation get into the log. Waits for insertions
/// that are under way.
pub(crate) fn admit_only(incarnation: [u8; 16]) {
    let own = halves(incarnation);
    with_lock(LW_EXCLUSIVE, || admit(own));
}

/// This backend's number in shared memory. `None` for a process that is no backend, which reads no
/// tables.
fn own_number() -> Option<&'static AtomicU64> {
    // SAFETY: reads a number of this process.
    let number = usize::try_from(unsafe { pg_sys::MyBackendId }).ok()?;
    backends().get(number.checked_sub(1)?)
}

/// Announces in shared memory that this backend may hold identifiers from now on, unless it has. To
/// be called before it reads any; the end of the backend takes it back.
pub(crate) fn announce_busy() {
    if BUSY.get() {
        return;
    }
    if let Some(number) = own_number() {
        if !HAS_EXIT_CALLBACK.replace(true) {
            // SAFETY: registers a function that only writes a number, so that no sweep waits for a
            // backend that has ended.
            unsafe { pg_sys::before_shmem_exit(Some(on_exit), pg_sys::Datum::null()) };
        }
        let since = shared().swept.load(Ordering::SeqCst);
        // SeqCst: a sweep sees this before this backend reads any identifier.
        number.store(since + 1, Ordering::SeqCst);
        BUSY.set(true);
    }
}

/// Announces in shared memory that this backend holds no identifier any more.
pub(crate) fn announce_idle() {
    if BUSY.get()
        && let Some(number) = own_number()
    {
        number.store(0, Ordering::SeqCst);
        BUSY.set(false);
    }
}

/// Whether a backend other than this one may hold identifiers. To be called while this process has
/// a lock that keeps others from reading the ones that it asks about.
pub(crate) fn may_others_hold_identifiers() -> bool {
    let own = own_number().map_or(std::ptr::null(), std::ptr::from_ref);
    let mut others = backends()
        .iter()
        .filter(|number| !std::ptr::eq(*number, own));
    others.any(|number| number.load(Ordering::SeqCst) != 0)
}

/// Notes in shared memory that a sweep has ended which found nothing, and of which nothing is
/// freed.
pub(crate) fn record_empty_sweep(sweep: u64) {
    with_lock(LW_EXCLUSIVE, || {
        shared().swept.fetch_max(sweep, Ordering::SeqCst);
    });
}

/// Notes how many partitions are retired now.
pub(crate) fn set_retired_now(count: u64) {
    shared().retired_now.store(count, Ordering::Relaxed);
}

/// How many partitions were retired when the launcher of the sweepers looked last.
pub(crate) fn retired_now() -> u64 {
    shared().retired_now.load(Ordering::Relaxed)
}

/// Counts a partition that was retired.
pub(crate) fn note_retired() {
    shared().retired.fetch_add(1, Ordering::Release);
}

/// How many partitions were retired since the server's start.
pub(crate) fn retired_count() -> u64 {
    shared().retired.load(Ordering::Acquire)
}

/// The number of the last sweep that has ended since the server's start; 0 if none has.
pub(crate) fn last_sweep() -> u64 {
    shared().swept.load(Ordering::SeqCst)
}

/// Notes in shared memory that a sweep has ended, and the position of the end of the log then.
pub(crate) fn record_sweep(sweep: u64, position: u64) {
    let shared = shared();
    with_lock(LW_EXCLUSIVE, || {
        let at = shared.count.load(Ordering::Relaxed);
        let entry = usize::try_from(at).unwrap_or(0) % SWEEPS;
        if let Some((number, end)) = shared.sweeps.get(entry) {
            number.store(sweep, Ordering::Relaxed);
            end.store(position, Ordering::Relaxed);
        }
        shared.count.store(at + 1, Ordering::Relaxed);
        shared.swept.fetch_max(sweep, Ordering::SeqCst);
    });
}

/// The number of the last sweep whose garbage may be freed: every current statement began after it
/// (G4), and every logical slot has decoded the log up to its end. `decoded` is the position up to
/// which they have; `None` if there is no such slot. 0 for no sweep.
pub(crate) fn last_freeable_sweep(decoded: Option<u64>) -> u64 {
    let shared = shared();
    with_lock(LW_SHARED, || {
        let swept = shared.swept.load(Ordering::SeqCst);
        let since = backends()
            .iter()
            .map(|number| number.load(Ordering::SeqCst));
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

/// Notes that this process is the worker that reads the log to the zone, until it ends.
pub(crate) fn announce_follower() {
    // SAFETY: registers a function that only writes to shared memory.
    unsafe { pg_sys::before_shmem_exit(Some(on_follower_exit), pg_sys::Datum::null()) };
    // SAFETY: this process's latch, which is in shared memory.
    let latch = unsafe { pg_sys::MyLatch };
    shared().follower.store(latch, Ordering::Release);
}

/// Called at the end of the worker: nobody wakes it any more.
extern "C-unwind" fn on_follower_exit(_code: i32, _arg: pg_sys::Datum) {
    guarded(|| {
        note_followed(0);
        shared()
            .follower
            .store(std::ptr::null_mut(), Ordering::Release);
    });
}

/// Notes up to which position of the log the zone of a standby has every redo record; 0 when that
/// is not known.
pub(crate) fn note_followed(position: u64) {
    shared().followed.store(position, Ordering::Release);
}

/// Up to which position of the log the zone of a standby has every redo record.
pub(crate) fn followed_to() -> u64 {
    shared().followed.load(Ordering::Acquire)
}

/// Has the worker that reads the log to the zone do its next step now, if it runs.
pub(crate) fn wake_follower() {
    let latch = shared().follower.load(Ordering::Acquire);
    if !latch.is_null() {
        // SAFETY: a latch of a process in shared memory; one that has ended is woken in vain.
        unsafe { pg_sys::SetLatch(latch) };
    }
}

/// Called at the end of the backend: announces that it holds no identifier any more.
extern "C-unwind" fn on_exit(_code: i32, _arg: pg_sys::Datum) {
    guarded(announce_idle);
}
