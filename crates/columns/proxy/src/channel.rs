//! The client's end of the channel to the zone: checks an attestation, opens a session with column
//! keys and a ticket, exchanges sealed messages. Specified in docs/spec/columns-channel.md.
//!
//! Invariants: nothing is sealed for a zone whose attestation was not accepted; a message of the
//! zone is accepted once, in order. Must not: know how messages travel.

mod error;
mod sev_snp;
mod tdx;
mod tpm;
mod x509;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use strongroom_crypto::{GcmKey, KeyAgreement, MacKey, SecretKey, hkdf, random32, sha256};
use strongroom_format::columns::channel::{
    Attestation, AttestationProvider, BINDING_LABEL, CLIENT_LABEL, Hello, Limit, MESSAGE_HELLO,
    MESSAGE_SEALED, PROOF_LABEL, Request, Sealed, TICKET_LABEL, Ticket, ZONE_LABEL,
    associated_data, is_name,
};
use strongroom_format::columns::tpm::ANSWER_SECONDS;
use zeroize::Zeroize as _;

pub use error::ChannelError;
pub use sev_snp::{AMD_ROOTS, SnpPolicy};
pub use tdx::{
    CollateralError, EnclaveIdentity, TcbInfo, TcbSigner, TcbStatus, TdMeasurement, TdxCollateral,
    TdxPolicy, TdxTcb,
};
pub use tpm::{PcrPolicy, TrustedKey};
pub use x509::{is_revocation_list, key_digest, read_certificates};

const TAG: usize = 16;

/// The attestations that the client accepts.
#[derive(Clone, Debug, Default)]
pub struct AttestationPolicy {
    /// Whether a zone that only states its own program's digest is accepted, which proves nothing.
    pub process: bool,
    /// Digests of the zone's program that are allowed; empty for any. Evidence of the other kinds
    /// has no such digest, so with digests none of it is accepted.
    pub measurements: Vec<[u8; 32]>,
    /// Attestation keys of TPMs whose quotes are trusted.
    pub tpm_keys: Vec<TrustedKey>,
    /// The values that registers of those TPMs have to have: one of these sets.
    pub pcrs: Vec<PcrPolicy>,
    /// Which reports of SEV-SNP are accepted; `None`: none.
    pub sev_snp: Option<SnpPolicy>,
    /// Which quotes of TDX are accepted; `None`: none.
    pub tdx: Option<TdxPolicy>,
}

/// A request for an attestation: the answer has to contain its nonce.
#[derive(Debug)]
pub struct AttestationRequest {
    nonce: [u8; 32],
    asked: Instant,
    time_limit: Duration,
}

impl AttestationRequest {
    /// Makes a request with a random nonce. It has to be answered within [`ANSWER_SECONDS`].
    ///
    /// # Errors
    /// [`ChannelError::System`] if there are no random numbers.
    pub fn new() -> Result<Self, ChannelError> {
        Self::within(Duration::from_secs(ANSWER_SECONDS))
    }

    /// Makes a request with a random nonce that has to be answered within this time, from now on.
    ///
    /// # Errors
    /// [`ChannelError::System`] if there are no random numbers.
    pub fn within(time_limit: Duration) -> Result<Self, ChannelError> {
        Ok(Self {
            nonce: random32()?,
            asked: Instant::now(),
            time_limit,
        })
    }

    /// Returns the nonce, to be sent to the zone.
    #[must_use]
    pub const fn nonce(&self) -> &[u8; 32] {
        &self.nonce
    }

