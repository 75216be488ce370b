//! Reads 64-bit executables in the Executable and Linkable Format (System V ABI, "Object Files"),
//! as far as needed here: the dynamic linker, and the names of the dynamic symbols.
//!
//! Must not: trust an offset or a length of the file.

use crate::sqlite_magic;

const MAGIC: &[u8] = b"\x7fELF";
/// Offsets in the file's header: class and byte order, machine, offset of the program headers,
/// length of one, and their number.
const CLASS: usize = 4;
const MACHINE: usize = 18;
const HEADERS_AT: usize = 32;
const HEADER_SIZE: usize = 54;
const HEADER_COUNT: usize = 56;
/// Kinds of segments.
const PT_LOAD: usize = 1;
const PT_DYNAMIC: usize = 2;
const PT_INTERP: usize = 3;
/// Length of an entry of the dynamic section, and the tags of the entries for the address and the
/// length of the symbols' names.
const DYNAMIC_ENTRY: usize = 16;
const DT_STRTAB: usize = 5;
const DT_STRSZ: usize = 10;

/// Whether the file begins with the magic of this format.
#[must_use]
pub fn is_elf(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Returns class and byte order, and the machine: two programs that differ do not run on one
/// processor. `None` if the file is too short.
#[must_use]
pub fn kind(bytes: &[u8]) -> Option<([u8; 2], [u8; 2])> {
    let pair = |at: usize| bytes.get(at..)?.first_chunk::<2>().copied();
    Some((pair(CLASS)?, pair(MACHINE)?))
}

/// Returns the path of the program's dynamic linker; `None` for a static program.
#[must_use]
pub fn dynamic_linker(bytes: &[u8]) -> Option<&[u8]> {
    let named = segments(bytes).find(|one| one.kind == PT_INTERP)?;
    contents(bytes, &named)?.split(|byte| *byte == 0).next()
}

/// Whether the dynamic symbols, which the program calls or exports, include a function of SQLite
/// that opens a database.
#[must_use]
pub fn links_sqlite(bytes: &[u8]) -> bool {
    dynamic_names(bytes).is_some_and(|names| {
        let mut names = names.split(|byte| *byte == 0);
        names.any(|name| name.starts_with(b"sqlite3_open"))
    })
}

/// Whether the executable contains an SQLite whose functions it does not export, so that calls of
/// them bypass every other library.
#[must_use]
pub fn has_own_sqlite(bytes: &[u8]) -> bool {
    memchr::memmem::find(bytes, &sqlite_magic()).is_some() && !links_sqlite(bytes)
}

/// Reads a little-endian number of `len` bytes, up to 8, at `at`. `None` past the end of the file.
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
    /// Offset in the file, in bytes.
    offset: usize,
    /// Address in memory.
    address: usize,
    /// Its length in the file, in bytes.
    len: usize,
}

/// Yields the segments in the program headers, in order. Ends at the first header that is not
/// completely in the file.
fn segments(bytes: &[u8]) -> impl Iterator<Item = Segment> {
    let headers = || {
        let first = field(bytes, HEADERS_AT, 8)?;
        let size = field(bytes, HEADER_SIZE, 2)?;
        Some((first, size, field(bytes, HEADER_COUNT, 2)?))
    };
    let (first, size, count) = headers().unwrap_or_default();
    let segment = move |index: usize| {
        let at = first.checked_add(index.checked_mul(size)?)?;
        Some(Segment {
            kind: field(bytes, at, 4)?,
            offset: field(bytes, at.checked_add(8)?, 8)?,
            address: field(bytes, at.checked_add(16)?, 8)?,
            len: field(bytes, at.checked_add(32)?, 8)?,
        })
    };
    (0..count).map_while(segment)
}

/// Returns the bytes of a segment in the file. `None` if it reaches beyond the file's end.
fn contents<'a>(bytes: &'a [u8], segment: &Segment) -> Option<&'a [u8]> {
    bytes.get(segment.offset..segment.offset.checked_add(segment.len)?)
}

