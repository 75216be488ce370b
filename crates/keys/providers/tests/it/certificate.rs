//! Certificates and PKCS #12 files as stock OpenSSL makes them.

use strongroom_keyring::{Keyring, Provider};

use crate::{Home, run, told};

/// A certificate `NAME.pem`, its key `NAME.key` and both as `NAME.p12`, made by OpenSSL.
fn certificate(home: &Home, name: &str) -> (String, String) {
    let at = |kind: &str| {
        home.path(&format!("{name}.{kind}"))
            .to_str()
            .unwrap()
            .to_owned()
    };
    let (key, pem, p12) = (at("key"), at("pem"), at("p12"));
    run(
        "openssl",
        &[
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            &key,
            "-out",
            &pem,
            "-subj",
            "/CN=root",
            "-addext",
            "keyUsage=keyEncipherment",
        ],
        &[],
    );
    run(
        "openssl",
        &[
            "pkcs12",
            "-export",
            "-inkey",
            &key,
            "-in",
            &pem,
            "-out",
            &p12,
            "-passout",
            "pass:open sesame",
        ],
        &[],
    );
    (pem, p12)
}

#[test]
fn a_keyring_opens_by_a_pkcs12_file() {
    let home = Home::new();
    let (pem, p12) = certificate(&home, "one");
    let passphrase = home.write("passphrase", b"open sesame\n");
    let source = format!("passphrase=file:{}", passphrase.display());
    home.init(&format!("certificate:file={p12};{source}"));
    let argument = home.argument();
    assert!(!argument.contains("sesame"));

    let rotated = Keyring::open(&home.keyring).unwrap().rotate_root(None);
    assert!(rotated.unwrap());
    home.opens();

    // Made where only the certificate is: the private key is not even read.
    let away = home.path("away.p12");
    std::fs::copy(&p12, &away).unwrap();
    std::fs::remove_file(&p12).unwrap();
    let mut keyring = {
        std::fs::copy(&away, &p12).unwrap();
        let keyring = Keyring::open(&home.keyring).unwrap();
        std::fs::remove_file(&p12).unwrap();
        keyring
    };
    let public = Provider::parse(&format!("certificate:file={p12};public={pem};{source}")).unwrap();
    assert!(keyring.rotate_root(Some(public)).unwrap());
    assert_eq!(home.refused().0, 1006, "no private key here");
    std::fs::copy(&away, &p12).unwrap();
    home.opens();
}

#[test]
fn wrong_files_and_passphrases_are_told_apart() {
    let home = Home::new();
    let (pem, p12) = certificate(&home, "one");
    let (_, other) = certificate(&home, "two");
    let passphrase = home.write("passphrase", b"open sesame");
    home.init(&format!(
        "certificate:file={p12};passphrase=file:{}",
        passphrase.display()
    ));
    let argument = home.argument();

    home.write("passphrase", b"open barley");
    let (number, text) = home.refused();
    assert_eq!(number, 2030, "{text}");
    assert!(!text.contains("barley"));
    home.write("passphrase", b"open sesame");

    let with = |file: &str| told(home.with_argument(&argument.replace(&p12, file))).0;
    assert_eq!(with(&other), 2103, "another key pair");
    assert_eq!(with(&pem), 2103, "no private key in it");
    assert_eq!(with("/etc/hostname"), 2029);

    // A byte of the id: the label no longer fits. A byte of the ciphertext.
    let at = argument.rfind("blob=").unwrap() + "blob=".len();
    for place in [3, 34 + 64 + 10] {
        let mut changed = argument.clone().into_bytes();
        let digit = &mut changed[at + place];
        *digit = if *digit == b'0' { b'1' } else { b'0' };
        let changed = String::from_utf8(changed).unwrap();
        assert_eq!(told(home.with_argument(&changed)).0, 2105);
    }
    home.opens();
}
