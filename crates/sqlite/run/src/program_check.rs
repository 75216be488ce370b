//! Checks a program before it is started: one that contains its own SQLite, or that runs with other
//! privileges and is linked to an SQLite, would write plain databases. This is reported, and where
//! plain databases are forbidden (`STRONGROOM_SQLITE_NEVER_PLAIN`) the program is not started.
//!
//! Nothing is reported for a program that neither contains an SQLite nor is linked to one.
//!
//! Must not: allocate, since a child of `fork` calls this, except to read a program that contains
//! SQLite's constant or runs with other privileges.
#![expect(unsafe_code, reason = "reads files by descriptors, without allocating")]

use std::ffi::{CStr, c_char, c_int};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::FromRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use strongroom_format::code;
use strongroom_sqlite_program::{
    EXECUTABLE_MAX, Interpreter, OTHER_RIGHTS, SCRIPTS, interpreter, is_elf, links_sqlite,
    script_line, sqlite_magic,
};

use crate::environment::{OwnSettings, own};
use crate::install::report;

/// Bytes that are searched at once. They are on the stack of the caller.
const PIECE: usize = 32 * 1024;

/// Where the C library searches for a program when `PATH` is not set (`CS_PATH` of glibc's
/// confstr).
const PATH_UNSET: &CStr = c"/bin:/usr/bin";

/// Whether the program at `path` may be started. Reports a program whose databases would be plain:
/// as SR-2285, and then false, where plain databases are forbidden, else as SR-2287, and true. True
/// for every other program, and for one that cannot be examined.
pub(crate) fn may_start(path: &CStr) -> bool {
    let Some(own) = own() else {
        return true;
    };
    let Some(why) = why_unprotected(own, path, SCRIPTS) else {
        return true;
    };
    let path = path.to_string_lossy();
    if own.never_plain {
        let detail = format!("{path}: {why}; plain databases are forbidden, so it is not started");
        report(&code::RUN_PROGRAM, &detail);
    } else {
        report(
            &code::RUN_OWN_SQLITE,
            &format!("{path}, which is started now: {why}"),
        );
    }
    !own.never_plain
}

/// Whether a program that is looked for in `PATH` when its name has no slash may be started.
/// Reports one whose databases would be plain: as SR-2285, and then false, where plain databases
/// are forbidden, else as SR-2287, and true. True for every other program, and if none is found.
pub(crate) fn may_start_named(name: &CStr) -> bool {
    if name.to_bytes().contains(&b'/') {
        return may_start(name);
    }
    if name.is_empty() {
        return true;
    }
    // SAFETY: a text that ends with a zero byte; what is found is null or such a text.
    let path = unsafe { text(libc::getenv(c"PATH".as_ptr())) };
    let path = path.unwrap_or(PATH_UNSET).to_bytes();
    let mut buffer = [0_u8; libc::PATH_MAX as usize];
    for directory in path.split(|byte| *byte == b':') {
        let candidate = joined(&mut buffer, directory, name.to_bytes());
        let Some(candidate) = candidate else { continue };
        if is_executable(candidate) {
            return may_start(candidate);
        }
    }
    true
}

/// Whether the C library takes this file for the program: a regular file that this user may
/// execute. It skips others, such as directories.
fn is_executable(path: &CStr) -> bool {
    let mut about = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: a text that ends with a zero byte, and a place for what is known of the file; zeros
    // are valid in each of its fields.
    let about = unsafe {
        let found = libc::stat(path.as_ptr(), about.as_mut_ptr()) == 0
            && libc::access(path.as_ptr(), libc::X_OK) == 0;
        found.then(|| about.assume_init())
    };
    about.is_some_and(|about| about.st_mode & libc::S_IFMT == libc::S_IFREG)
}

/// Writes `directory/name` into `buffer` and returns it; an empty directory is the working one.
/// `None` if it does not fit.
fn joined<'a>(buffer: &'a mut [u8], directory: &[u8], name: &[u8]) -> Option<&'a CStr> {
    let directory = if directory.is_empty() {
        b"."
    } else {
        directory
    };
    let mut at = 0_usize;
    for part in [directory, b"/", name, b"\0"] {
        let end = at.checked_add(part.len())?;
        buffer.get_mut(at..end)?.copy_from_slice(part);
        at = end;
    }
    CStr::from_bytes_until_nul(buffer).ok()
}

