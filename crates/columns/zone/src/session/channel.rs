//! The zone's end of the channel: agreements that wait for their client, sessions with their keys
//! and counters.
//!
//! Invariants:
//! - The private key of a key agreement serves one client and is then dropped; it is kept for two
//!   minutes at most. Each ring has a few pending agreements, and a new one replaces its oldest: no
//!   ring can displace an agreement of another.
//! - The counts of a ticket with limits are kept as long as the ticket is valid, beyond the end of
//!   its sessions (A3).
//! - A message is accepted once: its number is the next one of its session.
//! - A ticket is authenticated by every key that it names, each of which the zone holds or has just
//!   been given; before that no key is kept.
//! - Every message that does not open is [`Fault::BadMessage`], whatever the reason.
//!
//! Must not: reveal anything to the server but lengths.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use strongroom_columns_ring::Fault;
use strongroom_crypto::{GcmKey, KeyAgreement, SecretKey, random16, sha256};
use strongroom_format::columns::channel::{
    Attestation, AttestationProvider, CLIENT_LABEL, Hello, Limit, MESSAGE_HELLO, MESSAGE_SEALED,
    PROOFS_MAX, Request, Sealed, Ticket, ZONE_LABEL, associated_data, hello_layout, parse_opening,
};
use zeroize::Zeroize as _;

use super::accounts::Accounts;
use super::attest::binding;
use super::{ColumnKeys, KeyId, Ledger, Session};
use crate::clock::now;
use crate::key_ledger::LedgerBook;

/// The most pending agreements of one ring.
const PENDING_MAX: usize = 4;
const PENDING_TIME: Duration = Duration::from_secs(120);
const TAG: usize = 16;

/// An attestation that is being made: it lacks its evidence.
pub struct Unattested {
    ring: u16,
    private: KeyAgreement,
    attestation: Attestation,
    binding: [u8; 32],
}

impl Unattested {
    /// What the evidence has to bind.
    #[must_use]
    pub const fn binding(&self) -> &[u8; 32] {
        &self.binding
    }

    /// The client's nonce.
    #[must_use]
    pub const fn nonce(&self) -> &[u8; 32] {
        &self.attestation.nonce
    }
}

struct PendingAgreement {
    /// The ring that asked for the attestation.
    ring: u16,
    private: KeyAgreement,
    attestation: Vec<u8>,
    since: Instant,
}

struct LiveSession {
    session: Session,
    receive: GcmKey,
    send: GcmKey,
    received: u64,
    sent: u64,
}

/// The answer to a client's message.
#[derive(Debug)]
pub struct Reply {
    /// The session that the ring has from now on, if any.
    pub session: Option<[u8; 16]>,
    /// The message for the client, which the server passes on.
    pub message: Vec<u8>,
}

/// All key agreements and sessions of this zone.
#[derive(Default)]
pub struct Channel {
    pending: BTreeMap<[u8; 32], PendingAgreement>,
    sessions: BTreeMap<[u8; 16], LiveSession>,
    accounts: Accounts,
}

/// Makes the proof that the zone holds, or has held, the column key of an id, for what an
/// attestation's evidence binds. `None` if it cannot.
pub type Prover<'a> = &'a dyn Fn(&[u8; 32], &KeyId) -> Option<[u8; 32]>;

