//! Sends rows of the audit log to the local syslog daemon, in the form of RFC 3164 that daemons
//! accept on `/dev/log`: one datagram for each row, with the row in JSON.
//!
//! Invariant Y1: a commit never waits for the daemon. Rows wait in a queue of bounded length. Rows
//! that do not fit into the queue, or that the daemon does not accept, are counted as lost.
//!
//! Must not: fail a commit; hold the only copy of a row.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use strongroom_keyring::Error;
use time::OffsetDateTime;

use crate::audit::Row;
use crate::log::{Level, log};

/// The most rows that wait for the daemon.
const QUEUE_MAX: usize = 8192;
/// The timeout for sending one row.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause before the next attempt to connect after one has failed.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// How often the server's log says that rows were lost.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Priority: facility 10 (security messages), severity 5 (notice); 4 (warning) for some.
const NOTICE: u8 = 85;
const WARNING: u8 = 84;
/// Actions with the severity of a warning.
const WARNING_ACTIONS: [&str; 3] = ["denied", "break-glass", "seal"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// The numbers of rows in the queue and of lost rows.
#[derive(Default)]
struct Counts {
    waiting: AtomicU64,
    lost: AtomicU64,
}

/// The handle of the thread that sends rows. When it is dropped, rows in the queue are still sent.
pub(crate) struct Syslog {
    rows: SyncSender<Row>,
    counts: Arc<Counts>,
}

impl Syslog {
    /// Starts a thread that sends rows to the socket at `path`. The daemon need not run yet.
    ///
    /// # Errors
    /// SR-5001 when the thread cannot be started.
    pub(crate) fn start(path: &Path) -> Result<Self, Error> {
        let (rows, queue) = sync_channel(QUEUE_MAX);
        let counts = Arc::new(Counts::default());
        let sender = Sender {
            path: path.to_owned(),
            socket: None,
            counts: Arc::clone(&counts),
            retry_at: Instant::now(),
            logged_at: None,
        };
        std::thread::Builder::new()
            .name("syslog".to_owned())
            .spawn(move || sender.run(&queue))
            .map_err(|error| Error::io("starting a thread", error))?;
        Ok(Self { rows, counts })
    }

    /// Puts a row into the queue without waiting. If the queue is full, the row is counted as lost.
    pub(crate) fn send(&self, row: Row) {
        self.counts.waiting.fetch_add(1, Relaxed);
        if self.rows.try_send(row).is_err() {
            self.counts.waiting.fetch_sub(1, Relaxed);
            self.counts.lost.fetch_add(1, Relaxed);
        }
    }

    /// Returns how many rows were lost since the start.
    pub(crate) fn lost(&self) -> u64 {
        self.counts.lost.load(Relaxed)
    }

    /// Waits, looking every 5 ms, until every row was sent or lost, for at most `timeout`.
    pub(crate) fn flush(&self, timeout: Duration) {
        let until = Instant::now() + timeout;
        while self.counts.waiting.load(Relaxed) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The state of the thread.
struct Sender {
    path: PathBuf,
    socket: Option<UnixDatagram>,
    counts: Arc<Counts>,
    retry_at: Instant,
    logged_at: Option<Instant>,
}

impl Sender {
    /// Sends the rows of the queue until every handle is gone. Connects again once if sending
    /// fails; a row that fails again is counted as lost.
    fn run(mut self, queue: &Receiver<Row>) {
        while let Ok(row) = queue.recv() {
            let text = message(&row);
            // After a restart, the daemon has another socket of the same name: a second attempt
            // connects to it.
            let sent = self.send(&text).or_else(|_| self.send(&text));
            if let Err(error) = sent {
                self.counts.lost.fetch_add(1, Relaxed);
                self.log_failure(&error);
            }
            self.counts.waiting.fetch_sub(1, Relaxed);
        }
    }

    /// Sends one datagram, and connects first if there is no connection. Fails without a
    /// connection, or if the daemon does not take the datagram within a second; the connection is
    /// then dropped. After a failure to connect, no attempt is made for half a second.
    fn send(&mut self, text: &str) -> io::Result<()> {
        if self.socket.is_none() {
            if Instant::now() < self.retry_at {
                return Err(io::ErrorKind::NotConnected.into());
            }
            let connected = connect(&self.path);
            if connected.is_err() {
                self.retry_at = Instant::now() + RETRY_PAUSE;
            }
            self.socket = Some(connected?);
        }
        let sent = match &self.socket {
            Some(socket) => socket.send(text.as_bytes()).map(drop),
            None => Ok(()),
        };
        if sent.is_err() {
            self.socket = None;
        }
        sent
    }

    /// Writes a warning to the server's log, with the number of lost rows, unless one was written
    /// within the last minute.
    fn log_failure(&mut self, error: &io::Error) {
        if self.logged_at.is_some_and(|at| at.elapsed() < LOG_INTERVAL) {
            return;
        }
        self.logged_at = Some(Instant::now());
        let lost = self.counts.lost.load(Relaxed).to_string();
        let path = self.path.display().to_string();
        let error = error.to_string();
        let members = [("socket", &*path), ("error", &*error), ("lost", &*lost)];
        log(Level::Warning, "syslog", &members);
    }
}

/// Connects to the daemon's socket; sending will wait for at most a second. Fails if no daemon has
/// the socket.
fn connect(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    socket.connect(path)?;
    Ok(socket)
}

/// Writes the datagram of a row: `<PRIORITY>Mmm dd hh:mm:ss strongroom-keyserver[PID]: JSON`, with
/// the row's time in UTC.
fn message(row: &Row) -> String {
    let seconds = i64::try_from(row.time).unwrap_or_default();
    let at = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let month = usize::from(u8::from(at.month())).saturating_sub(1);
    let month = MONTHS.get(month).unwrap_or(&"Jan");
    let priority = match WARNING_ACTIONS.contains(&row.action.as_str()) {
        true => WARNING,
        false => NOTICE,
    };
    format!(
        "<{priority}>{month} {:2} {:02}:{:02}:{:02} strongroom-keyserver[{}]: {}",
        at.day(),
        at.hour(),
        at.minute(),
        at.second(),
        std::process::id(),
        serde_json::to_string(row).unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(n: u64, action: &str) -> Row {
        let event = crate::audit::Event {
            actor: "a\nb".to_owned(),
            action: action.to_owned(),
            ..crate::audit::Event::default()
        };
        Row::following(crate::audit::GENESIS, n, 1_700_000_000, event)
    }

    #[test]
    fn a_message_is_one_line_with_the_row_in_it() {
        let text = message(&row(7, "deliver"));
        assert!(
            text.starts_with("<85>Nov 14 22:13:20 strongroom-keyserver["),
            "{text}"
        );
        assert!(!text.contains('\n'));
        let (_, json) = text.split_once("]: ").unwrap();
        let back: Row = serde_json::from_str(json).unwrap();
        assert_eq!(back, row(7, "deliver"));
        assert!(message(&row(8, "denied")).starts_with("<84>"));
    }

    #[test]
    fn a_hanging_daemon_does_not_delay_commits_and_a_restarted_one_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let listening = UnixDatagram::bind(&path).unwrap();
        let syslog = Syslog::start(&path).unwrap();
        let count = u64::try_from(QUEUE_MAX).unwrap() * 2;
        let began = Instant::now();
        for n in 0..count {
            syslog.send(row(n, "deliver"));
        }
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}",
            began.elapsed()
        );
        assert!(syslog.lost() > 0, "the queue is bounded");
        // The daemon is stopped, and started again with a socket of the same name.
        drop(listening);
        std::fs::remove_file(&path).unwrap();
        syslog.flush(Duration::from_secs(30));
        let listening = UnixDatagram::bind(&path).unwrap();
        listening
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        std::thread::sleep(RETRY_PAUSE);
        syslog.send(row(count, "after"));
        let mut bytes = [0; 4096];
        let len = listening.recv(&mut bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
        assert!(text.contains("\"after\""), "{text}");
    }
}
