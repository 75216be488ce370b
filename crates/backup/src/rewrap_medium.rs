//! Replaces the key slots of all sets of a medium and of its archived log.
//!
//! Must not: stop at an object that is only left as it is.

use strongroom_format::code;
use strongroom_keyring::{Opener, Recipient};

use crate::medium::{Unreadable, list};
use crate::rewrap::{Others, rewrap_archive, rewrap_set};
use crate::store::Store;
use crate::{Error, Result};

/// What became of the objects of a medium.
pub struct RewrappedMedium {
    /// Sets that have the new key slots.
    pub sets: u64,
    /// Files of the archived log that have them.
    pub files: u64,
    /// What was left as it is, by its name, and why: the key does not open it, or others can open
    /// it too.
    pub left: Vec<(String, Error)>,
    /// Sets whose heads cannot be read.
    pub unreadable: Vec<Unreadable>,
}

/// Gives every set of the medium and every file of its archived log key slots as [`rewrap_set`]
/// does. Files that expire meanwhile are passed over; what was left as it is, and sets whose head
/// cannot be read, are in the result.
///
/// # Errors
/// SR-7101 when there is no medium; the first error of an object, unless it means only that the key
/// does not open it or that others can open it too, for which it is left as it is. The objects
/// before the failed one have the new slots then.
pub fn rewrap_medium(
    store: &dyn Store,
    old: &Opener,
    new: &[&Recipient],
    others: Others,
) -> Result<RewrappedMedium> {
    let listing = list(store)?;
    let (mut sets, mut left) = (0_u64, Vec::new());
    for set in &listing.sets {
        match rewrap_set(store, set.position, old, new, others) {
            Ok(()) => sets = sets.saturating_add(1),
            Err(error) if stays_as_it_is(&error) => {
                left.push((format!("set {}", set.position), error));
            }
            Err(error) => return Err(error),
        }
    }
    let files = rewrap_archive(store, old, new, others, &mut |name, error| {
        if error.code() == &code::SET_ABSENT {
            // It has expired since it was listed.
            return Ok(());
        }
        if stays_as_it_is(&error) {
            left.push((name.to_owned(), error));
            return Ok(());
        }
        Err(error)
    })?;
    Ok(RewrappedMedium {
        sets,
        files,
        left,
        unreadable: listing.unreadable,
    })
}

/// Returns whether the error only means that the object was left unchanged: the key does not open
/// it (SR-2002, SR-2003), or others can open it too (SR-7132).
fn stays_as_it_is(error: &Error) -> bool {
    let left = [
        &code::WRONG_KEY,
        &code::UNKNOWN_KEY_ID,
        &code::OTHER_RECIPIENTS,
    ];
    left.contains(&error.code())
}
