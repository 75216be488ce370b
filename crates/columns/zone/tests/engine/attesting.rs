//! Evidence is made while the engine goes on, for one ring after the other.

use std::io;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use strongroom_columns_ring::op::MORE;
use strongroom_columns_ring::{Descriptor, Fault, Host, Op};
use strongroom_columns_zone::session::attest::Attester;
use strongroom_format::columns::channel::{Attestation, AttestationProvider};

use crate::{Scene, fault, go_on, with_attester};

/// What becomes of a request for evidence.
enum Outcome {
    Evidence,
    Failure,
    Panic,
}

/// Gives evidence when the test says so: what was to be bound, twice.
struct Prompted(Mutex<Receiver<Outcome>>);

impl Attester for Prompted {
    fn provider(&self) -> AttestationProvider {
        AttestationProvider::Process
    }

    fn evidence(&self, binding: &[u8; 32]) -> io::Result<Vec<u8>> {
        match self.0.lock().unwrap().recv() {
            Ok(Outcome::Evidence) => Ok([*binding, *binding].concat()),
            Ok(Outcome::Failure) => Err(io::Error::other("no evidence")),
            Ok(Outcome::Panic) => std::panic::resume_unwind(Box::new("asked for by the test")),
            Err(_) => Err(io::Error::other("the test is over")),
        }
    }
}

fn with_prompted(name: &str, act: impl FnOnce(&Scene, &Sender<Outcome>)) {
    let (say, hear) = channel();
    let attester = Box::new(Prompted(Mutex::new(hear)));
    with_attester(name, attester, |_| (), |scene| act(scene, &say));
}

/// Asks for an attestation once. `None` if it is being made.
fn ask(host: &mut Host, nonce: u8) -> Result<Option<Attestation>, strongroom_columns_ring::Broken> {
    host.area(go_on)?.write(0, &[nonce; 32]).unwrap();
    let descriptor = Descriptor {
        n: 32,
        ..Descriptor::of(Op::Attest)
    };
    let answer = host.call(descriptor, go_on)?;
    if answer.aux & MORE != 0 {
        return Ok(None);
    }
    let mut bytes = vec![0; usize::try_from(answer.value).unwrap()];
    host.area(go_on)?.read(0, &mut bytes).unwrap();
    Ok(Some(Attestation::parse(&bytes).unwrap()))
}

/// Asks until it is made.
fn wait(host: &mut Host, nonce: u8) -> Attestation {
    let begin = Instant::now();
    loop {
        if let Some(attestation) = ask(host, nonce).unwrap() {
            assert_eq!(attestation.nonce, [nonce; 32]);
            let binding = strongroom_columns_zone::session::attest::binding(&attestation);
            assert_eq!(attestation.evidence, [binding, binding].concat());
            return attestation;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "it is not made");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn others_are_served_while_evidence_is_made() {
    with_prompted("attesting", |scene, say| {
        let (mut slow, mut other) = (scene.host(), scene.host());
        for _ in 0..3 {
            assert_eq!(ask(&mut slow, 1).unwrap(), None);
            other.call(Descriptor::of(Op::Sync), go_on).unwrap();
        }
        // The other one's is made after it.
        assert_eq!(ask(&mut other, 2).unwrap(), None);
        say.send(Outcome::Evidence).unwrap();
        let first = wait(&mut slow, 1);
        assert_eq!(ask(&mut other, 2).unwrap(), None);
        say.send(Outcome::Evidence).unwrap();
        let second = wait(&mut other, 2);
        assert_ne!(first.public_key, second.public_key);
        // Each is given once.
        assert_eq!(ask(&mut slow, 1).unwrap(), None);
        say.send(Outcome::Evidence).unwrap();
        assert_ne!(wait(&mut slow, 1).public_key, first.public_key);
    });
}

/// A ring cannot have others wait for more than one piece of evidence.
#[test]
fn a_ring_has_one_piece_of_evidence_made_at_a_time() {
    with_prompted("attesting-one", |scene, say| {
        let (mut greedy, mut other) = (scene.host(), scene.host());
        for nonce in 1..50 {
            assert_eq!(ask(&mut greedy, nonce).unwrap(), None);
        }
        assert_eq!(ask(&mut other, 100).unwrap(), None);
        say.send(Outcome::Evidence).unwrap();
        say.send(Outcome::Evidence).unwrap();
        wait(&mut other, 100);
        // What was made is for the first nonce, and is of no use for another one.
        assert_eq!(ask(&mut greedy, 50).unwrap(), None);
        say.send(Outcome::Evidence).unwrap();
        wait(&mut greedy, 50);
        // A ring that closes leaves nothing to the next one of its number.
        assert_eq!(ask(&mut greedy, 51).unwrap(), None);
        drop(greedy);
        let mut next = scene.host();
        say.send(Outcome::Evidence).unwrap();
        say.send(Outcome::Evidence).unwrap();
        wait(&mut next, 51);
    });
}

#[test]
fn evidence_that_cannot_be_made_is_a_fault() {
    with_prompted("attesting-not", |scene, say| {
        let mut host = scene.host();
        for outcome in [Outcome::Failure, Outcome::Panic, Outcome::Failure] {
            // Nobody hears it once the thread has ended.
            drop(say.send(outcome));
            let failed = loop {
                match ask(&mut host, 1) {
                    Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                    other => break other.map(|_| 0),
                }
            };
            assert_eq!(failed, fault(Fault::OutOfMemory));
            host.call(Descriptor::of(Op::Sync), go_on).unwrap();
        }
    });
}
