//! Programs for `strongroom sqlite run`: which file a name means, and whether the guard can be put
//! into it.
//!
//! The guard comes in by the dynamic linker. It ignores `LD_PRELOAD` where a program is run with
//! other rights than its caller's, and has no part in a static program. Where an executable has an
//! SQLite of its own, calls of it go past any preloaded library.
//!
//! Must not: run anything; take what cannot be told for fine where it can be told.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use strongroom_format::code;

use crate::failure::Failure;
use crate::paths::SQLITE_MAGIC;

/// `#!` lines that lead to another one: the kernel follows as many.
const SCRIPTS: u32 = 4;
/// Longest executable that is looked at, in bytes.
const EXECUTABLE_MAX: u64 = 1 << 30;

/// Layout of an ELF file (System V ABI, "Object Files"): class, byte order and machine, program
/// headers.
const ELF_MAGIC: &[u8] = b"\x7fELF";
const ELF_CLASS: usize = 4;
const ELF_MACHINE: usize = 18;
const ELF_HEADERS_AT: usize = 32;
const ELF_HEADER_SIZE: usize = 54;
const ELF_HEADER_COUNT: usize = 56;
const PT_LOAD: usize = 1;
const PT_DYNAMIC: usize = 2;
const PT_INTERP: usize = 3;
/// Entries of the dynamic section: where the symbols' names begin in memory, and how long they are.
const DT_STRTAB: usize = 5;
const DT_STRSZ: usize = 10;

/// The program's file, found as the shell finds it. SR-2285 when the guard cannot be put into it.
pub(super) fn check(word: &OsStr) -> Result<PathBuf, Failure> {
    let program = find(word)?;
    check_file(&program, SCRIPTS)?;
    Ok(program)
}

fn refused(path: &Path, why: &str) -> Failure {
    Failure::new(&code::RUN_PROGRAM, format!("{}: {why}", path.display()))
}

