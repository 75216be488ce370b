//! Key sources: what they deliver, what they refuse, and what they never tell.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use strongroom_crypto::{SecretBytes, SecretKey};
use strongroom_keyring::durable::replace;
use strongroom_keyring::source::take_open_files;
use strongroom_keyring::{Error, KeySource, Opener, SourceContext, take_text_as_raw_key_warning};

use crate::{code, new_object, open, recipient};

/// A key whose bytes are no text: the first one is never part of UTF-8.
const HEX: &str = "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn opener(source: &KeySource) -> Result<Opener, Error> {
    source.opener(&SourceContext::default())
}

fn file(directory: &Path, bytes: &[u8]) -> KeySource {
    let path = directory.join("key");
    replace(&path, bytes, 0o600).expect("a key file");
    KeySource::File(path)
}

fn given(text: &str) -> KeySource {
    let bytes = SecretBytes::take(&mut text.as_bytes().to_vec());
    KeySource::Given(bytes.expect("locked memory"))
}

#[test]
fn one_key_from_every_source_opens_the_same_object() {
    let directory = tempfile::tempdir().unwrap();
    let header = new_object(&opener(&given(&format!("x'{HEX}'"))).unwrap()).header_bytes();
    for source in [
        given(HEX),
        file(
            directory.path(),
            format!("encryptionkey={HEX}\r\n").as_bytes(),
        ),
        KeySource::Command(format!("echo encryptionkey={HEX}")),
    ] {
        let opened = opener(&source).unwrap();
        assert_eq!(opened.kind_name(), "raw", "{}", source.describe());
        assert_eq!(code(open(&header, &opened)), 0, "{}", source.describe());
    }
    let binary: Vec<u8> = [0xff].into_iter().chain(1..32).collect();
    let from_file = opener(&file(directory.path(), &binary)).unwrap();
    assert_eq!(code(open(&header, &from_file)), 0, "raw bytes");
}

/// Sixteen Cyrillic letters are 32 bytes that are not ASCII. They were once used as a raw key,
/// without Argon2id.
#[test]
fn letters_that_are_not_ascii_are_stretched() {
    let letters = "\u{43f}\u{440}\u{435}\u{441}\u{442}\u{443}\u{43f}\u{43b}\u{435}\u{43d}\u{438}\u{435}\u{438}\u{43c}\u{44f}\u{44a}";
    assert_eq!(letters.len(), 32);
    let now = opener(&given(letters)).unwrap();
    assert_eq!(now.kind_name(), "passphrase");
    let sealed = new_object(&now);
    assert_eq!(sealed.opened_by().name(), "passphrase");
    assert!(!take_text_as_raw_key_warning());

    // What an older build sealed with these letters opens, with a warning, until its slots are made
    // anew.
    let mut bytes: [u8; 32] = letters.as_bytes().try_into().unwrap();
    let older = Opener::raw(SecretKey::take(&mut bytes).unwrap());
    let header = new_object(&older).header_bytes();
    let opened = open(&header, &now).unwrap();
    assert!(take_text_as_raw_key_warning());
    let mended = opened
        .rewrapped(&[&recipient(&now)])
        .unwrap()
        .header_bytes();
    assert_eq!(
        open(&mended, &now).unwrap().opened_by().name(),
        "passphrase"
    );
    assert!(!take_text_as_raw_key_warning());
    assert_eq!(code(open(&mended, &older)), 2002);
}

#[test]
fn the_environment() {
    // PATH is set wherever tests run, and is no key in hexadecimal.
    let opened = opener(&KeySource::Env("PATH".to_owned())).unwrap();
    assert_eq!(opened.kind_name(), "passphrase");
    for name in ["STRONGROOM_TEST_NO_SUCH_VARIABLE", "", "A=B", "A\0B"] {
        assert_eq!(
            code(opener(&KeySource::Env(name.to_owned()))),
            2008,
            "{name:?}"
        );
    }
}

#[test]
fn key_files_that_cannot_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    for unreadable in [
        path.join("absent"),
        path.to_owned(),
        // Opens, and then fails to read, also for root.
        "/proc/self/mem".into(),
    ] {
        assert_eq!(
            code(opener(&KeySource::File(unreadable.clone()))),
            2007,
            "{unreadable:?}"
        );
    }
    assert_eq!(code(opener(&file(path, b""))), 2011);
    assert_eq!(code(opener(&file(path, b"\n"))), 2011);
    assert_eq!(code(opener(&file(path, &[b'a'; 65536]))), 0);
    assert_eq!(code(opener(&file(path, &[b'a'; 65537]))), 2011);
    assert_eq!(
        code(opener(&KeySource::File("/dev/zero".into()))),
        2011,
        "endless"
    );
}

#[test]
fn commands_that_fail() {
    let command = |line: &str| code(opener(&KeySource::Command(line.to_owned())));
    assert_eq!(command("exit 3"), 2009);
    assert_eq!(command("true"), 2011);
    assert_eq!(command("echo encryptionkey=0123"), 2011);
    assert_eq!(command("head -c 70000 /dev/zero"), 2011);
}

#[test]
fn nothing_tells_the_secret() {
    let secret = "encryptionkey=hunter2";
    for source in [
        given(secret),
        KeySource::Command(format!("echo {secret}; exit 1")),
    ] {
        let error = opener(&source).err().unwrap();
        let told = format!("{} {error} {error:?}", source.describe());
        assert!(!told.contains("hunter2"), "{told}");
    }
    assert_eq!(KeySource::Env("V".to_owned()).describe(), "env:V");
    assert_eq!(KeySource::File("/k".into()).describe(), "file:/k");
    assert_eq!(
        KeySource::KeyId { id: "n".to_owned() }.describe(),
        "key-id:n"
    );
}

#[test]
fn exposed_key_files_can_be_warned_of() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    replace(&path, b"x", 0o640).unwrap();
    let root = rustix::process::geteuid().is_root();
    for (mode, expected) in [(0o600, false), (0o640, !root), (0o644, true), (0o601, true)] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        KeySource::File(path.clone())
            .opener(&SourceContext::default())
            .unwrap();
        // Other tests read files at the same time.
        assert_eq!(take_open_files().contains(&path), expected, "{mode:o}");
    }
    if root {
        // Only root may let a group in: it cannot change what it may read.
        std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        KeySource::File(path.clone())
            .opener(&SourceContext::default())
            .unwrap();
        assert!(take_open_files().contains(&path));
    }
}
