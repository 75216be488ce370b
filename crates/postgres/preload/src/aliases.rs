//! Interposes second names of functions that other modules interpose, and functions of the C
//! library that open or write files internally.
//!
//! The C library exports `__write` and similar names, which programs use that must not get an
//! interposed `write`. `dprintf` writes without calling a function that could be interposed, and
//! the file actions of `posix_spawn` open files in the child, before it executes another program.
//!
//! Must not: change anything for files that are not sealed.
#![expect(unsafe_code, reason = "interposed C functions")]

use std::ffi::{c_char, c_int, c_void};

use libc::{mode_t, off_t, pid_t, size_t, ssize_t};
use shield::descriptors;
use shield::resolve::Resolved;
use strongroom_format::code;

use crate::arguments::{bytes, resolve_path};
use crate::{close, data, next, open, process, refused, report, space, stdio};

symbols! {
    /// Another name of this library's `open`.
    fn __open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open::open(path, flags, mode)
    }
    /// Another name of this library's `open64`.
    fn __open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open::open64(path, flags, mode)
    }
    /// Another name of this library's `close`.
    fn __close(fd: c_int) -> c_int {
        close::close(fd)
    }
    /// Another name of this library's `dup2`.
    fn __dup2(fd: c_int, copy: c_int) -> c_int {
        close::dup2(fd, copy)
    }
    /// Another name of this library's `fcntl`.
    fn __fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        close::fcntl(fd, command, argument)
    }
    /// Another name of this library's `read`.
    fn __read(fd: c_int, into: *mut c_void, len: size_t) -> ssize_t {
        data::read(fd, into, len)
    }
    /// Another name of this library's `write`.
    fn __write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
        data::write(fd, from, len)
    }
    /// Another name of this library's `pread64`.
    fn __pread64(fd: c_int, into: *mut c_void, len: size_t, at: off_t) -> ssize_t {
        data::pread64(fd, into, len, at)
    }
    /// Another name of this library's `pwrite64`.
    fn __pwrite64(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t {
        data::pwrite64(fd, from, len, at)
    }
    /// Another name of this library's `lseek`.
    fn __lseek(fd: c_int, to: off_t, whence: c_int) -> off_t {
        space::lseek(fd, to, whence)
    }
    /// Another name of this library's `fork`.
    fn __fork() -> pid_t {
        process::fork()
    }
    /// Another name of this library's `vfork`.
    fn __vfork() -> pid_t {
        process::vfork()
    }
    /// Another name of this library's `fopen`.
    fn _IO_fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
        stdio::fopen(path, mode)
    }
    /// Another name of this library's `fdopen`.
    fn _IO_fdopen(fd: c_int, mode: *const c_char) -> *mut libc::FILE {
        stdio::fdopen(fd, mode)
    }
    /// As `lio_listio`(3); -1 with EINVAL if a request of the list names a sealed file.
    fn lio_listio(
        mode: c_int, list: *const *mut libc::aiocb, count: c_int, event: *mut c_void
    ) -> c_int {
        lio_listio_any(mode, list, count, event)
    }
    /// As `lio_listio`(3); -1 with EINVAL if a request of the list names a sealed file.
    fn lio_listio64(
        mode: c_int, list: *const *mut libc::aiocb, count: c_int, event: *mut c_void
    ) -> c_int {
        lio_listio_any(mode, list, count, event)
    }
    /// As the C library's function; on a sealed file it reports SR-7002 and returns -1 with EBADF.
    fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
        if is_refused(fd) { -1 } else { next::vdprintf(fd, format, arguments) }
    }
    /// As the C library's function; on a sealed file it reports SR-7002 and returns -1 with EBADF.
    fn __vdprintf_chk(
        fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void
    ) -> c_int {
        if is_refused(fd) { -1 } else { next::__vdprintf_chk(fd, flag, format, arguments) }
    }
    /// As the C library's function; returns EACCES, reported as SR-7002, for a file that is sealed,
    /// hidden or refused, because the new program would see its stored bytes.
    fn posix_spawn_file_actions_addopen(
        actions: *mut c_void, fd: c_int, path: *const c_char, flags: c_int, mode: mode_t
    ) -> c_int {
        match resolve_path(path) {
            Ok(Resolved::Outside | Resolved::Plain(_)) => {
                next::posix_spawn_file_actions_addopen(actions, fd, path, flags, mode)
            }
            Ok(_) => {
                let path = bytes(path).escape_ascii();
                report::refuse(
                    &code::PG_REFUSED,
                    format_args!("{path}: opened for a new program"),
                );
                libc::EACCES
            }
            Err(errno) => errno.0,
        }
    }
}