/// Returns the names of the dynamic symbols, each ended by a zero byte. `None` if the file has
/// none, or is malformed.
fn dynamic_names(bytes: &[u8]) -> Option<&[u8]> {
    let dynamic = segments(bytes).find(|one| one.kind == PT_DYNAMIC)?;
    let entries = contents(bytes, &dynamic)?;
    let value = |tag: usize| {
        let mut entries = entries.chunks_exact(DYNAMIC_ENTRY);
        let entry = entries.find(|entry| field(entry, 0, 8) == Some(tag))?;
        field(entry, 8, 8)
    };
    let (address, len) = (value(DT_STRTAB)?, value(DT_STRSZ)?);
    let loaded = segments(bytes).find(|one| {
        one.kind == PT_LOAD && (one.address..one.address.saturating_add(one.len)).contains(&address)
    })?;
    let start = address
        .checked_sub(loaded.address)?
        .checked_add(loaded.offset)?;
    bytes.get(start..start.checked_add(len)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the parts of [`program`] lie: program headers of 56 bytes, the linker's name, the
    /// dynamic section, the names.
    const NAMED: usize = 64 + 3 * 56;
    const DYNAMIC: usize = NAMED + 16;
    const NAMES: usize = DYNAMIC + 2 * DYNAMIC_ENTRY;
    /// What is loaded at this address is the whole file.
    const ADDRESS: u64 = 0x40_0000;

    /// A program whose dynamic symbols have these names, ended by zero bytes.
    fn program(names: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; NAMES];
        let mut put = |at: usize, number: u64, len: usize| {
            bytes[at..at + len].copy_from_slice(&number.to_le_bytes()[..len]);
        };
        put(0, u64::from(u32::from_le_bytes(*b"\x7fELF")), 4);
        put(CLASS, 0x0102, 2);
        put(MACHINE, 62, 2);
        put(HEADERS_AT, 64, 8);
        put(HEADER_SIZE, 56, 2);
        put(HEADER_COUNT, 3, 2);
        let whole = (NAMES + names.len()) as u64;
        let segments = [
            (PT_LOAD, 0, ADDRESS, whole),
            (PT_INTERP, NAMED as u64, 0, 16),
            (PT_DYNAMIC, DYNAMIC as u64, 0, 2 * DYNAMIC_ENTRY as u64),
        ];
        for (index, (kind, offset, address, len)) in segments.into_iter().enumerate() {
            let at = 64 + index * 56;
            put(at, kind as u64, 4);
            put(at + 8, offset, 8);
            put(at + 16, address, 8);
            put(at + 32, len, 8);
        }
        put(DYNAMIC, DT_STRTAB as u64, 8);
        put(DYNAMIC + 8, ADDRESS + NAMES as u64, 8);
        put(DYNAMIC + 16, DT_STRSZ as u64, 8);
        put(DYNAMIC + 24, names.len() as u64, 8);
        bytes[NAMED..NAMED + 10].copy_from_slice(b"/lib/ld.so");
        bytes.extend_from_slice(names);
        bytes
    }

    #[test]
    fn a_program_tells_its_linker_and_whether_sqlite_is_linked() {
        let linked = program(b"\0malloc\0sqlite3_open_v2\0");
        assert!(is_elf(&linked) && links_sqlite(&linked));
        assert_eq!(dynamic_linker(&linked), Some(&b"/lib/ld.so"[..]));
        assert_eq!(kind(&linked), Some(([2, 1], [62, 0])));
        let mut other = program(b"\0malloc\0my_sqlite3_open\0");
        assert!(!links_sqlite(&other) && !has_own_sqlite(&other));
        other.extend_from_slice(&sqlite_magic());
        assert!(has_own_sqlite(&other));
        let mut exports = linked;
        exports.extend_from_slice(&sqlite_magic());
        assert!(!has_own_sqlite(&exports));
        // Without a linker's name it is a static program.
        let mut fixed = program(b"\0");
        fixed[64 + 56] = 4;
        assert_eq!(dynamic_linker(&fixed), None);
    }

    #[test]
    fn this_test_is_a_program_of_this_machine() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let shell = std::fs::read("/bin/sh").unwrap();
        assert!(is_elf(&own) && !links_sqlite(&own));
        assert_eq!(kind(&own), kind(&shell));
        assert_eq!(dynamic_linker(&own), dynamic_linker(&shell));
    }

    /// Every number of the file is a lie somewhere: it says something or nothing, and never panics.
    #[test]
    fn a_file_that_lies_or_was_cut_short_says_nothing_wrong() {
        let whole = program(b"\0malloc\0sqlite3_open_v2\0");
        let ask = |bytes: &[u8]| {
            let linker = dynamic_linker(bytes).map(<[u8]>::to_vec);
            (is_elf(bytes), kind(bytes), linker, links_sqlite(bytes))
        };
        for len in 0..whole.len() {
            let (elf, kind, linker, links) = ask(&whole[..len]);
            assert_eq!(elf, len >= 4, "{len} bytes");
            assert_eq!(kind.is_some(), len >= MACHINE + 2, "{len} bytes");
            assert!(!links, "{len} bytes: the names are not all there");
            assert!(linker.is_none() || len >= NAMED + 16, "{len} bytes");
        }
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                let linker = ask(&changed).2.unwrap_or_default();
                assert!(linker.len() <= whole.len());
            }
        }
        for at in [
            HEADERS_AT,
            64 + 8,
            64 + 16,
            64 + 32,
            DYNAMIC + 8,
            DYNAMIC + 24,
        ] {
            for value in [u64::MAX, u64::MAX - 7, 1 << 63, whole.len() as u64] {
                let mut changed = whole.clone();
                changed[at..at + 8].copy_from_slice(&value.to_le_bytes());
                ask(&changed);
            }
        }
        assert_eq!(kind(&[]), None);
    }
}
