//! From the client to the server: plans statements, seals parameters and constants.
//!
//! A refusal is sent to the server as a statement that cannot be parsed, and its error is replaced
//! on the way back. So a transaction fails as it would for any error, the server skips the rest of
//! a pipeline, and answers keep their order. Invariants: P1 and P2 of `session.rs`; a parameter is
//! sent only after the server has said its type. Must not: write to the client.

use std::io::{self, BufReader, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use strongroom_postgres_wire::{self as wire, Builder, Fields, Message, append};

use super::convert::Converter;
use super::copy::Incoming;
use super::driver_statements::DriverStatements;
use super::ended_statements::Endings;
use super::named_queries::NamedQueries;
use super::portals::Portals;
use super::session::{Completed, Description, DescriptionSlot, PendingAnswer, Session};
use super::session_zone::{SessionZone, needs_zone};
use super::shared::{PlaintextConstants, Shared};
use super::sql_prepared::SqlPrepared;
use super::stream::Stream;
use super::zone_session::ZoneSession;
use crate::relations::Changer;
use crate::sql::comparable::Names;
use crate::sql::refusal::Refusal;
use crate::sql::{Constant, ExpectedColumns, Texts, Token};

/// A statement that fails in the server's parser, whatever state the session is in. It is never
/// made, so its name does not collide.
pub(super) const POISON: &[u8] = b"strongroom_refused";
/// The first OID that is not one of PostgreSQL's own objects (`FirstNormalObjectId`,
/// src/include/access/transam.h).
const FIRST_USER_OID: u32 = 16_384;
/// Why a constant or parameter of a confidential expression is not sent in clear.
pub(super) const PLAIN_EXPECTED: &str = "it stands beside a confidential value, or a column that \
    may be one because its relation is not named, but the server expects a plain one";
/// Bytes collected for the server before they are written although more messages wait.
pub(super) const BATCH: usize = 64 * 1024;

pub(crate) struct Upstream {
    pub(crate) session: Arc<Session>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) client: BufReader<Stream>,
    pub(crate) server: Stream,
    pub(super) out: Vec<u8>,
    pub(super) statements: DriverStatements,
    /// What the client has sent that ends statements.
    pub(super) endings: Endings,
    /// A Parse of the unnamed statement was refused, and the server is to drop the one it has.
    unnamed_refused: bool,
    pub(super) portals: Portals,
    /// Statements that the client has prepared by SQL.
    pub(super) sql_prepared: SqlPrepared,
    /// Cursors that the client has declared by SQL.
    pub(super) named_queries: NamedQueries,
    /// A statement of this pipeline may make the extension.
    pub(super) extending: bool,
    /// A statement whose answer has not come may turn `standard_conforming_strings` off.
    pub(super) strings_doubted: bool,
    pub(super) zone: SessionZone,
    /// Between a message of the extended protocol and its Sync.
    pub(super) in_pipeline: bool,
    /// A statement may have changed which columns there are, since the catalog was read.
    pub(super) defined: bool,
    /// After such a statement the catalog was read within the transaction: what others see then is
    /// known when it is read after that.
    pub(super) read_within: bool,
    pub(super) catalog_read: Instant,
    /// The refusal of all statements once the catalog says that a pinned column is plain.
    pub(super) denied: Option<Refusal>,
    pub(super) epoch: u64,
    /// The COPY whose data comes from the client, by the number of its request. The inner one is
    /// empty when nothing of it is confidential.
    pub(super) incoming: Option<(u64, Option<Incoming>)>,
    /// The request of a COPY whose data was refused; the rest of its data is ignored.
    pub(super) copy_refused: Option<u64>,
    /// When the transaction, or else the last message, began: what the proxy's clock tells.
    pub(super) begun: SystemTime,
    /// When this connection last asked for a session with the zone; `None` if it never has.
    pub(super) asked: Option<Instant>,
    /// What the names of comparable columns are made from.
    pub(super) names: Arc<Names>,
    /// What its statements may be changing.
    pub(super) relations: Changer,
    /// The name that the owner sees in the ledgers.
    pub(super) name: String,
    /// The session with the zone.
    pub(super) zone_session: Option<ZoneSession>,
}

/// The outcome of handling a message.
pub(super) type Outcome<T = ()> = Result<T, Failure>;

/// Why a message is not passed on.
pub(super) enum Failure {
    /// The client gets this refusal.
    Refused(Refusal),
    /// The server ignores it anyway, or the connection has ended.
    Skipped,
    Io(io::Error),
}

