//! Makes a set: what is allowed on this medium, then families, then the head.
//!
//! Invariants: B9 (`medium`); the rules of a medium are checked before anything is read or written.
//!
//! Must not: remove a set before its successor is durable.

use std::time::{SystemTime, UNIX_EPOCH};

use strongroom_crypto::SigningKey;
use strongroom_format::{code, hex};
use strongroom_keyring::Opener;

use crate::berth::{self, Began, Berth, Found, Sealing};
use crate::chain;
use crate::family::FamilyWriter;
use crate::head::{Description, FamilyEnd, Kind};
use crate::medium::{self, HEAD, MediumHead, Protection, Superseded, family_name};
use crate::pipeline::write::{self, Settings, Target};
use crate::set::{Cipher, Guard};
use crate::signature::signature_name;
use crate::source::Source;
use crate::store::{Store, Version};
use crate::stream::writer::StreamWriter;
use crate::{Error, Result};

/// What becomes of the sets that the medium has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They stay.
    #[default]
    Append,
    /// They are removed once the new one is whole; the medium's protection and stripes stay.
    Init,
    /// As `Init`, and the medium is begun anew.
    Format,
}

/// How pieces are made smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// zstd at this level.
    Zstd(i32),
}

impl Default for Compression {
    fn default() -> Self {
        Self::Zstd(3)
    }
}

impl Compression {
    /// `none`, `zstd` or `zstd:LEVEL`, level 1 to 19.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name.split_once(':') {
            None if name == "none" => Some(Self::None),
            None if name == "zstd" => Some(Self::default()),
            Some(("zstd", level)) => {
                let level: i32 = level.parse().ok()?;
                (1..=19).contains(&level).then_some(Self::Zstd(level))
            }
            _ => None,
        }
    }

    fn described(self) -> String {
        match self {
            Self::None => String::from("none"),
            Self::Zstd(level) => format!("zstd:{level}"),
        }
    }

    pub(crate) fn level(self) -> Option<i32> {
        match self {
            Self::None => None,
            Self::Zstd(level) => Some(level),
        }
    }
}

/// How a set is made.
pub struct CreateOptions<'a> {
    /// Who may open it. Empty: it is not sealed.
    pub openers: Vec<&'a Opener>,
    /// What it is sealed with.
    pub cipher: Cipher,
    /// How it is made smaller.
    pub compression: Compression,
    /// What becomes of older sets.
    pub mode: Mode,
    /// Families; `None`: what the medium has, one on a new one.
    pub stripes: Option<u16>,
    /// Threads that compress and seal, at least 1.
    pub threads: usize,
    /// The set's name, may be empty.
    pub name: String,
    /// The host's name.
    pub machine_name: String,
    /// The user's name.
    pub user_name: String,
    /// The set is not to be overwritten before; seconds since the Unix epoch.
    pub expires_unix_s: Option<u64>,
    /// Overwrite sets that have not expired.
    pub skip_expiry: bool,
    /// Who signs the set; `None`: it is not signed. Archived files never are.
    pub sign_key: Option<&'a SigningKey>,
}

/// A set that was made.
#[derive(Debug)]
pub struct Created {
    /// Where on the medium.
    pub position: u32,
    /// What its head says.
    pub description: Description,
    /// What the source left out.
    pub left_out: Vec<String>,
    /// Why something that the set takes the place of could not be removed, if so. The set is whole all the same.
    pub not_cleared: Option<Error>,
}

