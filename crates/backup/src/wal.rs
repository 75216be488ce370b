//! The archive of a PostgreSQL server's log: one object for each file that the server archives.
//!
//! Invariants: B2, an archived file is never replaced, but for a sealed piece by the same piece; a file that is archived twice with
//! the same content is archived once; a file that cannot be opened is never told as one that is not there, nor is a segment that
//! later ones follow.
//!
//! Must not: hand out a file under another name than it was archived under.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use strongroom_crypto::sha256;
use strongroom_format::{code, hex};
use strongroom_keyring::Opener;

use crate::create::{self, CreateOptions, now};
use crate::family::{FamilyWriter, Unkeyed};
use crate::head::{self, Description, FamilyEnd, Kind, PostgresFacts, Unopened};
use crate::medium::MediumHead;
use crate::pieces::Piece;
use crate::pipeline::read::{self as reading, Origin};
use crate::pipeline::write::{self as writing, Settings, Target};
use crate::set::Guard;
use crate::store::{Store, Upload};
use crate::{Error, Result};

/// Longest file that is archived, in bytes: the longest segment that PostgreSQL can have.
const FILE_MAX: u64 = 1 << 30;
/// Longest object: the file, stored as it is, with its segments' heads and tags, and the head.
pub(crate) const OBJECT_MAX: u64 = FILE_MAX + (4 << 20);

/// How often a piece that others replace meanwhile is tried to be replaced.
const REPLACE_TRIES: u32 = 8;

/// What the archive has under a name.
enum There {
    Nothing,
    /// This file, whole and durable.
    This,
    /// A sealed piece: only its key tells what is in it.
    SealedPiece,
}

/// Archives `content` under `name`. False when it was there already.
///
/// # Errors
/// SR-7120 when another content is there; SR-7106, SR-7110 when what is there is damaged; SR-7101 when the medium is not; SR-7104, SR-7105; SR-1001 for a name that PostgreSQL does not archive under.
pub fn wal_push(
    store: &dyn Store,
    name: &str,
    content: &[u8],
    options: &CreateOptions<'_>,
) -> Result<bool> {
    check_name(name)?;
    let medium = create::medium_for_archive(store, options)?;
    let object = object_name(name);
    if let There::This = there(store, &object, name, content)? {
        return Ok(false);
    }
    let guard = if options.openers.is_empty() {
        Guard::plain()?
    } else {
        Guard::sealed(options.cipher, &options.openers)?
    };
    let started_unix_s = now();
    let (family, _) = sealed_family(&guard, content, options)?;
    let mut described = create::description(&guard, options, &medium.medium_id, started_unix_s);
    described.kind = Kind::Wal;
    described.source = name.to_owned();
    described.backup_size_bytes = content.len() as u64;
    described.files = 1;
    described.compressed_size_bytes = family.len() as u64;
    // A piece may be one small transaction: who reads the medium would try what it was.
    let hidden = Piece::of(name).is_some() && matches!(guard, Guard::Sealed { .. });
    if !hidden {
        described.content_digest = Some(content_digest(&described.set_id, content)?);
    }
    described.postgres = Some(facts(name, content));
    let mut bytes = head::to_bytes(&guard, &described)?;
    bytes.extend_from_slice(&family);
    let created = store.create_new(&object, &bytes);
    if created.map_err(|error| failed(store, &object, error))? {
        return Ok(true);
    }
    match there(store, &object, name, content)? {
        // Someone else archived it meanwhile.
        There::This => Ok(false),
        // Of this name and with these ends there is one piece of a cluster's log. The one that is there may be what a receiver has
        // left that was killed.
        There::SealedPiece if hidden => replaced(store, &object, &bytes),
        _ => Err(Error::new(&code::WAL_DIFFERS, name)),
    }
}

/// Puts a piece in the place of the one that is there.
fn replaced(store: &dyn Store, object: &str, bytes: &[u8]) -> Result<bool> {
    let guard = store.changing("wal");
    let _guard = guard.map_err(|error| failed(store, object, error))?;
    for _ in 0..REPLACE_TRIES {
        let read = store.read_version(object, OBJECT_MAX);
        let done = match read.map_err(|error| failed(store, object, error))? {
            Some((_, seen)) => store.replace(object, bytes, &seen),
            None => store.create_new(object, bytes),
        };
        if done.map_err(|error| failed(store, object, error))? {
            return Ok(true);
        }
    }
    let others = io::Error::other("others replace it all the time");
    Err(failed(store, object, others))
}

