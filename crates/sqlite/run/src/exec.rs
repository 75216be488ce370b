//! Replaces the C library's functions that start a program: the program is checked first
//! (`program_check`), and gets the variables that load this library where they are missing
//! (`environment`).
//!
//! `execl`, `execlp` and `execle` take any number of arguments, which Rust cannot define. Each is a
//! few instructions that store its arguments in memory, for a function that collects them.
//!
//! Not seen are programs that call the kernel directly (`syscall`, and so static programs and those
//! built by Go), and what a child without this library starts.
//!
//! Must not: start a program in another way than the caller asked for.
#![expect(
    unsafe_code,
    reason = "C symbols, and calls through what is behind them"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::environment::{own_environment, restore_preload, with_variables};
use crate::install::function;
use crate::objects::Library;
use crate::program_check::{may_start, may_start_named, path_at, path_of, text};

/// A list of texts that ends with a null pointer.
type List = *const *const c_char;
type Spawn = unsafe extern "C" fn(
    *mut libc::pid_t,
    *const c_char,
    *const c_void,
    *const c_void,
    List,
    List,
) -> c_int;

/// The functions of the C library.
struct Real {
    execve: Option<unsafe extern "C" fn(*const c_char, List, List) -> c_int>,
    execvpe: Option<unsafe extern "C" fn(*const c_char, List, List) -> c_int>,
    fexecve: Option<unsafe extern "C" fn(c_int, List, List) -> c_int>,
    execveat: Option<unsafe extern "C" fn(c_int, *const c_char, List, List, c_int) -> c_int>,
    posix_spawn: Option<Spawn>,
    posix_spawnp: Option<Spawn>,
    system: Option<unsafe extern "C" fn(*const c_char) -> c_int>,
    popen: Option<unsafe extern "C" fn(*const c_char, *const c_char) -> *mut c_void>,
}

static REAL: OnceLock<Real> = OnceLock::new();

// SAFETY: the dynamic linker calls each function of this section once, as the library is loaded:
// a child of `vfork` must not look symbols up.
#[unsafe(link_section = ".init_array")]
#[used]
static AT_LOAD: extern "C" fn() = at_load;

/// Looks up the C library's functions as soon as this library is loaded: a child of `vfork` must
/// not do that.
extern "C" fn at_load() {
    real();
}

/// Returns the C library's own functions, looked up once. One that it lacks is `None`.
fn real() -> &'static Real {
    // SAFETY: the functions of these names have these types.
    REAL.get_or_init(|| unsafe {
        let c = Library::next();
        Real {
            execve: function(&c, c"execve"),
            execvpe: function(&c, c"execvpe"),
            fexecve: function(&c, c"fexecve"),
            execveat: function(&c, c"execveat"),
            posix_spawn: function(&c, c"posix_spawn"),
            posix_spawnp: function(&c, c"posix_spawnp"),
            system: function(&c, c"system"),
            popen: function(&c, c"popen"),
        }
    })
}

/// Sets `errno`, and returns -1, the C library's result for a failure.
fn failed(errno: c_int) -> c_int {
    // SAFETY: this thread's own place.
    unsafe { libc::__errno_location().write(errno) };
    -1
}

/// Checks the program at `path` with `look`, then calls `call` with `environment`, to which the
/// variables that load this library are added where they are missing. The error is an `errno`:
/// `EACCES` if `look` forbids the program, `E2BIG` if the environment is too long.
///
/// # Safety
/// `path` and `environment` are what the function of the C library asks for.
unsafe fn start(
    path: *const c_char,
    look: fn(&CStr) -> bool,
    environment: List,
    call: impl FnOnce(List) -> c_int,
) -> Result<c_int, c_int> {
    // SAFETY: the caller's word.
    if unsafe { text(path) }.is_some_and(|path| !look(path)) {
        return Err(libc::EACCES);
    }
    // SAFETY: as above.
    unsafe { with_variables(environment, call) }.ok_or(libc::E2BIG)
}

/// Checks a program with `look` and executes it by `function`, `execve` or `execvpe`. Returns only
/// after a failure: -1, with `errno` set; `ENOSYS` without the function.
///
/// # Safety
/// As those functions'.
unsafe fn exec(
    function: Option<unsafe extern "C" fn(*const c_char, List, List) -> c_int>,
    look: fn(&CStr) -> bool,
    path: *const c_char,
    arguments: List,
    environment: List,
) -> c_int {
    let Some(function) = function else {
        return failed(libc::ENOSYS);
    };
    // SAFETY: the caller's own arguments.
    let call = |environment| unsafe { function(path, arguments, environment) };
    // SAFETY: as above.
    unsafe { start(path, look, environment, call) }.unwrap_or_else(failed)
}

