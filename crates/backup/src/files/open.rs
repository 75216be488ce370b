//! The file that a restore is writing: a whole file, sealed or in clear, or the changed blocks of
//! an incremental set in an existing file.
//!
//! Must not: open or name a file.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use strongroom_format::backup::Member;
use strongroom_format::code;

use crate::sealing::SealedFile;
use crate::writeback::Writeback;
use crate::{Error, Result};

/// Bytes that are sealed at a time.
const PIECE: usize = 256 * 1024;
/// PostgreSQL's block, in bytes, and the blocks of a segment. Clusters with other sizes are not
/// sealed.
const BLOCK: usize = 8192;
const SEGMENT_BLOCKS: u32 = 131_072;
/// `INCREMENTAL_MAGIC` in PostgreSQL's `backup/basebackup_incremental.h`.
const MAGIC: u32 = 0xd3ae_1f0d;
/// The head of an incremental file before the numbers of its blocks: magic, their count, and the
/// length in blocks below which a block that is not in the file is unchanged.
const HEAD: usize = 12;
/// Longest label that is kept in memory. PostgreSQL writes less than one KiB.
const LABEL_MAX: usize = 64 * 1024;
/// The beginning of lines in a label because of which a server refuses an incremental backup that
/// was not combined.
const INCREMENTAL_LINES: &str = "INCREMENTAL FROM ";

/// An open file and how it is written.
pub(super) struct Open {
    pub(super) member: Member,
    target: Target,
    content: Content,
}

/// The file itself.
struct Target {
    file: File,
    sealed: Option<Box<dyn SealedFile>>,
    writeback: Writeback,
}

/// What the bytes of the stream mean.
enum Content {
    /// The bytes of the file, from its beginning.
    Whole { written: u64, waiting: Vec<u8> },
    /// Blocks of an existing file.
    Changes(Changes),
    /// A label, which is changed before it is written.
    Label(Vec<u8>),
}

impl Open {
    /// A new file, to be written from its beginning, with nothing written yet; sealed, unless
    /// `sealed` is `None`.
    pub(super) fn whole(file: File, member: Member, sealed: Option<Box<dyn SealedFile>>) -> Self {
        let waiting = Vec::new();
        Self::new(
            file,
            member,
            sealed,
            Content::Whole {
                written: 0,
                waiting,
            },
        )
    }

    /// An existing file, of which the stream has the changed blocks; nothing is written yet.
    pub(super) fn changes(file: File, member: Member, sealed: Option<Box<dyn SealedFile>>) -> Self {
        Self::new(file, member, sealed, Content::Changes(Changes::default()))
    }

    /// The label of an incremental backup, which is written without the lines that mark it as one.
    pub(super) fn label(file: File, member: Member) -> Self {
        Self::new(file, member, None, Content::Label(Vec::new()))
    }

    /// An open file with nothing written to it yet.
    fn new(
        file: File,
        member: Member,
        sealed: Option<Box<dyn SealedFile>>,
        content: Content,
    ) -> Self {
        let writeback = Writeback::default();
        Self {
            member,
            target: Target {
                file,
                sealed,
                writeback,
            },
            content,
        }
    }

    /// Takes the next bytes of the stream. Bytes of a whole file are written at once, or sealed in
    /// pieces; changed blocks are written when they are complete; a label is kept for
    /// [`Self::end`]. SR-7111 when a label or an incremental file is malformed.
    pub(super) fn data(&mut self, mut bytes: &[u8]) -> Result<()> {
        let target = &mut self.target;
        let done = match &mut self.content {
            Content::Whole { written, waiting } if target.sealed.is_some() => loop {
                let room = PIECE.saturating_sub(waiting.len()).min(bytes.len());
                let (taken, rest) = bytes.split_at(room);
                waiting.extend_from_slice(taken);
                bytes = rest;
                if waiting.len() < PIECE {
                    return Ok(());
                }
                if let Err(error) = target.write(waiting, *written) {
                    break Err(error);
                }
                *written = advanced(*written, waiting.len());
                waiting.clear();
            },
            Content::Whole { written, .. } => {
                let done = target.write(bytes, *written);
                *written = advanced(*written, bytes.len());
                done
            }
            Content::Changes(changes) => return changes.data(bytes, target, &self.member),
            Content::Label(text) => {
                if text.len().saturating_add(bytes.len()) > LABEL_MAX {
                    return Err(Error::new(&code::STREAM, "a label that is too long"));
                }
                text.extend_from_slice(bytes);
                Ok(())
            }
        };
        done.map_err(|error| failed(&self.member, error))
    }