/// The file that was archived under `name`.
///
/// # Errors
/// SR-7121 when there is none, and only then; SR-7130 when there is none, but later segments of its timeline; SR-2001, SR-2002; SR-7126;
/// SR-7106, SR-7109 to SR-7112 when it is damaged.
pub fn wal_fetch(store: &dyn Store, name: &str, opener: Option<&Opener>) -> Result<Vec<u8>> {
    check_name(name)?;
    let object = object_name(name);
    let read = store.read(&object, OBJECT_MAX);
    let bytes = read.map_err(|error| failed(store, &object, error))?;
    let Some(bytes) = bytes else {
        // A medium that is not mounted has no file of any name, and is not the end of the archive.
        return Err(match MediumHead::read(store)? {
            Some(_) if is_followed(store, name)? => Error::new(&code::WAL_GAP, name),
            Some(_) => Error::new(&code::WAL_ABSENT, name),
            None => Error::new(&code::MEDIUM_ABSENT, store.shown()),
        });
    };
    let head = Unopened::parse(bytes)?;
    let guard = head.open_in(store, opener)?;
    let described = &head.description;
    if !is_archived_as(described, name) {
        return Err(Error::new(
            &code::SET_HEAD,
            format!("{name}: another file's"),
        ));
    }
    // A few bytes can stand for a thousand times as many.
    let stated = described.backup_size_bytes;
    let (content, _) = opened_family(&guard, head.rest().to_vec(), stated.min(FILE_MAX), false)?;
    if content.len() as u64 != stated {
        return Err(not_as_long());
    }
    // Without one it is authentic by its key alone.
    let undigested = described.content_digest.is_none() && is_sealed_piece(&head, name);
    if !undigested && described.content_digest != Some(content_digest(&described.set_id, &content)?)
    {
        return Err(Error::new(&code::FILE_DIGEST, name));
    }
    Ok(content)
}

/// Whether the archive has a later segment of the same timeline, whole or partial. A server archives in order, and what expires
/// is the beginning: a segment is missing in between only if it was lost.
pub(crate) fn is_followed(store: &dyn Store, name: &str) -> Result<bool> {
    let Some(wanted) = segment(name) else {
        return Ok(false);
    };
    let listed = store.list("wal");
    let listed = listed.map_err(|error| failed(store, "wal", error))?;
    let mut segments = listed.iter().filter_map(|(name, _)| {
        let piece = Piece::of(name).map(|piece| piece.segment);
        let of = piece.as_deref().or_else(|| name.strip_suffix(".partial"));
        segment(of.unwrap_or(name))
    });
    Ok(segments.any(|(timeline, number)| timeline == wanted.0 && number > wanted.1))
}

/// Timeline of a segment, and what its name has after that: 32 bits of which 4 GiB, 32 bits of which segment in it.
pub(crate) fn segment(name: &str) -> Option<(u64, u64)> {
    let digits = |byte: u8| byte.is_ascii_hexdigit();
    if name.len() != 24 || !name.bytes().all(digits) {
        return None;
    }
    let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
    Some((number(name.get(..8)?)?, number(name.get(8..)?)?))
}

/// Whether `start`, the beginning of a file in `pg_wal`, is that of the segment `name` and not of an older one whose file was
/// given a new name to be used again (PostgreSQL: `xlp_pageaddr` of `XLogPageHeaderData`).
#[must_use]
pub fn begins_segment(name: &str, start: &[u8]) -> bool {
    let facts = facts(name, start);
    let Some((_, number)) = segment(name) else {
        return false;
    };
    let in_file = (number & 0xffff_ffff).checked_mul(facts.segment_size_bytes);
    let begins = in_file.and_then(|at| at.checked_add(number & !0xffff_ffff));
    let address = start.get(8..16).and_then(|bytes| bytes.try_into().ok());
    let address = address.map(u64::from_le_bytes);
    // Without a long header the size is 0: every segment begins with one.
    facts.segment_size_bytes > 0 && address.is_some() && address == begins
}

/// Whether this is a piece that is sealed.
fn is_sealed_piece(head: &Unopened, name: &str) -> bool {
    Piece::of(name).is_some() && head.is_sealed()
}

/// Whether the archive has exactly this file, whole and durable. No key is needed.
fn there(store: &dyn Store, object: &str, name: &str, content: &[u8]) -> Result<There> {
    let read = store.read(object, OBJECT_MAX);
    let Some(bytes) = read.map_err(|error| failed(store, object, error))? else {
        return Ok(There::Nothing);
    };
    let head = Unopened::parse(bytes)?;
    let described = &head.description;
    if !is_archived_as(described, name) {
        return Err(Error::new(
            &code::SET_HEAD,
            format!("{name}: another file's"),
        ));
    }
    if described.content_digest.is_none() && is_sealed_piece(&head, name) {
        return Ok(There::SealedPiece);
    }
    if described.content_digest != Some(content_digest(&described.set_id, content)?) {
        return Err(Error::new(&code::WAL_DIFFERS, name));
    }
    settled(store, object, name, &head)?;
    Ok(There::This)
}