/// Backs `source` up to `store`. `progress` gets the bytes of files so far.
///
/// # Errors
/// SR-7103 to SR-7105, SR-7117, SR-7123 before anything is done; SR-7131; of the source; SR-5001. The medium is then as it was, but for orphans.
pub fn create(
    store: &dyn Store,
    source: &mut dyn Source,
    options: &CreateOptions<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<Created> {
    let made = create_on(&[store], source, options, progress)?;
    let only = made.into_iter().next();
    only.ok_or_else(|| Error::new(&code::BUG, "no medium"))
}

/// Backs `source` up to the first of `stores`, and the same set to the others, its mirrors. Tells of each in order.
///
/// # Errors
/// As [`create`]; SR-7145 when some mediums have the set and others have not.
pub fn create_on(
    stores: &[&dyn Store],
    source: &mut dyn Source,
    options: &CreateOptions<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<Created>> {
    let started_unix_s = now();
    let mut found = Vec::new();
    for store in stores {
        found.push(Found::new(*store, options, started_unix_s)?);
    }
    let stripes = berth::wanted_stripes(&found, options)?;
    berth::all_different(&found)?;
    source.prepare()?;
    let mut berths = Vec::new();
    for found in found {
        berths.push(found.taken(options, stripes, started_unix_s)?);
    }
    let stripes = berth::agreed(&berths)?;
    let began = Began::now();
    let guard = if options.openers.is_empty() {
        Guard::plain()?
    } else {
        Guard::sealed(options.cipher, &options.openers)?
    };
    let written = write_families(&berths, &guard, stripes, options, source, progress);
    let (end, left_out, families) = match written {
        Ok(written) => written,
        Err(error) => {
            for berth in &berths {
                remove_families(berth.store, &guard, stripes);
            }
            return Err(error);
        }
    };
    let mut description = description(&guard, options, "", started_unix_s);
    description.kind = source.kind();
    description.source = source.shown();
    description.members = end.members;
    description.files = end.files;
    description.backup_size_bytes = end.size;
    description.compressed_size_bytes = families.iter().map(|end| end.length_bytes).sum();
    description.families = families;
    source.describe(&mut description);
    let sealing = Sealing {
        guard: &guard,
        options,
        source,
        began: &began,
    };
    let mut made = berth::published(berths, &sealing, &description)?;
    for created in &mut made {
        created.left_out.clone_from(&left_out);
    }
    Ok(made)
}

/// The lock that no other writer has: a medium is begun anew only when nobody adds to it.
pub(crate) fn taken_alone(store: &dyn Store) -> Result<Box<dyn Send>> {
    let taken = store.at_work(true);
    let taken = taken.map_err(|error| Error::io(store.shown(), error))?;
    taken.ok_or_else(|| Error::new(&code::MEDIUM_CHANGED, store.shown()))
}

/// A set that was made under another medium's id would be none of this medium.
pub(crate) fn unchanged(store: &dyn Store, medium_id: &str) -> Result<()> {
    match MediumHead::read(store)? {
        Some(head) if head.medium_id == medium_id => Ok(()),
        _ => Err(Error::new(&code::MEDIUM_CHANGED, store.shown())),
    }
}

/// What is known of a set before its stream is.
pub(crate) fn description(
    guard: &Guard,
    options: &CreateOptions<'_>,
    medium_id: &str,
    started_unix_s: u64,
) -> Description {
    Description {
        set_id: hex::hex(&guard.set_id()),
        medium_id: medium_id.to_owned(),
        name: options.name.clone(),
        kind: Kind::Files,
        source: String::new(),
        machine_name: options.machine_name.clone(),
        user_name: options.user_name.clone(),
        software: format!("strongroom {}", env!("CARGO_PKG_VERSION")),
        started_unix_s,
        finished_unix_s: now(),
        expires_unix_s: options.expires_unix_s,
        compression: options.compression.described(),
        key_algorithm: guard.algorithm().to_owned(),
        members: 0,
        files: 0,
        backup_size_bytes: 0,
        compressed_size_bytes: 0,
        families: Vec::new(),
        postgres: None,
        sqlite: None,
        content_digest: None,
        set_position: None,
    }
}

/// The medium that an archive is on. Its rules are those of sets. It is never made here: a server archives for as long as it
/// runs, also while its medium is not mounted, and what it then archived beside the medium would be out of reach later.
pub(crate) fn medium_for_archive(
    store: &dyn Store,
    options: &CreateOptions<'_>,
) -> Result<MediumHead> {
    let present = MediumHead::read(store)?;
    let present = present.ok_or_else(|| Error::new(&code::MEDIUM_ABSENT, store.shown()))?;
    allowed(store, Some(&present), options, now())?;
    Ok(present)
}

/// Seconds since the Unix epoch.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// The head of the medium that is there. `None` when the place is absent or empty.
pub(crate) fn present_head(store: &dyn Store) -> Result<Option<(MediumHead, Version)>> {
    if let Some(head) = MediumHead::read_version(store)? {
        return Ok(Some(head));
    }
    let failed = |error| Error::io(store.shown(), error);
    if store.is_empty().map_err(failed)? {
        return Ok(None);
    }
    // Another writer may have made the medium since.
    match MediumHead::read_version(store)? {
        Some(head) => Ok(Some(head)),
        None => Err(Error::new(&code::MEDIUM_FOREIGN, store.shown())),
    }
}

/// Whether the options may be used on this medium. Returns the sets that the new one takes the place of.
pub(crate) fn allowed(
    store: &dyn Store,
    present: Option<&MediumHead>,
    options: &CreateOptions<'_>,
    now_unix_s: u64,
) -> Result<Vec<Superseded>> {
    let Some(head) = present else {
        return Ok(Vec::new());
    };
    let begun_anew = options.mode == Mode::Format;
    let mixed = match (protection(options), head.protection) {
        (Protection::Plain, Protection::Sealed) => Some(&code::MEDIUM_SEALED),
        (Protection::Sealed, Protection::Plain) => Some(&code::MEDIUM_PLAIN),
        _ => None,
    };
    if let Some(code) = mixed {
        let log = store.list("wal");
        let log = log.map_err(|error| Error::io(store.shown(), error))?;
        if !begun_anew {
            return Err(Error::new(code, store.shown()));
        }
        // What is archived stays, and must not be of the other protection.
        if !log.is_empty() {
            let detail = format!("{}: it has a log archive", store.shown());
            return Err(Error::new(code, detail));
        }
    }
    if !begun_anew && let Some(stripes) = options.stripes.filter(|stripes| *stripes != head.stripes)
    {
        let detail = format!("{} instead of {stripes}", head.stripes);
        return Err(Error::new(&code::STRIPES, detail));
    }
    if options.mode == Mode::Append {
        return Ok(Vec::new());
    }
    superseded(store, head, options, now_unix_s)
}

/// The sets that the new one takes the place of. Those of another medium stay, unless this one is begun anew.
fn superseded(
    store: &dyn Store,
    head: &MediumHead,
    options: &CreateOptions<'_>,
    now_unix_s: u64,
) -> Result<Vec<Superseded>> {
    let mut superseded = Vec::new();
    for position in medium::positions(store)? {
        let described = match medium::read_head(store, position) {
            Ok(head) => Some(head.description),
            Err(error) if error.code() == &code::SET_ABSENT => continue,
            // Whether a set whose head is damaged has expired cannot be told; it cannot be restored either.
            Err(error) if is_damage(&error) || options.skip_expiry => None,
            Err(error) => return Err(error),
        };
        let foreign = described
            .as_ref()
            .is_some_and(|described| medium::is_foreign(Some(head), described));
        if foreign && options.mode != Mode::Format {
            continue;
        }
        let expires = described
            .as_ref()
            .and_then(|described| described.expires_unix_s);
        if !options.skip_expiry && expires.is_some_and(|expires| expires > now_unix_s) {
            return Err(Error::new(&code::UNEXPIRED, format!("set {position}")));
        }
        superseded.push(Superseded {
            position,
            set_id: described.map(|described| described.set_id),
        });
    }
    Ok(superseded)
}

/// A head that cannot be read now, or by this version, may be one that has not expired.
fn is_damage(error: &Error) -> bool {
    [&code::SET_HEAD, &code::HEADER_DAMAGED].contains(&error.code())
}

fn protection(options: &CreateOptions<'_>) -> Protection {
    if options.openers.is_empty() {
        Protection::Plain
    } else {
        Protection::Sealed
    }
}

/// The head that the set is made under. Of a new medium it is written here; of one that is begun anew later.
pub(crate) fn medium_head(
    store: &dyn Store,
    present: Option<MediumHead>,
    options: &CreateOptions<'_>,
    stripes: u16,
    now_unix_s: u64,
) -> Result<MediumHead> {
    let failed = |error| Error::io(store.shown(), error);
    let fresh = || MediumHead::new(protection(options), stripes, now_unix_s);
    match present {
        Some(head) if options.mode != Mode::Format => Ok(head),
        Some(_) => fresh(),
        None => {
            let head = fresh()?;
            store.prepare().map_err(failed)?;
            if store.create_new(HEAD, &head.to_bytes()?).map_err(failed)? {
                return Ok(head);
            }
            // Another writer was faster: its rules hold.
            let theirs = MediumHead::read(store)?;
            let theirs = theirs.ok_or_else(|| Error::new(&code::MEDIUM_DAMAGED, store.shown()))?;
            allowed(store, Some(&theirs), options, now_unix_s)?;
            Ok(theirs)
        }
    }
}

type Written = (
    strongroom_format::backup::StreamEnd,
    Vec<String>,
    Vec<FamilyEnd>,
);

fn write_families(
    berths: &[Berth<'_>],
    guard: &Guard,
    stripes: u16,
    options: &CreateOptions<'_>,
    source: &mut dyn Source,
    progress: &mut dyn FnMut(u64),
) -> Result<Written> {
    let set_id = hex::hex(&guard.set_id());
    let mut targets = Vec::new();
    for family in 0..stripes {
        let key = guard.new_family(family, stripes)?;
        let name = family_name(&set_id, family);
        let mut outs = Vec::new();
        for berth in berths {
            let shown = format!("{}/{name}", berth.store.shown());
            let upload = berth.store.begin(&name);
            let upload = upload.map_err(|error| Error::io(shown.as_str(), error))?;
            outs.push((shown, upload));
        }
        let writer = FamilyWriter::begin(outs, &key, options.sign_key.is_some())?;
        targets.push(Target { key, writer });
    }
    let settings = Settings {
        threads: options.threads,
        level: options.compression.level(),
    };
    let ((end, left_out), families) = write::run(targets, settings, |pieces| {
        let mut stream = StreamWriter::new(pieces, progress, source.kind());
        source.write(&mut stream)?;
        stream.finish()
    })?;
    Ok((end, left_out, families))
}

/// After a failure. Whatever cannot be removed is an orphan, which the next writer removes.
pub(crate) fn remove_families(store: &dyn Store, guard: &Guard, stripes: u16) {
    let set_id = hex::hex(&guard.set_id());
    for family in 0..stripes {
        drop(store.remove(&family_name(&set_id, family)));
    }
    drop(store.remove(&chain::manifest_name(&set_id)));
    drop(store.remove(&signature_name(&set_id)));
}
