//! `sqlite3_io_methods`: the C entry points of an open file. Each converts its arguments and calls
//! the file's method.
//!
//! Must not: decide anything, except that SQLite gets no page from a mapping, because a page must
//! be decrypted first.
#![expect(unsafe_code, reason = "called by SQLite with raw pointers")]

use std::ffi::{c_int, c_void};

use crate::connection_list;
use crate::ffi::{
    SQLITE_FCNTL_PDB, SQLITE_FCNTL_PRAGMA, SQLITE_FCNTL_VFSNAME, SQLITE_IOERR, SQLITE_NOTFOUND,
    SQLITE_OK, sqlite3_file, sqlite3_io_methods,
};
use crate::handle::{lower_file_of, uninstall, with};
use crate::hooks::hooks;
use crate::io_methods::IoMethods as _;
use crate::lower::LowerFile;
use crate::sqlite_code::{SqliteCode, SqliteResult, check, result_code};
use crate::sqlite_text;

/// The method tables of our files, by what the file below can do. SQLite concludes from the version
/// of a file's table whether it has shared memory, which the write-ahead log needs, and mappings.
/// `unix-none` and `unix-dotfile` have no shared memory, whatever the version of their tables.
static METHODS: [sqlite3_io_methods; 5] = [
    table(1, false),
    table(2, false),
    table(2, true),
    table(3, false),
    table(3, true),
];

/// Builds a method table of this version, for a file that has shared memory or not. Shared-memory
/// methods are absent without it, and those for mappings below version 3.
const fn table(version: c_int, has_shared_memory: bool) -> sqlite3_io_methods {
    let mut methods = sqlite3_io_methods {
        version,
        close: Some(close),
        read: Some(read),
        write: Some(write),
        truncate: Some(truncate),
        sync: Some(sync),
        file_size: Some(file_size),
        lock: Some(lock),
        unlock: Some(unlock),
        check_reserved_lock: Some(check_reserved_lock),
        file_control: Some(file_control),
        sector_size: Some(sector_size),
        device_characteristics: Some(device_characteristics),
        shm_map: None,
        shm_lock: None,
        shm_barrier: None,
        shm_unmap: None,
        fetch: None,
        unfetch: None,
    };
    if has_shared_memory {
        methods.shm_map = Some(shm_map);
        methods.shm_lock = Some(shm_lock);
        methods.shm_barrier = Some(shm_barrier);
        methods.shm_unmap = Some(shm_unmap);
    }
    if version >= 3 {
        methods.fetch = Some(fetch);
        methods.unfetch = Some(unfetch);
    }
    methods
}

/// Returns the method table for our file over a file with the methods `below`: of the same version,
/// at most 3, and with shared memory if that file has it.
pub(crate) fn over(below: &sqlite3_io_methods) -> &'static sqlite3_io_methods {
    let [first, second, second_shared, third, third_shared] = &METHODS;
    // A table of version 1 ends before `shm_map`.
    match (below.version, below.version >= 2 && below.shm_map.is_some()) {
        (..=1, _) => first,
        (2, false) => second,
        (2, true) => second_shared,
        (_, false) => third,
        (_, true) => third_shared,
    }
}

/// Whether `methods` points to one of this VFS's tables. Their addresses distinguish our files from
/// others.
pub(crate) fn are_ours(methods: *const sqlite3_io_methods) -> bool {
    METHODS.as_ptr_range().contains(&methods)
}

/// Converts the offset that SQLite gave. `SQLITE_IOERR` when it is negative.
fn at(offset: i64) -> SqliteResult<u64> {
    u64::try_from(offset).map_err(|_| SqliteCode(SQLITE_IOERR))
}

/// `xClose`: removes the file from the list of connections, writes what is buffered, then closes
/// our file and the one below, even if the write failed. Returns the first error.
unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    connection_list::forget_file(file);
    let flushed = with(file, |open| open.file.before_close());
    // SAFETY: SQLite calls xClose once per file.
    unsafe { uninstall(file) };
    // SAFETY: our own file, whose allocation holds the file below.
    let below = unsafe { lower_file_of(file) };
    // SAFETY: it was opened when ours was, and nothing uses it any more.
    let closed = unsafe { LowerFile::new(below) }.close();
    result_code(flushed.and(closed))
}

