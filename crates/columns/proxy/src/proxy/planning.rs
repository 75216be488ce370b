//! Keeps the catalog fresh, and plans the client's statements with it.
//!
//! Must not: send anything but the query of the catalog.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::PlaintextConstants;
use super::convert::{Converter, server_type_oid};
use super::startup::{unkept, unread_catalog};
use super::statement::{Planned, Statement};
use super::upstream::{Failure, Outcome, Upstream};
use crate::envelope;
use crate::relations::Standing;
use crate::sql::catalog::Catalog;
use crate::sql::catalog_query::CATALOG_QUERY;
use crate::sql::refusal::Refusal;
use crate::sql::{self, ComparableColumn, Constant, Plan};

/// Returns whether the text is one statement that has no constants of tables: one that sets
/// something, or begins or ends a transaction. Comments may stand before it.
pub(super) fn is_setting(text: &[u8]) -> bool {
    const WORDS: [&[u8]; 5] = [b"set", b"begin", b"start", b"savepoint", b"release"];
    begins_with(text, &WORDS) || begins_with(text, &ENDS)
}

/// The words with which statements begin that end a failed transaction.
const ENDS: [&[u8]; 4] = [b"commit", b"end", b"rollback", b"abort"];

/// Returns whether the first statement of a text ends a failed transaction.
fn ends_transaction(text: &[u8]) -> bool {
    let text = without_leading_comments(text);
    let end = text.iter().position(|byte| !byte.is_ascii_alphabetic());
    let word = &text[..end.unwrap_or(text.len())];
    ENDS.iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// Returns whether a text has no statement, which a failed transaction answers, too: white space,
/// comments and semicolons. Perhaps it has one if comments have others in them.
fn has_no_statement(text: &[u8]) -> bool {
    let mut rest = without_leading_comments(text);
    while let Some(after) = rest.strip_prefix(b";") {
        rest = without_leading_comments(after);
    }
    rest.is_empty()
}

/// Returns whether a text is PREPARE TRANSACTION alone, which ends a failed transaction, too. The
/// name that it gives one is its only constant.
fn prepares_transaction(text: &[u8]) -> bool {
    begins_with(text, &[b"prepare"])
        && std::str::from_utf8(text).is_ok_and(sql::prepares_transaction)
}

/// Returns whether a text that was refused may have been a COPY from the client.
fn mentions_copy(text: &[u8]) -> bool {
    sql::mentions(text, b"copy") && sql::mentions(text, b"stdin")
}

/// Returns whether the text has constants or parameters, or cannot be read.
fn has_values(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    sql::has_constant(&text) || text.contains('$')
}

/// Returns whether the text is one statement that begins with one of these words. Comments may
/// stand before it.
fn begins_with(text: &[u8], words: &[&[u8]]) -> bool {
    let text = without_leading_comments(text).trim_ascii_end();
    let text = text.strip_suffix(b";").unwrap_or(text);
    let end = text.iter().position(|byte| !byte.is_ascii_alphabetic());
    let word = &text[..end.unwrap_or(text.len())];
    words.iter().any(|known| word.eq_ignore_ascii_case(known)) && !text.contains(&b';')
}

/// Returns the text from its first byte on that is neither white space nor in a comment; nothing if
/// a comment has another one in it.
fn without_leading_comments(text: &[u8]) -> &[u8] {
    let mut rest = text.trim_ascii_start();
    loop {
        let end: &[u8] = match rest {
            [b'-', b'-', ..] => b"\n",
            [b'/', b'*', ..] => b"*/",
            _ => return rest,
        };
        let place = |part: &[u8]| rest.windows(part.len()).skip(2).position(|at| at == part);
        let behind = match place(end) {
            Some(at) if end == b"\n" || place(b"/*").is_none_or(|nested| nested > at) => {
                rest.get(at.saturating_add(2).saturating_add(end.len())..)
            }
            _ => None,
        };
        rest = behind.unwrap_or_default().trim_ascii_start();
    }
}

/// The longest time that a catalog is used without reading it again.
const CATALOG_AGE_MAX: Duration = Duration::from_secs(10);

impl Upstream {
    /// Returns the catalog that statements are planned with now.
    pub(super) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.session.lock().catalog)
    }

    /// Whether the catalog is to be read again before the next statement.
    fn is_due(&self) -> bool {
        self.defined
            || self.read_within && self.is_transaction_over()
            || self.shared.epoch.load(Ordering::Acquire) != self.epoch
            || self.catalog_read.elapsed() > CATALOG_AGE_MAX
    }

    /// Whether the transaction is over, as far as the server or the client says.
    fn is_transaction_over(&self) -> bool {
        let state = self.session.lock();
        state.transaction == b'I' || !state.is_open
    }

    /// Whether the server says that a transaction is open although the client has begun none. An
    /// honest one may: the client's statement may be one that the proxy does not read.
    fn is_transaction_claimed(&self) -> bool {
        let state = self.session.lock();
        state.transaction == b'T' && !state.is_open
    }

    /// Reads the catalog again if it is due or with `force`, and where that is possible: not in a
    /// pipeline, nor in a failed transaction; in an open transaction only with `force` or after a
    /// definition, because a query of the proxy's own would precede the client's SET TRANSACTION.
    /// Returns whether it tried. If a pinned column is plain, all statements are refused from then
    /// on (SR-8106).
    pub(super) fn refresh(&mut self, force: bool) -> Outcome<bool> {
        let epoch = self.shared.epoch.load(Ordering::Acquire);
        if self.in_pipeline || !(self.is_due() || force) {
            return Ok(false);
        }
        self.flush()?;
        if !self.session.wait(|state| state.pending_answers.is_empty()) {
            return Err(Failure::Skipped);
        }
        let transaction = self.session.lock().transaction;
        if transaction != b'I' && !(transaction == b'T' && (self.defined || force)) {
            return Ok(false);
        }
        let asked = Instant::now();
        let Some(rows) = &self.query_own(CATALOG_QUERY)? else {
            // Without it a column that has become confidential would be taken for a plain one.
            return Err(unread_catalog().into());
        };
        let mut catalog = Catalog::from_rows(rows);
        catalog.set_names(Arc::clone(&self.names));
        catalog.set_provisional(transaction != b'I');
        self.denied = catalog.pin(&self.shared.pinned).err().map(Refusal::denied);
        let standing = match (transaction, self.session.lock().is_open) {
            (_, true) => Standing::Open,
            (b'I', false) => Standing::Settled,
            _ => Standing::Claimed,
        };
        let kept = self
            .relations
            .check(&self.names.database, (standing, asked), &mut catalog);
        if let Err(error) = kept {
            self.denied.get_or_insert_with(|| unkept(&error));
        }
        // An unchanged catalog stays the same object, so that statements planned with it need
        // no new check.
        let mut state = self.session.lock();
        if self.denied.is_none() && *state.catalog != catalog {
            state.catalog = Arc::new(catalog);
        }
        drop(state);
        // In an open transaction no other connection sees the change yet, and this one may not
        // see those of others: reading it again would not tell more.
        let is_within = transaction != b'I';
        self.read_within = is_within && (self.read_within || self.is_due());
        self.defined = false;
        self.epoch = epoch;
        if !is_within {
            self.catalog_read = Instant::now();
        }
        Ok(true)
    }

    /// Plans the client's SQL with a catalog that is read again where necessary: returns the
    /// statements to be sent, and makes a catalog with their definitions the current one. Empty if
    /// the text cannot be planned and the database has nothing confidential: then it is sent as it
    /// is. Fails with the refusals of [`sql::plan`] and with SR-8106; in a database with
    /// confidential types also with 22021 if the text is not UTF-8 and may name something
    /// confidential, and with SR-8103 if `standard_conforming_strings` is off and the text does not
    /// set it.
    pub(super) fn plan_statements(&mut self, text: &[u8], declared: usize) -> Outcome<Vec<Plan>> {
        let planned = self.plan_text(text, declared);
        let copies = match &planned {
            Ok(plans) => plans.iter().any(Plan::may_copy_from_client),
            Err(_) => mentions_copy(text),
        };
        if copies {
            self.session.lock().copy_doubted = true;
        }
        planned
    }

    /// Plans the client's SQL as [`Self::plan_statements`] does, but for the note of a COPY.
    fn plan_text(&mut self, text: &[u8], declared: usize) -> Outcome<Vec<Plan>> {
        let is_answered = ends_transaction(text) || has_no_statement(text);
        if (!is_answered || has_values(text)) && !prepares_transaction(text) {
            self.check_transaction()?;
        }
        // Another connection has changed the schema: what it has made confidential counts within an
        // open transaction, too. A setting may have to be the transaction's first statement.
        let is_told = self.shared.epoch.load(Ordering::Acquire) != self.epoch;
        // Nor may the server's word that a transaction is open, which the client has not begun,
        // keep the catalog as it is.
        let is_claimed = self.is_due() && self.is_transaction_claimed();
        self.refresh((is_told || is_claimed) && !is_setting(text))?;
        if let Some(refusal) = &self.denied {
            return Err(refusal.clone().into());
        }
        let catalog = self.catalog();
        self.check_is_no_data(text, &catalog)?;
        let text = match std::str::from_utf8(text) {
            Ok(text) => text,
            Err(_) if !catalog.is_confidential() => return Ok(Vec::new()),
            Err(_) => return Ok(vec![self.plan_undecoded(text)?]),
        };
        if catalog.is_confidential()
            && let Some(plan) = self.check_strings(text, &catalog)?
        {
            return Ok(vec![plan]);
        }
        if !catalog.has_types() {
            self.check_extension(text)?;
        }
        let mut plans = match sql::plan(text, &catalog, declared) {
            Err(_) if !catalog.is_confidential() => return Ok(Vec::new()),
            Err(refusal) if refusal.of_unknown && self.refresh(true)? => {
                if let Some(refusal) = &self.denied {
                    return Err(refusal.clone().into());
                }
                sql::plan(text, &self.catalog(), declared)?
            }
            other => other?,
        };
        if catalog.is_confidential() && plans.len() > 1 && may_end_standard_strings(text) {
            return Err(strings_refusal().into());
        }
        let due = plans
            .iter()
            .any(|plan| plan.unread || !plan.unknown.is_empty());
        if due && self.refresh(true)? {
            if let Some(refusal) = &self.denied {
                return Err(refusal.clone().into());
            }
            plans = sql::plan(text, &self.catalog(), declared)?;
        }
        for plan in &mut plans {
            self.seal_kept(plan)?;
        }
        // Later statements of the same pipeline are planned before the catalog can be read again.
        if let Some(defined) = plans.last().and_then(|plan| plan.defined.clone()) {
            self.session.lock().catalog = defined;
            // Whether it will be executed is not known.
            self.defined |= plans.iter().any(|plan| plan.effects.defines);
        }
        Ok(plans)
    }

    /// Checks a text that comes after a COPY from the client of which nobody knows that it has
    /// succeeded: clients send the lines of one that has failed as statements. Fails with 42601 for
    /// one that cannot be parsed.
    fn check_is_no_data(&self, text: &[u8], catalog: &Catalog) -> Outcome {
        if !(catalog.is_confidential() && self.session.lock().copy_doubted) {
            return Ok(());
        }
        let text = String::from_utf8_lossy(text);
        match pg_query::parse(&text, pg_query::ParserOptions::default()) {
            Err(pg_query::Error::Parse(message)) => Err(Refusal::syntax(&message).into()),
            _ => Ok(()),
        }
    }

    /// Plans a text that is not UTF-8, in a database with confidential types. The catalog is read
    /// again, because which relations the text names is not known. Fails with 22021 if it may name
    /// something confidential, and with SR-8106.
    fn plan_undecoded(&mut self, text: &[u8]) -> Outcome<Plan> {
        self.refresh(true)?;
        if let Some(refusal) = &self.denied {
            return Err(refusal.clone().into());
        }
        self.strings_doubted |= may_end_standard_strings(&String::from_utf8_lossy(text));
        sql::plan_undecoded(text, &self.catalog()).ok_or_else(undecoded)
    }

    /// Puts the envelopes of a definition's constants into its text. Fails with SR-8104 if a value
    /// is not valid for its type.
    fn seal_kept(&self, plan: &mut Plan) -> Outcome {
        if plan.kept.is_empty() {
            return Ok(());
        }
        let settings = self.session.lock().settings.clone();
        let converter = Converter::new(&self.shared.keys, &settings);
        for constant in std::mem::take(&mut plan.kept) {
            let converter = converter.storing_in(constant.column);
            let sealed = converter.seal_text(constant.kind, constant.literal.text.as_bytes())?;
            let envelope = envelope::to_text(&sealed);
            plan.sql = plan.sql.replace(&constant.placeholder, &envelope);
        }
        Ok(())
    }

    /// Checks a text in a database without the extension. Fails with SR-8103 for one that makes the
    /// extension together with other statements, and for what follows it in its pipeline: their
    /// constants may be for columns that are confidential then.
    fn check_extension(&mut self, text: &str) -> Outcome {
        let lower = text.to_ascii_lowercase();
        let makes = lower.contains("extension") && lower.contains("strongroom_columns");
        self.extending &= self.in_pipeline;
        let several = makes && pg_query::split_with_parser(text).is_ok_and(|all| all.len() > 1);
        if self.extending || several {
            let message = "CREATE EXTENSION strongroom_columns together with other statements";
            return Err(Refusal::statement(message, "Send it alone.").into());
        }
        self.extending = makes;
        if lower.contains("enc_") && sql::defines_confidential(text, &self.catalog()) {
            let message = "a column of a confidential type, of which the server has none";
            let hint =
                "CREATE EXTENSION strongroom_columns first; if that is done, the server hides it.";
            return Err(Refusal::statement(message, hint).into());
        }
        Ok(())
    }

    /// Checks that the server ends the constants of this text where the proxy's parser does. Fails
    /// with SR-8103 if `standard_conforming_strings` is off, or may be when the text is read,
    /// unless the text names that setting, or nothing that is confidential: then it is sent unread,
    /// by the plan that is returned.
    fn check_strings(&mut self, text: &str, catalog: &Catalog) -> Outcome<Option<Plan>> {
        if self.strings_doubted && !self.in_pipeline {
            self.flush()?;
            if !self.session.wait(|state| state.pending_answers.is_empty()) {
                return Err(Failure::Skipped);
            }
            self.strings_doubted = false;
        }
        let standard = self.session.lock().settings.standard_strings;
        let doubted = self.strings_doubted;
        // A statement that sets it has to get through.
        let read = (standard && !doubted) || names_standard_strings(text);
        self.strings_doubted |= may_end_standard_strings(text);
        if read {
            return Ok(None);
        }
        match sql::plan_unparsed(text, catalog) {
            Some(plan) => Ok(Some(plan)),
            None => Err(strings_refusal().into()),
        }
    }

    /// Checks that the catalog still says what a prepared statement was planned with; reads it
    /// again where that is due.
    ///
    /// # Errors
    /// 0A000 if other parameters or constants belong to confidential expressions now; SR-8106 if a
    /// pinned column is not confidential any more; the refusals of [`sql::plan`].
    pub(super) fn check_still_valid(&mut self, statement: &Statement) -> Outcome {
        self.check_transaction()?;
        self.refresh(self.is_due() && self.is_transaction_claimed())?;
        if let Some(refusal) = &self.denied {
            return Err(refusal.clone().into());
        }
        let mut catalog = self.catalog();
        if Arc::ptr_eq(&statement.planned().catalog, &catalog) || statement.text.is_empty() {
            return Ok(());
        }
        let Ok(text) = std::str::from_utf8(&statement.text) else {
            return match sql::plan_undecoded(&statement.text, &catalog) {
                Some(_) => Ok(()),
                None => Err(undecoded()),
            };
        };
        let mut now = sql::plan(text, &catalog, statement.declared.len())?;
        let unknown = now.iter().any(|plan| !plan.unknown.is_empty());
        // A relation that was dropped may be there again.
        if unknown && self.refresh(true)? {
            if let Some(refusal) = &self.denied {
                return Err(refusal.clone().into());
            }
            catalog = self.catalog();
            now = sql::plan(text, &catalog, statement.declared.len())?;
        }
        let same = now.iter().all(|plan| {
            let columns = |constants: &[Constant]| -> Vec<Option<ComparableColumn>> {
                constants.iter().map(|constant| constant.column).collect()
            };
            plan.copy == statement.copied
                && plan.confidential == statement.confidential
                && plan.stored == statement.stored
                && plan.structural == statement.structural
                && columns(&plan.constants) == columns(&statement.constants)
        });
        if !same {
            let message =
                "cached plan must not be used: which columns are confidential, or can be compared \
                 without a session, has changed"
                    .to_owned();
            return Err(Refusal::postgres("0A000", message).into());
        }
        *statement.planned() = Planned {
            catalog,
            expected: now.pop().map(|plan| plan.expected).unwrap_or_default(),
        };
        Ok(())
    }

    /// Checks that the catalog can be read where it is to be read again: not in a transaction that
    /// has failed. What others have made confidential since would not be known. An honest server
    /// refuses the statement itself.
    ///
    /// # Errors
    /// 25P02 if it has.
    fn check_transaction(&mut self) -> Outcome {
        let has_failed = self.session.lock().transaction == b'E';
        if self.in_pipeline || !has_failed || !self.is_due() {
            return Ok(());
        }
        self.flush()?;
        if !self.session.wait(|state| state.pending_answers.is_empty()) {
            return Err(Failure::Skipped);
        }
        if self.session.lock().transaction == b'E' && self.catalog().is_confidential() {
            let message = "current transaction is aborted, commands ignored until end of \
                           transaction block";
            return Err(Refusal::postgres("25P02", message.to_owned()).into());
        }
        Ok(())
    }

    /// Returns the parameter types to be declared to the server: confidential ones for parameters
    /// of confidential expressions. Fails with SR-8102 if there is no such type, unless plain
    /// constants are allowed.
    pub(super) fn parameter_types(&self, plan: &Plan, declared: &[u32]) -> Outcome<Vec<u32>> {
        let catalog = self.catalog();
        let mut types = Vec::with_capacity(declared.len());
        for (at, oid) in declared.iter().enumerate() {
            let number = at.saturating_add(1);
            let confidential =
                i32::try_from(number).is_ok_and(|number| plan.confidential.contains(&number));
            if !confidential {
                types.push(*oid);
                continue;
            }
            match server_type_oid(&catalog, *oid) {
                Some(oid) => types.push(oid),
                None if self.shared.plaintext_constants == PlaintextConstants::Allow => {
                    types.push(*oid);
                }
                None => {
                    let why = format!(
                        "there is no confidential type for the declared type with OID {oid}"
                    );
                    return Err(Refusal::parameter(number, &why).into());
                }
            }
        }
        Ok(types)
    }
}

