//! The client's end of the channel to the zone: checks an attestation, opens a session with column keys and a ticket, exchanges
//! sealed messages. Specified in docs/spec/columns-channel.md.
//!
//! Invariants: nothing is sealed for a zone whose attestation was not accepted; a message of the zone is accepted once, in order.
//! Must not: know how messages travel.

mod tpm;

use std::fmt;
use std::time::{Duration, Instant};

use strongroom_crypto::{
    CryptoError, GcmKey, KeyAgreement, MacKey, SecretKey, hkdf, random32, sha256,
};
use strongroom_format::columns::channel::{
    Attestation, AttestationProvider, BINDING_LABEL, CLIENT_LABEL, Hello, MESSAGE_HELLO,
    MESSAGE_SEALED, Request, Sealed, TICKET_LABEL, Ticket, ZONE_LABEL, bound,
};
use strongroom_format::columns::tpm::ANSWER_SECONDS;
use zeroize::Zeroize as _;

pub use tpm::{PcrPolicy, TrustedKey};

const TAG: usize = 16;

/// What attestations are accepted.
#[derive(Clone, Debug, Default)]
pub struct Accepted {
    /// Also a zone that says itself what it is, which proves nothing.
    pub process: bool,
    /// Digests of the zone's program that are allowed. Empty: any. A quote does not hold one: when there are any, none is accepted.
    pub measurements: Vec<[u8; 32]>,
    /// Attestation keys of TPMs whose quotes are believed.
    pub tpm_keys: Vec<TrustedKey>,
    /// What registers of those TPMs have to hold: one of these.
    pub pcrs: Vec<PcrPolicy>,
}

/// Why a channel was not opened, or a message not taken.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// Not an attestation of a version that is known.
    Malformed,
    /// It answers another nonce: an old one, replayed.
    Replayed,
    /// It comes too long after the question.
    Late,
    /// The evidence does not belong to the public key.
    Unbound,
    /// The quote is not signed by a key that is trusted.
    Untrusted,
    /// The TPM's registers hold other values than those that are allowed.
    Registers,
    /// The provider proves nothing, and nobody said that it is accepted.
    ProvesNothing,
    /// The program is not one that is allowed.
    Measurement,
    /// A message does not open, or is out of order.
    Message,
    /// No random numbers or no locked memory.
    System,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the zone's attestation is not of a form that is known",
            Self::Replayed => "the zone's attestation answers another question than this client's",
            Self::Late => "the zone's attestation came too late",
            Self::Unbound => "the zone's evidence does not belong to its key",
            Self::Untrusted => "the zone's TPM quote is not signed by a key that is trusted",
            Self::Registers => {
                "the registers of the zone's TPM hold other values than those that are allowed"
            }
            Self::ProvesNothing => {
                "the zone attests itself, which proves nothing, and that was not accepted"
            }
            Self::Measurement => "the zone runs a program that is not allowed",
            Self::Message => "a message from the zone does not open, or is out of order",
            Self::System => "no random numbers or no locked memory",
        })
    }
}

impl std::error::Error for Refused {}

impl From<CryptoError> for Refused {
    fn from(_: CryptoError) -> Self {
        Self::System
    }
}

/// A question to the zone: its answer has to carry this nonce.
#[derive(Debug)]
pub struct Question {
    nonce: [u8; 32],
    asked: Instant,
    patience: Duration,
}

impl Question {
    /// A new one.
    ///
    /// # Errors
    /// [`Refused::System`].
    pub fn new() -> Result<Self, Refused> {
        Self::within(Duration::from_secs(ANSWER_SECONDS))
    }

    /// A new one that has to be answered within this time.
    ///
    /// # Errors
    /// [`Refused::System`].
    pub fn within(patience: Duration) -> Result<Self, Refused> {
        Ok(Self {
            nonce: random32()?,
            asked: Instant::now(),
            patience,
        })
    }

    /// For the zone.
    #[must_use]
    pub const fn nonce(&self) -> &[u8; 32] {
        &self.nonce
    }

