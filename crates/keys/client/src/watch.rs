//! Notifies the program that a call takes long, so that a command can say what it waits for.
//!
//! The program sets a listener with [`tell_waiting`]. A call that takes longer than [`QUIET`]
//! notifies it once. Without a listener nothing happens.
//!
//! Must not: print, or hold up a call.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::error::Error;
use crate::rounds::Servers;

/// How long a call takes before the listener is notified.
const QUIET: Duration = Duration::from_millis(1500);

/// What a call waits for.
pub struct Waiting {
    /// The addresses of the servers that are asked.
    pub servers: Vec<String>,
    /// Why none of them has responded so far, as text; empty until the first failure.
    pub why: String,
    /// When the call gives up at the latest, counted from its beginning.
    pub total: Duration,
}

/// What the program wants to be notified by.
static LISTENER: OnceLock<fn(&Waiting)> = OnceLock::new();

/// Sets a process-wide listener: from now on `listener` is called, from a thread of its own, once
/// in each call to the key servers that takes longer than one and a half seconds. Later listeners
/// are ignored.
pub fn tell_waiting(listener: fn(&Waiting)) {
    LISTENER.get_or_init(|| listener);
}

/// Watches one call, until it is dropped.
pub(crate) struct Watch {
    why: Arc<Mutex<String>>,
    /// Dropping it ends the thread.
    _call: Option<Sender<()>>,
}

impl Watch {
    /// Begins to watch a call to these servers, on a thread of its own, until the value is dropped.
    /// Does nothing when there is no listener, or the thread cannot be started.
    pub(crate) fn begin(servers: &Servers<'_>) -> Self {
        let why = Arc::new(Mutex::new(String::new()));
        let call = LISTENER.get().and_then(|listener| {
            let (call, ended) = channel();
            let seen = Arc::clone(&why);
            let mut waiting = Waiting {
                servers: servers
                    .addresses
                    .iter()
                    .map(|address| address.text().to_owned())
                    .collect(),
                why: String::new(),
                total: servers.total_timeout,
            };
            let watched = move || {
                if ended.recv_timeout(QUIET) == Err(RecvTimeoutError::Timeout) {
                    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    waiting.why.clone_from(&seen);
                    drop(seen);
                    listener(&waiting);
                }
            };
            // Without a thread the call goes on, and the listener is not notified.
            let name = "waiting".to_owned();
            let started = std::thread::Builder::new().name(name).spawn(watched);
            started.is_ok().then_some(call)
        });
        Self { why, _call: call }
    }

    /// Notes why the servers are asked again; the listener gets the last such text.
    pub(crate) fn note_failure(&self, error: &Error) {
        let mut why = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        error.detail().clone_into(&mut why);
    }
}
