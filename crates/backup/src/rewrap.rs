//! Replaces the key slots of a set or an archived file: only its object header is rewritten.
//!
//! Invariant: an object that was removed does not come back: removing and replacing exclude each
//! other.
//!
//! Must not: change a family, or leave an object that neither the old nor the new keys open.

use strongroom_format::code;
use strongroom_keyring::{Opener, Recipient};

use crate::head::UnopenedHead;
use crate::log_names::object_name;
use crate::set::SetKeys;
use crate::set_heads::{SET_HEAD_MAX, head_name};
use crate::store::Store;
use crate::wal::OBJECT_MAX;
use crate::{Error, Result};

/// What is done with an object's key slots for other keys and certificates than the given one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// An object that has such slots is an error and stays unchanged: the slots cannot be made
    /// again without their keys.
    Refuse,
    /// The slots are removed.
    Drop,
    /// All slots stay, also that of the old key, and the new ones are added.
    Keep,
}

/// Gives the set at `position` key slots for `new`. Other slots are treated as `others` says. Only
/// the set's head is written.
///
/// # Errors
/// SR-7107 when there is no such set; SR-7146 when another writer has changed it meanwhile; SR-7132
/// when it has other slots and `others` refuses; SR-2002 when `old` does not open it; SR-7126 when
/// it is not sealed; SR-2019 without new keys; SR-3009 when there are too many slots.
pub fn rewrap_set(
    store: &dyn Store,
    position: u32,
    old: &Opener,
    new: &[&Recipient],
    others: Others,
) -> Result<()> {
    let object = (head_name(position), SET_HEAD_MAX);
    rewrap(store, &object, old, new, others)
}

/// Gives every file of the log archive key slots as [`rewrap_set`] does; returns how many were
/// changed. An error of one file goes to `each`, which decides whether the others follow.
///
/// # Errors
/// SR-5001 when the system reports an error; what `each` returns. The files before it have the new
/// slots then.
pub fn rewrap_archive(
    store: &dyn Store,
    old: &Opener,
    new: &[&Recipient],
    others: Others,
    each: &mut dyn FnMut(&str, Error) -> Result<()>,
) -> Result<u64> {
    let listed = store.list("wal");
    let listed = listed.map_err(|error| Error::io(store.shown(), error))?;
    let mut done = 0_u64;
    for (name, _) in listed {
        let object = (object_name(&name), OBJECT_MAX);
        match rewrap(store, &object, old, new, others) {
            Ok(()) => done = done.saturating_add(1),
            Err(error) => each(&name, error)?,
        }
    }
    Ok(done)
}

/// Replaces the key slots of one object, under the lock of its directory. `object`: its name, and
/// its greatest length in bytes. SR-7107 when it does not exist or was removed meanwhile; SR-7146
/// when another writer changed it; SR-7132 when it has other slots and `others` refuses; SR-2002
/// for a wrong key; SR-7126 when it is not sealed; SR-2019 without new keys; SR-3009 when there are
/// too many slots.
fn rewrap(
    store: &dyn Store,
    object: &(String, u64),
    old: &Opener,
    new: &[&Recipient],
    others: Others,
) -> Result<()> {
    let (name, most) = (object.0.as_str(), object.1);
    let shown = || format!("{}/{name}", store.shown());
    // An object that another writer removes meanwhile must not come back.
    let directory = name.split_once('/').map_or("", |(directory, _)| directory);
    let changing = store.lock_changes(directory);
    let _changing = changing.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::new(&code::SET_ABSENT, shown()),
        _ => Error::io(shown(), error),
    })?;
    let read = store.read_version(name, most);
    let read = read.map_err(|error| Error::io(shown(), error))?;
    let (bytes, seen) = read.ok_or_else(|| Error::new(&code::SET_ABSENT, shown()))?;
    let head = UnopenedHead::parse(bytes)?;
    // The seal is verified before other keys are given access.
    let SetKeys::Sealed { object, .. } = head.open(Some(old))? else {
        return Err(Error::new(&code::KEY_OPTION, "the set is not sealed"));
    };
    let slots = object.header().slots.len();
    if others == Others::Refuse && slots > 1 {
        let detail = format!("{}: {slots} keys and certificates", shown());
        return Err(Error::new(&code::OTHER_RECIPIENTS, detail));
    }
    let rewrapped = match others {
        Others::Keep => object.extended(new)?,
        Others::Refuse | Others::Drop => object.rewrapped(new)?,
    };
    let mut out = rewrapped.initial_bytes();
    out.extend_from_slice(head.after_header());
    let replaced = store.replace(name, &out, &seen);
    if replaced.map_err(|error| Error::io(shown(), error))? {
        return Ok(());
    }
    let left = store.read(name, most);
    match left.map_err(|error| Error::io(shown(), error))? {
        None => Err(Error::new(&code::SET_ABSENT, shown())),
        Some(_) => Err(Error::new(&code::OBJECT_CHANGED, shown())),
    }
}
