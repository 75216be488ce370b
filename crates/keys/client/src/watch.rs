//! Tells a program that a call takes long, so that nobody sits before a command that says nothing.
//!
//! Nothing is told unless the program asked for it with [`tell_waiting`]; then a call that takes
//! longer than [`QUIET`] tells once what it waits for.
//!
//! Must not: print, or hold up a call.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::error::Error;
use crate::rounds::Servers;

/// For how long a call may take without telling so.
const QUIET: Duration = Duration::from_millis(1500);

/// What a call waits for.
pub struct Waiting {
    /// The addresses of the servers that are asked.
    pub servers: Vec<String>,
    /// Why none of them has answered so far, in words; empty while the first answer is awaited.
    pub why: String,
    /// When the call gives up at the latest, counted from its beginning.
    pub total: Duration,
}

/// Whom the program has named.
static LISTENER: OnceLock<fn(&Waiting)> = OnceLock::new();

/// From now on `listener` is called, from a thread of its own, once in each call of this process
/// that takes longer than one and a half seconds. The first listener stays.
pub fn tell_waiting(listener: fn(&Waiting)) {
    LISTENER.get_or_init(|| listener);
}

/// Watches over one call, until it is dropped.
pub(crate) struct Watch {
    why: Arc<Mutex<String>>,
    /// Its end ends the thread.
    _call: Option<Sender<()>>,
}

impl Watch {
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
            // Without a thread the call goes on, and nobody is told.
            let name = "waiting".to_owned();
            let started = std::thread::Builder::new().name(name).spawn(watched);
            started.is_ok().then_some(call)
        });
        Self { why, _call: call }
    }

    /// Why the servers are asked again.
    pub(crate) fn saw(&self, error: &Error) {
        let mut why = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        error.detail().clone_into(&mut why);
    }
}
