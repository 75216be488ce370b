//! Reads a stream: members, their bytes, and at each file's end the digest that proves that they
//! are the bytes that were backed up.
//!
//! Invariants: B7: a file's digest and size are verified before its end is reported; B8: a member's
//! parent is a directory that was named before, so that a restore never writes through a link of
//! the stream; only a set of files has symbolic links.
//!
//! Must not: trust a length before it was bounded; return more than the set's head states.

use std::collections::BTreeSet;

use strongroom_crypto::Sha256;
use strongroom_format::backup::{
    FileEnd, ItemHead, ItemKind, Member, MemberKind, StreamEnd, item_layout,
};
use strongroom_format::code;

use crate::head::Description;
use crate::pipeline::read::Opened;
use crate::{Error, Result};

const BEYOND: &str = "more than the head says";

/// What a stream consists of.
pub(crate) enum Event<'a> {
    /// A member begins. `again`: a directory that was named before.
    Member { member: Member, again: bool },
    /// The next bytes of the file.
    Data(&'a [u8]),
    /// The file has ended, and is what was backed up.
    FileEnd,
    /// The stream has ended, and is complete.
    End(StreamEnd),
}

/// The origin of the stream's bytes.
pub(crate) trait Input {
    /// Returns the next bytes, which are never empty; `None` at the end. The caller may swap the
    /// buffer for another one. Errors of the origin, such as SR-7109 for a damaged segment.
    fn next_bytes(&mut self) -> Result<Option<&mut Vec<u8>>>;
}

impl Input for Opened {
    /// Waits for the next piece of the pipeline, which is authenticated; `None` at the end. SR-7109
    /// when the segment is damaged, SR-7110 when a family ends too early; errors of the store.
    fn next_bytes(&mut self) -> Result<Option<&mut Vec<u8>>> {
        self.next_piece()
    }
}

/// A stream that is being read.
pub(crate) struct StreamReader<'a, I: Input> {
    input: &'a mut I,
    piece: Vec<u8>,
    at: usize,
    file: Option<(Sha256, u64)>,
    /// Bytes of the current data item that were not returned yet.
    data_left: usize,
    counted: StreamEnd,
    /// The directories that were named. Other paths are not kept: a restore creates every file
    /// anew, and so finds one that is named twice.
    directories: BTreeSet<Vec<u8>>,
    links: bool,
    /// The counts in the head; more than that is not returned.
    most: StreamEnd,
    ended: bool,
}

impl<'a, I: Input> StreamReader<'a, I> {
    /// A reader of `input` without limits; see [`Self::limited_to`].
    pub(crate) fn new(input: &'a mut I) -> Self {
        Self {
            input,
            piece: Vec::new(),
            at: 0,
            file: None,
            data_left: 0,
            counted: StreamEnd::default(),
            directories: BTreeSet::new(),
            links: true,
            most: StreamEnd {
                members: u64::MAX,
                files: u64::MAX,
                size: u64::MAX,
            },
            ended: false,
        }
    }

    /// Adds checks for this set: from now on refuses (SR-7111) members that its kind never has, and
    /// more members, files or bytes than its head states.
    pub(crate) fn limited_to(mut self, description: &Description) -> Self {
        self.links = description.kind.has_links();
        self.most = StreamEnd {
            members: description.members,
            files: description.files,
            size: description.backup_size_bytes,
        };
        self
    }

