//! The archive of a PostgreSQL server's log: one object for each file that the server archives.
//!
//! Invariants: B2, an archived file is never replaced, but for a sealed piece by the same piece; a
//! file that is archived twice with the same content is archived once; a file that cannot be opened
//! is never reported as absent, nor is a segment that has later ones.
//!
//! Must not: return a file under another name than it was archived under.

use std::io;

use strongroom_crypto::sha256;
use strongroom_format::{code, hex};
use strongroom_keyring::Opener;

use crate::clock::now_unix_s;
use crate::first_page::segment_facts;
use crate::head::{self, Description, Kind, UnopenedHead};
use crate::log_names::{Piece, object_name, parse_segment_name};
use crate::medium_head::MediumHead;
use crate::medium_rules::medium_for_archive;
use crate::options::CreateOptions;
use crate::set::SetKeys;
use crate::single_family::{not_as_long, open_family_bytes, seal_family};
use crate::store::Store;
use crate::{Error, Result};

/// Longest file that is archived, in bytes: the longest segment that PostgreSQL can have.
const FILE_MAX: u64 = 1 << 30;
/// Longest object: the file, stored as it is, with its segments' heads and tags, and the head.
pub(crate) const OBJECT_MAX: u64 = FILE_MAX + (4 << 20);

/// How often replacing a piece is tried while other writers replace it.
const REPLACE_TRIES: u32 = 8;

/// What the archive holds under a name.
enum Archived {
    Nothing,
    /// This file, whole and durable.
    This,
    /// A sealed piece: only its key tells what is in it.
    SealedPiece,
}

/// Archives `content` under `name`. False when it was there already.
///
/// # Errors
/// SR-7120 when another content is there; SR-7106, SR-7110 when what is there is damaged; SR-7101
/// when the medium is not; SR-7104, SR-7105; SR-1001 for a name that PostgreSQL does not archive
/// under.
pub fn wal_push(
    store: &dyn Store,
    name: &str,
    content: &[u8],
    options: &CreateOptions<'_>,
) -> Result<bool> {
    check_name(name)?;
    let medium = medium_for_archive(store, options)?;
    let object = object_name(name);
    if let Archived::This = find_archived(store, &object, name, content)? {
        return Ok(false);
    }
    let keys = options.new_set_keys()?;
    let started_unix_s = now_unix_s();
    let (family, _) = seal_family(&keys, content, options)?;
    let mut described = options.describe(&keys, &medium.medium_id, started_unix_s);
    described.kind = Kind::Wal;
    described.source = name.to_owned();
    described.backup_size_bytes = content.len() as u64;
    described.files = 1;
    described.compressed_size_bytes = family.len() as u64;
    // A piece may be one small transaction: a digest would let a reader of the medium guess its
    // contents.
    let hidden = Piece::of(name).is_some() && matches!(keys, SetKeys::Sealed { .. });
    if !hidden {
        described.content_digest = Some(content_digest(&described.set_id, content)?);
    }
    described.postgres = Some(segment_facts(name, content));
    let mut bytes = head::to_bytes(&keys, &described)?;
    bytes.extend_from_slice(&family);
    let created = store.create_new(&object, &bytes);
    if created.map_err(|error| failed(store, &object, error))? {
        return Ok(true);
    }
    match find_archived(store, &object, name, content)? {
        // Someone else archived it meanwhile.
        Archived::This => Ok(false),
        // Of this name and with these ends there is one piece of a cluster's log. The one that is
        // there may be what a receiver has left that was killed.
        Archived::SealedPiece if hidden => replace_piece(store, &object, &bytes),
        _ => Err(Error::new(&code::WAL_DIFFERS, name)),
    }
}

