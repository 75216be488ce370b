//! Goal: a session opens between this client and a real zone's end of the channel, and nothing that
//! the server between them could do - change, replay, reorder, mix, forge a ticket - is taken by
//! either.
#![expect(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test that panics has failed"
)]

use std::sync::LazyLock;

use strongroom_columns_proxy::channel::{
    AttestationPolicy, AttestationRequest, ChannelError, OpenSession,
};
use strongroom_columns_ring::Fault;
use strongroom_columns_zone::key_ledger::KeyLedgers;
use strongroom_columns_zone::session::ColumnKeys;
use strongroom_columns_zone::session::attest::ProcessAttester;
use strongroom_columns_zone::session::channel::{Channel, Prover};
use strongroom_crypto::{MacKey, SecretKey, hkdf};
use strongroom_format::columns::channel::{
    Attestation, CHANNEL_VERSION, LIMITLESS, Limit, PROOF_LABEL, Request, Ticket, right,
};

use crate::support::attest;

const STORE: [u8; 16] = [5; 16];
const INCARNATION: [u8; 16] = [6; 16];
/// Ids of the column keys of 32 bytes 1 and 2.
const KEY: [u8; 16] = [
    0xd1, 0x96, 0x27, 0x81, 0x79, 0x49, 0x08, 0xab, 0x4c, 0x6e, 0x82, 0xb3, 0x42, 0x67, 0x44, 0x52,
];
const VICTIM: [u8; 16] = [
    0x0f, 0xae, 0x4c, 0xf3, 0x17, 0xdd, 0x83, 0xec, 0x88, 0xcb, 0x4a, 0x7e, 0x0f, 0x6f, 0xf4, 0xad,
];

fn key(byte: u8) -> SecretKey {
    SecretKey::take(&mut [byte; 32]).unwrap()
}

/// Measured once: the test's program is large.
static ATTESTER: LazyLock<ProcessAttester> = LazyLock::new(|| ProcessAttester::new().unwrap());

struct Zone {
    channel: Channel,
    keys: ColumnKeys,
    ledgers: KeyLedgers,
}

impl Zone {
    fn new() -> Self {
        Self {
            channel: Channel::default(),
            keys: ColumnKeys::default(),
            ledgers: KeyLedgers::default(),
        }
    }

