//! Reports, when the program ends, which of its libraries contain an SQLite of their own. Calls
//! within one library do not go through the replaced functions, so that its databases were plain.
//!
//! Must not: change anything; read memory that is writable.
#![expect(
    unsafe_code,
    reason = "walks the loaded libraries and reads their constants"
)]

use std::ffi::{CStr, c_int, c_void};

use strongroom_format::code;
use strongroom_sqlite_program::sqlite_magic;

use crate::install::{report, served_base};
use crate::objects::{Library, base_of, own_address};

// SAFETY: the C library calls each function of this section once, at exit().
#[unsafe(link_section = ".fini_array")]
#[used]
static AT_EXIT: extern "C" fn() = at_exit;

struct Search {
    magic: [u8; 16],
    /// Names of libraries that hold it, with their addresses.
    found: Vec<(String, usize)>,
}

/// Runs when the program ends. Reports, as SR-2287, each library that contains an SQLite, other
/// than the one that has the extension, if its SQLite was used or could have been.
extern "C" fn at_exit() {
    let mut search = Search {
        magic: sqlite_magic(),
        found: Vec::new(),
    };
    // SAFETY: the callback has the type that is asked for, and gets the structure back.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    let served = served_base();
    let own = base_of(own_address());
    for (name, base) in search.found {
        let is_ours = name.contains("libstrongroom_") || Some(base) == own;
        if Some(base) != served && !is_ours && !unused(&name, base) {
            report(&code::RUN_OWN_SQLITE, &name);
        }
    }
}

/// An SQLite has allocated more bytes than this only when a database was opened: some ten thousand
/// then, and under a hundred when it was only initialised.
const OPENED: i64 = 4096;

/// Whether the library exports SQLite's functions, so that calls of them go through this library,
/// and none opened a database, by the memory that it has allocated at most. A program that looks
/// the functions up itself bypasses this library.
fn unused(name: &str, base: usize) -> bool {
    let library = std::ffi::CString::new(name).ok();
    let library = library.and_then(|name| Library::loaded(&name));
    let own = |symbol: &CStr| {
        let found = library.as_ref()?.symbol(symbol)?;
        (base_of(found) == Some(base)).then_some(found)
    };
    let (Some(_), Some(highwater)) = (own(c"sqlite3_open_v2"), own(c"sqlite3_memory_highwater"))
    else {
        return false;
    };
    // SAFETY: the type of SQLite's function of this name. It reads a number, also before SQLite was
    // initialised.
    unsafe {
        let highwater =
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> i64>(highwater);
        highwater(0) < OPENED
    }
}

/// Searches the constant segments of one loaded library for SQLite's constant, and adds it to the
/// `Search` at `data` if it has it. Always returns 0, so that the iteration goes on. The program
/// itself is skipped.
unsafe extern "C" fn visit(
    about: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the C library's structure, and ours.
    let (about, search) = unsafe { (&*about, &mut *data.cast::<Search>()) };
    if about.dlpi_name.is_null() || about.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: a name that ends with a zero byte.
    let name = unsafe { CStr::from_ptr(about.dlpi_name) }.to_string_lossy();
    if name.is_empty() || name.starts_with("linux-vdso") {
        // The program itself was checked before it was started.
        return 0;
    }
    // SAFETY: as many headers as the structure says.
    let headers =
        unsafe { std::slice::from_raw_parts(about.dlpi_phdr, usize::from(about.dlpi_phnum)) };
    let constant = |header: &&libc::Elf64_Phdr| {
        header.p_type == libc::PT_LOAD
            && header.p_flags & libc::PF_R != 0
            && header.p_flags & (libc::PF_W | libc::PF_X) == 0
    };
    for header in headers.iter().filter(constant) {
        let start = about.dlpi_addr.wrapping_add(header.p_vaddr) as *const u8;
        let len = usize::try_from(header.p_filesz).unwrap_or(0);
        // SAFETY: a segment of a loaded library that is mapped for reading.
        let found = unsafe {
            libc::memmem(
                start.cast(),
                len,
                search.magic.as_ptr().cast(),
                search.magic.len(),
            )
        };
        if !found.is_null() {
            let base = base_of(found).unwrap_or_default();
            search.found.push((name.into_owned(), base));
            return 0;
        }
    }
    0
}
