//! The keyring: life of keys, root rotation, damage, concurrent writers.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use strongroom_format::keyring::KeyState;
use strongroom_keyring::durable::replace;
use strongroom_keyring::{
    Error, KeySource, Keyring, Provider, SourceContext, take_older_keyring_warning,
};

use crate::{code, files_in, new_object, open, raw, with_checksum};

/// A directory with a root key file and room for a keyring.
pub(crate) struct Home {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) path: PathBuf,
}

impl Home {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("data/keyring");
        let home = Self { directory, path };
        home.write_root("root", b'a');
        home
    }

    pub(crate) fn root(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write_root(&self, name: &str, digit: u8) {
        replace(&self.root(name), &[digit; 64], 0o600).expect("a root key file");
    }

    pub(crate) fn provider(&self, name: &str) -> Provider {
        let text = format!("file:{}", self.root(name).display());
        Provider::parse(&text).expect("a provider")
    }

    pub(crate) fn init(&self) -> Keyring {
        Keyring::init(&self.path, &self.provider("root")).expect("a keyring")
    }

    pub(crate) fn source(
        &self,
        id: &str,
        creating: bool,
    ) -> Result<strongroom_keyring::Opener, Error> {
        let context = SourceContext {
            keyring: Some(self.path.clone()),
            creating,
            ..Default::default()
        };
        KeySource::KeyId { id: id.to_owned() }.opener(&context)
    }
}

fn mode(path: &Path) -> u32 {
    path.metadata().expect("a file").permissions().mode() & 0o777
}

fn states(keyring: &Keyring, name: &str) -> Vec<(u32, KeyState)> {
    let keys = keyring.list().into_iter().filter(|key| key.name == name);
    keys.map(|key| (key.version, key.state)).collect()
}

#[test]
fn init_is_private_and_never_overwrites() {
    let home = Home::new();
    assert_eq!(code(Keyring::open(&home.path)), 2004);
    assert_eq!(code(Keyring::status(&home.path)), 2004);
    let keyring = home.init();
    assert_eq!(
        (mode(&home.path), mode(home.path.parent().unwrap())),
        (0o600, 0o700)
    );
    assert_eq!(
        code(Keyring::init(&home.path, &home.provider("root"))),
        2015
    );
    assert!(keyring.list().is_empty() && !keyring.unexported());
    let link = home.root("link");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    assert_eq!(code(Keyring::init(&link, &home.provider("root"))), 2015);
}

#[test]
fn the_life_of_a_key() {
    let home = Home::new();
    let mut keyring = home.init();
    assert_eq!(keyring.create_key("app").unwrap().version, 1);
    assert_eq!(code(keyring.create_key("app")), 2014);
    assert_eq!(code(keyring.create_key("a/b")), 2013);
    for unknown in [
        code(keyring.rotate_key("other")),
        code(keyring.retire_key("other")),
    ] {
        assert_eq!(unknown, 2003);
    }
    let first = new_object(&home.source("app", true).unwrap()).header_bytes();
    assert_eq!(keyring.rotate_key("app").unwrap().version, 2);
    assert_eq!(
        states(&keyring, "app"),
        [(1, KeyState::Retired), (2, KeyState::Active)]
    );
    let opener = home.source("app", true).unwrap();
    let second = new_object(&opener).header_bytes();
    for header in [&first, &second] {
        assert_eq!(code(open(header, &opener)), 0);
    }
    keyring.retire_key("app").unwrap();
    let generation = Keyring::status(&home.path).unwrap().generation;
    keyring.retire_key("app").unwrap();
    assert_eq!(
        Keyring::status(&home.path).unwrap().generation,
        generation,
        "nothing to write"
    );
    assert_eq!(code(home.source("app", true)), 2012);
    let opener = home.source("app", false).unwrap();
    assert_eq!(code(open(&second, &opener)), 0, "a retired key opens");
    assert_eq!(
        code(strongroom_keyring::Object::create(
            &crate::SQLITE,
            &crate::recipient(&opener)
        )),
        2012
    );
    assert_eq!(keyring.rotate_key("app").unwrap().version, 3);
    assert_eq!(code(home.source("app", true)), 0);
    assert_eq!(code(home.source("absent", false)), 2003);
}

