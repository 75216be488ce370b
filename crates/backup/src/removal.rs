//! Removes heads of sets in such a way that no set loses its base, on stores with locks and
//! without.
//!
//! Invariant B12. Without locks, a writer that removes a head first creates a mark with a unique
//! name (`sets/POSITION.SET_ID.RANDOM.gone`), then lists the heads that name the set as base, and
//! removes the head only if there is none. A writer that builds on a set lists marks and heads
//! after it created its own head. Whichever lists later finds the other, and no head that was
//! removed comes back. A mark is removed by its writer, or by any writer once the head is gone,
//! never while the head may still be removed.
//!
//! Must not: create a head.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use strongroom_crypto::random16;
use strongroom_format::code::{self, Class};
use strongroom_format::hex;

use crate::set_heads::{Superseded, head_name, position_of, read_head};
use crate::store::Store;
use crate::{Error, Result};

const GONE: &str = "gone";

/// A mark: some writer is about to remove a head, or has removed it.
#[derive(Debug, PartialEq, Eq)]
struct Mark {
    position: u32,
    set_id: String,
    /// The name of the mark's object.
    name: String,
}

impl Mark {
    /// Parses the name of a mark; `None` for other names.
    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('.');
        let (position, set_id) = (parts.next()?, parts.next()?);
        let (random, word) = (parts.next()?, parts.next()?);
        let hex32 = |text: &str| hex::from_hex(text).is_some_and(|bytes| bytes.len() == 16);
        let sound = hex32(set_id) && hex32(random) && word == GONE && parts.next().is_none();
        sound.then_some(Self {
            position: position_of(position)?,
            set_id: set_id.to_owned(),
            name: format!("sets/{name}"),
        })
    }

    /// Creates a mark for this head, with a random name. Errors of the store.
    fn create(store: &dyn Store, position: u32, set_id: &str) -> Result<Self> {
        let random = hex::hex(&random16()?);
        let name = format!("sets/{position:08}.{set_id}.{random}.{GONE}");
        let failed = |error| Error::io(format!("{}/{name}", store.shown()), error);
        if !store.create_new(&name, name.as_bytes()).map_err(failed)? {
            return Err(Error::new(&code::BUG, name));
        }
        Ok(Self {
            position,
            set_id: set_id.to_owned(),
            name,
        })
    }

    /// Removes the mark's object; no error when it is gone already.
    fn remove(&self, store: &dyn Store) -> Result<()> {
        let removed = store.remove(&self.name);
        removed.map_err(|error| Error::io(format!("{}/{}", store.shown(), self.name), error))
    }
}

/// The positions of heads and the marks in `sets/`, in rising order, from one listing. Other names
/// are ignored. Errors of the store.
fn list_heads_and_marks(store: &dyn Store) -> Result<(Vec<u32>, Vec<Mark>)> {
    let found = store.list("sets");
    let found = found.map_err(|error| Error::io(store.shown(), error))?;
    let names = || found.iter().map(|(name, _)| name.as_str());
    Ok((
        names().filter_map(position_of).collect(),
        names().filter_map(Mark::parse).collect(),
    ))
}

/// The last position that has or had a head; 0 for none. A position whose head is marked counts
/// too: a removal may be repeated by the network, and must not hit a new head. Errors of the store.
pub(crate) fn last_position(store: &dyn Store) -> Result<u32> {
    let (positions, marks) = list_heads_and_marks(store)?;
    let marked = marks.iter().map(|mark| mark.position);
    Ok(positions.into_iter().chain(marked).max().unwrap_or(0))
}

/// Whether the set `set_id` and its bases exist, and none of them is about to be removed. False too
/// when a head on the way cannot be read because it is damaged; an error only when the store fails.
/// Heads are not authenticated here: a forged one can only prevent a set.
pub(crate) fn is_kept(store: &dyn Store, set_id: &str) -> Result<bool> {
    // Marks and names are listed before heads are read, because a writer removes its mark after the
    // head.
    let (positions, marks) = list_heads_and_marks(store)?;
    let mut wanted = Some(set_id.to_owned());
    // A base has a lower position than the set that names it.
    for position in positions.into_iter().rev() {
        let Some(set_id) = &wanted else {
            return Ok(true);
        };
        if marks.iter().any(|mark| mark.set_id == *set_id) {
            return Ok(false);
        }
        match read_head(store, position) {
            Ok(head) if head.description.set_id == *set_id => {
                wanted = head.description.base_set_id().map(str::to_owned);
            }
            // This head may be the one that is wanted.
            Err(error) if error.code().class == Class::Io => return Err(error),
            _ => {}
        }
    }
    Ok(wanted.is_none())
}

/// The bases of existing sets. Each head is read once.
#[derive(Default)]
pub(crate) struct Bases(BTreeMap<u32, Option<String>>);

impl Bases {
    /// Whether a head names this set as its base. Reads the heads that are new since the last call.
    /// A head that is damaged names none; an error only when the store fails.
    fn has(&mut self, store: &dyn Store, set_id: &str) -> Result<bool> {
        let (there, _) = list_heads_and_marks(store)?;
        let last = there.last().copied();
        // The last position may belong to another set by now.
        self.0
            .retain(|position, _| there.contains(position) && Some(*position) != last);
        for position in there {
            if let Entry::Vacant(vacant) = self.0.entry(position) {
                vacant.insert(match read_head(store, position) {
                    Ok(head) => head.description.base_set_id().map(str::to_owned),
                    Err(error) if error.code().class == Class::Io => return Err(error),
                    Err(_) => None,
                });
            }
        }
        Ok(self.0.values().any(|base| base.as_deref() == Some(set_id)))
    }
}

