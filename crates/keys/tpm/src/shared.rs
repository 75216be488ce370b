//! A TPM that is kept open and shared by the parts of a program: quotes by an attestation key, and
//! counters.
//!
//! Source: TCG, "Trusted Platform Module Library", part 3 "Commands". Invariants: it is opened
//! before a sandbox closes, and only polled, read and written after that. Keys and counters are
//! used with an empty authorization: the system's permissions decide who may open the device.
//! Responses are not authenticated on the bus. Must not: make keys or counters, extend a register,
//! hold a secret.
#![expect(clippy::big_endian_bytes, reason = "a TPM's integers are big-endian")]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use strongroom_format::columns::tpm::{Fields, NULL};

use crate::connection::Connection;
use crate::failure::Failure;
use crate::structures::{EMPTY_PASSWORD, NO_SESSIONS, SESSIONS, append_sized, register_selection};
use crate::time_limit::TimeLimit;

// TPM_CC.
const NV_INCREMENT: u32 = 0x134;
const NV_READ: u32 = 0x14e;
const QUOTE: u32 = 0x158;
const NV_READ_PUBLIC: u32 = 0x169;
/// How long each command may take.
const LIMIT: TimeLimit = TimeLimit::EachTask(Duration::from_secs(30));
// TPMA_NV.
const AUTH_WRITE: u32 = 1 << 2;
const TYPE: u32 = 0xf << 4;
const COUNTER: u32 = 1 << 4;
const AUTH_READ: u32 = 1 << 18;
const ORDERLY: u32 = 1 << 26;
const WRITTEN: u32 = 1 << 29;
const COUNTER_SIZE: u16 = 8;

/// An open TPM. Commands of several threads follow one another.
pub struct Tpm(Mutex<Connection>);

impl Tpm {
    /// Opens the TPM at `address`: the path of a character device (`/dev/tpmrm0`) or of a
    /// simulator's socket, or `HOST:PORT` of a simulator. Sends nothing.
    ///
    /// # Errors
    /// [`Failure::System`] when it cannot be opened; [`Failure::TimedOut`] when it does not connect
    /// within 30 seconds.
    pub fn open(address: &str) -> Result<Arc<Self>, Failure> {
        let connection = Connection::open(address, LIMIT.begin_task())?;
        Ok(Arc::new(Self(Mutex::new(connection))))
    }

    /// Has the TPM sign (`TPM2_Quote`) with the key of `handle` the registers `pcrs` (bit n:
    /// register n) of the SHA-256 bank, and returns evidence as docs/spec/columns-channel.md
    /// specifies it. The signature covers `data` too.
    ///
    /// # Errors
    /// [`Failure::Refused`] by the TPM; [`Failure::TimedOut`] when it does not answer within 30
    /// seconds; [`Failure::System`] when the system reports an error; [`Failure::OutOfStep`] when
    /// an earlier command got no response; [`Failure::Malformed`] for a response without its parts.
    pub fn quote(&self, handle: u32, pcrs: u32, data: &[u8; 32]) -> Result<Vec<u8>, Failure> {
        let mut body = handle.to_be_bytes().to_vec();
        body.extend_from_slice(&EMPTY_PASSWORD);
        append_sized(&mut body, data);
        // The key's own scheme.
        body.extend_from_slice(&NULL.to_be_bytes());
        body.extend_from_slice(&register_selection(pcrs));
        self.authorized_command(QUOTE, &body)
    }

