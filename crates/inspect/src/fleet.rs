//! The description of an object for the fleet page, from the parts that are in clear.
//!
//! Nothing of it is authenticated: the page shows what nodes report.
//!
//! Must not: use a key.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use strongroom_backup::history::PastRuns;
use strongroom_format::code;
use strongroom_format::header::{HEADER_LEN, Header, HeaderError};
use strongroom_format::hex::from_hex;
use strongroom_format::slot::SlotKind;
use strongroom_keyring::{Error, Keyring, paths};
use strongroom_keys_client::{Report, object_name};
use strongroom_luks2::begins_as_luks;
use strongroom_volume::Volume;
use strongroom_volume::header::first_segment;

/// An object and what is reported of it.
pub struct FoundObject {
    /// Its identifier, as its header has it.
    pub object_id: [u8; 16],
    /// What is reported of it.
    pub report: Report,
}

/// What this host knows besides.
pub struct HostFacts {
    /// When versions of the keyring's keys were made.
    made: BTreeMap<(String, u32), u64>,
    past: Option<PastRuns>,
}

impl HostFacts {
    /// Returns the creation times of the keys in the keyring, read without its root key, and the
    /// catalogue's past runs. A keyring that cannot be read counts as one without keys.
    #[must_use]
    pub fn new(keyring: &Path, past: Option<PastRuns>) -> Self {
        let keys = Keyring::status(keyring).map(|status| status.keys);
        let made = keys.unwrap_or_default().into_iter();
        Self {
            made: made
                .map(|key| ((key.name, key.version), key.created_unix_s))
                .collect(),
            past,
        }
    }

    /// Returns when this version of the key was made, in seconds since the Unix epoch; `None` if it
    /// is not known.
    fn key_created(&self, key: &str, version: u32) -> Option<u64> {
        self.made.get(&(key.to_owned(), version)).copied()
    }
}

/// Reads what the object at `named` is, without a key, and returns its id and what is reported of
/// it: a database, an instance, a volume or a backup medium. `verified`: it was just found
/// authentic, which is reported with the present time.
///
/// # Errors
/// SR-1006 when nothing is there; SR-1001 for an object that the fleet page does not show; SR-3001
/// to SR-3003 for a header that cannot be used; SR-8323 for a volume without a token; the errors of
/// a backup medium; SR-5001 when the system reports an error.
pub fn describe_object(
    named: &Path,
    known: &HostFacts,
    verified: bool,
) -> Result<FoundObject, Error> {
    let path = std::fs::canonicalize(named).map_err(|error| Error::opening(named, error))?;
    let names = names(named, &path);
    let header = paths::header_of(path.clone());
    let mut found = if header != path {
        inspect_sealed(&path, &header, &names, known)?
    } else if path.is_dir() {
        medium(&path, &names, known)?
    } else if begins_as_luks(&path).map_err(|error| Error::opening(&path, error))? {
        volume(&path, known)?
    } else {
        inspect_sealed(&path, &path, &names, known)?
    };
    if verified {
        found.report.verified = Some(now());
    }
    Ok(found)
}

/// Returns the names under which the catalogue may know the path: as it was typed, absolute, and
/// with links resolved.
fn names(named: &Path, path: &Path) -> Vec<String> {
    let absolute = std::path::absolute(named).unwrap_or_default();
    let all = [named, &absolute, path].into_iter();
    all.map(|name| name.to_string_lossy().into_owned())
        .collect()
}

/// Returns the present time in seconds since the Unix epoch.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |passed| passed.as_secs())
}