/// Reads the program at `path`, or the interpreter of a script, and returns why its databases would
/// be plain. `None`: they would not be, or it is unknown, also if the file cannot be read. Follows
/// up to `scripts` scripts.
fn why_unprotected(own: &OwnSettings, path: &CStr, scripts: u32) -> Option<&'static str> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: a text that ends with a zero byte.
    let descriptor: c_int = unsafe { libc::open(path.as_ptr(), flags) };
    if descriptor < 0 {
        return None;
    }
    // SAFETY: opened just now, and given to nobody else.
    let file = unsafe { File::from_raw_fd(descriptor) };
    let about = file.metadata().ok()?;
    if !about.is_file() || about.len() > EXECUTABLE_MAX || own.is_command(about.dev(), about.ino())
    {
        return None;
    }
    let mut piece = [0_u8; PIECE];
    let read = file.read_at(&mut piece, 0).ok()?;
    let head = piece.get(..read)?;
    if let Some(line) = script_line(head) {
        // The program that `env` starts is checked when `env` starts it.
        let Some(Interpreter::Program(next)) = interpreter(line) else {
            return None;
        };
        let mut buffer = [0_u8; libc::PATH_MAX as usize];
        buffer.get_mut(..next.len())?.copy_from_slice(next);
        let next = CStr::from_bytes_until_nul(&buffer).ok()?;
        return why_unprotected(own, next, scripts.checked_sub(1)?);
    }
    if !is_elf(head) {
        return None;
    }
    let other_rights = about.mode() & OTHER_RIGHTS != 0;
    let holds_magic = holds_magic(&file, &mut piece);
    if !other_rights && !holds_magic {
        return None;
    }
    let mut bytes = Vec::new();
    let whole = file.take(EXECUTABLE_MAX).read_to_end(&mut bytes);
    whole.ok()?;
    let links_sqlite = links_sqlite(&bytes);
    if holds_magic && !links_sqlite {
        return Some("it has an SQLite of its own, into which the extension cannot be loaded");
    }
    (other_rights && links_sqlite)
        .then_some("it runs with other rights (set-user-ID), and the dynamic linker does not preload the library into it")
}

/// Whether the file contains the constant that every SQLite has. Reads the file in pieces, into
/// `piece`. False after an error.
fn holds_magic(file: &File, piece: &mut [u8; PIECE]) -> bool {
    let magic = sqlite_magic();
    let mut at = 0_u64;
    loop {
        let read = match file.read_at(piece, at) {
            Ok(read) if read >= magic.len() => read,
            _ => return false,
        };
        let bytes = piece.get(..read).unwrap_or_default();
        if memchr::memmem::find(bytes, &magic).is_some() {
            return true;
        }
        // The next piece begins with the end of this one, where the constant may begin.
        let step = read.saturating_sub(magic.len().saturating_sub(1));
        at = at.saturating_add(step as u64);
    }
}

/// Writes the path by which a descriptor's file can be opened into `buffer`, and returns it. `None`
/// if it does not fit, which cannot happen.
pub(crate) fn path_of(buffer: &mut [u8; 32], descriptor: c_int) -> Option<&CStr> {
    write!(&mut buffer[..], "/proc/self/fd/{descriptor}\0").ok()?;
    CStr::from_bytes_until_nul(buffer).ok()
}

/// Returns the path by which the program of `execveat` can be opened, in `buffer` where it must be
/// built. `None`: it is empty without `AT_EMPTY_PATH`, or longer than any path may be.
pub(crate) fn path_at<'a>(
    buffer: &'a mut [u8; libc::PATH_MAX as usize],
    directory: c_int,
    path: &'a CStr,
    flags: c_int,
) -> Option<&'a CStr> {
    if path.is_empty() && flags & libc::AT_EMPTY_PATH == 0 {
        return None;
    }
    if directory == libc::AT_FDCWD || path.to_bytes().starts_with(b"/") {
        return Some(path);
    }
    let mut descriptor = [0; 32];
    let descriptor = path_of(&mut descriptor, directory)?.to_bytes();
    if path.is_empty() {
        buffer
            .get_mut(..descriptor.len())?
            .copy_from_slice(descriptor);
        return CStr::from_bytes_until_nul(buffer).ok();
    }
    joined(buffer, descriptor, path.to_bytes())
}

/// Wraps a C text; `None` for null.
///
/// # Safety
/// `path` is null or a text that ends with a zero byte.
pub(crate) unsafe fn text<'a>(path: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's word.
    (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) })
}
