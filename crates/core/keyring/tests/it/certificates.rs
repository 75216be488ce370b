//! Certificates in the keyring: their life, objects sealed for them, and that old keyrings open as
//! before.
//!
//! Method: real key pairs; two are made once, because making one takes a second.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use strongroom_crypto::{Identity, PrivateKey, SecretBytes};
use strongroom_format::header::{Cipher, ObjectKind};
use strongroom_format::keyring::KeyState;
use strongroom_format::slot::SlotKind;
use strongroom_keyring::{
    Certificate, CertificateInfo, Keyring, NewCertificate, NewObject, Object, Recipient,
};

use crate::keyring::Home;
use crate::{code, files_in, passphrase, raw, recipient, with_checksum};

/// A backup set.
const BACKUP: NewObject = NewObject {
    kind: ObjectKind::Backup,
    cipher: Cipher::Aes256Gcm,
    unit_size: 0,
    unit_reserve: 0,
};

fn new(subject: &str) -> NewCertificate {
    NewCertificate {
        subject: subject.to_owned(),
        bits: 3072,
        days: 30,
    }
}

fn secret(text: &str) -> SecretBytes {
    SecretBytes::take(&mut text.as_bytes().to_vec()).expect("it works")
}

/// One of two key pairs, as PKCS #8.
fn pkcs8(which: usize) -> &'static [u8] {
    static MADE: [OnceLock<Vec<u8>>; 2] = [const { OnceLock::new() }; 2];
    MADE[which].get_or_init(|| {
        let key = PrivateKey::generate(3072).expect("it works");
        key.to_pkcs8().expect("it works").as_slice().to_vec()
    })
}

/// A certificate of one of the two key pairs; another one at each call.
fn identity(which: usize, with_key: bool) -> Identity {
    let key = PrivateKey::from_der(pkcs8(which)).expect("it works");
    Identity {
        certificate: Certificate::self_signed(&key, "CN=x", 5).expect("it works"),
        key: with_key.then_some(key),
        name: None,
        was_sealed: false,
    }
}

fn certificate(keyring: &Keyring, name: &str) -> CertificateInfo {
    keyring.certificate(name).expect("it works")
}

/// A keyring with one certificate of the first key pair.
fn with_certificate(home: &Home) -> Keyring {
    let mut keyring = home.init();
    let made = keyring.import_certificate(Some("a"), &identity(0, true));
    assert!(made.expect("it works").is_new);
    keyring
}

fn vector(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testing/vectors/keyring");
    folder.join(name)
}

#[test]
fn from_creation_to_retirement() {
    let home = Home::new();
    let mut keyring = home.init();
    let made = keyring
        .create_certificate("backup", &new("CN=backup"))
        .unwrap();
    assert!(made.has_private_key && made.needs_export() && made.exported_unix_s.is_none());
    let (warning, detail) = made.export_warning().unwrap();
    assert_eq!(warning.number, 2033);
    assert!(
        detail.contains("strongroom cert export backup --out"),
        "{detail}"
    );
    assert!(
        !keyring.unexported(),
        "keys and certificates are marked apart"
    );
    let read = made.certificate().unwrap();
    assert_eq!(
        (read.id(), read.subject(), read.bits()),
        (made.id, "CN=backup".to_owned(), 3072)
    );

    let again = keyring.create_certificate("backup", &new("CN=backup"));
    assert_eq!(code(again), 2025, "the name is taken");
    assert_eq!(
        code(keyring.create_certificate("no/slash", &new("CN=x"))),
        2013
    );
    assert_eq!(
        code(keyring.create_certificate("b", &new("nonsense"))),
        2037
    );
    let small = NewCertificate {
        bits: 2048,
        ..new("CN=b")
    };
    assert_eq!(code(keyring.create_certificate("b", &small)), 2027);

    assert_eq!(code(keyring.recipient("nobody")), 2026);
    let sealed = Object::create(&BACKUP, &keyring.recipient("backup").unwrap()).unwrap();
    keyring.retire_certificate("backup").unwrap();
    assert_eq!(code(keyring.retire_certificate("nobody")), 2026);
    assert_eq!(code(keyring.recipient("backup")), 2036);
    assert_eq!(certificate(&keyring, "backup").state, KeyState::Retired);
    let opened = keyring.open_object(&sealed.header_bytes(), ObjectKind::Backup);
    assert_eq!(
        opened.unwrap().object_id(),
        sealed.object_id(),
        "retired ones open"
    );

    assert_eq!(
        Keyring::open(&home.path).unwrap().certificates(),
        keyring.certificates()
    );
    assert_eq!(
        Keyring::status(&home.path).unwrap().certificates,
        keyring.certificates()
    );
}