    /// Writes what is left, and gives the file back; nothing is synced. SR-7002 when a file of this
    /// length cannot be sealed; SR-7111 when the changed blocks are not complete.
    pub(super) fn end(mut self) -> Result<(File, Member)> {
        let target = &mut self.target;
        let written = match self.content {
            Content::Whole { written, waiting } => {
                let done = target.write(&waiting, written);
                done.map(|()| advanced(written, waiting.len()))
            }
            Content::Changes(changes) => Ok(changes.end()?),
            Content::Label(text) => {
                let text = without_incremental(&text);
                let done = target.write(&text, 0);
                done.map(|()| text.len() as u64)
            }
        };
        let length = written.map_err(|error| failed(&self.member, error))?;
        if target
            .sealed
            .as_ref()
            .is_some_and(|sealed| !sealed.fits(length))
        {
            let path = String::from_utf8_lossy(&self.member.path);
            let detail = format!("{path}: a file of {length} bytes cannot be sealed");
            return Err(Error::new(&code::PG_REFUSED, detail));
        }
        Ok((self.target.file, self.member))
    }
}

impl Target {
    /// Writes bytes at an offset of the logical file, sealed if the file is, and may let the kernel
    /// begin to write them to disk.
    fn write(&mut self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        match &self.sealed {
            None => self.file.write_all_at(bytes, offset)?,
            Some(sealed) => sealed.write(&self.file, bytes, offset)?,
        }
        self.writeback.wrote(&self.file, bytes.len());
        Ok(())
    }

    /// Sets the length of the logical file, in bytes.
    fn set_length(&self, length: u64) -> std::io::Result<()> {
        match &self.sealed {
            None => self.file.set_len(length),
            Some(sealed) => sealed.set_length(&self.file, length),
        }
    }
}

/// The blocks of an incremental file, as PostgreSQL writes it: a head, the numbers of the blocks,
/// zeros up to a multiple of a block if there are any, and the blocks.
#[derive(Default)]
struct Changes {
    head: Vec<u8>,
    /// The numbers of the blocks, once the head is complete.
    numbers: Option<Vec<u32>>,
    /// How many of the blocks were written.
    written: usize,
    block: Vec<u8>,
    /// Blocks of the file so far.
    blocks: u32,
}

impl Changes {
    /// Takes the next bytes of an incremental file: its head, then blocks, each of which is written
    /// to its place when it is complete. SR-7111 when the head is malformed or there are more
    /// blocks than it names.
    fn data(&mut self, mut bytes: &[u8], target: &mut Target, member: &Member) -> Result<()> {
        while !bytes.is_empty() {
            let Some(numbers) = &self.numbers else {
                let wanted = self.head_length()?.saturating_sub(self.head.len());
                let (taken, rest) = bytes.split_at(wanted.min(bytes.len()));
                self.head.extend_from_slice(taken);
                bytes = rest;
                if self.head.len() == self.head_length()? {
                    self.begin(target, member)?;
                }
                continue;
            };
            let &number = numbers
                .get(self.written)
                .ok_or_else(malformed_incremental)?;
            let wanted = BLOCK.saturating_sub(self.block.len());
            let (taken, rest) = bytes.split_at(wanted.min(bytes.len()));
            self.block.extend_from_slice(taken);
            bytes = rest;
            if self.block.len() == BLOCK {
                let written = target.write(&self.block, offset(number));
                written.map_err(|error| failed(member, error))?;
                self.blocks = self.blocks.max(number.saturating_add(1));
                self.written = self.written.saturating_add(1);
                self.block.clear();
            }
        }
        Ok(())
    }

