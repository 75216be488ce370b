//! From the client to the server: statements are planned, parameters and constants encrypted.
//!
//! A refusal is sent to the server as a statement that cannot be parsed, and its error is replaced on the way back. So a transaction
//! fails as it would for any error, the server skips the rest of a pipeline, and answers keep their order.
//! Invariants: P1 and P2 of `session.rs`; a parameter is sent only after the server has said what type it has. Must not: write to
//! the client.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Write};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::convert::{Converter, declared_oid, formats_at};
use super::copy::{Incoming, Transform};
use super::session::{Columns, Description, Expect, Rows, Session, Slot};
use super::stream::Stream;
use super::wire::{self, Builder, Fields, Message, append};
use super::{PlaintextConstants, Shared};
use crate::sql::catalog::{CATALOG_QUERY, Catalog};
use crate::sql::refusal::Refusal;
use crate::sql::{self, Constant, Effects, Plan};

/// A statement that fails in the server's parser, whatever state the session is in. It is never made, so its name is free.
const POISON: &[u8] = b"strongroom_refused";
/// How long a catalog is believed although nobody is known to have changed it.
const CATALOG_AGE_MAX: Duration = Duration::from_secs(10);
/// Bytes collected for the server before they are written although more is at hand.
const BATCH: usize = 64 * 1024;

/// A prepared statement.
struct Statement {
    slot: Slot,
    constants: Vec<Constant>,
    confidential: std::collections::BTreeSet<i32>,
    /// Types that the client declared.
    declared: Vec<u32>,
    /// How many parameters the client knows of.
    shown: usize,
    effects: Effects,
    copy: Option<Arc<Transform>>,
}

/// A portal.
struct Portal {
    columns: Option<Columns>,
    effects: Effects,
    copy: Option<Arc<Transform>>,
}

pub(crate) struct Upstream {
    pub(crate) session: Arc<Session>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) client: BufReader<Stream>,
    pub(crate) server: Stream,
    out: Vec<u8>,
    /// By name: the newest last, behind those that the name may still stand for, should the newer ones not be made.
    statements: BTreeMap<Vec<u8>, Vec<Arc<Statement>>>,
    portals: BTreeMap<Vec<u8>, Portal>,
    /// Between a message of the extended protocol and its Sync.
    in_pipeline: bool,
    /// A statement may have changed which columns there are.
    defined: bool,
    catalog_read: Instant,
    /// The catalog says of a pinned column that it is plain.
    denied: Option<Refusal>,
    epoch: u64,
    /// The COPY whose data comes from the client. The inner one is empty when nothing of it is confidential.
    incoming: Option<Option<Incoming>>,
    /// The data of a COPY that was refused; passed over.
    copy_refused: bool,
}

/// What was to be done was refused.
type Outcome<T = ()> = Result<T, Failure>;

/// Why a message is not passed on.
enum Failure {
    /// The client is told.
    Refused(Refusal),
    /// The server ignores it anyway, or the connection has ended.
    Skipped,
    Io(io::Error),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn malformed() -> Failure {
    Failure::Refused(Refusal::protocol("malformed message"))
}

impl Upstream {
    pub(crate) fn new(session: Arc<Session>, shared: Arc<Shared>, client: BufReader<Stream>, server: Stream) -> Self {
        let epoch = shared.epoch.load(Ordering::Acquire);
        Self {
            session,
            shared,
            client,
            server,
            out: Vec::new(),
            statements: BTreeMap::new(),
            portals: BTreeMap::new(),
            in_pipeline: false,
            defined: false,
            catalog_read: Instant::now(),
            denied: None,
            epoch,
            incoming: None,
            copy_refused: false,
        }
    }

