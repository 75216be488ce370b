//! The portals that the client's driver has made by Bind, by their names.
//!
//! A Bind that failed, or that the server skipped because of an earlier error, has made none: the
//! name means the portal that it meant before. Must not: grow with the portals that ended with
//! their transactions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::copy::Transform;
use super::session::{Columns, Completed};
use crate::sql::changes::Changes;
use crate::sql::{Effects, ExpectedColumns, NamedUse};

/// So many names are kept at least whose portals ended with their transactions. Until a name is
/// given again, rows of its portal are checked: the server may be lying.
const KEPT_MIN: usize = 256;

/// A portal.
pub(super) struct Portal {
    /// How many statements and portals were made when it was.
    pub(super) number: u64,
    /// Set when the client is told that it is made.
    pub(super) is_made: Completed,
    /// Those of FETCH and its like are the ones that the portal is described with first.
    pub(super) columns: Columns,
    pub(super) named: Option<NamedUse>,
    pub(super) expected: ExpectedColumns,
    pub(super) effects: Effects,
    /// Relations that its statement may make, change or drop.
    pub(super) changes: Arc<Changes>,
    pub(super) copy: Option<Arc<Transform>>,
}

impl Portal {
    /// Returns whether the client was told that it is made.
    fn is_made(&self) -> bool {
        self.is_made.load(Ordering::Acquire)
    }

    /// Returns whether the server has not made it: its answer is not awaited any more.
    fn is_refused(&self) -> bool {
        let is_answered = Arc::strong_count(&self.is_made) == 1;
        // The other thread sets the flag before it lets go of it.
        fence(Ordering::Acquire);
        is_answered && !self.is_made()
    }
}

#[derive(Default)]
pub(super) struct Portals(BTreeMap<Vec<u8>, Vec<Portal>>);

impl Portals {
    /// Returns the newest portal of this name that the server has not refused to make, as far as
    /// that is known. `None` if there is none.
    pub(super) fn get(&self, name: &[u8]) -> Option<&Portal> {
        let mut newest = self.0.get(name)?.iter().rev();
        newest.find(|portal| !portal.is_refused())
    }

    /// Adds a portal that is being made.
    pub(super) fn add(&mut self, name: &[u8], portal: Portal) {
        let named = self.0.entry(name.to_vec()).or_default();
        named.retain(|known| !known.is_refused());
        let made = named.iter().rposition(Portal::is_made);
        named.drain(..made.unwrap_or(0));
        named.push(portal);
    }

    /// Forgets portals that have ended, of which `is_ended` is told the name and the number.
    pub(super) fn forget(&mut self, is_ended: impl Fn(&[u8], u64) -> bool) {
        self.0.retain(|name, named| {
            named.retain(|portal| !is_ended(name, portal.number));
            !named.is_empty()
        });
    }

    /// Forgets the oldest ones, if there are many. Their transactions have ended.
    pub(super) fn end_transaction(&mut self) {
        let surplus = self.0.len().saturating_sub(KEPT_MIN);
        if surplus < KEPT_MIN {
            return;
        }
        let newest = |named: &Vec<Portal>| named.last().map(|portal| portal.number);
        let mut numbers: Vec<u64> = self.0.values().filter_map(newest).collect();
        numbers.sort_unstable();
        if let Some(first_kept) = numbers.get(surplus) {
            self.0.retain(|_, named| newest(named) >= Some(*first_kept));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A portal, and what the other thread has of it.
    fn portal(number: u64) -> (Portal, Completed) {
        let is_made = Completed::default();
        let portal = Portal {
            number,
            is_made: Arc::clone(&is_made),
            columns: Columns::Described,
            named: None,
            expected: ExpectedColumns::default(),
            effects: Effects::default(),
            changes: Arc::default(),
            copy: None,
        };
        (portal, is_made)
    }

    #[test]
    fn a_name_means_the_portal_that_was_made() {
        let mut portals = Portals::default();
        let meant = |portals: &Portals| portals.get(b"c").map(|portal| portal.number);
        assert_eq!(meant(&portals), None);
        for (number, is_made, means) in [(1, true, 1), (2, false, 1), (3, true, 3), (4, false, 3)] {
            let (made, answer) = portal(number);
            portals.add(b"c", made);
            assert_eq!(meant(&portals), Some(number), "the answer has not come");
            answer.store(is_made, Ordering::Release);
            drop(answer);
            assert_eq!(meant(&portals), Some(means));
        }
        portals.forget(|name, number| name == b"c" && number <= 2);
        assert_eq!(meant(&portals), Some(3));
    }

    /// Drivers give each cursor a name of its own, and leave its end to the transaction's.
    #[test]
    fn portals_of_transactions_that_have_ended_are_not_kept_for_ever() {
        let mut portals = Portals::default();
        for number in 0..5_000 {
            portals.add(format!("c{number}").as_bytes(), portal(number).0);
            portals.end_transaction();
            assert!(portals.0.len() < 2 * KEPT_MIN);
        }
        assert!(portals.0.contains_key(&b"c4999"[..]) && portals.0.contains_key(&b"c4750"[..]));
    }
}
