//! Goal: `strongroom columns zone` quotes with a TPM and keeps its counter there, behind its closed
//! sandbox; a store that was put back does not start. Method: the real command on a simulated TPM,
//! asked over its socket as a PostgreSQL backend asks it.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::Place;
use strongroom_columns_proxy::channel::{
    AttestationPolicy, AttestationRequest, ChannelError, PcrPolicy, TrustedKey,
};
use strongroom_columns_ring::op::MORE;
use strongroom_columns_ring::{ConnectError, Descriptor, Host, Interrupted, Op};
use strongroom_testing_support::swtpm::{COUNTER, Swtpm};

const HANDLE: u32 = 0x8101_0002;
const INDEX: u32 = 0x0150_0016;

fn go_on() -> Result<(), Interrupted> {
    Ok(())
}

/// The command, which tells its story in `said`.
fn zone(place: &Place, tpm: &Swtpm) -> Command {
    let mut command = zone_attested_by(place, "tpm:0x81010002:0,11");
    command
        .args(["--anchor", "tpm:0x01500016"])
        .arg("--tpm")
        .arg(tpm.place());
    command
}

/// The command for a zone in this place, with this kind of attestation.
pub(crate) fn zone_attested_by(place: &Place, attest: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strongroom"));
    command
        .args(["columns", "zone", "--memory", "16", "--attest", attest])
        .arg("--state")
        .arg(place.path("state"))
        .arg("--socket")
        .arg(place.path("zone"))
        .arg("--key-file")
        .arg(place.path("key"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// A zone that runs; killed when dropped.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Ends it as a service manager does: with a checkpoint.
    pub(crate) fn stop(mut self) {
        let id = self.0.id().to_string();
        let told = Command::new("kill").args(["-TERM", &id]).status();
        assert!(told.unwrap().success());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Connects to the zone as a PostgreSQL backend does, when it serves.
pub(crate) fn connected(place: &Place) -> Host {
    let began = Instant::now();
    let connect = || Host::connect(&place.path("zone"), Duration::from_secs(60), go_on);
    let mut host = connect();
    // The file is there a moment before the zone listens.
    while matches!(host, Err(ConnectError::Refused(_))) {
        assert!(began.elapsed() < Duration::from_secs(60), "the zone serves");
        std::thread::sleep(Duration::from_millis(20));
        host = connect();
    }
    host.unwrap()
}

/// Asks the zone for an attestation, and returns its answer.
pub(crate) fn attest(host: &mut Host, question: &AttestationRequest) -> Vec<u8> {
    host.area(go_on)
        .unwrap()
        .write(0, question.nonce())
        .unwrap();
    let descriptor = Descriptor {
        n: 32,
        ..Descriptor::of(Op::Attest)
    };
    // Evidence is made while others are served.
    let mut answer = host.call(descriptor, go_on).unwrap();
    while answer.aux & MORE != 0 {
        std::thread::sleep(Duration::from_millis(1));
        answer = host.call(descriptor, go_on).unwrap();
    }
    let mut reply = vec![0; usize::try_from(answer.value).unwrap()];
    host.area(go_on).unwrap().read(0, &mut reply).unwrap();
    reply
}

/// Starts it, has it attest twice, and stops it.
fn serves(place: &Place, tpm: &Swtpm, accepted: &AttestationPolicy) {
    let running = Running(zone(place, tpm).spawn().unwrap());
    let mut host = connected(place);
    for _ in 0..2 {
        let question = AttestationRequest::new().unwrap();
        let answer = attest(&mut host, &question);
        question.check(&answer, accepted).unwrap();
    }
    let other = AttestationPolicy {
        pcrs: vec![PcrPolicy::new(&[(0, [0; 32]), (11, [1; 32])]).unwrap()],
        ..accepted.clone()
    };
    let question = AttestationRequest::new().unwrap();
    let answer = attest(&mut host, &question);
    assert_eq!(
        question.check(&answer, &other).unwrap_err(),
        ChannelError::Registers
    );
    drop(host);
    running.stop();
}

#[test]
fn a_zone_attests_and_counts_with_a_tpm_behind_its_sandbox() {
    let place = Place::new();
    place.write("key", [7; 32]);
    let tpm = Swtpm::start();
    let public = tpm.attestation_key("ecc", "ecdsa", HANDLE);
    tpm.extend(11, 0xab);
    tpm.counter(INDEX, COUNTER);
    let accepted = AttestationPolicy {
        tpm_keys: vec![TrustedKey::new(public).unwrap()],
        pcrs: vec![PcrPolicy::new(&[(0, tpm.pcr(0)), (11, tpm.pcr(11))]).unwrap()],
        ..AttestationPolicy::default()
    };
    serves(&place, &tpm, &accepted);
    let manifest = place.path("state").join("strongroom.manifest");
    let older = std::fs::read(&manifest).unwrap();
    serves(&place, &tpm, &accepted);
    assert!(older != std::fs::read(&manifest).unwrap());
    // Somebody puts the store of yesterday back.
    let newer = std::fs::read(&manifest).unwrap();
    place.write("state/strongroom.manifest", &older);
    let refused = zone(&place, &tpm).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("SR-8010"),
        "{said}"
    );
    place.write("state/strongroom.manifest", &newer);
    serves(&place, &tpm, &accepted);
}

#[test]
fn a_zone_does_not_start_without_the_key_or_the_counter_it_was_told_of() {
    let place = Place::new();
    place.write("key", [7; 32]);
    let tpm = Swtpm::start();
    let refused = |tpm: &Swtpm| {
        let refused = zone(&place, tpm).output().unwrap();
        assert!(!refused.status.success());
        String::from_utf8(refused.stderr).unwrap()
    };
    // TPM_RC_HANDLE: no key; then no index; then one that is no counter.
    assert!(refused(&tpm).contains("response code"), "{}", refused(&tpm));
    tpm.attestation_key("ecc", "ecdsa", HANDLE);
    assert!(refused(&tpm).contains("response code"), "{}", refused(&tpm));
    tpm.counter(INDEX, "authread|authwrite|no_da");
    assert!(refused(&tpm).contains("not a counter"), "{}", refused(&tpm));
    assert!(!place.path("state").exists(), "no store was made");
    tpm.tool("tpm2_nvundefine", &["-C", "o", "0x1500016"]);
    tpm.counter(INDEX, COUNTER);
    let _running = Running(zone(&place, &tpm).spawn().unwrap());
    drop(connected(&place));
}
