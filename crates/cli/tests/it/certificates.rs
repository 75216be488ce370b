//! The life of certificates on the command line, and what other programs make of them.
//!
//! Method: the real binary; OpenSSL's own program on the other side, in both directions: it reads
//! what was exported and opens with it a key slot that was made here, and what it makes is
//! imported.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that panics has failed, which is what it is for"
)]

use crate::common;

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use common::{Place, ROOT, members};
use strongroom_crypto::{GcmKey, MacKey, SecretKey, hkdf};
use strongroom_format::header::{Cipher, Header, ObjectKind};
use strongroom_format::hex::hex;
use strongroom_format::slot::SlotKind;
use strongroom_keyring::{Keyring, NewObject, Object, Recipient};

const BACKUP: NewObject = NewObject {
    kind: ObjectKind::Backup,
    cipher: Cipher::Aes256Gcm,
    unit_size: 0,
    unit_reserve: 0,
};

/// A directory with an empty keyring, opened by a file.
fn place() -> Place {
    let place = Place::new();
    place.write("root.key", ROOT);
    place
        .run(&["keyring", "init", "--provider", "file:root.key"])
        .succeeded();
    place
}

/// Runs OpenSSL's program in the directory; what it says on both outputs.
#[track_caller]
fn openssl(place: &Place, arguments: &str) -> String {
    let output = Command::new("openssl")
        .current_dir(place.path(""))
        .args(arguments.split(' '))
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "openssl {arguments}: {said}");
    said
}

