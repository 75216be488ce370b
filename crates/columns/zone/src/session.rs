//! Sessions of data owners: their tickets, with rights, time and budgets, and the counts of their
//! answers.
//!
//! Invariants A1 to A3 are in docs/internals/columns.md. Column keys come over the channel only
//! ([`channel`]) and are kept in locked memory. Must not: decide without the ticket, or know where
//! a value is kept.

mod accounts;
pub mod attest;
pub mod channel;
pub mod keys;
pub mod ledger;

use std::sync::Arc;

use strongroom_columns_envelope::SealedBy;
use strongroom_columns_ring::Fault;
use strongroom_format::columns::channel::Ticket;

use crate::clock::now;
use crate::key_ledger::Told;

pub use keys::{ColumnKeys, KeyId};
pub use ledger::Ledger;

/// A session: a ticket in use on one ring.
#[derive(Debug)]
pub struct Session {
    id: [u8; 16],
    ticket: Ticket,
    ledger: Ledger,
    name: Arc<str>,
    /// How many results were sealed for its client.
    results: u64,
    /// What was told and is not in the ledgers of column keys yet.
    told: Told,
}

impl Session {
    /// A session under a ticket, which the caller has checked. `ledger` has the counts of earlier
    /// sessions under the ticket and goes on counting; `name` is the one that its client gives
    /// itself.
    #[must_use]
    pub fn new(id: [u8; 16], ticket: Ticket, ledger: Ledger, name: Arc<str>) -> Self {
        Self {
            id,
            ticket,
            ledger,
            name,
            results: 0,
            told: Told::default(),
        }
    }

    /// The name that the client gives itself.
    #[must_use]
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns what was told since the last call, for the ledgers of column keys.
    pub(crate) fn take_told(&mut self) -> Told {
        core::mem::take(&mut self.told)
    }

    /// The number of the next result that is sealed for the session's client. No number is given
    /// twice.
    pub(crate) fn next_result(&mut self) -> SealedBy {
        self.results = self.results.saturating_add(1);
        SealedBy::Session {
            session: self.id,
            serial: self.results,
        }
    }

    /// Replaces the session's ticket. The caller has checked that it has the same id and keys.
    pub(crate) fn renew(&mut self, ticket: Ticket) {
        self.ticket = ticket;
    }

    /// The session's identifier, random bytes that were drawn when the session was opened.
    #[must_use]
    pub const fn id(&self) -> &[u8; 16] {
        &self.id
    }

    /// The ticket.
    #[must_use]
    pub const fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// The ticket's counts of answers, shared by all its sessions.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The first key of the ticket. It is used where nothing else names a key: for new columns, for
    /// computed values that leave the zone, and for values that come in clear. `None` if the ticket
    /// names none.
    #[must_use]
    pub fn first_key(&self) -> Option<KeyId> {
        self.ticket.keys.first().copied()
    }

    /// Whether the ticket names this key.
    #[must_use]
    pub fn names(&self, key: &KeyId) -> bool {
        self.ticket.keys.contains(key)
    }

    /// Checks that the ticket is valid now and gives all rights in `wanted` (bits) on all of these
    /// keys. Takes nothing from a budget.
    ///
    /// # Errors
    /// [`Fault::NotAllowed`] if not; the ledger counts it as a refusal.
    pub fn allow(&mut self, wanted: u32, keys: &[KeyId]) -> Result<(), Fault> {
        self.allow_at(wanted, keys, now())
    }

    /// Checks that the ticket is valid at `now`, seconds since 1970, and gives all rights in
    /// `wanted` (bits) on all of these keys. `Fault::NotAllowed` otherwise, which the ledger counts
    /// as a refusal.
    fn allow_at(&mut self, wanted: u32, keys: &[KeyId], now: u64) -> Result<(), Fault> {
        let given = self.ticket.rights & wanted == wanted;
        let named = keys.iter().all(|key| self.ticket.keys.contains(key));
        let valid = (self.ticket.not_before..=self.ticket.not_after).contains(&now);
        if given && named && valid {
            return Ok(());
        }
        self.ledger.count_refusal();
        Err(Fault::NotAllowed)
    }

    /// Counts a refusal in the ledger.
    pub(crate) fn count_refusal(&self) {
        self.ledger.count_refusal();
    }

    /// Counts in the ledger `count` truths (results of comparisons that the server learns), before
    /// they are given.
    ///
    /// # Errors
    /// [`Fault::BudgetSpent`] if the ticket does not have as many left; then none may be given, and
    /// the ledger counts a refusal.
    pub fn spend_truths(&mut self, count: u64) -> Result<(), Fault> {
        self.check_budget(count)?;
        self.ledger.count_truths(count);
        self.told.add(Told::truths(count));
        Ok(())
    }

