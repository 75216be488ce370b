//! What statements of the owner do to functions with confidential arguments or results.
//!
//! Must not: decide whether they are carried out.

use std::collections::BTreeSet;

use super::fate::Outcome;
use crate::sql::changes::Changes;

/// Functions that statements make, change or drop, by their names.
#[derive(Clone, Debug, Default)]
pub(super) struct ChangedFunctions {
    /// Those that counted as confidential before the statements.
    before: BTreeSet<String>,
    /// Those that do once the statements are done.
    after: BTreeSet<String>,
}

impl ChangedFunctions {
    /// Returns what one statement does. `known` are the functions that count as confidential,
    /// `pending` is what earlier statements of the transaction do.
    pub(super) fn of<'k>(
        changes: &Changes,
        known: impl Iterator<Item = &'k str>,
        pending: &Self,
    ) -> Self {
        let before = known.filter(|name| changes.has_function(name));
        let before: BTreeSet<String> = before.map(str::to_owned).collect();
        let made = changes.made_functions.iter();
        let made = made.filter(|made| {
            // One that is made takes the place of none with other arguments.
            let was = |name: &String| before.contains(name) || pending.after.contains(name);
            made.is_confidential || was(&made.name) || made.was.as_ref().is_some_and(was)
        });
        Self {
            after: made.map(|made| made.name.clone()).collect(),
            before,
        }
    }

    /// Adds what a later statement with these changes does.
    pub(super) fn join(&mut self, changes: &Changes, later: Self) {
        self.after.retain(|name| !changes.has_function(name));
        self.before.extend(later.before);
        self.after.extend(later.after);
    }

    /// Returns whether there is none that counts as confidential; for other connections also by
    /// what was before the statements.
    pub(super) fn is_empty(&self, is_own: bool) -> bool {
        self.after.is_empty() && (is_own || self.before.is_empty())
    }

    /// Returns those that count as confidential while the statements are under way, for their own
    /// connection or another one.
    pub(super) fn counting(&self, is_own: bool, outcome: Outcome) -> impl Iterator<Item = &String> {
        let (before, after) = match (outcome, is_own) {
            (Outcome::Unclear, _) => (false, false),
            (Outcome::Kept, true) => (false, true),
            (Outcome::Undone, true) => (true, false),
            // Until their transaction is over either is there.
            (Outcome::Kept | Outcome::Undone, _) => (true, true),
        };
        let before = self.before.iter().filter(move |_| before);
        before.chain(self.after.iter().filter(move |_| after))
    }

    /// Returns those that count as confidential once the statements are over.
    pub(super) fn left(self, outcome: Outcome) -> BTreeSet<String> {
        match outcome {
            Outcome::Kept => self.after,
            Outcome::Undone => self.before,
            Outcome::Unclear => BTreeSet::new(),
        }
    }
}