    /// Relays until either side is gone.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        loop {
            if self.client.buffer().is_empty() || self.out.len() >= BATCH {
                self.flush()?;
            }
            let Some(message) = wire::read(&mut self.client)? else {
                return self.flush();
            };
            if message.tag == b'X' {
                append(&mut self.out, b'X', &[]);
                return self.flush();
            }
            match self.message(&message) {
                Ok(()) | Err(Failure::Skipped) => {}
                Err(Failure::Refused(refusal)) => self.refuse(refusal),
                Err(Failure::Io(error)) => return Err(error),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.out.is_empty() {
            self.server.write_all(&self.out)?;
            self.out.clear();
        }
        Ok(())
    }

    fn message(&mut self, message: &Message) -> Outcome {
        let body = message.body.as_slice();
        match message.tag {
            b'Q' => {
                let done = self.query(body);
                self.in_pipeline = false;
                return match done {
                    Err(Failure::Refused(refusal)) => {
                        self.refuse_query(refusal);
                        Ok(())
                    }
                    other => other,
                };
            }
            b'd' | b'c' | b'f' => return self.copy_message(message),
            b'H' => {
                append(&mut self.out, b'H', &[]);
                return Ok(());
            }
            b'S' => {
                // While data is copied the server ignores it.
                if self.incoming.is_some() || self.session.lock().copying.is_some() || self.session.expect(Expect::Sync { forward: true }) {
                    append(&mut self.out, b'S', &[]);
                }
                self.in_pipeline = false;
                return Ok(());
            }
            _ => {}
        }
        let done = match message.tag {
            b'P' => self.parse(body),
            b'B' => self.bind(body),
            b'D' => self.describe(body),
            b'E' => self.execute(body),
            b'C' => self.close(body),
            b'F' => return self.function_call(body),
            _ => Err(Failure::Refused(Refusal::protocol("a message that the protocol does not have"))),
        };
        self.in_pipeline = true;
        done
    }

    /// Appends a message, unless the server would ignore it.
    fn send(&mut self, expect: Expect, tag: u8, build: impl FnOnce(&mut Builder<'_>)) -> Outcome {
        if !self.session.expect(expect) {
            return Err(Failure::Skipped);
        }
        let mut message = Builder::new(&mut self.out, tag);
        build(&mut message);
        message.end();
        Ok(())
    }

    /// Makes the server fail in this place of the pipeline, and the client see the refusal.
    fn refuse(&mut self, refusal: Refusal) {
        let expect = Expect::Parse { forward: false, changed: true, refusal: Some(refusal) };
        let sent = self.send(expect, b'P', |message| {
            message.string(POISON).string(POISON).count(0);
        });
        // Skipped: the client is told of an earlier error.
        drop(sent);
    }

    fn refuse_query(&mut self, refusal: Refusal) {
        let expect = Expect::Query { refusal: Some(refusal), copy: None };
        let sent = self.send(expect, b'Q', |message| {
            message.string(POISON);
        });
        drop(sent);
    }

    fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.session.lock().catalog)
    }

    /// Reads the catalog again where that is possible: not in a pipeline, nor in a failed transaction; in an open transaction only
    /// when it must be (a query would come before SET TRANSACTION otherwise).
    fn refresh(&mut self, must: bool) -> Outcome<bool> {
        let epoch = self.shared.epoch.load(Ordering::Acquire);
        let due = self.defined || epoch != self.epoch || self.catalog_read.elapsed() > CATALOG_AGE_MAX;
        if self.in_pipeline || !(due || must) {
            return Ok(false);
        }
        self.flush()?;
        if !self.session.wait(|state| state.expects.is_empty()) {
            return Err(Failure::Skipped);
        }
        let transaction = self.session.lock().transaction;
        if transaction != b'I' && !(transaction == b'T' && (self.defined || must)) {
            return Ok(false);
        }
        let rows: Rows = Arc::new(OnceLock::new());
        let expect = Expect::Own { rows: Arc::clone(&rows), collected: Vec::new() };
        self.send(expect, b'Q', |message| {
            message.string(CATALOG_QUERY.as_bytes());
        })?;
        self.flush()?;
        // Also the ReadyForQuery behind the rows.
        if !self.session.wait(|state| rows.get().is_some() && state.expects.is_empty()) {
            return Err(Failure::Skipped);
        }
        if let Some(Some(rows)) = rows.get() {
            let catalog = Catalog::from_rows(rows);
            self.denied = catalog.denied(&self.shared.pinned).map(Refusal::denied);
            self.session.lock().catalog = Arc::new(catalog);
            self.catalog_read = Instant::now();
            if std::mem::take(&mut self.defined) {
                // In an open transaction nobody else sees the change yet.
                if transaction == b'I' {
                    self.shared.epoch.fetch_add(1, Ordering::AcqRel);
                } else {
                    self.defined = true;
                }
            }
            self.epoch = self.shared.epoch.load(Ordering::Acquire);
        }
        Ok(true)
    }

