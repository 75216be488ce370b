//! Opens a set and reads it to its end: the common part of restoring and verifying.
//!
//! Invariants: B4, B6. The result names what was not checked.
//!
//! Must not: write anything.

use strongroom_crypto::VerifyingKey;
use strongroom_format::backup::StreamEnd;
use strongroom_format::code;
use strongroom_keyring::Opener;

use crate::family::FamilyPrefix;
use crate::head::{Description, FamilyEnd, UnopenedHead};
use crate::manifest;
use crate::pipeline::read::{self as pipeline, Opened, Origin};
use crate::set::SetKeys;
use crate::set_heads::{family_name, positions, read_head};
use crate::signature;
use crate::store::Store;
use crate::stream::reader::{Event, StreamReader};
use crate::{Error, Result};

/// A set whose head is authentic.
pub struct SetReader<'a> {
    store: &'a dyn Store,
    set_keys: SetKeys,
    position: u32,
    head: UnopenedHead,
    /// The id of the key that signed the set, after the signature was checked.
    signer: Option<[u8; 32]>,
}

impl std::fmt::Debug for SetReader<'_> {
    /// Shows the position and the id of the set, and nothing secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let set = &self.head.description.set_id;
        write!(f, "SetReader({}, set {set})", self.position)
    }
}

/// The result of a successful verification.
#[derive(Debug)]
pub struct Verified {
    /// The set's position.
    pub position: u32,
    /// Its description, authentic if the set is sealed.
    pub description: Description,
    /// Segments that were authenticated and decompressed.
    pub segments: u64,
    /// Files whose digest was compared.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// What was not checked.
    pub not_checked: Vec<String>,
}

/// Opens the set at `position`, or the newest one of the medium. `opener` must be `None` for a set
/// that is not sealed.
///
/// # Errors
/// SR-7101 when there is no medium, SR-7107 when there is no such set; SR-7106 when its head is
/// damaged, or was moved to this position; SR-3002 when a newer version wrote it; SR-2001 without a
/// key, SR-2002 for a wrong one; SR-7126 when a key was given and the set is not sealed; SR-3003 to
/// SR-3007 for its object header. When the newest head cannot be read, its error is returned rather
/// than an older set.
pub fn open_set<'a>(
    store: &'a dyn Store,
    position: Option<u32>,
    opener: Option<&Opener>,
) -> Result<SetReader<'a>> {
    let position = match position {
        Some(position) => position,
        None => newest(store)?,
    };
    let head = read_head(store, position)?;
    let set_keys = head.open_in(store, opener)?;
    // The seal is valid, but a writer to the medium could rename an older set to be the newest.
    if let Some(made_at) = head
        .description
        .set_position
        .filter(|made_at| *made_at != position)
    {
        let detail = format!("position {position} has set {made_at}, which was moved there");
        return Err(Error::new(&code::SET_HEAD, detail));
    }
    Ok(SetReader {
        store,
        set_keys,
        position,
        head,
        signer: None,
    })
}

/// The position of the newest set that belongs to the medium. SR-7107 when there is none; the error
/// of a newer head when that cannot be read, so that no older set is taken for it; SR-7101 when
/// there is no medium; the errors of the store.
fn newest(store: &dyn Store) -> Result<u32> {
    let all = positions(store)?;
    let listed = crate::medium::list(store)?;
    let last = listed.sets.last().map(|set| set.position);
    let unreadable = listed.unreadable.last();
    match (last, unreadable) {
        // An older set must not be restored instead without a word.
        (last, Some(bad)) if last.is_none_or(|last| last < bad.position) => {
            Err(Error::new(bad.error.code(), bad.error.detail()))
        }
        (Some(last), _) => Ok(last),
        (None, _) => {
            let detail = format!("{}: {} heads", store.shown(), all.len());
            Err(Error::new(&code::SET_ABSENT, detail))
        }
    }
}

/// Reads a set to its end and compares everything that can be compared without restoring it: each
/// segment's authenticity, each file's digest, the counts in the head, and the manifest. `progress`
/// gets the bytes of files so far.
///
/// # Errors
/// For the first thing that is wrong, SR-7108 (a data file is missing), SR-7109 (a segment),
/// SR-7110 (a length or digest), SR-7111 (the contents) or SR-7112 (a file's digest); SR-7172 when
/// libcrypto has no Triple DES; SR-5001, or SR-7141 to SR-7143 for an object store, when the store
/// fails.
pub fn verify(
    set: &SetReader<'_>,
    threads: usize,
    progress: &mut dyn FnMut(u64),
) -> Result<Verified> {
    let mut bytes = 0_u64;
    set.read(threads, |stream| {
        loop {
            match stream.next()? {
                Event::Data(data) => {
                    bytes = bytes.saturating_add(data.len() as u64);
                    progress(bytes);
                }
                Event::End(end) => return Ok(end),
                Event::Member { .. } | Event::FileEnd => {}
            }
        }
    })?;
    verified_set(set)
}

/// Makes the result for a set whose stream was read to its end and compared with the head. Also
/// reads the manifest, which is not in the stream, and returns the errors of that.
pub(crate) fn verified_set(set: &SetReader<'_>) -> Result<Verified> {
    let description = set.head.description.clone();
    let facts = description.postgres.as_ref();
    if facts.is_some_and(|facts| facts.manifest_object.is_some()) {
        set.read_manifest()?;
    }
    let mut not_checked = vec![String::from("whether this is the newest set that was made")];
    // A signed set was made by the signer and not changed.
    let unproven = set.set_keys.unproven().filter(|_| set.signer.is_none());
    not_checked.extend(unproven.map(String::from));
    let segments = description.families.iter();
    Ok(Verified {
        position: set.position,
        segments: segments.map(|end| u64::from(end.segments)).sum(),
        files: description.files,
        bytes: description.backup_size_bytes,
        description,
        not_checked,
    })
}

