//! Prepared statements and portals: Parse, Bind, Describe, Execute, Close.
//!
//! Invariant: a value is sent only after the server has said what type its parameter has. Must not:
//! plan a statement.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use strongroom_postgres_wire::Fields;

use super::PlaintextConstants;
use super::convert::{BINARY, Converter, format_at};
use super::copy::Transform;
use super::planning::is_setting;
use super::portals::Portal;
use super::session::{Columns, Completed, Description, DescriptionSlot, PendingAnswer};
use super::session_zone::needs_zone;
use super::statement::{Planned, Statement};
use super::upstream::{
    BATCH, Failure, Outcome, PLAIN_EXPECTED, Upstream, bind_values, int16s, malformed,
};
use crate::sql::refusal::Refusal;
use crate::sql::{Copies, Effects, ExpectedColumns, NamedUse, Plan, Structure};

/// The type of which a client knows nothing (`src/include/catalog/pg_type.dat`): the server
/// replaces it.
const UNKNOWN: u32 = 705;

/// Checks a parameter that is sent in clear beside a confidential value. Fails with SR-8102 unless
/// it is a whole number, or the name of a date's field where that is expected.
fn check_structural(
    structure: Structure,
    number: usize,
    [declared, oid]: [u32; 2],
    format: i16,
    bytes: &[u8],
) -> Outcome {
    // int8, int2, int4, as the client declares it or leaves it to the server.
    let len = match oid {
        20 => Some(8),
        21 => Some(2),
        23 => Some(4),
        _ => None,
    };
    let binary = (declared == 0 || declared == oid) && len == Some(bytes.len());
    let fits = match structure {
        Structure::Integer if format == BINARY => binary,
        _ => std::str::from_utf8(bytes).is_ok_and(|text| structure.has(text.trim())),
    };
    if fits {
        return Ok(());
    }
    let why =
        "beside a confidential value only a whole number or the name of a field stays in clear";
    Err(Refusal::parameter(number, why).into())
}

impl Upstream {
    /// Plans the statement of a Parse message, sends it with its confidential constants as
    /// parameters, and keeps it under its name. Fails, with nothing sent, if it is malformed, has
    /// several statements, or the plan refuses it.
    pub(super) fn handle_parse(&mut self, body: &[u8]) -> Outcome {
        let mut fields = Fields(body);
        let (name, text) = (
            fields.string().ok_or_else(malformed)?,
            fields.string().ok_or_else(malformed)?,
        );
        let count = fields.count().ok_or_else(malformed)?;
        let declared: Option<Vec<u32>> = (0..count).map(|_| fields.oid()).collect();
        let declared = declared.ok_or_else(malformed)?;
        let mut plans = self.plan_statements(text, declared.len())?;
        if plans.len() > 1 {
            let message = "cannot insert multiple commands into a prepared statement".to_owned();
            return Err(Refusal::postgres("42601", message).into());
        }
        let plan = plans.pop().unwrap_or_else(Plan::of_any);
        let catalog = self.catalog();
        self.check_sendable(&plan)?;
        let copy = plan.copy.as_ref().map(Transform::of).transpose()?.flatten();
        let types = self.parameter_types(&plan, &declared)?;
        let slot: DescriptionSlot = Arc::new(OnceLock::new());
        let sent = if plan.changed {
            plan.sql.as_bytes()
        } else {
            text
        };
        let texts = Some(&plan).filter(|plan| plan.changed);
        let original = Arc::from(String::from_utf8_lossy(text));
        let texts = texts.and_then(|plan| plan.texts(&original));
        let is_made = Completed::default();
        let told = Some(Arc::clone(&is_made));
        self.send_parse(name, sent, &types, told, texts, &slot)?;
        let known = usize::try_from(plan.parameters)
            .unwrap_or(0)
            .max(declared.len());
        // Without constants all parameters are the client's.
        let shown = if plan.constants.is_empty() {
            usize::MAX
        } else {
            known
        };
        let statement = Statement {
            number: self.endings.number(),
            slot,
            is_made,
            constants: plan.constants,
            confidential: plan.confidential,
            stored: plan.stored,
            structural: plan.structural,
            text: text.to_vec(),
            planned: Planned::of(catalog, plan.expected),
            shown,
            declared,
            types,
            effects: plan.effects,
            changes: Arc::new(plan.changes),
            named: plan.named,
            copy,
            copied: plan.copy,
        };
        if !name.is_empty() {
            self.named_queries.note_driver_s(name);
        }
        for ended in self.statements.add(name, statement) {
            self.named_queries.end_driver_s(&ended);
        }
        Ok(())
    }