    /// Checks the zone's answer.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(self, answer: &[u8], accepted: &Accepted) -> Result<Attested, Refused> {
        let attestation = Attestation::parse(answer).ok_or(Refused::Malformed)?;
        if attestation.nonce != self.nonce {
            return Err(Refused::Replayed);
        }
        if self.asked.elapsed() > self.patience {
            return Err(Refused::Late);
        }
        let binding = sha256(&[BINDING_LABEL.as_bytes(), &attestation.head()]);
        match attestation.provider {
            AttestationProvider::Process => check_process(&attestation, &binding, accepted)?,
            AttestationProvider::Tpm if !accepted.measurements.is_empty() => {
                return Err(Refused::Measurement);
            }
            AttestationProvider::Tpm => {
                let evidence = &attestation.evidence;
                tpm::check(evidence, &binding, &accepted.tpm_keys, &accepted.pcrs)?;
            }
        }
        Ok(Attested {
            bytes: answer.to_vec(),
            zone_key: attestation.public_key,
        })
    }
}

fn check_process(
    attestation: &Attestation,
    binding: &[u8; 32],
    accepted: &Accepted,
) -> Result<(), Refused> {
    if !accepted.process {
        return Err(Refused::ProvesNothing);
    }
    let (measurement, bound) = attestation
        .evidence
        .split_first_chunk::<32>()
        .ok_or(Refused::Malformed)?;
    if bound != binding {
        return Err(Refused::Unbound);
    }
    let allowed = accepted.measurements.is_empty() || accepted.measurements.contains(measurement);
    if allowed {
        Ok(())
    } else {
        Err(Refused::Measurement)
    }
}

/// A zone whose attestation was accepted.
#[derive(Debug)]
pub struct Attested {
    bytes: Vec<u8>,
    zone_key: [u8; 32],
}

/// A column key with its id.
pub type Named<'a> = ([u8; 16], &'a SecretKey);