impl Channel {
    /// Makes a key agreement and an attestation of its public key under the client's nonce, which
    /// lacks the evidence of `provider`. `held` are the ids of the column keys that the attestation
    /// proves the zone to hold, or to have held, of which the first [`PROOFS_MAX`] count; `prove`
    /// makes the proof of one for what the evidence binds. `identity` is the object id of the store
    /// and the zone's incarnation, `ring` the ring that asks.
    ///
    /// # Errors
    /// [`Fault::OutOfMemory`] if the system gives no random numbers; [`Fault::NoColumnKey`] if a
    /// proof cannot be made.
    pub fn begin_attestation(
        provider: AttestationProvider,
        (held, prove): (&[KeyId], Prover<'_>),
        identity: ([u8; 16], [u8; 16]),
        ring: u16,
        nonce: [u8; 32],
    ) -> Result<Unattested, Fault> {
        let (private, public_key) = KeyAgreement::generate().map_err(|_| Fault::OutOfMemory)?;
        let mut attestation = Attestation {
            provider,
            store_id: identity.0,
            incarnation: identity.1,
            public_key,
            nonce,
            // Their number is part of what they prove, so they are counted before they are made.
            proofs: held
                .iter()
                .take(PROOFS_MAX)
                .map(|id| (*id, [0; 32]))
                .collect(),
            evidence: Vec::new(),
        };
        let binding = binding(&attestation);
        for (id, mac) in &mut attestation.proofs {
            *mac = prove(&binding, id).ok_or(Fault::NoColumnKey)?;
        }
        Ok(Unattested {
            ring,
            private,
            attestation,
            binding,
        })
    }

    /// Adds the evidence to an attestation and returns its bytes. Keeps the private key for the
    /// client's answer: for two minutes, and at most four for each ring, of which a new one
    /// replaces the oldest.
    pub fn finish_attestation(&mut self, unattested: Unattested, evidence: Vec<u8>) -> Vec<u8> {
        self.pending
            .retain(|_, waiting| waiting.since.elapsed() < PENDING_TIME);
        let own = || {
            let all = self.pending.iter();
            all.filter(|(_, waiting)| waiting.ring == unattested.ring)
        };
        if own().count() >= PENDING_MAX {
            let oldest = own().min_by_key(|(_, waiting)| waiting.since);
            if let Some(public) = oldest.map(|(public, _)| *public) {
                self.pending.remove(&public);
            }
        }
        let mut attestation = unattested.attestation;
        attestation.evidence = evidence;
        let bytes = attestation.to_bytes();
        let waiting = PendingAgreement {
            ring: unattested.ring,
            private: unattested.private,
            attestation: bytes.clone(),
            since: Instant::now(),
        };
        self.pending.insert(attestation.public_key, waiting);
        bytes
    }

    /// Carries out a client's message that came over a ring with session `current`: opens a
    /// session, which replaces `current`, and takes its column keys; or answers, renews or closes
    /// `current`. `ledgers` are those of the column keys. Returns the sealed reply and the ring's
    /// session from now on.
    ///
    /// # Errors
    /// [`Fault::BadMessage`] for a message that does not open; [`Fault::NotAllowed`] for a ticket
    /// that not all keys that it names authenticate, and for the limit of a key that the ticket
    /// does not name; [`Fault::OutOfMemory`] if a key or reply cannot be made; those of setting a
    /// limit.
    pub fn message(
        &mut self,
        keys: &mut ColumnKeys,
        ledgers: &mut dyn LedgerBook,
        current: Option<[u8; 16]>,
        message: &[u8],
    ) -> Result<Reply, Fault> {
        match message.split_first() {
            Some((&MESSAGE_HELLO, rest)) => {
                let reply = self.open(keys, rest)?;
                if let Some(before) = current {
                    self.end(&before);
                }
                if let Some(session) = reply.session.and_then(|id| self.session(&id)) {
                    ledgers.note_session(&session.ticket().keys, session.name());
                }
                Ok(reply)
            }
            Some((&MESSAGE_SEALED, rest)) => self.handle_sealed(keys, ledgers, current, rest),
            _ => Err(Fault::BadMessage),
        }
    }

    /// The open session of this id. `None` if there is none.
    pub fn session(&mut self, id: &[u8; 16]) -> Option<&mut Session> {
        self.sessions.get_mut(id).map(|live| &mut live.session)
    }

    /// Forgets the pending agreements of a ring that has ended.
    pub fn forget_pending(&mut self, ring: u16) {
        self.pending.retain(|_, waiting| waiting.ring != ring);
    }

    /// Ends a session, if it is open. The zone keeps the column keys that it brought. What was used
    /// of a limited ticket (the owner's permission that the session was opened with) stays counted
    /// while the ticket is valid, so that a new session gets no fresh allowance.
    pub fn end(&mut self, id: &[u8; 16]) {
        if let Some(live) = self.sessions.remove(id) {
            self.accounts.end_session(live.session.ticket());
        }
    }

    /// The sum of the counts of tickets without a session.
    #[must_use]
    pub fn ended(&self) -> Ledger {
        self.accounts.ended()
    }

    /// The tickets that have sessions: id, rights and counts.
    pub fn ledgers(&self) -> impl Iterator<Item = ([u8; 16], u32, &Ledger)> {
        self.accounts.with_sessions()
    }

    /// Every session.
    pub fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.sessions.values().map(|live| &live.session)
    }

