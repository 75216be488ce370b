//! What the two threads of a connection share: the answers that are expected from the server, in order.
//!
//! The thread that reads from the client (`upstream.rs`) appends; the thread that reads from the server (`downstream.rs`) takes
//! away. After an error the server ignores everything up to the next Sync, so the answers expected before it are dropped.
//! Invariants:
//! - P1 Only the thread that reads from the server writes to the client; only the other one writes to the server. A refusal
//!   therefore travels as a statement that fails (see `upstream.rs`), and its answer is replaced on the way back.
//! - P2 What is expected is appended before the message that it answers is sent.
//! - P3 Who waits for an answer is woken when it comes, when it is dropped, and when the connection ends.
//!
//! Must not: read or write a socket.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use strongroom_columns_values::Zone;

use crate::sql::catalog::{Catalog, EncType};
use crate::sql::refusal::Refusal;

use super::copy::Transform;

/// A column of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResultColumn {
    pub(crate) enc: Option<EncType>,
    /// 0 text, 1 binary; as the `RowDescription` says.
    pub(crate) format: i16,
}

/// What the server says of a prepared statement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Description {
    /// OIDs of the parameters' types.
    pub(crate) parameters: Vec<u32>,
    /// The result's columns.
    pub(crate) columns: Vec<ResultColumn>,
}

/// A place for a statement's description: empty until it comes, `None` when the statement was not made.
pub(crate) type Slot = Arc<OnceLock<Option<Description>>>;

/// Rows of a query of the proxy's own, or the server's error.
pub(crate) type Rows = Arc<OnceLock<Option<Vec<Vec<Option<String>>>>>>;

/// Where the columns of an execution are known from.
#[derive(Clone, Debug)]
pub(crate) enum Columns {
    /// From the statement, in these formats (Bind's result format codes).
    Statement(Slot, Arc<[i16]>),
    /// From a `RowDescription` that comes before the rows.
    Described,
}

/// An answer that is expected.
pub(crate) enum Expect {
    /// `changed`: the text is not the client's, so a position in it means nothing to the client.
    Parse {
        forward: bool,
        changed: bool,
        refusal: Option<Refusal>,
    },
    Bind {
        forward: bool,
    },
    Close,
    /// `forward`: the client is told, of the first so many parameters.
    DescribeStatement {
        slot: Option<Slot>,
        forward: Option<usize>,
    },
    /// `rows_only`: a `NoData` is kept from the client.
    DescribePortal {
        forward: bool,
        rows_only: bool,
    },
    /// `request`: its number; [`Session::expect`] gives it.
    Execute {
        columns: Columns,
        copy: Option<Arc<Transform>>,
        request: u64,
    },
    Sync {
        forward: bool,
    },
    /// A simple query. `request`: its number; [`Session::expect`] gives it.
    Query {
        refusal: Option<Refusal>,
        copy: Option<Arc<Transform>>,
        request: u64,
    },
    /// A query of the proxy's own.
    Own {
        rows: Rows,
        collected: Vec<Vec<Option<String>>>,
    },
    FunctionCall,
}

impl Expect {
    /// Whether an error leaves it in place: `ReadyForQuery` still comes.
    pub(crate) const fn ends_ready(&self) -> bool {
        matches!(
            self,
            Self::Sync { .. } | Self::Query { .. } | Self::Own { .. } | Self::FunctionCall
        )
    }

    /// Tells who waits that it will not come.
    fn dropped(&self) {
        match self {
            Self::DescribeStatement {
                slot: Some(slot), ..
            } => {
                slot.get_or_init(|| None);
            }
            Self::Own { rows, .. } => {
                rows.get_or_init(|| None);
            }
            _ => {}
        }
    }
}

/// Settings of the session that values depend on, as the server reports them.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) date_style: String,
    pub(crate) interval_style: String,
    /// `None`: one that is not in the IANA database.
    pub(crate) zone: Option<Zone>,
    pub(crate) client_encoding: String,
    pub(crate) standard_strings: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            date_style: "ISO, MDY".to_owned(),
            interval_style: "postgres".to_owned(),
            zone: Some(Zone::utc()),
            client_encoding: "UTF8".to_owned(),
            standard_strings: true,
        }
    }
}