    /// Checks that the zone's answer is an attestation that answers this request in time and
    /// satisfies the policy.
    ///
    /// # Errors
    /// - [`ChannelError::OtherVersion`] for an attestation of another version,
    ///   [`ChannelError::Malformed`] for an answer that cannot be parsed otherwise,
    ///   [`ChannelError::Replayed`] for another nonce, [`ChannelError::Late`] after the time limit.
    /// - [`ChannelError::ProvesNothing`] for an attestation of the process itself, if the policy
    ///   does not accept it.
    /// - [`ChannelError::Measurement`] for a program that is not allowed, and for any other
    ///   evidence if programs are listed.
    /// - For a TPM quote: [`ChannelError::Untrusted`] if no trusted key has signed it,
    ///   [`ChannelError::Unbound`] if it is not for the zone's key, [`ChannelError::Registers`] if
    ///   no policy holds.
    /// - For a report of SEV-SNP or a quote of TDX: [`ChannelError::NoPolicy`] if there is no
    ///   policy for it, [`ChannelError::Chain`] and [`ChannelError::Signature`] if it is not signed
    ///   by a key of the platform that leads to the maker's root, [`ChannelError::Revoked`] if a
    ///   list that the policy has names one of the certificates, [`ChannelError::Dates`] if that
    ///   key's certificate is not valid now, [`ChannelError::Firmware`] for a platform that is too
    ///   old; with Intel's judgement [`ChannelError::Uncovered`] for a platform that it does not
    ///   name, [`ChannelError::Expired`] after its time, [`ChannelError::Judged`] for one that is
    ///   not accepted; [`ChannelError::Guest`] for a virtual machine that may be debugged or
    ///   migrated or does not run as the policy says, [`ChannelError::Launch`] if it was started
    ///   with something else, [`ChannelError::Unbound`] if the report is not for the zone's key.
    pub fn check(
        self,
        answer: &[u8],
        accepted: &AttestationPolicy,
    ) -> Result<Attested, ChannelError> {
        if Attestation::is_of_other_version(answer) {
            return Err(ChannelError::OtherVersion);
        }
        let attestation = Attestation::parse(answer).ok_or(ChannelError::Malformed)?;
        if attestation.nonce != self.nonce {
            return Err(ChannelError::Replayed);
        }
        if self.asked.elapsed() > self.time_limit {
            return Err(ChannelError::Late);
        }
        let binding = sha256(&[BINDING_LABEL.as_bytes(), &attestation.head()]);
        check_evidence(&attestation, &binding, accepted)?;
        Ok(Attested {
            bytes: answer.to_vec(),
            zone_key: attestation.public_key,
            proofs: attestation.proofs,
            binding,
        })
    }
}

/// Checks that the evidence is for `binding` and satisfies the policy. Fails as
/// [`AttestationRequest::check`] says for each kind of evidence.
fn check_evidence(
    attestation: &Attestation,
    binding: &[u8; 32],
    accepted: &AttestationPolicy,
) -> Result<(), ChannelError> {
    let evidence = &attestation.evidence;
    if attestation.provider == AttestationProvider::Process {
        return check_process(attestation, binding, accepted);
    }
    if !accepted.measurements.is_empty() {
        return Err(ChannelError::Measurement);
    }
    let data = match attestation.provider {
        AttestationProvider::SevSnp => {
            let policy = accepted.sev_snp.as_ref().ok_or(ChannelError::NoPolicy)?;
            sev_snp::verify(evidence, policy, now())?
        }
        AttestationProvider::Tdx => {
            let policy = accepted.tdx.as_ref().ok_or(ChannelError::NoPolicy)?;
            tdx::verify(evidence, policy, now())?
        }
        AttestationProvider::Process | AttestationProvider::Tpm => {
            return tpm::check(evidence, binding, &accepted.tpm_keys, &accepted.pcrs);
        }
    };
    check_report_data(data, binding)
}

/// Checks that the data that a virtual machine gave for its report are `binding` and zeros. Fails
/// with `Unbound`.
fn check_report_data(data: &[u8], binding: &[u8; 32]) -> Result<(), ChannelError> {
    let bound = data.strip_prefix(binding);
    let bound = bound.filter(|rest| rest.iter().all(|byte| *byte == 0));
    bound.map(drop).ok_or(ChannelError::Unbound)
}

/// Returns the time in seconds since 1970, by this machine's clock.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Checks the attestation of a zone that only states its own program's digest. Fails with
/// `ProvesNothing` if the policy does not accept that, `Malformed`, `Unbound` if it is not for the
/// zone's key, or `Measurement` if the program is not allowed.
fn check_process(
    attestation: &Attestation,
    binding: &[u8; 32],
    accepted: &AttestationPolicy,
) -> Result<(), ChannelError> {
    if !accepted.process {
        return Err(ChannelError::ProvesNothing);
    }
    let (measurement, bound) = attestation
        .evidence
        .split_first_chunk::<32>()
        .ok_or(ChannelError::Malformed)?;
    if bound != binding {
        return Err(ChannelError::Unbound);
    }
    let allowed = accepted.measurements.is_empty() || accepted.measurements.contains(measurement);
    if allowed {
        Ok(())
    } else {
        Err(ChannelError::Measurement)
    }
}

