//! Parses a tar archive while it arrives: the part of the ustar format that PostgreSQL's server
//! writes (`tarCreateHeader`, src/port/tar.c): regular files, directories, symbolic links, names of
//! at most 100 bytes.
//!
//! Must not: keep more than a header of the archive; accept an archive without its end mark.

use strongroom_format::code;

use crate::{Error, Result};

const BLOCK: usize = 512;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    File,
    Directory,
    Link,
}

/// One entry's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) sort: Sort,
    /// Without a slash at its end.
    pub(super) name: Vec<u8>,
    pub(super) target: Vec<u8>,
    pub(super) mode: u32,
    pub(super) owner: u32,
    pub(super) group: u32,
    pub(super) seconds: i64,
}

/// Receives the contents of an archive.
pub(super) trait Visitor {
    /// Takes the header of the next entry. An error ends the parsing and is returned by
    /// [`Archive::feed`].
    fn entry(&mut self, entry: &Entry) -> Result<()>;
    /// Takes the next bytes of the entry, which is a file. Errors as [`Self::entry`].
    fn data(&mut self, bytes: &[u8]) -> Result<()>;
    /// Takes note that the file is complete; called for empty files too. Errors as [`Self::entry`].
    fn end(&mut self) -> Result<()>;
}

/// The parser of one archive.
#[derive(Default)]
pub(super) struct Archive {
    header: Vec<u8>,
    /// Bytes of the file that are still to come.
    left: u64,
    /// Bytes of padding after the file.
    filling: u64,
    in_file: bool,
    zero_blocks: u32,
}

impl Archive {
    /// Takes the next bytes of the archive. SR-7115 when they are malformed; errors of `visitor`.
    pub(super) fn feed(&mut self, mut bytes: &[u8], visitor: &mut impl Visitor) -> Result<()> {
        while !bytes.is_empty() {
            if self.left > 0 {
                let (now, later) = split(bytes, self.left);
                visitor.data(now)?;
                self.left -= now.len() as u64;
                bytes = later;
                if self.left == 0 {
                    self.in_file = false;
                    visitor.end()?;
                }
            } else if self.filling > 0 {
                let (now, later) = split(bytes, self.filling);
                self.filling -= now.len() as u64;
                bytes = later;
            } else {
                let (now, later) = split(bytes, (BLOCK - self.header.len()) as u64);
                self.header.extend_from_slice(now);
                bytes = later;
                if self.header.len() == BLOCK {
                    let header = std::mem::take(&mut self.header);
                    self.block(&header, visitor)?;
                }
            }
        }
        Ok(())
    }

    /// Checks that the archive ended with its end mark (SR-7115).
    pub(super) fn finish(&self) -> Result<()> {
        let whole = self.zero_blocks >= 2 && self.header.is_empty() && !self.in_file;
        if whole && self.left == 0 && self.filling == 0 {
            return Ok(());
        }
        Err(strange("an archive without its end"))
    }

    /// Takes a header, passing its entry to `visitor`, or a block of the end mark. SR-7115 when it
    /// is malformed or follows the end mark.
    fn block(&mut self, block: &[u8], visitor: &mut impl Visitor) -> Result<()> {
        if block.iter().all(|byte| *byte == 0) {
            self.zero_blocks = self.zero_blocks.saturating_add(1);
            return Ok(());
        }
        if self.zero_blocks > 0 {
            return Err(strange("an entry after an archive's end"));
        }
        let (entry, size) = parse(block).ok_or_else(|| strange("a header of an archive"))?;
        visitor.entry(&entry)?;
        if entry.sort != Sort::File {
            return Ok(());
        }
        self.left = size;
        let padded = size.checked_next_multiple_of(BLOCK as u64);
        self.filling = padded.ok_or_else(|| strange("a size beyond any file's"))? - size;
        self.in_file = size > 0;
        if size == 0 { visitor.end() } else { Ok(()) }
    }
}

/// Splits `bytes` after at most `most` bytes.
fn split(bytes: &[u8], most: u64) -> (&[u8], &[u8]) {
    bytes.split_at(usize::try_from(most).unwrap_or(usize::MAX).min(bytes.len()))
}

/// Parses a header, and the size in bytes of the content that follows (POSIX.1-1988, "ustar
/// Interchange Format"). `None` when its checksum is wrong, or it is no file, directory or symbolic
/// link.
fn parse(block: &[u8]) -> Option<(Entry, u64)> {
    let stated = number(block.get(148..156)?)?;
    let sum: u64 = block
        .iter()
        .enumerate()
        // The field of the checksum itself counts as blanks.
        .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u64::from(*byte) })
        .sum();
    if stated != sum || block.get(345..500)?.iter().any(|byte| *byte != 0) {
        return None;
    }
    let sort = match block.get(156)? {
        b'0' => Sort::File,
        b'5' => Sort::Directory,
        b'2' => Sort::Link,
        _ => return None,
    };
    let mut name = text(block.get(..100)?);
    // The server sends the log's directories in this form.
    if name.starts_with(b"./") && name.len() > 2 {
        name.drain(..2);
    }
    while name.ends_with(b"/") {
        name.pop();
    }
    let entry = Entry {
        sort,
        name,
        target: text(block.get(157..257)?),
        mode: u32::try_from(number(block.get(100..108)?)?).ok()? & 0o7777,
        owner: u32::try_from(number(block.get(108..116)?)?).ok()?,
        group: u32::try_from(number(block.get(116..124)?)?).ok()?,
        seconds: i64::try_from(number(block.get(136..148)?)?).ok()?,
    };
    let size = number(block.get(124..136)?)?;
    Some((entry, size))
}