    /// Checks that the index is a counter, and returns it. A counter that was never incremented has
    /// no value yet, so it is incremented once.
    ///
    /// # Errors
    /// [`Failure::NotCounter`] for an index that is not a counter, that loses increments at a power
    /// cut, or that needs an authorization; those of [`Counter::increment`].
    pub fn counter(self: &Arc<Self>, index: u32) -> Result<Counter, Failure> {
        let attributes = self.attributes(index)?;
        let wanted = AUTH_READ | AUTH_WRITE | COUNTER;
        if attributes & (AUTH_READ | AUTH_WRITE | TYPE | ORDERLY) != wanted {
            return Err(Failure::NotCounter);
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

    /// Reads the attributes of an index. Errors: [`Failure::Malformed`] when it does not have the
    /// size of a counter; [`Failure::Refused`], [`Failure::TimedOut`], [`Failure::System`] or
    /// [`Failure::OutOfStep`] by the connection.
    fn attributes(&self, index: u32) -> Result<u32, Failure> {
        let response = self.command(NO_SESSIONS, NV_READ_PUBLIC, &index.to_be_bytes())?;
        // TPMS_NV_PUBLIC: index, algorithm of its name, attributes, policy, size.
        let public = Fields(&response).sized().map(Fields);
        let attributes = public.and_then(|mut public| {
            let is_asked = public.uint32()? == index;
            let _algorithm = public.uint16()?;
            let attributes = public.uint32()?;
            let _policy = public.sized()?;
            (is_asked && public.uint16()? == COUNTER_SIZE).then_some(attributes)
        });
        attributes.ok_or(Failure::Malformed)
    }

    /// Sends a command with one empty authorization, which `body` contains. Returns the parameters
    /// of the response. Errors: [`Failure::Malformed`] for a response without its parameters;
    /// [`Failure::Refused`] by the TPM, [`Failure::TimedOut`], [`Failure::System`] or
    /// [`Failure::OutOfStep`] by the connection.
    fn authorized_command(&self, code: u32, body: &[u8]) -> Result<Vec<u8>, Failure> {
        let response = self.command(SESSIONS, code, body)?;
        let mut fields = Fields(&response);
        let len = fields.uint32().and_then(|len| usize::try_from(len).ok());
        let parameters = len.and_then(|len| fields.bytes(len));
        parameters.map(<[u8]>::to_vec).ok_or(Failure::Malformed)
    }

    /// Sends a command when those of other threads are done, and waits up to 30 seconds for its
    /// response. Returns what follows the head of the response. Errors: [`Failure::Refused`] by the
    /// TPM; [`Failure::TimedOut`], [`Failure::System`] or [`Failure::OutOfStep`] by the connection.
    fn command(&self, tag: u16, code: u32, body: &[u8]) -> Result<Vec<u8>, Failure> {
        let mut connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        connection.set_deadline(LIMIT.begin_task());
        connection.command(tag, code, body)
    }
}

/// A counter in a TPM's memory, which only rises.
pub struct Counter {
    tpm: Arc<Tpm>,
    index: u32,
}

impl Counter {
    /// Reads the counter's value from the TPM.
    ///
    /// # Errors
    /// [`Failure::TimedOut`] when the TPM does not answer within 30 seconds; [`Failure::System`]
    /// when the system reports an error; [`Failure::OutOfStep`] when an earlier command got no
    /// response: only a new connection helps then; [`Failure::Refused`] by the TPM;
    /// [`Failure::Malformed`] for a response without a value.
    pub fn read(&self) -> Result<u64, Failure> {
        let mut body = self.handles();
        body.extend_from_slice(&COUNTER_SIZE.to_be_bytes());
        body.extend_from_slice(&[0, 0]);
        let parameters = self.tpm.authorized_command(NV_READ, &body)?;
        let value = Fields(&parameters).sized().map(Fields);
        value
            .and_then(|mut value| value.uint64())
            .ok_or(Failure::Malformed)
    }

    /// Raises the counter by one, in the TPM's own memory; the new value is not read.
    ///
    /// # Errors
    /// [`Failure::TimedOut`] when the TPM does not answer within 30 seconds, [`Failure::System`]
    /// when the system reports an error, [`Failure::Malformed`] for a response without its parts:
    /// after these it may be raised all the same. [`Failure::OutOfStep`] when an earlier command
    /// got no response; [`Failure::Refused`] by the TPM.
    pub fn increment(&self) -> Result<(), Failure> {
        self.tpm
            .authorized_command(NV_INCREMENT, &self.handles())
            .map(drop)
    }

    /// Returns the index twice, for authorization and for use, and its empty authorization, as a
    /// command begins with them.
    fn handles(&self) -> Vec<u8> {
        let index = self.index.to_be_bytes();
        [&index[..], &index, &EMPTY_PASSWORD].concat()
    }
}
