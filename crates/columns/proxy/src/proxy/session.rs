//! The state that the two threads of a connection share: the answers that are expected from the
//! server, in order.
//!
//! The thread that reads from the client (`upstream.rs`) appends; the thread that reads from the
//! server (`downstream.rs`) removes. After an error the server ignores everything up to the next
//! Sync, so the answers expected before it are dropped. Invariants:
//! - P1 Only the thread that reads from the server writes to the client; only the other one writes
//!   to the server. A refusal therefore travels as a statement that fails (see `upstream.rs`), and
//!   its answer is replaced on the way back.
//! - P2 An expected answer is appended before its message is sent.
//! - P3 A thread that waits for an answer is woken when it comes, when it is dropped, and when the
//!   connection ends.
//!
//! Must not: read or write a socket.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::relations::Fate;
use crate::results::Results;
use crate::sql::catalog::Catalog;
use crate::sql::refusal::Refusal;
use crate::sql::{Copies, ExpectedColumns, Texts};

use super::collected_rows::CollectedRows;
use super::convert::ResultColumn;
use super::copy::Transform;
use super::settings::Settings;

/// The server's description of a prepared statement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Description {
    /// OIDs of the parameters' types.
    pub(crate) parameters: Vec<u32>,
    /// The result's columns.
    pub(crate) columns: Vec<ResultColumn>,
}

/// The description of a statement: empty until it comes, `None` when the statement was not made.
pub(crate) type DescriptionSlot = Arc<OnceLock<Option<Description>>>;

/// Rows of a query of the proxy's own: empty until they come, `None` after an error.
pub(crate) type RowsSlot = Arc<OnceLock<Option<Vec<Vec<Option<String>>>>>>;

/// The source of the columns of an execution's result.
#[derive(Clone, Debug)]
pub(crate) enum Columns {
    /// From the statement, in these formats (Bind's result format codes).
    Statement(DescriptionSlot, Arc<[i16]>),
    /// From a `RowDescription` that comes before the rows.
    Described,
}

/// Set when the server has completed a statement.
pub(crate) type Completed = Arc<AtomicBool>;

/// What a statement of a simple query is answered with.
#[derive(Debug)]
pub(crate) struct ExpectedStatement {
    /// What the columns of its rows are to be.
    pub(crate) columns: ExpectedColumns,
    pub(crate) copies: Copies,
    /// Set when it is completed; `None` if nobody waits for that.
    pub(crate) ends: Option<Completed>,
}

impl ExpectedStatement {
    /// Returns whether one of its columns is certainly confidential.
    pub(crate) fn is_bound(&self) -> bool {
        self.columns.iter().any(|column| column.origins.is_some())
    }
}

