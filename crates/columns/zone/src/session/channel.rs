//! The zone's end of the channel: agreements that wait for their client, sessions with their keys and counters.
//!
//! Invariants:
//! - An agreement's private key serves one client and then is gone; it waits for two minutes. A ring has a few that wait, of which the oldest makes
//!   room: no ring can take another one's place.
//! - What was counted under a ticket with limits is kept as long as the ticket is good, whatever becomes of its sessions (A3).
//! - A message is accepted once: its number is the next one of its session.
//! - A ticket is authenticated by every key that it names, each of which the zone holds or has just been given; before that no key is kept.
//! - Whatever does not open is [`Fault::BadMessage`]: why is not said.
//!
//! Must not: tell the server anything but lengths.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use strongroom_columns_ring::Fault;
use strongroom_crypto::{GcmKey, KeyAgreement, SecretKey, random16, sha256};
use strongroom_format::columns::channel::{
    Attestation, CLIENT_LABEL, Hello, MESSAGE_HELLO, MESSAGE_SEALED, Request, Sealed, Ticket,
    ZONE_LABEL, bound, hello_layout, opening,
};
use zeroize::Zeroize as _;

use super::accounts::Accounts;
use super::attest::{Attester, binding};
use super::{ColumnKeys, Ledger, Session, now};

/// Agreements of one ring that wait.
const WAITING_MAX: usize = 4;
const WAITS: Duration = Duration::from_secs(120);
const TAG: usize = 16;

struct Waiting {
    /// The ring that asked.
    ring: u16,
    private: KeyAgreement,
    attestation: Vec<u8>,
    since: Instant,
}

struct Live {
    session: Session,
    receive: GcmKey,
    send: GcmKey,
    received: u64,
    sent: u64,
}

/// What a message led to.
#[derive(Debug)]
pub struct Reply {
    /// The session that the ring has from now on. `None`: it has none.
    pub session: Option<[u8; 16]>,
    /// For the client; the server passes it on.
    pub message: Vec<u8>,
}

/// Every agreement and session of this zone.
#[derive(Default)]
pub struct Channel {
    waiting: BTreeMap<[u8; 32], Waiting>,
    live: BTreeMap<[u8; 16], Live>,
    accounts: Accounts,
}

impl Channel {
    /// Attests under the client's nonce, and keeps the private key for the client's answer. `identity` is the store's number and that of
    /// the zone's incarnation, `ring` the one that asks.
    ///
    /// # Errors
    /// [`Fault::OutOfMemory`] when the system gives no random numbers or no evidence.
    pub fn attest(
        &mut self,
        attester: &dyn Attester,
        identity: ([u8; 16], [u8; 16]),
        ring: u16,
        nonce: [u8; 32],
    ) -> Result<Vec<u8>, Fault> {
        self.waiting
            .retain(|_, waiting| waiting.since.elapsed() < WAITS);
        let own = || {
            let all = self.waiting.iter();
            all.filter(|(_, waiting)| waiting.ring == ring)
        };
        if own().count() >= WAITING_MAX {
            let oldest = own().min_by_key(|(_, waiting)| waiting.since);
            if let Some(public) = oldest.map(|(public, _)| *public) {
                self.waiting.remove(&public);
            }
        }
        let (private, public_key) = KeyAgreement::generate().map_err(|_| Fault::OutOfMemory)?;
        let mut attestation = Attestation {
            provider: attester.provider(),
            store_id: identity.0,
            incarnation: identity.1,
            public_key,
            nonce,
            evidence: Vec::new(),
        };
        let evidence = attester.evidence(&binding(&attestation));
        attestation.evidence = evidence.map_err(|_| Fault::OutOfMemory)?;
        let bytes = attestation.to_bytes();
        let waiting = Waiting {
            ring,
            private,
            attestation: bytes.clone(),
            since: Instant::now(),
        };
        self.waiting.insert(public_key, waiting);
        Ok(bytes)
    }

    /// Carries out a client's message that came over a ring with session `current`.
    ///
    /// # Errors
    /// [`Fault::BadMessage`], [`Fault::NotAllowed`] for a ticket that no key of this zone authenticates.
    pub fn message(
        &mut self,
        keys: &mut ColumnKeys,
        current: Option<[u8; 16]>,
        message: &[u8],
    ) -> Result<Reply, Fault> {
        match message.split_first() {
            Some((&MESSAGE_HELLO, rest)) => {
                let reply = self.open(keys, rest)?;
                if let Some(before) = current {
                    self.end(&before);
                }
                Ok(reply)
            }
            Some((&MESSAGE_SEALED, rest)) => self.next(keys, current, rest),
            _ => Err(Fault::BadMessage),
        }
    }

    /// The session of this number.
    pub fn session(&mut self, id: &[u8; 16]) -> Option<&mut Session> {
        self.live.get_mut(id).map(|live| &mut live.session)
    }

    /// Forgets what a ring that is gone has asked for.
    pub fn forget_waiting(&mut self, ring: u16) {
        self.waiting.retain(|_, waiting| waiting.ring != ring);
    }

    /// Ends a session: its ring is gone.
    pub fn end(&mut self, id: &[u8; 16]) {
        if let Some(live) = self.live.remove(id) {
            self.accounts.leave(live.session.ticket());
        }
    }

    /// What tickets without a session have learnt, together.
    #[must_use]
    pub fn ended(&self) -> Ledger {
        self.accounts.ended()
    }

