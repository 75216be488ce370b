//! Ports for servers of tests.
//!
//! Invariant: a port that was handed out is no other test's until this process has ended. A lock
//! file for each says so, in a directory of the user's own.
//!
//! A port that the kernel chose, and that was closed again, would be anybody's: these are below
//! those that the kernel chooses from.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const FIRST: u16 = 10_000;
const COUNT: u16 = 20_000;

/// Lock files of the ports that this process has, and where it looks for the next one.
struct Taken {
    locks: Vec<File>,
    next: u16,
}

static TAKEN: Mutex<Option<Taken>> = Mutex::new(None);

/// A port on 127.0.0.1 that nobody listens at, for this process alone.
pub fn free_port() -> u16 {
    free_row(1)
}

/// The first of two such ports in a row.
pub fn free_pair() -> u16 {
    free_row(2)
}

/// Whether a process listens at the socket in the file system with this path. The file is there a
/// moment before that, and a connection is refused until then. Does not connect.
pub fn is_listening(socket: &Path) -> bool {
    // Linux: the fourth column has the flags of the socket, of which __SO_ACCEPTCON is 1 << 16
    // (net/unix/af_unix.c, `unix_seq_show`).
    let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let path = socket.to_str().unwrap_or_default();
    sockets.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace();
        fields.nth(3) == Some("00010000") && fields.nth(3) == Some(path)
    })
}

fn free_row(length: u16) -> u16 {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let taken = taken.get_or_insert_with(|| Taken {
        locks: Vec::new(),
        // Processes that start together have numbers in a row: they begin far from each other.
        next: u16::try_from(std::process::id().wrapping_mul(7919) % u32::from(COUNT)).unwrap(),
    });
    let directory = directory();
    for _ in 0..COUNT {
        let first = FIRST + taken.next;
        taken.next = (taken.next + length) % COUNT;
        let locks: Option<Vec<File>> = (first..first + length)
            .map(|port| locked(&directory, port))
            .collect();
        if let Some(locks) = locks {
            taken.locks.extend(locks);
            return first;
        }
    }
    panic!("no port is free");
}

/// The lock file of a port; `None` when another process has it, or somebody listens there.
fn locked(directory: &Path, port: u16) -> Option<File> {
    let lock = File::create(directory.join(port.to_string())).unwrap();
    lock.try_lock().ok()?;
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
    Some(lock)
}

/// Where the lock files are. The files stay: one that were removed could be locked once more.
fn directory() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    let directory = std::env::temp_dir().join(format!("strongroom-ports-{user}"));
    fs::create_dir_all(&directory).unwrap();
    directory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_handed_out_twice_and_each_can_be_listened_at() {
        let mut ports: Vec<u16> = (0..20).map(|_| free_port()).collect();
        for _ in 0..20 {
            let first = free_pair();
            ports.extend([first, first + 1]);
        }
        let listening: Vec<TcpListener> = ports
            .iter()
            .map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).unwrap())
            .collect();
        assert_eq!(listening.len(), 60);
        assert!(ports.iter().all(|port| (10_000..30_002).contains(port)));
        assert!(
            ports
                .iter()
                .all(|port| locked(&directory(), *port).is_none())
        );
    }

    #[test]
    fn a_port_that_somebody_listens_at_is_not_handed_out() {
        let port = free_port();
        let place = tempfile::tempdir().unwrap();
        // In another directory nobody has locked it.
        drop(locked(place.path(), port).unwrap());
        let listening = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        assert!(locked(place.path(), port).is_none());
        drop(listening);
        assert!(locked(place.path(), port).is_some());
    }
}
