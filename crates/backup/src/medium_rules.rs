//! What a writer may do on a medium: whether its options agree with the medium's head, which sets a
//! new one replaces, and the exclusive lock.
//!
//! Invariant B9: nothing is read from the source or written before these rules were checked.
//!
//! Must not: remove anything.

use strongroom_format::code;

use crate::clock::now_unix_s;
use crate::medium::is_foreign;
use crate::medium_head::{MEDIUM_FILE, MediumHead, Protection};
use crate::options::{CreateOptions, Mode};
use crate::set_heads::{Superseded, positions, read_head};
use crate::store::{Store, Version};
use crate::{Error, Result};

/// The head of an existing medium, with the version that replacing it requires. `None` when the
/// place does not exist or is empty; SR-7103 when it holds something else; SR-7102 when the head is
/// damaged, SR-3002 when it is newer; errors of the store.
pub(crate) fn present_head(store: &dyn Store) -> Result<Option<(MediumHead, Version)>> {
    if let Some(head) = MediumHead::read_version(store)? {
        return Ok(Some(head));
    }
    let failed = |error| Error::io(store.shown(), error);
    if store.is_empty().map_err(failed)? {
        return Ok(None);
    }
    // Another writer may have made the medium since.
    match MediumHead::read_version(store)? {
        Some(head) => Ok(Some(head)),
        None => Err(Error::new(&code::MEDIUM_FOREIGN, store.shown())),
    }
}

/// Checks the options against this medium, before anything is written. Returns the sets that the
/// new one replaces, in order of position; none without a medium.
///
/// # Errors
/// SR-7104, SR-7105 when the protection differs; SR-7117 when the number of stripes does; SR-7123
/// when a set to be replaced has not expired; SR-5001, or SR-7141 to SR-7143 for an object store,
/// when the store fails.
pub(crate) fn check_allowed(
    store: &dyn Store,
    present: Option<&MediumHead>,
    options: &CreateOptions<'_>,
    now_unix_s: u64,
) -> Result<Vec<Superseded>> {
    let Some(head) = present else {
        return Ok(Vec::new());
    };
    let begun_anew = options.mode == Mode::Format;
    let mixed = match (options.protection(), head.protection) {
        (Protection::Plain, Protection::Sealed) => Some(&code::MEDIUM_SEALED),
        (Protection::Sealed, Protection::Plain) => Some(&code::MEDIUM_PLAIN),
        _ => None,
    };
    if let Some(code) = mixed {
        let log = store.list("wal");
        let log = log.map_err(|error| Error::io(store.shown(), error))?;
        if !begun_anew {
            return Err(Error::new(code, store.shown()));
        }
        // Archived files stay, and must not have the other protection.
        if !log.is_empty() {
            let detail = format!("{}: it has a log archive", store.shown());
            return Err(Error::new(code, detail));
        }
    }
    if !begun_anew && let Some(stripes) = options.stripes.filter(|stripes| *stripes != head.stripes)
    {
        let detail = format!("{} instead of {stripes}", head.stripes);
        return Err(Error::new(&code::STRIPES, detail));
    }
    if options.mode == Mode::Append {
        return Ok(Vec::new());
    }
    sets_to_replace(store, head, options, now_unix_s)
}

