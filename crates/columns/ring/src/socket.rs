//! The control socket: a backend gets its ring through it, and either side learns from it that the
//! other is gone.
//!
//! A backend connects; the zone answers with one message, the welcome, that carries two
//! descriptors: the ring and the doorbell. Nothing else is ever sent. The socket then stays open:
//! when one side dies the kernel closes it, and the other side sees that. Must not: carry values,
//! or anything of a ring's operations.

use core::mem::MaybeUninit;
use core::time::Duration;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::host::ConnectError;

const MAGIC: [u8; 8] = *b"SR-ZONE\0";
/// Version of the ring. It is raised when what is here changes its meaning: the welcome, the memory
/// that both ends map, the number of an operation, what a descriptor says. A new operation is no
/// such change: a zone that does not know one says so ([`crate::Fault::BadRequest`]).
pub(crate) const VERSION: u32 = 1;
const WELCOME_LEN: usize = 64;
const BACKLOG: i32 = 1024;

/// The message that the zone sends to a backend when it connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Welcome {
    /// Number of the zone's incarnation (R5).
    pub(crate) incarnation: [u8; 16],
    /// The arena of this backend.
    pub(crate) arena: u16,
}

impl Welcome {
    /// The welcome as bytes, padded with zeros.
    fn to_bytes(self) -> [u8; WELCOME_LEN] {
        let mut out = [0; WELCOME_LEN];
        let arena = u32::from(self.arena);
        let parts: [&[u8]; 4] = [
            &MAGIC,
            &VERSION.to_le_bytes(),
            &arena.to_le_bytes(),
            &self.incarnation,
        ];
        for (to, from) in out.iter_mut().zip(parts.into_iter().flatten()) {
            *to = *from;
        }
        out
    }

    /// Parses a welcome of this version. The error for one of another version names that, whatever
    /// follows it; the one for another length or form is `InvalidData`.
    fn parse(bytes: &[u8]) -> Result<Self, ConnectError> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let (magic, rest) = bytes.split_first_chunk::<8>().ok_or_else(invalid)?;
        let (version, rest) = rest.split_first_chunk::<4>().ok_or_else(invalid)?;
        match u32::from_le_bytes(*version) {
            _ if *magic != MAGIC => Err(invalid().into()),
            VERSION if bytes.len() == WELCOME_LEN => {
                Ok(Self::parse_known(rest).ok_or_else(invalid)?)
            }
            0 | VERSION => Err(invalid().into()),
            other => Err(ConnectError::OtherVersion(other)),
        }
    }

    /// Parses what follows the version in a welcome of this version. `None` if a field has a value
    /// that no zone gives it.
    fn parse_known(rest: &[u8]) -> Option<Self> {
        let (arena, rest) = rest.split_first_chunk::<4>()?;
        let (incarnation, rest) = rest.split_first_chunk::<16>()?;
        let arena = u16::try_from(u32::from_le_bytes(*arena)).ok()?;
        let sound = rest.iter().all(|byte| *byte == 0);
        sound.then_some(Self {
            incarnation: *incarnation,
            arena,
        })
    }
}

/// The process at the other end, according to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process id; 0 when it is of a namespace that the zone does not see.
    pub pid: i32,
    /// Effective user id when it connected.
    pub uid: u32,
    /// Effective group id when it connected.
    pub gid: u32,
}

/// Makes a socket at `path`, with the permissions `mode`, and listens. A socket on which nobody
/// listens is replaced; any other file is not.
///
/// # Errors
///
/// `AddrInUse` if another file or a listening socket is there; otherwise the kernel's.
pub(crate) fn listen(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let socket = new_socket()?;
    // The kernel makes the file with these, less the umask: it never is open to more users.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode))?;
    match rustix::net::bind(&socket, &address) {
        Err(Errno::ADDRINUSE) if is_deserted(path, &address)? => {
            std::fs::remove_file(path)?;
            rustix::net::bind(&socket, &address)?;
        }
        other => other?,
    }
    // At once: who sees the file connects, and a busy disk may take long to change permissions.
    rustix::net::listen(&socket, BACKLOG)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok(socket)
}

