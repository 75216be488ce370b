//! An open file of a simulated disk, as SQLite sees it (`sqlite3_io_methods`).
//!
//! Directory syncs are those of SQLite's unix VFS: a journal, log or super-journal that was just
//! made has its directory synced with its first sync (`unixSync`), a removed one when SQLite asks
//! for it (`unixDelete`).
//!
//! Must not: change anything without asking the machine whether the call fails.
#![expect(unsafe_code, reason = "called by SQLite with raw pointers")]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use rusqlite::ffi;

use super::disk::Ino;
use super::machine::{Class, Fault, Kind, Machine, State};

/// What lies in the memory that SQLite allocates for a file.
#[repr(C)]
pub(super) struct SimFile {
    pub(super) base: ffi::sqlite3_file,
    pub(super) open: *mut Open,
}

/// An open file.
pub(super) struct Open {
    pub(super) machine: Arc<Machine>,
    pub(super) ino: Ino,
    pub(super) kind: Kind,
    pub(super) handle: u64,
    pub(super) life: u64,
    /// Its name was made with it and is not durable yet.
    pub(super) new_name: bool,
    /// It has no name and goes when it is closed.
    pub(super) nameless: bool,
}

pub(super) static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

fn open_of<'a>(file: *mut ffi::sqlite3_file) -> &'a mut Open {
    // SAFETY: SQLite calls with files that `vfs::open` has opened, one call at a time for each.
    let open = unsafe { (*file.cast::<SimFile>()).open };
    // SAFETY: made by `Box::into_raw` in `vfs::open`, freed in `close` only.
    unsafe { &mut *open }
}

/// Runs `call` on the machine of a file whose power has not been cut since it was opened.
fn with(
    file: *mut ffi::sqlite3_file,
    dead: c_int,
    call: impl FnOnce(&mut Open, &mut State) -> c_int,
) -> c_int {
    let open = open_of(file);
    let machine = Arc::clone(&open.machine);
    let mut state = machine.lock();
    if state.life == open.life {
        call(open, &mut state)
    } else {
        dead
    }
}

fn index(value: i64) -> usize {
    usize::try_from(value).unwrap_or(0)
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    with(file, ffi::SQLITE_OK, |open, state| {
        if let Some(locks) = state.locks.get_mut(&open.ino) {
            locks.lower(open.handle, ffi::SQLITE_LOCK_NONE);
        }
        if open.nameless {
            state.disk.drop_nameless(open.ino);
        }
        ffi::SQLITE_OK
    });
    let sim = file.cast::<SimFile>();
    // SAFETY: SQLite closes a file once; the box was made in `vfs::open`.
    drop(unsafe { Box::from_raw((*sim).open) });
    // SAFETY: a null table says that the file is closed.
    unsafe { (*sim).base.pMethods = std::ptr::null() };
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    out: *mut c_void,
    amount: c_int,
    offset: i64,
) -> c_int {
    let len = usize::try_from(amount).unwrap_or(0);
    // SAFETY: SQLite gives a buffer of `amount` bytes.
    unsafe { std::ptr::write_bytes(out.cast::<u8>(), 0, len) };
    // SAFETY: as above, and initialised just now.
    let out = unsafe { std::slice::from_raw_parts_mut(out.cast::<u8>(), len) };
    with(file, ffi::SQLITE_IOERR_READ, |open, state| {
        let fault = state.call(Class::Read, open.kind);
        let bytes = state.disk.bytes(open.ino);
        let there = bytes.get(index(offset)..).unwrap_or_default();
        let mut take = there.len().min(out.len());
        match fault {
            Some((Fault::Short, mut random)) => {
                take = take.min(index_below(&mut random, out.len()));
            }
            Some(_) => return ffi::SQLITE_IOERR_READ,
            None => {}
        }
        out[..take].copy_from_slice(&there[..take]);
        if take < out.len() {
            ffi::SQLITE_IOERR_SHORT_READ
        } else {
            ffi::SQLITE_OK
        }
    })
}