#[test]
fn a_host_without_private_keys_writes_what_it_cannot_read() {
    let (home, host) = (Home::new(), Home::new());
    let keyring = with_certificate(&home);
    let mut writer = host.init();
    writer
        .import_certificate(Some("offsite"), &identity(0, false))
        .unwrap();
    let known = certificate(&writer, "offsite");
    assert!(!known.has_private_key && !known.needs_export() && known.export_warning().is_none());

    let recipient = writer.recipient("offsite").unwrap();
    assert_eq!(recipient.kind_name(), "certificate");
    let sealed = Object::create(&BACKUP, &recipient).unwrap();
    let header = sealed.header_bytes();
    let refused = writer
        .open_object(&header, ObjectKind::Backup)
        .err()
        .unwrap();
    assert_eq!(refused.code().number, 2032);
    let id: String = known.id.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(refused.detail().contains(&id), "{refused}");
    let none = writer.private_keys().unwrap();
    assert_eq!(code(Object::open(&header, ObjectKind::Backup, &none)), 2032);

    let opened = keyring.open_object(&header, ObjectKind::Backup).unwrap();
    assert!(matches!(opened.opened_by(), SlotKind::Certificate { id, .. } if *id == known.id));
    let canary = strongroom_keyring::Purpose::KeyringBody;
    let (one, two) = (opened.subkey(1, canary), sealed.subkey(1, canary));
    assert!(one.unwrap().ct_eq(&two.unwrap()));
    // Private keys alone do not seal.
    let keys = keyring.private_keys().unwrap();
    assert_eq!(code(keys.recipient()), 2019);
}

#[test]
fn several_recipients_and_who_opens() {
    let (home, other) = (Home::new(), Home::new());
    let mut keyring = with_certificate(&home);
    keyring.create_key("app").unwrap();
    let mut second = other.init();
    second
        .import_certificate(Some("b"), &identity(1, true))
        .unwrap();
    let recipients = [
        recipient(&raw(1)),
        second.recipient("b").unwrap(),
        keyring.recipient("a").unwrap(),
        recipient(&keyring.opener("app", true).unwrap()),
    ];
    let borrowed: Vec<&Recipient> = recipients.iter().collect();
    let object = Object::create(&BACKUP, &recipients[0]).unwrap();
    let header = object.rewrapped(&borrowed).unwrap().header_bytes();
    for found in [&keyring, &second] {
        let opened = found.open_object(&header, ObjectKind::Backup).unwrap();
        assert_eq!(opened.opened_by().name(), "certificate");
    }
    // By the key that a slot names, when no certificate helps.
    let named = object.rewrapped(&[&recipients[1], &recipients[3]]).unwrap();
    let opened = keyring.open_object(&named.header_bytes(), ObjectKind::Backup);
    assert_eq!(opened.unwrap().opened_by().name(), "keyring");
    let third = Home::new();
    let stranger = third.init();
    let refused = stranger.open_object(&named.header_bytes(), ObjectKind::Backup);
    assert_eq!(code(refused), 2032, "the certificates are told first");
    let by_key = object.rewrapped(&[&recipients[3]]).unwrap().header_bytes();
    assert_eq!(
        code(stranger.open_object(&by_key, ObjectKind::Backup)),
        2003
    );
    let by_raw = object.header_bytes();
    assert_eq!(
        code(stranger.open_object(&by_raw, ObjectKind::Backup)),
        2002
    );
    assert_eq!(code(keyring.open_object(&header, ObjectKind::Sqlite)), 3007);
    assert_eq!(
        code(stranger.open_object(&header, ObjectKind::Sqlite)),
        3007
    );
    assert_eq!(
        code(keyring.open_object(&header[..100], ObjectKind::Backup)),
        3006
    );
    // Six certificates of this size are one too many.
    let one = &recipients[2];
    assert!(object.rewrapped(&[one; 5]).is_ok());
    assert_eq!(code(object.rewrapped(&[one; 6])), 3009);
}