/// Whether the path has a socket on which no process listens; tries to connect to find out. Fails
/// if the path cannot be examined.
fn is_deserted(path: &Path, address: &SocketAddrUnix) -> io::Result<bool> {
    use std::os::unix::fs::FileTypeExt;
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return Ok(false);
    }
    let probe = new_socket()?;
    Ok(rustix::net::connect(&probe, address) == Err(Errno::CONNREFUSED))
}

/// Takes a waiting connection, without blocking. `None` if there is none, or it has ended already.
///
/// # Errors
///
/// Of the kernel: no descriptor, no memory.
pub(crate) fn accept(listener: impl AsFd) -> io::Result<Option<OwnedFd>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    match rustix::net::accept_with(listener, flags) {
        Ok(socket) => Ok(Some(socket)),
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Connects to the zone's socket at `path`, without blocking. `None` if the zone has no place in
/// its queue at the moment: try again.
///
/// # Errors
///
/// Of the kernel: no listener, no permission.
pub(crate) fn connect(path: &Path) -> io::Result<Option<OwnedFd>> {
    let socket = new_socket()?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) => Ok(Some(socket)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A Unix socket that keeps the bounds of messages (SEQPACKET) and never blocks. Fails if the
/// kernel has no descriptor.
fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    Ok(socket)
}

/// Sends the welcome with the two file descriptors, of the ring and the doorbell.
///
/// # Errors
///
/// Of the kernel: the backend is gone.
pub(crate) fn send_welcome(
    socket: impl AsFd,
    welcome: Welcome,
    files: [BorrowedFd<'_>; 2],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let bytes = welcome.to_bytes();
    // A new socket has space for this; if not, the backend gets nothing and the connection is
    // closed.
    rustix::net::sendmsg(
        socket,
        &[IoSlice::new(&bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Receives the welcome, and the file descriptors of ring and doorbell. `None` while there is none.
///
/// # Errors
///
/// [`ConnectError::OtherVersion`] for the welcome of a zone of another version;
/// [`ConnectError::Refused`] with `InvalidData` for anything else that is no welcome, the end of
/// the connection included; otherwise with the kernel's.
pub(crate) fn receive_welcome(
    socket: impl AsFd,
) -> Result<Option<(Welcome, OwnedFd, OwnedFd)>, ConnectError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; WELCOME_LEN + 1];
    let received = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    );
    let received = match received {
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        other => other.map_err(io::Error::from)?,
    };
    let mut files = control.drain().flat_map(|message| {
        let files = match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        };
        files.into_iter().flatten()
    });
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let bytes = bytes.get(..received.bytes).ok_or_else(invalid)?;
    let welcome = Welcome::parse(bytes)?;
    let ring = files.next().ok_or_else(invalid)?;
    let bell = files.next().ok_or_else(invalid)?;
    if files.next().is_some() || received.flags.contains(ReturnFlags::TRUNC) {
        return Err(invalid().into());
    }
    Ok(Some((welcome, ring, bell)))
}

/// Whether the other side has closed the connection or died; also true if it has sent something.
/// Does not wait.
pub(crate) fn is_over(socket: impl AsFd) -> bool {
    let flags = PollFlags::IN | PollFlags::RDHUP;
    wait(socket, flags, Duration::ZERO)
}

/// Waits until there is something to receive or the connection is over, for `limit` at most.
pub(crate) fn wait_readable(socket: impl AsFd, limit: Duration) {
    wait(socket, PollFlags::IN, limit);
}

/// Waits until one of the events happens, or the limit is over. False if the limit is over or a
/// signal came; true also for an error, because the descriptor can no longer be waited for.
fn wait(socket: impl AsFd, flags: PollFlags, limit: Duration) -> bool {
    let limit = Timespec::try_from(limit).ok();
    let mut polled = [PollFd::new(&socket, flags)];
    match rustix::event::poll(&mut polled, limit.as_ref()) {
        Ok(ready) => ready != 0,
        // A signal: the caller looks again anyway. Anything else is a descriptor that can no longer
        // be waited for.
        Err(error) => error != Errno::INTR,
    }
}

pub(crate) mod peer {
    //! The kernel's information about a connection's other end.
    #![expect(
        unsafe_code,
        reason = "socket options that rustix does not offer, or not for a peer of pid 0"
    )]

    use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

    use super::Peer;

    /// `SO_PEERPIDFD` of asm-generic/socket.h, Linux 6.5; absent from libc's constants.
    const PEER_PIDFD: libc::c_int = 77;

    /// The process id, user and group of the process that connected. `None` if the kernel does not
    /// tell.
    pub(crate) fn credentials(socket: BorrowedFd<'_>) -> Option<Peer> {
        let mut found = libc::ucred {
            pid: 0,
            uid: u32::MAX,
            gid: u32::MAX,
        };
        let mut len = libc::socklen_t::try_from(size_of::<libc::ucred>()).ok()?;
        // SAFETY: pointer and length describe `found`, which any bytes may fill.
        let code = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut found).cast(),
                &raw mut len,
            )
        };
        let whole = usize::try_from(len) == Ok(size_of::<libc::ucred>());
        (code == 0 && whole).then_some(Peer {
            pid: found.pid,
            uid: found.uid,
            gid: found.gid,
        })
    }

    /// A descriptor that becomes readable when the process ends that connected. `None` if there is
    /// no such thing (an old kernel with a process of another namespace): then only the socket's
    /// end shows that.
    pub(crate) fn process(socket: BorrowedFd<'_>, peer: Peer) -> Option<OwnedFd> {
        let mut fd: libc::c_int = -1;
        let mut len = libc::socklen_t::try_from(size_of::<libc::c_int>()).ok()?;
        // SAFETY: pointer and length describe `fd`.
        let code = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                PEER_PIDFD,
                (&raw mut fd).cast(),
                &raw mut len,
            )
        };
        if code == 0 && fd >= 0 {
            // SAFETY: the kernel has just made this descriptor for us.
            return Some(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let pid = rustix::process::Pid::from_raw(peer.pid)?;
        rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_welcome_is_canonical_or_refused() {
        let welcome = Welcome {
            incarnation: [9; 16],
            arena: 0x7ffe,
        };
        let bytes = welcome.to_bytes();
        assert_eq!(Welcome::parse(&bytes).unwrap(), welcome);
        let malformed = |bytes: &[u8]| match Welcome::parse(bytes) {
            Err(ConnectError::Refused(error)) => error.kind() == io::ErrorKind::InvalidData,
            _ => false,
        };
        for at in [0, 14, 15, 32, 63] {
            let mut bad = bytes;
            bad[at] ^= 0x40;
            assert!(malformed(&bad), "byte {at}");
        }
        assert!(malformed(&bytes[..63]) && malformed(&[]));
    }

    #[test]
    fn another_version_is_told_whatever_follows_it() {
        let mut welcome = [0xff; WELCOME_LEN + 1];
        welcome[..8].copy_from_slice(&MAGIC);
        welcome[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
        for len in [12, WELCOME_LEN, WELCOME_LEN + 1] {
            let refused = Welcome::parse(&welcome[..len]).unwrap_err();
            assert!(matches!(refused, ConnectError::OtherVersion(2)), "{len}");
            let message = refused.to_string();
            assert!(message.contains("version 2") && message.contains("SR-8019"));
        }
        welcome[8..12].copy_from_slice(&0_u32.to_le_bytes());
        let refused = Welcome::parse(&welcome[..WELCOME_LEN]).unwrap_err();
        assert!(matches!(refused, ConnectError::Refused(_)));
    }

    #[test]
    fn only_a_deserted_socket_is_replaced() {
        let dir = std::env::temp_dir().join(format!("sr-rpc-listen-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("zone");
        let first = listen(&path, 0o600).unwrap();
        assert_eq!(
            listen(&path, 0o600).unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
        drop(first);
        let second = listen(&path, 0o640).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        drop(second);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_eq!(
            listen(&path, 0o600).unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn the_peer_is_known_and_its_end_is_seen() {
        let dir = std::env::temp_dir().join(format!("sr-rpc-peer-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("zone");
        let listener = listen(&path, 0o600).unwrap();
        assert!(accept(&listener).unwrap().is_none());
        let client = connect(&path).unwrap().unwrap();
        let server = accept(&listener).unwrap().unwrap();
        let peer = peer::credentials(server.as_fd()).unwrap();
        assert_eq!(u32::try_from(peer.pid), Ok(std::process::id()));
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert!(peer::process(server.as_fd(), peer).is_some());
        assert!(receive_welcome(&client).unwrap().is_none());
        assert!(!is_over(&client));
        drop(server);
        assert!(is_over(&client));
        assert!(receive_welcome(&client).is_err());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
