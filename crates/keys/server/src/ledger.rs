//! The ledger: the only path by which records change. One thread commits changes together with
//! their rows of the audit log, in the order of the log.
//!
//! Invariants:
//! - L1: No request gets its response before its row is durable (A1).
//! - L2: The records on which a change or a delivery depends (the client's identity, the key, the
//!   grant) are guarded in the same commit. After a revocation has returned, nothing is delivered.
//! - L3: A request with changes is committed alone. Requests with rows only share a commit.
//!
//! Must not: decide what a client may do.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use strongroom_format::code;
use strongroom_keyring::Error;

use crate::audit::{self, Event, GENESIS, Row};
use crate::keys::Keys;
use crate::log::{Level, log};
use crate::now;
use crate::store::{Append, Change, Guard, Outcome, Store};
use crate::syslog::Syslog;

/// The most requests that wait for the thread.
const QUEUE_MAX: usize = 1024;
/// The most requests without changes that share a commit. With three guards each, they stay below
/// the store's limit.
const BATCH_MAX: usize = 24;
/// How often a commit is repeated because another server appended rows first.
const TRIES: usize = 64;

/// Changes and events that are to be committed.
#[derive(Default)]
pub(crate) struct CommitRequest {
    /// The preconditions of the commit.
    pub(crate) guards: Vec<Guard>,
    /// The changes of records.
    pub(crate) changes: Vec<Change>,
    /// The events that become rows of the audit log.
    pub(crate) events: Vec<Event>,
}

type CommitResult = Result<Outcome, Error>;

/// A request in the queue, and where its result goes.
struct QueuedRequest {
    request: CommitRequest,
    result: SyncSender<CommitResult>,
}

/// The handle of the thread that commits. When it is dropped, the thread ends.
pub(crate) struct Ledger {
    requests: SyncSender<QueuedRequest>,
    syslog: SharedSyslog,
}

/// The syslog daemon that also gets the rows, if one is configured.
type SharedSyslog = Arc<Mutex<Option<Arc<Syslog>>>>;

impl Ledger {
    /// Reads the last row of the log, after which new rows are appended, and starts the thread that
    /// commits.
    ///
    /// # Errors
    /// What the store reports; SR-8436 when the last row does not open; SR-5001 when the thread
    /// cannot be started.
    pub(crate) fn start(store: Arc<dyn Store>, keys: Arc<Keys>) -> Result<Self, Error> {
        let (requests, queue) = sync_channel(QUEUE_MAX);
        let last = read_last_row(&*store, &keys)?;
        let syslog = SharedSyslog::default();
        let committer = Committer {
            store,
            keys,
            last,
            syslog: Arc::clone(&syslog),
        };
        std::thread::Builder::new()
            .name("ledger".to_owned())
            .spawn(move || committer.run(&queue))
            .map_err(|error| Error::io("starting a thread", error))?;
        Ok(Self { requests, syslog })
    }

    /// Sets the syslog daemon that also gets rows from now on; `None`: no daemon.
    pub(crate) fn set_syslog(&self, syslog: Option<Arc<Syslog>>) {
        *self.syslog.lock().unwrap_or_else(PoisonError::into_inner) = syslog;
    }

    /// Returns the syslog daemon that also gets the rows; `None` if there is none.
    pub(crate) fn syslog(&self) -> Option<Arc<Syslog>> {
        let syslog = self.syslog.lock().unwrap_or_else(PoisonError::into_inner);
        syslog.clone()
    }

    /// Commits a request and waits until it is durable, perhaps after other requests.
    /// [`Outcome::Conflict`]: a guarded record has changed, and nothing was written.
    ///
    /// # Errors
    /// What the store reports, after which it is unknown whether the commit took effect; SR-8442
    /// when other servers append rows again and again; SR-8435 when the thread has ended.
    pub(crate) fn commit(&self, request: CommitRequest) -> CommitResult {
        let ended = || Error::new(&code::SERVER_STORE, "it is being closed");
        let (sender, result) = sync_channel(1);
        let queued = QueuedRequest {
            request,
            result: sender,
        };
        self.requests.send(queued).map_err(|_| ended())?;
        result.recv().map_err(|_| ended())?
    }
}

/// Reads the number and the hash of the last row in the store; 0 and [`GENESIS`] when there is
/// none. SR-8436 when it does not open; what the store reports.
fn read_last_row(store: &dyn Store, keys: &Keys) -> Result<(u64, String), Error> {
    let Some((n, sealed)) = store.last_row()? else {
        return Ok((0, GENESIS.to_owned()));
    };
    Ok((n, open_row(keys, n, &sealed)?.hash))
}

/// Opens a sealed row. `n`: the number under which the store has it.
///
/// # Errors
/// SR-8436 when it does not open, is malformed, or contains another number.
pub(crate) fn open_row(keys: &Keys, n: u64, sealed: &[u8]) -> Result<Row, Error> {
    let broken = |_| Error::new(&code::SERVER_AUDIT, format!("row {n} does not open"));
    let bytes = keys.open(&audit::row_path(n), sealed).map_err(broken)?;
    let row: Option<Row> = serde_json::from_slice(&bytes).ok();
    row.filter(|row| row.n == n)
        .ok_or_else(|| Error::new(&code::SERVER_AUDIT, format!("row {n} is malformed")))
}