/// A name without a slash is looked for in PATH.
fn find(word: &OsStr) -> Result<PathBuf, Failure> {
    let named = PathBuf::from(word);
    let missing = || Failure::new(&code::NOT_FOUND, named.display().to_string());
    if word.as_bytes().contains(&b'/') {
        return named.is_file().then(|| named.clone()).ok_or_else(missing);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let found = directories
        .into_iter()
        .map(|directory| directory.join(word))
        .find(|path| is_executable(path));
    found.filter(|_| !word.is_empty()).ok_or_else(missing)
}

fn is_executable(path: &Path) -> bool {
    let about = std::fs::metadata(path);
    about.is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

fn check_file(path: &Path, scripts: u32) -> Result<(), Failure> {
    let file = File::open(path).map_err(|e| Failure::open(path, &e))?;
    let about = file.metadata().map_err(|e| Failure::io(path, &e))?;
    let mut bytes = Vec::new();
    let read = file.take(EXECUTABLE_MAX).read_to_end(&mut bytes);
    read.map_err(|e| Failure::io(path, &e))?;
    if let Some(line) = bytes.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        if scripts == 0 {
            return Err(refused(path, "scripts that lead to scripts"));
        }
        return match interpreter(line) {
            Some(word) => check_file(&find(&word)?, scripts - 1),
            None => Err(refused(path, "its first line names no program")),
        };
    }
    if !bytes.starts_with(ELF_MAGIC) {
        return Err(refused(path, "neither a program nor a script"));
    }
    if about.permissions().mode() & 0o6000 != 0 {
        let why = "it runs with other rights than yours (set-user-ID), and such a program is not given libraries";
        return Err(refused(path, why));
    }
    check_elf(path, &bytes)
}

/// What a `#!` line runs: the program, or what `env` runs.
fn interpreter(line: &[u8]) -> Option<OsString> {
    let mut words = line
        .split(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
        .filter(|word| !word.is_empty());
    let first = words.next()?;
    let is_env = Path::new(OsStr::from_bytes(first))
        .file_name()
        .is_some_and(|name| name == "env");
    let word = match is_env {
        true => words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='))?,
        false => first,
    };
    Some(OsString::from_vec(word.to_vec()))
}

fn check_elf(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let own = std::env::current_exe().and_then(std::fs::read);
    let own = own.map_err(|e| Failure::io(path, &e))?;
    let kind = |bytes: &[u8]| {
        let class = bytes.get(ELF_CLASS..ELF_CLASS + 2).map(<[u8]>::to_vec);
        class.zip(bytes.get(ELF_MACHINE..ELF_MACHINE + 2).map(<[u8]>::to_vec))
    };
    if kind(bytes) != kind(&own) {
        return Err(refused(path, "a program for another kind of processor"));
    }
    let Some(linker) = dynamic_linker(bytes) else {
        return Err(refused(
            path,
            "a static program: no library can be put into it",
        ));
    };
    let name = |path: &[u8]| {
        Path::new(OsStr::from_bytes(path))
            .file_name()
            .map(OsStr::to_owned)
    };
    if let Some(ours) = dynamic_linker(&own)
        && name(&linker) != name(&ours)
    {
        return Err(refused(path, "it is built for another C library"));
    }
    let own = memchr::memmem::find(bytes, SQLITE_MAGIC).is_some();
    // A program that is linked to an SQLite has the names of its functions among its dynamic
    // symbols.
    let linked = dynamic_names(bytes).is_some_and(|names| {
        let mut names = names.split(|byte| *byte == 0);
        names.any(|name| name.starts_with(b"sqlite3_open"))
    });
    if own && !linked {
        return Err(refused(path, "it has an SQLite of its own"));
    }
    Ok(())
}

/// A little-endian number of up to 8 bytes.
fn field(bytes: &[u8], at: usize, len: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(len)?)?;
    let mut padded = [0; 8];
    padded.get_mut(..len)?.copy_from_slice(bytes);
    usize::try_from(u64::from_le_bytes(padded)).ok()
}

/// A segment of the program.
#[derive(Clone, Copy)]
struct Segment {
    kind: usize,
    /// Where it begins in the file, in bytes.
    offset: usize,
    /// Where it begins in memory.
    address: usize,
    /// Its length in the file, in bytes.
    len: usize,
}

fn segments(bytes: &[u8]) -> Vec<Segment> {
    let header = || {
        let first = field(bytes, ELF_HEADERS_AT, 8)?;
        let size = field(bytes, ELF_HEADER_SIZE, 2)?;
        Some((first, size, field(bytes, ELF_HEADER_COUNT, 2)?))
    };
    let Some((first, size, count)) = header() else {
        return Vec::new();
    };
    let segment = |index: usize| {
        let at = first.checked_add(index.checked_mul(size)?)?;
        Some(Segment {
            kind: field(bytes, at, 4)?,
            offset: field(bytes, at.checked_add(8)?, 8)?,
            address: field(bytes, at.checked_add(16)?, 8)?,
            len: field(bytes, at.checked_add(32)?, 8)?,
        })
    };
    (0..count).map_while(segment).collect()
}

fn contents<'a>(bytes: &'a [u8], segment: &Segment) -> Option<&'a [u8]> {
    bytes.get(segment.offset..segment.offset.checked_add(segment.len)?)
}

/// The names of the dynamic symbols, each ended by a zero byte.
fn dynamic_names(bytes: &[u8]) -> Option<&[u8]> {
    let segments = segments(bytes);
    let dynamic = segments.iter().find(|one| one.kind == PT_DYNAMIC)?;
    let entries = contents(bytes, dynamic)?;
    let value = |tag: usize| {
        let mut entries = entries.chunks_exact(16);
        let entry = entries.find(|entry| field(entry, 0, 8) == Some(tag))?;
        field(entry, 8, 8)
    };
    let (address, len) = (value(DT_STRTAB)?, value(DT_STRSZ)?);
    let loaded = segments.iter().find(|one| {
        one.kind == PT_LOAD && (one.address..one.address.saturating_add(one.len)).contains(&address)
    })?;
    let start = address
        .checked_sub(loaded.address)?
        .checked_add(loaded.offset)?;
    bytes.get(start..start.checked_add(len)?)
}

/// The path of the program's dynamic linker; `None` for a static program.
fn dynamic_linker(bytes: &[u8]) -> Option<Vec<u8>> {
    let segments = segments(bytes);
    let named = segments.iter().find(|one| one.kind == PT_INTERP)?;
    let text = contents(bytes, named)?;
    Some(text.split(|byte| *byte == 0).next()?.to_vec())
}