/// Makes the failure (22021) of a text that is not UTF-8 and may name something confidential.
fn undecoded() -> Failure {
    let message = "invalid byte sequence for encoding \"UTF8\"".to_owned();
    Failure::Refused(Refusal::postgres("22021", message))
}

/// Returns whether the text names the setting `standard_conforming_strings`.
fn names_standard_strings(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("standard_conforming_strings")
}

/// Returns whether the text names the setting other than to turn it on.
fn may_end_standard_strings(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let mut after = text.split("standard_conforming_strings").skip(1);
    after.any(|rest| {
        let rest = rest.trim_start();
        let value = rest.strip_prefix('=').or_else(|| rest.strip_prefix("to "));
        !value.is_some_and(|value| value.trim_start().starts_with("on"))
    })
}

/// Makes the refusal (SR-8103) of a statement whose constants may end elsewhere for the server.
fn strings_refusal() -> Refusal {
    Refusal::statement(
        "standard_conforming_strings is off, or may be, and the proxy cannot tell where constants end",
        "SET standard_conforming_strings TO on, as a statement of its own.",
    )
}

#[cfg(test)]
mod tests {
    use super::is_setting;

    #[test]
    fn a_statement_that_sets_something_is_known() {
        for text in [
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE;",
            "set timezone to 'UTC'",
            " -- ok\n/* and */ SET TRANSACTION READ WRITE ; ",
            "BEGIN",
            "release s",
        ] {
            assert!(is_setting(text.as_bytes()), "{text}");
        }
        for text in [
            "SET x TO 1; SELECT 2",
            "SELECT 1;",
            "settle",
            "-- SET",
            "/* SET",
            "/*/ SET",
            "/* /* */ SET x */ SELECT 'a'",
            "",
        ] {
            assert!(!is_setting(text.as_bytes()), "{text}");
        }
    }
}