/// An answer that is expected.
pub(crate) enum PendingAnswer {
    /// `texts`: set if the text is not the client's, who gets positions in its own. `told`: set
    /// when the client is told that the statement is made; `None` if it is not told.
    Parse {
        told: Option<Completed>,
        texts: Option<Arc<Texts>>,
        refusal: Option<Refusal>,
    },
    /// `told`: as of Parse, for the portal.
    Bind {
        told: Option<Completed>,
    },
    /// `ends`: set when it is completed.
    Close {
        ends: Completed,
    },
    /// `forward`: the client gets the description, of so many parameters. `known`: what it has to
    /// be. `expected`: what the columns of the rows are to be.
    DescribeStatement {
        slot: Option<DescriptionSlot>,
        forward: Option<usize>,
        known: Option<Columns>,
        expected: ExpectedColumns,
    },
    /// `rows_only`: the client does not get a `NoData`. `known`: what the description has to be.
    /// `expected`: what the columns of the rows are to be.
    DescribePortal {
        forward: bool,
        rows_only: bool,
        known: Option<Columns>,
        expected: ExpectedColumns,
    },
    /// `request`: its number, which [`Session::push_pending`] sets. `expected`: what the columns of
    /// its rows are to be. `refusal`: set when the proxy has refused the data of its COPY. `ends`:
    /// to be set when it is completed.
    Execute {
        columns: Columns,
        expected: ExpectedColumns,
        copies: Copies,
        copy: Option<Arc<Transform>>,
        refusal: Option<Refusal>,
        ends: Option<Completed>,
        request: u64,
    },
    Sync {
        forward: bool,
    },
    /// A simple query. `request`: its number, which [`Session::push_pending`] sets. `expected`:
    /// what each of its statements is answered with that has not ended. `is_exact`: `expected` has
    /// every statement. `others`: what those copy that it does not have. `has_failed`: the server
    /// has answered one of them by an error. `is_bound`: one of them, ended or not, has a column
    /// that is certainly confidential.
    Query {
        refusal: Option<Refusal>,
        expected: VecDeque<ExpectedStatement>,
        is_exact: bool,
        has_failed: bool,
        is_bound: bool,
        others: Copies,
        copy: Option<Arc<Transform>>,
        request: u64,
    },
    /// A query of the proxy's own.
    Own {
        rows: RowsSlot,
        collected: CollectedRows,
    },
    /// A statement of the proxy's own in the client's pipeline, which ends with the last of so many
    /// `closes`.
    Within {
        rows: RowsSlot,
        collected: CollectedRows,
        closes: u8,
    },
    FunctionCall,
}

impl PendingAnswer {
    /// Returns whether the server still sends `ReadyForQuery` for this message after it has
    /// reported an error of it.
    pub(crate) const fn awaits_ready(&self) -> bool {
        matches!(
            self,
            Self::Sync { .. } | Self::Query { .. } | Self::Own { .. } | Self::FunctionCall
        )
    }

    /// Returns whether the server has to answer it by an error, which a refusal replaces.
    pub(crate) const fn is_refused(&self) -> bool {
        matches!(
            self,
            Self::Parse {
                refusal: Some(_),
                ..
            } | Self::Query {
                refusal: Some(_),
                ..
            } | Self::Execute {
                refusal: Some(_),
                ..
            }
        )
    }

    /// Returns whether a message of this type may be a part of the answer. Not asked about
    /// `ErrorResponse`, which every answer may end with, nor about notices, notifications and
    /// `ParameterStatus`, which may come at any time.
    pub(crate) const fn may_contain(&self, tag: u8) -> bool {
        match self {
            Self::Parse { .. } => matches!(tag, b'1'),
            Self::Bind { .. } => matches!(tag, b'2'),
            Self::Close { .. } => matches!(tag, b'3'),
            Self::DescribeStatement { .. } => matches!(tag, b't' | b'T' | b'n'),
            Self::DescribePortal { .. } => matches!(tag, b'T' | b'n'),
            Self::Execute { .. } => matches!(
                tag,
                b'D' | b'C' | b'I' | b's' | b'G' | b'H' | b'W' | b'd' | b'c'
            ),
            Self::Sync { .. } => matches!(tag, b'Z'),
            // The server drops what is left of the text.
            Self::Query {
                has_failed: true, ..
            } => matches!(tag, b'Z'),
            Self::Query { .. } => matches!(
                tag,
                b'T' | b'D' | b'C' | b'I' | b'G' | b'H' | b'W' | b'd' | b'c' | b'Z'
            ),
            Self::Own { .. } => matches!(
                tag,
                b'1' | b'2' | b'3' | b'T' | b'n' | b'D' | b'C' | b'I' | b'Z'
            ),
            Self::Within { .. } => matches!(tag, b'1' | b'2' | b'3' | b'D' | b'C'),
            Self::FunctionCall => matches!(tag, b'V' | b'Z'),
        }
    }

    /// Returns what the statement copies that is answered now.
    pub(crate) fn copies(&self) -> Copies {
        match self {
            Self::Execute { copies, .. } => *copies,
            Self::Query {
                expected,
                is_exact,
                others,
                ..
            } => match expected.front() {
                Some(statement) => statement.copies,
                None if *is_exact => Copies::Nothing,
                None => *others,
            },
            _ => Copies::Nothing,
        }
    }

