//! Export and import of a keyring's keys. An export is sealed for a key that is not in the keyring.
//!
//! It is a keyring file with provider number 0, and with an object id and a data key of its own.
//! Invariant K16: an import changes everything or nothing, and never replaces a key by another one.
//!
//! Must not: overwrite a file; write a key unsealed.

use std::io::ErrorKind;
use std::path::Path;

use strongroom_format::certificate::CertificateRecord;
use strongroom_format::code;
use strongroom_format::header::ObjectKind;
use strongroom_format::keyring::{Body, Entry, KeyState};

use crate::certificate_info::CertificateInfo;
use crate::durable::Pending;
use crate::entries::{KeyInfo, check_room, retire_entry, unwrap_entry, wrap_entry};
use crate::error::Error;
use crate::fresh::{Fresh, System};
use crate::keyring::{Effect, Keyring, NEW_KEYRING};
use crate::object::Object;
use crate::opener::Opener;
use crate::private_key::{merge_certificates, open_key, reseal_key};
use crate::provider::EXPORT;
use crate::store;

/// The result of an import.
#[derive(Clone, Debug, Default)]
pub struct ImportReport {
    /// Versions of keys that were not in the keyring before, with their state in it now.
    pub added: Vec<KeyInfo>,
    /// How many versions were in the keyring already, with the same key.
    pub unchanged: usize,
    /// Certificates that were not in the keyring before, or not with their private key.
    pub certificates: Vec<CertificateInfo>,
}

impl Keyring {
    /// Exports every key and certificate to a new file with mode 0600, sealed for `opener`'s
    /// recipient. The file is read back and opened before it gets its name; then the keyring notes
    /// the export and is written. When that fails, the file remains.
    ///
    /// # Errors
    /// SR-2044 when `opener` is a key or a certificate of a keyring: whoever lost the keyring could
    /// not open the export; SR-1002 when there is something at `path`; SR-2034 when it does not
    /// open when it is read back; as for every change SR-2016 when another process keeps the
    /// keyring's lock for 10 seconds, SR-2017 when it has another root key meanwhile, SR-2039 when
    /// this is an older copy of it, SR-5001 when the system reports an error.
    pub fn export(&mut self, path: &Path, opener: &Opener) -> Result<(), Error> {
        if matches!(opener.kind_name(), "keyring" | "certificate") {
            let detail = "the key that was given is in a keyring";
            return Err(Error::new(&code::EXPORT_KEY, detail));
        }
        let exists = || Error::new(&code::EXISTS, path.display().to_string());
        if path.symlink_metadata().is_ok() {
            return Err(exists());
        }
        self.change(Effect::Exported, |object, body| {
            // The same time in both, so that an import restores what is in the keyring.
            let now = System.now_unix_s();
            let bytes = export_bytes(object, body, opener, now)?;
            let failed = |error: std::io::Error| match error.kind() {
                ErrorKind::AlreadyExists => exists(),
                _ => Error::io(format!("creating {}", path.display()), error),
            };
            let pending = Pending::written(path, &bytes, store::MODE).map_err(failed)?;
            prove(&pending, opener).map_err(|error| error.recoded(&code::EXPORT_UNPROVED))?;
            pending.publish().map_err(failed)?;
            mark_exported(&mut body.certificates, now);
            Ok(())
        })
    }

    /// Adds the keys and certificates of an export, and writes the keyring. A version that the
    /// keyring has with the same key is unchanged. Of several versions of a key, all but the newest
    /// are retired.
    ///
    /// # Errors
    /// SR-1006 no such file; SR-3001, SR-3002, SR-3007 it is something else; SR-2002 `opener` does
    /// not open it; SR-2005 it is damaged; SR-2021 a key of the same name and version differs;
    /// SR-2025 a certificate of the same name is another public key's; SR-2024 the keyring is full;
    /// as for every change SR-2016 when another process keeps the keyring's lock for 10 seconds,
    /// SR-2017 when it has another root key meanwhile, SR-2039 when this is an older copy of it,
    /// SR-5001 when the system reports an error. The keyring is then as it was.
    pub fn import(&mut self, path: &Path, opener: &Opener) -> Result<ImportReport, Error> {
        let unproven = store::read(path).map_err(|error| match error.code().number {
            number if number == code::KEYRING_MISSING.number => {
                Error::new(&code::NOT_FOUND, path.display().to_string())
            }
            _ => error,
        })?;
        let (source, theirs) =
            unproven.authenticated(|bytes| Object::open(bytes, ObjectKind::Keyring, opener))?;
        // The imported keys are in an export already (see `Keyring::unexported`).
        self.change(Effect::SameKeys, |object, body| {
            let mut report = ImportReport::default();
            for entry in &theirs.entries {
                match body
                    .entries
                    .iter()
                    .find(|ours| is_same_version(ours, entry))
                {
                    Some(ours) => {
                        check_equal(object, ours, &source, entry)?;
                        report.unchanged = report.unchanged.saturating_add(1);
                    }
                    None => {
                        check_room(body)?;
                        let mut added = entry.clone();
                        wrap_entry(object, &mut added, &unwrap_entry(&source, entry)?)?;
                        report.added.push(KeyInfo::of(&added));
                        body.entries.push(added);
                    }
                }
            }
            report.certificates = merge_certificates(object, body, &source, &theirs.certificates)?;
            retire_superseded(object, body)?;
            update_states(&mut report, body);
            Ok(report)
        })
    }
}

