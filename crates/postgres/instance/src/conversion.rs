//! Instances that are sealed, opened and rekeyed in place, with their configuration.
//!
//! Invariants: the configuration is there before the first file is sealed, and gone again when
//! nothing was sealed. What the configuration names opens the header at every moment: another key
//! is first added to the old one, then named, and only then alone.
//!
//! Must not: leave an instance that its own configuration does not open, or that neither the old
//! nor the new key opens; convert anything itself, which strongroom-postgres-shield does.

use strongroom_crypto::SecretKey;
use strongroom_format::code;
use strongroom_format::header::Cipher;
use strongroom_format::postgres::CONFIG_FILE;
use strongroom_keyring::{Error, Opener};
use strongroom_postgres_shield::convert::{self, Action, Options, Report};
use strongroom_postgres_shield::instance::Instance;

use crate::chosen::{ChosenKey, GivenKey, configure};
use crate::contents::has_data_checksums;
use crate::directory::Directory;
use crate::facts::Facts;

/// An instance that was sealed.
pub struct SealedInstance {
    /// What was converted.
    pub report: Report,
    /// Its header.
    pub facts: Facts,
    /// Whether the server finds the key by itself.
    pub is_unattended: bool,
    opener: Opener,
}

impl SealedInstance {
    /// Reads the control file and returns whether pages have checksums.
    ///
    /// # Errors
    /// SR-7011 when the control file makes no sense; those of opening the instance; SR-5001 when
    /// the system reports an error.
    pub fn has_checksums(&self, directory: &Directory) -> Result<bool, Error> {
        let about = |error: Error| error.with_prefix(&format!("{}: ", directory.shown()));
        let instance = Instance::open(&directory.path, &[], &self.opener).map_err(about)?;
        has_data_checksums(directory, Some(&instance))
    }
}

/// Seals a stopped instance in place, or completes that: writes its configuration, then seals its
/// files. After a failure before anything was sealed, the configuration is removed again.
///
/// # Errors
/// SR-7012 when it is sealed, SR-7008 while a server runs on it; SR-2041 when nothing names a key;
/// those of the key and of [`convert::encrypt`].
pub fn encrypt(
    directory: &Directory,
    key: GivenKey,
    cipher: Cipher,
    options: &Options<'_>,
) -> Result<SealedInstance, Error> {
    let begun = convert::unfinished(&directory.path)? == Some(Action::Encrypt);
    if directory.is_sealed() && !begun {
        return Err(directory.failure(&code::PG_ALREADY_SEALED, "strongroom.header is there"));
    }
    directory.check_stopped()?;
    let chosen = if directory.is_sealed() {
        ChosenKey::required(key, directory)?
    } else {
        ChosenKey::for_new(key, directory)?
    };
    let configuration = chosen.configuration()?;
    let opener = chosen.opener()?;
    configure(&directory.path, &configuration)?;
    let done = convert::encrypt(&directory.path, cipher, &opener, options);
    if done.is_err() && !directory.is_sealed() {
        // Nothing was sealed. The failure is the one to report.
        drop(std::fs::remove_file(directory.path.join(CONFIG_FILE)));
    }
    Ok(SealedInstance {
        report: done?,
        facts: Facts::read(directory)?,
        is_unattended: chosen.is_unattended(),
        opener,
    })
}

/// Turns a stopped, sealed instance into a plain one in place, or completes that. Header and
/// configuration are removed at the end.
///
/// # Errors
/// SR-7004 when it is not sealed, SR-7008 while a server runs on it; SR-2001 when nothing names a
/// key; those of the key and of [`convert::decrypt`].
pub fn decrypt(
    directory: &Directory,
    key: GivenKey,
    options: &Options<'_>,
) -> Result<Report, Error> {
    let opener = if directory.is_sealed() {
        ChosenKey::required(key, directory)?.opener()?
    } else {
        if convert::unfinished(&directory.path)? != Some(Action::Decrypt) {
            directory.check_sealed()?;
        }
        // Only the state of the conversion is left: header and configuration are gone, and any key
        // will do.
        Opener::raw(SecretKey::generate()?)
    };
    convert::decrypt(&directory.path, &opener, options)
}

/// What a rotation gives an instance.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rotation {
    /// A new data key: every file is sealed anew.
    DataKey,
    /// New key slots only. No file is touched, and a server may run.
    SlotsOnly,
}

/// An instance that was rotated.
pub struct RotatedInstance {
    /// What was converted; `None` when only the slots were.
    pub report: Option<Report>,
    /// Its header.
    pub facts: Facts,
    /// Whether another key opens it now, which the server does not find by itself.
    pub needs_key_at_start: bool,
}

/// Gives an instance a new data key or new slots, and the key `new`, if there is one, in place of
/// the former one; then the configuration names it. Completes a rotation that was interrupted.
///
/// # Errors
/// SR-7008 while a server runs on it, unless only slots are changed; SR-2001 when nothing names the
/// present key; those of the keys, of [`convert::rewrap`] and of [`convert::rotate`].
pub fn rotate(
    directory: &Directory,
    key: GivenKey,
    new: GivenKey,
    what: Rotation,
    options: &Options<'_>,
) -> Result<RotatedInstance, Error> {
    if what == Rotation::DataKey {
        directory.check_stopped()?;
    }
    let old = ChosenKey::required(key, directory)?;
    let new = ChosenKey::for_rotation(new, directory)?;
    let configuration = new.as_ref().map(ChosenKey::configuration).transpose()?;
    let opener = old.opener()?;
    let under_way = convert::unfinished(&directory.path)?.is_some();
    let new_opener = new.as_ref().map(ChosenKey::opener).transpose()?;
    if let (Some(text), Some(new_opener), false) = (&configuration, &new_opener, under_way) {
        let (first, second) = (new_opener.recipient()?, opener.recipient()?);
        convert::rewrap(&directory.path, &opener, &[&first, &second])?;
        configure(&directory.path, text)?;
    }
    let report = match (what, &new_opener) {
        (Rotation::SlotsOnly, new) => {
            let one = new.as_ref().unwrap_or(&opener);
            convert::rewrap(&directory.path, one, &[&one.recipient()?])?;
            None
        }
        // The header knows the new key since it was rewrapped; an interrupted run may know the new
        // one only.
        (Rotation::DataKey, Some(new)) => {
            Some(convert::rotate(&directory.path, new, &[new], options)?)
        }
        (Rotation::DataKey, None) => Some(convert::rotate(&directory.path, &opener, &[], options)?),
    };
    let opened = new.as_ref().unwrap_or(&old).open(directory)?;
    Ok(RotatedInstance {
        report,
        facts: Facts::of(opened.header()),
        needs_key_at_start: new.as_ref().is_some_and(|new| !new.is_unattended()),
    })
}