/// `xRead`: calls the file's own `read`. `SQLITE_IOERR` for a negative amount or offset.
unsafe extern "C" fn read(
    file: *mut sqlite3_file,
    out: *mut c_void,
    amount: c_int,
    offset: i64,
) -> c_int {
    let Ok(len) = usize::try_from(amount) else {
        return SQLITE_IOERR;
    };
    // SAFETY: SQLite gives a buffer of `amount` bytes, which it has initialised or will not read.
    let out = unsafe { std::slice::from_raw_parts_mut(out.cast::<u8>(), len) };
    result_code(with(file, |open| open.file.read(out, at(offset)?)))
}

/// `xWrite`: calls the file's own `write`. `SQLITE_IOERR` for a negative amount or offset.
unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    data: *const c_void,
    amount: c_int,
    offset: i64,
) -> c_int {
    let Ok(len) = usize::try_from(amount) else {
        return SQLITE_IOERR;
    };
    // SAFETY: SQLite gives `amount` bytes.
    let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) };
    result_code(with(file, |open| open.file.write(data, at(offset)?)))
}

/// `xTruncate`: calls the file's own `truncate`. `SQLITE_IOERR` for a negative size.
unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: i64) -> c_int {
    result_code(with(file, |open| open.file.truncate(at(size)?)))
}

/// `xSync`: calls the file's own `sync`.
unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    result_code(with(file, |open| open.file.sync(flags)))
}

/// `xFileSize`: writes the size that SQLite is to see, in bytes, into `size`.
unsafe extern "C" fn file_size(file: *mut sqlite3_file, size: *mut i64) -> c_int {
    result_code(with(file, |open| {
        let bytes = i64::try_from(open.file.size()?).map_err(|_| SqliteCode(SQLITE_IOERR))?;
        // SAFETY: SQLite gives a place for the result.
        unsafe { size.write(bytes) };
        Ok(())
    }))
}

/// `xLock`: calls the file's own `lock`, which may also read the header anew.
unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    result_code(with(file, |open| open.file.lock(level)))
}

/// `xUnlock`: calls the file's own `unlock`.
unsafe extern "C" fn unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    result_code(with(file, |open| open.file.unlock(level)))
}

/// `xCheckReservedLock`: writes into `held` what the file below answers: other than 0 if some
/// connection holds a reserved lock.
unsafe extern "C" fn check_reserved_lock(file: *mut sqlite3_file, held: *mut c_int) -> c_int {
    result_code(with(file, |open| {
        let answer = open.file.lower().check_reserved_lock()?;
        // SAFETY: SQLite gives a place for the result.
        unsafe { held.write(answer) };
        Ok(())
    }))
}

/// `xFileControl`: answers Strongroom's PRAGMAs, notes the connection that a file belongs to, puts
/// this VFS's name before the name of the one below, and passes all other operations on to the
/// file.
unsafe extern "C" fn file_control(
    file: *mut sqlite3_file,
    op: c_int,
    argument: *mut c_void,
) -> c_int {
    match op {
        SQLITE_FCNTL_PRAGMA => match hooks() {
            // SAFETY: with this op the argument is SQLite's array of strings.
            Some(hooks) => unsafe { (hooks.pragma)(file, argument) },
            None => SQLITE_NOTFOUND,
        },
        SQLITE_FCNTL_PDB => {
            if let Some(hooks) = hooks() {
                // SAFETY: with this op the argument points to the connection.
                unsafe { (hooks.check_attached)(file, argument) };
            }
            result_code(with(file, |open| open.file.file_control(op, argument)))
        }
        SQLITE_FCNTL_VFSNAME => {
            let below = result_code(with(file, |open| open.file.file_control(op, argument)));
            // SAFETY: with this op the argument points to a string of SQLite's allocator.
            unsafe { sqlite_text::prefix_vfs_name(argument) };
            below
        }
        _ => result_code(with(file, |open| open.file.file_control(op, argument))),
    }
}