/// The sets that the new one replaces; SR-7123 when one of them has not expired. Sets of another
/// medium stay, unless this one is begun anew. A damaged head counts as expired; any other head
/// that cannot be read is an error, unless expiry is not looked at.
fn sets_to_replace(
    store: &dyn Store,
    head: &MediumHead,
    options: &CreateOptions<'_>,
    now_unix_s: u64,
) -> Result<Vec<Superseded>> {
    let mut superseded = Vec::new();
    for position in positions(store)? {
        let described = match read_head(store, position) {
            Ok(head) => Some(head.description),
            Err(error) if error.code() == &code::SET_ABSENT => continue,
            // It is not known whether a set with a damaged head has expired; it cannot be restored
            // either.
            Err(error) if is_damage(&error) || options.skip_expiry => None,
            Err(error) => return Err(error),
        };
        let foreign = described
            .as_ref()
            .is_some_and(|described| is_foreign(Some(head), described));
        if foreign && options.mode != Mode::Format {
            continue;
        }
        let expires = described
            .as_ref()
            .and_then(|described| described.expires_unix_s);
        if !options.skip_expiry && expires.is_some_and(|expires| expires > now_unix_s) {
            return Err(Error::new(&code::UNEXPIRED, format!("set {position}")));
        }
        superseded.push(Superseded {
            position,
            set_id: described.map(|described| described.set_id),
        });
    }
    Ok(superseded)
}

/// Whether the error means a damaged head of a set: SR-7106 or SR-3003. A head that cannot be read
/// for another reason may belong to a set that has not expired.
fn is_damage(error: &Error) -> bool {
    [&code::SET_HEAD, &code::HEADER_DAMAGED].contains(&error.code())
}

/// Returns the head of the medium for the set. For a new medium the place is prepared and the head
/// written here; if another writer was first, its head applies, and its rules are checked (SR-7104,
/// SR-7105, SR-7117, SR-7123; SR-7102 when it is gone again). When a medium is begun anew, a new
/// head is only made, and the caller writes it at the end.
pub(crate) fn medium_head(
    store: &dyn Store,
    present: Option<MediumHead>,
    options: &CreateOptions<'_>,
    stripes: u16,
    now_unix_s: u64,
) -> Result<MediumHead> {
    let failed = |error| Error::io(store.shown(), error);
    let fresh = || MediumHead::new(options.protection(), stripes, now_unix_s);
    match present {
        Some(head) if options.mode != Mode::Format => Ok(head),
        Some(_) => fresh(),
        None => {
            let head = fresh()?;
            store.prepare().map_err(failed)?;
            if store
                .create_new(MEDIUM_FILE, &head.to_bytes()?)
                .map_err(failed)?
            {
                return Ok(head);
            }
            // Another writer made the medium first: its rules apply.
            let theirs = MediumHead::read(store)?;
            let theirs = theirs.ok_or_else(|| Error::new(&code::MEDIUM_DAMAGED, store.shown()))?;
            check_allowed(store, Some(&theirs), options, now_unix_s)?;
            Ok(theirs)
        }
    }
}

/// Takes the exclusive lock of the writers, which is needed to begin a medium anew. SR-7131 when
/// another writer is active.
pub(crate) fn lock_exclusively(store: &dyn Store) -> Result<Box<dyn Send>> {
    let taken = store.lock_writers(true);
    let taken = taken.map_err(|error| Error::io(store.shown(), error))?;
    taken.ok_or_else(|| Error::new(&code::MEDIUM_CHANGED, store.shown()))
}

/// Checks that the medium still has this id; a set with another id would not belong to it. SR-7131
/// otherwise, also when it has no head any more.
pub(crate) fn check_medium_id(store: &dyn Store, medium_id: &str) -> Result<()> {
    match MediumHead::read(store)? {
        Some(head) if head.medium_id == medium_id => Ok(()),
        _ => Err(Error::new(&code::MEDIUM_CHANGED, store.shown())),
    }
}

/// The head of the medium that an archive is on, whose rules are those of sets and are checked
/// here. SR-7101 when there is none; SR-7104 or SR-7105 when the protection of the options differs.
/// It is never made here: a server also archives while the medium is not mounted, and files that it
/// then put into the mount point would be lost.
pub(crate) fn medium_for_archive(
    store: &dyn Store,
    options: &CreateOptions<'_>,
) -> Result<MediumHead> {
    let present = MediumHead::read(store)?;
    let present = present.ok_or_else(|| Error::new(&code::MEDIUM_ABSENT, store.shown()))?;
    check_allowed(store, Some(&present), options, now_unix_s())?;
    Ok(present)
}