    /// The length of the head in bytes, as far as it is known by now: at first that of its fixed
    /// part. SR-7111 when it names too many blocks.
    fn head_length(&self) -> Result<usize> {
        let Some(count) = self.head_word(1).filter(|_| self.head.len() >= HEAD) else {
            return Ok(HEAD);
        };
        match usize::try_from(count) {
            Ok(0) => Ok(HEAD),
            Ok(some) if count <= SEGMENT_BLOCKS => {
                let plain = HEAD.saturating_add(some.saturating_mul(4));
                Ok(plain.next_multiple_of(BLOCK))
            }
            _ => Err(malformed_incremental()),
        }
    }

    /// Parses the complete head, and sets the file to the length that unchanged blocks have.
    /// SR-7111 when the head is malformed.
    fn begin(&mut self, target: &Target, member: &Member) -> Result<()> {
        let (magic, count, kept) = (self.head_word(0), self.head_word(1), self.head_word(2));
        let (Some(MAGIC), Some(count), Some(kept)) = (magic, count, kept) else {
            return Err(malformed_incremental());
        };
        let count = usize::try_from(count).map_err(|_| malformed_incremental())?;
        let numbers: Option<Vec<u32>> = (0..count)
            .map(|at| self.head_word(at.saturating_add(3)))
            .map(|number| number.filter(|&number| number < SEGMENT_BLOCKS))
            .collect();
        let numbers = numbers.ok_or_else(malformed_incremental)?;
        if kept > SEGMENT_BLOCKS {
            return Err(malformed_incremental());
        }
        // Blocks from this length on can only come from this set.
        let set = target.set_length(offset(kept));
        set.map_err(|error| failed(member, error))?;
        self.blocks = kept;
        self.numbers = Some(numbers);
        Ok(())
    }

    /// The 32-bit number at this index of the head; `None` when the head does not have it yet.
    fn head_word(&self, at: usize) -> Option<u32> {
        let bytes = self.head.get(at.saturating_mul(4)..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    }

    /// The length of the file, in bytes. SR-7111 when the stream does not have all blocks that the
    /// head names.
    fn end(&self) -> Result<u64> {
        let numbers = self.numbers.as_ref().ok_or_else(malformed_incremental)?;
        if numbers.len() != self.written || !self.block.is_empty() {
            return Err(malformed_incremental());
        }
        Ok(offset(self.blocks))
    }
}

/// The label of the combined cluster, as `pg_combinebackup` writes it: without the lines that name
/// an incremental backup's base.
fn without_incremental(text: &[u8]) -> Vec<u8> {
    let lines = text.split_inclusive(|&byte| byte == b'\n');
    let kept = lines.filter(|line| !line.starts_with(INCREMENTAL_LINES.as_bytes()));
    kept.flatten().copied().collect()
}

/// The position of a block in its file, in bytes.
fn offset(block: u32) -> u64 {
    u64::from(block).saturating_mul(BLOCK as u64)
}

/// The offset that is `by` bytes after this one.
fn advanced(offset: u64, by: usize) -> u64 {
    offset.saturating_add(by as u64)
}

/// Makes SR-7111 for an incremental file that PostgreSQL would not write.
fn malformed_incremental() -> Error {
    Error::new(&code::STREAM, "an incremental file that is none")
}

/// Makes SR-5001 with the member's path in the detail.
fn failed(member: &Member, error: std::io::Error) -> Error {
    Error::io(String::from_utf8_lossy(&member.path), error)
}