    /// Returns whether rows may come in answer to it: not when the proxy has made it fail, nor when
    /// all statements of a simple query have ended.
    pub(crate) fn may_have_rows(&self) -> bool {
        let is_over = matches!(
            self,
            Self::Query { expected, is_exact: true, .. } if expected.is_empty()
        );
        !self.is_refused() && !is_over
    }

    /// Returns whether the server has answered every statement of a simple query, or one of them by
    /// an error: only then it is ready for the next one. True for every other answer, and where the
    /// statements are not known.
    pub(crate) fn is_complete(&self) -> bool {
        match self {
            Self::Query {
                expected,
                is_exact: true,
                has_failed: false,
                ..
            } => expected.is_empty(),
            _ => true,
        }
    }

    /// Returns the number of the request that it answers; `None` if it is no execution.
    pub(crate) const fn request(&self) -> Option<u64> {
        match self {
            Self::Execute { request, .. } | Self::Query { request, .. } => Some(*request),
            _ => None,
        }
    }

    /// Puts `None` into the slot that a thread waits for, because the answer will not come. The
    /// caller wakes the thread.
    fn notify_dropped(&self) {
        match self {
            Self::DescribeStatement {
                slot: Some(slot), ..
            } => {
                slot.get_or_init(|| None);
            }
            Self::Own { rows, .. } | Self::Within { rows, .. } => {
                rows.get_or_init(|| None);
            }
            _ => {}
        }
    }
}

/// Why the server has ended a statement before its time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// The client's cancel request.
    Cancel,
    /// The session's `statement_timeout`.
    Timeout,
    /// One of both: the server speaks another language.
    Either,
}

/// A COPY whose data the server expects from the client.
#[derive(Clone)]
pub(crate) struct Copying {
    /// The request that began it.
    pub(crate) request: u64,
    /// `None` when no column is confidential.
    pub(crate) transform: Option<Arc<Transform>>,
}

/// The shared state.
pub(crate) struct State {
    pub(crate) pending_answers: VecDeque<PendingAnswer>,
    /// The server ignores everything up to the next Sync, which the client has not sent yet.
    pub(crate) skipping: bool,
    /// The proxy has refused a message of the pipeline: the server will ignore everything up to the
    /// next Sync, and gets nothing of it.
    pub(crate) refused: bool,
    /// Transaction status of the last `ReadyForQuery`: `I`, `T`, `E`.
    pub(crate) transaction: u8,
    pub(crate) settings: Settings,
    pub(crate) catalog: Arc<Catalog>,
    /// Which envelopes are taken as values of answers.
    pub(crate) results: Arc<Results>,
    /// One of the two threads has ended.
    pub(crate) ended: bool,
    /// The connection has ended before all answers had come.
    pub(crate) is_cut: bool,
    /// Number of the last request that was appended, of any kind. Data for a COPY of an older
    /// request is dropped.
    pub(crate) requests: u64,
    /// The COPY whose data the client sends now.
    pub(crate) copying: Option<Copying>,
    /// The request of the COPY to which the client has sent all data, until it has ended.
    pub(crate) copied: Option<u64>,
    /// How many Syncs were sent with the COPY of which the client sends the data now, or behind it.
    pub(crate) syncs_within_copy: usize,
    /// How many of them the server may still answer, because that COPY has failed and the server
    /// may not have read them.
    pub(crate) late_syncs: usize,
    /// The client has sent messages of the extended protocol, and no Sync behind them.
    pub(crate) is_in_pipeline: bool,
    /// The server has said that the zone does not know this session's ticket or keys any more.
    pub(crate) lost: bool,
    /// How often the client was told of an error, or has rolled something back.
    pub(crate) undone: Arc<AtomicU64>,
    /// Whether the client has begun a transaction and not ended it.
    pub(crate) is_open: bool,
    /// `undone`, when the client began it.
    pub(crate) undone_before: u64,
    /// What becomes of the definitions that the client has sent in this transaction.
    pub(crate) fate: Option<Arc<Fate>>,
    /// A COPY from the client was sent or refused, and none has succeeded since.
    pub(crate) copy_doubted: bool,
    /// Why the server has ended a query of the proxy's own; `None` unless it has.
    pub(crate) interrupted: Option<Interrupt>,
    /// A statement has been sent that may change which columns there are: the other connections are
    /// told when its transaction has ended.
    pub(crate) announces: bool,
}