#[test]
fn an_older_copy_that_is_put_back_seals_nothing_and_is_not_changed() {
    let home = Home::new();
    let mut keyring = home.init();
    keyring.create_key("app").unwrap();
    let older = fs::read(&home.path).unwrap();
    keyring.rotate_key("app").unwrap();
    let newest = fs::read(&home.path).unwrap();
    assert!(!take_older_keyring_warning());

    replace_quickly(&home.path, &older);
    // Version 1, which is retired, seems active in it.
    assert_eq!(code(home.source("app", true)), 2039);
    assert!(take_older_keyring_warning());
    let opener = home.source("app", false);
    assert_eq!(code(opener), 0, "what is sealed still opens");
    assert!(take_older_keyring_warning());
    let mut reopened = Keyring::open(&home.path).unwrap();
    for refused in [
        code(reopened.rotate_key("app")),
        code(reopened.create_key("other")),
        code(reopened.rotate_root(None)),
        code(keyring.rotate_key("app")),
    ] {
        assert_eq!(refused, 2039);
    }
    assert_eq!(fs::read(&home.path).unwrap(), older);

    // The newest copy is good again; then it is lost for good.
    replace_quickly(&home.path, &newest);
    assert_eq!(code(home.source("app", true)), 0);
    replace_quickly(&home.path, &older);
    let mut accepted = Keyring::open(&home.path).unwrap();
    assert!(accepted.accept_older().unwrap());
    assert!(!accepted.accept_older().unwrap());
    assert_eq!(accepted.rotate_key("app").unwrap().version, 2);
    assert_eq!(code(home.source("app", true)), 0);
    assert!(take_older_keyring_warning());
    replace_quickly(&home.path, &newest);
    assert_eq!(code(home.source("app", true)), 2039, "it is the older now");

    // Another keyring under the name is none of its copies, and a torn record says nothing.
    let lock = home.path.with_file_name("keyring.lock");
    replace_quickly(&lock, b"07");
    assert_eq!(code(home.source("app", true)), 0);
    fs::remove_file(&home.path).unwrap();
    home.init().create_key("app").unwrap();
    assert_eq!(code(home.source("app", true)), 0);
}

#[test]
fn keys_are_what_they_were_and_differ() {
    let home = Home::new();
    let mut keyring = home.init();
    for name in ["a", "b"] {
        keyring.create_key(name).unwrap();
    }
    keyring.rotate_key("a").unwrap();
    let again = Keyring::open(&home.path).unwrap();
    let keys = [("a", Some(1)), ("a", Some(2)), ("b", None)];
    for (index, (name, version)) in keys.into_iter().enumerate() {
        let key = keyring.key(name, version).unwrap();
        assert!(key.ct_eq(&again.key(name, version).unwrap()));
        for (other, other_version) in &keys[index + 1..] {
            assert!(!key.ct_eq(&keyring.key(other, *other_version).unwrap()));
        }
    }
    assert!(
        keyring
            .key("a", None)
            .unwrap()
            .ct_eq(&keyring.key("a", Some(2)).unwrap())
    );
    assert_eq!(code(keyring.key("a", Some(3))), 2003);
    assert_eq!(code(keyring.key("c", None)), 2003);
    keyring.retire_key("b").unwrap();
    assert_eq!(
        (
            code(keyring.key("b", None)),
            code(keyring.key("b", Some(1)))
        ),
        (2012, 0)
    );
}

#[test]
fn status_needs_no_root_key() {
    let home = Home::new();
    home.init().create_key("app").unwrap();
    fs::remove_file(home.root("root")).unwrap();
    let status = Keyring::status(&home.path).unwrap();
    assert_eq!((status.provider, status.keys.len()), ("file", 1));
    assert_eq!(
        status.provider_argument,
        home.root("root").to_str().unwrap()
    );
    assert!(status.unexported);
    assert_eq!(code(Keyring::open(&home.path)), 2007);
}

#[test]
fn the_wrong_root_is_told_from_damage() {
    let home = Home::new();
    home.init();
    home.write_root("root", b'b');
    assert_eq!(code(Keyring::open(&home.path)), 2006);
    replace(&home.root("root"), b"a passphrase", 0o600).unwrap();
    assert_eq!(code(Keyring::open(&home.path)), 2006);
}

