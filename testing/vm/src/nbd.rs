//! Serves a disk to QEMU over a Unix socket: the part of the NBD protocol (NetworkBlockDevice/nbd
//! `doc/proto.md`) that QEMU needs, one client after another.
//!
//! Must not: answer a request after the power is gone.
#![expect(clippy::big_endian_bytes, reason = "NBD is big-endian")]

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::disk::{Disk, SECTOR};

const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054; // "IHAVEOPT"
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const ANSWER_MAGIC: u32 = 0x6744_6698;

const OPTION_ABORT: u32 = 2;
const OPTION_INFO: u32 = 6;
const OPTION_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const REPLY_UNSUPPORTED: u32 = 0x8000_0001;
const INFO_EXPORT: u16 = 0;

/// Has flags, flush, forced unit access, zeroes.
const EXPORT_FLAGS: u16 = 1 | 4 | 8 | 64;
const COMMAND_FUA: u16 = 1;

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const WRITE_ZEROES: u16 = 6;

/// More than this in one request is refused: QEMU's own limit is 32 MiB.
const LARGEST: usize = 64 << 20;

/// A disk that is being served; the socket goes away with it.
#[derive(Debug)]
pub struct Served {
    disk: Arc<Disk>,
    socket: PathBuf,
    over: Arc<AtomicBool>,
}

impl Served {
    /// Serves the disk at this socket, from now on.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn start(disk: Arc<Disk>, socket: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(socket)?;
        let served = Arc::clone(&disk);
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        thread::Builder::new()
            .name("disk".to_owned())
            .spawn(move || {
                for client in listener.incoming() {
                    let Ok(client) = client else { return };
                    if ended.load(Ordering::Acquire) {
                        return;
                    }
                    // A client that went away: the machine was switched off.
                    drop(serve(&served, client));
                }
            })?;
        Ok(Self {
            disk,
            socket: socket.to_owned(),
            over,
        })
    }

    /// The disk.
    #[must_use]
    pub const fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    /// QEMU's name for it.
    #[must_use]
    pub fn name(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        drop(UnixStream::connect(&self.socket));
        drop(std::fs::remove_file(&self.socket));
    }
}

fn serve(disk: &Disk, mut client: UnixStream) -> io::Result<()> {
    client.write_all(b"NBDMAGIC")?;
    client.write_all(&OPTION_MAGIC.to_be_bytes())?;
    client.write_all(&3_u16.to_be_bytes())?; // fixed newstyle, no zeroes
    word(&mut client)?;
    if !options(disk, &mut client)? {
        return Ok(());
    }
    while request(disk, &mut client)? {}
    // Without power nothing is answered, and nothing fails: the other side waits until it is ended.
    io::copy(&mut client, &mut io::sink()).map(drop)
}

/// True when the client wants to begin.
fn options(disk: &Disk, client: &mut UnixStream) -> io::Result<bool> {
    loop {
        let mut magic = [0; 8];
        client.read_exact(&mut magic)?;
        let option = word(client)?;
        let length = usize::try_from(word(client)?).map_err(io::Error::other)?;
        if u64::from_be_bytes(magic) != OPTION_MAGIC || length > 65_536 {
            return Err(io::Error::other("not an option"));
        }
        let mut data = vec![0; length];
        client.read_exact(&mut data)?;
        match option {
            OPTION_GO | OPTION_INFO => {
                let mut export = INFO_EXPORT.to_be_bytes().to_vec();
                export.extend_from_slice(&disk.size().to_be_bytes());
                export.extend_from_slice(&EXPORT_FLAGS.to_be_bytes());
                reply(client, option, REPLY_INFO, &export)?;
                reply(client, option, REPLY_ACK, &[])?;
                if option == OPTION_GO {
                    return Ok(true);
                }
            }
            OPTION_ABORT => {
                reply(client, option, REPLY_ACK, &[])?;
                return Ok(false);
            }
            _ => reply(client, option, REPLY_UNSUPPORTED, &[])?,
        }
    }
}

fn reply(client: &mut UnixStream, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let length = u32::try_from(data.len()).map_err(io::Error::other)?;
    let mut message = REPLY_MAGIC.to_be_bytes().to_vec();
    for field in [option, kind, length] {
        message.extend_from_slice(&field.to_be_bytes());
    }
    message.extend_from_slice(data);
    client.write_all(&message)
}

/// One request; false when the client is done or the power is gone.
fn request(disk: &Disk, client: &mut UnixStream) -> io::Result<bool> {
    let mut head = [0; 28];
    client.read_exact(&mut head)?;
    let (magic, rest) = head.split_at(4);
    if magic != REQUEST_MAGIC.to_be_bytes() {
        return Err(io::Error::other("not a request"));
    }
    let flags = u16::from_be_bytes([rest[0], rest[1]]);
    let kind = u16::from_be_bytes([rest[2], rest[3]]);
    let cookie: [u8; 8] = rest[4..12].try_into().map_err(io::Error::other)?;
    let offset = u64::from_be_bytes(rest[12..20].try_into().map_err(io::Error::other)?);
    let length = u32::from_be_bytes(rest[20..24].try_into().map_err(io::Error::other)?);
    let length = usize::try_from(length).map_err(io::Error::other)?;
    let mut bytes = if kind == WRITE || kind == READ || kind == WRITE_ZEROES {
        buffer(disk, offset, length)?
    } else {
        Vec::new()
    };
    let done = match kind {
        READ => disk.read(offset, &mut bytes)?,
        WRITE => {
            client.read_exact(&mut bytes)?;
            disk.write(offset, &bytes)
        }
        WRITE_ZEROES => disk.write(offset, &bytes),
        FLUSH => disk.flush()?,
        DISCONNECT => None,
        _ => return Err(io::Error::other("a request of an unknown kind")),
    };
    let forced = flags & COMMAND_FUA != 0 && kind != READ;
    let done = if forced && done.is_some() {
        disk.flush()?
    } else {
        done
    };
    if done.is_none() {
        return Ok(false);
    }
    let mut answer = ANSWER_MAGIC.to_be_bytes().to_vec();
    answer.extend_from_slice(&[0; 4]);
    answer.extend_from_slice(&cookie);
    if kind == READ {
        answer.append(&mut bytes);
    }
    client.write_all(&answer)?;
    Ok(true)
}

fn buffer(disk: &Disk, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let end = offset.checked_add(length as u64);
    let whole = offset.is_multiple_of(SECTOR as u64) && length.is_multiple_of(SECTOR);
    if !whole || length > LARGEST || end.is_none_or(|end| end > disk.size()) {
        return Err(io::Error::other(
            "a request outside the disk or within a sector",
        ));
    }
    Ok(vec![0; length])
}

fn word(client: &mut UnixStream) -> io::Result<u32> {
    let mut bytes = [0; 4];
    client.read_exact(&mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}
