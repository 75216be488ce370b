//! Signals that end a command in order: SIGINT, SIGTERM and SIGHUP set a flag, which the command
//! checks.
//!
//! Must not: be used twice in one process.

use std::sync::atomic::{AtomicBool, Ordering};

use strongroom_format::code;

use crate::failure::Failure;

/// Installs a handler that sets `stop` to true on SIGINT, SIGTERM and SIGHUP; these signals then no
/// longer end the process.
///
/// # Errors
/// SR-5001 if the handler cannot be installed, as when the process has one already.
pub(crate) fn stop_on_signals(stop: &'static AtomicBool) -> Result<(), Failure> {
    ctrlc::set_handler(|| stop.store(true, Ordering::Relaxed))
        .map_err(|error| Failure::new(&code::IO, format!("signal handler: {error}")))
}