#[test]
fn every_flipped_byte_is_found() {
    let home = Home::new();
    let mut keyring = home.init();
    keyring.create_key("app").unwrap();
    keyring.rotate_key("app").unwrap();
    let good = fs::read(&home.path).unwrap();
    assert!(good.len() > 4096 + 40 + 2 * 256 + 32);
    let target = home.root("damaged");
    for offset in 0..good.len() {
        let mut bad = good.clone();
        bad[offset] ^= 1 << (offset % 8);
        replace_quickly(&target, &bad);
        let expected: &[u16] = match offset {
            0..16 => &[3001],
            16 => &[2005],
            17 => &[3002],
            // The provider is read before it can be authenticated: another kind or another file.
            4120..4122 => &[2005, 2008, 2020],
            4136.. if offset < 4136 + home.root("root").as_os_str().len() => &[2007, 2020, 2005],
            _ => &[2005],
        };
        let got = code(Keyring::open(&target));
        assert!(expected.contains(&got), "byte {offset}: {got}");
    }
    // The same by someone who mends the header's checksum: found by key or MAC.
    for offset in 18..3040 {
        let mut bad = good.clone();
        bad[offset] ^= 1 << (offset % 8);
        replace_quickly(&target, &with_checksum(bad));
        let got = code(Keyring::open(&target));
        assert!([2005, 2006, 3007].contains(&got), "byte {offset}: {got}");
    }
}

/// Tests of damage need no durability.
fn replace_quickly(path: &Path, bytes: &[u8]) {
    use std::io::Write;
    let mut file = fs::File::create(path).expect("a file");
    file.write_all(bytes).expect("writing");
}

#[test]
fn truncation_and_extension_are_found() {
    let home = Home::new();
    home.init().create_key("app").unwrap();
    let good = fs::read(&home.path).unwrap();
    let target = home.root("damaged");
    for length in 0..good.len() {
        replace_quickly(&target, &good[..length]);
        let expected = if length < 16 { 3001 } else { 2005 };
        assert_eq!(code(Keyring::open(&target)), expected, "length {length}");
        assert_eq!(code(Keyring::status(&target)), expected, "length {length}");
    }
    replace_quickly(&target, &[good.as_slice(), b"x"].concat());
    assert_eq!(code(Keyring::open(&target)), 2005);
}

#[test]
fn other_files_are_not_keyrings() {
    let home = Home::new();
    home.init();
    let target = home.root("other");
    replace(&target, &new_object(&raw(1)).initial_bytes(), 0o600).unwrap();
    assert_eq!(code(Keyring::open(&target)), 3007);
    replace(&target, b"SQLite format 3\0", 0o600).unwrap();
    assert_eq!(code(Keyring::open(&target)), 3001);
    assert_eq!(code(Keyring::open(home.directory.path())), 5001);
}

#[test]
fn a_damaged_keyring_is_not_written_to() {
    let home = Home::new();
    let mut keyring = home.init();
    keyring.create_key("app").unwrap();
    let mut bad = fs::read(&home.path).unwrap();
    let last = bad.len() - 1;
    bad[last] ^= 1;
    replace(&home.path, &bad, 0o600).unwrap();
    assert_eq!(code(keyring.create_key("b")), 2005);
    assert_eq!(fs::read(&home.path).unwrap(), bad);
}

#[test]
fn after_root_rotation_the_old_root_is_refused() {
    let home = Home::new();
    let mut keyring = home.init();
    keyring.create_key("app").unwrap();
    let key = keyring.key("app", None).unwrap();
    let mut other_process = Keyring::open(&home.path).unwrap();
    home.write_root("new-root", b'b');
    assert!(
        keyring
            .rotate_root(Some(home.provider("new-root")))
            .unwrap()
    );
    assert!(keyring.key("app", None).unwrap().ct_eq(&key));
    let reopened = Keyring::open(&home.path).unwrap();
    assert!(reopened.key("app", None).unwrap().ct_eq(&key));
    assert_eq!(code(other_process.create_key("b")), 2017, "must open again");
    home.write_root("new-root", b'a');
    assert_eq!(code(Keyring::open(&home.path)), 2006, "the old root");
    home.write_root("new-root", b'b');
    let before = fs::read(&home.path).unwrap();
    assert!(
        !keyring.rotate_root(None).unwrap(),
        "the same root key, a new data key"
    );
    assert_ne!(fs::read(&home.path).unwrap()[4096..], before[4096..]);
    home.write_root("new-root", b'c');
    assert!(
        keyring.rotate_root(None).unwrap(),
        "the same provider, another root key"
    );
    assert!(
        Keyring::open(&home.path)
            .unwrap()
            .key("app", None)
            .unwrap()
            .ct_eq(&key)
    );
    assert_eq!(
        files_in(home.path.parent().unwrap()),
        ["keyring", "keyring.lock"]
    );
}