/// Replaces the C library's `execve`: checks the program, adds the variables that load this
/// library, and executes it. Returns only after a failure: -1, with `errno` set.
///
/// # Safety
/// As `execve`.
// SAFETY: the symbol is meant to stand before the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn execve(path: *const c_char, arguments: List, environment: List) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { exec(real().execve, may_start, path, arguments, environment) }
}

/// Replaces the C library's `execv`: checks the program, adds the variables that load this library
/// to this process's environment, and executes it. Returns only after a failure: -1, with `errno`
/// set.
///
/// # Safety
/// As `execv`.
// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn execv(path: *const c_char, arguments: List) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { execve(path, arguments, own_environment()) }
}

/// Replaces the C library's `execvpe`: looks for the program in `PATH`, checks it, adds the
/// variables that load this library, and executes it. Returns only after a failure: -1, with
/// `errno` set.
///
/// # Safety
/// As `execvpe`.
// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn execvpe(name: *const c_char, arguments: List, environment: List) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe {
        exec(
            real().execvpe,
            may_start_named,
            name,
            arguments,
            environment,
        )
    }
}

/// Replaces the C library's `execvp`: looks for the program in `PATH`, checks it, adds the
/// variables that load this library to this process's environment, and executes it. Returns only
/// after a failure: -1, with `errno` set.
///
/// # Safety
/// As `execvp`.
// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(name: *const c_char, arguments: List) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { execvpe(name, arguments, own_environment()) }
}

/// Replaces the C library's `fexecve`: checks the program in the open file, adds the variables that
/// load this library, and executes it. Returns only after a failure: -1, with `errno` set.
///
/// # Safety
/// As `fexecve`.
// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn fexecve(file: c_int, arguments: List, environment: List) -> c_int {
    let Some(function) = real().fexecve else {
        return failed(libc::ENOSYS);
    };
    let mut buffer = [0; 32];
    let path = path_of(&mut buffer, file).unwrap_or_default();
    // SAFETY: the caller's own arguments.
    let call = |environment| unsafe { function(file, arguments, environment) };
    // SAFETY: as above.
    unsafe { start(path.as_ptr(), may_start, environment, call) }.unwrap_or_else(failed)
}

/// Replaces the C library's `execveat`: checks the program at a path that is relative to
/// `directory`, adds the variables that load this library, and executes it. Returns only after a
/// failure: -1, with `errno` set.
///
/// # Safety
/// As `execveat`.
// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn execveat(
    directory: c_int,
    path: *const c_char,
    arguments: List,
    environment: List,
    flags: c_int,
) -> c_int {
    let Some(function) = real().execveat else {
        return failed(libc::ENOSYS);
    };
    // SAFETY: the caller's own arguments.
    let call = |environment| unsafe { function(directory, path, arguments, environment, flags) };
    let mut buffer = [0; libc::PATH_MAX as usize];
    // SAFETY: as above.
    let named = unsafe { text(path) };
    // The kernel refuses a path that is too long, too.
    let file = named.and_then(|name| path_at(&mut buffer, directory, name, flags));
    let file = file.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: as above.
    unsafe { start(file, may_start, environment, call) }.unwrap_or_else(failed)
}

macro_rules! spawn {
    ($name:ident, $look:ident) => {
        /// # Safety
        /// As the function of this name of the C library.
        // SAFETY: the symbol is meant to stand before the C library's.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            process: *mut libc::pid_t,
            path: *const c_char,
            actions: *const c_void,
            attributes: *const c_void,
            arguments: List,
            environment: List,
        ) -> c_int {
            let Some(function) = real().$name else {
                return libc::ENOSYS;
            };
            // SAFETY: the caller's own arguments.
            let call = |environment| unsafe {
                function(process, path, actions, attributes, arguments, environment)
            };
            // SAFETY: as above.
            unsafe { start(path, $look, environment, call) }.unwrap_or_else(|errno| errno)
        }
    };
}

spawn!(posix_spawn, may_start);
spawn!(posix_spawnp, may_start_named);

/// Replaces the C library's `system`: puts the variables that load this library back into this
/// process's environment if they are missing, then runs the command. -1, with `ENOSYS`, without the
/// function.
///
/// # Safety
/// As `system`.
// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn system(command: *const c_char) -> c_int {
    restore_preload();
    match real().system {
        // SAFETY: the caller's own argument.
        Some(function) => unsafe { function(command) },
        None => failed(libc::ENOSYS),
    }
}

/// Replaces the C library's `popen`: puts the variables that load this library back into this
/// process's environment if they are missing, then starts the command. Null, with `ENOSYS`, without
/// the function.
///
/// # Safety
/// As `popen`.
// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void {
    restore_preload();
    match real().popen {
        // SAFETY: the caller's own arguments.
        Some(function) => unsafe { function(command, mode) },
        None => {
            failed(libc::ENOSYS);
            std::ptr::null_mut()
        }
    }
}

