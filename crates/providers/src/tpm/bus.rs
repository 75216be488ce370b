//! The bus between us and the TPM in somebody else's hands: he records every byte, and changes some.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::*;

#[path = "../../../zone/tests/support/swtpm.rs"]
mod swtpm;

/// What goes over the bus, and what is done to the answers to a command: one bit of the byte at this place, from the end.
struct Bus {
    place: String,
    seen: Arc<Mutex<Vec<u8>>>,
    change: Arc<Mutex<Option<(u32, usize)>>>,
}

fn bus(tpm: String) -> Bus {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let bus = Bus {
        place: listener.local_addr().unwrap().to_string(),
        seen: Arc::default(),
        change: Arc::default(),
    };
    let (seen, change) = (Arc::clone(&bus.seen), Arc::clone(&bus.change));
    std::thread::spawn(move || {
        for ours in listener.incoming() {
            let (mut ours, mut theirs) = (ours.unwrap(), TcpStream::connect(&tpm).unwrap());
            let mut buffer = [0; 4096];
            // Commands and answers are shorter than a packet on the loopback.
            while let Ok(len @ 1..) = ours.read(&mut buffer) {
                seen.lock().unwrap().extend_from_slice(&buffer[..len]);
                let code = u32::from_be_bytes(buffer[6..10].try_into().unwrap());
                theirs.write_all(&buffer[..len]).unwrap();
                let len = theirs.read(&mut buffer).unwrap();
                seen.lock().unwrap().extend_from_slice(&buffer[..len]);
                if let Some((wanted, from_end)) = *change.lock().unwrap() {
                    if wanted == code {
                        buffer[len - from_end] ^= 1;
                    }
                }
                if ours.write_all(&buffer[..len]).is_err() {
                    break;
                }
            }
        }
    });
    bus
}

#[test]
fn a_listener_on_the_bus_learns_nothing_and_changes_nothing() {
    let simulator = swtpm::Swtpm::start();
    let bus = bus(simulator.place());
    let pin = tempfile::NamedTempFile::new().unwrap();
    pin.as_file().write_all(b"open sesame").unwrap();
    let pin = KeySource::File(pin.path().into());
    let tpm = Tpm {
        argument: String::new(),
        device: bus.place.clone(),
        registers: 1 << 7,
        pin: Some(pin),
    };
    let auth = tpm.auth().unwrap();
    let secret = SecretKey::generate().unwrap();
    let blob = tpm.with(|link| tpm.seal(link, &auth, &secret)).unwrap();
    let back = tpm.with(|link| tpm.unseal(link, &auth, &blob)).unwrap();
    assert!(back.ct_eq(&secret));
    let seen = bus.seen.lock().unwrap().clone();
    let contains = |needle: &[u8]| seen.windows(needle.len()).any(|window| window == needle);
    assert!(!contains(secret.expose()) && !contains(auth.as_slice()));
    assert!(contains(&STORAGE_KEY), "it was this bus");

    // What the answers say, their nonce, their attributes, their HMAC.
    for (code, from_end) in [
        (UNSEAL, 90),
        (UNSEAL, 40),
        (UNSEAL, 35),
        (UNSEAL, 1),
        (LOAD, 1),
        (CREATE, 1),
        (PCR_READ, 80),
    ] {
        *bus.change.lock().unwrap() = Some((code, from_end));
        let done = match code {
            CREATE | PCR_READ => tpm.with(|link| tpm.seal(link, &auth, &secret)).map(drop),
            _ => tpm.with(|link| tpm.unseal(link, &auth, &blob)).map(drop),
        };
        let number = done.err().map(|error| error.code().number);
        assert_eq!(
            number,
            Some(2105),
            "{code:#x}, {from_end} bytes before the end"
        );
    }
    *bus.change.lock().unwrap() = None;
    tpm.with(|link| tpm.unseal(link, &auth, &blob)).unwrap();
    // Nothing is left in the TPM.
    drop(tpm);
}
