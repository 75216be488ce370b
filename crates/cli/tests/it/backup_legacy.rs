//! `strongroom backup` with ciphers of the past: refused, warned of, and restored like any other
//! set.
//!
//! Method: the real binary on real files; the cipher itself is tested in crates/core/crypto and
//! crates/backup.

use crate::common;

use common::{Place, create};

/// Triple DES only for those who insist, with a warning each time; what it sealed is restored like
/// any other set.
#[test]
fn triple_des_is_refused_unless_it_is_asked_for_twice() {
    let place = Place::with_tree("first file");
    let wanted = ["--key-id", "app", "--algorithm", "triple-des-3key"];
    let run = place.run(&create("old", &wanted));
    run.failed(6, "SR-7170");
    assert!(!place.path("medium").exists());
    for set in ["set 1: ", "set 2: "] {
        let insisted = [&wanted[..], &["--allow-legacy"]].concat();
        let run = place.run(&create("old", &insisted));
        assert!(run.err.contains("warning[SR-7171]"), "{}", run.err);
        assert!(run.succeeded().starts_with(set));
    }
    let header = place.run(&["backup", "header", "medium"]).succeeded();
    assert!(header.contains("triple-des-3key"), "{header}");
    place
        .run(&[
            "backup", "restore", "medium", "--to", "out", "--key-id", "app",
        ])
        .succeeded();
    assert_eq!(place.read("out/one"), place.read("tree/one"));
    assert_eq!(place.read("out/sub/two"), place.read("tree/sub/two"));
    // The flag alone changes nothing.
    let modern = ["--key-id", "app", "--allow-legacy"];
    let run = place.run(&create("new", &modern));
    assert!(!run.err.contains("SR-7171"), "{}", run.err);
    assert!(run.succeeded().ends_with(" aes-256\n"));
}
