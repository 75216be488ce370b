//! The counts of each ticket, kept as long as the ticket may be used.
//!
//! Invariants (A3): sessions under one ticket count together, one after the other and at the same
//! time; counts of a ticket with limits outlive its sessions until its time is over. A ticket is
//! named by its id and its keys, so nobody without the keys counts under it. Must not: decide who
//! may do what.

use std::collections::BTreeMap;

use strongroom_columns_ring::Fault;
use strongroom_format::columns::channel::Ticket;

use super::{KeyId, Ledger};

/// The most tickets whose counts are kept. Only a holder of a column key can make a ticket.
const ACCOUNTS_MAX: usize = 1 << 16;

struct Account {
    ledger: Ledger,
    /// As in the ticket that was used last.
    rights: u32,
    not_after: u64,
    limited: bool,
    sessions: u32,
}

/// A ticket's id and its keys.
type Name = ([u8; 16], Vec<KeyId>);

/// All tickets that have a session, or counts that have to be kept.
#[derive(Default)]
pub(super) struct Accounts {
    by_name: BTreeMap<Name, Account>,
    /// Sum of the counts of tickets that are not kept any more.
    forgotten: Ledger,
}

impl Accounts {
    /// Counts a session more under this ticket, at `now`, seconds since 1970. Returns the ticket's
    /// counts, which all its sessions share; zeros for a new ticket. Forgets expired tickets if
    /// many are kept.
    ///
    /// # Errors
    /// [`Fault::OutOfMemory`] if 65536 tickets are kept and this is a new one.
    pub(super) fn begin_session(&mut self, ticket: &Ticket, now: u64) -> Result<Ledger, Fault> {
        if self.by_name.len() >= ACCOUNTS_MAX {
            self.forget_expired(now);
        }
        let full = self.by_name.len() >= ACCOUNTS_MAX;
        let account = match self.by_name.entry(name(ticket)) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(_) if full => {
                return Err(Fault::OutOfMemory);
            }
            std::collections::btree_map::Entry::Vacant(place) => place.insert(Account {
                ledger: Ledger::new(),
                rights: 0,
                not_after: 0,
                limited: false,
                sessions: 0,
            }),
        };
        account.sessions = account.sessions.saturating_add(1);
        account.take(ticket);
        Ok(account.ledger.clone())
    }

    /// Notes the rights, time and limits of a ticket by which a session has replaced its own, of
    /// the same id and keys.
    pub(super) fn renew(&mut self, ticket: &Ticket) {
        if let Some(account) = self.by_name.get_mut(&name(ticket)) {
            account.take(ticket);
        }
    }

    /// Counts a session less under this ticket. With its last session a ticket without limits is
    /// forgotten, and its counts are added to the sum of forgotten ones.
    pub(super) fn end_session(&mut self, ticket: &Ticket) {
        let name = name(ticket);
        let Some(account) = self.by_name.get_mut(&name) else {
            return;
        };
        account.sessions = account.sessions.saturating_sub(1);
        if account.sessions == 0 && !account.limited {
            self.forgotten.add(&account.ledger);
            self.by_name.remove(&name);
        }
    }

    /// The tickets that have sessions: id, rights, counts; in order of id.
    pub(super) fn with_sessions(&self) -> impl Iterator<Item = ([u8; 16], u32, &Ledger)> {
        let live = self
            .by_name
            .iter()
            .filter(|(_, account)| account.sessions > 0);
        live.map(|((id, _), account)| (*id, account.rights, &account.ledger))
    }

    /// The sum of the counts of all tickets without sessions, those included that are not kept any
    /// more.
    pub(super) fn ended(&self) -> Ledger {
        let all = Ledger::new();
        all.add(&self.forgotten);
        let idle = self.by_name.values().filter(|one| one.sessions == 0);
        for account in idle {
            all.add(&account.ledger);
        }
        all
    }

    /// Removes the tickets that have no session and were valid until before `now` (seconds since
    /// 1970), and adds their counts of comparisons and outputs to the sum of forgotten ones.
    fn forget_expired(&mut self, now: u64) {
        let gone = &self.forgotten;
        self.by_name.retain(|_, account| {
            let keep = account.sessions > 0 || account.not_after >= now;
            if !keep {
                gone.add(&account.ledger);
            }
            keep
        });
    }
}