/// Describes a database or an instance at `path` by the object header in the file `at`. `names` are
/// those that the catalogue may have for it. SR-3001, SR-3002 or SR-3003 for the header, SR-1001
/// for another kind of object, SR-1006 or SR-1007 if there is no such file; SR-5001 when the system
/// reports an error.
fn inspect_sealed(
    path: &Path,
    at: &Path,
    names: &[String],
    known: &HostFacts,
) -> Result<FoundObject, Error> {
    let shown = || path.display().to_string();
    let (file, _) = paths::open_to_read(at)?;
    let mut start = Vec::new();
    let read = file.take(HEADER_LEN as u64).read_to_end(&mut start);
    read.map_err(|error| Error::on_path(at, error))?;
    let header = Header::parse(&start).map_err(|error| match error {
        HeaderError::NotSealed => Error::new(&code::NOT_SEALED, shown()),
        HeaderError::Newer(_) => Error::new(&code::NEWER_FORMAT, shown()),
        _ => Error::new(&code::HEADER_DAMAGED, shown()),
    })?;
    let kind = match header.kind.name() {
        "sqlite" => "sqlite",
        "postgres" => "instance",
        other => {
            let detail = format!("{}: a {other} is not shown on the fleet page", shown());
            return Err(Error::new(&code::USAGE, detail));
        }
    };
    let (key_id, key_version) = key_of(&header);
    let made = known.key_created(&key_id, key_version);
    let backed_up = known.past.as_ref().and_then(|past| match kind {
        "sqlite" => past.backed_up(names),
        _ => past.server_backed_up(),
    });
    let report = Report {
        kind: kind.to_owned(),
        name: object_name(path),
        cipher: header.cipher.name().to_owned(),
        key_id,
        key_version: key_version.into(),
        created: header.created_unix_s,
        // It has been sealed anew at some time after this version of its key was made.
        rotated: made.filter(|made| *made > header.created_unix_s),
        backed_up,
        ..Report::default()
    };
    Ok(FoundObject {
        object_id: header.object_id,
        report,
    })
}

/// Returns name and version of the keyring's key in the header's slots, the highest version if
/// there are several; an empty name and 0 if no such key opens it.
fn key_of(header: &Header) -> (String, u32) {
    let keys = header.slots.iter().filter_map(|slot| match &slot.kind {
        SlotKind::Keyring { id, version } => Some((id.clone(), *version)),
        _ => None,
    });
    keys.max_by_key(|(_, version)| *version).unwrap_or_default()
}

/// Describes a volume by its header and token. Without the time of its key its creation time is 0.
/// SR-8323 if it has no usable token; the errors of reading it.
fn volume(path: &Path, known: &HostFacts) -> Result<FoundObject, Error> {
    let mut volume = Volume::open(path)?;
    let token = volume.token()?;
    let metadata = volume.metadata()?;
    let cipher = first_segment(&metadata)?.cipher().unwrap_or_default();
    let cipher = cipher.to_owned();
    // The disk does not say when it was made: the server knows from the report that came with its
    // making.
    let made = known.key_created(&token.key_id, token.key_version);
    let report = Report {
        kind: "volume".to_owned(),
        name: object_name(path),
        cipher,
        key_id: token.key_id,
        key_version: token.key_version.into(),
        created: made.unwrap_or_default(),
        ..Report::default()
    };
    Ok(FoundObject {
        object_id: token.object_id,
        report,
    })
}

/// Describes a backup medium by its head, its newest set and, for the last verification, the
/// catalogue. SR-7101 if it is no medium, SR-3003 if its head is damaged; SR-5001 when the system
/// reports an error.
fn medium(path: &Path, names: &[String], known: &HostFacts) -> Result<FoundObject, Error> {
    let store = strongroom_backup::LocalStore::new(path);
    let listing = strongroom_backup::list(&store)?;
    let unreadable = || Error::new(&code::HEADER_DAMAGED, path.display().to_string());
    let head = listing.head.ok_or_else(unreadable)?;
    let id = from_hex(&head.medium_id).and_then(|id| <[u8; 16]>::try_from(id).ok());
    let sets = || listing.sets.iter().map(|set| &set.description);
    let newest = sets().max_by_key(|set| set.finished_unix_s);
    let (key_id, key_version) = listing
        .sets
        .last()
        .and_then(|set| set.header.as_ref())
        .map(key_of)
        .unwrap_or_default();
    let verified = known.past.as_ref().and_then(|past| past.verified(names));
    let report = Report {
        kind: "backup".to_owned(),
        name: object_name(path),
        cipher: newest.map_or_else(String::new, |set| set.key_algorithm.clone()),
        key_id,
        key_version: key_version.into(),
        created: head.created_unix_s,
        backed_up: newest.map(|set| set.finished_unix_s),
        verified,
        ..Report::default()
    };
    Ok(FoundObject {
        object_id: id.ok_or_else(unreadable)?,
        report,
    })
}