/// A zone whose attestation was accepted.
#[derive(Debug)]
pub struct Attested {
    bytes: Vec<u8>,
    zone_key: [u8; 32],
    proofs: Vec<([u8; 16], [u8; 32])>,
    binding: [u8; 32],
}

/// A column key with its id.
pub type ColumnKeyRef<'a> = ([u8; 16], &'a SecretKey);

impl Attested {
    /// Returns the ids of those keys of which the zone has proven that it holds them already: the
    /// attestation has a MAC of itself under each. A zone with values under a key holds it.
    ///
    /// # Errors
    /// [`ChannelError::Unproven`] for a MAC under one of these keys that is wrong,
    /// [`ChannelError::System`] without locked memory.
    pub fn proven(&self, keys: &[ColumnKeyRef<'_>]) -> Result<Vec<[u8; 16]>, ChannelError> {
        let mut proven = Vec::new();
        for (id, key) in keys {
            let Some((_, mac)) = self.proofs.iter().find(|(named, _)| named == id) else {
                continue;
            };
            let held = MacKey::new(&hkdf(key, id, PROOF_LABEL.as_bytes())?)?;
            if !held.verify(&[&self.binding], mac) {
                return Err(ChannelError::Unproven);
            }
            proven.push(*id);
        }
        Ok(proven)
    }

    /// Makes the message that opens a session: it releases these keys to the zone, sealed for the
    /// attested key, under a ticket for them. `name` is shown to the owner in the ledgers of the
    /// keys. Returns it with the state that reads the answer.
    /// Sends nothing.
    ///
    /// # Errors
    /// [`ChannelError::System`] without random numbers or locked memory;
    /// [`ChannelError::Malformed`] for a ticket that names no key, too many, or one that is not
    /// given, and for a name that is none ([`is_name`]).
    pub fn open(
        self,
        keys: &[ColumnKeyRef<'_>],
        ticket: &Ticket,
        name: &str,
    ) -> Result<(Vec<u8>, PendingSession), ChannelError> {
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
        let mut request = opening_request(keys, ticket, name)?;
        let head = Sealed {
            session: [0; 16],
            sequence: 0,
        };
        let sealed = seal(&send, Some(&hello), head, &mut request)?;
        let message = [&[MESSAGE_HELLO], &hello[..], &sealed].concat();
        Ok((message, PendingSession { send, receive }))
    }
}

/// Writes the request that opens a session, in clear: the name, the keys and the ticket. Fails as
/// [`Attested::open`] does.
fn opening_request(
    keys: &[ColumnKeyRef<'_>],
    ticket: &Ticket,
    name: &str,
) -> Result<Vec<u8>, ChannelError> {
    let name_len = u8::try_from(name.len()).ok().filter(|_| is_name(name));
    let name_len = name_len.ok_or(ChannelError::Malformed)?;
    let count = u16::try_from(keys.len()).map_err(|_| ChannelError::Malformed)?;
    let authenticated = authenticate_ticket(keys, ticket)?;
    // Allocated with its final length: a vector that grows leaves copies of keys behind.
    let len = [
        4,
        name.len(),
        keys.len().saturating_mul(48),
        authenticated.len(),
    ]
    .into_iter()
    .sum();
    let mut request = Vec::with_capacity(len);
    request.push(Request::Open.number());
    request.push(name_len);
    request.extend_from_slice(name.as_bytes());
    request.extend_from_slice(&count.to_le_bytes());
    for (id, key) in keys {
        request.extend_from_slice(id);
        request.extend_from_slice(key.expose());
    }
    request.extend_from_slice(&authenticated);
    Ok(request)
}

/// Returns a ticket followed by a MAC under each of its keys. Fails with `Malformed` if it cannot
/// be encoded or names a key that is not given, and with `System` without locked memory.
fn authenticate_ticket(
    keys: &[ColumnKeyRef<'_>],
    ticket: &Ticket,
) -> Result<Vec<u8>, ChannelError> {
    let covered = ticket.to_bytes().ok_or(ChannelError::Malformed)?;
    let mut macs = Vec::new();
    for id in &ticket.keys {
        let (_, key) = keys
            .iter()
            .find(|(named, _)| named == id)
            .ok_or(ChannelError::Malformed)?;
        let mac = MacKey::new(&hkdf(key, id, TICKET_LABEL.as_bytes())?)?;
        macs.extend_from_slice(&mac.mac(&[&covered]));
    }
    Ok([covered, macs].concat())
}

/// Encrypts `body` in place and returns it with its header and tag. If that fails, `body` is wiped
/// and the error is `System`.
fn seal(
    key: &GcmKey,
    hello: Option<&[u8]>,
    head: Sealed,
    body: &mut Vec<u8>,
) -> Result<Vec<u8>, ChannelError> {
    let head_bytes = head.to_bytes();
    let associated = associated_data(hello, &head_bytes).ok_or(ChannelError::System)?;
    let tag = key.seal(&head.nonce(), &associated, body);
    if tag.is_err() {
        body.zeroize();
    }
    Ok([&head_bytes[..], body, &tag?].concat())
}

/// A session that was requested.
pub struct PendingSession {
    send: GcmKey,
    receive: GcmKey,
}

impl PendingSession {
    /// Completes the session with the zone's answer.
    ///
    /// # Errors
    /// [`ChannelError::Message`] if the answer does not open, or is not for this session.
    pub fn complete(self, message: &[u8]) -> Result<OpenSession, ChannelError> {
        let (head, _) = Sealed::parse(message).ok_or(ChannelError::Message)?;
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
            Err(ChannelError::Message)
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
    /// Returns the session's number, which the zone has drawn.
    #[must_use]
    pub const fn id(&self) -> &[u8; 16] {
        &self.id
    }

    /// Makes the next message for the zone: a request without content. Sends nothing itself.
    ///
    /// # Errors
    /// [`ChannelError::System`] if it cannot be sealed.
    pub fn send(&mut self, request: Request) -> Result<Vec<u8>, ChannelError> {
        self.send_with(vec![request.number()])
    }

    /// Makes the next message for the zone: one that renews the ticket. The new one has the same id
    /// and keys. Sends nothing itself.
    ///
    /// # Errors
    /// [`ChannelError::System`] if it cannot be sealed; [`ChannelError::Malformed`] for a ticket
    /// that names a key that is not given.
    pub fn renew(
        &mut self,
        keys: &[ColumnKeyRef<'_>],
        ticket: &Ticket,
    ) -> Result<Vec<u8>, ChannelError> {
        let authenticated = authenticate_ticket(keys, ticket)?;
        self.send_with([&[Request::Renew.number()], &authenticated[..]].concat())
    }

    /// Makes the next message for the zone: one that sets the limit of a column key. Sends nothing
    /// itself.
    ///
    /// # Errors
    /// [`ChannelError::System`] if it cannot be sealed.
    pub fn set_limit(&mut self, limit: &Limit) -> Result<Vec<u8>, ChannelError> {
        self.send_with([&[Request::Limit.number()], &limit.to_bytes()[..]].concat())
    }

    /// Seals a request under the next sequence number and returns the message. Fails with `System`
    /// if it cannot be sealed.
    fn send_with(&mut self, mut request: Vec<u8>) -> Result<Vec<u8>, ChannelError> {
        let head = Sealed {
            session: self.id,
            sequence: self.sent,
        };
        self.sent = self.sent.checked_add(1).ok_or(ChannelError::System)?;
        let sealed = seal(&self.send, None, head, &mut request)?;
        Ok([&[MESSAGE_SEALED], &sealed[..]].concat())
    }

    /// Opens the zone's next answer and returns its content.
    ///
    /// # Errors
    /// [`ChannelError::Message`] if it does not open, is of another session, or is out of order.
    pub fn receive(&mut self, message: &[u8]) -> Result<Vec<u8>, ChannelError> {
        let (head, sealed) = Sealed::parse(message).ok_or(ChannelError::Message)?;
        if head.session != self.id || head.sequence != self.received {
            return Err(ChannelError::Message);
        }
        let associated = associated_data(None, message).ok_or(ChannelError::Message)?;
        let (body, tag) = sealed
            .split_last_chunk::<TAG>()
            .ok_or(ChannelError::Message)?;
        let mut opened = body.to_vec();
        let done = self
            .receive
            .open(&head.nonce(), &associated, &mut opened, tag);
        done.map_err(|_| ChannelError::Message)?;
        self.received = self.received.checked_add(1).ok_or(ChannelError::System)?;
        Ok(opened)
    }
}

#[cfg(test)]
mod tests;