/// Removes a head that no other one names as its base. False when it stays, did not exist any more,
/// or its position has another set by now. A head that could not be read is removed if it still
/// cannot be. Waits for the lock of changes.
///
/// # Errors
/// SR-5001, or SR-7141 to SR-7143 for an object store, when the store fails; it is then not known
/// whether the head exists.
pub(crate) fn remove_head(store: &dyn Store, gone: &Superseded, bases: &mut Bases) -> Result<bool> {
    let changing = store.lock_changes("sets");
    let _changing = changing.map_err(|error| Error::io(store.shown(), error))?;
    // The position may belong to another set by now.
    match (read_head(store, gone.position), &gone.set_id) {
        (Ok(head), Some(set_id)) if head.description.set_id == *set_id => {}
        (Err(error), _) if error.code() == &code::SET_ABSENT => return Ok(false),
        (Err(error), _) if error.code().class == Class::Io => return Err(error),
        // The head could not be read, and still cannot: no set can build on it.
        (Err(_), None) => {
            remove_head_object(store, gone.position)?;
            return Ok(true);
        }
        _ => return Ok(false),
    }
    let Some(set_id) = &gone.set_id else {
        return Ok(false);
    };
    let removed = mark_and_remove(store, gone.position, set_id, bases)?;
    // The head is gone. If this fails, the next cleanup removes the mark.
    if let Removed::Gone(Some(mark)) = &removed {
        drop(mark.remove(store));
    }
    Ok(removed != Removed::Stays)
}

/// Removes a head that was published but must not stay, unless another head names its set by now.
/// True when it is gone. The caller has the lock of changes. On a store without locks the mark
/// stays, so that the position is not used again before a later one has a head.
///
/// # Errors
/// SR-5001, or SR-7141 to SR-7143 for an object store, when the store fails; it is then not known
/// whether the head exists.
pub(crate) fn withdraw(store: &dyn Store, position: u32, set_id: &str) -> Result<bool> {
    let removed = mark_and_remove(store, position, set_id, &mut Bases::default())?;
    Ok(removed != Removed::Stays)
}

/// The result of removing a head.
#[derive(Debug, PartialEq, Eq)]
enum Removed {
    /// It was not removed, because another head names its set.
    Stays,
    /// It was removed. The mark, which exists only without locks, is still there.
    Gone(Option<Mark>),
}

/// Removes the head at `position`, of the set `set_id`, unless the head of an incremental set names
/// this set as its base. On a medium without locks, makes a mark before, which keeps other writers
/// from building on the set; it is removed if the head stays for that reason, and remains if the
/// removal fails, whose error is returned. `bases` keeps what was read of the other heads.
fn mark_and_remove(
    store: &dyn Store,
    position: u32,
    set_id: &str,
    bases: &mut Bases,
) -> Result<Removed> {
    let mut mark = None;
    if store.writing_limit().is_some() {
        mark = Some(Mark::create(store, position, set_id)?);
    }
    let named = bases.has(store, set_id);
    if !matches!(named, Ok(false)) {
        // Nothing is removed.
        if let Some(mark) = mark {
            mark.remove(store)?;
        }
        return named.map(|_| Removed::Stays);
    }
    // If this fails, the mark stays, because the store may still carry out the request.
    remove_head_object(store, position)?;
    Ok(Removed::Gone(mark))
}

/// Removes the head itself, without which the set is gone. No error when there is none.
fn remove_head_object(store: &dyn Store, position: u32) -> Result<()> {
    let name = head_name(position);
    let removed = store.remove(&name);
    removed.map_err(|error| Error::io(format!("{}/{name}", store.shown()), error))
}

/// Removes marks whose heads are gone, if a later head exists. A mark that a killed run left for an
/// existing head stays until that head is removed; meanwhile no set can build on it. Errors of the
/// store.
pub(crate) fn remove_old_marks(store: &dyn Store) -> Result<()> {
    let (positions, marks) = list_heads_and_marks(store)?;
    let last = positions.last().copied().unwrap_or(0);
    for mark in marks.iter().filter(|mark| mark.position < last) {
        let of_it = match read_head(store, mark.position) {
            Ok(head) => head.description.set_id == mark.set_id,
            Err(error) => error.code() != &code::SET_ABSENT,
        };
        if !of_it {
            mark.remove(store)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_told_by_their_names() {
        let id = "00112233445566778899aabbccddeeff";
        let name = format!("00000007.{id}.{id}.gone");
        let mark = Mark::parse(&name).unwrap();
        assert_eq!((mark.position, mark.set_id.as_str()), (7, id));
        assert_eq!(mark.name, format!("sets/{name}"));
        assert_eq!(position_of(&name), None);
        for other in [
            String::from("00000007"),
            format!("7.{id}.{id}.gone"),
            format!("00000007.{id}.gone"),
            format!("00000007.{id}.{id}.gone.x"),
            format!("00000007.{id}.x.gone"),
            format!("00000007.x.{id}.gone"),
        ] {
            assert_eq!(Mark::parse(&other), None, "{other}");
        }
    }
}
