//! Export and import: a keyring's keys in a file of their own, sealed for a key that does not depend on the keyring.
//!
//! An export is a keyring file with provider number 0 and an object id and data key of its own.
//! Invariant K16: an import changes everything or nothing, and never replaces a key by another one.
//!
//! Must not: overwrite a file; write a key unsealed.

use std::io::ErrorKind;
use std::path::Path;

use strongroom_format::code;
use strongroom_format::header::ObjectKind;
use strongroom_format::keyring::{Body, Entry, KeyState};

use crate::durable;
use crate::error::Error;
use crate::keyring::{
    Effect, KeyInfo, Keyring, NEW_KEYRING, check_room, retire, seal_into, unsealed,
};
use crate::object::Object;
use crate::opener::Opener;
use crate::provider::EXPORT;
use crate::store;

/// What an import did.
#[derive(Clone, Debug, Default)]
pub struct ImportReport {
    /// Versions of keys that were not in the keyring before, with the state they have in it now.
    pub added: Vec<KeyInfo>,
    /// How many versions were there already, with the same key.
    pub unchanged: usize,
}

impl Keyring {
    /// Writes every key to a new file, mode 0600, sealed for `opener`, and notes that it was done.
    ///
    /// # Errors
    /// SR-2019 when `opener` is a key of a keyring: whoever lost the keyring could not open the export; SR-1002 when
    /// there is something at `path`; as for every change SR-2016, SR-2017, SR-5001.
    pub fn export(&mut self, path: &Path, opener: &Opener) -> Result<(), Error> {
        if opener.kind_name() == "keyring" {
            let detail = "an export cannot be sealed with a key of a keyring";
            return Err(Error::new(&code::KEY_OPTION, detail));
        }
        let exists = || Error::new(&code::EXISTS, path.display().to_string());
        if path.symlink_metadata().is_ok() {
            return Err(exists());
        }
        self.change(Effect::Exported, |object, body| {
            let bytes = exported(object, body, opener)?;
            durable::create_new(path, &bytes, store::MODE).map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists => exists(),
                _ => Error::io(format!("creating {}", path.display()), error),
            })
        })
    }

    /// Adds the keys of an export. A version that is there with the same key stays as it is; where several versions
    /// of a key come together, all but the newest are retired.
    ///
    /// # Errors
    /// SR-1006 no such file; SR-2002 `opener` does not open it; SR-2005 it is damaged; SR-2021 a key of the same name
    /// and version differs; as for every change SR-2016, SR-2017, SR-5001. The keyring is then as it was.
    pub fn import(&mut self, path: &Path, opener: &Opener) -> Result<ImportReport, Error> {
        let unproven = store::read(path).map_err(|error| match error.code().number {
            number if number == code::KEYRING_MISSING.number => {
                Error::new(&code::NOT_FOUND, path.display().to_string())
            }
            _ => error,
        })?;
        let (source, theirs) =
            unproven.proven(|bytes| Object::open(bytes, ObjectKind::Keyring, opener))?;
        // What came out of an export is in an export: no new warning (see `Keyring::unexported`).
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
                        seal_into(object, &mut added, &unsealed(&source, entry)?)?;
                        report.added.push(KeyInfo::of(&added));
                        body.entries.push(added);
                    }
                }
            }
            retire_superseded(object, body)?;
            tell_states(&mut report, body);
            Ok(report)
        })
    }
}

fn exported(object: &Object, body: &Body, opener: &Opener) -> Result<Vec<u8>, Error> {
    let target = Object::create(&NEW_KEYRING, opener)?;
    let mut copy = body.clone();
    for entry in &mut copy.entries {
        let key = unsealed(object, entry)?;
        seal_into(&target, entry, &key)?;
    }
    copy.provider = EXPORT;
    copy.provider_argument = String::new();
    copy.exported_generation = copy.generation;
    store::file_bytes(&target, &copy)
}

fn is_same_version(ours: &Entry, theirs: &Entry) -> bool {
    ours.name == theirs.name && ours.version == theirs.version
}

fn check_equal(
    object: &Object,
    ours: &Entry,
    source: &Object,
    theirs: &Entry,
) -> Result<(), Error> {
    if unsealed(object, ours)?.ct_eq(&unsealed(source, theirs)?) {
        return Ok(());
    }
    let detail = format!("{} version {}", ours.name, ours.version);
    Err(Error::new(&code::KEY_IN_USE, detail))
}

/// Restores K13 after versions of two keyrings came together.
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
        .try_for_each(|entry| retire(object, entry))
}

fn tell_states(report: &mut ImportReport, body: &Body) {
    for added in &mut report.added {
        let same = |entry: &&Entry| entry.name == added.name && entry.version == added.version;
        if let Some(entry) = body.entries.iter().find(same) {
            added.state = entry.state;
        }
    }
}
