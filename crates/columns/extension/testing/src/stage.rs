//! What tests of the command begin with, and what they look at.
//!
//! Must not: keep a process that its owner has dropped.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::Server;
use crate::owner::Owner;

/// A zone, a server with the extension, and a proxy before it, with further options of zone and proxy.
///
/// # Panics
///
/// When one of them does not begin.
#[must_use]
pub fn begin(zone: &[&str], proxy: &[&str]) -> (Owner, Server) {
    let mut owner = Owner::new();
    owner.start_zone_with(64, zone);
    let server = Server::start(&owner.zone_socket(), "");
    assert_eq!(server.rows("create extension strongroom_columns"), "");
    owner.start_proxy_with(server.socket(), proxy);
    (owner, server)
}

/// What a command said on standard error.
#[must_use]
pub fn messages(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The address of a server, or of a proxy, whose socket is in this directory.
#[must_use]
pub fn address(directory: &Path) -> PathBuf {
    directory.join(".s.PGSQL.5432")
}

/// Whether a file, or one below a directory, holds this text.
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

/// A new file with these bytes.
///
/// # Panics
///
/// When it is there, or cannot be made.
pub fn make_file(path: &Path, bytes: &[u8]) {
    let file = std::fs::File::create_new(path);
    let mut file = file.expect("a file of our own");
    std::io::Write::write_all(&mut file, bytes).expect("a file of our own");
}