    /// What is to be sent for the client's SQL.
    fn planned(&mut self, text: &[u8], declared: usize) -> Outcome<Vec<Plan>> {
        self.refresh(false)?;
        if let Some(refusal) = &self.denied {
            return Err(refusal.clone().into());
        }
        let catalog = self.catalog();
        let invalid = || Refusal::postgres("22021", "invalid byte sequence for encoding \"UTF8\"".to_owned());
        let text = match std::str::from_utf8(text) {
            Ok(text) => text,
            Err(_) if !catalog.is_confidential() => return Ok(Vec::new()),
            Err(_) => return Err(invalid().into()),
        };
        if catalog.is_confidential() && !self.session.lock().settings.standard_strings {
            let refusal = Refusal::statement(
                "standard_conforming_strings is off, and the proxy cannot tell where constants end",
                "SET standard_conforming_strings TO on",
            );
            // The way out has to stay open.
            if !text.to_ascii_lowercase().contains("standard_conforming_strings") {
                return Err(refusal.into());
            }
        }
        let plans = match sql::plan(text, &catalog, declared) {
            Err(_) if !catalog.is_confidential() => return Ok(Vec::new()),
            other => other?,
        };
        let unknown = plans.iter().any(|plan| !plan.unknown.is_empty());
        if unknown && self.refresh(true)? && self.denied.is_none() {
            let catalog = self.catalog();
            return Ok(sql::plan(text, &catalog, declared)?);
        }
        Ok(plans)
    }

    /// What cannot be sent whatever its constants are.
    fn check(plan: &Plan) -> Outcome {
        if plan.executes.is_some() {
            let message = "EXECUTE with constants: the proxy does not know which are confidential";
            let hint = "Use the driver's own prepared statements: their parameters are encrypted.";
            return Err(Refusal::statement(message, hint).into());
        }
        Ok(())
    }

    fn query(&mut self, body: &[u8]) -> Outcome {
        let text = Fields(body).string().ok_or_else(malformed)?;
        let plans = self.planned(text, 0)?;
        for plan in &plans {
            Self::check(plan)?;
            self.defined |= plan.effects.defines;
        }
        let mut copy = None;
        for plan in &plans {
            if let Some(planned) = &plan.copy {
                copy = Transform::of(planned)?;
                if plans.len() > 1 && copy.is_some() {
                    let message = "COPY of confidential columns together with other statements in one query";
                    return Err(Refusal::statement(message, "Send it alone.").into());
                }
            }
        }
        if plans.iter().all(|plan| !plan.changed) {
            return self.send(Expect::Query { refusal: None, copy }, b'Q', |message| {
                message.string(text);
            });
        }
        match self.rewritten(&plans) {
            Err(Failure::Refused(refusal)) => self.refuse(refusal),
            Err(Failure::Io(error)) => return Err(error.into()),
            Ok(()) | Err(Failure::Skipped) => {}
        }
        self.send(Expect::Sync { forward: true }, b'S', |_| {})
    }

