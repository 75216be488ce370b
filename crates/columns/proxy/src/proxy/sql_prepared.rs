//! Statements that the client has prepared by SQL's `PREPARE`, whose `EXECUTE` carries constants.
//!
//! `PREPARE` is passed on only if none of its parameters is confidential, so the constants of an
//! `EXECUTE` are plain as long as that has not changed. Must not: count a statement as plain whose
//! text is not known.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::upstream::{Outcome, Upstream};
use crate::sql::catalog::Catalog;
use crate::sql::refusal::Refusal;
use crate::sql::{self, Plan, QueryName};

/// The most texts that are kept for one name.
const TEXTS_MAX: usize = 64;

/// The most names whose statements have ended that are kept, so that the server itself says of an
/// `EXECUTE` that there is no such statement.
const OVER_MAX: usize = 256;

/// The texts of `PREPARE` by the names of their statements. A name may have several: whether the
/// server has made a statement is not followed.
#[derive(Default)]
pub(super) struct SqlPrepared(BTreeMap<String, Texts>);

struct Texts {
    /// Each with the number of the last statement that had it.
    all: BTreeMap<String, u64>,
    /// The catalog that the last one was planned with.
    catalog: Arc<Catalog>,
    /// Whether the server has completed what ends all of them.
    is_over: bool,
}

impl SqlPrepared {
    /// Keeps the text of a `PREPARE` that is about to be sent.
    fn add(&mut self, name: &str, text: &str, number: u64, catalog: Arc<Catalog>) {
        let texts = self.0.entry(name.to_owned()).or_insert_with(|| Texts {
            all: BTreeMap::new(),
            catalog: Arc::clone(&catalog),
            is_over: false,
        });
        texts.catalog = catalog;
        if std::mem::take(&mut texts.is_over) {
            texts.all.clear();
        }
        // One more makes the name one whose statements are not all known.
        if texts.all.len() <= TEXTS_MAX {
            texts.all.insert(text.to_owned(), number);
        }
    }

    /// Returns the only text of the name if it was planned with another catalog than this one,
    /// with which it counts as planned from now on.
    fn outdated(&mut self, name: &str, catalog: &Arc<Catalog>) -> Option<String> {
        let texts = self.0.get_mut(name).filter(|texts| !texts.is_over)?;
        let before = std::mem::replace(&mut texts.catalog, Arc::clone(catalog));
        let mut all = texts.all.keys();
        let only = all.next().filter(|_| all.next().is_none())?;
        (!Arc::ptr_eq(&before, catalog)).then(|| only.clone())
    }

    /// Returns the texts that the name may stand for: none if not all of them are known.
    fn texts(&self, name: &str) -> impl Iterator<Item = &str> {
        let known = self.0.get(name).map(|texts| &texts.all);
        let known = known.filter(|all| all.len() <= TEXTS_MAX);
        known.into_iter().flatten().map(|(text, _)| text.as_str())
    }

    /// Forgets the texts of statements that have ended, of which `is_ended` is told the name and
    /// the number. Some names are kept with the texts that they had.
    pub(super) fn forget(&mut self, is_ended: impl Fn(&[u8], u64) -> bool) {
        for (name, texts) in &mut self.0 {
            let is_ended = |number: &u64| is_ended(name.as_bytes(), *number);
            if texts.all.values().all(is_ended) {
                texts.is_over = true;
            } else {
                texts.all.retain(|_, number| !is_ended(number));
            }
        }
        let over = self.0.values().filter(|texts| texts.is_over).count();
        let mut surplus = over.saturating_sub(OVER_MAX);
        self.0.retain(|_, texts| {
            let is_surplus = texts.is_over && surplus > 0;
            surplus = surplus.saturating_sub(usize::from(is_surplus));
            !is_surplus
        });
    }

    /// Returns whether a text of the name was dropped because there are too many.
    fn is_crowded(&self, name: &str) -> bool {
        self.0
            .get(name)
            .is_some_and(|texts| texts.all.len() > TEXTS_MAX)
    }
}

impl Upstream {
    /// Notes a `PREPARE`, and checks an `EXECUTE` with constants: fails with SR-8103 if one of the
    /// parameters of its statement is confidential, or the statement is not known.
    pub(super) fn check_sendable(&mut self, plan: &Plan) -> Outcome {
        if let Some(name) = &plan.prepares {
            let number = self.endings.number();
            let catalog = self.catalog();
            self.sql_prepared.add(name, &plan.sql, number, catalog);
        }
        match &plan.executes {
            Some(name) if !self.takes_plain_constants(name)? => {
                let message = "EXECUTE with constants: the statement's parameters are, or may be, confidential";
                let hint =
                    "Use the driver's own prepared statements: their parameters are encrypted.";
                Err(Refusal::statement(message, hint).into())
            }
            _ => Ok(()),
        }
    }