pub(crate) struct Session {
    state: Mutex<State>,
    changed: Condvar,
}

impl Session {
    /// Makes the state of a connection whose authentication is over, with no answer expected.
    pub(crate) fn new(
        catalog: Catalog,
        settings: Settings,
        results: Results,
        transaction: u8,
    ) -> Self {
        let state = State {
            pending_answers: VecDeque::new(),
            skipping: false,
            refused: false,
            transaction,
            settings,
            catalog: Arc::new(catalog),
            results: Arc::new(results),
            ended: false,
            is_cut: false,
            requests: 0,
            copying: None,
            copied: None,
            syncs_within_copy: 0,
            late_syncs: 0,
            is_in_pipeline: false,
            lost: false,
            undone: Arc::default(),
            is_open: false,
            undone_before: 0,
            fate: None,
            copy_doubted: false,
            interrupted: None,
            announces: false,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Locks the state, also after a panic: a thread that panicked has ended its connection, and
    /// the state is sound enough to end the other thread.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the thread that waits for a change of the state.
    pub(crate) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Waits until `done` returns true and returns true; returns false if the connection ends.
    pub(crate) fn wait(&self, mut done: impl FnMut(&State) -> bool) -> bool {
        let state = self.lock();
        let state = self
            .changed
            .wait_while(state, |state| !state.ended && !done(state))
            .unwrap_or_else(PoisonError::into_inner);
        !state.ended
    }

    /// Waits as [`Self::wait`] does, for at most `limit`; returns false also when that has passed
    /// first. `done` is called with the state locked, at first and after each [`Self::wake`].
    pub(crate) fn wait_for(&self, limit: Duration, mut done: impl FnMut(&State) -> bool) -> bool {
        let state = self.lock();
        let (state, waited) = self
            .changed
            .wait_timeout_while(state, limit, |state| !state.ended && !done(state))
            .unwrap_or_else(PoisonError::into_inner);
        !state.ended && !waited.timed_out()
    }

    /// Ends the connection for both threads: drops all expected answers and wakes the thread that
    /// waits. The sockets stay open.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        state.is_cut |= !state.pending_answers.is_empty();
        for expect in state.pending_answers.drain(..) {
            expect.notify_dropped();
        }
        drop(state);
        self.wake();
    }

    /// Notes the answer that a message will get, and numbers the message. `false` when the server
    /// ignores the message because of an earlier error, so that it need not be sent: then nothing
    /// is noted, and the answer's slot gets `None`. A Sync ends that state.
    pub(crate) fn push_pending(&self, expect: PendingAnswer) -> bool {
        self.lock().push(expect)
    }

    /// Notes the answer that a Sync of the client's will get, which the server may have ignored
    /// because it copies from the client.
    pub(crate) fn push_sync(&self) {
        let mut state = self.lock();
        if state.copying.is_some() {
            // If the COPY fails before the server has read it, it is answered.
            state.syncs_within_copy = state.syncs_within_copy.saturating_add(1);
        } else {
            state.push(PendingAnswer::Sync { forward: true });
        }
    }
}

impl State {
    /// Does what [`Session::push_pending`] says.
    fn push(&mut self, mut expect: PendingAnswer) -> bool {
        self.is_in_pipeline = !expect.awaits_ready();
        // The server ignores a Sync within a COPY.
        if !matches!(expect, PendingAnswer::Sync { .. }) {
            self.requests = self.requests.saturating_add(1);
            self.late_syncs = 0;
        }
        if let PendingAnswer::Execute { request, .. } | PendingAnswer::Query { request, .. } =
            &mut expect
        {
            *request = self.requests;
        }
        if self.skipping || self.refused {
            if matches!(expect, PendingAnswer::Sync { .. }) {
                self.skipping = false;
                self.refused = false;
            } else {
                expect.notify_dropped();
                return false;
            }
        }
        if let Some(fate) = &self.fate
            && !matches!(
                expect,
                PendingAnswer::Sync { .. }
                    | PendingAnswer::Own { .. }
                    | PendingAnswer::Within { .. }
            )
        {
            fate.note_message(matches!(
                expect,
                PendingAnswer::Execute { .. } | PendingAnswer::Query { .. }
            ));
        }
        self.pending_answers.push_back(expect);
        true
    }