    /// A simple query by the extended protocol: statements up to one Sync are one implicit transaction, as those of one
    /// simple query are, and give the same answers but for those that are kept back.
    fn rewritten(&mut self, plans: &[Plan]) -> Outcome {
        for plan in plans {
            let slot: Slot = Arc::new(OnceLock::new());
            self.send_parse(&[], plan.sql.as_bytes(), &[], false, plan.changed, &slot)?;
            let constants = if plan.constants.is_empty() {
                Vec::new()
            } else {
                let description = self.wait_described(&slot)?.ok_or(Failure::Skipped)?;
                self.concealed_constants(&plan.constants, &description)?
            };
            self.send(Expect::Bind { forward: false }, b'B', |message| {
                message.string(b"").string(b"");
                bind_values(message, &constants);
                message.count(0);
            })?;
            self.send(Expect::DescribePortal { forward: true, rows_only: true }, b'D', |message| {
                message.byte(b'P').string(b"");
            })?;
            self.send(Expect::Execute { columns: Columns::Described, copy: None }, b'E', |message| {
                message.string(b"").int32(0);
            })?;
        }
        Ok(())
    }

    /// Parse, and the description that the proxy itself needs.
    fn send_parse(&mut self, name: &[u8], text: &[u8], types: &[u32], forward: bool, changed: bool, slot: &Slot) -> Outcome {
        self.send(Expect::Parse { forward, changed, refusal: None }, b'P', |message| {
            message.string(name).string(text).count(types.len());
            for oid in types {
                message.oid(*oid);
            }
        })?;
        self.send(Expect::DescribeStatement { slot: Some(Arc::clone(slot)), forward: None }, b'D', |message| {
            message.byte(b'S').string(name);
        })
    }

    /// Waits for a statement's description. `None`: it was not made.
    fn wait_described(&mut self, slot: &Slot) -> Outcome<Option<Description>> {
        if slot.get().is_none() {
            append(&mut self.out, b'H', &[]);
            self.flush()?;
            if !self.session.wait(|_| slot.get().is_some()) {
                return Err(Failure::Skipped);
            }
        }
        Ok(slot.get().cloned().flatten())
    }

    /// The constants' values in order of their parameters, encrypted for the types that the server gave them.
    fn concealed_constants(&self, constants: &[Constant], description: &Description) -> Outcome<Vec<(i16, Option<Vec<u8>>)>> {
        let (catalog, settings) = {
            let state = self.session.lock();
            (Arc::clone(&state.catalog), state.settings.clone())
        };
        let converter = Converter::new(&self.shared.keys, &settings);
        let mut out = Vec::with_capacity(constants.len());
        for constant in constants {
            let at = usize::try_from(constant.number).unwrap_or(0).checked_sub(1);
            let oid = at.and_then(|at| description.parameters.get(at)).copied().unwrap_or(0);
            let text = constant.literal.text.as_bytes();
            match catalog.enc_type(oid) {
                Some(enc) => {
                    let (format, value) = converter.conceal(&catalog, enc, 0, 0, text)?;
                    out.push((format, Some(value)));
                }
                None if self.shared.plaintext_constants == PlaintextConstants::Allow => out.push((0, Some(text.to_vec()))),
                None => {
                    let why = "it stands beside a confidential value, but the server expects a plain one";
                    return Err(constant.literal.refused(why).into());
                }
            }
        }
        Ok(out)
    }

