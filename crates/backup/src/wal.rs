//! The archive of a PostgreSQL server's log: one object for each file that the server archives.
//!
//! Invariants: B2: an archived file is never replaced, except a sealed piece by the same piece;
//! archiving a file twice with the same content changes nothing; neither a file that cannot be
//! opened nor a missing segment that has later ones is reported as absent.
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
pub(crate) const FILE_MAX: u64 = 1 << 30;
/// Longest object: the file, stored as it is, with its segments' heads and tags, and the head.
pub(crate) const OBJECT_MAX: u64 = FILE_MAX + (4 << 20);

/// How often replacing a piece is tried while other writers replace it.
const REPLACE_TRIES: u32 = 8;

/// What the archive holds under a name.
enum Archived {
    Nothing,
    /// This file, complete and durable.
    This,
    /// A sealed piece, whose content can only be compared with its key.
    SealedPiece,
}

/// Archives `content` under `name`, as an object of the medium. False when it was archived already;
/// that object is then made durable.
///
/// # Errors
/// SR-7120 when another content has the name; SR-7106, SR-7110 when the archived file is damaged;
/// SR-7101 when there is no medium; SR-7104, SR-7105 when the medium's protection differs; SR-1001
/// for a name that PostgreSQL does not use; SR-5001, or SR-7141 to SR-7143 for an object store,
/// when the store fails.
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
    let set_keys = options.new_set_keys()?;
    let started_unix_s = now_unix_s();
    let (family, _) = seal_family(&set_keys, content, options)?;
    let mut described = options.describe(&set_keys, &medium.medium_id, started_unix_s);
    described.kind = Kind::Wal;
    described.source = name.to_owned();
    described.backup_size_bytes = content.len() as u64;
    described.files = 1;
    described.compressed_size_bytes = family.len() as u64;
    // A piece may be one small transaction: a digest would let a reader of the medium guess its
    // contents.
    let hidden = Piece::of(name).is_some() && matches!(set_keys, SetKeys::Sealed { .. });
    if !hidden {
        described.content_digest = Some(content_digest(&described.set_id, content)?);
    }
    described.postgres = Some(segment_facts(name, content));
    let mut bytes = head::to_bytes(&set_keys, &described)?;
    bytes.extend_from_slice(&family);
    let created = store.create_new(&object, &bytes);
    if created.map_err(|error| failed(store, &object, error))? {
        return Ok(true);
    }
    match find_archived(store, &object, name, content)? {
        // Another writer archived it meanwhile.
        Archived::This => Ok(false),
        // A cluster's log has only one piece with this name. The archived one may have been left
        // incomplete by a killed receiver.
        Archived::SealedPiece if hidden => replace_piece(store, &object, &bytes),
        _ => Err(Error::new(&code::WAL_DIFFERS, name)),
    }
}

/// Replaces an archived piece, or creates it if it is gone, under the lock of changes; always
/// returns true. SR-5001 when other writers replace it each time.
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

/// Returns the content of the file that was archived under `name`, after its seal and digest were
/// verified.
///
/// # Errors
/// SR-7121 only when there is no such file on an existing medium; SR-7130 when it is a segment and
/// later ones of its timeline exist; SR-7101 without a medium; SR-2001, SR-2002 for a missing or
/// wrong key; SR-7126 when it is not sealed although it should be; SR-7106 (its head) or SR-7109 to
/// SR-7112 (its content) when it is damaged; SR-1001 for a name that cannot be archived.
pub fn wal_fetch(store: &dyn Store, name: &str, opener: Option<&Opener>) -> Result<Vec<u8>> {
    check_name(name)?;
    let object = object_name(name);
    let read = store.read(&object, OBJECT_MAX);
    let bytes = read.map_err(|error| failed(store, &object, error))?;
    let Some(bytes) = bytes else {
        // On a medium that is not mounted every file is missing, which must not end recovery.
        return Err(match MediumHead::read(store)? {
            Some(_) if has_later_segment(store, name)? => Error::new(&code::WAL_GAP, name),
            Some(_) => Error::new(&code::WAL_ABSENT, name),
            None => Error::new(&code::MEDIUM_ABSENT, store.shown()),
        });
    };
    let head = UnopenedHead::parse(bytes)?;
    let set_keys = head.open_in(store, opener)?;
    let described = &head.description;
    if !is_archived_as(described, name) {
        return Err(Error::new(
            &code::SET_HEAD,
            format!("{name}: the head belongs to another file"),
        ));
    }
    // The stated length bounds the content, because a few compressed bytes can expand a thousand
    // times.
    let stated = described.backup_size_bytes;
    let (content, _) =
        open_family_bytes(&set_keys, head.rest().to_vec(), stated.min(FILE_MAX), false)?;
    if content.len() as u64 != stated {
        return Err(not_as_long());
    }
    // A sealed piece has no digest; its key authenticates it.
    let undigested = described.content_digest.is_none() && is_sealed_piece(&head, name);
    if !undigested && described.content_digest != Some(content_digest(&described.set_id, &content)?)
    {
        return Err(Error::new(&code::FILE_DIGEST, name));
    }
    Ok(content)
}

