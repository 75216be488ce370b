//! What was counted under each ticket, for as long as the ticket may be used.
//!
//! Invariants (A3): sessions under one ticket count together, one after the other and at the same time; counts of a ticket with limits outlive its
//! sessions until its time is over. A ticket is named by its id and its keys, so nobody without the keys counts under it. Must not: decide
//! who may do what.

use std::collections::BTreeMap;

use strongroom_columns_ring::Fault;
use strongroom_format::columns::channel::Ticket;

use super::{KeyId, Ledger};

/// Tickets whose counts are kept. Only who holds a column key can make one.
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

/// Every ticket that has a session, or counts that have to be kept.
#[derive(Default)]
pub(super) struct Accounts {
    by_name: BTreeMap<Name, Account>,
    /// What tickets have learnt that are not kept any more.
    gone: Ledger,
}

impl Accounts {
    /// A session begins under this ticket, at `now`, seconds since 1970: what was counted under it so far.
    ///
    /// # Errors
    /// [`Fault::OutOfMemory`] when too many tickets are kept.
    pub(super) fn enter(&mut self, ticket: &Ticket, now: u64) -> Result<Ledger, Fault> {
        if self.by_name.len() >= ACCOUNTS_MAX {
            self.forget_over(now);
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

    /// A session goes on under this ticket, of the same name.
    pub(super) fn renew(&mut self, ticket: &Ticket) {
        if let Some(account) = self.by_name.get_mut(&name(ticket)) {
            account.take(ticket);
        }
    }

    /// A session under this ticket has ended.
    pub(super) fn leave(&mut self, ticket: &Ticket) {
        let name = name(ticket);
        let Some(account) = self.by_name.get_mut(&name) else {
            return;
        };
        account.sessions = account.sessions.saturating_sub(1);
        if account.sessions == 0 && !account.limited {
            self.gone.add(&account.ledger);
            self.by_name.remove(&name);
        }
    }

    /// Tickets that have sessions: id, rights, counts.
    pub(super) fn live(&self) -> impl Iterator<Item = ([u8; 16], u32, &Ledger)> {
        let live = self
            .by_name
            .iter()
            .filter(|(_, account)| account.sessions > 0);
        live.map(|((id, _), account)| (*id, account.rights, &account.ledger))
    }

    /// What tickets without sessions have learnt, together.
    pub(super) fn ended(&self) -> Ledger {
        let all = Ledger::new();
        all.add(&self.gone);
        let idle = self.by_name.values().filter(|one| one.sessions == 0);
        for account in idle {
            all.add(&account.ledger);
        }
        all
    }

    /// Forgets tickets whose time is over.
    fn forget_over(&mut self, now: u64) {
        let gone = &self.gone;
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
    fn take(&mut self, ticket: &Ticket) {
        self.rights = ticket.rights;
        // A ticket that was good for longer may still be used.
        self.not_after = self.not_after.max(ticket.not_after);
        self.limited |= ticket.truths != u64::MAX || ticket.outputs != u64::MAX;
    }
}

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
        accounts.enter(&limited, 50).unwrap().count_truths(5);
        accounts.leave(&limited);
        assert_eq!(accounts.ended().truths(), 5);
        let again = accounts.enter(&limited, 60).unwrap();
        let beside = accounts.enter(&limited, 60).unwrap();
        beside.count_truths(1);
        assert_eq!(again.truths(), 6);
        // Of this id, by somebody with another key.
        assert_eq!(
            accounts.enter(&ticket(1, 2, 9, 100), 60).unwrap().truths(),
            0
        );
        accounts.leave(&limited);
        accounts.leave(&limited);
        accounts.forget_over(100);
        assert_eq!(accounts.enter(&limited, 100).unwrap().truths(), 6);
        accounts.leave(&limited);
        accounts.forget_over(101);
        assert_eq!(accounts.enter(&limited, 101).unwrap().truths(), 0);
        assert_eq!(accounts.ended().truths(), 6, "all that was ever told");
    }

    #[test]
    fn a_ticket_without_limits_goes_with_its_last_session() {
        let mut accounts = Accounts::default();
        let free = ticket(1, 1, u64::MAX, u64::MAX);
        accounts.enter(&free, 0).unwrap().count_truths(5);
        accounts.enter(&free, 0).unwrap();
        accounts.leave(&free);
        assert_eq!(accounts.live().count(), 1);
        accounts.leave(&free);
        assert!(accounts.by_name.is_empty());
        assert_eq!(accounts.ended().truths(), 5);
        // A renewal that sets limits makes it one that is kept.
        accounts.enter(&free, 0).unwrap();
        accounts.renew(&ticket(1, 1, 3, 50));
        accounts.leave(&free);
        assert_eq!(accounts.by_name.len(), 1);
    }

    #[test]
    fn there_is_an_end_to_what_is_kept() {
        let mut accounts = Accounts::default();
        for at in 0..ACCOUNTS_MAX {
            let mut one = ticket(0, 1, 9, 100);
            one.ticket_id[..8].copy_from_slice(&(at as u64).to_le_bytes());
            accounts.enter(&one, 0).unwrap();
            accounts.leave(&one);
        }
        let more = ticket(9, 9, 9, 200);
        assert_eq!(accounts.enter(&more, 100).err(), Some(Fault::OutOfMemory));
        assert!(accounts.enter(&more, 101).is_ok(), "the others are over");
    }
}
