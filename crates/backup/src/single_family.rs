//! A family by itself, in memory: an archived file, or a manifest.
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

/// One family that has `content` by itself.
pub(crate) fn seal_family(
    keys: &SetKeys,
    content: &[u8],
    options: &CreateOptions<'_>,
) -> Result<(Vec<u8>, FamilyEnd)> {
    let key = keys.new_family(0, 1)?;
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

/// What a family has that is alone, at most `most` bytes, and how it ends. `signed`: with a digest
/// of all its bytes.
pub(crate) fn open_family_bytes(
    keys: &SetKeys,
    bytes: Vec<u8>,
    most: u64,
    signed: bool,
) -> Result<(Vec<u8>, Vec<FamilyEnd>)> {
    let unkeyed = FamilyPrefix::read(Box::new(io::Cursor::new(bytes)), 0)?;
    let key = keys.family(&unkeyed.header, 0, 1)?;
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

pub(crate) fn not_as_long() -> Error {
    Error::new(&code::STREAM, "not as long as its head says")
}

/// An object of one piece, before it is stored.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
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
    fn finish(self: Box<Self>) -> io::Result<()> {
        Ok(())
    }
}