    fn parse(&mut self, body: &[u8]) -> Outcome {
        let mut fields = Fields(body);
        let (name, text) = (fields.string().ok_or_else(malformed)?, fields.string().ok_or_else(malformed)?);
        let count = fields.count().ok_or_else(malformed)?;
        let declared: Option<Vec<u32>> = (0..count).map(|_| fields.oid()).collect();
        let declared = declared.ok_or_else(malformed)?;
        let mut plans = self.planned(text, declared.len())?;
        if plans.len() > 1 {
            let message = "cannot insert multiple commands into a prepared statement".to_owned();
            return Err(Refusal::postgres("42601", message).into());
        }
        let plan = plans.pop().unwrap_or_default();
        Self::check(&plan)?;
        let copy = plan.copy.as_ref().map(Transform::of).transpose()?.flatten();
        let types = self.types(&plan, &declared)?;
        let slot: Slot = Arc::new(OnceLock::new());
        let sent = if plan.changed { plan.sql.as_bytes() } else { text };
        self.send_parse(name, sent, &types, true, plan.changed, &slot)?;
        let known = usize::try_from(plan.parameters).unwrap_or(0).max(declared.len());
        // Without constants every parameter is the client's.
        let shown = if plan.constants.is_empty() { usize::MAX } else { known };
        let statement = Statement {
            slot,
            constants: plan.constants,
            confidential: plan.confidential,
            shown,
            declared,
            effects: plan.effects,
            copy,
        };
        let named = self.statements.entry(name.to_vec()).or_default();
        // The server drops the unnamed statement before it makes another.
        let made = named.iter().rposition(|known| matches!(known.slot.get(), Some(Some(_))));
        let passed = if name.is_empty() { named.len() } else { made.unwrap_or(0) };
        named.drain(..passed.min(named.len()));
        named.push(Arc::new(statement));
        Ok(())
    }

    /// The types that the server is told: confidential ones for parameters of confidential expressions.
    fn types(&self, plan: &Plan, declared: &[u32]) -> Outcome<Vec<u32>> {
        let catalog = self.catalog();
        let mut types = Vec::with_capacity(declared.len());
        for (at, oid) in declared.iter().enumerate() {
            let number = at.saturating_add(1);
            let confidential = i32::try_from(number).is_ok_and(|number| plan.confidential.contains(&number));
            if !confidential {
                types.push(*oid);
                continue;
            }
            match declared_oid(&catalog, *oid) {
                Some(oid) => types.push(oid),
                None if self.shared.plaintext_constants == PlaintextConstants::Allow => types.push(*oid),
                None => {
                    let why = format!("no confidential type stands for the declared type with OID {oid}");
                    return Err(Refusal::parameter(number, &why).into());
                }
            }
        }
        Ok(types)
    }

    /// The statement that the name stands for, as far as is known without waiting.
    fn made(&self, name: &[u8]) -> Option<Arc<Statement>> {
        let named = self.statements.get(name)?;
        named.iter().rev().find(|known| !matches!(known.slot.get(), Some(None))).cloned()
    }

    /// The statement that the name stands for, and what the server says of it.
    fn statement(&mut self, name: &[u8]) -> Outcome<(Arc<Statement>, Description)> {
        let missing = || {
            let shown = String::from_utf8_lossy(name);
            Refusal::postgres("26000", format!("prepared statement \"{shown}\" does not exist"))
        };
        if self.made(name).is_none() {
            self.adopt(name)?;
        }
        // Each round goes to an older statement of the name.
        while let Some(statement) = self.made(name) {
            if let Some(description) = self.wait_described(&statement.slot)? {
                return Ok((statement, description));
            }
            if self.session.lock().skipping {
                return Err(Failure::Skipped);
            }
        }
        Err(missing().into())
    }

    /// A statement that the client made by SQL: the server is asked what it is.
    fn adopt(&mut self, name: &[u8]) -> Outcome {
        let slot: Slot = Arc::new(OnceLock::new());
        let expect = Expect::DescribeStatement { slot: Some(Arc::clone(&slot)), forward: None };
        self.send(expect, b'D', |message| {
            message.byte(b'S').string(name);
        })?;
        let statement = Statement {
            slot,
            constants: Vec::new(),
            confidential: std::collections::BTreeSet::new(),
            declared: Vec::new(),
            shown: usize::MAX,
            effects: Effects { utility: true, ..Effects::default() },
            copy: None,
        };
        self.statements.insert(name.to_vec(), vec![Arc::new(statement)]);
        Ok(())
    }

