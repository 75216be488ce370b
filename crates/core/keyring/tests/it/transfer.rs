//! Export and import: round trip, conflicts, and when a warning is due.

use strongroom_format::keyring::KeyState;
use strongroom_keyring::Keyring;

use crate::keyring::Home;
use crate::{code, passphrase, raw};

#[test]
fn an_export_restores_every_key() {
    let home = Home::new();
    let mut keyring = home.init();
    for name in ["a", "b"] {
        keyring.create_key(name).unwrap();
    }
    keyring.rotate_key("a").unwrap();
    keyring.retire_key("b").unwrap();
    assert!(keyring.unexported());
    let file = home.root("export");
    keyring.export(&file, &passphrase("paper")).unwrap();
    assert!(!keyring.unexported() && !Keyring::open(&home.path).unwrap().unexported());

    let other = Home::new();
    let mut restored = other.init();
    let report = restored.import(&file, &passphrase("paper")).unwrap();
    assert_eq!((report.added.len(), report.unchanged), (3, 0));
    assert!(!restored.unexported(), "the export still holds them");
    let restored = Keyring::open(&other.path).unwrap();
    assert_eq!(restored.list(), keyring.list());
    for key in keyring.list() {
        let version = Some(key.version);
        let (one, two) = (
            keyring.key(&key.name, version),
            restored.key(&key.name, version),
        );
        assert!(one.unwrap().ct_eq(&two.unwrap()));
    }
}

#[test]
fn importing_twice_changes_nothing() {
    let home = Home::new();
    let mut keyring = home.init();
    keyring.create_key("a").unwrap();
    let file = home.root("export");
    keyring.export(&file, &raw(9)).unwrap();
    let before = std::fs::read(&home.path).unwrap();
    let report = keyring.import(&file, &raw(9)).unwrap();
    assert_eq!((report.added.len(), report.unchanged), (0, 1));
    assert_eq!(std::fs::read(&home.path).unwrap(), before);
}

#[test]
fn warnings_are_due_after_new_keys_only() {
    let home = Home::new();
    let mut keyring = home.init();
    assert!(!keyring.unexported(), "nothing to lose yet");
    keyring.create_key("a").unwrap();
    keyring.export(&home.root("one"), &raw(9)).unwrap();
    keyring.retire_key("a").unwrap();
    keyring.rotate_root(None).unwrap();
    assert!(!keyring.unexported());
    keyring.rotate_key("a").unwrap();
    assert!(keyring.unexported());
    keyring.retire_key("a").unwrap();
    assert!(keyring.unexported(), "still");
    keyring.import(&home.root("one"), &raw(9)).unwrap();
    assert!(keyring.unexported(), "the old export lacks version 2");
}

#[test]
fn a_conflict_changes_nothing() {
    let (home, other) = (Home::new(), Home::new());
    let (mut ours, mut theirs) = (home.init(), other.init());
    theirs.create_key("new").unwrap();
    theirs.create_key("same-name").unwrap();
    ours.create_key("same-name").unwrap();
    let file = home.root("export");
    theirs.export(&file, &raw(9)).unwrap();
    let before = std::fs::read(&home.path).unwrap();
    let error = ours.import(&file, &raw(9)).err().unwrap();
    assert_eq!(
        (error.code().number, error.detail()),
        (2021, "same-name version 1")
    );
    assert_eq!(std::fs::read(&home.path).unwrap(), before);
    assert_eq!(ours.list().len(), 1);
}

#[test]
fn where_versions_come_together_only_the_newest_seals() {
    let (home, other) = (Home::new(), Home::new());
    let (mut ours, mut theirs) = (home.init(), other.init());
    ours.create_key("k").unwrap();
    ours.export(&home.root("one"), &raw(9)).unwrap();
    theirs.import(&home.root("one"), &raw(9)).unwrap();
    theirs.rotate_key("k").unwrap();
    theirs.export(&home.root("two"), &raw(9)).unwrap();
    let report = ours.import(&home.root("two"), &raw(9)).unwrap();
    assert_eq!((report.added.len(), report.unchanged), (1, 1));
    let states: Vec<_> = ours
        .list()
        .iter()
        .map(|key| (key.version, key.state))
        .collect();
    assert_eq!(states, [(1, KeyState::Retired), (2, KeyState::Active)]);
    assert!(
        ours.key("k", None)
            .unwrap()
            .ct_eq(&theirs.key("k", Some(2)).unwrap())
    );
}

#[test]
fn what_an_export_and_an_import_refuse() {
    let home = Home::new();
    let mut keyring = home.init();
    keyring.create_key("a").unwrap();
    let own_key = home.source("a", true).unwrap();
    assert_eq!(code(keyring.export(&home.root("export"), &own_key)), 2044);
    assert!(!home.root("export").exists() && keyring.unexported());
    let file = home.root("export");
    keyring.export(&file, &raw(9)).unwrap();
    let bytes = std::fs::read(&file).unwrap();
    assert_eq!(code(keyring.export(&file, &raw(8))), 1002);
    assert_eq!(std::fs::read(&file).unwrap(), bytes);
    assert_eq!(code(keyring.export(&home.root("no/such"), &raw(9))), 5001);
    assert_eq!(code(keyring.import(&file, &raw(8))), 2002);
    assert_eq!(code(keyring.import(&home.root("absent"), &raw(9))), 1006);
    assert_eq!(
        code(Keyring::open(&file)),
        2020,
        "an export has no provider"
    );
    assert_eq!(Keyring::status(&file).unwrap().provider, "export");
    for offset in (0..bytes.len()).step_by(7) {
        let mut bad = bytes.clone();
        bad[offset] ^= 0x40;
        let damaged = home.root(&format!("damaged-{offset}"));
        strongroom_keyring::durable::create_new(&damaged, &bad, 0o600).unwrap();
        let got = code(keyring.import(&damaged, &raw(9)));
        assert!([2005, 3001, 3002].contains(&got), "byte {offset}: {got}");
        std::fs::remove_file(&damaged).unwrap();
    }
}