impl Settings {
    /// Takes in a `ParameterStatus`.
    pub(crate) fn report(&mut self, name: &[u8], value: &[u8]) {
        let value = String::from_utf8_lossy(value).into_owned();
        match name {
            b"DateStyle" => self.date_style = value,
            b"IntervalStyle" => self.interval_style = value,
            b"TimeZone" => self.zone = Zone::by_name(&value).ok(),
            b"client_encoding" => self.client_encoding = value,
            b"standard_conforming_strings" => self.standard_strings = value == "on",
            _ => {}
        }
    }
}

/// A COPY from the client that the server waits for the data of.
#[derive(Clone)]
pub(crate) struct Copying {
    /// The request that began it.
    pub(crate) request: u64,
    /// `None`: nothing of it is confidential.
    pub(crate) transform: Option<Arc<Transform>>,
}

/// The shared state.
pub(crate) struct State {
    pub(crate) expects: VecDeque<Expect>,
    /// The server ignores everything up to the next Sync, which the client has not sent yet.
    pub(crate) skipping: bool,
    /// Transaction status of the last `ReadyForQuery`: `I`, `T`, `E`.
    pub(crate) transaction: u8,
    pub(crate) settings: Settings,
    pub(crate) catalog: Arc<Catalog>,
    /// One of the two threads has ended.
    pub(crate) ended: bool,
    /// Number of the last request that was appended, whatever it is. Data for a COPY that an older one began has no place any
    /// more.
    pub(crate) requests: u64,
    /// The COPY whose data the client sends now.
    pub(crate) copying: Option<Copying>,
    /// The server has said that the zone does not know this session's ticket or keys any more.
    pub(crate) lost: bool,
    /// What the client is told in place of the next error.
    pub(crate) replacement: Option<Refusal>,
}

pub(crate) struct Session {
    state: Mutex<State>,
    changed: Condvar,
}

impl Session {
    pub(crate) fn new(catalog: Catalog, settings: Settings, transaction: u8) -> Self {
        let state = State {
            expects: VecDeque::new(),
            skipping: false,
            transaction,
            settings,
            catalog: Arc::new(catalog),
            ended: false,
            requests: 0,
            copying: None,
            lost: false,
            replacement: None,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// The state. A thread that panicked has ended its connection; the state is still sound enough to end the other.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes whoever waits.
    pub(crate) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Waits until `done` or the end of the connection: whether it is done.
    pub(crate) fn wait(&self, mut done: impl FnMut(&State) -> bool) -> bool {
        let guard = self.lock();
        let guard = self
            .changed
            .wait_while(guard, |state| !state.ended && !done(state))
            .unwrap_or_else(PoisonError::into_inner);
        !guard.ended
    }

    /// As [`Self::wait`], for so long at most.
    pub(crate) fn wait_for(&self, limit: Duration, mut done: impl FnMut(&State) -> bool) -> bool {
        let guard = self.lock();
        let (guard, waited) = self
            .changed
            .wait_timeout_while(guard, limit, |state| !state.ended && !done(state))
            .unwrap_or_else(PoisonError::into_inner);
        !guard.ended && !waited.timed_out()
    }

    /// Ends the connection for both threads.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        for expect in state.expects.drain(..) {
            expect.dropped();
        }
        drop(state);
        self.wake();
    }

    /// Appends what a message will be answered with. `false`: the server ignores the message, so it need not be sent.
    pub(crate) fn expect(&self, mut expect: Expect) -> bool {
        let mut state = self.lock();
        // A Sync within a COPY is nothing to the server.
        if !matches!(expect, Expect::Sync { .. }) {
            state.requests = state.requests.saturating_add(1);
        }
        if let Expect::Execute { request, .. } | Expect::Query { request, .. } = &mut expect {
            *request = state.requests;
        }
        if state.skipping {
            if matches!(expect, Expect::Sync { .. }) {
                state.skipping = false;
            } else {
                expect.dropped();
                return false;
            }
        }
        state.expects.push_back(expect);
        true
    }
}

impl State {
    /// The server has reported an error outside a simple query: everything up to the next Sync will not be answered.
    pub(crate) fn fail(&mut self) {
        while self
            .expects
            .front()
            .is_some_and(|expect| !matches!(expect, Expect::Sync { .. }))
        {
            if let Some(expect) = self.expects.pop_front() {
                expect.dropped();
            }
        }
        self.skipping = self.expects.is_empty();
    }
}
