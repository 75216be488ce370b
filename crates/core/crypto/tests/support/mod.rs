//! Reads `/proc/self/smaps`: which mapping an address lies in, and how the kernel treats it.

use std::fs;
use std::ops::Range;

/// One mapping of this process.
pub(crate) struct Region {
    /// Addresses it covers.
    pub(crate) range: Range<usize>,
    /// `r`, `w`, `x` and `p` or `s`.
    pub(crate) permissions: String,
    /// What is mapped: a path, `[stack]`, or nothing.
    pub(crate) name: String,
    /// Bytes locked into RAM.
    pub(crate) locked: usize,
    /// Two-letter flags, such as `lo` (locked), `dd` (not dumped), `wf` (wiped on fork).
    pub(crate) flags: Vec<String>,
}

impl Region {
    /// Whether the kernel lists `flag` for this mapping.
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|given| given == flag)
    }
}

/// All mappings, in order of address.
pub(crate) fn regions() -> Vec<Region> {
    let mut regions: Vec<Region> = Vec::new();
    for line in fs::read_to_string("/proc/self/smaps").unwrap().lines() {
        let first = line.split_whitespace().next().unwrap_or_default();
        if let Some(value) = line.strip_prefix("Locked:") {
            let kib: usize = value.trim().trim_end_matches(" kB").trim().parse().unwrap();
            regions.last_mut().unwrap().locked = kib * 1024;
        } else if let Some(flags) = line.strip_prefix("VmFlags:") {
            regions.last_mut().unwrap().flags =
                flags.split_whitespace().map(str::to_owned).collect();
        } else if !first.ends_with(':') {
            regions.push(mapping_of(line));
        }
    }
    regions
}

/// Parses `start-end permissions offset device inode name`.
fn mapping_of(line: &str) -> Region {
    let mut fields = line.split_whitespace();
    let (start, end) = fields.next().unwrap().split_once('-').unwrap();
    let address = |text: &str| usize::from_str_radix(text, 16).unwrap();
    Region {
        range: address(start)..address(end),
        permissions: fields.next().unwrap().to_owned(),
        name: fields.nth(3).unwrap_or_default().to_owned(),
        locked: 0,
        flags: Vec::new(),
    }
}

/// The mapping that holds `address`.
pub(crate) fn region_of(address: usize) -> Region {
    regions()
        .into_iter()
        .find(|region| region.range.contains(&address))
        .unwrap()
}
