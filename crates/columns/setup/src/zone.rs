//! What the zone keeps on the disk, and whether it serves.
//!
//! Invariants: the state directory and the key get their names when owner and mode are right, and
//! never take the place of anything. What is there is accepted only if it belongs to the zone's
//! user and nobody else can read it.
//!
//! Must not: read the key.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use strongroom_crypto::SecretKey;
use strongroom_format::code;
use strongroom_keyring::{Error, durable};
use strongroom_launch::owner::{acting_as, check_is_roots, user_and_group};

use crate::files::{UserAndGroup, about, above, in_the_way, make_directories, make_directory};
use crate::places::{KEY, SOCKET, STATE, USER};
use crate::report::Found;
use crate::server::Server;

/// How long a zone that was started may take until it serves.
const START_MAX: Duration = Duration::from_secs(20);

/// Returns the text for the report.
pub(crate) fn state_shown() -> String {
    format!("directory {STATE}, which only {USER} can enter")
}

/// Returns the text for the report.
pub(crate) fn key_shown() -> String {
    format!("key {KEY}, which only {USER} can read")
}

/// Looks whether the state directory is there. SR-8126 when something else is, when it belongs to
/// another user than `owner`, or when others can look into it; SR-6020 when others could exchange
/// it; SR-5001.
pub(crate) fn look_at_state(owner: Option<UserAndGroup>) -> Result<Found, Error> {
    let path = Path::new(STATE);
    check_is_roots(above(path))?;
    let Some(about) = about(path)? else {
        return Ok(Found::Missing);
    };
    if !about.is_dir() {
        return Err(in_the_way(path, "is no directory"));
    }
    check_private(path, &about, owner)
}

/// Looks whether the key is there. SR-8126 when something else is, when it is empty, when it
/// belongs to another user than `owner`, when others can read it, or when there is none for the
/// store that is there; SR-6020 when others could exchange it; SR-5001.
pub(crate) fn look_at_key(owner: Option<UserAndGroup>) -> Result<Found, Error> {
    let path = Path::new(KEY);
    check_is_roots(above(path))?;
    let Some(about) = about(path)? else {
        return match has_store()? {
            false => Ok(Found::Missing),
            true => {
                let why = format!(
                    "is not there, and {STATE} has a store: bring the key back, as no other opens it"
                );
                Err(in_the_way(path, &why))
            }
        };
    };
    if !about.is_file() || about.nlink() != 1 {
        return Err(in_the_way(path, "is no file of its own"));
    }
    if about.len() == 0 {
        return Err(in_the_way(path, "is empty, so it is no key"));
    }
    check_private(path, &about, owner)
}

/// Returns whether anything is in the state directory. False when it is not there. SR-5001.
fn has_store() -> Result<bool, Error> {
    let path = Path::new(STATE);
    if about(path)?.is_none() {
        return Ok(false);
    }
    let mut entries = path
        .read_dir()
        .map_err(|error| Error::on_path(path, error))?;
    Ok(entries.next().is_some())
}

/// Makes the state directory, for the zone's user alone. SR-5001 when the system reports an error,
/// also when something has the name meanwhile.
pub(crate) fn make_state(owner: Option<UserAndGroup>) -> Result<(), Error> {
    let path = Path::new(STATE);
    make_directories(above(path))?;
    make_directory(path, 0o700, owner)
}

/// Makes the key of 32 random bytes, for the zone's user alone, durably. SR-5001 when the system
/// reports an error, also when something has the name meanwhile.
pub(crate) fn make_key(owner: Option<UserAndGroup>) -> Result<(), Error> {
    let path = Path::new(KEY);
    make_directories(above(path))?;
    let failed = |error: std::io::Error| Error::on_path(path, error);
    let key = SecretKey::generate().map_err(|error| failed(std::io::Error::other(error)))?;
    durable::create_new_owned(path, key.expose(), 0o400, owner).map_err(failed)
}

/// Whether the zone's user serves at the zone's socket, and lets the server's user connect. SR-6021
/// when root cannot act as that user.
pub(crate) fn serves(server: &Server) -> Result<bool, Error> {
    let path = Path::new(SOCKET);
    let listener = acting_as(server.owner, path, || listener(path).ok())?;
    let zone = user_and_group(USER).map(|(user, _)| user);
    Ok(listener.is_some() && listener == zone)
}

/// Connects to the zone's socket, whose messages keep their bounds, and returns the number of the
/// user who listens there. The error is the system's.
fn listener(path: &Path) -> std::io::Result<u32> {
    let kind = SocketType::SEQPACKET;
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket_peercred(&socket)?.uid.as_raw())
}

/// Waits until the zone serves. SR-8129 when it does not within 20 seconds.
pub(crate) fn wait_until_it_serves(server: &Server) -> Result<(), Error> {
    let begun = Instant::now();
    while !serves(server)? {
        if begun.elapsed() > START_MAX {
            return Err(Error::new(&code::COLUMN_ZONE_START, SOCKET));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Checks that what is there belongs to the zone's user, and that others can do nothing with it:
/// SR-8126 otherwise. The error names no owner of a user that is not there yet.
fn check_private(
    path: &Path,
    about: &Metadata,
    owner: Option<UserAndGroup>,
) -> Result<Found, Error> {
    if owner.is_none_or(|(user, _)| user != about.uid()) {
        let why = format!("belongs to user {}, and not to {USER}", about.uid());
        return Err(in_the_way(path, &why));
    }
    if about.mode() & 0o077 != 0 {
        let why = format!(
            "has the mode {:04o}, so that others can use it",
            about.mode() & 0o7777
        );
        return Err(in_the_way(path, &why));
    }
    Ok(Found::There)
}