    /// The tickets of the sessions: name, rights and counts.
    pub fn ledgers(&self) -> impl Iterator<Item = ([u8; 16], u32, &Ledger)> {
        self.accounts.live()
    }

    /// Every session.
    pub fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.live.values().map(|live| &live.session)
    }

    fn open(&mut self, keys: &mut ColumnKeys, message: &[u8]) -> Result<Reply, Fault> {
        let (hello, sealed) = Hello::parse(message).ok_or(Fault::BadMessage)?;
        let waiting = self
            .waiting
            .remove(&hello.zone_key)
            .ok_or(Fault::BadMessage)?;
        if waiting.since.elapsed() >= WAITS {
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
        let (id, (ticket, ledger)) = accepted?;
        let mut live = Live {
            session: Session::new(id, ticket, ledger),
            receive,
            send,
            received: 1,
            sent: 0,
        };
        let message = live.answer(&id);
        self.live.insert(id, live);
        if message.is_err() {
            self.end(&id);
        }
        let message = message?;
        Ok(Reply {
            session: Some(id),
            message,
        })
    }

    /// Takes the column keys of an opening; its ticket, and what was counted under it.
    fn accept(&mut self, keys: &mut ColumnKeys, request: &[u8]) -> Result<(Ticket, Ledger), Fault> {
        let Some((Request::Open, body)) = Request::parse(request) else {
            return Err(Fault::BadMessage);
        };
        let (given, ticket) = opening(body).ok_or(Fault::BadMessage)?;
        let (ticket, covered, macs) = Ticket::parse(ticket).ok_or(Fault::BadMessage)?;
        let mut brought = ColumnKeys::default();
        for (id, key) in given {
            let key = SecretKey::take(&mut { *key }).map_err(|_| Fault::OutOfMemory)?;
            brought.take(id, key).map_err(|_| Fault::NotAllowed)?;
        }
        // Each key's owner has to agree, so that a ticket of one column cannot take another one along.
        let agreed = ticket.keys.iter().zip(macs).all(|(key, mac)| {
            brought.authenticates(key, covered, mac) || keys.authenticates(key, covered, mac)
        });
        if !agreed {
            return Err(Fault::NotAllowed);
        }
        let ledger = self.accounts.enter(&ticket, now())?;
        brought.retain(|id| ticket.keys.contains(id));
        keys.absorb(brought);
        Ok((ticket, ledger))
    }

    fn next(
        &mut self,
        keys: &ColumnKeys,
        current: Option<[u8; 16]>,
        message: &[u8],
    ) -> Result<Reply, Fault> {
        let (head, _) = Sealed::parse(message).ok_or(Fault::BadMessage)?;
        if current != Some(head.session) {
            return Err(Fault::BadMessage);
        }
        let live = self.live.get_mut(&head.session).ok_or(Fault::BadMessage)?;
        if head.sequence != live.received {
            return Err(Fault::BadMessage);
        }
        let mut opened = open_message(&live.receive, None, message)?;
        live.received = live.received.saturating_add(1);
        let request = Request::parse(&opened).map(|(request, body)| (request, body.to_vec()));
        opened.zeroize();
        let (request, body) = request.unzip();
        match request {
            Some(Request::Ledger) => {
                let ledger = live.session.ledger().to_json();
                let message = live.answer(ledger.as_bytes())?;
                Ok(Reply {
                    session: current,
                    message,
                })
            }
            Some(Request::Renew) => {
                let body = body.unwrap_or_default();
                let ticket = renewed(keys, live.session.ticket(), &body)?;
                self.accounts.renew(&ticket);
                live.session.renew(ticket);
                let message = live.answer(&[])?;
                Ok(Reply {
                    session: current,
                    message,
                })
            }
            Some(Request::Close) => {
                let message = live.answer(&[])?;
                self.end(&head.session);
                Ok(Reply {
                    session: None,
                    message,
                })
            }
            _ => Err(Fault::BadMessage),
        }
    }
}

impl Live {
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

/// Opens a sealed message; behind a hello, that takes part in the associated data.
fn open_message(key: &GcmKey, hello: Option<&[u8]>, message: &[u8]) -> Result<Vec<u8>, Fault> {
    let (head, sealed) = Sealed::parse(message).ok_or(Fault::BadMessage)?;
    let associated = bound(hello, message).ok_or(Fault::BadMessage)?;
    let (body, tag) = sealed.split_last_chunk::<TAG>().ok_or(Fault::BadMessage)?;
    let mut opened = body.to_vec();
    key.open(&head.nonce(), &associated, &mut opened, tag)
        .map_err(|_| Fault::BadMessage)?;
    Ok(opened)
}

/// The ticket that a session is to go on under, authenticated by its keys. It has the name and the keys of the one before: what was counted goes
/// on counting.
fn renewed(keys: &ColumnKeys, before: &Ticket, body: &[u8]) -> Result<Ticket, Fault> {
    let (ticket, covered, macs) = Ticket::parse(body).ok_or(Fault::BadMessage)?;
    let same = ticket.ticket_id == before.ticket_id && ticket.keys == before.keys;
    let mut agreed = ticket.keys.iter().zip(macs);
    if same && agreed.all(|(key, mac)| keys.authenticates(key, covered, mac)) {
        Ok(ticket)
    } else {
        Err(Fault::NotAllowed)
    }
}
