//! Seals and opens a single family in memory: an archived file, or a manifest.
//!
//! Must not: read or write a medium.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use strongroom_format::code;

use crate::family::{FamilyPrefix, FamilyWriter};
use crate::head::FamilyEnd;
use crate::options::CreateOptions;
use crate::pipeline::read::{self as reading, Origin};
use crate::pipeline::write::{self as writing, Settings, Target};
use crate::set::SetKeys;
use crate::store::Upload;
use crate::{Error, Result};

/// Seals `content` as the only family of a set, in memory. Returns the family's bytes, and its
/// length and digests. SR-7172 when libcrypto has no Triple DES; SR-5001 when there are no random
/// bytes, or no memory for the key.
pub(crate) fn seal_family(
    set_keys: &SetKeys,
    content: &[u8],
    options: &CreateOptions<'_>,
) -> Result<(Vec<u8>, FamilyEnd)> {
    let key = set_keys.new_family(0, 1)?;
    let memory = Memory::default();
    let out: Box<dyn Upload> = Box::new(memory.clone());
    let writer = FamilyWriter::begin(
        vec![(String::from("archive"), out)],
        &key,
        options.sign_key.is_some(),
    )?;
    let settings = Settings {
        threads: options.threads,
        level: options.compression.level(),
    };
    let ((), mut ends) = writing::run(vec![Target { key, writer }], settings, |pieces| {
        pieces.put(content)
    })?;
    let end = ends.pop();
    let end = end.ok_or_else(|| Error::new(&code::BUG, "a family without an end"))?;
    let mut bytes = memory.0.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((std::mem::take(&mut *bytes), end))
}

/// Opens the only family of a set, and authenticates it. Returns its content, which may have at
/// most `most` bytes, and its length and digests; with `signed`, also the digest of all bytes.
/// SR-7111 when it is longer; SR-7109 or SR-7110 when it is damaged.
pub(crate) fn open_family_bytes(
    set_keys: &SetKeys,
    bytes: Vec<u8>,
    most: u64,
    signed: bool,
) -> Result<(Vec<u8>, Vec<FamilyEnd>)> {
    let unkeyed = FamilyPrefix::read(Box::new(io::Cursor::new(bytes)), 0)?;
    let key = set_keys.family(&unkeyed.header, 0, 1)?;
    let reader = unkeyed.with_key(&key, signed);
    reading::run(vec![Origin { key, reader }], 1, |opened| {
        let mut content = Vec::new();
        while let Some(piece) = opened.next_piece()? {
            if (content.len() as u64).saturating_add(piece.len() as u64) > most {
                return Err(not_as_long());
            }
            content.extend_from_slice(piece);
        }
        Ok(content)
    })
}

/// Makes SR-7111 for content of another length than the head states.
pub(crate) fn not_as_long() -> Error {
    Error::new(&code::STREAM, "not as long as its head says")
}

/// An upload into memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    /// Appends the bytes to the memory; never fails.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut content = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        content.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Upload for Memory {
    /// Does nothing: the bytes stay in memory.
    fn finish(self: Box<Self>) -> io::Result<()> {
        Ok(())
    }
}