/// `lio_listio`: starts no request and returns -1 with EINVAL when one of them names a sealed file.
///
/// # Safety
/// As `lio_listio`(3).
unsafe fn lio_listio_any(
    mode: c_int,
    list: *const *mut libc::aiocb,
    count: c_int,
    event: *mut c_void,
) -> c_int {
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: by this function's contract there are `count` requests, each null or valid.
        if !list.is_null() && unsafe { refused::targets_sealed_file(*list.add(index)) } {
            return open::fail(libc::EINVAL);
        }
    }
    // SAFETY: the program's arguments.
    unsafe { next::lio_listio(mode, list, count, event) }
}

/// Whether `dprintf` is refused because the file is sealed; then reports SR-7002 and sets errno to
/// EBADF.
fn is_refused(fd: c_int) -> bool {
    let sealed = descriptors::is_sealed(fd);
    if sealed {
        report::refuse(&code::PG_REFUSED, format_args!("dprintf on a sealed file"));
        next::set_errno(libc::EBADF);
    }
    sealed
}

#[cfg(target_arch = "x86_64")]
mod variadic {
    //! Functions with a variable number of arguments, which Rust cannot define. The arguments stay
    //! in their registers and on the stack while the descriptor is checked.

    use std::arch::naked_asm;
    use std::ffi::{c_int, c_void};

    use super::is_refused;
    use crate::next::Slot;

    static DPRINTF: Slot = Slot::new(c"dprintf");
    static DPRINTF_CHK: Slot = Slot::new(c"__dprintf_chk");

    /// The address of the C library's `dprintf`; null when the call is refused because `fd` is
    /// sealed, or there is no such function.
    extern "C" fn plain(fd: c_int) -> *mut c_void {
        function_unless_refused(fd, &DPRINTF)
    }

    /// The address of the C library's `__dprintf_chk`; null when the call is refused because `fd`
    /// is sealed, or there is no such function.
    extern "C" fn checked(fd: c_int) -> *mut c_void {
        function_unless_refused(fd, &DPRINTF_CHK)
    }

    /// The address of the C library's function in `slot`; null when the call is refused because
    /// `fd` is sealed (reported, errno EBADF), or there is no such function.
    fn function_unless_refused(fd: c_int, slot: &Slot) -> *mut c_void {
        match is_refused(fd) {
            true => std::ptr::null_mut(),
            false => slot.find().unwrap_or(std::ptr::null_mut()),
        }
    }

    /// Saves every register that can hold an argument (System V ABI, AMD64 supplement, section
    /// 3.2.3), calls `$which`, and jumps to the function that it returns, or returns -1.
    macro_rules! forward_variadic {
        ($name:ident, $which:ident) => {
            // SAFETY: the symbol interposes the C library's; registers and stack are as they were
            // when it jumps to that.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name() {
                naked_asm!(
                    "push rbp",
                    "mov rbp, rsp",
                    "sub rsp, 192",
                    "mov [rsp], rdi",
                    "mov [rsp + 8], rsi",
                    "mov [rsp + 16], rdx",
                    "mov [rsp + 24], rcx",
                    "mov [rsp + 32], r8",
                    "mov [rsp + 40], r9",
                    "mov [rsp + 48], rax",
                    "movaps [rsp + 64], xmm0",
                    "movaps [rsp + 80], xmm1",
                    "movaps [rsp + 96], xmm2",
                    "movaps [rsp + 112], xmm3",
                    "movaps [rsp + 128], xmm4",
                    "movaps [rsp + 144], xmm5",
                    "movaps [rsp + 160], xmm6",
                    "movaps [rsp + 176], xmm7",
                    "call {which}",
                    "mov r11, rax",
                    "mov rdi, [rsp]",
                    "mov rsi, [rsp + 8]",
                    "mov rdx, [rsp + 16]",
                    "mov rcx, [rsp + 24]",
                    "mov r8, [rsp + 32]",
                    "mov r9, [rsp + 40]",
                    "mov rax, [rsp + 48]",
                    "movaps xmm0, [rsp + 64]",
                    "movaps xmm1, [rsp + 80]",
                    "movaps xmm2, [rsp + 96]",
                    "movaps xmm3, [rsp + 112]",
                    "movaps xmm4, [rsp + 128]",
                    "movaps xmm5, [rsp + 144]",
                    "movaps xmm6, [rsp + 160]",
                    "movaps xmm7, [rsp + 176]",
                    "leave",
                    "test r11, r11",
                    "je 2f",
                    "jmp r11",
                    "2:",
                    "mov eax, -1",
                    "ret",
                    which = sym $which,
                )
            }
        };
    }

    forward_variadic!(dprintf, plain);
    forward_variadic!(__dprintf_chk, checked);
}