    fn bind(&mut self, body: &[u8]) -> Outcome {
        let mut fields = Fields(body);
        let (portal, name) = (fields.string().ok_or_else(malformed)?, fields.string().ok_or_else(malformed)?);
        let formats = int16s(&mut fields).ok_or_else(malformed)?;
        let count = fields.count().ok_or_else(malformed)?;
        let mut values = Vec::with_capacity(count.min(BATCH));
        for _ in 0..count {
            values.push(fields.value().ok_or_else(malformed)?);
        }
        let result_formats: Arc<[i16]> = int16s(&mut fields).ok_or_else(malformed)?.into();
        let known = self.statements.get(name).and_then(|named| match named.as_slice() {
            [only] => Some(Arc::clone(only)),
            _ => None,
        });
        let simple = known.filter(|known| values.is_empty() && known.constants.is_empty());
        let (statement, values) = match simple {
            Some(statement) => (statement, Vec::new()),
            None => {
                let (statement, description) = self.statement(name)?;
                let mut concealed = self.concealed(&statement, &description, &formats, &values)?;
                concealed.extend(self.concealed_constants(&statement.constants, &description)?);
                (statement, concealed)
            }
        };
        self.send(Expect::Bind { forward: true }, b'B', |message| {
            message.string(portal).string(name);
            bind_values(message, &values);
            message.count(result_formats.len());
            for format in result_formats.iter() {
                message.int16(*format);
            }
        })?;
        let columns = Columns::Statement(Arc::clone(&statement.slot), result_formats);
        let made = Portal {
            columns: Some(columns).filter(|_| !statement.effects.utility),
            effects: statement.effects,
            copy: statement.copy.clone(),
        };
        self.portals.insert(portal.to_vec(), made);
        Ok(())
    }

    /// The client's parameters as the server gets them.
    fn concealed(
        &self,
        statement: &Statement,
        description: &Description,
        formats: &[i16],
        values: &[Option<&[u8]>],
    ) -> Outcome<Vec<(i16, Option<Vec<u8>>)>> {
        let (catalog, settings) = {
            let state = self.session.lock();
            (Arc::clone(&state.catalog), state.settings.clone())
        };
        let converter = Converter::new(&self.shared.keys, &settings);
        let mut out = Vec::with_capacity(values.len());
        for (at, value) in values.iter().enumerate() {
            let format = formats_at(formats, at);
            let Some(bytes) = value else {
                out.push((format, None));
                continue;
            };
            let oid = description.parameters.get(at).copied().unwrap_or(0);
            let declared = statement.declared.get(at).copied().unwrap_or(0);
            let number = at.saturating_add(1);
            let confidential = i32::try_from(number).is_ok_and(|number| statement.confidential.contains(&number));
            match catalog.enc_type(oid) {
                Some(enc) => {
                    let (format, value) = converter.conceal(&catalog, enc, declared, format, bytes)?;
                    out.push((format, Some(value)));
                }
                None if confidential && self.shared.plaintext_constants != PlaintextConstants::Allow => {
                    let why = "it stands beside a confidential value, but the server expects a plain one";
                    return Err(Refusal::parameter(number, why).into());
                }
                None => out.push((format, Some(bytes.to_vec()))),
            }
        }
        Ok(out)
    }

    fn describe(&mut self, body: &[u8]) -> Outcome {
        let mut fields = Fields(body);
        let (what, name) = (fields.byte().ok_or_else(malformed)?, fields.string().ok_or_else(malformed)?);
        let expect = match what {
            b'S' => {
                let shown = self.made(name).map_or(usize::MAX, |statement| statement.shown);
                Expect::DescribeStatement { slot: None, forward: Some(shown) }
            }
            _ => Expect::DescribePortal { forward: true, rows_only: false },
        };
        self.send(expect, b'D', |message| {
            message.bytes(body);
        })
    }