/// A field up to its first zero byte.
fn text(field: &[u8]) -> Vec<u8> {
    field
        .iter()
        .copied()
        .take_while(|byte| *byte != 0)
        .collect()
}

/// Parses a number of octal digits, or in base 256 after the byte 0x80 (`print_tar_number`,
/// src/port/tar.c). `None` for another digit, or when it does not fit into 64 bits.
fn number(field: &[u8]) -> Option<u64> {
    let (first, rest) = field.split_first()?;
    if *first == 0x80 {
        return rest.iter().try_fold(0_u64, |value, byte| {
            value.checked_mul(256)?.checked_add(u64::from(*byte))
        });
    }
    let digits = field.iter().take_while(|byte| !matches!(byte, 0 | b' '));
    digits.copied().try_fold(0_u64, |value, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
        value.checked_mul(8)?.checked_add(u64::from(digit))
    })
}

/// Makes SR-7115 for a malformed archive.
fn strange(what: &str) -> Error {
    Error::new(&code::BACKUP_SERVER, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Seen(Vec<(Vec<u8>, Vec<u8>, u32)>);

    impl Visitor for Seen {
        fn entry(&mut self, entry: &Entry) -> Result<()> {
            self.0.push((entry.name.clone(), Vec::new(), 0));
            Ok(())
        }
        fn data(&mut self, bytes: &[u8]) -> Result<()> {
            self.0.last_mut().unwrap().1.extend_from_slice(bytes);
            Ok(())
        }
        fn end(&mut self) -> Result<()> {
            self.0.last_mut().unwrap().2 += 1;
            Ok(())
        }
    }

    fn header(name: &str, kind: u8, size: &[u8]) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, name.as_bytes());
        put(100, b"0000600\0");
        put(108, b"0000145\0");
        put(116, b"0000146\0");
        put(124, size);
        put(136, b"14712345670 ");
        put(148, b"        ");
        put(156, &[kind]);
        put(257, b"ustar\x0000");
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        block
    }

    fn archive() -> Vec<u8> {
        let mut large = vec![0x80];
        large.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1]);
        [
            header("global/", b'5', b"00000000000 "),
            header("./global/empty", b'0', b"00000000000 "),
            header("global/whole", b'0', b"00000001000 "),
            vec![1; 512],
            header("global/some", b'0', &large),
            vec![2; 513],
            vec![0; 511],
            vec![0; 1024],
        ]
        .concat()
    }

    #[test]
    fn an_archive_comes_apart_however_it_is_cut() {
        for cut in [1, 7, 511, 512, 513, 100_000] {
            let (mut archive_, mut seen) = (Archive::default(), Seen::default());
            for part in archive().chunks(cut) {
                archive_.feed(part, &mut seen).unwrap();
            }
            archive_.finish().unwrap();
            let names: Vec<&[u8]> = seen.0.iter().map(|(name, ..)| name.as_slice()).collect();
            let expected: [&[u8]; 4] =
                [b"global", b"global/empty", b"global/whole", b"global/some"];
            assert_eq!(names, expected);
            let sizes: Vec<(usize, u32)> = seen
                .0
                .iter()
                .map(|(_, bytes, ends)| (bytes.len(), *ends))
                .collect();
            assert_eq!(sizes, [(0, 0), (0, 1), (512, 1), (513, 1)]);
        }
    }

    #[test]
    fn no_truncation_is_a_whole_archive() {
        let whole = archive();
        for length in 0..whole.len() - 1 {
            let (mut archive, mut seen) = (Archive::default(), Seen::default());
            archive.feed(&whole[..length], &mut seen).unwrap();
            assert!(archive.finish().is_err(), "{length}");
        }
    }

    #[test]
    fn a_size_that_no_file_has_is_refused() {
        for (last, refused) in [(0x00_u8, false), (0x01, true), (0xff, true)] {
            let mut size = vec![0x80, 0, 0, 0];
            size.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe, last]);
            if refused {
                size[10] = 0xff;
            }
            let block = header("name", b'0', &size);
            let fed = Archive::default().feed(&block, &mut Seen::default());
            assert_eq!(fed.is_err(), refused, "{last}");
        }
    }

    #[test]
    fn a_header_with_a_changed_bit_is_refused() {
        let whole = header("name", b'0', b"00000000000 ");
        for at in 0..BLOCK {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            // The digits' end mark may change: what is read stays the same.
            let same = parse(&changed).is_none_or(|found| Some(found) == parse(&whole));
            assert!(same, "byte {at}");
        }
    }
}
