//! Goal: a column key is released to a zone whose TPM quotes the right state for this very channel,
//! and to no other. Method: a real (simulated) TPM, set up with `tpm2-tools`; the zone's own end of
//! the channel; then everything that could be wrong, one thing at a time.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::time::Duration;

use strongroom_columns_proxy::channel::{
    AttestationPolicy, AttestationRequest, ChannelError, PcrPolicy, TrustedKey,
};
use strongroom_columns_zone::key_ledger::KeyLedgers;
use strongroom_columns_zone::session::ColumnKeys;
use strongroom_columns_zone::session::attest::{Attester, TpmAttester};
use strongroom_columns_zone::session::channel::{Channel, Prover};
use strongroom_crypto::SecretKey;
use strongroom_format::columns::channel::{Attestation, Ticket, right};
use strongroom_keys_tpm::Tpm;
use strongroom_testing_support::swtpm::Swtpm;

use crate::support::attest;

const STORE: [u8; 16] = [5; 16];
const INCARNATION: [u8; 16] = [6; 16];
/// Id of the column key of 32 bytes 1.
const KEY: [u8; 16] = [
    0xd1, 0x96, 0x27, 0x81, 0x79, 0x49, 0x08, 0xab, 0x4c, 0x6e, 0x82, 0xb3, 0x42, 0x67, 0x44, 0x52,
];
const ECC: u32 = 0x8101_0002;
const RSA: u32 = 0x8101_0003;
const OTHER: u32 = 0x8101_0004;
/// Registers 0 and 11.
const PCRS: u32 = 1 | 1 << 11;

/// A machine with its attestation keys, and what its owner pins.
struct Machine {
    tpm: Swtpm,
    keys: [Vec<u8>; 3],
    state: PcrPolicy,
}

impl Machine {
    fn new() -> Self {
        let tpm = Swtpm::start();
        let keys = [
            tpm.attestation_key("ecc", "ecdsa", ECC),
            tpm.attestation_key("rsa", "rsassa", RSA),
            tpm.attestation_key("ecc", "ecdsa", OTHER),
        ];
        tpm.extend(11, 0xab);
        let state = PcrPolicy::new(&[(0, tpm.pcr(0)), (11, tpm.pcr(11))]).unwrap();
        Self { tpm, keys, state }
    }

    fn attester(&self, key: u32, pcrs: u32) -> TpmAttester {
        TpmAttester::new(Tpm::open(&self.tpm.place()).unwrap(), key, pcrs).unwrap()
    }

    fn accepted(&self, keys: &[usize]) -> AttestationPolicy {
        let trusted = |at: &usize| TrustedKey::new(self.keys[*at].clone()).unwrap();
        AttestationPolicy {
            tpm_keys: keys.iter().map(trusted).collect(),
            pcrs: vec![self.state.clone()],
            ..AttestationPolicy::default()
        }
    }
}