/// Whether the archive has a later segment of the same timeline, whole or partial. False when
/// `name` is no segment. A server archives in order, and only the beginning expires, so that a
/// segment is missing in between only if it was lost. Errors of the store.
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

/// Whether this is a piece of a segment, and is sealed.
fn is_sealed_piece(head: &UnopenedHead, name: &str) -> bool {
    Piece::of(name).is_some() && head.is_sealed()
}

/// Looks for what the archive has under `name`. If it is this file, makes it durable and returns
/// [`Archived::This`]; no key is needed for that. SR-7120 when the content differs; SR-7106 or
/// SR-7110 when the object is damaged or cut short.
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
            format!("{name}: the head belongs to another file"),
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

/// Makes an archived file durable: its writer may have been killed before it did so.
///
/// # Errors
/// SR-7106, SR-7110 when it is damaged or cut short; SR-5001, also when it does not exist any more.
pub(crate) fn make_durable(store: &dyn Store, name: &str) -> Result<()> {
    let object = object_name(name);
    let read = store.read(&object, OBJECT_MAX);
    let bytes = read.map_err(|error| failed(store, &object, error))?;
    let bytes = bytes.ok_or_else(|| failed(store, &object, io::ErrorKind::NotFound.into()))?;
    let head = UnopenedHead::parse(bytes)?;
    if !is_archived_as(&head.description, name) {
        return Err(Error::new(
            &code::SET_HEAD,
            format!("{name}: the head belongs to another file"),
        ));
    }
    make_head_durable(store, &object, name, &head)
}

/// Makes an archived file durable. SR-7110, and nothing is done, when it is not complete.
fn make_head_durable(
    store: &dyn Store,
    object: &str,
    name: &str,
    head: &UnopenedHead,
) -> Result<()> {
    // The digest in the head does not prove that all bytes are there.
    if head.rest().len() as u64 != head.description.compressed_size_bytes {
        return Err(Error::new(&code::FAMILY_SHORT, name));
    }
    let synced = store.sync(object);
    synced.map_err(|error| failed(store, object, error))
}

/// Whether the description is that of an archived file with this name.
fn is_archived_as(described: &Description, name: &str) -> bool {
    let facts = described.postgres.as_ref();
    described.kind == Kind::Wal && facts.is_some_and(|facts| facts.file_name == name)
}

/// The system identifier of the cluster whose log the archive has, by its newest segment or first
/// piece of one. `None` when the archive has none. It is not authenticated, and may only be used to
/// refuse something. SR-7106 when that object's head is damaged; errors of the store.
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

/// The digest of an archived file's content, bound to its set: SHA-256 of the set's id and the
/// content, as hexadecimal digits. SR-7106 when the id is malformed.
fn content_digest(set_id: &str, content: &[u8]) -> Result<String> {
    let id = hex::from_hex(set_id).ok_or_else(|| Error::new(&code::SET_HEAD, "its id"))?;
    Ok(hex::hex(&sha256(&[&id, content])))
}

/// Checks that a file of the archive can have this name: 1 to 64 letters, digits and dots, not a
/// dot first. SR-1001 otherwise.
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

/// Makes SR-5001, or the code that a store put into the error, with the object's name in the
/// detail.
fn failed(store: &dyn Store, object: &str, error: io::Error) -> Error {
    Error::io(format!("{}/{object}", store.shown()), error)
}
