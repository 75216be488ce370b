//! Goal: a restore that asks for a signature writes nothing of a set that the named key has not
//! signed.
//! Method: the real binary, keys and a certificate made by openssl(1).

use crate::common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use common::{Place, create};

fn openssl(place: &Place, arguments: &str) {
    let mut openssl = Command::new("openssl");
    openssl
        .current_dir(place.path(""))
        .args(arguments.split(' '));
    let output = openssl.output().expect("openssl(1) is installed");
    assert!(output.status.success(), "{arguments}: {output:?}");
}

fn place() -> Place {
    let place = Place::with_tree("signed CANARY-2f6c");
    for name in ["ours", "theirs"] {
        openssl(
            &place,
            &format!("genpkey -algorithm ed25519 -out {name}.key"),
        );
        openssl(
            &place,
            &format!("pkey -in {name}.key -pubout -out {name}.pub"),
        );
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(place.path(&format!("{name}.key")), mode).expect("it is there");
    }
    openssl(
        &place,
        "req -x509 -key ours.key -subj /CN=host -days 1 -out ours.pem",
    );
    place
}

fn restore<'a>(to: &'a str, signed_by: &'a str) -> Vec<&'a str> {
    vec![
        "backup",
        "restore",
        "medium",
        "--to",
        to,
        "--key-id",
        "app",
        "--signed-by",
        signed_by,
    ]
}

#[test]
fn only_a_set_that_the_named_key_has_signed_is_restored() {
    let place = place();
    let sealed = ["--key-id", "app", "--sign-key", "ours.key"];
    let made = place.run(&create("signed", &sealed)).succeeded();
    assert!(made.contains("\nsigned by "), "{made}");
    for (to, by) in [("one", "ours.pub"), ("two", "ours.pem")] {
        let run = place.run(&restore(to, by));
        assert!(run.err.contains("it is signed by the key "), "{}", run.err);
        run.succeeded();
        assert_eq!(place.read(&format!("{to}/one")), place.read("tree/one"));
    }
    let verify = [
        "backup",
        "verify",
        "medium",
        "--key-id",
        "app",
        "--signed-by",
        "ours.pub",
    ];
    let verified = place.run(&verify).succeeded();
    assert!(verified.contains("\n  signed by: "), "{verified}");
    place.run(&restore("no", "theirs.pub")).failed(4, "SR-7178");
    // Made by somebody who has the key of the medium, but not the one that signs.
    place
        .run(&create("forged", &["--key-id", "app"]))
        .succeeded();
    place.run(&restore("no", "ours.pub")).failed(4, "SR-7177");
    place.run(&verify).failed(4, "SR-7177");
    let forged = ["--key-id", "app", "--sign-key", "theirs.key"];
    place.run(&create("forged", &forged)).succeeded();
    place.run(&restore("no", "ours.pub")).failed(4, "SR-7178");
    let older = [&restore("three", "ours.pub")[..], &["--set", "1"]].concat();
    place.run(&older).succeeded();
    let left = place.names().into_iter();
    assert_eq!(left.filter(|name| name.contains("no")).count(), 0);
}

#[test]
fn files_without_a_usable_key_are_refused_before_anything_is_read() {
    let place = place();
    openssl(
        &place,
        "genpkey -algorithm rsa -pkeyopt rsa_keygen_bits:2048 -out rsa.key",
    );
    openssl(
        &place,
        "pkey -in ours.key -aes-256-cbc -passout pass:secret -out sealed.key",
    );
    for (file, why) in [
        ("rsa.key", "another kind"),
        ("sealed.key", "a passphrase"),
        ("ours.pub", "not a key"),
    ] {
        let sealed = ["--key-id", "app", "--sign-key", file];
        let told = place.run(&create("x", &sealed)).failed(3, "SR-7179");
        assert!(told.contains(why), "{file}: {told}");
    }
    assert!(!place.path("medium").exists());
    let sealed = ["--key-id", "app", "--sign-key", "absent"];
    place.run(&create("x", &sealed)).failed(3, "SR-2007");
    // As with every key file: it is used, and warned of.
    let mode = fs::Permissions::from_mode(0o644);
    fs::set_permissions(place.path("ours.key"), mode).expect("it is there");
    let sealed = ["--key-id", "app", "--sign-key", "ours.key"];
    let run = place.run(&create("x", &sealed));
    assert!(run.err.contains("SR-6023"), "{}", run.err);
    run.succeeded();
    // Of several keys in one file the first one alone would count.
    let twice = place.read("ours.pub").repeat(2);
    place.write("both.pub", twice);
    let told = place.run(&restore("no", "both.pub")).failed(3, "SR-7179");
    assert!(told.contains("a file of its own"), "{told}");
    // A private key proves nothing of whom it was shown to.
    place.run(&restore("no", "ours.key")).failed(3, "SR-7179");
    assert!(!place.path("no").exists());
}