#[test]
fn a_slot_belongs_to_its_object_and_a_changed_one_is_found() {
    let home = Home::new();
    let keyring = with_certificate(&home);
    let recipient = keyring.recipient("a").unwrap();
    let one = Object::create(&BACKUP, &recipient).unwrap().header_bytes();
    let two = Object::create(&BACKUP, &recipient).unwrap().header_bytes();
    let mut mixed = one.clone();
    mixed[256..3008].copy_from_slice(&two[256..3008]);
    let refused = keyring.open_object(&with_checksum(mixed), ObjectKind::Backup);
    assert_eq!(code(refused), 2002, "another object's slot");
    for at in (256..256 + 536).step_by(31) {
        let mut changed = one.clone();
        changed[at] ^= 0x10;
        let got = code(keyring.open_object(&with_checksum(changed), ObjectKind::Backup));
        assert!([2002, 2032, 3003, 3004].contains(&got), "byte {at}: {got}");
    }
}

#[test]
fn a_rekey_needs_the_slots_key_only() {
    let home = Home::new();
    let keyring = with_certificate(&home);
    let first = Object::create(&BACKUP, &keyring.recipient("a").unwrap()).unwrap();
    let begun = first.rekey_begun(&[]).unwrap();
    let reloaded = first.reload(&begun.header_bytes()).unwrap();
    assert_eq!(reloaded.epoch(), 2);
    let opened = keyring
        .open_object(&begun.header_bytes(), ObjectKind::Backup)
        .unwrap();
    assert_eq!((opened.epoch(), opened.previous_epoch()), (2, Some(1)));
}

#[test]
fn an_export_is_proved_and_brings_the_key_back() {
    let (home, other) = (Home::new(), Home::new());
    let mut keyring = with_certificate(&home);
    let sealed = Object::create(&BACKUP, &keyring.recipient("a").unwrap()).unwrap();
    let file = home.root("a.p12");
    assert_eq!(
        code(keyring.export_certificate("nobody", &file, &secret("p"))),
        2026
    );
    assert_eq!(
        code(keyring.export_certificate("a", &file, &secret(""))),
        2030
    );
    assert!(!file.exists() && certificate(&keyring, "a").needs_export());
    let info = keyring
        .export_certificate("a", &file, &secret("paper"))
        .unwrap();
    assert!(info.exported_unix_s.is_some() && !info.needs_export());
    assert!(!certificate(&Keyring::open(&home.path).unwrap(), "a").needs_export());
    let bytes = std::fs::read(&file).unwrap();
    assert_eq!(
        code(keyring.export_certificate("a", &file, &secret("x"))),
        1002
    );
    assert_eq!(std::fs::read(&file).unwrap(), bytes);
    let unwritable = home.root("no/such/a.p12");
    assert_eq!(
        code(keyring.export_certificate("a", &unwritable, &secret("x"))),
        5001
    );
    let left: Vec<String> = files_in(home.directory.path());
    assert!(left.iter().all(|name| !name.ends_with(".tmp")), "{left:?}");

    // The disaster: only the file and its passphrase are left.
    let mut restored = other.init();
    let read = Identity::read(&bytes, Some(&secret("paper"))).unwrap();
    let back = restored.restore_certificate(None, &read).unwrap();
    assert!(back.is_new && back.has_new_key && !back.certificate.needs_export());
    assert_eq!(back.certificate.name, "a", "the file tells it");
    let opened = restored.open_object(&sealed.header_bytes(), ObjectKind::Backup);
    assert_eq!(opened.unwrap().object_id(), sealed.object_id());
    let again = restored.restore_certificate(Some("other"), &read).unwrap();
    assert!(!again.is_new && !again.has_new_key && again.certificate.name == "a");
    let public = identity(0, false);
    assert_eq!(code(restored.restore_certificate(None, &public)), 2029);
}