/// `xSectorSize`: returns the sector size of the file below in bytes; 4096 for a file that failed.
unsafe extern "C" fn sector_size(file: *mut sqlite3_file) -> c_int {
    with(file, |open| Ok(open.file.lower().sector_size())).unwrap_or(4096)
}

/// `xDeviceCharacteristics`: returns the flags `SQLITE_IOCAP_*` of the file; 0 for a file that
/// failed.
unsafe extern "C" fn device_characteristics(file: *mut sqlite3_file) -> c_int {
    with(file, |open| Ok(open.file.device_characteristics())).unwrap_or(0)
}

/// `xShmMap`: passes the call on to the file below. `SQLITE_IOERR` if that has no shared memory.
unsafe extern "C" fn shm_map(
    file: *mut sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    result_code(with(file, |open| {
        let below = open.file.lower();
        let call = below
            .shared_memory()?
            .shm_map
            .ok_or(SqliteCode(SQLITE_IOERR))?;
        // SAFETY: the arguments are passed on unchanged.
        check(unsafe { call(below.as_ptr(), region, size, extend, out) })
    }))
}

/// `xShmLock`: notes the lock in our file, then passes the call on to the file below. The locks
/// show when a reader begins, and when a writer or a checkpoint does.
unsafe extern "C" fn shm_lock(
    file: *mut sqlite3_file,
    offset: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    result_code(with(file, |open| {
        open.file.shm_lock_changes(offset, flags);
        let below = open.file.lower();
        let call = below
            .shared_memory()?
            .shm_lock
            .ok_or(SqliteCode(SQLITE_IOERR))?;
        // SAFETY: the arguments are passed on unchanged.
        check(unsafe { call(below.as_ptr(), offset, count, flags) })
    }))
}

/// `xShmBarrier`: passes the call on to the file below. If that is not possible, makes a full
/// memory barrier instead.
unsafe extern "C" fn shm_barrier(file: *mut sqlite3_file) {
    let passed = with(file, |open| {
        let below = open.file.lower();
        let call = below
            .shared_memory()?
            .shm_barrier
            .ok_or(SqliteCode(SQLITE_IOERR))?;
        // SAFETY: passed on unchanged.
        unsafe { call(below.as_ptr()) };
        Ok(())
    });
    if passed.is_err() {
        // No error can be reported from here; other calls on the handle have failed or will fail.
        // The barrier must hold.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    }
}

/// `xShmUnmap`: passes the call on to the file below. `SQLITE_IOERR` if that has no shared memory.
unsafe extern "C" fn shm_unmap(file: *mut sqlite3_file, delete: c_int) -> c_int {
    result_code(with(file, |open| {
        let below = open.file.lower();
        let call = below
            .shared_memory()?
            .shm_unmap
            .ok_or(SqliteCode(SQLITE_IOERR))?;
        // SAFETY: passed on unchanged.
        check(unsafe { call(below.as_ptr(), delete) })
    }))
}

/// `xFetch`: maps nothing, because SQLite would see sealed pages. Gives a null page and
/// `SQLITE_OK`, so that SQLite reads the page instead.
unsafe extern "C" fn fetch(
    _file: *mut sqlite3_file,
    _offset: i64,
    _amount: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: SQLite gives a place for the result; null means "not mapped", and SQLite reads the
    // page instead.
    unsafe { out.write(std::ptr::null_mut()) };
    SQLITE_OK
}

/// `xUnfetch`: without a page, drops the mapping of the file below, because the file may have
/// changed. With a page, does nothing, since none was given out.
unsafe extern "C" fn unfetch(file: *mut sqlite3_file, _offset: i64, page: *mut c_void) -> c_int {
    // Without a page the call means that the file may have changed. It concerns the mapping of the
    // file below, from which this VFS reads.
    if page.is_null() {
        return result_code(with(file, |open| open.file.lower().unmap()));
    }
    SQLITE_OK
}