fn answer(channel: &mut Channel, attester: &dyn Attester, request: &AttestationRequest) -> Vec<u8> {
    let identity = (STORE, INCARNATION);
    let proofs: (&[_], Prover<'_>) = (&[], &|_, _| None);
    attest(channel, attester, proofs, identity, *request.nonce())
}

/// Asks the zone and checks its answer.
fn ask(attester: &dyn Attester, accepted: &AttestationPolicy) -> Result<(), ChannelError> {
    let request = AttestationRequest::new()?;
    let bytes = answer(&mut Channel::default(), attester, &request);
    request.check(&bytes, accepted).map(drop)
}

#[test]
fn a_key_is_released_to_the_right_machine_only() {
    let machine = Machine::new();
    for (handle, at) in [(ECC, 0), (RSA, 1)] {
        let attester = machine.attester(handle, PCRS);
        released(&attester, &machine.accepted(&[2, at]));
        // Another key of the same TPM is another key.
        assert_eq!(
            ask(&attester, &machine.accepted(&[2])),
            Err(ChannelError::Untrusted)
        );
        assert_eq!(
            ask(&attester, &machine.accepted(&[])),
            Err(ChannelError::Untrusted)
        );
    }
    let accepted = machine.accepted(&[0]);
    // More registers than the policy names, fewer, others.
    for pcrs in [PCRS | 1 << 7, 1, 1 << 11, 1 | 1 << 12] {
        let attester = machine.attester(ECC, pcrs);
        assert_eq!(
            ask(&attester, &accepted),
            Err(ChannelError::Registers),
            "{pcrs:#x}"
        );
    }
    let attester = machine.attester(ECC, PCRS);
    let none = AttestationPolicy {
        pcrs: Vec::new(),
        ..accepted.clone()
    };
    assert_eq!(ask(&attester, &none), Err(ChannelError::Registers));
    let measured = AttestationPolicy {
        measurements: vec![[0; 32]],
        ..accepted.clone()
    };
    assert_eq!(ask(&attester, &measured), Err(ChannelError::Measurement));
    // A TPM that is trusted says nothing for a zone that attests itself.
    let itself = strongroom_columns_zone::session::attest::ProcessAttester::new().unwrap();
    assert_eq!(ask(&itself, &accepted), Err(ChannelError::ProvesNothing));
    drop(attester);
    // The machine starts something else.
    machine.tpm.extend(11, 1);
    let attester = machine.attester(ECC, PCRS);
    assert_eq!(ask(&attester, &accepted), Err(ChannelError::Registers));
}

/// The whole way: the zone has the key at its end.
fn released(attester: &dyn Attester, accepted: &AttestationPolicy) {
    let (mut channel, mut keys) = (Channel::default(), ColumnKeys::default());
    let request = AttestationRequest::new().unwrap();
    let bytes = answer(&mut channel, attester, &request);
    let ticket = Ticket {
        rights: right::ORDINARY,
        ticket_id: [9; 16],
        not_before: 0,
        not_after: u64::MAX,
        truths: 10,
        outputs: 10,
        keys: vec![KEY],
    };
    let key = SecretKey::take(&mut [1; 32]).unwrap();
    let attested = request.check(&bytes, accepted).unwrap();
    let (message, opening) = attested.open(&[(KEY, &key)], &ticket, "test").unwrap();
    let reply = channel
        .message(&mut keys, &mut KeyLedgers::default(), None, &message)
        .unwrap();
    opening.complete(&reply.message).unwrap();
    assert!(keys.has(&KEY));
}

#[test]
fn a_quote_is_of_one_question_and_one_channel() {
    let machine = Machine::new();
    let attester = machine.attester(ECC, PCRS);
    let accepted = machine.accepted(&[0]);
    let mut channel = Channel::default();

    let first = AttestationRequest::new().unwrap();
    let old = answer(&mut channel, &attester, &first);
    let second = AttestationRequest::new().unwrap();
    assert_eq!(
        second.check(&old, &accepted).unwrap_err(),
        ChannelError::Replayed
    );

    // The old quote under the new nonce, another channel key, another store, another start of the
    // zone.
    let request = AttestationRequest::new().unwrap();
    let parsed = Attestation::parse(&old).unwrap();
    let renewed = Attestation {
        nonce: *request.nonce(),
        ..parsed
    };
    let refused = request.check(&renewed.to_bytes(), &accepted);
    assert_eq!(refused.unwrap_err(), ChannelError::Unbound);
    for field in 0..3 {
        let request = AttestationRequest::new().unwrap();
        let bytes = answer(&mut channel, &attester, &request);
        let mut forged = Attestation::parse(&bytes).unwrap();
        match field {
            0 => forged.public_key[31] ^= 1,
            1 => forged.store_id[0] ^= 1,
            _ => forged.incarnation[0] ^= 1,
        }
        let refused = request.check(&forged.to_bytes(), &accepted);
        assert_eq!(refused.unwrap_err(), ChannelError::Unbound, "field {field}");
    }

    let late = AttestationRequest::within(Duration::ZERO).unwrap();
    let bytes = answer(&mut channel, &attester, &late);
    assert_eq!(
        late.check(&bytes, &accepted).unwrap_err(),
        ChannelError::Late
    );
}

#[test]
fn evidence_that_was_changed_or_cut_is_refused() {
    let machine = Machine::new();
    for (handle, at) in [(ECC, 0), (RSA, 1)] {
        let attester = machine.attester(handle, PCRS);
        let accepted = machine.accepted(&[at]);
        let mut channel = Channel::default();
        let mut check = |change: &dyn Fn(&mut Vec<u8>)| {
            let request = AttestationRequest::new().unwrap();
            let mut bytes = answer(&mut channel, &attester, &request);
            change(&mut bytes);
            let len = bytes.len();
            (request.check(&bytes, &accepted).map(drop), len)
        };
        let (right, mut len) = check(&|_| {});
        assert_eq!(right, Ok(()));
        let mut at = 104;
        while at < len {
            let (answer, now) = check(&|bytes| {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << (at % 8);
                } else {
                    bytes.push(0);
                }
            });
            assert!(answer.is_err(), "byte {at}");
            let (answer, _) = check(&|bytes| bytes.truncate(at));
            assert!(answer.is_err(), "{at} bytes");
            // Numbers in a signature may be shorter by a byte.
            len = len.max(now);
            at += 1;
        }
        assert!(check(&|bytes| bytes.push(0)).0.is_err());
    }
}

/// What else a TPM's keys can be is not taken: a key without `restricted` would sign what no TPM
/// made.
#[test]
fn a_key_that_signs_anything_is_not_trusted() {
    let tpm = Swtpm::start();
    tpm.tool("tpm2_createprimary", &["-C", "o", "-c", "p.ctx"]);
    let free = "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|sign";
    let args = [
        "-C",
        "p.ctx",
        "-G",
        "ecc:ecdsa-sha256",
        "-a",
        free,
        "-u",
        "free.pub",
        "-r",
        "free.priv",
    ];
    tpm.tool("tpm2_create", &args);
    assert_eq!(TrustedKey::new(tpm.file("free.pub")), None);
    let restricted = format!("{free}|restricted");
    tpm.tool("tpm2_flushcontext", &["-t"]);
    let args = [
        "-C",
        "p.ctx",
        "-G",
        "ecc:ecdsa-sha256:null",
        "-a",
        &restricted,
        "-u",
        "bound.pub",
        "-r",
        "bound.priv",
    ];
    tpm.tool("tpm2_create", &args);
    assert!(TrustedKey::new(tpm.file("bound.pub")).is_some());
    assert_eq!(TrustedKey::new(Vec::new()), None);
}

#[test]
fn a_policy_names_registers_that_there_are_once() {
    assert!(PcrPolicy::new(&[]).is_none());
    assert!(PcrPolicy::new(&[(24, [0; 32])]).is_none());
    assert!(PcrPolicy::new(&[(3, [0; 32]), (3, [1; 32])]).is_none());
    assert!(PcrPolicy::new(&[(23, [0; 32])]).is_some());
}