    /// Forgets the statements and portals whose end the server has completed since the last call.
    pub(super) fn forget_ended(&mut self) {
        let completed = self.endings.take_completed();
        if completed.is_empty() {
            return;
        }
        let ends = |name: &[u8], number| completed.iter().any(|of| of.ends(name, number));
        self.statements.forget(ends);
        self.sql_prepared.forget(ends);
        let ends = |name: &[u8], number| completed.iter().any(|of| of.ends_portal(name, number));
        self.portals.forget(ends);
    }

    /// Waits for the server's description of the statement of this name and returns both. A
    /// statement that the client did not make by Parse is described first. Fails with 26000 if
    /// there is none, and with `Skipped` if the server ignores the message anyway.
    fn statement(&mut self, name: &[u8]) -> Outcome<(Arc<Statement>, Description)> {
        let missing = || {
            let shown = String::from_utf8_lossy(name);
            Refusal::postgres(
                "26000",
                format!("prepared statement \"{shown}\" does not exist"),
            )
        };
        if self.statements.known(name).is_none() {
            self.describe_again(name)?;
        }
        // Each round tries an older statement of the name.
        while let Some(statement) = self.statements.known(name) {
            let description = self.wait_for_description(&statement.slot)?;
            // The answer to what has ended older ones may have come before.
            self.forget_ended();
            self.statements.settle(name);
            if let Some(description) = description {
                return Ok((statement, description));
            }
            if self.session.lock().skipping {
                return Err(Failure::Skipped);
            }
        }
        Err(missing().into())
    }

    /// Asks the server to describe a statement that it may have although the proxy does not know
    /// so, and keeps it under its name: one that the client made by SQL, or by a Parse whose
    /// description never came. What is known of the text that the client gave for the name holds
    /// for it too. Fails with `Skipped` if the server would ignore the message.
    fn describe_again(&mut self, name: &[u8]) -> Outcome {
        let former = self.statements.named(name).last();
        let former = former.map(Arc::clone);
        let slot: DescriptionSlot = Arc::new(OnceLock::new());
        let expect = PendingAnswer::DescribeStatement {
            slot: Some(Arc::clone(&slot)),
            forward: None,
            known: None,
            expected: ExpectedColumns::default(),
        };
        self.send(expect, b'D', |message| {
            message.byte(b'S').string(name);
        })?;
        let statement = match former {
            Some(former) => former.with_slot(slot),
            None => {
                let number = self.endings.number();
                Statement::of_sql(name, (number, slot), self.catalog())
            }
        };
        self.statements.replace(name, statement);
        Ok(())
    }

    /// Sends a Bind message, with confidential parameters and the constants that Parse took out of
    /// the text sealed, and keeps the portal. With either, or when several statements may have the
    /// name, it first waits for the server's description, and asks for one if SQL made the
    /// statement. Fails, with no Bind sent: malformed, too many parameters, no such statement, a
    /// value not valid or not to be sent in clear, a pinned column no longer confidential, or (if
    /// it waited) other columns confidential than at Parse.
    pub(super) fn handle_bind(&mut self, body: &[u8]) -> Outcome {
        let mut fields = Fields(body);
        let (portal, name) = (
            fields.string().ok_or_else(malformed)?,
            fields.string().ok_or_else(malformed)?,
        );
        let formats = int16s(&mut fields).ok_or_else(malformed)?;
        let count = fields.count().ok_or_else(malformed)?;
        let mut values = Vec::with_capacity(count.min(BATCH));
        for _ in 0..count {
            values.push(fields.value().ok_or_else(malformed)?);
        }
        let result_formats: Arc<[i16]> = int16s(&mut fields).ok_or_else(malformed)?.into();
        if let Some(refusal) = &self.denied {
            return Err(refusal.clone().into());
        }
        self.statements.settle(name);
        let is_simple = |known: &Arc<Statement>| {
            values.is_empty() && known.constants.is_empty() && !known.is_refused()
        };
        let simple = self.statements.only(name).filter(is_simple);
        let (statement, values) = match simple {
            Some(statement) => {
                self.check_without_values(&statement)?;
                (statement, Vec::new())
            }
            None => {
                let (statement, description) = self.statement(name)?;
                self.check_still_valid(&statement)?;
                if statement.text.is_empty() && !values.is_empty() {
                    self.check_sql_parameters(name)?;
                }
                let doubted = self.confidential_in_others(name, &statement);
                let of = (&*statement, &doubted);
                let mut concealed = self.seal_parameters(of, &description, &formats, &values)?;
                concealed.extend(self.seal_constants(&statement.constants, &description)?);
                (statement, concealed)
            }
        };
        let is_made = Completed::default();
        let expect = PendingAnswer::Bind {
            told: Some(Arc::clone(&is_made)),
        };
        self.send(expect, b'B', |message| {
            message.string(portal).string(name);
            bind_values(message, &values);
            message.count(result_formats.len());
            for format in result_formats.iter() {
                message.int16(*format);
            }
        })?;
        let planned = Arc::clone(&statement.planned().expected);
        let columns = match statement.effects.utility {
            // What they are is known when the server has described the portal.
            true => Columns::Statement(DescriptionSlot::default(), result_formats),
            false => Columns::Statement(Arc::clone(&statement.slot), result_formats),
        };
        let made = Portal {
            number: self.endings.number(),
            is_made,
            columns,
            named: statement.named.clone(),
            expected: self.expected_of(statement.named.as_ref(), &planned),
            effects: statement.effects,
            changes: Arc::clone(&statement.changes),
            copy: statement.copy.clone(),
        };
        self.portals.add(portal, made);
        Ok(())
    }