impl From<Refusal> for Failure {
    /// Makes a failure of which the client is told by this refusal.
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<io::Error> for Failure {
    /// Makes a failure that ends the connection.
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Makes the failure for a malformed message of the client (SR-8105).
pub(super) fn malformed() -> Failure {
    Failure::Refused(Refusal::protocol("malformed message"))
}

impl Upstream {
    /// Takes over the client's messages and the server's connection. Nothing is read yet.
    pub(crate) fn new(
        session: Arc<Session>,
        shared: Arc<Shared>,
        client: BufReader<Stream>,
        server: Stream,
        (names, relations): (Arc<Names>, Changer),
        (name, zone_session): (String, Option<ZoneSession>),
    ) -> Self {
        let epoch = shared.epoch.load(Ordering::Acquire);
        Self {
            session,
            shared,
            client,
            server,
            out: Vec::new(),
            statements: DriverStatements::default(),
            endings: Endings::default(),
            unnamed_refused: false,
            portals: Portals::default(),
            sql_prepared: SqlPrepared::default(),
            named_queries: NamedQueries::default(),
            strings_doubted: false,
            zone: SessionZone::default(),
            extending: false,
            in_pipeline: false,
            defined: false,
            read_within: false,
            catalog_read: Instant::now(),
            denied: None,
            epoch,
            incoming: None,
            copy_refused: None,
            begun: SystemTime::now(),
            asked: zone_session.as_ref().map(|zone| zone.issued),
            names,
            relations,
            name,
            zone_session,
        }
    }

    /// Relays until either side has closed its connection. A message that is refused becomes an
    /// error for the client. When the client leaves, the session with the zone is closed. Fails
    /// with the errors of the connections.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        loop {
            if self.client.buffer().is_empty() || self.out.len() >= BATCH {
                self.flush()?;
            }
            let message = match wire::read(&mut self.client) {
                Ok(Some(message)) if message.tag != b'X' => message,
                Ok(left) => {
                    self.leave();
                    if left.is_some() {
                        append(&mut self.out, b'X', &[]);
                    }
                    return self.flush();
                }
                Err(error) => {
                    self.leave();
                    return Err(error);
                }
            };
            match self.handle_message(&message) {
                Ok(()) | Err(Failure::Skipped) => {}
                Err(Failure::Refused(refusal)) => self.refuse(refusal),
                Err(Failure::Io(error)) => return Err(error),
            }
        }
    }

    /// Closes what the connection has, because the client has left.
    fn leave(&mut self) {
        let state = self.session.lock();
        let is_over = state.pending_answers.is_empty() && !state.is_cut;
        let is_open = state.is_open;
        drop(state);
        self.relations.leave(is_over, is_open);
        self.close_session();
    }