    /// Opens a session for a client's hello, which answers a pending attestation of at most two
    /// minutes ago; the attestation is used up even if this fails. Takes the column keys that the
    /// hello has. Returns the new session's id and the sealed reply. `Fault::BadMessage` if it does
    /// not open, `Fault::NotAllowed` if not all keys of its ticket authenticate it,
    /// `Fault::OutOfMemory` if a key or reply cannot be made.
    fn open(&mut self, keys: &mut ColumnKeys, message: &[u8]) -> Result<Reply, Fault> {
        let (hello, sealed) = Hello::parse(message).ok_or(Fault::BadMessage)?;
        let waiting = self
            .pending
            .remove(&hello.zone_key)
            .ok_or(Fault::BadMessage)?;
        if waiting.since.elapsed() >= PENDING_TIME {
            return Err(Fault::BadMessage);
        }
        let salt = sha256(&[&waiting.attestation, &hello.to_bytes()]);
        let agreed = waiting.private.agree(
            &hello.client_key,
            &salt,
            CLIENT_LABEL.as_bytes(),
            ZONE_LABEL.as_bytes(),
        );
        let (receive, send) = agreed.map_err(|_| Fault::BadMessage)?;
        let gcm = |key: &SecretKey| GcmKey::new(key).map_err(|_| Fault::OutOfMemory);
        let (receive, send) = (gcm(&receive)?, gcm(&send)?);
        let (head, _) = Sealed::parse(sealed).ok_or(Fault::BadMessage)?;
        if head.session != [0; 16] || head.sequence != 0 {
            return Err(Fault::BadMessage);
        }
        let mut request = open_message(&receive, message.get(..hello_layout::SIZE), sealed)?;
        let id = random16().map_err(|_| Fault::OutOfMemory);
        let accepted = id.and_then(|id| Ok((id, self.accept(keys, &request)?)));
        request.zeroize();
        let (id, (ticket, ledger, name)) = accepted?;
        let mut live = LiveSession {
            session: Session::new(id, ticket, ledger, name),
            receive,
            send,
            received: 1,
            sent: 0,
        };
        let message = live.answer(&id);
        self.sessions.insert(id, live);
        if message.is_err() {
            self.end(&id);
        }
        let message = message?;
        Ok(Reply {
            session: Some(id),
            message,
        })
    }

    /// Checks the ticket of an opening request, takes the column keys that the ticket names, and
    /// counts a session under the ticket. Returns the ticket, its counts, and the name that the
    /// client gives itself. `Fault::BadMessage` if it cannot be parsed; `Fault::NotAllowed` if not
    /// every key that the ticket names authenticates it, or a key has another's id;
    /// `Fault::OutOfMemory` if there is no memory for a key.
    fn accept(
        &mut self,
        keys: &mut ColumnKeys,
        request: &[u8],
    ) -> Result<(Ticket, Ledger, Arc<str>), Fault> {
        let Some((Request::Open, body)) = Request::parse(request) else {
            return Err(Fault::BadMessage);
        };
        let opening = parse_opening(body).ok_or(Fault::BadMessage)?;
        let (ticket, covered, macs) = Ticket::parse(opening.ticket).ok_or(Fault::BadMessage)?;
        let mut received_keys = ColumnKeys::default();
        for (id, key) in opening.keys {
            let key = SecretKey::take(&mut { *key }).map_err(|_| Fault::OutOfMemory)?;
            received_keys.take(id, key).map_err(|_| Fault::NotAllowed)?;
        }
        // Every key has to authenticate the ticket, so that the owner of one column cannot make a
        // ticket for another column too.
        let agreed = ticket.keys.iter().zip(macs).all(|(key, mac)| {
            received_keys.authenticates(key, covered, mac) || keys.authenticates(key, covered, mac)
        });
        if !agreed {
            return Err(Fault::NotAllowed);
        }
        let ledger = self.accounts.begin_session(&ticket, now())?;
        received_keys.retain(|id| ticket.keys.contains(id));
        keys.absorb(received_keys);
        Ok((ticket, ledger, Arc::from(opening.name)))
    }