/// Most arguments of `execl` and its like.
const ARGUMENTS: usize = 1024;

#[cfg(target_arch = "x86_64")]
mod layout {
    /// Number of arguments in registers, and of words between them and those on the caller's stack:
    /// the return address.
    pub(super) const IN_REGISTERS: usize = 6;
    pub(super) const BETWEEN: usize = 1;
}

#[cfg(target_arch = "aarch64")]
mod layout {
    /// Number of arguments in registers, and of words between them and those on the caller's stack:
    /// the return address, and one that is not used.
    pub(super) const IN_REGISTERS: usize = 8;
    pub(super) const BETWEEN: usize = 2;
}

/// Declares an exported function of any number of arguments: `goes_on` gets the address at which
/// they are stored.
macro_rules! variadic {
    ($name:ident, $goes_on:ident) => {
        /// # Safety
        /// As the function of this name of the C library.
        // SAFETY: the symbol is meant to stand before the C library's.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() -> c_int {
            #[cfg(target_arch = "x86_64")]
            std::arch::naked_asm!(
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "push rdi",
                "mov rdi, rsp",
                "sub rsp, 8",
                "call {goes_on}",
                "add rsp, 56",
                "ret",
                goes_on = sym $goes_on
            );
            #[cfg(target_arch = "aarch64")]
            std::arch::naked_asm!(
                "sub sp, sp, #80",
                "stp x0, x1, [sp]",
                "stp x2, x3, [sp, #16]",
                "stp x4, x5, [sp, #32]",
                "stp x6, x7, [sp, #48]",
                "str x30, [sp, #64]",
                "mov x0, sp",
                "bl {goes_on}",
                "ldr x30, [sp, #64]",
                "add sp, sp, #80",
                "ret",
                goes_on = sym $goes_on
            );
        }
    };
}

variadic!(execl, execl_with);
variadic!(execlp, execlp_with);
variadic!(execle, execle_with);

/// Returns argument `index` of those that were stored at `words`.
///
/// # Safety
/// The function was called with as many arguments.
unsafe fn argument(words: List, index: usize) -> *const c_char {
    let on_stack = index >= layout::IN_REGISTERS;
    let between = if on_stack { layout::BETWEEN } else { 0 };
    // SAFETY: the caller's word.
    unsafe { words.add(index.wrapping_add(between)).read() }
}

/// Collects the arguments after the first into a list that ends with a null pointer, and calls
/// `call` with the first argument, the list, and the environment: the argument after the list if
/// `takes_more`, else this process's own. -1, with `E2BIG`, for more than 1023 arguments.
///
/// # Safety
/// The function was called with as many arguments as the list has; `takes_more` is true for a
/// function that takes an argument after the list.
unsafe fn collect_arguments(
    words: List,
    takes_more: bool,
    call: impl FnOnce(*const c_char, List, List) -> c_int,
) -> c_int {
    let mut list = [std::ptr::null::<c_char>(); ARGUMENTS];
    for (index, place) in (1..).zip(&mut list) {
        // SAFETY: the list has not ended.
        let found = unsafe { argument(words, index) };
        *place = found;
        if found.is_null() {
            // SAFETY: by the caller's word there is one more.
            let more = takes_more.then(|| unsafe { argument(words, index.wrapping_add(1)) });
            let more = more.map_or_else(own_environment, |more| more.cast());
            // SAFETY: every one of these functions has a first argument.
            let first = unsafe { argument(words, 0) };
            return call(first, list.as_ptr(), more);
        }
    }
    failed(libc::E2BIG)
}

/// Goes on with `execl`, whose arguments are stored at `words`: calls [`execve`] with this
/// process's environment.
unsafe extern "C" fn execl_with(words: List) -> c_int {
    // SAFETY: the arguments of `execl`.
    unsafe { collect_arguments(words, false, |path, list, env| execve(path, list, env)) }
}

/// Goes on with `execlp`, whose arguments are stored at `words`: calls [`execvpe`] with this
/// process's environment.
unsafe extern "C" fn execlp_with(words: List) -> c_int {
    // SAFETY: the arguments of `execlp`.
    unsafe { collect_arguments(words, false, |name, list, env| execvpe(name, list, env)) }
}

/// Goes on with `execle`, whose arguments are stored at `words`: calls [`execve`] with the
/// environment that follows the list.
unsafe extern "C" fn execle_with(words: List) -> c_int {
    // SAFETY: the arguments of `execle`.
    unsafe { collect_arguments(words, true, |path, list, env| execve(path, list, env)) }
}