    /// Writes the collected messages to the server, if there are any. Fails with the connection's
    /// error.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if !self.out.is_empty() {
            self.server.write_all(&self.out)?;
            self.out.clear();
        }
        Ok(())
    }

    /// Handles one message of the client: appends what the server gets for it. Fails with the
    /// refusal that the client is to get, with `Skipped` if the server would ignore the message, or
    /// with an error of the connection.
    fn handle_message(&mut self, message: &Message) -> Outcome {
        let body = message.body.as_slice();
        self.forget_ended();
        if !self.in_pipeline {
            self.zone.settle(&self.session.lock());
        }
        if !self.in_pipeline && self.session.lock().transaction == b'I' {
            self.begun = SystemTime::now();
            self.named_queries.end_transaction();
            self.portals.end_transaction();
        }
        match message.tag {
            b'Q' => {
                let done = self.keep_session().and_then(|()| self.handle_query(body));
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
                self.session.push_sync();
                append(&mut self.out, b'S', &[]);
                self.in_pipeline = false;
                return Ok(());
            }
            _ => {}
        }
        self.keep_session()?;
        let done = match message.tag {
            b'P' => {
                let done = self.handle_parse(body);
                if body.first() == Some(&0) && matches!(done, Err(Failure::Refused(_))) {
                    // As for the server, which drops the unnamed statement before it reads a text.
                    self.statements.remove(b"");
                    self.unnamed_refused = true;
                }
                done
            }
            b'B' => self.handle_bind(body),
            b'D' => self.handle_describe(body),
            b'E' => self.handle_execute(body),
            b'C' => self.handle_close(body),
            b'F' => return self.function_call(body),
            _ => Err(Failure::Refused(Refusal::protocol(
                "a message that the protocol does not have",
            ))),
        };
        self.in_pipeline = true;
        done
    }

    /// Appends a message and notes which answer is due. If the server would ignore the message,
    /// nothing is appended, and the outcome is [`Failure::Skipped`].
    pub(super) fn send(
        &mut self,
        expect: PendingAnswer,
        tag: u8,
        build: impl FnOnce(&mut Builder<'_>),
    ) -> Outcome {
        if !self.session.push_pending(expect) {
            return Err(Failure::Skipped);
        }
        let mut message = Builder::new(&mut self.out, tag);
        build(&mut message);
        message.end();
        Ok(())
    }

    /// Makes the server fail at this point of the pipeline, and has its error replaced by the
    /// refusal. What the client sends up to its next Sync is dropped: values in it were meant for
    /// what was refused.
    pub(super) fn refuse(&mut self, refusal: Refusal) {
        let expect = PendingAnswer::Parse {
            told: None,
            texts: None,
            refusal: Some(refusal),
        };
        let name = match std::mem::take(&mut self.unnamed_refused) {
            true => b"",
            false => POISON,
        };
        let sent = self.send(expect, b'P', |message| {
            message.string(name).string(POISON).count(0);
        });
        // Skipped: the client gets an earlier error.
        drop(sent);
        self.session.lock().refused = true;
    }

    /// Sends Parse, and a Describe whose answer is put into `slot` for the proxy itself. `told`:
    /// set when the client gets the answer to Parse; `None` if it does not. `texts`: set if the
    /// text is not the client's. Fails with `Skipped` if the server would ignore the messages.
    pub(super) fn send_parse(
        &mut self,
        name: &[u8],
        text: &[u8],
        types: &[u32],
        told: Option<Completed>,
        texts: Option<Arc<Texts>>,
        slot: &DescriptionSlot,
    ) -> Outcome {
        self.send(
            PendingAnswer::Parse {
                told,
                texts,
                refusal: None,
            },
            b'P',
            |message| {
                message.string(name).string(text).count(types.len());
                for oid in types {
                    message.oid(*oid);
                }
            },
        )?;
        self.send(
            PendingAnswer::DescribeStatement {
                slot: Some(Arc::clone(slot)),
                forward: None,
                known: None,
                expected: ExpectedColumns::default(),
            },
            b'D',
            |message| {
                message.byte(b'S').string(name);
            },
        )
    }

    /// Waits for a statement's description, for which it sends what was collected. `None` when the
    /// statement was not made; `Skipped` if the connection ends; the connection's error if the
    /// server cannot be written to.
    pub(super) fn wait_for_description(
        &mut self,
        slot: &DescriptionSlot,
    ) -> Outcome<Option<Description>> {
        if slot.get().is_none() {
            append(&mut self.out, b'H', &[]);
            self.flush()?;
            if !self.session.wait(|_| slot.get().is_some()) {
                return Err(Failure::Skipped);
            }
        }
        Ok(slot.get().cloned().flatten())
    }

    /// Returns format and value of each constant, in order of their parameters, sealed for the
    /// types that the server found. Fails with SR-8101 if the server expects a plain value, unless
    /// that is allowed, and with SR-8104 if a value is not valid.
    pub(super) fn seal_constants(
        &mut self,
        constants: &[Constant],
        description: &Description,
    ) -> Outcome<Vec<(i16, Option<Vec<u8>>)>> {
        let catalog = self.catalog();
        let settings = self.settings_now(needs_zone(&catalog, description, constants))?;
        let converter = Converter::new(&self.shared.keys, &settings);
        let mut out = Vec::with_capacity(constants.len());
        for constant in constants {
            let at = usize::try_from(constant.number).unwrap_or(0).checked_sub(1);
            let oid = at
                .and_then(|at| description.parameters.get(at))
                .copied()
                .unwrap_or(0);
            let told = match constant.literal.token {
                Token::Clock(clock) => Some(converter.clock(clock, self.begun)?),
                _ => None,
            };
            let text = told.as_ref().unwrap_or(&constant.literal.text).as_bytes();
            match catalog.enc_type(oid) {
                Some(enc) if constant.of.is_some_and(|of| of != enc) => {
                    // Whether it can be read as one of another type would be an answer.
                    let why = "the server expects another type than the statement says";
                    return Err(constant.literal.refusal(why).into());
                }
                Some(enc) => {
                    let converter = converter.storing_in(constant.column);
                    let (format, value) = converter.seal_parameter(&catalog, enc, 0, 0, text)?;
                    out.push((format, Some(value)));
                }
                None if self.shared.plaintext_constants == PlaintextConstants::Allow => {
                    out.push((0, Some(text.to_vec())));
                }
                None => {
                    return Err(constant.literal.refusal(PLAIN_EXPECTED).into());
                }
            }
        }
        Ok(out)
    }

    /// Handles the function call protocol, where the proxy does not know the types of arguments: in
    /// a database with confidential types the client gets SR-8103 (the outcome is then no failure)
    /// unless the function is one of PostgreSQL's own, such as those of large objects, none of
    /// which takes confidential values. Else it is passed on. `Skipped` if the server would ignore
    /// it.
    fn function_call(&mut self, body: &[u8]) -> Outcome {
        let own = Fields(body).oid().is_some_and(|oid| oid < FIRST_USER_OID);
        if self.catalog().is_confidential() && !own {
            let message =
                "the function call protocol carries values whose types the proxy does not know";
            self.refuse_query(Refusal::statement(message, "Call the function by SELECT."));
            return Ok(());
        }
        self.send(PendingAnswer::FunctionCall, b'F', |message| {
            message.bytes(body);
        })
    }
}

/// Appends format codes and values to a Bind message.
pub(super) fn bind_values(message: &mut Builder<'_>, values: &[(i16, Option<Vec<u8>>)]) {
    message.count(values.len());
    for (format, _) in values {
        message.int16(*format);
    }
    message.count(values.len());
    for (_, value) in values {
        message.value(value.as_deref());
    }
}

/// Takes a count (16 bits without sign) and as many signed numbers of 16 bits from a message, such
/// as the format codes of Bind. `None` if the message is too short.
pub(super) fn int16s(fields: &mut Fields<'_>) -> Option<Vec<i16>> {
    let count = fields.count()?;
    (0..count).map(|_| fields.int16()).collect()
}