/// The rows that a commit appends.
struct NewRows {
    /// The rows, sealed.
    append: Append,
    /// The number and the hash of the last one.
    last: (u64, String),
    /// The rows, not sealed.
    rows: Vec<Row>,
}

/// The state of the thread.
struct Committer {
    store: Arc<dyn Store>,
    keys: Arc<Keys>,
    /// The number and the hash of the last row in the log.
    last: (u64, String),
    syslog: SharedSyslog,
}

impl Committer {
    /// Commits the requests of the queue until every handle is gone. Requests without changes that
    /// are waiting share a commit.
    fn run(mut self, queue: &Receiver<QueuedRequest>) {
        let mut next = queue.recv().ok();
        while let Some(first) = next.take() {
            let mut batch = vec![first];
            while batch.len() < BATCH_MAX && batch.iter().all(|one| one.request.changes.is_empty())
            {
                match queue.try_recv() {
                    Ok(more) if more.request.changes.is_empty() => batch.push(more),
                    Ok(more) => {
                        next = Some(more);
                        break;
                    }
                    Err(_) => break,
                }
            }
            self.commit_batch(batch);
            if next.is_none() {
                next = queue.recv().ok();
            }
        }
    }

    /// Commits the requests together, and sends each its result. If a guard of one of them fails,
    /// commits them one by one.
    fn commit_batch(&mut self, batch: Vec<QueuedRequest>) {
        if batch.len() > 1 {
            let requests: Vec<&CommitRequest> = batch.iter().map(|one| &one.request).collect();
            let together = self.commit(&requests);
            if !matches!(together, Ok(Outcome::Conflict)) {
                for one in batch {
                    // After an error of the store, the requests are not repeated one by one.
                    let each = match &together {
                        Ok(outcome) => Ok(*outcome),
                        Err(error) => Err(Error::new(error.code(), error.detail())),
                    };
                    // Sending fails when the caller no longer waits. The commit is valid all the
                    // same.
                    drop(one.result.send(each));
                }
                return;
            }
        }
        for one in batch {
            drop(one.result.send(self.commit(&[&one.request])));
        }
    }

    /// Commits these requests in one commit of the store, and publishes their rows. If another
    /// server has appended rows first, makes the rows anew and repeats, up to [`TRIES`] times, then
    /// SR-8442. [`Outcome::Conflict`] when a guard fails. SR-8435 or what else the store reports.
    fn commit(&mut self, requests: &[&CommitRequest]) -> CommitResult {
        let mut guards: Vec<Guard> = requests
            .iter()
            .flat_map(|request| request.guards.clone())
            .collect();
        guards.sort_by(|a, b| (&a.path, a.revision).cmp(&(&b.path, b.revision)));
        guards.dedup();
        let changes: Vec<Change> = requests
            .iter()
            .flat_map(|request| request.changes.clone())
            .collect();
        for _ in 0..TRIES {
            let NewRows { append, last, rows } = self.new_rows(requests)?;
            match self.store.commit(&guards, &changes, &append) {
                Ok(Outcome::Done) => {
                    if !append.rows.is_empty() {
                        self.last = last;
                        self.publish(rows);
                    }
                    return Ok(Outcome::Done);
                }
                Ok(Outcome::Conflict) => {
                    let last = read_last_row(&*self.store, &self.keys)?;
                    if last == self.last {
                        return Ok(Outcome::Conflict);
                    }
                    self.last = last;
                }
                Err(error) => {
                    // The commit may have taken effect. New rows must follow the last row of the
                    // store.
                    if let Ok(last) = read_last_row(&*self.store, &self.keys) {
                        self.last = last;
                    }
                    return Err(error);
                }
            }
        }
        Err(Error::new(&code::SERVER_BUSY, "the audit log"))
    }

    /// Makes and seals the rows for these requests, after the last row that is known. Writes
    /// nothing. SR-5001 without random numbers.
    fn new_rows(&self, requests: &[&CommitRequest]) -> Result<NewRows, Error> {
        let (mut n, mut hash) = self.last.clone();
        let first = n.saturating_add(1);
        let (mut rows, mut plain) = (Vec::new(), Vec::new());
        for event in requests.iter().flat_map(|request| &request.events) {
            n = n.saturating_add(1);
            let row = Row::following(&hash, n, now(), event.clone());
            let bytes = serde_json::to_vec(&row)
                .map_err(|error| Error::new(&code::BUG, error.to_string()))?;
            rows.push(self.keys.seal(&audit::row_path(n), &bytes)?);
            hash.clone_from(&row.hash);
            plain.push(row);
        }
        Ok(NewRows {
            append: Append { first, rows },
            last: (n, hash),
            rows: plain,
        })
    }

    /// Sends the rows to syslog, if it is set, and logs number and hash of the last one. The
    /// server's log is stored elsewhere, and reveals an audit log that was truncated.
    fn publish(&self, rows: Vec<Row>) {
        let syslog = self.syslog.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(syslog) = &*syslog {
            rows.into_iter().for_each(|row| syslog.send(row));
        }
        drop(syslog);
        let (n, hash) = &self.last;
        log(
            Level::Info,
            "audit",
            &[("n", &n.to_string()), ("hash", hash)],
        );
    }
}