fn index_below(random: &mut crate::random::Random, limit: usize) -> usize {
    usize::try_from(random.below(limit.max(1) as u64)).unwrap_or(0)
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    data: *const c_void,
    amount: c_int,
    offset: i64,
) -> c_int {
    let len = usize::try_from(amount).unwrap_or(0);
    // SAFETY: SQLite gives `amount` bytes.
    let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) };
    with(file, ffi::SQLITE_IOERR_WRITE, |open, state| {
        let (done, rc) = match state.call(Class::Write, open.kind) {
            None => (len, ffi::SQLITE_OK),
            Some((Fault::Full, _)) => (0, ffi::SQLITE_FULL),
            Some((Fault::Short, mut random)) => {
                (index_below(&mut random, len), ffi::SQLITE_IOERR_WRITE)
            }
            Some((Fault::ShortFull, mut random)) => {
                (index_below(&mut random, len), ffi::SQLITE_FULL)
            }
            Some(_) => (0, ffi::SQLITE_IOERR_WRITE),
        };
        if done > 0 {
            state.disk.write(open.ino, index(offset), &data[..done]);
            state.wrote(open.ino, open.kind, index(offset));
        }
        rc
    })
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    with(file, ffi::SQLITE_IOERR_TRUNCATE, |open, state| {
        if state.call(Class::Truncate, open.kind).is_some() {
            return ffi::SQLITE_IOERR_TRUNCATE;
        }
        state.disk.set_len(open.ino, index(size));
        ffi::SQLITE_OK
    })
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    with(file, ffi::SQLITE_IOERR_FSYNC, |open, state| {
        match state.call(Class::Sync, open.kind) {
            None => state.sync(open.ino, open.kind),
            Some((Fault::Lost, mut random)) => {
                state.disk.lose(open.ino, &mut random);
                return ffi::SQLITE_IOERR_FSYNC;
            }
            Some(_) => return ffi::SQLITE_IOERR_FSYNC,
        }
        if open.new_name {
            // unixSync: that the directory cannot be synced is not an error there.
            if state.call(Class::SyncNames, open.kind).is_none() {
                state.sync_names();
            }
            open.new_name = false;
        }
        ffi::SQLITE_OK
    })
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, size: *mut i64) -> c_int {
    with(file, ffi::SQLITE_IOERR_FSTAT, |open, state| {
        if state.call(Class::Size, open.kind).is_some() {
            return ffi::SQLITE_IOERR_FSTAT;
        }
        let len = i64::try_from(state.disk.bytes(open.ino).len()).unwrap_or(0);
        // SAFETY: SQLite gives a place for the result.
        unsafe { size.write(len) };
        ffi::SQLITE_OK
    })
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    with(file, ffi::SQLITE_IOERR_LOCK, |open, state| {
        match state.call(Class::Lock, open.kind) {
            Some((Fault::Busy, _)) => return ffi::SQLITE_BUSY,
            Some(_) => return ffi::SQLITE_IOERR_LOCK,
            None => {}
        }
        let locks = state.locks.entry(open.ino).or_default();
        if locks.raise(open.handle, level) {
            ffi::SQLITE_OK
        } else {
            ffi::SQLITE_BUSY
        }
    })
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    with(file, ffi::SQLITE_OK, |open, state| {
        if let Some(locks) = state.locks.get_mut(&open.ino) {
            locks.lower(open.handle, level);
        }
        ffi::SQLITE_OK
    })
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::sqlite3_file, held: *mut c_int) -> c_int {
    with(file, ffi::SQLITE_IOERR_CHECKRESERVEDLOCK, |open, state| {
        if state.call(Class::Lock, open.kind).is_some() {
            return ffi::SQLITE_IOERR_CHECKRESERVEDLOCK;
        }
        let reserved = state.locks.entry(open.ino).or_default().reserved();
        // SAFETY: SQLite gives a place for the result.
        unsafe { held.write(c_int::from(reserved)) };
        ffi::SQLITE_OK
    })
}

unsafe extern "C" fn file_control(
    _file: *mut ffi::sqlite3_file,
    _op: c_int,
    _argument: *mut c_void,
) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_file: *mut ffi::sqlite3_file) -> c_int {
    4096
}

/// What SQLite's unix VFS says of an ordinary disk.
unsafe extern "C" fn device_characteristics(_file: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    let at = with(file, ffi::SQLITE_IOERR_SHMMAP, |open, state| {
        if state.call(Class::Shared, open.kind).is_some() {
            return ffi::SQLITE_IOERR_SHMMAP;
        }
        let shared = state.shared.entry(open.ino).or_default();
        let (region, size) = (index(region.into()), index(size.into()));
        let address = shared.map(open.handle, region, size, extend != 0);
        // SAFETY: SQLite gives a place for the result.
        unsafe { out.write(address) };
        ffi::SQLITE_OK
    });
    if at != ffi::SQLITE_OK {
        // SAFETY: as above.
        unsafe { out.write(std::ptr::null_mut()) };
    }
    at
}

unsafe extern "C" fn shm_lock(
    file: *mut ffi::sqlite3_file,
    offset: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    with(file, ffi::SQLITE_IOERR_SHMLOCK, |open, state| {
        let unlock = flags & ffi::SQLITE_SHM_UNLOCK != 0;
        // Giving locks back does not fail.
        if !unlock && state.call(Class::Shared, open.kind).is_some() {
            return ffi::SQLITE_IOERR_SHMLOCK;
        }
        let shared = state.shared.entry(open.ino).or_default();
        let (first, count) = (index(offset.into()), index(count.into()));
        if shared.lock(open.handle, first, count, flags) {
            ffi::SQLITE_OK
        } else {
            ffi::SQLITE_BUSY
        }
    })
}

unsafe extern "C" fn shm_barrier(_file: *mut ffi::sqlite3_file) {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
    with(file, ffi::SQLITE_OK, |open, state| {
        let last = state
            .shared
            .get_mut(&open.ino)
            .is_some_and(|shared| shared.leave(open.handle));
        if last && delete != 0 {
            state.shared.remove(&open.ino);
        }
        ffi::SQLITE_OK
    })
}