    fn attest(&mut self, nonce: &[u8; 32]) -> Vec<u8> {
        let keys = &self.keys;
        let held: Vec<_> = [KEY, VICTIM]
            .into_iter()
            .filter(|id| keys.has(id))
            .collect();
        let prove = |binding: &[u8; 32], id: &[u8; 16]| {
            let key = key(if *id == KEY { 1 } else { 2 });
            let proof = hkdf(&key, id, PROOF_LABEL.as_bytes()).unwrap();
            Some(MacKey::new(&proof).unwrap().mac(&[binding]))
        };
        let identity = (STORE, INCARNATION);
        let proofs: (&[_], Prover<'_>) = (&held, &prove);
        attest(&mut self.channel, &*ATTESTER, proofs, identity, *nonce)
    }
}

fn accepted() -> AttestationPolicy {
    AttestationPolicy {
        process: true,
        ..AttestationPolicy::default()
    }
}

fn ticket(keys: &[[u8; 16]]) -> Ticket {
    Ticket {
        rights: right::ORDINARY,
        ticket_id: [9; 16],
        not_before: 0,
        not_after: u64::MAX,
        truths: 10,
        outputs: u64::MAX,
        keys: keys.to_vec(),
    }
}

fn open(
    zone: &mut Zone,
    keys: &[([u8; 16], &SecretKey)],
    ticket: &Ticket,
) -> Result<(OpenSession, [u8; 16]), Fault> {
    let request = AttestationRequest::new().unwrap();
    let answer = zone.attest(request.nonce());
    let (message, opening) = request
        .check(&answer, &accepted())
        .unwrap()
        .open(keys, ticket, "test")
        .unwrap();
    let reply = zone
        .channel
        .message(&mut zone.keys, &mut zone.ledgers, None, &message)?;
    Ok((
        opening.complete(&reply.message).unwrap(),
        reply.session.unwrap(),
    ))
}

#[test]
fn a_session_has_its_ticket_and_its_keys() {
    let mut zone = Zone::new();
    let key = key(1);
    let (mut client, id) = open(&mut zone, &[(KEY, &key)], &ticket(&[KEY])).unwrap();
    assert!(zone.keys.has(&KEY));
    let session = zone.channel.session(&id).unwrap();
    assert_eq!(session.allow(right::COMPARE, &[KEY]), Ok(()));
    assert_eq!(
        session.allow(right::DECLASSIFY, &[KEY]),
        Err(Fault::NotAllowed)
    );
    session.spend_truths(7).unwrap();

    let message = client.send(Request::Ledger).unwrap();
    let reply = zone
        .channel
        .message(&mut zone.keys, &mut zone.ledgers, Some(id), &message)
        .unwrap();
    let ledger = String::from_utf8(client.receive(&reply.message).unwrap()).unwrap();
    assert!(
        ledger.contains("\"truths\":7") && ledger.contains("\"refusals\":1"),
        "{ledger}"
    );
    // The same message again is an old one.
    assert_eq!(
        zone.channel
            .message(&mut zone.keys, &mut zone.ledgers, Some(id), &message)
            .unwrap_err(),
        Fault::BadMessage
    );
    assert_eq!(client.receive(&reply.message), Err(ChannelError::Message));

    let message = client.send(Request::Close).unwrap();
    let reply = zone
        .channel
        .message(&mut zone.keys, &mut zone.ledgers, Some(id), &message)
        .unwrap();
    assert_eq!(client.receive(&reply.message), Ok(Vec::new()));
    assert!(reply.session.is_none() && zone.channel.session(&id).is_none());
}

/// A zone of somebody else's, whose program and machine are right, is told from the owner's by the
/// keys that it does not have.
#[test]
fn a_zone_proves_which_keys_it_holds() {
    let mut zone = Zone::new();
    let (own, other) = (key(1), key(2));
    let keys = [(KEY, &own), (VICTIM, &other)];
    let proven = |zone: &mut Zone, change: &dyn Fn(&mut Attestation)| {
        let request = AttestationRequest::new().unwrap();
        let mut attestation = Attestation::parse(&zone.attest(request.nonce())).unwrap();
        change(&mut attestation);
        let attested = request.check(&attestation.to_bytes(), &accepted())?;
        attested.proven(&keys)
    };
    assert_eq!(proven(&mut zone, &|_| {}), Ok(vec![]));
    open(&mut zone, &[(KEY, &own)], &ticket(&[KEY])).unwrap();
    assert_eq!(proven(&mut zone, &|_| {}), Ok(vec![KEY]));
    // Under another name; of another attestation of the same zone; one more than the head says,
    // which the evidence does not fit.
    let renamed = |attestation: &mut Attestation| attestation.proofs[0].0 = VICTIM;
    assert_eq!(proven(&mut zone, &renamed), Err(ChannelError::Unproven));
    let request = AttestationRequest::new().unwrap();
    let earlier = Attestation::parse(&zone.attest(request.nonce())).unwrap();
    let replayed = |attestation: &mut Attestation| attestation.proofs.clone_from(&earlier.proofs);
    assert_eq!(proven(&mut zone, &replayed), Err(ChannelError::Unproven));
    let mut stranger = Zone::new();
    let grafted = |attestation: &mut Attestation| attestation.proofs.clone_from(&earlier.proofs);
    assert!(proven(&mut stranger, &grafted).is_err());
}

#[test]
fn a_ticket_is_renewed_under_its_name_and_keys_only() {
    let mut zone = Zone::new();
    let (own, other) = (key(1), key(2));
    let keys = [(KEY, &own), (VICTIM, &other)];
    let (mut client, id) = open(&mut zone, &keys[..1], &ticket(&[KEY])).unwrap();
    let _beside = open(&mut zone, &keys[1..], &ticket(&[VICTIM])).unwrap();
    zone.channel.session(&id).unwrap().spend_truths(7).unwrap();
    let wider = Ticket {
        truths: 12,
        rights: right::ALL,
        not_after: 500,
        ..ticket(&[KEY])
    };
    let mut renew = |client: &mut OpenSession, keys: &[_], ticket: &Ticket| {
        let message = client.renew(keys, ticket).unwrap();
        let reply = zone
            .channel
            .message(&mut zone.keys, &mut zone.ledgers, Some(id), &message)?;
        assert_eq!(reply.session, Some(id));
        assert_eq!(client.receive(&reply.message), Ok(Vec::new()));
        Ok(())
    };
    // Another id, another's key as well, and a MAC by another key.
    let named = Ticket {
        ticket_id: [8; 16],
        ..wider.clone()
    };
    let both = Ticket {
        keys: vec![KEY, VICTIM],
        ..wider.clone()
    };
    for refused in [
        renew(&mut client, &keys, &named),
        renew(&mut client, &keys, &both),
        renew(&mut client, &[(KEY, &other)], &wider),
    ] {
        assert_eq!(refused, Err(Fault::NotAllowed));
    }
    assert_eq!(renew(&mut client, &keys, &wider), Ok(()));
    let session = zone.channel.session(&id).unwrap();
    assert_eq!(session.ticket(), &wider);
    assert_eq!(session.spend_truths(6), Err(Fault::BudgetSpent));
    assert_eq!(session.spend_truths(5), Ok(()));
}

#[test]
fn a_message_that_was_changed_opens_nothing() {
    let key = key(1);
    let mut zone = Zone::new();
    let request = AttestationRequest::new().unwrap();
    let answer = zone.attest(request.nonce());
    let (message, _) = request
        .check(&answer, &accepted())
        .unwrap()
        .open(&[(KEY, &key)], &ticket(&[KEY]), "test")
        .unwrap();
    for at in 0..message.len() {
        let mut zone = Zone::new();
        let request = AttestationRequest::new().unwrap();
        let answer = zone.attest(request.nonce());
        let attested = request.check(&answer, &accepted()).unwrap();
        let (mut bad, _) = attested
            .open(&[(KEY, &key)], &ticket(&[KEY]), "test")
            .unwrap();
        bad[at] ^= 0x40;
        assert!(
            zone.channel
                .message(&mut zone.keys, &mut zone.ledgers, None, &bad)
                .is_err(),
            "byte {at}"
        );
        assert!(!zone.keys.has(&KEY) && zone.channel.sessions().count() == 0);
    }
    for cut in 0..message.len() {
        assert!(
            zone.channel
                .message(&mut zone.keys, &mut zone.ledgers, None, &message[..cut])
                .is_err()
        );
    }
}

#[test]
fn an_opening_serves_once() {
    let mut zone = Zone::new();
    let key = key(1);
    let request = AttestationRequest::new().unwrap();
    let answer = zone.attest(request.nonce());
    let (message, _) = request
        .check(&answer, &accepted())
        .unwrap()
        .open(&[(KEY, &key)], &ticket(&[KEY]), "test")
        .unwrap();
    assert!(
        zone.channel
            .message(&mut zone.keys, &mut zone.ledgers, None, &message)
            .is_ok()
    );
    assert_eq!(
        zone.channel
            .message(&mut zone.keys, &mut zone.ledgers, None, &message)
            .unwrap_err(),
        Fault::BadMessage
    );
}

#[test]
fn an_attestation_that_does_not_fit_is_refused() {
    let mut zone = Zone::new();
    let refusal = |change: &dyn Fn(&mut Vec<u8>), accepted: &AttestationPolicy, zone: &mut Zone| {
        let request = AttestationRequest::new().unwrap();
        let mut answer = zone.attest(request.nonce());
        change(&mut answer);
        request.check(&answer, accepted).err()
    };
    let keep = |_: &mut Vec<u8>| {};
    assert_eq!(refusal(&keep, &accepted(), &mut zone), None);
    assert_eq!(
        refusal(&keep, &AttestationPolicy::default(), &mut zone),
        Some(ChannelError::ProvesNothing)
    );
    let other = AttestationPolicy {
        process: true,
        measurements: vec![[0; 32]],
        ..AttestationPolicy::default()
    };
    assert_eq!(
        refusal(&keep, &other, &mut zone),
        Some(ChannelError::Measurement)
    );
    // The server puts a public key of its own into the answer.
    let own_key = |answer: &mut Vec<u8>| answer[40..72].fill(7);
    assert_eq!(
        refusal(&own_key, &accepted(), &mut zone),
        Some(ChannelError::Unbound)
    );
    let other_nonce = |answer: &mut Vec<u8>| answer[72..104].fill(7);
    assert_eq!(
        refusal(&other_nonce, &accepted(), &mut zone),
        Some(ChannelError::Replayed)
    );
    let cut = |answer: &mut Vec<u8>| answer.truncate(100);
    assert_eq!(
        refusal(&cut, &accepted(), &mut zone),
        Some(ChannelError::Malformed)
    );
    // A zone of a later version, which may have changed everything else.
    let later = |answer: &mut Vec<u8>| {
        answer[..2].copy_from_slice(&(CHANNEL_VERSION + 1).to_le_bytes());
        answer[2..].fill(0xff);
    };
    assert_eq!(
        refusal(&later, &accepted(), &mut zone),
        Some(ChannelError::OtherVersion)
    );
    let none = |answer: &mut Vec<u8>| answer[..2].fill(0);
    assert_eq!(
        refusal(&none, &accepted(), &mut zone),
        Some(ChannelError::Malformed)
    );
}

#[test]
fn a_ticket_needs_the_keys_of_all_its_columns() {
    let mut zone = Zone::new();
    let (mine, victims, victim) = (key(1), key(2), VICTIM);
    let wrong = SecretKey::generate().unwrap();
    // Before the owner was there at all: an id that was read in an envelope, with a key of one's
    // own.
    let squatting = open(&mut zone, &[(victim, &wrong)], &ticket(&[victim]));
    assert!(matches!(squatting, Err(Fault::NotAllowed)));
    assert!(!zone.keys.has(&victim));
    open(&mut zone, &[(victim, &victims)], &ticket(&[victim])).unwrap();
    // Another's column beside an own one, under a key that only looks like the other's.
    let refused = open(
        &mut zone,
        &[(KEY, &mine), (victim, &wrong)],
        &ticket(&[KEY, victim]),
    );
    assert!(matches!(refused, Err(Fault::NotAllowed)));
    let refused = open(&mut zone, &[(victim, &wrong)], &ticket(&[victim]));
    assert!(matches!(refused, Err(Fault::NotAllowed)));
    assert!(
        open(
            &mut zone,
            &[(KEY, &mine), (victim, &victims)],
            &ticket(&[KEY, victim])
        )
        .is_ok()
    );
}

#[test]
fn messages_of_one_session_are_not_another_s() {
    let mut zone = Zone::new();
    let key = key(1);
    let (mut first, first_id) = open(&mut zone, &[(KEY, &key)], &ticket(&[KEY])).unwrap();
    let (mut second, second_id) = open(&mut zone, &[(KEY, &key)], &ticket(&[KEY])).unwrap();
    let message = first.send(Request::Ledger).unwrap();
    assert!(
        zone.channel
            .message(&mut zone.keys, &mut zone.ledgers, Some(second_id), &message)
            .is_err()
    );
    assert!(
        zone.channel
            .message(&mut zone.keys, &mut zone.ledgers, None, &message)
            .is_err()
    );
    let reply = zone
        .channel
        .message(&mut zone.keys, &mut zone.ledgers, Some(first_id), &message)
        .unwrap();
    assert_eq!(second.receive(&reply.message), Err(ChannelError::Message));
    assert!(first.receive(&reply.message).is_ok());
}

#[test]
fn an_owner_reads_the_ledgers_of_their_keys_and_limits_them() {
    let mut zone = Zone::new();
    let key = key(1);
    let (mut client, id) = open(&mut zone, &[(KEY, &key)], &ticket(&[KEY])).unwrap();
    let ask = |zone: &mut Zone, message: &[u8]| {
        let reply = zone
            .channel
            .message(&mut zone.keys, &mut zone.ledgers, Some(id), message)?;
        Ok::<_, Fault>(reply.message)
    };
    let limit = Limit {
        key_id: KEY,
        period: 0,
        truths: 5,
        outputs: LIMITLESS,
    };
    let message = client.set_limit(&limit).unwrap();
    let reply = ask(&mut zone, &message).unwrap();
    assert_eq!(client.receive(&reply), Ok(Vec::new()));
    let told = zone.ledgers.check(&[KEY], 6, || 0);
    assert_eq!(told, Err(Fault::BudgetSpent));

    let message = client.send(Request::KeyLedgers).unwrap();
    let reply = ask(&mut zone, &message).unwrap();
    let ledgers = String::from_utf8(client.receive(&reply).unwrap()).unwrap();
    assert!(ledgers.contains("\"answers\":5"), "{ledgers}");
    assert!(
        ledgers.contains(&strongroom_format::hex::hex(&KEY)),
        "{ledgers}"
    );

    // Another's key, which the ticket does not name.
    let others = Limit {
        key_id: VICTIM,
        ..limit
    };
    let message = client.set_limit(&others).unwrap();
    assert_eq!(ask(&mut zone, &message), Err(Fault::NotAllowed));
    assert_eq!(zone.ledgers.check(&[VICTIM], u64::MAX, || 0), Ok(()));
}

#[test]
fn a_client_has_a_name_that_is_one() {
    for name in ["", "line\nbreak", &"x".repeat(64)] {
        let mut zone = Zone::new();
        let request = AttestationRequest::new().unwrap();
        let answer = zone.attest(request.nonce());
        let attested = request.check(&answer, &accepted()).unwrap();
        let key = key(1);
        let opened = attested.open(&[(KEY, &key)], &ticket(&[KEY]), name);
        assert_eq!(opened.err(), Some(ChannelError::Malformed), "{name:?}");
    }
}
