//! Converts a stopped instance in place: seals it, decrypts it, or changes its data key.
//!
//! Each file is written beside the old one, by the same code as in the server, recorded in
//! `strongroom.convert`, and renamed over the old one. docs/spec/postgres.md, "Conversion",
//! specifies bytes and order.
//!
//! Invariants:
//! - **V1** Nothing is written before everything that can be checked has been checked: no server, a
//!   clean shutdown, the usual geometry, the key, enough room, no file that cannot be converted.
//! - **V2** If the process is killed at any point, the same command completes the conversion.
//!   Whether a file was converted is determined by the inode at its path, never by its contents.
//! - **V3** A server without the shield starts on a wholly plain instance only: `global/pg_control`
//!   is sealed first and opened last. A server with it does not start while `strongroom.convert`
//!   exists.
//! - **V4** Keys and state are removed last: the header of a decrypted instance, and the old key of
//!   a rotated one, when every file has been converted and read back from the disk.
//!
//! Must not: know a byte layout of sealed files.

mod checks;
mod control;
mod lock;
mod log;
mod logical_file;
mod page_counts;
mod parallel;
mod plan;
mod report;
mod run;
mod verify;
mod worker;

use std::path::Path;

use strongroom_format::code;
use strongroom_format::header::{Cipher, ObjectKind};
use strongroom_format::postgres::HEADER_FILE;
pub use strongroom_format::postgres::convert::Action;
use strongroom_keyring::{Error, NewObject, Object, Opener, Recipient, durable};

use crate::instance::{self, Instance};
use crate::keys::Keys;
use lock::ConversionLock;
use log::Log;
use logical_file::Side;
use run::Conversion;

pub use plan::FileAction;
pub use report::{Options, Phase, Progress, Report};

/// Draws a data key for a new instance, such as one that a backup is restored to, whose files are
/// sealed as they are written. Returns its header, 4096 bytes with a slot for `recipient`, and its
/// keys. Writes nothing.
///
/// # Errors
/// SR-2012 when every version of the recipient's key is retired; SR-5001 when there is no memory,
/// or the system has no random bytes.
pub fn new_instance(cipher: Cipher, recipient: &Recipient) -> Result<(Vec<u8>, Instance), Error> {
    let object = Object::create(&NewObject::instance(cipher), recipient)?;
    let instance = Instance::of_keys(Keys::open(&object, object.epoch())?);
    Ok((object.initial_bytes().to_vec(), instance))
}

/// Says what becomes of the file at `relative`, a path in the data directory, in an instance whose
/// files are sealed as they are written. Reads no file.
///
/// # Errors
/// SR-7002 for a file that cannot be sealed.
pub fn file_action(relative: &[u8]) -> Result<FileAction, Error> {
    plan::file_action(relative)
}

/// Checks that the instance with this control file, in clear, can be sealed. It need not have been
/// shut down: backups of running servers are checked too.
///
/// # Errors
/// SR-7011 when it is not the control file of a supported version, or is damaged; SR-7010 for other
/// sizes of blocks and segments.
pub fn check_control(content: &[u8]) -> Result<(), Error> {
    parse_control(content)?.check_geometry()
}

/// Whether the instance with this control file, in clear, has data checksums.
///
/// # Errors
/// SR-7011 when it is not the control file of a supported version, or is damaged.
pub fn has_data_checksums(content: &[u8]) -> Result<bool, Error> {
    Ok(parse_control(content)?.has_data_checksums())
}

/// Parses a control file in clear. SR-7011 when it is not one of a supported version, or is
/// damaged.
fn parse_control(content: &[u8]) -> Result<control::Control, Error> {
    let unreadable = || {
        let detail = "global/pg_control: checksum or version";
        Error::new(&code::PG_NOT_INSTANCE, detail)
    };
    let control = content
        .get(..control::USED)
        .and_then(control::Control::parse);
    control.ok_or_else(unreadable)
}

/// Returns the conversion of this instance that was begun and not finished; `None` if there is
/// none.
///
/// # Errors
/// SR-7013 when its state is damaged; SR-5001 when the system reports an error.
pub fn unfinished(directory: &Path) -> Result<Option<Action>, Error> {
    Ok(Log::read(directory)?.map(|state| state.action))
}