/// Puts a piece in the place of the one that is there.
fn replace_piece(store: &dyn Store, object: &str, bytes: &[u8]) -> Result<bool> {
    let changing = store.lock_changes("wal");
    let _changing = changing.map_err(|error| failed(store, object, error))?;
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
/// SR-7121 when there is none, and only then; SR-7130 when there is none, but later segments of its
/// timeline; SR-2001, SR-2002; SR-7126; SR-7106, SR-7109 to SR-7112 when it is damaged.
pub fn wal_fetch(store: &dyn Store, name: &str, opener: Option<&Opener>) -> Result<Vec<u8>> {
    check_name(name)?;
    let object = object_name(name);
    let read = store.read(&object, OBJECT_MAX);
    let bytes = read.map_err(|error| failed(store, &object, error))?;
    let Some(bytes) = bytes else {
        // A medium that is not mounted has no file of any name, and is not the end of the archive.
        return Err(match MediumHead::read(store)? {
            Some(_) if has_later_segment(store, name)? => Error::new(&code::WAL_GAP, name),
            Some(_) => Error::new(&code::WAL_ABSENT, name),
            None => Error::new(&code::MEDIUM_ABSENT, store.shown()),
        });
    };
    let head = UnopenedHead::parse(bytes)?;
    let keys = head.open_in(store, opener)?;
    let described = &head.description;
    if !is_archived_as(described, name) {
        return Err(Error::new(
            &code::SET_HEAD,
            format!("{name}: another file's"),
        ));
    }
    // A few bytes can stand for a thousand times as many.
    let stated = described.backup_size_bytes;
    let (content, _) = open_family_bytes(&keys, head.rest().to_vec(), stated.min(FILE_MAX), false)?;
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

/// Whether the archive has a later segment of the same timeline, whole or partial. A server
/// archives in order, and what expires is the beginning: a segment is missing in between only if it
/// was lost.
pub(crate) fn has_later_segment(store: &dyn Store, name: &str) -> Result<bool> {
    let Some(wanted) = parse_segment_name(name) else {
        return Ok(false);
    };
    let listed = store.list("wal");
    let listed = listed.map_err(|error| failed(store, "wal", error))?;
    let mut segments = listed.iter().filter_map(|(name, _)| {
        let piece = Piece::of(name).map(|piece| piece.segment);
        let of = piece.as_deref().or_else(|| name.strip_suffix(".partial"));
        parse_segment_name(of.unwrap_or(name))
    });
    Ok(segments.any(|(timeline, number)| timeline == wanted.0 && number > wanted.1))
}

/// Whether this is a piece that is sealed.
fn is_sealed_piece(head: &UnopenedHead, name: &str) -> bool {
    Piece::of(name).is_some() && head.is_sealed()
}

/// Whether the archive has exactly this file, whole and durable. No key is needed.
fn find_archived(store: &dyn Store, object: &str, name: &str, content: &[u8]) -> Result<Archived> {
    let read = store.read(object, OBJECT_MAX);
    let Some(bytes) = read.map_err(|error| failed(store, object, error))? else {
        return Ok(Archived::Nothing);
    };
    let head = UnopenedHead::parse(bytes)?;
    let described = &head.description;
    if !is_archived_as(described, name) {
        return Err(Error::new(
            &code::SET_HEAD,
            format!("{name}: another file's"),
        ));
    }
    if described.content_digest.is_none() && is_sealed_piece(&head, name) {
        return Ok(Archived::SealedPiece);
    }
    if described.content_digest != Some(content_digest(&described.set_id, content)?) {
        return Err(Error::new(&code::WAL_DIFFERS, name));
    }
    make_head_durable(store, object, name, &head)?;
    Ok(Archived::This)
}

/// Makes a listed archived file durable: its writer may have been killed before it did so.
///
/// # Errors
/// SR-7106, SR-7110 when it is damaged; SR-5001, also when it is gone.
pub(crate) fn make_durable(store: &dyn Store, name: &str) -> Result<()> {
    let object = object_name(name);
    let read = store.read(&object, OBJECT_MAX);
    let bytes = read.map_err(|error| failed(store, &object, error))?;
    let bytes = bytes.ok_or_else(|| failed(store, &object, io::ErrorKind::NotFound.into()))?;
    let head = UnopenedHead::parse(bytes)?;
    if !is_archived_as(&head.description, name) {
        return Err(Error::new(
            &code::SET_HEAD,
            format!("{name}: another file's"),
        ));
    }
    make_head_durable(store, &object, name, &head)
}

fn make_head_durable(
    store: &dyn Store,
    object: &str,
    name: &str,
    head: &UnopenedHead,
) -> Result<()> {
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

/// The cluster whose log the archive has, by its newest segment. Not authenticated: this only ever
/// refuses.
pub(crate) fn archived_system(store: &dyn Store) -> Result<Option<String>> {
    let listed = store.list("wal");
    let listed = listed.map_err(|error| failed(store, "wal", error))?;
    for (name, _) in listed.iter().rev() {
        let first = Piece::of(name).is_some_and(|piece| piece.start == 0);
        if !first && parse_segment_name(name).is_none() {
            continue;
        }
        let object = object_name(name);
        let read = store.read(&object, OBJECT_MAX);
        let Some(bytes) = read.map_err(|error| failed(store, &object, error))? else {
            continue;
        };
        let facts = UnopenedHead::parse(bytes)?.description.postgres;
        let system = facts.map(|facts| facts.system_identifier);
        return Ok(system.filter(|system| !system.is_empty()));
    }
    Ok(None)
}

fn content_digest(set_id: &str, content: &[u8]) -> Result<String> {
    let id = hex::from_hex(set_id).ok_or_else(|| Error::new(&code::SET_HEAD, "its id"))?;
    Ok(hex::hex(&sha256(&[&id, content])))
}

/// Segments, history files and backup history files: digits and capitals, and `.history`,
/// `.backup`, `.partial`.
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

fn failed(store: &dyn Store, object: &str, error: io::Error) -> Error {
    Error::io(format!("{}/{object}", store.shown()), error)
}
