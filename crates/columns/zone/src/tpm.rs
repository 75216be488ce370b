//! A TPM 2.0: the four commands that the zone uses, over a character device or a simulator's
//! socket.
//!
//! Source: TCG, "Trusted Platform Module Library", part 3 "Commands"; structures are in
//! `strongroom_format::columns::tpm`. Invariants: it is opened before the sandbox closes, and only
//! read and written after that; one command at a time; after an answer that did not come whole no
//! further command is sent, because the next answer could belong to the last command. Keys and
//! counters are used with an empty authorization: the system's permissions decide who may open the
//! device. Must not: make keys or counters, extend a register, hold a secret.
#![expect(clippy::big_endian_bytes, reason = "a TPM's integers are big-endian")]

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use strongroom_format::columns::tpm::{Fields, NULL, SHA256, selected};

/// `TPM_ST_NO_SESSIONS`, `TPM_ST_SESSIONS`.
const PLAIN: u16 = 0x8001;
const AUTHORIZED: u16 = 0x8002;
// TPM_CC.
const NV_INCREMENT: u32 = 0x134;
const NV_READ: u32 = 0x14e;
const QUOTE: u32 = 0x158;
const NV_READ_PUBLIC: u32 = 0x169;
/// One password session (`TPM_RS_PW`), no nonce, no attributes, an empty password; its length
/// before it.
const EMPTY_PASSWORD: [u8; 13] = [0, 0, 0, 9, 0x40, 0, 0, 9, 0, 0, 0, 0, 0];
/// Response codes after which the command is repeated: `TPM_RC_YIELDED`, `TPM_RC_TESTING`,
/// `TPM_RC_NV_RATE`, `TPM_RC_RETRY`.
const RETRY_CODES: [u32; 4] = [0x908, 0x90a, 0x920, 0x922];
const TRIES_MAX: u32 = 50;
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// How long a simulator may take; a device's driver has limits of its own.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Tag, length, code.
const HEAD: usize = 10;
/// The longest answer, in bytes.
const ANSWER_MAX: usize = 4096;
// TPMA_NV.
const AUTH_WRITE: u32 = 1 << 2;
const TYPE: u32 = 0xf << 4;
const COUNTER: u32 = 1 << 4;
const AUTH_READ: u32 = 1 << 18;
const ORDERLY: u32 = 1 << 26;
const WRITTEN: u32 = 1 << 29;
const COUNTER_SIZE: u16 = 8;

/// An open TPM.
pub struct Tpm(Mutex<Connection>);

struct Connection {
    file: File,
    broken: bool,
}

impl Tpm {
    /// Opens the TPM at `address`: the path of a character device (`/dev/tpmrm0`) or of a
    /// simulator's socket, or `HOST:PORT` of one.
    ///
    /// # Errors
    /// Of the system.
    pub fn open(address: &str) -> io::Result<Arc<Self>> {
        let file = if address.contains('/') {
            let path = Path::new(address);
            if std::fs::metadata(path)?.file_type().is_socket() {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
                File::from(OwnedFd::from(stream))
            } else {
                File::options().read(true).write(true).open(path)?
            }
        } else {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
            File::from(OwnedFd::from(stream))
        };
        let connection = Connection {
            file,
            broken: false,
        };
        Ok(Arc::new(Self(Mutex::new(connection))))
    }

    /// `TPM2_Quote` by the key of `handle`, of the registers `pcrs` (bit n: register n) of the
    /// SHA-256 bank: evidence as docs/spec/columns-channel.md has it.
    ///
    /// # Errors
    /// Of the system; the TPM's own, as its response code.
    pub fn quote(&self, handle: u32, pcrs: u32, data: &[u8; 32]) -> io::Result<Vec<u8>> {
        let mut body = handle.to_be_bytes().to_vec();
        body.extend_from_slice(&EMPTY_PASSWORD);
        body.extend_from_slice(&[0, 32]);
        body.extend_from_slice(data);
        // The key's own scheme; one selection.
        body.extend_from_slice(&NULL.to_be_bytes());
        body.extend_from_slice(&1_u32.to_be_bytes());
        body.extend_from_slice(&SHA256.to_be_bytes());
        body.push(3);
        body.extend_from_slice(&selected(pcrs));
        self.authorized_command(QUOTE, &body)
    }