impl SetReader<'_> {
    /// Reads the server's manifest of the set; it is authentic if the set is sealed. SR-7108 when
    /// it is missing; SR-7109 or SR-7110 when it is damaged.
    pub(crate) fn read_manifest(&self) -> Result<Vec<u8>> {
        manifest::read_manifest(self.store, &self.set_keys, &self.head.description)
    }

    /// What the head says; authentic if the set is sealed.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.head.description
    }

    /// The id of the key that signed the set: SHA-256 of its `SubjectPublicKeyInfo`. `None` unless
    /// [`Self::check_signed_by`] was called.
    #[must_use]
    pub fn signer(&self) -> Option<[u8; 32]> {
        self.signer
    }

    /// Checks that the set is signed by one of `keys`. Its families are compared with the signed
    /// digests when they are read.
    ///
    /// # Errors
    /// SR-7177 when it is not signed; SR-7178 when the signature does not hold, is by another key,
    /// or the set was made on another medium; SR-7102 when the medium's head is damaged; SR-3002
    /// when the signature is of a newer format; SR-5001 when reading fails.
    pub fn check_signed_by(&mut self, keys: &[VerifyingKey]) -> Result<()> {
        let by = signature::check_signature(self.store, &self.head, keys)?;
        self.signer = Some(by);
        Ok(())
    }

    /// The set's position on the medium.
    #[must_use]
    pub fn position(&self) -> u32 {
        self.position
    }

    /// Checks that all families are there, with the lengths that the head states; their contents
    /// are not read.
    ///
    /// # Errors
    /// SR-7108 when one is missing; SR-7110 when one has another length; SR-5001, or SR-7141 to
    /// SR-7143 for an object store, when the store fails.
    pub fn check_families(&self) -> Result<()> {
        for (family, end) in (0_u16..).zip(&self.head.description.families) {
            let (_, length) = self.open_family(family)?;
            if length != end.length_bytes {
                let detail = format!("family {family}: {length} of {} bytes", end.length_bytes);
                return Err(Error::new(&code::FAMILY_SHORT, detail));
            }
        }
        Ok(())
    }

    /// Reads the stream with `consume`, which must read to its end, and compares the families and
    /// the counts with the head. Returns the counts. SR-7106 when the head names no families;
    /// SR-7108 to SR-7111 when one is missing or damaged; errors of `consume`.
    pub(crate) fn read(
        &self,
        threads: usize,
        consume: impl FnOnce(&mut StreamReader<'_, Opened>) -> Result<StreamEnd>,
    ) -> Result<StreamEnd> {
        self.check_families()?;
        let stated = &self.head.description.families;
        let families = u16::try_from(stated.len());
        let families = families.map_err(|_| Error::new(&code::SET_HEAD, "too many families"))?;
        if families == 0 {
            return Err(Error::new(&code::SET_HEAD, "no families"));
        }
        let mut origins = Vec::new();
        for (family, end) in (0..families).zip(stated) {
            origins.push(self.open_origin(family, families, end.bytes_digest.is_some())?);
        }
        let (end, ends) = pipeline::run(origins, threads, |opened| {
            consume(&mut StreamReader::new(opened).limited_to(&self.head.description))
        })?;
        compare(&ends, stated)?;
        let described = &self.head.description;
        if (end.members, end.files, end.size)
            != (
                described.members,
                described.files,
                described.backup_size_bytes,
            )
        {
            return Err(Error::new(&code::STREAM, "other counts than the head's"));
        }
        Ok(end)
    }

    /// Opens the file of one family, and returns its key with a reader of its segments. `family`
    /// counts from 0; `families` is their number in the set, which the file's header must state as
    /// well. With `digest_all` the reader computes a digest of all bytes, as a signed set needs;
    /// nothing is compared here.
    ///
    /// # Errors
    /// SR-7108 when it is missing; SR-7110 when it ends within its header; SR-7109 when the header
    /// is damaged or of another set, SR-3002 when a newer version wrote it; SR-5001 when the system
    /// reports an error.
    pub(crate) fn open_origin(
        &self,
        family: u16,
        families: u16,
        digest_all: bool,
    ) -> Result<Origin> {
        let (input, _) = self.open_family(family)?;
        let unkeyed = FamilyPrefix::read(input, family)?;
        let key = self.set_keys.family(&unkeyed.header, family, families)?;
        let reader = unkeyed.with_key(&key, digest_all);
        Ok(Origin { key, reader })
    }

    /// Opens the file of a family, and returns its length in bytes too. SR-7108 when it is missing.
    fn open_family(&self, family: u16) -> Result<(Box<dyn std::io::Read + Send>, u64)> {
        let name = family_name(&self.head.description.set_id, family);
        let shown = format!("{}/{name}", self.store.shown());
        self.store.open(&name).map_err(|error| {
            if error.kind() == std::io::ErrorKind::NotFound {
                Error::new(&code::FAMILY_ABSENT, shown)
            } else {
                Error::io(shown, error)
            }
        })
    }
}

/// Compares how the families ended with what the head states. SR-7110 for the first one that
/// differs.
fn compare(ends: &[FamilyEnd], stated: &[FamilyEnd]) -> Result<()> {
    let differs = ends
        .iter()
        .zip(stated)
        .position(|(end, stated)| end != stated);
    match differs {
        None => Ok(()),
        Some(family) => {
            let detail = format!("family {family}: not the one that the head names");
            Err(Error::new(&code::FAMILY_SHORT, detail))
        }
    }
}