/// Seals a plain instance in place under a new data key of its own, or completes that. The header's
/// slot is for `opener`. Removes temporary files. Afterwards reads every file back.
///
/// # Errors
/// SR-7003 when another conversion is unfinished; SR-7008 when a server runs; SR-7009 when it was
/// not shut down cleanly; SR-7010 for other sizes of blocks and segments; SR-7011 when it is no
/// instance of a supported version; SR-7012 when it is sealed already; SR-7014 without room;
/// SR-7002 for a file that cannot be sealed; SR-7013 when the state of an interrupted run is
/// damaged; SR-7001 when a file reads back differently; SR-2002 when `opener` does not open a
/// header that an interrupted run has made; SR-5001 when the system reports an error. After an
/// error from a file system the same call completes the conversion.
pub fn encrypt(
    directory: &Path,
    cipher: Cipher,
    opener: &Opener,
    options: &Options<'_>,
) -> Result<Report, Error> {
    let lock = ConversionLock::new(directory)?;
    let state = log::state_of_action(&lock, Action::Encrypt)?;
    let sealed = instance::is_sealed(lock.directory());
    if state.is_none() && sealed {
        let what = directory.display().to_string();
        return Err(Error::new(&code::PG_ALREADY_SEALED, what));
    }
    let object = if sealed {
        open_header(lock.directory(), &[opener])?
    } else if state.as_ref().is_some_and(|state| !state.done.is_empty()) {
        return Err(Error::new(&code::PG_CONVERT_STATE, "the header is gone"));
    } else {
        Object::create(&NewObject::instance(cipher), &opener.recipient()?)?
    };
    let target = Instance::of_keys(Keys::open(&object, object.epoch())?);
    let conversion = Conversion {
        lock: &lock,
        options,
        from: Side::Plain,
        to: Side::Sealed(&target),
    };
    let plan = conversion.plan(state.as_ref())?;
    let log = Log::open(
        &lock,
        Action::Encrypt,
        object.object_id(),
        state.as_ref(),
        sealed,
    )?;
    if !sealed {
        let path = lock.directory().join(HEADER_FILE);
        let (mode, owner) = (lock.owner().mode(), lock.owner().given());
        let written = durable::create_new_owned(&path, &object.initial_bytes(), mode, owner);
        written.map_err(|error| Error::io(path.display().to_string(), error))?;
    }
    let report = conversion.convert_control_first(plan, &log)?;
    log.remove()?;
    Ok(report)
}

/// Decrypts a sealed instance in place, or completes that. Its header and `strongroom.conf` are
/// removed at the end, after every file was read back.
///
/// # Errors
/// SR-7004 when it is not sealed; SR-2002, SR-2003 or SR-2032 when `opener` does not open the
/// header, SR-3001 to SR-3007 when that is damaged; SR-7003 when another conversion is unfinished;
/// SR-7008 when a server runs; SR-7009 to SR-7011, SR-7014 or SR-7002 when the instance cannot be
/// converted in its state; SR-7013 when the state of an interrupted run is damaged; SR-7001 or
/// SR-7029 when a file is damaged or reads back differently; SR-5001 when the system reports an
/// error.
pub fn decrypt(directory: &Path, opener: &Opener, options: &Options<'_>) -> Result<Report, Error> {
    let lock = ConversionLock::new(directory)?;
    let state = log::state_of_action(&lock, Action::Decrypt)?;
    if !instance::is_sealed(lock.directory()) {
        // The header is removed when everything has been converted; only the state remained.
        let Some(state) = state else {
            let what = directory.display().to_string();
            return Err(Error::new(&code::PG_NOT_SEALED, what));
        };
        if !log::is_converted(lock.directory(), &state, plan::CONTROL) {
            return Err(Error::new(&code::PG_CONVERT_STATE, "the header is gone"));
        }
        lock.remove_header()?;
        Log::reopen(&lock)?.remove()?;
        return Ok(Report {
            resumed: true,
            ..Report::default()
        });
    }
    let object = open_header(lock.directory(), &[opener])?;
    let source = Instance::of_keys(Keys::open(&object, object.epoch())?);
    let conversion = Conversion {
        lock: &lock,
        options,
        from: Side::Sealed(&source),
        to: Side::Plain,
    };
    let control_is_plain = state
        .as_ref()
        .is_some_and(|state| log::is_converted(lock.directory(), state, plan::CONTROL));
    let report = if control_is_plain {
        // Everything else was verified before. A server without the shield may have run since.
        Report {
            resumed: true,
            ..Report::default()
        }
    } else {
        let plan = conversion.plan(state.as_ref())?;
        let log = Log::open(
            &lock,
            Action::Decrypt,
            object.object_id(),
            state.as_ref(),
            true,
        )?;
        conversion.convert_control_last(plan, &log)?
    };
    lock.remove_header()?;
    Log::reopen(&lock)?.remove()?;
    Ok(report)
}