#[test]
fn a_failed_root_rotation_changes_nothing() {
    let home = Home::new();
    let mut keyring = home.init();
    keyring.create_key("app").unwrap();
    let before = fs::read(&home.path).unwrap();
    assert_eq!(
        code(keyring.rotate_root(Some(home.provider("absent")))),
        2007
    );
    assert_eq!(fs::read(&home.path).unwrap(), before);
}

#[test]
fn providers_by_command_and_environment() {
    let home = Home::new();
    let hex = "0123456789abcdef".repeat(4);
    let command = Provider::parse(&format!("command:echo encryptionkey={hex}")).unwrap();
    let path = home.root("by-command");
    Keyring::init(&path, &command).unwrap();
    assert_eq!(code(Keyring::open(&path)), 0);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
    assert_eq!(
        code(Keyring::open(&path)),
        2020,
        "others may write to it: not run"
    );
    assert_eq!(Keyring::status(&path).unwrap().provider, "command");
    let path = home.root("by-environment");
    Keyring::init(&path, &Provider::parse("env:PATH").unwrap()).unwrap();
    assert_eq!(code(Keyring::open(&path)), 0);
    let absent = Provider::parse("env:STRONGROOM_TEST_NO_SUCH_VARIABLE").unwrap();
    let path = home.root("by-nothing");
    assert_eq!(code(Keyring::init(&path, &absent)), 2008);
    assert!(!path.exists());
}

#[test]
fn whose_file_it_is_is_asked_of_the_file_that_was_read() {
    let home = Home::new();
    let (mark, at) = (home.root("mark"), home.root("at"));
    let hex = "0123456789abcdef".repeat(4);
    let line = format!("command:touch {}; echo encryptionkey={hex}", mark.display());
    let planted = home.root("planted");
    Keyring::init(&planted, &Provider::parse(&line).unwrap()).unwrap();
    fs::remove_file(&mark).unwrap();
    // What is read is a pipe that everybody may write to; before its end something private has its
    // name.
    let bytes = fs::read(&planted).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(rustix::fs::CWD, &at, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    fs::set_permissions(&at, fs::Permissions::from_mode(0o666)).unwrap();
    let writer = std::thread::spawn({
        let at = at.clone();
        move || {
            let mut pipe = fs::File::options().write(true).open(&at).unwrap();
            std::io::Write::write_all(&mut pipe, &bytes).unwrap();
            rustix::fs::rename(&planted, &at).unwrap();
        }
    });
    assert_eq!(code(Keyring::open(&at)), 2020);
    writer.join().unwrap();
    assert!(!mark.exists(), "the command was run");
    assert_eq!(code(Keyring::open(&at)), 0, "the private one");
}

#[test]
fn concurrent_writers_lose_nothing() {
    let home = Home::new();
    home.init();
    let (writers, keys) = (6, 5);
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let path = &home.path;
            scope.spawn(move || {
                let mut keyring = Keyring::open(path).unwrap();
                for key in 0..keys {
                    keyring.create_key(&format!("{writer}-{key}")).unwrap();
                }
            });
        }
    });
    let keyring = Keyring::open(&home.path).unwrap();
    assert_eq!(keyring.list().len(), writers * keys);
    for key in keyring.list() {
        assert_eq!(code(keyring.key(&key.name, None)), 0);
    }
    let generation = Keyring::status(&home.path).unwrap().generation;
    assert_eq!(generation, 1 + u64::try_from(writers * keys).unwrap());
    assert_eq!(
        files_in(home.path.parent().unwrap()),
        ["keyring", "keyring.lock"]
    );
}

#[test]
fn a_linked_keyring_is_replaced_where_it_is() {
    let home = Home::new();
    home.init();
    let link = home.root("link");
    std::os::unix::fs::symlink(&home.path, &link).unwrap();
    Keyring::open(&link).unwrap().create_key("app").unwrap();
    assert!(link.is_symlink());
    assert_eq!(Keyring::status(&home.path).unwrap().keys.len(), 1);
}

#[test]
fn nothing_of_a_key_stands_in_the_file() {
    let home = Home::new();
    let mut keyring = home.init();
    keyring.create_key("app").unwrap();
    let key = *keyring.key("app", None).unwrap().expose();
    let file = fs::read(&home.path).unwrap();
    for part in key.chunks(8) {
        assert!(!file.windows(part.len()).any(|window| window == part));
    }
}