    /// The counter at an index, after one increment if it has never had one.
    ///
    /// # Errors
    /// `InvalidInput` for an index that is no counter, loses increments with the power, or wants an
    /// authorization; as [`Self::quote`].
    pub fn counter(self: &Arc<Self>, index: u32) -> io::Result<Counter> {
        let attributes = self.attributes(index)?;
        let wanted = AUTH_READ | AUTH_WRITE | COUNTER;
        if attributes & (AUTH_READ | AUTH_WRITE | TYPE | ORDERLY) != wanted {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the index is not a counter that its own empty authorization may read and increment, \
                 or it is an orderly one",
            ));
        }
        let counter = Counter {
            tpm: Arc::clone(self),
            index,
        };
        if attributes & WRITTEN == 0 {
            counter.increment()?;
        }
        Ok(counter)
    }

    /// The attributes of a counter. An error when the TPM has none with this index, or it has
    /// another size.
    fn attributes(&self, index: u32) -> io::Result<u32> {
        let answer = self.command(PLAIN, NV_READ_PUBLIC, &index.to_be_bytes())?;
        // TPMS_NV_PUBLIC: index, algorithm of its name, attributes, policy, size.
        let public = Fields(&answer).sized().map(Fields);
        let attributes = public.and_then(|mut public| {
            let named = public.uint32()? == index;
            let _algorithm = public.uint16()?;
            let attributes = public.uint32()?;
            let _policy = public.sized()?;
            (named && public.uint16()? == COUNTER_SIZE).then_some(attributes)
        });
        attributes.ok_or_else(malformed)
    }

    /// A command with one empty authorization; the answer's parameters.
    fn authorized_command(&self, code: u32, body: &[u8]) -> io::Result<Vec<u8>> {
        let answer = self.command(AUTHORIZED, code, body)?;
        let mut fields = Fields(&answer);
        let len = fields.uint32().and_then(|len| usize::try_from(len).ok());
        let parameters = len.and_then(|len| fields.bytes(len));
        parameters.map(<[u8]>::to_vec).ok_or_else(malformed)
    }

    /// Sends a command and returns the answer after its head. Repeats it while the TPM puts it off,
    /// for a limited time.
    fn command(&self, tag: u16, code: u32, body: &[u8]) -> io::Result<Vec<u8>> {
        let len = u32::try_from(HEAD.saturating_add(body.len())).map_err(io::Error::other)?;
        let mut command = tag.to_be_bytes().to_vec();
        command.extend_from_slice(&len.to_be_bytes());
        command.extend_from_slice(&code.to_be_bytes());
        command.extend_from_slice(body);
        let mut connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..TRIES_MAX {
            let answer = connection.exchange(&command)?;
            let mut fields = Fields(&answer);
            fields.bytes(6);
            match fields.uint32().ok_or_else(malformed)? {
                0 => return Ok(fields.0.to_vec()),
                code if RETRY_CODES.contains(&code) => std::thread::sleep(RETRY_PAUSE),
                code => {
                    let what = format!("the TPM answers with response code {code:#x}");
                    return Err(io::Error::other(what));
                }
            }
        }
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the TPM puts the command off for too long",
        ))
    }
}

impl Connection {
    /// Sends a command and reads the whole answer. After an error the connection is of no use: a
    /// later answer could be that of an earlier command.
    fn exchange(&mut self, command: &[u8]) -> io::Result<Vec<u8>> {
        if self.broken {
            return Err(io::Error::new(
                io::ErrorKind::BrokenPipe,
                "the TPM left a command without an answer before",
            ));
        }
        self.broken = true;
        // A device takes a command in one write and returns its answer in one read.
        self.file.write_all(command)?;
        let mut answer = vec![0; ANSWER_MAX];
        let mut have = 0;
        let whole = loop {
            let rest = answer.get_mut(have..).unwrap_or_default();
            let read = self.file.read(rest)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            have += read;
            if have < HEAD {
                continue;
            }
            let mut fields = Fields(&answer);
            fields.uint16();
            let len = fields.uint32().and_then(|len| usize::try_from(len).ok());
            let len = len.filter(|len| (HEAD..=ANSWER_MAX).contains(len));
            match len.ok_or_else(malformed)? {
                len if have == len => break len,
                len if have > len => return Err(malformed()),
                _ => {}
            }
        };
        answer.truncate(whole);
        self.broken = false;
        Ok(answer)
    }
}

/// A counter in a TPM's memory, which only rises.
pub struct Counter {
    tpm: Arc<Tpm>,
    index: u32,
}

impl Counter {
    /// The counter's value.
    ///
    /// # Errors
    /// As [`Tpm::quote`].
    pub fn read(&self) -> io::Result<u64> {
        let mut body = self.handles();
        body.extend_from_slice(&COUNTER_SIZE.to_be_bytes());
        body.extend_from_slice(&[0, 0]);
        let answer = self.tpm.authorized_command(NV_READ, &body)?;
        let value = Fields(&answer).sized().map(Fields);
        value
            .and_then(|mut value| value.uint64())
            .ok_or_else(malformed)
    }

    /// Raises it by one.
    ///
    /// # Errors
    /// As [`Tpm::quote`].
    pub fn increment(&self) -> io::Result<()> {
        self.tpm
            .authorized_command(NV_INCREMENT, &self.handles())
            .map(drop)
    }

    /// The index twice, for authorization and for use, and its empty authorization.
    fn handles(&self) -> Vec<u8> {
        let index = self.index.to_be_bytes();
        [&index[..], &index, &EMPTY_PASSWORD].concat()
    }
}

/// The error for an answer that the TPM should not give.
fn malformed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the TPM's response is malformed",
    )
}
