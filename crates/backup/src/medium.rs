//! A medium: lists its sets, publishes heads, and removes sets and orphans.
//!
//! Invariants: B9: a set exists if and only if its head does, and the head is created last and
//! never replaces another; every set of a medium has the medium's protection.
//!
//! Must not: trust the medium's head in a restore, except to refuse one.

use std::collections::BTreeSet;

use strongroom_format::code::{self, Class};
use strongroom_format::header::Header;

use crate::head::Description;
use crate::medium_head::MediumHead;
use crate::removal;
use crate::set_heads::{Superseded, head_name, positions, read_head};
use crate::store::Store;
use crate::{Error, Result};

/// The last position that a set can have; eight digits.
const POSITION_MAX: u32 = 99_999_999;

/// A set on a medium. Nothing of it is authenticated.
#[derive(Clone, Debug)]
pub struct ListedSet {
    /// From 1; grows with every set.
    pub position: u32,
    /// What is known without a key.
    pub description: Description,
    /// The object header of a sealed set, with its key slots.
    pub header: Option<Header>,
}

/// A head that cannot be read.
#[derive(Debug)]
pub struct Unreadable {
    /// Its position.
    pub position: u32,
    /// Why not.
    pub error: Error,
}

/// Everything on a medium.
#[derive(Debug)]
pub struct Listing {
    /// `None` when it is missing or damaged.
    pub head: Option<MediumHead>,
    /// In order of position.
    pub sets: Vec<ListedSet>,
    /// In order of position.
    pub unreadable: Vec<Unreadable>,
}

/// Lists a medium, without a key. Sets of other media are left out.
///
/// # Errors
/// SR-7101 when there is neither a medium's head nor a set; SR-5001 when the system reports an
/// error. A damaged head is no error.
pub fn list(store: &dyn Store) -> Result<Listing> {
    let head = MediumHead::read(store);
    let head = match head {
        Err(error) if error.code().class == Class::Io => return Err(error),
        // The sets can be listed although the medium's head is damaged.
        other => other.ok().flatten(),
    };
    let mut listing = Listing {
        head,
        sets: Vec::new(),
        unreadable: Vec::new(),
    };
    for position in positions(store)? {
        let read = read_head(store, position).and_then(|found| {
            let header = found.header()?;
            Ok((found.description, header))
        });
        match read {
            Ok((description, _)) if is_foreign(listing.head.as_ref(), &description) => {}
            Ok((description, header)) => listing.sets.push(ListedSet {
                position,
                description,
                header,
            }),
            Err(error) => listing.unreadable.push(Unreadable { position, error }),
        }
    }
    let nothing = listing.sets.is_empty() && listing.unreadable.is_empty();
    if listing.head.is_none() && nothing {
        return Err(Error::new(&code::MEDIUM_ABSENT, store.shown()));
    }
    Ok(listing)
}

/// The set at `position`, as in a listing; also a set of another medium. Nothing of it is
/// authenticated.
///
/// # Errors
/// SR-7107 when there is none; SR-7106 when its head is damaged, SR-3002 when a newer version wrote
/// it; the errors of the store.
pub fn listed(store: &dyn Store, position: u32) -> Result<ListedSet> {
    let found = read_head(store, position)?;
    let header = found.header()?;
    Ok(ListedSet {
        position,
        description: found.description,
        header,
    })
}

/// Whether a set was made on another medium, or on this one before it was begun anew. False when
/// the medium has no head.
pub(crate) fn is_foreign(head: Option<&MediumHead>, description: &Description) -> bool {
    head.is_some_and(|head| head.medium_id != description.medium_id)
}

/// The first position that no head has or had.
///
/// # Errors
/// SR-7103 when there is none; SR-5001 when the system reports an error.
pub(crate) fn next_position(store: &dyn Store) -> Result<u32> {
    following_position(store, removal::last_position(store)?)
}

/// The position after this one. SR-7103 when there is no more.
fn following_position(store: &dyn Store, position: u32) -> Result<u32> {
    match position.checked_add(1) {
        Some(next) if next <= POSITION_MAX => Ok(next),
        _ => {
            let name = head_name(position);
            let detail = format!(
                "{}/{name} has the last possible position: if it is not a set, remove it",
                store.shown()
            );
            Err(Error::new(&code::MEDIUM_FOREIGN, detail))
        }
    }
}

/// Creates a head at the first position after the last one that is free, and returns that.
/// `head_at` makes the head for a position, and may be called several times. SR-7103 when there is
/// no position left; errors of `head_at` and the store.
pub(crate) fn publish(
    store: &dyn Store,
    mut head_at: impl FnMut(u32) -> Result<Vec<u8>>,
) -> Result<u32> {
    let mut position = removal::last_position(store)?;
    // Another writer may take a position at any time; each turn means that one succeeded.
    loop {
        position = following_position(store, position)?;
        let name = head_name(position);
        let created = store.create_new(&name, &head_at(position)?);
        if created.map_err(|error| Error::io(format!("{}/{name}", store.shown()), error))? {
            return Ok(position);
        }
    }
}

/// Removes the heads of `superseded`, which are in order of position and none of which a remaining
/// set builds on. Then, if no other writer is at work, removes families that no head names, and
/// temporary files of writers that were killed. `alone`: the lock of the writers, if the caller has
/// it.
///
/// Sets of other media keep their heads and families, because only `medium.json`, which is not
/// authenticated, tells them apart. Returns the positions of the removed heads; the others have
/// become bases meanwhile, or somebody else removed them. Errors of the store; heads may then be
/// gone.
pub(crate) fn remove_sets(
    store: &dyn Store,
    superseded: &[Superseded],
    alone: Option<Box<dyn Send>>,
) -> Result<Vec<u32>> {
    let failed = |error| Error::io(store.shown(), error);
    let mut bases = removal::Bases::default();
    let mut removed = Vec::new();
    // A set is removed before the one that it builds on, so that the remaining chains are whole
    // even if this is interrupted.
    for gone in superseded.iter().rev() {
        if removal::remove_head(store, gone, &mut bases)? {
            removed.push(gone.position);
        }
    }
    removed.reverse();
    let alone = match alone {
        Some(alone) => Some(alone),
        None => store.lock_writers(true).map_err(failed)?,
    };
    if alone.is_some() {
        remove_orphans(store)?;
    }
    Ok(removed)
}

/// Removes temporary files and marks that killed writers left, and families that no head names. The
/// caller has the lock of the writers. When a head cannot be read, no family is removed, and there
/// is no error. Errors of the store.
fn remove_orphans(store: &dyn Store) -> Result<()> {
    let failed = |error| Error::io(store.shown(), error);
    store.collect().map_err(failed)?;
    removal::remove_old_marks(store)?;
    // Families are listed before heads, so that a family whose head is written later is not among
    // them (B19).
    let families = store.orphan_candidates().map_err(failed)?;
    let mut named = BTreeSet::new();
    for position in positions(store)? {
        match read_head(store, position) {
            Ok(found) => {
                named.insert(found.description.set_id);
            }
            // It is unknown which families this head names: nothing is removed.
            Err(_) => return Ok(()),
        }
    }
    for name in families {
        let set_id = name.split_once('.').map(|(set_id, _)| set_id);
        if set_id.is_some_and(|set_id| !named.contains(set_id)) {
            store.remove(&format!("data/{name}")).map_err(failed)?;
        }
    }
    Ok(())
}