    fn execute(&mut self, body: &[u8]) -> Outcome {
        let name = Fields(body).string().ok_or_else(malformed)?;
        let portal = self.portals.get(name);
        let copy = portal.and_then(|portal| portal.copy.clone());
        let columns = portal.and_then(|portal| portal.columns.clone());
        self.defined |= portal.is_none_or(|portal| portal.effects.defines);
        let columns = match columns {
            Some(columns) => columns,
            None => {
                self.send(Expect::DescribePortal { forward: false, rows_only: false }, b'D', |message| {
                    message.byte(b'P').string(name);
                })?;
                Columns::Described
            }
        };
        self.send(Expect::Execute { columns, copy }, b'E', |message| {
            message.bytes(body);
        })
    }

    fn close(&mut self, body: &[u8]) -> Outcome {
        let mut fields = Fields(body);
        let (what, name) = (fields.byte().ok_or_else(malformed)?, fields.string().ok_or_else(malformed)?);
        self.send(Expect::Close, b'C', |message| {
            message.bytes(body);
        })?;
        match what {
            b'S' => drop(self.statements.remove(name)),
            _ => drop(self.portals.remove(name)),
        }
        Ok(())
    }

    /// The old fast path: its arguments have no types that the proxy could know.
    fn function_call(&mut self, body: &[u8]) -> Outcome {
        if self.catalog().is_confidential() {
            let message = "the function call protocol carries values whose types the proxy does not know";
            self.refuse_query(Refusal::statement(message, "Call the function by SELECT."));
            return Ok(());
        }
        self.send(Expect::FunctionCall, b'F', |message| {
            message.bytes(body);
        })
    }

    /// CopyData, CopyDone, CopyFail.
    fn copy_message(&mut self, message: &Message) -> Outcome {
        if self.copy_refused {
            self.copy_refused = message.tag == b'd';
            return Ok(());
        }
        if self.incoming.is_none() {
            self.flush()?;
            let began = self.session.wait(|state| state.copying.is_some() || state.expects.is_empty() || state.skipping);
            let mut state = self.session.lock();
            let Some(transform) = state.copying.take().filter(|_| began) else {
                // The server ignores data when nothing is copied.
                return Ok(());
            };
            let settings = state.settings.clone();
            drop(state);
            self.incoming = Some(transform.map(|transform| Incoming::new(transform, Arc::clone(&self.shared.keys), settings)));
        }
        let mut data = Vec::new();
        let converted = match self.incoming.as_mut() {
            Some(Some(incoming)) if message.tag == b'd' => incoming.push(&message.body, &mut data),
            Some(Some(incoming)) if message.tag == b'c' => incoming.finish(&mut data),
            _ => {
                if message.tag == b'd' {
                    data.extend_from_slice(&message.body);
                }
                Ok(())
            }
        };
        if let Err(refusal) = converted {
            self.session.lock().replacement = Some(refusal);
            Builder::new(&mut self.out, b'f').string(POISON).end();
            self.incoming = None;
            self.copy_refused = message.tag == b'd';
            return Ok(());
        }
        if !data.is_empty() {
            append(&mut self.out, b'd', &data);
        }
        if message.tag != b'd' {
            append(&mut self.out, message.tag, &message.body);
            self.incoming = None;
        }
        Ok(())
    }
}

/// Format codes and values of Bind.
fn bind_values(message: &mut Builder<'_>, values: &[(i16, Option<Vec<u8>>)]) {
    message.count(values.len());
    for (format, _) in values {
        message.int16(*format);
    }
    message.count(values.len());
    for (_, value) in values {
        message.value(value.as_deref());
    }
}

fn int16s(fields: &mut Fields<'_>) -> Option<Vec<i16>> {
    let count = fields.count()?;
    (0..count).map(|_| fields.int16()).collect()
}