/// Returns the bytes of an export: every key and certificate sealed under a new data key for
/// `opener`'s recipient, marked as exported at this time. Errors: SR-2019 for private keys as
/// `opener`; SR-2005 when a key does not unwrap; SR-5001 when the system reports an error.
fn export_bytes(
    object: &Object,
    body: &Body,
    opener: &Opener,
    now_unix_s: u64,
) -> Result<Vec<u8>, Error> {
    let target = Object::create(&NEW_KEYRING, &opener.recipient()?)?;
    let mut copy = body.clone();
    for entry in &mut copy.entries {
        let key = unwrap_entry(object, entry)?;
        wrap_entry(&target, entry, &key)?;
    }
    for record in &mut copy.certificates {
        reseal_key(object, &target, record)?;
    }
    mark_exported(&mut copy.certificates, now_unix_s);
    copy.provider = EXPORT;
    copy.provider_argument = String::new();
    copy.exported_generation = copy.generation;
    store::file_bytes(&target, &copy)
}

/// Reads an export back, and opens everything in it (K19). Errors: whatever does not open or cannot
/// be read, by its own code, such as SR-2005 or SR-2002.
fn prove(export: &Pending, opener: &Opener) -> Result<(), Error> {
    let unproven = store::read(export.path())?;
    let (source, body) =
        unproven.authenticated(|bytes| Object::open(bytes, ObjectKind::Keyring, opener))?;
    for entry in &body.entries {
        drop(unwrap_entry(&source, entry)?);
    }
    for record in &body.certificates {
        drop(open_key(&source, record)?);
    }
    Ok(())
}

/// Notes the time of an export, in seconds since the Unix epoch, in every certificate whose private
/// key is in the keyring.
fn mark_exported(records: &mut [CertificateRecord], now_unix_s: u64) {
    let held = records.iter_mut().filter(|record| record.key.is_some());
    held.for_each(|record| record.exported_unix_s = now_unix_s);
}

/// Whether both entries are the same version of the same key.
fn is_same_version(ours: &Entry, theirs: &Entry) -> bool {
    ours.name == theirs.name && ours.version == theirs.version
}

/// Checks that two entries of the same name and version have the same key. Errors: SR-2021 when
/// they differ; SR-2005 when one does not unwrap.
fn check_equal(
    object: &Object,
    ours: &Entry,
    source: &Object,
    theirs: &Entry,
) -> Result<(), Error> {
    if unwrap_entry(object, ours)?.ct_eq(&unwrap_entry(source, theirs)?) {
        return Ok(());
    }
    let detail = format!("{} version {}", ours.name, ours.version);
    Err(Error::new(&code::IMPORT_DIFFERS, detail))
}

/// Retires every active version that is not the newest of its key, as at a rotation. Errors:
/// SR-2005 when a key does not unwrap; SR-5001 when the system reports an error.
fn retire_superseded(object: &Object, body: &mut Body) -> Result<(), Error> {
    let mut newest = std::collections::BTreeMap::new();
    for entry in &body.entries {
        let known = newest.entry(entry.name.clone()).or_insert(entry.version);
        *known = entry.version.max(*known);
    }
    let superseded = |entry: &&mut Entry| {
        entry.state == KeyState::Active && newest.get(&entry.name) != Some(&entry.version)
    };
    body.entries
        .iter_mut()
        .filter(superseded)
        .try_for_each(|entry| retire_entry(object, entry))
}

/// Sets the states in the report to those in `body`, after versions were retired.
fn update_states(report: &mut ImportReport, body: &Body) {
    for added in &mut report.added {
        let same = |entry: &&Entry| entry.name == added.name && entry.version == added.version;
        if let Some(entry) = body.entries.iter().find(same) {
            added.state = entry.state;
        }
    }
}
