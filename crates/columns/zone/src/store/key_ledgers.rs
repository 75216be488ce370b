//! The ledgers of column keys are as durable as the store: they are in its manifest.
//!
//! Invariant A8 of docs/internals/columns.md. Must not: tell anything.

use std::sync::Arc;

use strongroom_columns_ring::Fault;
use strongroom_format::columns::channel::Limit;
use strongroom_keyring::Error;

use super::Store;
use crate::clock::now;
use crate::key_ledger::{KeyLedgers, LedgerBook, To, Told};

impl Store {
    /// The ledgers of the column keys that are kept, and of those that have a limit.
    pub(crate) const fn key_ledgers(&self) -> &KeyLedgers {
        &self.key_ledgers
    }

    /// Counts what is about to be told in the ledgers of these keys. Makes a checkpoint first where
    /// the last one counts less of a limit as spent, and has it count a sixteenth more of the
    /// limit.
    ///
    /// # Errors
    /// [`Fault::BudgetSpent`] if one of the keys does not have as much left; those of
    /// [`Store::checkpoint`]. Then nothing may be told.
    pub fn charge(&mut self, keys: &[[u8; 16]], to: To<'_>, told: Told) -> Result<(), Fault> {
        if self.key_ledgers.charge(keys, to, told, now)? {
            self.key_ledgers.reserve(keys);
            let done = self.checkpoint_in_place();
            done.map_err(|error| self.report(error))?;
        }
        Ok(())
    }

    /// Makes a checkpoint, as [`Store::checkpoint`] does, after which nothing of a limit is counted
    /// as spent that was not: the last one of this start.
    ///
    /// # Errors
    /// Those of [`Store::checkpoint`].
    pub fn last_checkpoint(&mut self) -> Result<(), Error> {
        self.key_ledgers.give_back_reserves();
        self.checkpoint_in_place()
    }
}

impl LedgerBook for Store {
    fn to_json(&self, keys: &[[u8; 16]]) -> String {
        LedgerBook::to_json(&self.key_ledgers, keys)
    }

    /// Sets the limit of a key, durably.
    fn set_limit(&mut self, limit: &Limit) -> Result<(), Fault> {
        LedgerBook::set_limit(&mut self.key_ledgers, limit)?;
        let done = self.checkpoint_in_place();
        done.map_err(|error| self.report(error))
    }

    fn note_session(&mut self, keys: &[[u8; 16]], name: &Arc<str>) {
        LedgerBook::note_session(&mut self.key_ledgers, keys, name);
    }
}
