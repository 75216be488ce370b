//! The one way to change the store: changes and their rows of the audit log in one commit, in the order of the log.
//!
//! Invariants: L1, nothing is answered before its row is durable (A1); L2, what a change or a delivery is based upon - the client's
//! identity, the key, the grant - is guarded in the same commit, so nothing is delivered that was revoked before; L3, a commit with
//! changes is made alone, rows without changes are made together.
//!
//! Must not: decide who may do what.

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

/// Jobs that wait at most.
const QUEUE: usize = 1024;
/// Jobs without changes that share a commit: with three guards each they stay below the store's limit.
const TOGETHER: usize = 24;
/// How often other servers may come in between.
const TRIES: usize = 64;

/// What is to be committed.
#[derive(Default)]
pub(crate) struct Job {
    /// What it is based upon.
    pub(crate) guards: Vec<Guard>,
    /// What changes.
    pub(crate) changes: Vec<Change>,
    /// What is written down.
    pub(crate) events: Vec<Event>,
}

type Answer = Result<Outcome, Error>;

struct Waiting {
    job: Job,
    answer: SyncSender<Answer>,
}

/// The way to the thread that commits. When the last one is dropped, the thread ends.
pub(crate) struct Ledger {
    jobs: SyncSender<Waiting>,
    syslog: SyslogToo,
}

/// Where rows go besides the store, if anywhere.
type SyslogToo = Arc<Mutex<Option<Arc<Syslog>>>>;

impl Ledger {
    /// Starts the thread. Reads the last row first, to go on from there.
    ///
    /// # Errors
    /// What the store reports; SR-8436 when the last row does not open; SR-5001.
    pub(crate) fn start(store: Arc<dyn Store>, keys: Arc<Keys>) -> Result<Self, Error> {
        let (jobs, queue) = sync_channel(QUEUE);
        let head = head(&*store, &keys)?;
        let syslog = SyslogToo::default();
        let clerk = Clerk {
            store,
            keys,
            head,
            syslog: Arc::clone(&syslog),
        };
        std::thread::Builder::new()
            .name("ledger".to_owned())
            .spawn(move || clerk.work(&queue))
            .map_err(|error| Error::io("starting a thread", error))?;
        Ok(Self { jobs, syslog })
    }

    /// Rows go to syslog too from now on, or no longer.
    pub(crate) fn set_syslog(&self, syslog: Option<Arc<Syslog>>) {
        *self.syslog.lock().unwrap_or_else(PoisonError::into_inner) = syslog;
    }

    /// The way to syslog, if rows go there.
    pub(crate) fn syslog(&self) -> Option<Arc<Syslog>> {
        let syslog = self.syslog.lock().unwrap_or_else(PoisonError::into_inner);
        syslog.clone()
    }

    /// Commits, and waits until it is durable. [`Outcome::Conflict`]: something that it was based upon has changed.
    ///
    /// # Errors
    /// What the store reports; SR-8435 when the thread has ended.
    pub(crate) fn commit(&self, job: Job) -> Answer {
        let ended = || Error::new(&code::SERVER_STORE, "it is being closed");
        let (answer, result) = sync_channel(1);
        self.jobs
            .send(Waiting { job, answer })
            .map_err(|_| ended())?;
        result.recv().map_err(|_| ended())?
    }
}

/// Number and hash of the last row.
fn head(store: &dyn Store, keys: &Keys) -> Result<(u64, String), Error> {
    let Some((n, sealed)) = store.last_row()? else {
        return Ok((0, GENESIS.to_owned()));
    };
    Ok((n, opened(keys, n, &sealed)?.hash))
}

/// A row as it is kept.
///
/// # Errors
/// SR-8436 when it does not open, or says of itself that it is another one.
pub(crate) fn opened(keys: &Keys, n: u64, sealed: &[u8]) -> Result<Row, Error> {
    let broken = |_| Error::new(&code::SERVER_AUDIT, format!("row {n} does not open"));
    let bytes = keys.open(&audit::path(n), sealed).map_err(broken)?;
    let row: Option<Row> = serde_json::from_slice(&bytes).ok();
    row.filter(|row| row.n == n)
        .ok_or_else(|| Error::new(&code::SERVER_AUDIT, format!("row {n} is malformed")))
}

