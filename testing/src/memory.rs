//! Looking into another process's memory: which of it is locked, and where a string is.
//!
//! Invariant: the searched process is another one, so that the search does not find itself.
//! Must not: be pointed at a process that the test did not start.

use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use memchr::memmem;

/// One mapping of a process.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Its addresses.
    pub range: Range<u64>,
    /// `rwxp`.
    pub permissions: String,
    /// Its file, or what the kernel calls it.
    pub name: String,
    /// Locked kilobytes.
    pub locked_kb: u64,
    /// `VmFlags`, two letters each.
    pub flags: Vec<String>,
}

impl Mapping {
    /// Locked, and left out of core dumps: where keys belong.
    #[must_use]
    pub fn is_vault(&self) -> bool {
        let has = |flag: &str| self.flags.iter().any(|known| known == flag);
        self.locked_kb > 0 && has("lo") && has("dd")
    }
}

/// All mappings of process `pid`.
///
/// # Errors
/// Those of reading `/proc`.
pub fn mappings(pid: u32) -> std::io::Result<Vec<Mapping>> {
    let mut found: Vec<Mapping> = Vec::new();
    for line in std::fs::read_to_string(format!("/proc/{pid}/smaps"))?.lines() {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        if let Some(range) = range_of(first) {
            let permissions = words.next().unwrap_or_default().to_owned();
            let name = words.skip(3).collect::<Vec<_>>().join(" ");
            found.push(Mapping {
                range,
                permissions,
                name,
                locked_kb: 0,
                flags: Vec::new(),
            });
        } else if let Some(mapping) = found.last_mut() {
            match first {
                "Locked:" => {
                    mapping.locked_kb = words.next().and_then(|kb| kb.parse().ok()).unwrap_or(0);
                }
                "VmFlags:" => mapping.flags = words.map(str::to_owned).collect(),
                _ => {}
            }
        }
    }
    Ok(found)
}

fn range_of(text: &str) -> Option<Range<u64>> {
    let (start, end) = text.split_once('-')?;
    Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
}

/// Where the kernel put the environment of process `pid` when it was started (proc(5), `env_start`,
/// `env_end`).
///
/// # Errors
/// Those of reading `/proc`.
pub fn environment(pid: u32) -> std::io::Result<Range<u64>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    // The first field after the name is number 3.
    let field = |number: usize| {
        fields
            .split_whitespace()
            .nth(number - 3)
            .and_then(|text| text.parse().ok())
    };
    Ok(field(50).unwrap_or(0)..field(51).unwrap_or(0))
}

/// A mapping's contents; what cannot be read is left out.
#[must_use]
pub fn contents(pid: u32, mapping: &Mapping) -> Vec<u8> {
    let len = usize::try_from(mapping.range.end - mapping.range.start).unwrap_or(0);
    let mut bytes = vec![0; len];
    let read = File::open(format!("/proc/{pid}/mem"))
        .and_then(|memory| memory.read_exact_at(&mut bytes, mapping.range.start));
    if read.is_err() {
        bytes.clear();
    }
    bytes
}

/// Every address at which `needle` is in the memory of `pid`, with the mapping's name; also in
/// locked memory.
///
/// # Errors
/// Those of reading `/proc`.
pub fn find(pid: u32, needle: &[u8]) -> std::io::Result<Vec<(u64, String)>> {
    let mut found = Vec::new();
    for mapping in mappings(pid)?
        .iter()
        .filter(|mapping| mapping.permissions.starts_with('r'))
    {
        let bytes = contents(pid, mapping);
        let at = memmem::find_iter(&bytes, needle).map(|at| mapping.range.start + at as u64);
        found.extend(at.map(|at| (at, format!("{} {}", mapping.name, mapping.permissions))));
    }
    Ok(found)
}

/// What process `pid` keeps in locked memory, as pieces of 32 bytes random enough to be keys or
/// made of keys.
///
/// # Errors
/// Those of reading `/proc`.
pub fn secrets(pid: u32) -> std::io::Result<BTreeSet<Vec<u8>>> {
    let mut found = BTreeSet::new();
    for mapping in mappings(pid)?.iter().filter(|mapping| mapping.is_vault()) {
        let bytes = contents(pid, mapping);
        let pieces = bytes.windows(32).step_by(16);
        found.extend(
            pieces
                .filter(|piece| distinct(piece) >= 22)
                .map(<[u8]>::to_vec),
        );
    }
    Ok(found)
}

fn distinct(piece: &[u8]) -> usize {
    piece.iter().collect::<BTreeSet<_>>().len()
}

/// The pieces of `pieces` that occur in `haystack`, at any offset.
#[must_use]
pub fn pieces_in<'a>(pieces: &'a BTreeSet<Vec<u8>>, haystack: &[u8]) -> Vec<&'a Vec<u8>> {
    pieces
        .iter()
        .filter(|piece| memmem::find(haystack, piece).is_some())
        .collect()
}