impl Attested {
    /// The message that opens a session, with these keys under a ticket for them, and what is needed to read the answer.
    ///
    /// # Errors
    /// [`Refused::System`]; [`Refused::Malformed`] for a ticket that names no key, too many, or one that is not given.
    pub fn open(self, keys: &[Named<'_>], ticket: &Ticket) -> Result<(Vec<u8>, Opening), Refused> {
        let (private, client_key) = KeyAgreement::generate()?;
        let hello = Hello {
            client_key,
            zone_key: self.zone_key,
        }
        .to_bytes();
        let salt = sha256(&[&self.bytes, &hello]);
        let (send, receive) = private.agree(
            &self.zone_key,
            &salt,
            CLIENT_LABEL.as_bytes(),
            ZONE_LABEL.as_bytes(),
        )?;
        let (send, receive) = (GcmKey::new(&send)?, GcmKey::new(&receive)?);
        let mut request = opening_request(keys, ticket)?;
        let head = Sealed {
            session: [0; 16],
            sequence: 0,
        };
        let sealed = seal(&send, Some(&hello), head, &mut request)?;
        let message = [&[MESSAGE_HELLO], &hello[..], &sealed].concat();
        Ok((message, Opening { send, receive }))
    }
}

fn opening_request(keys: &[Named<'_>], ticket: &Ticket) -> Result<Vec<u8>, Refused> {
    let count = u16::try_from(keys.len()).map_err(|_| Refused::Malformed)?;
    let authenticated = authenticated(keys, ticket)?;
    // Of its final length from the start: a vector that grows leaves copies of keys behind.
    let len = [3, keys.len().saturating_mul(48), authenticated.len()]
        .into_iter()
        .sum();
    let mut request = Vec::with_capacity(len);
    request.push(Request::Open.number());
    request.extend_from_slice(&count.to_le_bytes());
    for (id, key) in keys {
        request.extend_from_slice(id);
        request.extend_from_slice(key.expose());
    }
    request.extend_from_slice(&authenticated);
    Ok(request)
}

/// A ticket with the MACs of its keys.
fn authenticated(keys: &[Named<'_>], ticket: &Ticket) -> Result<Vec<u8>, Refused> {
    let covered = ticket.to_bytes().ok_or(Refused::Malformed)?;
    let mut macs = Vec::new();
    for id in &ticket.keys {
        let (_, key) = keys
            .iter()
            .find(|(named, _)| named == id)
            .ok_or(Refused::Malformed)?;
        let mac = MacKey::new(&hkdf(key, id, TICKET_LABEL.as_bytes())?)?;
        macs.extend_from_slice(&mac.mac(&[&covered]));
    }
    Ok([covered, macs].concat())
}

/// Seals `body`, which is wiped by becoming ciphertext.
fn seal(
    key: &GcmKey,
    hello: Option<&[u8]>,
    head: Sealed,
    body: &mut Vec<u8>,
) -> Result<Vec<u8>, Refused> {
    let head_bytes = head.to_bytes();
    let associated = bound(hello, &head_bytes).ok_or(Refused::System)?;
    let tag = key.seal(&head.nonce(), &associated, body);
    if tag.is_err() {
        body.zeroize();
    }
    Ok([&head_bytes[..], body, &tag?].concat())
}

/// A session that was asked for.
pub struct Opening {
    send: GcmKey,
    receive: GcmKey,
}

impl Opening {
    /// The zone's answer opens the session.
    ///
    /// # Errors
    /// [`Refused::Message`].
    pub fn answered(self, message: &[u8]) -> Result<OpenSession, Refused> {
        let (head, _) = Sealed::parse(message).ok_or(Refused::Message)?;
        let mut session = OpenSession {
            id: head.session,
            send: self.send,
            receive: self.receive,
            sent: 1,
            received: 0,
        };
        let body = session.receive(message)?;
        if body == session.id {
            Ok(session)
        } else {
            Err(Refused::Message)
        }
    }
}

/// An open session with the zone.
pub struct OpenSession {
    id: [u8; 16],
    send: GcmKey,
    receive: GcmKey,
    sent: u64,
    received: u64,
}

impl OpenSession {
    /// A message for the zone.
    ///
    /// # Errors
    /// [`Refused::System`].
    pub fn send(&mut self, request: Request) -> Result<Vec<u8>, Refused> {
        self.send_with(vec![request.number()])
    }

    /// A message for the zone: the session is to go on under this ticket, of the same id and keys as the one before.
    ///
    /// # Errors
    /// [`Refused::System`]; [`Refused::Malformed`] for a ticket that names a key that is not given.
    pub fn renew(&mut self, keys: &[Named<'_>], ticket: &Ticket) -> Result<Vec<u8>, Refused> {
        let authenticated = authenticated(keys, ticket)?;
        self.send_with([&[Request::Renew.number()], &authenticated[..]].concat())
    }

    fn send_with(&mut self, mut request: Vec<u8>) -> Result<Vec<u8>, Refused> {
        let head = Sealed {
            session: self.id,
            sequence: self.sent,
        };
        self.sent = self.sent.checked_add(1).ok_or(Refused::System)?;
        let sealed = seal(&self.send, None, head, &mut request)?;
        Ok([&[MESSAGE_SEALED], &sealed[..]].concat())
    }

    /// What the zone answered.
    ///
    /// # Errors
    /// [`Refused::Message`].
    pub fn receive(&mut self, message: &[u8]) -> Result<Vec<u8>, Refused> {
        let (head, sealed) = Sealed::parse(message).ok_or(Refused::Message)?;
        if head.session != self.id || head.sequence != self.received {
            return Err(Refused::Message);
        }
        let associated = bound(None, message).ok_or(Refused::Message)?;
        let (body, tag) = sealed.split_last_chunk::<TAG>().ok_or(Refused::Message)?;
        let mut opened = body.to_vec();
        let done = self
            .receive
            .open(&head.nonce(), &associated, &mut opened, tag);
        done.map_err(|_| Refused::Message)?;
        self.received = self.received.checked_add(1).ok_or(Refused::System)?;
        Ok(opened)
    }
}