    /// Plans a statement that the client has made by SQL again if the catalog has changed, so that
    /// its rows are expected to be what they are by the catalog now. What cannot be planned, and a
    /// name that may have several texts, keeps what was expected.
    pub(super) fn plan_prepared_again(&mut self, name: &str) {
        let catalog = self.catalog();
        let mut by_driver = self.statements.named(name.as_bytes()).iter();
        if by_driver.any(|statement| !statement.text.is_empty()) {
            return;
        }
        let Some(text) = self.sql_prepared.outdated(name, &catalog) else {
            return;
        };
        let plans = sql::plan(&text, &catalog, 0).ok();
        if let Some(plan) = plans.and_then(|mut plans| plans.pop()) {
            let name = QueryName::Prepared(name.to_owned());
            self.named_queries.expect_now(&name, &plan.expected);
        }
    }

    /// Checks that a statement that the client has made by SQL, and gives values to by the
    /// protocol, takes plain ones only. Fails with SR-8103 if it does not, or is not known; the
    /// server's word is not enough.
    pub(super) fn check_sql_parameters(&mut self, name: &[u8]) -> Outcome {
        let name = String::from_utf8_lossy(name);
        if !self.catalog().is_confidential() || self.takes_plain_constants(&name)? {
            return Ok(());
        }
        let message =
            "parameters of a statement that was prepared by SQL: they are, or may be, confidential";
        let hint = "Have the driver prepare the statement: its parameters are encrypted then.";
        Err(Refusal::statement(message, hint).into())
    }

    /// Returns whether every statement that the name may stand for has plain parameters only, as
    /// the catalog is now.
    fn takes_plain_constants(&mut self, name: &str) -> Outcome<bool> {
        // A relation that was dropped may be there again.
        Ok(self.seem_plain(name) || (self.refresh(true)? && self.seem_plain(name)))
    }

    /// Returns the same by the catalog as it was read last.
    fn seem_plain(&self, name: &str) -> bool {
        let catalog = self.catalog();
        let is_plain = |text: &str| has_plain_parameters(text, &catalog);
        // One that the proxy has described by its name alone was made by SQL.
        let by_driver = self.statements.named(name.as_bytes()).iter();
        let by_driver = by_driver.filter(|statement| !statement.text.is_empty());
        let by_driver = by_driver.map(|statement| std::str::from_utf8(&statement.text).ok());
        let by_sql = self.sql_prepared.texts(name).map(Some);
        let mut all = by_sql.chain(by_driver).peekable();
        all.peek().is_some()
            && !self.sql_prepared.is_crowded(name)
            && all.all(|text| text.is_some_and(is_plain))
    }
}

/// Returns whether every parameter of the text may get a value in clear. One that is structure may
/// only get a number or the name of a field, which nobody checks in an EXECUTE.
fn has_plain_parameters(text: &str, catalog: &Catalog) -> bool {
    let has_plain = |plan: &Plan| {
        plan.confidential.is_empty() && plan.constants.is_empty() && plan.structural.is_empty()
    };
    sql::plan(text, catalog, 0).is_ok_and(|plans| plans.iter().all(has_plain))
}

#[cfg(test)]
mod tests {
    use super::has_plain_parameters;
    use crate::sql::tests::catalog;

    #[test]
    fn a_parameter_that_is_structure_is_none_that_gets_any_value_in_clear() {
        let catalog = catalog(&["p(id, name text, born date)", "plain(id, n)"]);
        for text in [
            "PREPARE s(text) AS SELECT substring(name, $1) FROM p",
            "PREPARE s(text) AS SELECT date_trunc($1, born) FROM p",
            "PREPARE s(text) AS SELECT 1 FROM p WHERE name = $1",
        ] {
            assert!(!has_plain_parameters(text, &catalog), "{text}");
        }
        for text in [
            "PREPARE s(text) AS SELECT substring(n, $1) FROM plain",
            "PREPARE s(int) AS SELECT left(name, 2) FROM p WHERE id = $1",
        ] {
            assert!(has_plain_parameters(text, &catalog), "{text}");
        }
    }
}