    /// Answers a sealed message of the ring's session `current`: returns the counts of its ticket
    /// or the ledgers of its keys, sets the limit of one, replaces the ticket, or closes the
    /// session. `Fault::BadMessage` for another session, a message that is out of order, does not
    /// open or is none of these; `Fault::NotAllowed` for a new ticket with another id or other
    /// keys, or that not each of its keys, taken from `keys`, authenticates, and for the limit of a
    /// key that the ticket does not name; `Fault::OutOfMemory` if the reply cannot be sealed; those
    /// of setting a limit.
    fn handle_sealed(
        &mut self,
        keys: &ColumnKeys,
        ledgers: &mut dyn LedgerBook,
        current: Option<[u8; 16]>,
        message: &[u8],
    ) -> Result<Reply, Fault> {
        let (head, _) = Sealed::parse(message).ok_or(Fault::BadMessage)?;
        if current != Some(head.session) {
            return Err(Fault::BadMessage);
        }
        let live = self
            .sessions
            .get_mut(&head.session)
            .ok_or(Fault::BadMessage)?;
        if head.sequence != live.received {
            return Err(Fault::BadMessage);
        }
        let mut opened = open_message(&live.receive, None, message)?;
        live.received = live.received.saturating_add(1);
        let request = Request::parse(&opened).map(|(request, body)| (request, body.to_vec()));
        opened.zeroize();
        let (request, body) = request.ok_or(Fault::BadMessage)?;
        let answer = match request {
            Request::Ledger => live.session.ledger().to_json().into_bytes(),
            Request::KeyLedgers => ledgers.to_json(&live.session.ticket().keys).into_bytes(),
            Request::Limit => {
                let limit = Limit::parse(&body).ok_or(Fault::BadMessage)?;
                live.session.allow(0, &[limit.key_id])?;
                ledgers.set_limit(&limit)?;
                Vec::new()
            }
            Request::Renew => {
                let ticket = parse_renewal(keys, live.session.ticket(), &body)?;
                self.accounts.renew(&ticket);
                ledgers.note_session(&ticket.keys, live.session.name());
                live.session.renew(ticket);
                Vec::new()
            }
            Request::Close => Vec::new(),
            Request::Open => return Err(Fault::BadMessage),
        };
        let message = live.answer(&answer)?;
        let over = request == Request::Close;
        if over {
            self.end(&head.session);
        }
        Ok(Reply {
            session: current.filter(|_| !over),
            message,
        })
    }
}

impl LiveSession {
    /// Seals an answer to the client under the next number of the session, and returns the whole
    /// message. `Fault::OutOfMemory` if it cannot be sealed, `Fault::BadMessage` if the numbers are
    /// used up.
    fn answer(&mut self, body: &[u8]) -> Result<Vec<u8>, Fault> {
        let head = Sealed {
            session: *self.session.id(),
            sequence: self.sent,
        };
        self.sent = self.sent.checked_add(1).ok_or(Fault::BadMessage)?;
        let mut out = head.to_bytes().to_vec();
        let mut sealed = body.to_vec();
        let tag = self
            .send
            .seal(&head.nonce(), &out, &mut sealed)
            .map_err(|_| Fault::OutOfMemory)?;
        out.extend_from_slice(&sealed);
        out.extend_from_slice(&tag);
        Ok(out)
    }
}

/// Decrypts a sealed message. The hello before it, if any, is part of the associated data.
/// `Fault::BadMessage` if it is malformed or does not authenticate.
fn open_message(key: &GcmKey, hello: Option<&[u8]>, message: &[u8]) -> Result<Vec<u8>, Fault> {
    let (head, sealed) = Sealed::parse(message).ok_or(Fault::BadMessage)?;
    let associated = associated_data(hello, message).ok_or(Fault::BadMessage)?;
    let (body, tag) = sealed.split_last_chunk::<TAG>().ok_or(Fault::BadMessage)?;
    let mut opened = body.to_vec();
    key.open(&head.nonce(), &associated, &mut opened, tag)
        .map_err(|_| Fault::BadMessage)?;
    Ok(opened)
}

/// The ticket of a renewal. `Fault::BadMessage` if it cannot be parsed; `Fault::NotAllowed` unless
/// it has the id and the keys of the ticket before, in the same order, so that the counts go on,
/// and every key authenticates it.
fn parse_renewal(keys: &ColumnKeys, before: &Ticket, body: &[u8]) -> Result<Ticket, Fault> {
    let (ticket, covered, macs) = Ticket::parse(body).ok_or(Fault::BadMessage)?;
    let same = ticket.ticket_id == before.ticket_id && ticket.keys == before.keys;
    let mut agreed = ticket.keys.iter().zip(macs);
    if same && agreed.all(|(key, mac)| keys.authenticates(key, covered, mac)) {
        Ok(ticket)
    } else {
        Err(Fault::NotAllowed)
    }
}
