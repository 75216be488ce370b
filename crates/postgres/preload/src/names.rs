//! Interposes rename, link, unlink, access and similar functions.
//!
//! Invariants: N2, N5; bytes never get another name than the one they are sealed for. A file that
//! must be converted is converted and synced before the rename (`shield::rename`); a rename for
//! which that is impossible is refused with EXDEV.
//!
//! Must not: change the order of PostgreSQL's own steps.
#![expect(unsafe_code, reason = "interposed C functions")]

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::sync::atomic::{AtomicBool, Ordering};

use shield::real::Errno;
use shield::rename::{self, RenameStep};
use shield::resolve::{Resolved, Seal};
use shield::restored::{self, RestoredAs};
use strongroom_format::code;

use crate::arguments::{resolve_path, resolve_path_at};
use crate::environment::plain_segment_policy;
use crate::next::{self, real};
use crate::open::fail;
use crate::report;

symbols! {
    /// As rename(2). A file that is sealed for its name is first converted to the new one, or
    /// checked if it comes from the restore command. Fails with EXDEV where that is impossible,
    /// ENOENT for a file of Strongroom's own, and EACCES for such a new name or a refused path.
    fn rename(from: *const c_char, to: *const c_char) -> c_int {
        match prepare_rename(resolve_path(from), resolve_path(to), from) {
            Ok(()) => next::rename(from, to),
            Err(errno) => fail(errno.0),
        }
    }
    /// As the C library's function; EXDEV if the file would have to be converted for its new name.
    /// Only `rename` and `link` convert.
    fn renameat(from_base: c_int, from: *const c_char, to_base: c_int, to: *const c_char) -> c_int {
        match prepare_rename_at(from_base, from, to_base, to) {
            Ok(()) => next::renameat(from_base, from, to_base, to),
            Err(errno) => fail(errno.0),
        }
    }
    /// As the C library's function; EXDEV if the file would have to be converted for its new name.
    /// Only `rename` and `link` convert.
    fn renameat2(
        from_base: c_int, from: *const c_char, to_base: c_int, to: *const c_char, flags: c_uint
    ) -> c_int {
        match prepare_rename_at(from_base, from, to_base, to) {
            Ok(()) => next::renameat2(from_base, from, to_base, to, flags),
            Err(errno) => fail(errno.0),
        }
    }
    /// As link(2). A file that is sealed for its name is first converted as for `rename`.
    fn link(from: *const c_char, to: *const c_char) -> c_int {
        match prepare_rename(resolve_path(from), resolve_path(to), from) {
            Ok(()) => next::link(from, to),
            Err(errno) => fail(errno.0),
        }
    }
    /// As the C library's function; EXDEV if the file would have to be converted for its new name.
    /// Only `rename` and `link` convert.
    fn linkat(
        from_base: c_int, from: *const c_char, to_base: c_int, to: *const c_char, flags: c_int
    ) -> c_int {
        match prepare_rename_at(from_base, from, to_base, to) {
            Ok(()) => next::linkat(from_base, from, to_base, to, flags),
            Err(errno) => fail(errno.0),
        }
    }
    /// As the C library's function; ENOENT for Strongroom's own files.
    fn unlink(path: *const c_char) -> c_int {
        match check_visible(resolve_path(path)) {
            Ok(()) => next::unlink(path),
            Err(errno) => fail(errno.0),
        }
    }
    /// As the C library's function; ENOENT for Strongroom's own files.
    fn unlinkat(base: c_int, path: *const c_char, flags: c_int) -> c_int {
        match check_visible(resolve_path_at(base, path)) {
            Ok(()) => next::unlinkat(base, path, flags),
            Err(errno) => fail(errno.0),
        }
    }
    /// As the C library's function; ENOENT for Strongroom's own files.
    fn remove(path: *const c_char) -> c_int {
        match check_visible(resolve_path(path)) {
            Ok(()) => next::remove(path),
            Err(errno) => fail(errno.0),
        }
    }
    /// As the C library's function; ENOENT for Strongroom's own files.
    fn access(path: *const c_char, mode: c_int) -> c_int {
        match check_visible(resolve_path(path)) {
            Ok(()) => next::access(path, mode),
            Err(errno) => fail(errno.0),
        }
    }
    /// As the C library's function; ENOENT for Strongroom's own files.
    fn faccessat(base: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
        match check_visible(resolve_path_at(base, path)) {
            Ok(()) => next::faccessat(base, path, mode, flags),
            Err(errno) => fail(errno.0),
        }
    }
}