    /// Checks a statement that is bound without values: that its rows, and the data of a COPY, are
    /// by the catalog now what they were when it was planned. Fails as
    /// [`Self::check_still_valid`] does.
    fn check_without_values(&mut self, statement: &Statement) -> Outcome {
        let is_current = Arc::ptr_eq(&statement.planned().catalog, &self.catalog());
        // A setting has no columns, and may have to be the first statement of its transaction, or
        // end one that has failed.
        let is_doubted = !is_current && !is_setting(&statement.text);
        let copies = statement.effects.copies == Copies::FromClient;
        if is_doubted || copies || statement.copied.is_some() {
            self.check_still_valid(statement)?;
        }
        Ok(())
    }

    /// Returns the parameters that are confidential in another statement of the name: whether the
    /// server has made that one, or still has an older one, is its word.
    fn confidential_in_others(&self, name: &[u8], statement: &Arc<Statement>) -> BTreeSet<i32> {
        let named = self.statements.named(name).iter();
        let others = named.filter(|other| !Arc::ptr_eq(other, statement));
        others
            .flat_map(|other| other.confidential.iter().copied())
            .collect()
    }

    /// Returns the client's parameters, format and value, in the form for the server: sealed where
    /// they are confidential, in this statement or among those that are `doubted`. Fails with 08P01
    /// if there are too many; with SR-8102 if one would be sent in clear beside a confidential
    /// value; with SR-8104 if one is not valid.
    fn seal_parameters(
        &mut self,
        (statement, doubted): (&Statement, &BTreeSet<i32>),
        description: &Description,
        formats: &[i16],
        values: &[Option<&[u8]>],
    ) -> Outcome<Vec<(i16, Option<Vec<u8>>)>> {
        let catalog = self.catalog();
        // A value without a parameter has no type: the server would see the value before it refuses
        // it.
        let expected = description.parameters.len().min(statement.shown);
        if values.len() > expected {
            let message = format!(
                "bind message supplies {} parameters, but the prepared statement requires {expected}",
                values.len()
            );
            return Err(Refusal::postgres("08P01", message).into());
        }
        let settings = self.settings_now(needs_zone(&catalog, description, &[]))?;
        let converter = Converter::new(&self.shared.keys, &settings);
        let mut out = Vec::with_capacity(values.len());
        for (at, value) in values.iter().enumerate() {
            let format = format_at(formats, at);
            let Some(bytes) = value else {
                out.push((format, None));
                continue;
            };
            let oid = description.parameters.get(at).copied().unwrap_or(0);
            let declared = statement.declared.get(at).copied().unwrap_or(0);
            let number = at.saturating_add(1);
            let told = statement.types.get(at).copied().unwrap_or(0);
            if !matches!(told, 0 | UNKNOWN) && told != oid {
                // Whether a value can be read as one of another type would be an answer.
                let why = "the server expects another type than it was told";
                return Err(Refusal::parameter(number, why).into());
            }
            let place = i32::try_from(number).unwrap_or_default();
            let confidential = statement.confidential.contains(&place) || doubted.contains(&place);
            let stored = statement.stored.get(&place).copied();
            match catalog.enc_type(oid) {
                Some(enc) => {
                    let (format, value) = converter
                        .storing_in(stored)
                        .seal_parameter(&catalog, enc, declared, format, bytes)?;
                    out.push((format, Some(value)));
                }
                None if confidential
                    && self.shared.plaintext_constants != PlaintextConstants::Allow =>
                {
                    return Err(Refusal::parameter(number, PLAIN_EXPECTED).into());
                }
                None => {
                    if let Some(structure) = statement.structural.get(&place) {
                        check_structural(*structure, number, [declared, oid], format, bytes)?;
                    }
                    out.push((format, Some(bytes.to_vec())));
                }
            }
        }
        Ok(out)
    }

