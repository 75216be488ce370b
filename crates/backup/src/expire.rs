//! Removes expired sets, and the part of the log archive that no remaining set can use.
//!
//! Invariants: log is removed only together with a set, and only before the segment in which the
//! oldest remaining set begins; a set that has not expired stays, and so do the bases of sets that
//! stay.
//!
//! Must not: remove anything from a medium that has a head which cannot be read.

use std::collections::BTreeSet;

use strongroom_format::code;
use strongroom_postgres_replication::Lsn;

use crate::clock::now_unix_s;
use crate::head::{Description, Kind};
use crate::log_names::is_segment_size;
use crate::medium::{ListedSet, list, remove_sets};
use crate::medium_head::{MEDIUM_FILE, MediumHead};
use crate::set_heads::Superseded;
use crate::store::Store;
use crate::{Error, Result};

/// The removed sets and files.
#[derive(Debug, Default)]
pub struct Expired {
    /// Positions of the sets.
    pub sets: Vec<u32>,
    /// Files of the log archive.
    pub log: Vec<String>,
}

/// Removes the sets of a medium whose date of expiry has passed or was never given, except for the
/// medium's newest `keep` sets and for those that a remaining set builds on. If a set of a cluster
/// was removed, removes also the archived log that no remaining set can use; if no writer is at
/// work, what killed writers left. The result lists sets and log that were removed; with `pretend`
/// nothing is removed, and it lists what would be.
///
/// # Errors
/// Before anything is removed: SR-7101 when there is no medium; SR-7102 when the medium's own head
/// is damaged or missing; SR-7106, SR-3003 or SR-3006 when the head of a set is damaged; SR-3002
/// when a newer version wrote one of these. SR-5001, and the codes of object stores, when reading
/// or removing fails; some sets may be gone then.
pub fn expire(store: &dyn Store, keep: usize, pretend: bool) -> Result<Expired> {
    let listing = list(store)?;
    if let Some(bad) = listing.unreadable.into_iter().next() {
        return Err(bad.error);
    }
    if MediumHead::read(store)?.is_none() && !listing.sets.is_empty() {
        let detail = format!(
            "{}/{MEDIUM_FILE} is missing; nothing was removed",
            store.shown()
        );
        return Err(Error::new(&code::MEDIUM_DAMAGED, detail));
    }
    let now_unix_s = now_unix_s();
    let due = |set: &ListedSet| {
        set.description
            .expires_unix_s
            .is_none_or(|at| at <= now_unix_s)
    };
    let old = listing.sets.len().saturating_sub(keep);
    let (old, new) = listing.sets.split_at(old);
    let (gone, kept): (Vec<&ListedSet>, Vec<&ListedSet>) = old.iter().partition(|set| due(set));
    let (gone, bases) = split_off_bases(gone, kept.iter().copied().chain(new));
    let left: Vec<&Description> = kept
        .into_iter()
        .chain(bases)
        .chain(new)
        .map(|set| &set.description)
        .collect();
    let of_cluster = |removed: &[u32]| {
        gone.iter()
            .filter(|set| removed.contains(&set.position))
            .any(|set| set.description.kind == Kind::Postgres)
    };
    let due: Vec<u32> = gone.iter().map(|set| set.position).collect();
    if pretend || due.is_empty() {
        let log = if of_cluster(&due) {
            unneeded_log(store, &left)?
        } else {
            Vec::new()
        };
        return Ok(Expired { sets: due, log });
    }
    let superseded: Vec<Superseded> = gone
        .iter()
        .map(|set| Superseded {
            position: set.position,
            set_id: Some(set.description.set_id.clone()),
        })
        .collect();
    let sets = remove_sets(store, &superseded, None)?;
    let log = if of_cluster(&sets) {
        unneeded_log_now(store)?
    } else {
        Vec::new()
    };
    remove_log(store, &log).map_err(|error| Error::io(store.shown(), error))?;
    Ok(Expired { sets, log })
}

/// Lists the medium again, and returns the archived files that none of its sets needs now: a set
/// that was to be removed may have become a base, and stayed. The error of a head that cannot be
/// read; SR-7106 when a set's range of the log is not valid.
fn unneeded_log_now(store: &dyn Store) -> Result<Vec<String>> {
    let listing = list(store)?;
    if let Some(bad) = listing.unreadable.into_iter().next() {
        return Err(bad.error);
    }
    let left: Vec<&Description> = listing.sets.iter().map(|set| &set.description).collect();
    unneeded_log(store, &left)
}