#[test]
fn what_import_takes_and_refuses() {
    let home = Home::new();
    let mut keyring = home.init();
    assert_eq!(
        code(keyring.import_certificate(None, &identity(0, false))),
        2013
    );
    assert_eq!(
        code(keyring.import_certificate(Some("no/slash"), &identity(0, false))),
        2013
    );
    let public = identity(0, false);
    keyring.import_certificate(Some("a"), &public).unwrap();
    assert_eq!(
        code(keyring.export_certificate("a", &home.root("a.p12"), &secret("x"))),
        2031
    );
    assert_eq!(
        code(keyring.import_certificate(Some("a"), &public)),
        2025,
        "nothing new"
    );
    assert_eq!(
        code(keyring.import_certificate(Some("b"), &public)),
        2025,
        "the same key"
    );
    assert_eq!(
        code(keyring.import_certificate(Some("a"), &identity(1, true))),
        2025,
        "the name"
    );
    let before = certificate(&keyring, "a");

    // Issued anew for the same key: it takes the older one's place, and slots do not notice.
    let sealed = Object::create(&BACKUP, &keyring.recipient("a").unwrap()).unwrap();
    let renewed = keyring
        .import_certificate(None, &identity(0, false))
        .unwrap();
    assert!(!renewed.is_new && !renewed.has_new_key);
    assert!(renewed.certificate.id == before.id && renewed.certificate.der != before.der);
    // And then the private key.
    let keyed = keyring
        .import_certificate(Some("a"), &identity(0, true))
        .unwrap();
    assert!(keyed.has_new_key && keyed.certificate.needs_export());
    assert_eq!(keyring.certificates().len(), 1);
    assert!(
        keyring
            .open_object(&sealed.header_bytes(), ObjectKind::Backup)
            .is_ok()
    );
}

#[test]
fn root_rotation_export_and_import_carry_certificates() {
    let (home, other) = (Home::new(), Home::new());
    let mut keyring = with_certificate(&home);
    keyring
        .import_certificate(Some("public"), &identity(1, false))
        .unwrap();
    let sealed = Object::create(&BACKUP, &keyring.recipient("a").unwrap()).unwrap();
    let opens = |keyring: &Keyring| {
        keyring
            .open_object(&sealed.header_bytes(), ObjectKind::Backup)
            .is_ok()
    };
    home.write_root("second", b'b');
    assert!(keyring.rotate_root(Some(home.provider("second"))).unwrap());
    let reopened = Keyring::open(&home.path).unwrap();
    assert!(opens(&reopened) && reopened.certificates() == keyring.certificates());

    let file = home.root("export");
    keyring.export(&file, &passphrase("paper")).unwrap();
    assert!(
        !certificate(&keyring, "a").needs_export(),
        "the export holds the private key"
    );
    assert!(
        certificate(&keyring, "public").exported_unix_s.is_none(),
        "there is none to export"
    );
    let by_certificate = keyring.private_keys().unwrap();
    assert_eq!(
        code(keyring.export(&home.root("e2"), &by_certificate)),
        2044
    );

    let mut restored = other.init();
    let report = restored.import(&file, &passphrase("paper")).unwrap();
    assert_eq!(report.certificates.len(), 2);
    assert!(opens(&restored) && restored.certificates() == keyring.certificates());
    let before = std::fs::read(&other.path).unwrap();
    let report = restored.import(&file, &passphrase("paper")).unwrap();
    assert!(report.certificates.is_empty());
    assert_eq!(
        std::fs::read(&other.path).unwrap(),
        before,
        "twice changes nothing"
    );

    // A host that had the public half gets the private key; one where the name is another key's
    // refuses all.
    let (third, fourth) = (Home::new(), Home::new());
    let mut public = third.init();
    public
        .import_certificate(Some("mine"), &identity(0, false))
        .unwrap();
    let report = public.import(&file, &passphrase("paper")).unwrap();
    assert!(opens(&public) && report.certificates.len() == 2);
    assert!(certificate(&public, "mine").has_private_key);
    let mut taken = fourth.init();
    taken
        .import_certificate(Some("a"), &identity(1, false))
        .unwrap();
    let before = std::fs::read(&fourth.path).unwrap();
    assert_eq!(code(taken.import(&file, &passphrase("paper"))), 2025);
    assert_eq!(std::fs::read(&fourth.path).unwrap(), before);
}

