//! A simulated TPM 2.0 (swtpm), whose registers, PIN and seed are changed under the keyring.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use strongroom_crypto::SecretKey;
use strongroom_format::header::{HEADER_LEN, ObjectKind};
use strongroom_keyring::provider::Wrapped;
use strongroom_keyring::{Keyring, Object, Provider};

use crate::{Home, run_alone, told};
use strongroom_testing_support::swtpm::Swtpm;

fn changed(argument: &str, from_end: usize) -> String {
    let mut bytes = argument.as_bytes().to_vec();
    let at = bytes.len() - from_end;
    bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_keyring_opens_while_the_registers_are_as_they_were() {
    let (home, tpm) = (Home::new(), Swtpm::start());
    home.init(&format!("tpm:device={};pcrs=7,16", tpm.place()));
    let rotated = Keyring::open(&home.keyring).unwrap().rotate_root(None);
    assert!(rotated.unwrap());
    // More often than a TPM has room for what would be left behind.
    for _ in 0..5 {
        home.opens();
    }
    let argument = home.argument();
    // The private area at the end, and the public one before it.
    for from_end in [2, 60, 260] {
        let (number, text) = told(home.with_argument(&changed(&argument, from_end)));
        assert_eq!(number, 2105, "{from_end}: {text}");
    }
    // The list of registers is not what counts: the policy is in the sealed object.
    let others = argument.replace("pcrs=7,16", "pcrs=7");
    home.with_argument(&others).unwrap();
    tpm.extend(16, 1);
    let (number, text) = home.refused();
    assert_eq!(number, 2106, "{text}");
    tpm.tool("tpm2_pcrreset", &["16"]);
    home.opens();
}

#[test]
fn the_pin_is_the_tpms_to_check() {
    let (home, tpm) = (Home::new(), Swtpm::start());
    let pin = home.write("pin", b"1234\n");
    home.init(&format!(
        "tpm:device={};pin=file:{}",
        tpm.place(),
        pin.display()
    ));
    home.write("pin", b"4321");
    let (number, text) = home.refused();
    assert_eq!(number, 2102, "{text}");
    assert!(!text.contains("4321"));
    let argument = home.argument();
    let without = argument.replace(&format!(";pin=file:{}", pin.display()), "");
    assert_eq!(told(home.with_argument(&without)).0, 2106, "no PIN at all");
    home.write("pin", b"1234");
    home.opens();
}

#[test]
fn another_tpm_and_none_are_told_apart() {
    let (home, tpm) = (Home::new(), Swtpm::start());
    let place = tpm.place();
    home.init(&format!("tpm:device={place}"));
    let other = Swtpm::start();
    let elsewhere = home.argument().replace(&place, &other.place());
    let (number, text) = told(home.with_argument(&elsewhere));
    assert_eq!(number, 2103, "{text}");
    // The owner hierarchy's authorization is the administrator's.
    other.tool("tpm2_changeauth", &["-c", "owner", "secret"]);
    let owned = Provider::parse(&format!("tpm:device={}", other.place())).unwrap();
    assert_eq!(told(owned.create()).0, 2102);
    // Cleared: another seed.
    tpm.tool("tpm2_clear", &[]);
    assert_eq!(home.refused().0, 2103);
    drop(tpm);
    assert_eq!(home.refused().0, 2101);
    let absent = home.argument().replace(&place, "/dev/no-such-tpm");
    assert_eq!(told(home.with_argument(&absent)).0, 2101);
}

/// The bus between us and the TPM in somebody else's hands: what goes over it, and what is done to
/// the answers to a command: one bit of the byte at this place, from the end.
struct Bus {
    place: String,
    seen: Arc<Mutex<Vec<u8>>>,
    change: Arc<Mutex<Option<(u32, usize)>>>,
}

#[expect(clippy::big_endian_bytes, reason = "a TPM's integers are big-endian")]
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
                let change = *change.lock().unwrap();
                if let Some((_, from_end)) = change.filter(|(wanted, _)| *wanted == code) {
                    buffer[len - from_end] ^= 1;
                }
                if ours.write_all(&buffer[..len]).is_err() {
                    break;
                }
            }
        }
    });
    bus
}

// TPM_CC.
const CREATE: u32 = 0x153;
const LOAD: u32 = 0x157;
const UNSEAL: u32 = 0x15e;
const PCR_READ: u32 = 0x17e;

#[test]
fn a_listener_on_the_bus_learns_nothing_and_changes_nothing() {
    let (home, tpm) = (Home::new(), Swtpm::start());
    let bus = bus(tpm.place());
    let pin = home.write("pin", b"open sesame");
    home.init(&format!(
        "tpm:device={};pin=file:{}",
        bus.place,
        pin.display()
    ));
    let seen = bus.seen.lock().unwrap().clone();
    let contains = |needle: &[u8]| seen.windows(needle.len()).any(|window| window == needle);
    assert!(
        contains(&[0x80, 2]) && contains(&[0, 0, 1, 0x5e]),
        "this was the bus"
    );
    assert!(!contains(b"open sesame"));
    assert!(!contains(
        &strongroom_crypto::sha256(&[b"open sesame"])[..8]
    ));
    // Whatever 32 bytes went over it are not the secret that the root key is made of.
    let wrapped = Wrapped::of(7, &home.argument()).unwrap();
    let file = std::fs::read(&home.keyring).unwrap();
    for window in seen.windows(32) {
        let mut guess: [u8; 32] = window.try_into().unwrap();
        let guess = SecretKey::take(&mut guess).unwrap();
        let root = wrapped.root(&guess).unwrap();
        assert!(Object::open(&file[..HEADER_LEN], ObjectKind::Keyring, &root).is_err());
    }

    // What the answers say, their nonce, their attributes, their HMAC.
    let provider = Provider::from_stored(7, &home.argument()).unwrap();
    for change in [
        (UNSEAL, 90),
        (UNSEAL, 40),
        (UNSEAL, 35),
        (UNSEAL, 1),
        (LOAD, 1),
        (CREATE, 1),
        (PCR_READ, 80),
    ] {
        *bus.change.lock().unwrap() = Some(change);
        let (number, text) = match change.0 {
            CREATE | PCR_READ => told(provider.create()),
            _ => home.refused(),
        };
        assert_eq!(number, 2105, "{change:x?}: {text}");
    }
    *bus.change.lock().unwrap() = None;
    home.opens();
}

/// A TPM that accepts the connection and keeps silent.
#[test]
fn a_silent_tpm_is_not_waited_for_for_ever() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = silent.local_addr().unwrap().to_string();
    let environment = [
        ("STRONGROOM_PROVIDER_TIMEOUT", "1"),
        ("STRONGROOM_TEST_PLACE", &place),
    ];
    let said = run_alone("tpm::silent", &environment);
    assert!(said.contains("refused with 2101"), "{said}");
}

/// The other half of the test above.
#[test]
#[ignore = "started by a_silent_tpm_is_not_waited_for_for_ever"]
fn silent() {
    let home = Home::new();
    let place = std::env::var("STRONGROOM_TEST_PLACE").unwrap();
    let provider = Provider::parse(&format!("tpm:device={place}")).unwrap();
    let (number, text) = told(Keyring::init(&home.keyring, &provider));
    assert!(text.contains("no answer within 1 s"), "{text}");
    println!("refused with {number}");
}
