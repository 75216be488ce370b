//! Notifications to the service manager (`sd_notify`): ready, reloading, stopping. Without a
//! service manager, they are not sent.
//!
//! Must not: fail the server.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends one state, such as `READY=1`, to the service manager. Does nothing without one. A failure
/// is logged.
pub(crate) fn notify(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    let sent = address
        .and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        use crate::log::{Level, log};
        log(Level::Warning, "notify", &[("error", &error.to_string())]);
    }
}
