//! Setup and checks of the tests that run `strongroom columns`.
//!
//! Must not: keep a process running that its owner has dropped.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::Server;
use crate::owner::Owner;

/// Starts a zone, a server with the extension, and a proxy to it, with further options of zone and
/// proxy.
///
/// # Panics
///
/// When one of them does not start.
#[must_use]
pub fn start_all_with(zone: &[&str], proxy: &[&str]) -> (Owner, Server) {
    let mut owner = Owner::new();
    owner.start_zone_with(64, zone);
    let server = Server::start(&owner.zone_socket(), "");
    assert_eq!(server.rows("create extension strongroom_columns"), "");
    owner.start_proxy_with(server.socket(), proxy);
    (owner, server)
}

/// A command's standard error.
#[must_use]
pub fn messages(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Path of the socket of a server or proxy in this directory.
#[must_use]
pub fn address(directory: &Path) -> PathBuf {
    directory.join(".s.PGSQL.5432")
}

/// Whether a file, or a file below a directory, contains this text.
///
/// # Panics
///
/// When grep cannot be run.
#[must_use]
pub fn is_in_a_file(path: &Path, what: &str) -> bool {
    let status = Command::new("grep")
        .args(["--recursive", "--quiet", "--text", what])
        .arg(path)
        .status();
    status.expect("grep can be run").success()
}

/// Makes a new file with these bytes.
///
/// # Panics
///
/// When it exists, or cannot be made.
pub fn make_file(path: &Path, bytes: &[u8]) {
    let file = std::fs::File::create_new(path);
    let mut file = file.expect("a new file");
    std::io::Write::write_all(&mut file, bytes).expect("a new file");
}