    /// Counts one answer that shows whether a computation has failed, before it is given: an
    /// overflow or a division shows whether a value is above a limit of its type, or zero, as a
    /// comparison does.
    ///
    /// # Errors
    /// [`Fault::BudgetSpent`] if the ticket has no truths left, whose budget it shares.
    pub fn spend_check(&mut self) -> Result<(), Fault> {
        self.check_budget(1)?;
        self.ledger.count_check();
        self.told.checks = self.told.checks.saturating_add(1);
        Ok(())
    }

    /// Checks that the ticket has as many truths left. Takes nothing from the budget.
    ///
    /// # Errors
    /// [`Fault::BudgetSpent`] if not; the ledger counts a refusal.
    pub fn check_budget(&self, count: u64) -> Result<(), Fault> {
        let spent = self.ledger.truths().saturating_add(self.ledger.checks());
        if self.ticket.truths != u64::MAX && spent.saturating_add(count) > self.ticket.truths {
            self.ledger.count_refusal();
            return Err(Fault::BudgetSpent);
        }
        Ok(())
    }

    /// Counts one value in the ledger, before it is sealed or given in clear.
    /// [`Ledger::count_output_bytes`] counts its length, which is known later and not limited.
    ///
    /// # Errors
    /// [`Fault::BudgetSpent`] if the ticket has no output left; the ledger counts a refusal.
    pub fn spend_output(&mut self) -> Result<(), Fault> {
        let spent = self.ledger.outputs().saturating_add(1);
        if self.ticket.outputs != u64::MAX && spent > self.ticket.outputs {
            self.ledger.count_refusal();
            return Err(Fault::BudgetSpent);
        }
        self.ledger.count_output();
        self.told.outputs = self.told.outputs.saturating_add(1);
        Ok(())
    }

    /// Counts in the ledgers that the value of which [`Self::spend_output`] was told is given in
    /// clear.
    pub(crate) fn count_declassified(&mut self) {
        self.ledger.count_declassified(1);
        self.told.declassified = self.told.declassified.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongroom_format::columns::channel::right;

    fn session(truths: u64, outputs: u64) -> Session {
        let ticket = Ticket {
            rights: right::COMPARE,
            ticket_id: [0; 16],
            not_before: 10,
            not_after: 20,
            truths,
            outputs,
            keys: vec![[1; 16], [2; 16]],
        };
        Session::new([9; 16], ticket, Ledger::new(), Arc::from("test"))
    }

    #[test]
    fn what_the_ticket_does_not_name_is_refused_and_counted() {
        let mut session = session(5, 5);
        assert_eq!(
            session.allow_at(right::COMPARE, &[[1; 16], [2; 16]], 15),
            Ok(())
        );
        let refused = [
            session.allow_at(right::COMPUTE, &[[1; 16]], 15),
            session.allow_at(right::COMPARE | right::OUTPUT, &[[1; 16]], 15),
            session.allow_at(right::COMPARE, &[[3; 16]], 15),
            session.allow_at(right::COMPARE, &[[1; 16], [3; 16]], 15),
            session.allow_at(right::COMPARE, &[[1; 16]], 9),
            session.allow_at(right::COMPARE, &[[1; 16]], 21),
        ];
        assert!(
            refused
                .iter()
                .all(|answer| *answer == Err(Fault::NotAllowed))
        );
        assert_eq!(session.ledger().refusals(), 6);
    }

    #[test]
    fn a_budget_is_spent_once() {
        let mut limited = session(5, 1);
        assert_eq!(limited.spend_truths(5), Ok(()));
        assert_eq!(limited.spend_truths(1), Err(Fault::BudgetSpent));
        assert_eq!(limited.spend_output(), Ok(()));
        assert_eq!(limited.spend_output(), Err(Fault::BudgetSpent));
        // An error of computing is an answer like any other.
        let mut both = session(3, 1);
        assert_eq!((both.spend_check(), both.spend_truths(2)), (Ok(()), Ok(())));
        assert_eq!(both.spend_check(), Err(Fault::BudgetSpent));
        assert_eq!(both.spend_truths(1), Err(Fault::BudgetSpent));
        let mut free = session(u64::MAX, u64::MAX);
        assert_eq!(free.spend_truths(u64::MAX), Ok(()));
        assert_eq!(
            free.spend_truths(u64::MAX),
            Ok(()),
            "no limit, and no overflow"
        );
    }
}