    /// Reads the next event. SR-7111 when the stream is malformed, ends too early or has more than
    /// the head states, and after [`Event::End`]; SR-7112 when a file is not what was backed up;
    /// errors of the pipeline.
    pub(crate) fn next(&mut self) -> Result<Event<'_>> {
        if self.data_left > 0 {
            return self.next_data();
        }
        if self.ended {
            return Err(malformed("read beyond its end"));
        }
        let mut head = [0; item_layout::SIZE];
        self.exactly(&mut head)?;
        let head = ItemHead::parse(&head).ok_or_else(|| malformed("an item"))?;
        let length = usize::try_from(head.length).map_err(|_| malformed("an item"))?;
        if head.kind == ItemKind::Data {
            if self.file.is_none() {
                return Err(malformed("data outside a file"));
            }
            self.data_left = length;
            return self.next_data();
        }
        let mut bytes = vec![0; length];
        self.exactly(&mut bytes)?;
        match head.kind {
            ItemKind::Member => self
                .member(&bytes)
                .map(|(member, again)| Event::Member { member, again }),
            ItemKind::FileEnd => self.file_end(&bytes).map(|()| Event::FileEnd),
            _ => self.stream_end(&bytes).map(Event::End),
        }
    }

    /// Returns the next bytes of the file that is being read, as many as are at hand; adds them to
    /// the file's digest and size. SR-7111 when the set has more bytes than its head states, or the
    /// stream ends.
    fn next_data(&mut self) -> Result<Event<'_>> {
        self.refill()?;
        let available = self.piece.len() - self.at;
        let length = available.min(self.data_left);
        let from = self.at;
        self.at += length;
        self.data_left -= length;
        let bytes = self.piece.get(from..self.at).unwrap_or_default();
        if let Some((digest, size)) = &mut self.file {
            digest.update(bytes);
            *size = size.saturating_add(bytes.len() as u64);
            if self.counted.size.saturating_add(*size) > self.most.size {
                return Err(malformed(BEYOND));
            }
        }
        Ok(Event::Data(bytes))
    }

    /// Parses and checks a member. SR-7111 when it is malformed, its parent was not named, or the
    /// set has more than its head states. True for a directory that was named before.
    fn member(&mut self, bytes: &[u8]) -> Result<(Member, bool)> {
        if self.file.is_some() {
            return Err(malformed("a member within a file"));
        }
        let member = Member::parse(bytes).ok_or_else(|| malformed("a member"))?;
        let parent = parent_of(&member.path);
        // Members of the root have no parent that is named.
        if parent.is_some_and(|parent| !self.directories.contains(parent)) {
            return Err(malformed("a member outside any directory"));
        }
        let again = self.directories.contains(&member.path);
        if again && member.kind != MemberKind::Directory {
            return Err(malformed("a directory that is named as something else"));
        }
        if member.kind == MemberKind::Link && !self.links {
            return Err(malformed("a symbolic link in a set whose kind has none"));
        }
        match member.kind {
            MemberKind::Directory | MemberKind::Tablespace => {
                self.directories.insert(member.path.clone());
            }
            MemberKind::File => {
                self.counted.files = self.counted.files.saturating_add(1);
                self.file = Some((Sha256::new(), 0));
            }
            MemberKind::Link => {}
        }
        self.counted.members = self.counted.members.saturating_add(1);
        if self.counted.members > self.most.members || self.counted.files > self.most.files {
            return Err(malformed(BEYOND));
        }
        Ok((member, again))
    }

    /// Ends a file. SR-7112 when its size or digest is not the stated one; SR-7111 when no file is
    /// open.
    fn file_end(&mut self, bytes: &[u8]) -> Result<()> {
        let stated = FileEnd::parse(bytes).ok_or_else(|| malformed("the end of a file"))?;
        let (digest, size) = self.file.take().ok_or_else(|| malformed("no file ends"))?;
        self.counted.size = self.counted.size.saturating_add(size);
        let digest = digest.finish();
        if stated == (FileEnd { size, digest }) {
            return Ok(());
        }
        Err(Error::new(&code::FILE_DIGEST, ""))
    }

    /// Ends the stream. SR-7111 when its counts are not the stated ones, or anything follows it.
    fn stream_end(&mut self, bytes: &[u8]) -> Result<StreamEnd> {
        let stated = StreamEnd::parse(bytes).ok_or_else(|| malformed("its end"))?;
        if self.file.is_some() || stated != self.counted {
            return Err(malformed("its counts"));
        }
        if self.at < self.piece.len() {
            return Err(malformed("bytes after its end"));
        }
        self.ended = true;
        Ok(stated)
    }

    /// Makes sure that the current piece has bytes left. SR-7111 when the stream has ended.
    fn refill(&mut self) -> Result<()> {
        if self.at < self.piece.len() {
            return Ok(());
        }
        let bytes = self.input.next_bytes()?;
        let bytes = bytes.ok_or_else(|| malformed("it ends too early"))?;
        // The used buffer is given back for it, and the pipeline uses it again.
        std::mem::swap(&mut self.piece, bytes);
        self.at = 0;
        Ok(())
    }

    /// Fills `out` with the next bytes. SR-7111 when the stream ends before.
    fn exactly(&mut self, out: &mut [u8]) -> Result<()> {
        let mut filled = 0;
        while filled < out.len() {
            self.refill()?;
            let wanted = out.get_mut(filled..).unwrap_or_default();
            let there = self.piece.get(self.at..).unwrap_or_default();
            let length = wanted.len().min(there.len());
            for (to, from) in wanted.iter_mut().zip(there) {
                *to = *from;
            }
            filled += length;
            self.at += length;
        }
        Ok(())
    }
}

/// The directory that a path is in; `None` when that is the root.
pub(crate) fn parent_of(path: &[u8]) -> Option<&[u8]> {
    let slash = path.iter().rposition(|&byte| byte == b'/')?;
    path.get(..slash)
}

/// Makes SR-7111 (the contents of the set are malformed) with the reason as its detail.
fn malformed(why: &str) -> Error {
    Error::new(&code::STREAM, why)
}