#[test]
fn every_byte_of_a_keyring_with_certificates_is_covered() {
    let home = Home::new();
    drop(with_certificate(&home));
    let bytes = std::fs::read(&home.path).unwrap();
    for offset in (0..bytes.len()).step_by(11) {
        let mut bad = bytes.clone();
        bad[offset] ^= 0x20;
        strongroom_keyring::durable::replace(&home.path, &bad, 0o600).unwrap();
        let got = code(Keyring::open(&home.path));
        assert!(
            [2005, 2006, 2007, 2020, 3001, 3002].contains(&got),
            "byte {offset}: {got}"
        );
    }
    for len in (4096..bytes.len()).step_by(173) {
        strongroom_keyring::durable::replace(&home.path, &bytes[..len], 0o600).unwrap();
        assert_eq!(code(Keyring::open(&home.path)), 2005, "{len} bytes");
    }
    strongroom_keyring::durable::replace(&home.path, &bytes, 0o600).unwrap();
    assert!(Keyring::open(&home.path).is_ok());
}

#[test]
fn the_private_key_is_nowhere_in_clear() {
    let home = Home::new();
    let mut keyring = with_certificate(&home);
    keyring
        .export_certificate("a", &home.root("a.p12"), &secret("paper"))
        .unwrap();
    keyring.export(&home.root("export"), &raw(9)).unwrap();
    let key = pkcs8(0);
    for path in [home.path.clone(), home.root("a.p12"), home.root("export")] {
        let file = std::fs::read(&path).unwrap();
        // Beyond the modulus and exponent, which the certificate tells: the secret exponent and the
        // primes.
        for at in (440..key.len() - 16).step_by(8) {
            let part = &key[at..at + 16];
            assert!(
                !file.windows(16).any(|window| window == part),
                "{}: {at}",
                path.display()
            );
        }
    }
}

#[test]
fn keyrings_from_before_certificates_open_unchanged() {
    let home = Home::new();
    let old = std::fs::read(vector("before-certificates")).unwrap();
    std::fs::create_dir(home.path.parent().unwrap()).unwrap();
    strongroom_keyring::durable::replace(&home.path, &old, 0o600).unwrap();
    let mut keyring = Keyring::open(&home.path).unwrap();
    let states: Vec<_> = keyring
        .list()
        .into_iter()
        .map(|key| (key.name, key.version, key.state))
        .collect();
    let expected = [
        ("app", 1, KeyState::Retired),
        ("app", 2, KeyState::Active),
        ("old", 1, KeyState::Retired),
    ];
    assert_eq!(
        states,
        expected.map(|(name, version, state)| (name.to_owned(), version, state))
    );
    assert!(keyring.certificates().is_empty() && keyring.key("app", Some(1)).is_ok());
    keyring.retire_key("app").unwrap();
    let length = std::fs::metadata(&home.path).unwrap().len();
    assert_eq!(
        length,
        u64::try_from(old.len()).unwrap(),
        "nothing was added"
    );

    let other = Home::new();
    let report = other
        .init()
        .import(&vector("before-certificates.export"), &raw(0xbb))
        .unwrap();
    assert_eq!((report.added.len(), report.certificates.len()), (3, 0));
}