/// Gives a sealed instance a new data key and seals every file again in place, or completes that.
/// The new header has slots for `new_openers`, or, when there are none, the one slot it had. The
/// old key is removed at the end. A run that completes an interrupted one needs a key that opens
/// the new header: `opener` or any of `new_openers`.
///
/// # Errors
/// SR-7004 when it is not sealed; SR-2002, SR-2003 or SR-2032 when no key opens the header; SR-2019
/// when slots would be lost, SR-2012 for a retired key, SR-3009 when the slots do not fit; SR-7003
/// when another conversion is unfinished; SR-7008 when a server runs; SR-7009 to SR-7011, SR-7014
/// or SR-7002 when the instance cannot be converted in its state; SR-7013 when the state of an
/// interrupted run is damaged; SR-7001 or SR-7029 when a file is damaged or reads back differently;
/// SR-5001 when the system reports an error.
pub fn rotate(
    directory: &Path,
    opener: &Opener,
    new_openers: &[&Opener],
    options: &Options<'_>,
) -> Result<Report, Error> {
    let lock = ConversionLock::new(directory)?;
    let state = log::state_of_action(&lock, Action::Rotate)?;
    let openers: Vec<&Opener> = [opener]
        .into_iter()
        .chain(new_openers.iter().copied())
        .collect();
    let found = open_existing_header(&lock, state.is_some(), &openers)?;
    let begun = found.previous_epoch().is_some();
    let lines = state.as_ref().map_or(0, |state| state.done.len());
    match (state.is_some(), begun) {
        (false, true) => {
            let why = "a rotation is under way, but its state is gone";
            return Err(Error::new(&code::PG_CONVERT_STATE, why));
        }
        (true, false) if lines > 0 => {
            // The header was finished; only the state remained.
            Log::reopen(&lock)?.remove()?;
            return Ok(Report {
                resumed: true,
                ..Report::default()
            });
        }
        _ => {}
    }
    let object = if begun {
        found
    } else {
        let recipients = new_openers.iter().map(|opener| opener.recipient());
        let recipients = recipients.collect::<Result<Vec<Recipient>, Error>>()?;
        found.rekey_begun(&recipients.iter().collect::<Vec<_>>())?
    };
    let previous = object.previous_epoch();
    let previous = previous.ok_or_else(|| Error::new(&code::BUG, "a rotation without two keys"))?;
    let source = Instance::of_keys(Keys::open(&object, previous)?);
    let target = Instance::of_keys(Keys::open(&object, object.epoch())?);
    let conversion = Conversion {
        lock: &lock,
        options,
        from: Side::Sealed(&source),
        to: Side::Sealed(&target),
    };
    let plan = conversion.plan(state.as_ref())?;
    let log = Log::open(
        &lock,
        Action::Rotate,
        object.object_id(),
        state.as_ref(),
        true,
    )?;
    if !begun {
        replace_header(&lock, &object)?;
    }
    let report = conversion.convert_control_first(plan, &log)?;
    replace_header(&lock, &object.rekey_finished()?)?;
    log.remove()?;
    Ok(report)
}

/// Replaces the key slots in the instance's header, which `opener` opens, durably: from then on
/// `recipients` can open it. Its data key and its files do not change. The server may be running:
/// it has its keys.
///
/// # Errors
/// SR-7003 while a conversion is unfinished; SR-7004 when it is not sealed; SR-2002, SR-2003 or
/// SR-2032 when `opener` does not open the header; SR-2019 without recipients; SR-2012 for a
/// retired key; SR-3009 when the slots do not fit; SR-5001 when the system reports an error.
pub fn rewrap(directory: &Path, opener: &Opener, recipients: &[&Recipient]) -> Result<(), Error> {
    let lock = ConversionLock::while_server_may_run(directory)?;
    if let Some(state) = Log::read(lock.directory())? {
        return Err(Error::new(&code::PG_CONVERTING, state.action.name()));
    }
    let object = open_existing_header(&lock, false, &[opener])?;
    replace_header(&lock, &object.rewrapped(recipients)?)
}

/// Reads the header and opens it with the first of these keys that fits. If none does, the error is
/// the first key's (SR-2002); SR-2001 without keys.
fn open_header(directory: &Path, openers: &[&Opener]) -> Result<Object, Error> {
    let header = instance::header(directory)?;
    let mut failure = None;
    for opener in openers {
        match Object::open(&header, ObjectKind::Postgres, opener) {
            Ok(object) => return Ok(object),
            Err(error) if error.code() != &code::WRONG_KEY => return Err(error),
            Err(error) => {
                failure.get_or_insert(error);
            }
        }
    }
    Err(failure.unwrap_or_else(|| Error::new(&code::NO_KEY, "")))
}

/// Reads the header and opens it with the first key, or, when a conversion is resumed, with the
/// first of `openers` that fits: the conversion may have given the header other slots. SR-7004 when
/// there is no header, SR-2002 when no key fits.
fn open_existing_header(
    lock: &ConversionLock,
    resuming: bool,
    openers: &[&Opener],
) -> Result<Object, Error> {
    if !instance::is_sealed(lock.directory()) {
        let what = lock.directory().display().to_string();
        return Err(Error::new(&code::PG_NOT_SEALED, what));
    }
    let tried = if resuming { openers.len() } else { 1 };
    open_header(lock.directory(), openers.get(..tried).unwrap_or(openers))
}

/// Writes the header of `object` in place of the old one in one step, and durably. SR-5001 if that
/// fails.
fn replace_header(lock: &ConversionLock, object: &Object) -> Result<(), Error> {
    let path = lock.directory().join(HEADER_FILE);
    let (mode, owner) = (lock.owner().mode(), lock.owner().given());
    durable::replace_owned(&path, &object.initial_bytes(), mode, owner)
        .map_err(|error| Error::io(path.display().to_string(), error))
}
