//! Writes a stream: what a source calls for each member.
//!
//! Invariant B7: every file's digest is computed from the bytes that were written, and follows
//! them.
//!
//! Must not: let a caller write what a reader would refuse.

use strongroom_crypto::Sha256;
use strongroom_format::backup::{
    FileEnd, ItemHead, ItemKind, Member, MemberKind, SEGMENT_SIZE, StreamEnd,
};
use strongroom_format::code;

use crate::head::Kind;
use crate::pipeline::write::Pieces;
use crate::{Error, Result};

/// Longest data item that is written, in bytes.
const DATA_MAX: usize = 64 * 1024;
const _: () = assert!(DATA_MAX <= SEGMENT_SIZE as usize);

/// Where a source writes its members.
pub struct StreamWriter<'a> {
    pieces: &'a mut Pieces,
    progress: &'a mut dyn FnMut(u64),
    file: Option<(Sha256, u64)>,
    end: StreamEnd,
    left_out: Vec<String>,
    links: bool,
}

impl<'a> StreamWriter<'a> {
    /// Begins a stream that is written to `pieces`. `progress` gets the bytes of all files so far.
    /// Members that a set of `kind` never has are refused.
    pub(crate) fn new(
        pieces: &'a mut Pieces,
        progress: &'a mut dyn FnMut(u64),
        kind: Kind,
    ) -> Self {
        Self {
            pieces,
            progress,
            file: None,
            end: StreamEnd::default(),
            left_out: Vec::new(),
            links: kind.has_links(),
        }
    }

    /// Writes a member. A regular file's bytes follow with [`StreamWriter::data`], then
    /// [`StreamWriter::end_file`].
    ///
    /// # Errors
    /// SR-7114 when its path or target cannot be stored, or when a set of this kind never has such
    /// a member; those of the medium.
    pub fn member(&mut self, member: &Member) -> Result<()> {
        if self.file.is_some() {
            return Err(Error::new(&code::BUG, "a member within a file"));
        }
        if member.kind == MemberKind::Link && !self.links {
            let path = String::from_utf8_lossy(&member.path);
            let detail = format!("{path}: a symbolic link, which no set of this kind has");
            return Err(Error::new(&code::BACKUP_SOURCE, detail));
        }
        let bytes = member.to_bytes().ok_or_else(|| {
            let path = String::from_utf8_lossy(&member.path);
            Error::new(
                &code::BACKUP_SOURCE,
                format!("{path}: a path or target that cannot be stored"),
            )
        })?;
        self.item(ItemKind::Member, &bytes)?;
        self.end.members = self.end.members.saturating_add(1);
        if member.kind == MemberKind::File {
            self.end.files = self.end.files.saturating_add(1);
            self.file = Some((Sha256::new(), 0));
        }
        Ok(())
    }

    /// Writes the next bytes of the file, and reports the progress.
    ///
    /// # Errors
    /// Of the medium; SR-9001 when no file is open.
    pub fn data(&mut self, bytes: &[u8]) -> Result<()> {
        for piece in bytes.chunks(DATA_MAX) {
            let Some((digest, size)) = &mut self.file else {
                return Err(Error::new(&code::BUG, "data outside a file"));
            };
            digest.update(piece);
            *size = size.saturating_add(piece.len() as u64);
            self.item(ItemKind::Data, piece)?;
            self.end.size = self.end.size.saturating_add(piece.len() as u64);
        }
        (self.progress)(self.end.size);
        Ok(())
    }

    /// Ends the file: writes its size and digest, and returns its SHA-256.
    ///
    /// # Errors
    /// Of the medium; SR-9001 when no file is open.
    pub fn end_file(&mut self) -> Result<[u8; 32]> {
        let open = self.file.take();
        let (digest, size) = open.ok_or_else(|| Error::new(&code::BUG, "no file is open"))?;
        let digest = digest.finish();
        self.item(ItemKind::FileEnd, &FileEnd { size, digest }.to_bytes())?;
        Ok(digest)
    }

    /// Notes something that was left out, for a warning; writes nothing.
    pub fn leave_out(&mut self, what: String) {
        self.left_out.push(what);
    }

    /// Writes the end of the stream. Returns its counts, and what was left out. SR-9001 when a file
    /// is open.
    pub(crate) fn finish(mut self) -> Result<(StreamEnd, Vec<String>)> {
        if self.file.is_some() {
            return Err(Error::new(&code::BUG, "a stream that ends within a file"));
        }
        self.item(ItemKind::StreamEnd, &self.end.to_bytes())?;
        Ok((self.end, self.left_out))
    }

    /// Writes one item of the stream: its head, then `bytes`. Errors of the medium; SR-9001 for 4
    /// GiB or more.
    fn item(&mut self, kind: ItemKind, bytes: &[u8]) -> Result<()> {
        let length = u32::try_from(bytes.len()).map_err(|_| Error::new(&code::BUG, "item"))?;
        self.pieces.put(&ItemHead { kind, length }.to_bytes())?;
        self.pieces.put(bytes)
    }
}
