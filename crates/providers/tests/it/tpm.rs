//! A simulated TPM 2.0 (swtpm), whose registers, PIN and seed are changed under the keyring.

use strongroom_keyring::{Keyring, Provider};

use crate::swtpm::Swtpm;
use crate::{Home, told};

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
    for from_end in [2, 60, 420] {
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

/// A TPM that accepts the connection and keeps silent.
#[test]
fn a_silent_tpm_is_not_waited_for_for_ever() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = silent.local_addr().unwrap().to_string();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["tpm::silent", "--exact", "--ignored", "--nocapture"])
        .env("STRONGROOM_PROVIDER_TIMEOUT", "1")
        .env("STRONGROOM_TEST_PLACE", place)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && said.contains("refused with 2101"),
        "{said}"
    );
}

/// The other half of the test above.
#[test]
#[ignore = "started by a_silent_tpm_is_not_waited_for_for_ever"]
#[expect(clippy::print_stdout, reason = "the other half reads it")]
fn silent() {
    let home = Home::new();
    let place = std::env::var("STRONGROOM_TEST_PLACE").unwrap();
    let provider = Provider::parse(&format!("tpm:device={place}")).unwrap();
    let (number, text) = told(Keyring::init(&home.keyring, &provider));
    assert!(text.contains("no answer within 1 s"), "{text}");
    println!("refused with {number}");
}
