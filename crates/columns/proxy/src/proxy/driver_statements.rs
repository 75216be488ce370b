//! The prepared statements that the client's driver has made by Parse, by their names.
//!
//! What the client was told that failed, or that the server skipped because of an earlier error,
//! has not happened: a name means what it meant before. Must not: keep what was never made, or
//! forget what the client was told was made.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::statement::Statement;

#[derive(Default)]
pub(super) struct DriverStatements {
    /// Those of each name, the newest last. Older ones are kept because the server may fail to make
    /// the newer ones.
    all: BTreeMap<Vec<u8>, Vec<Arc<Statement>>>,
    /// Those that were not answered when they were looked at last, the oldest first.
    unanswered: VecDeque<(Vec<u8>, Arc<Statement>)>,
}

impl DriverStatements {
    /// Returns all that the name may stand for.
    pub(super) fn named(&self, name: &[u8]) -> &[Arc<Statement>] {
        self.all.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns the newest statement of this name that the server has not refused to make, as far as
    /// that is known without waiting. `None` if there is none.
    pub(super) fn known(&self, name: &[u8]) -> Option<Arc<Statement>> {
        let mut newest = self.named(name).iter().rev();
        newest.find(|known| !known.is_refused()).cloned()
    }

    /// Returns the only statement that the name can stand for when the server executes what is sent
    /// now. The server drops the unnamed statement before it makes another, and skips what comes
    /// behind one that it does not make.
    pub(super) fn only(&self, name: &[u8]) -> Option<Arc<Statement>> {
        match self.named(name) {
            [only] => Some(Arc::clone(only)),
            several if name.is_empty() => several.last().map(Arc::clone),
            _ => None,
        }
    }

    /// Adds a statement that is being made. Returns names of which nothing is left.
    pub(super) fn add(&mut self, name: &[u8], statement: Statement) -> Vec<Vec<u8>> {
        let mut left = Vec::new();
        while let Some((name, first)) = self.unanswered.pop_front() {
            if first.slot.get().is_none() {
                self.unanswered.push_front((name, first));
                break;
            }
            self.settle(&name);
            left.push(name);
        }
        self.settle(name);
        let statement = Arc::new(statement);
        self.unanswered
            .push_back((name.to_vec(), Arc::clone(&statement)));
        let named = self.all.entry(name.to_vec()).or_default();
        let made = named
            .iter()
            .rposition(|known| matches!(known.slot.get(), Some(Some(_))));
        named.drain(..made.unwrap_or(0));
        named.push(statement);
        left.retain(|name| !self.all.contains_key(name));
        left
    }

    /// Has the name stand for this statement only.
    pub(super) fn replace(&mut self, name: &[u8], statement: Statement) {
        self.all.insert(name.to_vec(), vec![Arc::new(statement)]);
    }

    /// Forgets the statements of the name that the client was told were not made, and those before
    /// the unnamed one that it was told was made.
    pub(super) fn settle(&mut self, name: &[u8]) {
        let Some(named) = self.all.get_mut(name) else {
            return;
        };
        named.retain(|known| !known.is_refused() || known.is_made());
        if name.is_empty() {
            let made = named.iter().rposition(|known| known.is_made());
            named.drain(..made.unwrap_or(0));
        }
        if named.is_empty() {
            self.all.remove(name);
        }
    }

    /// Forgets the statements of the name.
    pub(super) fn remove(&mut self, name: &[u8]) {
        self.all.remove(name);
    }

    /// Forgets statements that have ended, of which `is_ended` is told the name and the number.
    pub(super) fn forget(&mut self, is_ended: impl Fn(&[u8], u64) -> bool) {
        self.all.retain(|name, named| {
            named.retain(|statement| !is_ended(name, statement.number));
            !named.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::sync::atomic::Ordering;

    use super::super::session::{Description, DescriptionSlot};
    use super::*;
    use crate::sql::catalog::Catalog;

    fn statement(number: u64) -> (Statement, DescriptionSlot) {
        let slot: DescriptionSlot = Arc::new(OnceLock::new());
        let catalog = Arc::new(Catalog::default());
        let made = Statement::of_sql(b"s", (number, Arc::clone(&slot)), catalog);
        (made, slot)
    }

    /// Drivers give each statement a name of its own, or the same one to each of a text.
    #[test]
    fn statements_that_were_never_made_are_forgotten() {
        let mut statements = DriverStatements::default();
        for number in 0..100 {
            for name in ["s".to_owned(), format!("s{number}"), String::new()] {
                let (made, slot) = statement(number);
                drop(statements.add(name.as_bytes(), made));
                slot.get_or_init(|| None);
            }
        }
        let count: usize = statements.all.values().map(Vec::len).sum();
        assert!(count <= 3, "{count}");
        assert!(statements.unanswered.len() <= 3);
    }

    #[test]
    fn a_name_means_what_the_client_was_told() {
        for name in [&b"s"[..], b""] {
            let mut statements = DriverStatements::default();
            let add = |statements: &mut DriverStatements, number, is_told, is_described: bool| {
                let (made, slot) = statement(number);
                made.is_made.store(is_told, Ordering::Release);
                drop(statements.add(name, made));
                slot.get_or_init(|| is_described.then(Description::default));
                statements.settle(name);
            };
            let numbers = |statements: &DriverStatements| {
                let named = statements.named(name).iter();
                named.map(|known| known.number).collect::<Vec<_>>()
            };
            add(&mut statements, 1, true, true);
            add(&mut statements, 2, false, false);
            assert_eq!(numbers(&statements), [1], "the second was not made");
            // It was made, and the server did not describe it.
            add(&mut statements, 3, true, false);
            let both = if name.is_empty() { &[3][..] } else { &[1, 3] };
            assert_eq!(numbers(&statements), both);
        }
    }
}
