//! Replaces the key slots of a set or an archived file: only its object header is rewritten.
//!
//! Invariant: an object that was removed stays removed: removing and replacing exclude each other.
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

/// What is done with the other key slots of an object: those of other keys, and of certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// An object that has such slots is an error and stays unchanged: the slots cannot be made
    /// again without their keys.
    Refuse,
    /// The slots are removed.
    Drop,
    /// The slots stay, and so does that of the old key; the new ones are added.
    Keep,
}

/// Gives the set at `position` key slots for `new`, and for nobody else unless `others` says so.
///
/// # Errors
/// SR-7107; SR-7146 when another has replaced it meanwhile; SR-7132 when it has other recipients;
/// SR-2002 when `old` does not open it; SR-2019 without new keys, or for a set that is not sealed;
/// SR-3009.
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

/// Gives every file of the log archive key slots as [`rewrap_set`] does; returns how many there
/// are.
///
/// # Errors
/// As [`rewrap_set`], at the first file; those before it have the new slots, and running it again
/// with either key that is needed goes on.
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

/// `object`: its name, and its greatest length in bytes.
fn rewrap(
    store: &dyn Store,
    object: &(String, u64),
    old: &Opener,
    new: &[&Recipient],
    others: Others,
) -> Result<()> {
    let (name, most) = (object.0.as_str(), object.1);
    let shown = || format!("{}/{name}", store.shown());
    // What another removes meanwhile must not come back.
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
    // The seal is verified before the header is carried over to other keys.
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