/// Splits `gone` into the sets that no remaining set builds on, first, and those that must stay as
/// bases. A set has a higher position than those that it builds on.
fn split_off_bases<'a>(
    gone: Vec<&'a ListedSet>,
    stay: impl Iterator<Item = &'a ListedSet>,
) -> (Vec<&'a ListedSet>, Vec<&'a ListedSet>) {
    let mut needed: BTreeSet<&str> = stay
        .filter_map(|set| set.description.base_set_id())
        .collect();
    let (mut out, mut bases) = (Vec::new(), Vec::new());
    for set in gone.into_iter().rev() {
        if needed.contains(set.description.set_id.as_str()) {
            needed.extend(set.description.base_set_id());
            bases.push(set);
        } else {
            out.push(set);
        }
    }
    out.reverse();
    (out, bases)
}

/// Removes these files of the log archive, each under the archive's lock. After an error of the
/// store the files after it stay.
fn remove_log(store: &dyn Store, names: &[String]) -> std::io::Result<()> {
    for name in names {
        let _changing = store.lock_changes("wal")?;
        store.remove(&format!("wal/{name}"))?;
    }
    Ok(())
}

/// Lists the archived segments before the one in which the oldest of `left` begins, with their
/// partial files and backup histories. Empty when no set of a cluster is left, because the log may
/// then be all that there is. Removes nothing. SR-7106 when a set's range of the log is not valid.
fn unneeded_log(store: &dyn Store, left: &[&Description]) -> Result<Vec<String>> {
    let mut first: Option<u64> = None;
    for facts in left.iter().filter_map(|set| set.postgres.as_ref()) {
        let start: Option<Lsn> = facts.start_lsn.parse().ok();
        let start = start.filter(|_| is_segment_size(facts.segment_size_bytes));
        let start = start.ok_or_else(|| Error::new(&code::SET_HEAD, "a set's log range"))?;
        let segment = start.0 / facts.segment_size_bytes;
        // As in the name: 32 bits for the number of the 4 GiB, 32 bits for the segment within them.
        let per_file = (1_u64 << 32) / facts.segment_size_bytes;
        let number = ((segment / per_file) << 32) | (segment % per_file);
        first = Some(first.map_or(number, |first| first.min(number)));
    }
    let Some(first) = first else {
        return Ok(Vec::new());
    };
    let listed = store.list("wal");
    let listed = listed.map_err(|error| Error::io(store.shown(), error))?;
    let names = listed.into_iter().map(|(name, _)| name);
    Ok(names
        .filter(|name| segment_number(name).is_some_and(|number| number < first))
        .collect())
}

/// The number in a segment's name, without its timeline, also in the names of partial segments and
/// backup histories. `None` for timeline histories, which are always kept.
fn segment_number(name: &str) -> Option<u64> {
    let digits = name
        .get(..24)
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    let rest = name.get(24..)?;
    if !(rest.is_empty() || rest.starts_with('.')) {
        return None;
    }
    u64::from_str_radix(digits.get(8..)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_told_by_their_names() {
        assert_eq!(segment_number("000000010000000000000003"), Some(3));
        assert_eq!(
            segment_number("0000000A000000020000000F.partial"),
            Some((2 << 32) | 15)
        );
        assert_eq!(
            segment_number("000000010000000000000002.00000028.backup"),
            Some(2)
        );
        assert_eq!(segment_number("00000002.history"), None);
        assert_eq!(segment_number("0000000100000000000000031"), None);
    }

    #[test]
    fn a_forged_size_is_no_division_by_zero() {
        let place = tempfile::tempdir().unwrap();
        let store = crate::LocalStore::new(place.path());
        let forged = |size: &str| -> Description {
            let text = format!(
                r#"{{"set_id": "", "medium_id": "", "name": "", "kind": "postgres", "source": "", "machine_name": "", "user_name": "",
                "software": "", "started_unix_s": 0, "finished_unix_s": 0, "compression": "none", "key_algorithm": "none", "members": 0,
                "files": 0, "backup_size_bytes": 0, "compressed_size_bytes": 0, "families": [],
                "postgres": {{"start_lsn": "1/2000028", "segment_size_bytes": {size}}}}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let sound = forged("16777216");
        assert!(unneeded_log(&store, &[&sound]).unwrap().is_empty());
        for size in ["0", "3", "2147483648", "8589934592"] {
            let refused = unneeded_log(&store, &[&sound, &forged(size)]).unwrap_err();
            assert_eq!(refused.code(), &code::SET_HEAD, "{size}");
        }
    }
}