/// What a commit appends.
struct Next {
    /// The rows, sealed.
    append: Append,
    /// Number and hash of the last one.
    head: (u64, String),
    /// The rows as they are.
    rows: Vec<Row>,
}

/// What the thread has.
struct Clerk {
    store: Arc<dyn Store>,
    keys: Arc<Keys>,
    head: (u64, String),
    syslog: SyslogToo,
}

impl Clerk {
    fn work(mut self, queue: &Receiver<Waiting>) {
        let mut next = queue.recv().ok();
        while let Some(first) = next.take() {
            let mut batch = vec![first];
            while batch.len() < TOGETHER && batch.iter().all(|one| one.job.changes.is_empty()) {
                match queue.try_recv() {
                    Ok(more) if more.job.changes.is_empty() => batch.push(more),
                    Ok(more) => {
                        next = Some(more);
                        break;
                    }
                    Err(_) => break,
                }
            }
            self.all(batch);
            if next.is_none() {
                next = queue.recv().ok();
            }
        }
    }

    /// Together if that works; else one by one, because one of them stands in the way.
    fn all(&mut self, batch: Vec<Waiting>) {
        if batch.len() > 1 {
            let jobs: Vec<&Job> = batch.iter().map(|one| &one.job).collect();
            let together = self.commit(&jobs);
            if !matches!(together, Ok(Outcome::Conflict)) {
                for one in batch {
                    // A store that does not answer is not asked once for each.
                    let each = match &together {
                        Ok(outcome) => Ok(*outcome),
                        Err(error) => Err(Error::new(error.code(), error.detail())),
                    };
                    // Nobody waits any more when this fails; what was written down stays so.
                    drop(one.answer.send(each));
                }
                return;
            }
        }
        for one in batch {
            drop(one.answer.send(self.commit(&[&one.job])));
        }
    }

    fn commit(&mut self, jobs: &[&Job]) -> Answer {
        let mut guards: Vec<Guard> = jobs.iter().flat_map(|job| job.guards.clone()).collect();
        guards.sort_by(|a, b| (&a.path, a.revision).cmp(&(&b.path, b.revision)));
        guards.dedup();
        let changes: Vec<Change> = jobs.iter().flat_map(|job| job.changes.clone()).collect();
        for _ in 0..TRIES {
            let Next { append, head, rows } = self.rows(jobs)?;
            match self.store.commit(&guards, &changes, &append) {
                Ok(Outcome::Done) => {
                    if !append.rows.is_empty() {
                        self.head = head;
                        self.tell(rows);
                    }
                    return Ok(Outcome::Done);
                }
                Ok(Outcome::Conflict) => {
                    let last = self::head(&*self.store, &self.keys)?;
                    if last == self.head {
                        return Ok(Outcome::Conflict);
                    }
                    self.head = last;
                }
                Err(error) => {
                    // It may have happened all the same: the log must go on from what there is.
                    if let Ok(last) = self::head(&*self.store, &self.keys) {
                        self.head = last;
                    }
                    return Err(error);
                }
            }
        }
        Err(Error::new(&code::SERVER_BUSY, "the audit log"))
    }

    /// What a commit of these jobs appends.
    fn rows(&self, jobs: &[&Job]) -> Result<Next, Error> {
        let (mut n, mut hash) = self.head.clone();
        let first = n.saturating_add(1);
        let (mut rows, mut plain) = (Vec::new(), Vec::new());
        for event in jobs.iter().flat_map(|job| &job.events) {
            n = n.saturating_add(1);
            let row = Row::following(&hash, n, now(), event.clone());
            let bytes = serde_json::to_vec(&row)
                .map_err(|error| Error::new(&code::BUG, error.to_string()))?;
            rows.push(self.keys.seal(&audit::path(n), &bytes)?);
            hash.clone_from(&row.hash);
            plain.push(row);
        }
        Ok(Next {
            append: Append { first, rows },
            head: (n, hash),
            rows: plain,
        })
    }

    /// The head goes to the log stream too, which is kept elsewhere: a log that was cut short is found by it.
    fn tell(&self, rows: Vec<Row>) {
        let syslog = self.syslog.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(syslog) = &*syslog {
            rows.into_iter().for_each(|row| syslog.take(row));
        }
        drop(syslog);
        let (n, hash) = &self.head;
        log(
            Level::Info,
            "audit",
            &[("n", &n.to_string()), ("hash", hash)],
        );
    }
}