    /// Sends a Describe message and notes what the client gets of the answer. Fails if it is
    /// malformed.
    pub(super) fn handle_describe(&mut self, body: &[u8]) -> Outcome {
        let mut fields = Fields(body);
        let (what, name) = (
            fields.byte().ok_or_else(malformed)?,
            fields.string().ok_or_else(malformed)?,
        );
        let expect = match what {
            b'S' => {
                self.statements.settle(name);
                let statement = self.statements.known(name);
                let shown = statement.as_ref().map_or(usize::MAX, |known| known.shown);
                let expected = match statement.as_deref() {
                    Some(Statement {
                        named: Some(runs @ NamedUse::Runs(_)),
                        ..
                    }) => self.expected_of(Some(runs), &ExpectedColumns::default()),
                    Some(known) if known.named.is_none() => Arc::clone(&known.planned().expected),
                    _ => ExpectedColumns::default(),
                };
                // Which of several the server describes is not known; FETCH and its like change.
                let is_only = self.statements.only(name).is_some();
                let expected = if is_only { expected } else { Arc::default() };
                let statement = statement.filter(|known| is_only && !known.effects.utility);
                PendingAnswer::DescribeStatement {
                    slot: None,
                    forward: Some(shown),
                    // A statement's columns are described as text.
                    known: statement
                        .map(|known| Columns::Statement(Arc::clone(&known.slot), Arc::new([]))),
                    expected,
                }
            }
            _ => PendingAnswer::DescribePortal {
                forward: true,
                rows_only: false,
                known: self.columns_of_portal(name),
                expected: self.rows_of_portal(name),
            },
        };
        self.send(expect, b'D', |message| {
            message.bytes(body);
        })
    }

    /// Sends an Execute message, after a Describe if the columns of its portal are not known. Fails
    /// if it is malformed.
    pub(super) fn handle_execute(&mut self, body: &[u8]) -> Outcome {
        let name = Fields(body).string().ok_or_else(malformed)?;
        let portal = self.portals.get(name);
        let copy = portal.and_then(|portal| portal.copy.clone());
        let expected = self.rows_of_portal(name);
        let known = self.columns_of_portal(name);
        let named = portal.and_then(|portal| portal.named.clone());
        let effects = portal.map_or_else(Effects::of_anything, |portal| portal.effects);
        let changes = portal.map(|portal| Arc::clone(&portal.changes));
        self.note_effects(effects, &changes.unwrap_or_default())?;
        self.zone.note(effects);
        if effects.copies == Copies::FromClient {
            self.session.lock().copy_doubted = true;
        }
        let columns = match known {
            Some(columns) if !effects.utility => columns,
            known => {
                self.send(
                    PendingAnswer::DescribePortal {
                        forward: false,
                        rows_only: false,
                        known,
                        expected: ExpectedColumns::default(),
                    },
                    b'D',
                    |message| {
                        message.byte(b'P').string(name);
                    },
                )?;
                Columns::Described
            }
        };
        let expect = PendingAnswer::Execute {
            columns,
            expected,
            copies: effects.copies,
            copy,
            refusal: None,
            ends: self.endings.begin(named.as_ref(), self.endings.prepared()),
            request: 0,
        };
        self.send(expect, b'E', |message| {
            message.bytes(body);
        })
    }

    /// Sends a Close message; the statement or portal is forgotten when the server has answered it.
    /// Fails if it is malformed.
    pub(super) fn handle_close(&mut self, body: &[u8]) -> Outcome {
        let mut fields = Fields(body);
        let (what, name) = (
            fields.byte().ok_or_else(malformed)?,
            fields.string().ok_or_else(malformed)?,
        );
        let ends = self.endings.begin_close(what, name);
        self.send(PendingAnswer::Close { ends }, b'C', |message| {
            message.bytes(body);
        })?;
        if what == b'S' {
            self.named_queries.end_driver_s(name);
        }
        Ok(())
    }
}