fn with_passphrase(place: &Place, passphrase: &str, arguments: &[&str]) -> common::Run {
    let mut command = place.command();
    let output = command
        .env("PASS", passphrase)
        .args(arguments)
        .output()
        .unwrap();
    common::Run {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn listed(place: &Place) -> Vec<serde_json::Value> {
    let list = place.run(&["cert", "list", "--json"]).json();
    assert_eq!(members(&list), ["certificates"]);
    list["certificates"].as_array().unwrap().clone()
}

fn opened_keyring(place: &Place) -> Keyring {
    Keyring::open(&place.path("keyring")).unwrap()
}

#[test]
fn from_creation_to_retirement() {
    let place = place();
    let run = place.run(&["cert", "create", "backup", "--days", "30"]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(
        run.out.starts_with("certificate backup created: id "),
        "{}",
        run.out
    );
    assert_eq!(run.err.matches("SR-2033").count(), 1, "{}", run.err);
    assert!(
        run.err.contains("strongroom cert export backup --out FILE"),
        "{}",
        run.err
    );

    place
        .run(&["cert", "create", "backup"])
        .failed(6, "SR-2025");
    place
        .run(&["cert", "create", "no/slash"])
        .failed(2, "SR-2013");
    place
        .run(&["cert", "create", "b", "--subject", "nobody"])
        .failed(2, "SR-2037");
    place
        .run(&["cert", "create", "b", "--days", "0"])
        .failed(2, "SR-2037");
    place
        .run(&["cert", "retire", "nobody"])
        .failed(3, "SR-2026");
    let out = place.run(&["cert", "retire", "backup"]).succeeded();
    assert_eq!(out, "certificate backup retired\n");

    let all = listed(&place);
    assert_eq!(all.len(), 1);
    let shape = [
        "created",
        "created_unix_s",
        "exported",
        "exported_unix_s",
        "id",
        "issuer",
        "name",
        "not_after",
        "not_after_unix_s",
        "not_before",
        "not_before_unix_s",
        "private_key",
        "rsa_bits",
        "state",
        "subject",
        "thumbprint",
    ];
    assert_eq!(members(&all[0]), shape);
    assert_eq!(
        (&all[0]["state"], &all[0]["subject"]),
        (&"retired".into(), &"CN=backup".into())
    );
    assert_eq!(
        (&all[0]["rsa_bits"], &all[0]["private_key"]),
        (&3072.into(), &true.into())
    );
    assert!(all[0]["exported"].is_null() && run.out.contains(all[0]["id"].as_str().unwrap()));
    let days = all[0]["not_after_unix_s"].as_i64().unwrap()
        - all[0]["not_before_unix_s"].as_i64().unwrap();
    assert_eq!(days, 30 * 86_400);

    without_the_root_key(&place);
}

/// What can be seen and done without it.
fn without_the_root_key(place: &Place) {
    // Without the root key, as a table.
    std::fs::remove_file(place.path("root.key")).unwrap();
    let text = place.run(&["cert", "list"]).succeeded();
    assert_eq!(text.lines().count(), 2);
    assert!(
        text.contains("NOT EXPORTED") && text.contains("CN=backup"),
        "{text}"
    );
    let status = place.run(&["keyring", "status", "--json"]).json();
    assert_eq!(status["certificates"], 1);
    place.run(&["cert", "create", "c"]).failed(3, "SR-2007");
}

#[test]
fn an_export_is_read_by_openssl_and_opens_our_slots() {
    let place = place();
    place
        .run(&[
            "cert",
            "create",
            "backup",
            "--subject",
            "CN=backup,O=Example",
        ])
        .succeeded();
    let export = [
        "cert",
        "export",
        "backup",
        "--out",
        "backup.p12",
        "--key-env",
        "PASS",
    ];
    with_passphrase(&place, "", &export).failed(3, "SR-2042");
    with_passphrase(
        &place,
        "x",
        &["cert", "export", "no", "--out", "n", "--key-env", "PASS"],
    )
    .failed(3, "SR-2026");
    assert!(!place.path("backup.p12").exists());
    let out = with_passphrase(&place, "on paper", &export).succeeded();
    assert_eq!(
        out,
        "certificate backup exported to backup.p12, read back and proved to open\n"
    );
    let mode = std::fs::metadata(place.path("backup.p12"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(listed(&place)[0]["exported"].is_string());
    with_passphrase(&place, "on paper", &export).failed(6, "SR-1002");
    let run = place.run(&["cert", "retire", "backup"]);
    assert!(!run.err.contains("SR-2033"), "{}", run.err);

    openssl_reads_the_export(&place);
    openssl_opens_a_slot(&place);
}

/// What OpenSSL's program says of the file, of the certificate, and of its signature.
fn openssl_reads_the_export(place: &Place) {
    place.write("pass", "on paper");
    let info = openssl(
        place,
        "pkcs12 -info -in backup.p12 -passin file:pass -nodes -out all.pem",
    );
    for part in [
        "PBES2",
        "AES-256-CBC",
        "Iteration 250000",
        "hmacWithSHA256",
        "sha256",
    ] {
        assert!(info.contains(part), "{part}: {info}");
    }
    let pem = String::from_utf8(place.read("all.pem")).unwrap();
    assert!(pem.contains("friendlyName: backup") && pem.contains("BEGIN PRIVATE KEY"));
    let shown = openssl(
        place,
        "x509 -in all.pem -noout -subject -ext keyUsage,basicConstraints",
    );
    assert!(
        shown.contains("CN = backup, O = Example") || shown.contains("CN=backup, O=Example"),
        "{shown}"
    );
    assert!(
        shown.contains("Key Encipherment") && shown.contains("critical"),
        "{shown}"
    );
    openssl(place, "verify -CAfile all.pem all.pem");
}

/// The way into an object by docs/spec/header.md, with OpenSSL's program for the private key.
fn openssl_opens_a_slot(place: &Place) {
    let keyring = opened_keyring(place);
    // A retired certificate seals nothing by name; its public half is public.
    let certificate = keyring.certificates()[0].certificate().unwrap();
    let object = Object::create(&BACKUP, &Recipient::certificate(certificate)).unwrap();
    place.write("object", object.initial_bytes());
    let inspected = place.run(&["inspect", "object", "--json"]).json();
    assert_eq!(inspected["kind"], "sealed-backup");
    let slot = &inspected["header"]["slots"][0];
    assert_eq!(
        (&slot["kind"], &slot["certificate_id"]),
        (&"certificate".into(), &listed(place)[0]["id"])
    );
    let text = place.run(&["inspect", "object"]).succeeded();
    assert!(
        text.contains(&format!(
            "certificate {}",
            slot["certificate_id"].as_str().unwrap()
        )),
        "{text}"
    );

    let bytes = place.read("object");
    let header = Header::parse(&bytes).unwrap();
    let slot = &header.slots[0];
    let SlotKind::Certificate { secret, .. } = &slot.kind else {
        panic!("{:?}", slot.kind);
    };
    place.write("secret.bin", secret);
    let label = hex(&[&b"strongroom/v1/certificate"[..], &header.object_id].concat());
    openssl(
        place,
        &format!(
            "pkeyutl -decrypt -in secret.bin -out clear.bin -inkey all.pem -pkeyopt rsa_padding_mode:oaep \
             -pkeyopt rsa_oaep_md:sha256 -pkeyopt rsa_mgf1_md:sha256 -pkeyopt rsa_oaep_label:{label}"
        ),
    );
    let mut clear: [u8; 32] = place.read("clear.bin").try_into().unwrap();
    let secret = SecretKey::take(&mut clear).unwrap();
    let kek = hkdf(&secret, &slot.salt, b"strongroom/v1/slot").unwrap();
    let (mut key, mut tag) = ([0; 32], [0; 16]);
    key.copy_from_slice(&slot.wrapped[..32]);
    tag.copy_from_slice(&slot.wrapped[32..]);
    // SLOT, version 1, cipher 1, unit 0, epoch 1, the object's id, position 4, extra 0.
    let mut aad = b"SLOT\x01\0\x01\0\0\0\0\0\x01\0\0\0".to_vec();
    aad.extend_from_slice(&header.object_id);
    aad.extend_from_slice(&[4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    GcmKey::new(&kek)
        .unwrap()
        .open(&slot.nonce, &aad, &mut key, &tag)
        .unwrap();
    let data_key = SecretKey::take(&mut key).unwrap();
    let mac = hkdf(&data_key, &header.object_id, b"strongroom/v1/header-mac").unwrap();
    let mac = MacKey::new(&mac).unwrap().mac(&[&bytes[..3008]]);
    assert_eq!(mac, header.mac);
    assert!(keyring.open_object(&bytes, ObjectKind::Backup).is_ok());
}

#[test]
fn a_lost_keyring_comes_back_from_the_export() {
    let place = place();
    place.run(&["cert", "create", "backup"]).succeeded();
    let object = {
        let keyring = opened_keyring(&place);
        Object::create(&BACKUP, &keyring.recipient("backup").unwrap())
            .unwrap()
            .initial_bytes()
    };
    let id = listed(&place)[0]["id"].clone();
    with_passphrase(
        &place,
        "on paper\n",
        &[
            "cert",
            "export",
            "backup",
            "--out",
            "b.p12",
            "--key-env",
            "PASS",
        ],
    )
    .succeeded();
    std::fs::remove_file(place.path("keyring")).unwrap();

    place
        .run(&["keyring", "init", "--provider", "file:root.key"])
        .succeeded();
    let refused = opened_keyring(&place)
        .open_object(&object, ObjectKind::Backup)
        .err()
        .unwrap();
    assert_eq!(refused.code().number, 2032);
    assert!(refused.detail().contains(id.as_str().unwrap()), "{refused}");
    let restore = ["cert", "restore", "b.p12", "--key-env", "PASS"];
    with_passphrase(&place, "in paper", &restore).failed(3, "SR-2030");
    place
        .run(&["cert", "restore", "b.p12"])
        .failed(2, "SR-1004");
    place
        .run(&["cert", "restore", "absent.p12"])
        .failed(2, "SR-1006");
    assert!(listed(&place).is_empty());
    let out = with_passphrase(&place, "on paper", &restore);
    assert_eq!(out.code, 0, "{}", out.err);
    assert!(
        out.out.starts_with("certificate backup restored: id ") && !out.err.contains("SR-2033")
    );
    assert_eq!(listed(&place)[0]["id"], id);
    assert!(
        opened_keyring(&place)
            .open_object(&object, ObjectKind::Backup)
            .is_ok()
    );
    let again = with_passphrase(&place, "on paper", &restore).succeeded();
    assert!(
        again.starts_with("certificate backup has its private key already"),
        "{again}"
    );
    // A certificate alone brings nothing back.
    place
        .run(&["cert", "export", "backup", "--out", "b.pem", "--public"])
        .succeeded();
    let told = place
        .run(&["cert", "restore", "b.pem"])
        .failed(4, "SR-2029");
    assert!(told.contains("`strongroom cert import`"), "{told}");
    // Nor is there anything to import; the command that takes such files is named.
    let import = ["cert", "import", "b.p12", "--key-env", "PASS"];
    let told = with_passphrase(&place, "on paper", &import).failed(6, "SR-2025");
    assert!(told.contains("`strongroom cert restore`"), "{told}");
}

#[test]
fn a_host_gets_the_public_half_only() {
    let (safe, host) = (place(), place());
    safe.run(&["cert", "create", "backup"]).succeeded();
    let out = safe
        .run(&[
            "cert",
            "export",
            "backup",
            "--out",
            "backup.pem",
            "--public",
        ])
        .succeeded();
    assert_eq!(
        out,
        "certificate backup written to backup.pem, without its private key\n"
    );
    let pem = safe.read("backup.pem");
    assert!(!String::from_utf8(pem.clone()).unwrap().contains("PRIVATE"));
    assert!(listed(&safe)[0]["exported"].is_null(), "that was no export");
    host.write("backup.pem", &pem);
    let run = host.run(&["cert", "import", "backup.pem"]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    assert!(
        run.out
            .starts_with("certificate backup imported without a private key: id ")
    );
    assert_eq!(listed(&host)[0]["id"], listed(&safe)[0]["id"]);
    assert!(host.run(&["cert", "list"]).succeeded().contains("not here"));
    let export = [
        "cert",
        "export",
        "backup",
        "--out",
        "b.p12",
        "--key-env",
        "ROOT",
    ];
    host.run(&export).failed(3, "SR-2031");
    let object = {
        let keyring = opened_keyring(&host);
        Object::create(&BACKUP, &keyring.recipient("backup").unwrap())
            .unwrap()
            .initial_bytes()
    };
    assert!(
        opened_keyring(&host)
            .open_object(&object, ObjectKind::Backup)
            .is_err()
    );
    assert!(
        opened_keyring(&safe)
            .open_object(&object, ObjectKind::Backup)
            .is_ok()
    );

    an_export_brings_the_private_half(&safe, &host, &object);
}

/// Of the keyring as a whole.
fn an_export_brings_the_private_half(safe: &Place, host: &Place, object: &[u8]) {
    // An export of the keyring brings the private half.
    host.write("e.key", ROOT);
    safe.write("e.key", ROOT);
    let out = safe
        .run(&["keyring", "export", "--out", "e", "--key-file", "e.key"])
        .succeeded();
    assert_eq!(out, "exported 0 key versions and 1 certificates to e\n");
    assert!(listed(safe)[0]["exported"].is_string());
    host.write("e", safe.read("e"));
    let out = host
        .run(&["keyring", "import", "e", "--key-file", "e.key"])
        .succeeded();
    assert!(out.starts_with("added certificate backup\n"), "{out}");
    assert!(
        opened_keyring(host)
            .open_object(object, ObjectKind::Backup)
            .is_ok()
    );
}

#[test]
fn what_openssl_makes_is_imported() {
    let place = place();
    place.write("pass", "secret");
    openssl(
        &place,
        "req -x509 -newkey rsa:3072 -nodes -keyout k.pem -out ext.pem -days 30 -subj /CN=ext/O=Else",
    );
    let run = place.run(&["cert", "import", "ext.pem"]);
    assert!(
        run.out
            .starts_with("certificate ext imported without a private key"),
        "{}",
        run.err
    );
    place
        .run(&["cert", "import", "ext.pem"])
        .failed(6, "SR-2025");
    place
        .run(&["cert", "import", "ext.pem", "--name", "other"])
        .failed(6, "SR-2025");

    // The same key pair, certified anew, keeps its name; then its private key comes, in a file that
    // is encrypted.
    openssl(
        &place,
        "req -x509 -key k.pem -out new.pem -days 60 -subj /CN=renewed",
    );
    let run = place.run(&["cert", "import", "new.pem"]);
    assert!(
        run.out.starts_with("certificate ext renewed: id "),
        "{}{}",
        run.out,
        run.err
    );
    assert_eq!(listed(&place)[0]["subject"], "CN=renewed");
    openssl(
        &place,
        "pkcs8 -topk8 -in k.pem -out sealed.pem -passout file:pass",
    );
    place.write(
        "both.pem",
        [place.read("new.pem"), place.read("sealed.pem")].concat(),
    );
    place
        .run(&["cert", "import", "both.pem"])
        .failed(2, "SR-1004");
    with_passphrase(
        &place,
        "wrong",
        &["cert", "import", "both.pem", "--key-env", "PASS"],
    )
    .failed(3, "SR-2030");
    let run = with_passphrase(
        &place,
        "secret",
        &["cert", "import", "both.pem", "--key-env", "PASS"],
    );
    assert!(
        run.out.starts_with("certificate ext got its private key"),
        "{}",
        run.err
    );
    // The file that it came from is a copy of it, under a passphrase that was just proved.
    assert!(!run.err.contains("SR-2033"), "{}", run.err);
    assert!(listed(&place)[0]["exported"].is_string());

    openssl_makes_pkcs12(&place);
}

/// Into another keyring.
fn openssl_makes_pkcs12(place: &Place) {
    // The ciphers of today and those of yesterday.
    let yesterday = "-keypbe PBE-SHA1-3DES -certpbe PBE-SHA1-3DES -macalg sha1";
    for (name, options) in [("today", "-macalg sha256"), ("yesterday", yesterday)] {
        let other = self::place();
        let made = format!(
            "pkcs12 -export -in new.pem -inkey k.pem -out {name}.p12 -passout file:pass -name {name} {options}"
        );
        openssl(place, &made);
        other.write("p12", place.read(&format!("{name}.p12")));
        let run = with_passphrase(
            &other,
            "secret",
            &["cert", "import", "p12", "--key-env", "PASS"],
        );
        let expected = format!("certificate {name} imported with its private key");
        assert!(run.out.starts_with(&expected), "{}{}", run.out, run.err);
        assert_eq!(listed(&other)[0]["id"], listed(place)[0]["id"]);
    }
}

#[test]
fn weak_foreign_and_damaged_certificates_are_refused() {
    let place = place();
    openssl(
        &place,
        "req -x509 -newkey rsa:1024 -nodes -keyout s.key -out short.pem -days 9 -subj /CN=s",
    );
    openssl(
        &place,
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout e.key -out ec.pem -days 9 -subj /CN=e",
    );
    openssl(
        &place,
        "req -x509 -newkey rsa:2048 -nodes -keyout g.key -out signing.pem -days 9 -subj /CN=g -addext keyUsage=digitalSignature",
    );
    for name in ["short.pem", "ec.pem", "signing.pem"] {
        place.run(&["cert", "import", name]).failed(6, "SR-2027");
    }
    openssl(
        &place,
        "req -x509 -newkey rsa:2048 -nodes -keyout a.key -out a.pem -days 9 -subj /CN=a",
    );
    place.write(
        "mixed.pem",
        [place.read("a.pem"), place.read("g.key")].concat(),
    );
    place
        .run(&["cert", "import", "mixed.pem"])
        .failed(6, "SR-2028");
    place.write("key.pem", place.read("a.key"));
    place.write("text", "not a certificate");
    place.write("long", vec![0x30; 70_000]);
    let mut cut = place.read("a.pem");
    cut.truncate(500);
    place.write("cut.pem", cut);
    for name in ["key.pem", "text", "long", "cut.pem"] {
        place
            .run(&["cert", "import", name, "--name", "x"])
            .failed(4, "SR-2029");
    }
    place
        .run(&["cert", "import", "absent"])
        .failed(2, "SR-1006");
    assert!(listed(&place).is_empty());
    // The least that is taken, in DER, of a time that has not come: a warning, no more.
    openssl(&place, "x509 -in a.pem -outform DER -out a.der");
    assert_eq!(place.run(&["cert", "import", "a.der"]).err, "");
    openssl(&place, "req -new -key g.key -out g.csr -subj /CN=g");
    openssl(
        &place,
        "x509 -req -in g.csr -signkey g.key -days -1 -out past.pem",
    );
    let run = place.run(&["cert", "import", "past.pem"]);
    assert!(
        run.code == 0 && run.err.contains("warning[SR-2035]"),
        "{}",
        run.err
    );
}