    /// Notes that the client was told of an error, or rolls something back.
    pub(crate) fn note_undone(&self) {
        self.undone.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that the server has answered a statement and is ready for the next one. The
    /// definitions that the client has sent are carried out or not, unless it has a transaction
    /// open.
    pub(crate) fn end_statements(&mut self) {
        if self.transaction == b'I'
            && self.pending_answers.is_empty()
            && self.undone.load(Ordering::Acquire) != self.undone_before
        {
            // A BEGIN behind an error in a pipeline was not carried out. Without an error the
            // server's word does not end a transaction.
            self.is_open = false;
        }
        if self.is_open {
            return;
        }
        if !self.pending_answers.is_empty() {
            // Which of the statements under way the definitions belong to is not known.
            if let Some(fate) = &self.fate {
                fate.blur();
            }
        } else if let Some(fate) = self.fate.take() {
            fate.decide();
        }
    }

    /// Returns what becomes of definitions that the client sends now.
    pub(crate) fn fate(&mut self) -> Arc<Fate> {
        let fate = self.fate.get_or_insert_with(|| Fate::begin(&self.undone));
        Arc::clone(fate)
    }

    /// Notes that the proxy has refused the data of the COPY of this request, which the server has
    /// to answer by an error then.
    pub(crate) fn refuse_copy(&mut self, number: u64, of: Refusal) {
        for pending in &mut self.pending_answers {
            if let PendingAnswer::Execute {
                refusal, request, ..
            }
            | PendingAnswer::Query {
                refusal, request, ..
            } = pending
                && *request == number
            {
                *refusal = Some(of);
                return;
            }
        }
    }

    /// Takes the Syncs off the expected answers that the server ignores because it copies from the
    /// client now (src/backend/commands/copyfromparse.c), and counts them: a COPY that fails before
    /// the server reads any data leaves them to be answered.
    pub(crate) fn take_syncs(&mut self) {
        let before = self.pending_answers.len();
        self.pending_answers
            .retain(|expect| !matches!(expect, PendingAnswer::Sync { .. }));
        self.syncs_within_copy = before.saturating_sub(self.pending_answers.len());
    }

    /// Returns whether a `ReadyForQuery` that comes now may answer a Sync that the server has not
    /// ignored within a COPY that has failed.
    pub(crate) fn is_ready_late(&self) -> bool {
        self.late_syncs > 0 && self.pending_answers.is_empty()
    }

    /// Notes that such an answer has come: the server ignores messages no more.
    pub(crate) const fn take_late_ready(&mut self) {
        self.late_syncs = self.late_syncs.saturating_sub(1);
        self.skipping = false;
    }

    /// Drops the expected answers up to the next Sync, because the server has reported an error
    /// outside a simple query. If there is no Sync yet, messages are ignored until the client sends
    /// one.
    pub(crate) fn skip_to_sync(&mut self) {
        while self
            .pending_answers
            .front()
            .is_some_and(|expect| !matches!(expect, PendingAnswer::Sync { .. }))
        {
            if let Some(expect) = self.pending_answers.pop_front() {
                expect.notify_dropped();
            }
        }
        self.skipping = self.pending_answers.is_empty();
    }
}