impl Account {
    /// Takes over the ticket's rights; the latest end of validity and the existence of limits
    /// remain from earlier tickets.
    fn take(&mut self, ticket: &Ticket) {
        self.rights = ticket.rights;
        // An earlier ticket that is valid for longer may still be used.
        self.not_after = self.not_after.max(ticket.not_after);
        self.limited |= ticket.truths != u64::MAX || ticket.outputs != u64::MAX;
    }
}

/// The key of the ticket's account: its id and its column keys.
fn name(ticket: &Ticket) -> Name {
    (ticket.ticket_id, ticket.keys.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(id: u8, key: u8, truths: u64, not_after: u64) -> Ticket {
        Ticket {
            rights: 1,
            ticket_id: [id; 16],
            not_before: 0,
            not_after,
            truths,
            outputs: u64::MAX,
            keys: vec![[key; 16]],
        }
    }

    #[test]
    fn a_ticket_with_limits_is_remembered_until_its_time_is_over() {
        let mut accounts = Accounts::default();
        let limited = ticket(1, 1, 9, 100);
        accounts
            .begin_session(&limited, 50)
            .unwrap()
            .count_truths(5);
        accounts.end_session(&limited);
        assert_eq!(accounts.ended().truths(), 5);
        let again = accounts.begin_session(&limited, 60).unwrap();
        let beside = accounts.begin_session(&limited, 60).unwrap();
        beside.count_truths(1);
        assert_eq!(again.truths(), 6);
        // A ticket of this id under another key.
        assert_eq!(
            accounts
                .begin_session(&ticket(1, 2, 9, 100), 60)
                .unwrap()
                .truths(),
            0
        );
        accounts.end_session(&limited);
        accounts.end_session(&limited);
        accounts.forget_expired(100);
        assert_eq!(accounts.begin_session(&limited, 100).unwrap().truths(), 6);
        accounts.end_session(&limited);
        accounts.forget_expired(101);
        assert_eq!(accounts.begin_session(&limited, 101).unwrap().truths(), 0);
        assert_eq!(accounts.ended().truths(), 6, "all that was ever told");
    }

    #[test]
    fn a_ticket_without_limits_goes_with_its_last_session() {
        let mut accounts = Accounts::default();
        let free = ticket(1, 1, u64::MAX, u64::MAX);
        accounts.begin_session(&free, 0).unwrap().count_truths(5);
        accounts.begin_session(&free, 0).unwrap();
        accounts.end_session(&free);
        assert_eq!(accounts.with_sessions().count(), 1);
        accounts.end_session(&free);
        assert!(accounts.by_name.is_empty());
        assert_eq!(accounts.ended().truths(), 5);
        // A renewal that sets limits makes it one that is kept.
        accounts.begin_session(&free, 0).unwrap();
        accounts.renew(&ticket(1, 1, 3, 50));
        accounts.end_session(&free);
        assert_eq!(accounts.by_name.len(), 1);
    }

    #[test]
    fn there_is_an_end_to_what_is_kept() {
        let mut accounts = Accounts::default();
        for at in 0..ACCOUNTS_MAX {
            let mut one = ticket(0, 1, 9, 100);
            one.ticket_id[..8].copy_from_slice(&(at as u64).to_le_bytes());
            accounts.begin_session(&one, 0).unwrap();
            accounts.end_session(&one);
        }
        let more = ticket(9, 9, 9, 200);
        assert_eq!(
            accounts.begin_session(&more, 100).err(),
            Some(Fault::OutOfMemory)
        );
        assert!(
            accounts.begin_session(&more, 101).is_ok(),
            "the others are over"
        );
    }
}