/// Checks that the program may see the path: ENOENT if it is hidden. Passes on the error in
/// `resolved`.
pub(crate) fn check_visible(resolved: Result<Resolved, Errno>) -> Result<(), Errno> {
    match resolved? {
        Resolved::Hidden => Err(Errno(libc::ENOENT)),
        _ => Ok(()),
    }
}

/// Checks that `from` can get its new name as it is; for the functions with directory descriptors.
/// EXDEV when the file would have to be converted or checked, which only [`prepare_rename`] does;
/// otherwise errors of resolving, and the errno of a refusal.
///
/// # Safety
/// As renameat(2).
unsafe fn prepare_rename_at(
    from_base: c_int,
    from: *const c_char,
    to_base: c_int,
    to: *const c_char,
) -> Result<(), Errno> {
    // SAFETY: the program's strings.
    let (source, target) = unsafe {
        (
            resolve_path_at(from_base, from),
            resolve_path_at(to_base, to),
        )
    };
    let (source, target) = (source?, target?);
    match rename::rename_step(&source, &target) {
        RenameStep::Nothing => Ok(()),
        RenameStep::Refuse(errno) => Err(errno),
        // Only the server renames such files, and it does not use these forms.
        RenameStep::Convert(..)
        | RenameStep::CheckRestored(_)
        | RenameStep::Rebind(..)
        | RenameStep::SameNameOnly
        | RenameStep::SameTreatmentOnly => Err(Errno(libc::EXDEV)),
    }
}

/// Does what must be done before `from` gets its new name: converts a new log file or a container
/// in place and syncs it, or checks a restored segment ([`check_restored`], with its errors). Does
/// nothing if the bytes can stay as they are, or `from` is null.
///
/// Errors: the error in `source` or `target`; ENOENT if `from` is Strongroom's own file, EACCES if
/// the target is, or the shield refuses a path; EXDEV between different keys or databases, or if
/// the contents cannot get that name (reported as SR-7040 where a container is bound to its name);
/// EIO if a file does not open; the kernel's. After a failure a part may be converted.
///
/// # Safety
/// `from` is null or a terminated string.
unsafe fn prepare_rename(
    source: Result<Resolved, Errno>,
    target: Result<Resolved, Errno>,
    from: *const c_char,
) -> Result<(), Errno> {
    let (source, target) = (source?, target?);
    let step = rename::rename_step(&source, &target);
    if matches!(step, RenameStep::Nothing) || from.is_null() {
        return Ok(());
    }
    // SAFETY: by this function's contract, and not null.
    let path = unsafe { CStr::from_ptr(from) };
    match step {
        RenameStep::Nothing => Ok(()),
        RenameStep::Refuse(errno) => Err(errno),
        RenameStep::Convert(source, target) => {
            rename::convert(real(), path, &source, target.as_ref())
        }
        RenameStep::CheckRestored(target) => check_restored(path, &target),
        RenameStep::Rebind(source, target) => rename::rebind(real(), path, &source, &target),
        RenameStep::SameNameOnly => rename::refuse_contents(real(), path).inspect_err(|_| {
            let what = path.to_bytes().escape_ascii();
            report::refuse(&code::PG_BOUND_NAME, format_args!("{what}"));
        }),
        RenameStep::SameTreatmentOnly => rename::refuse_contents(real(), path),
    }
}

/// Whether a segment in clear was reported: one line for each process is enough.
static REPORTED: AtomicBool = AtomicBool::new(false);

/// Checks a file from the restore command before it gets the name of a segment. If it is in clear
/// and that is accepted, seals it in place, and writes a line about it, once in each process. A
/// refusal is reported as SR-7023 with its reason, and returned as its errno.
fn check_restored(path: &CStr, target: &Seal) -> Result<(), Errno> {
    let what = path.to_bytes().escape_ascii();
    match restored::check_restored(real(), path, target, plain_segment_policy()) {
        Ok(RestoredAs::Unchanged) => Ok(()),
        Ok(RestoredAs::SealedNow) => {
            if !REPORTED.swap(true, Ordering::Relaxed) {
                report::line(format_args!(
                    "strongroom: {what} came from the archive in clear and was sealed; so will others that follow"
                ));
            }
            Ok(())
        }
        Err(refusal) => {
            report::refuse(
                &code::PG_RESTORED,
                format_args!("{what}: {}", refusal.describe()),
            );
            Err(refusal.errno())
        }
    }
}
