//! A search of every byte: of processes' memory, and of files.
//!
//! Must not: keep what it reads; take what it could not read for searched.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use strongroom_benches::Failure;

/// Bytes that are read at once. Pieces overlap by the length of a word.
const PIECE: usize = 1 << 20;
/// Longer than any word.
const OVERLAP: usize = 64;

/// What a search saw.
#[derive(Default)]
pub(super) struct Seen {
    /// How often each word was found.
    pub(super) counts: Vec<u64>,
    /// Processes, or files.
    pub(super) places: u64,
    pub(super) bytes: u64,
}

impl Seen {
    fn new(words: &[&str]) -> Self {
        Self {
            counts: vec![0; words.len()],
            ..Self::default()
        }
    }

    fn look(&mut self, bytes: &[u8], words: &[&str]) {
        for (count, word) in self.counts.iter_mut().zip(words) {
            let found = bytes
                .windows(word.len())
                .filter(|part| *part == word.as_bytes());
            *count += found.count() as u64;
        }
    }
}

/// Every readable byte of a process and of its children.
pub(super) fn memory(postmaster: u32, words: &[&str]) -> Result<Seen, Failure> {
    let mut seen = Seen::new(words);
    for process in family(postmaster)? {
        // An auxiliary process may end meanwhile; the session's own is there.
        if let Ok(maps) = std::fs::read_to_string(format!("/proc/{process}/maps")) {
            one_process(process, &maps, words, &mut seen)?;
            seen.places += 1;
        }
    }
    Ok(seen)
}

fn family(postmaster: u32) -> Result<Vec<u32>, Failure> {
    let path = format!("/proc/{postmaster}/task/{postmaster}/children");
    let children = std::fs::read_to_string(path)?;
    let children = children.split_whitespace().map(str::parse);
    let mut family = vec![postmaster];
    family.extend(children.collect::<Result<Vec<u32>, _>>()?);
    Ok(family)
}

fn one_process(process: u32, maps: &str, words: &[&str], seen: &mut Seen) -> Result<(), Failure> {
    let memory = File::open(format!("/proc/{process}/mem"))?;
    let mut buffer = vec![0; PIECE + OVERLAP];
    for line in maps.lines() {
        let Some((from, to)) = searched(line) else {
            continue;
        };
        let mut at = from;
        while at < to {
            let len = usize::try_from(to - at)?.min(buffer.len());
            let piece = buffer.get_mut(..len).ok_or("a piece of memory")?;
            // Pages beyond the end of a mapped file cannot be read.
            let Ok(read) = memory.read_at(piece, at) else {
                break;
            };
            seen.look(piece.get(..read).unwrap_or_default(), words);
            let step = read.min(PIECE);
            if step == 0 {
                break;
            }
            seen.bytes += step as u64;
            at += step as u64;
        }
    }
    Ok(())
}

/// The range of a line of `maps`, if it is memory that a process may have written.
fn searched(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_whitespace();
    let (range, rights) = (fields.next()?, fields.next()?);
    if !rights.starts_with("rw") {
        return None;
    }
    let (from, to) = range.split_once('-')?;
    Some((
        u64::from_str_radix(from, 16).ok()?,
        u64::from_str_radix(to, 16).ok()?,
    ))
}

/// Every byte of these files, and of those in these directories.
pub(super) fn files(paths: &[PathBuf], words: &[&str]) -> Result<Seen, Failure> {
    let mut seen = Seen::new(words);
    let mut left = paths.to_vec();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            for entry in std::fs::read_dir(&path)? {
                left.push(entry?.path());
            }
        } else if path.is_file() {
            let bytes = std::fs::read(&path)?;
            seen.look(&bytes, words);
            seen.bytes += bytes.len() as u64;
            seen.places += 1;
        }
    }
    Ok(seen)
}