/// Makes an archived file durable that is listed: whoever created it may have been ended before it was.
///
/// # Errors
/// SR-7106, SR-7110 when it is damaged; SR-5001, also when it is gone.
pub(crate) fn make_durable(store: &dyn Store, name: &str) -> Result<()> {
    let object = object_name(name);
    let read = store.read(&object, OBJECT_MAX);
    let bytes = read.map_err(|error| failed(store, &object, error))?;
    let bytes = bytes.ok_or_else(|| failed(store, &object, io::ErrorKind::NotFound.into()))?;
    let head = Unopened::parse(bytes)?;
    if !is_archived_as(&head.description, name) {
        return Err(Error::new(
            &code::SET_HEAD,
            format!("{name}: another file's"),
        ));
    }
    settled(store, &object, name, &head)
}

fn settled(store: &dyn Store, object: &str, name: &str, head: &Unopened) -> Result<()> {
    // Its digest says what it was made of, and not that all of it is there.
    if head.rest().len() as u64 != head.description.compressed_size_bytes {
        return Err(Error::new(&code::FAMILY_SHORT, name));
    }
    let synced = store.sync(object);
    synced.map_err(|error| failed(store, object, error))
}

fn is_archived_as(described: &Description, name: &str) -> bool {
    let facts = described.postgres.as_ref();
    described.kind == Kind::Wal && facts.is_some_and(|facts| facts.file_name == name)
}

/// The cluster whose log the archive has, by its newest segment. Not authenticated: this only ever refuses.
pub(crate) fn archived_system(store: &dyn Store) -> Result<Option<String>> {
    let listed = store.list("wal");
    let listed = listed.map_err(|error| failed(store, "wal", error))?;
    for (name, _) in listed.iter().rev() {
        let first = Piece::of(name).is_some_and(|piece| piece.start == 0);
        if !first && segment(name).is_none() {
            continue;
        }
        let object = object_name(name);
        let read = store.read(&object, OBJECT_MAX);
        let Some(bytes) = read.map_err(|error| failed(store, &object, error))? else {
            continue;
        };
        let facts = Unopened::parse(bytes)?.description.postgres;
        let system = facts.map(|facts| facts.system_identifier);
        return Ok(system.filter(|system| !system.is_empty()));
    }
    Ok(None)
}

fn content_digest(set_id: &str, content: &[u8]) -> Result<String> {
    let id = hex::from_hex(set_id).ok_or_else(|| Error::new(&code::SET_HEAD, "its id"))?;
    Ok(hex::hex(&sha256(&[&id, content])))
}

pub(crate) fn object_name(name: &str) -> String {
    format!("wal/{name}")
}

/// Segments, history files and backup history files: digits and capitals, and `.history`, `.backup`, `.partial`.
fn check_name(name: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.';
    let sound = (1..=64).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('.');
    if sound {
        return Ok(());
    }
    Err(Error::new(
        &code::USAGE,
        format!("{name}: not a name in an archive"),
    ))
}

/// What a segment's first page says (PostgreSQL: `XLogLongPageHeaderData`, `src/include/access/xlog_internal.h`).
pub(crate) fn facts(name: &str, content: &[u8]) -> PostgresFacts {
    const LONG_HEADER: u16 = 2;
    let mut facts = PostgresFacts {
        file_name: name.to_owned(),
        ..PostgresFacts::default()
    };
    let first = Piece::of(name).filter(|piece| piece.start == 0);
    let is_segment = first.is_some() || segment(name).is_some();
    let word = |at: usize| {
        Some(u32::from_le_bytes(
            content.get(at..at + 4)?.try_into().ok()?,
        ))
    };
    let info = content
        .get(2..4)
        .and_then(|info| info.try_into().ok())
        .map(u16::from_le_bytes);
    let long = is_segment && info.is_some_and(|info| info & LONG_HEADER != 0);
    if let (true, Some(low), Some(high)) = (long, word(24), word(28)) {
        facts.system_identifier = ((u64::from(high) << 32) | u64::from(low)).to_string();
        facts.segment_size_bytes = word(32).map_or(0, u64::from);
        facts.timeline = name
            .get(..8)
            .and_then(|hex| u32::from_str_radix(hex, 16).ok())
            .unwrap_or(0);
    }
    facts
}

/// One family that has `content` by itself.
pub(crate) fn sealed_family(
    guard: &Guard,
    content: &[u8],
    options: &CreateOptions<'_>,
) -> Result<(Vec<u8>, FamilyEnd)> {
    let key = guard.new_family(0, 1)?;
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
pub(crate) fn opened_family(
    guard: &Guard,
    bytes: Vec<u8>,
    most: u64,
    signed: bool,
) -> Result<(Vec<u8>, Vec<FamilyEnd>)> {
    let unkeyed = Unkeyed::read(Box::new(io::Cursor::new(bytes)), 0)?;
    let key = guard.family(&unkeyed.header, 0, 1)?;
    let reader = unkeyed.keyed(&key, signed);
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

fn not_as_long() -> Error {
    Error::new(&code::STREAM, "not as long as its head says")
}

fn failed(store: &dyn Store, object: &str, error: io::Error) -> Error {
    Error::io(format!("{}/{object}", store.shown()), error)
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
