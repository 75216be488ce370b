//! Goal: what was told to be archived is there and stays there, and what is not there is never told
//! as the archive's end.

use crate::common;

use std::fs;
use std::io::{self, Read};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Place, key, made, noise, options, put, verified};
use strongroom_backup::{
    CreateOptions, DirectorySource, LocalStore, Mode, Others, Store, Upload, Version, create,
    expire, rewrap_archive, rewrap_set, wal_fetch, wal_partial, wal_push,
};
use strongroom_crypto::sha256;
use strongroom_format::{code, hex};

#[test]
fn archiving_never_makes_a_medium() {
    let place = Place::new();
    let opener = key();
    let name = "000000010000000000000001";
    let push = || wal_push(&place.medium(), name, b"content", &options(Some(&opener)));
    assert_eq!(push().unwrap_err().code(), &code::MEDIUM_ABSENT);
    assert!(!place.at("medium").exists());
    // A mount point without its medium.
    fs::create_dir(place.at("medium")).unwrap();
    assert_eq!(push().unwrap_err().code(), &code::MEDIUM_ABSENT);
    assert_eq!(fs::read_dir(place.at("medium")).unwrap().count(), 0);
    made(&place.medium(), &place.tree(10), &options(Some(&opener))).unwrap();
    assert!(push().unwrap());
    let fetched = wal_fetch(&place.medium(), name, Some(&opener)).unwrap();
    assert_eq!(fetched, b"content");
}

#[test]
fn a_lost_segment_is_not_the_end_of_the_log() {
    let place = Place::new();
    let medium = place.medium();
    made(&medium, &place.tree(10), &options(None)).unwrap();
    let present = [
        "000000010000000000000004",
        "000000010000000000000006",
        "0000000100000001000000FE.partial",
        "000000020000000200000001",
        "00000002.history",
    ];
    for name in present {
        assert!(wal_push(&medium, name, name.as_bytes(), &options(None)).unwrap());
    }
    for (name, expected) in [
        ("000000010000000000000005", &code::WAL_GAP),
        // What is before the first was never archived, or has expired.
        ("000000010000000000000003", &code::WAL_GAP),
        ("000000010000000000000007", &code::WAL_GAP),
        ("0000000100000001000000FD", &code::WAL_GAP),
        ("0000000100000001000000FF", &code::WAL_ABSENT),
        ("000000010000000200000000", &code::WAL_ABSENT),
        ("000000020000000200000000", &code::WAL_GAP),
        ("000000020000000200000002", &code::WAL_ABSENT),
        ("000000030000000000000001", &code::WAL_ABSENT),
        ("00000001.history", &code::WAL_ABSENT),
        ("00000003.history", &code::WAL_ABSENT),
        (
            "000000010000000000000005.00000028.backup",
            &code::WAL_ABSENT,
        ),
    ] {
        let refused = wal_fetch(&medium, name, None).unwrap_err();
        assert_eq!(refused.code(), expected, "{name}");
    }
}

/// The head of an archived file and what its digest would be if it were there.
#[expect(clippy::unwrap_used, reason = "a test that panics has failed")]
fn head_and_digest(place: &Place, name: &str, content: &[u8]) -> (String, String) {
    let object = fs::read(place.at("medium/wal").join(name)).unwrap();
    let head = String::from_utf8_lossy(&object).into_owned();
    let (_, after) = head.split_once("\"set_id\":\"").unwrap();
    let id = hex::from_hex(&after[..32]).unwrap();
    let digest = hex::hex(&sha256(&[&id, content]));
    (head, digest)
}

/// A piece may be one small transaction: whoever reads the medium must not be able to try what it
/// was. A receiver that was killed makes the same piece again, and cannot open what is there when
/// it seals for a certificate.
#[test]
fn a_sealed_piece_has_no_digest_to_guess_by() {
    let place = Place::new();
    let (medium, opener) = (place.medium(), key());
    made(&medium, &place.tree(10), &options(Some(&opener))).unwrap();
    let mut content = vec![0; 40];
    content[2] = 2;
    content[8..16].copy_from_slice(&(16_u64 << 20).to_le_bytes());
    content[32..36].copy_from_slice(&(16_u32 << 20).to_le_bytes());
    let segment = "000000010000000000000001";
    let piece = format!("{segment}.00000000.00000028.piece");
    let sealing = options(Some(&opener));
    assert!(wal_push(&medium, &piece, &content, &sealing).unwrap());
    let (head, digest) = head_and_digest(&place, &piece, &content);
    assert!(!head.contains(&digest) && !head.contains("content_digest"));
    // Once more: what is there is replaced by the same, and stays readable.
    assert!(wal_push(&medium, &piece, &content, &sealing).unwrap());
    assert_ne!(head_and_digest(&place, &piece, &content).0, head);
    assert_eq!(wal_fetch(&medium, &piece, Some(&opener)).unwrap(), content);
    let found = wal_partial(&medium, segment, Some(&opener)).unwrap();
    assert_eq!(found.unwrap().received, 40);
    // One whose file says that it is another's is not replaced.
    let other = format!("{segment}.00000028.00000050.piece");
    let of = |name: &str| place.at("medium/wal").join(name);
    fs::copy(of(&piece), of(&other)).unwrap();
    let refused = wal_push(&medium, &other, &content, &sealing).unwrap_err();
    assert_eq!(refused.code(), &code::SET_HEAD);
    // A whole segment keeps its digest, by which it is told from another one under its name.
    let whole = "000000010000000000000002";
    assert!(wal_push(&medium, whole, &content, &sealing).unwrap());
    let (head, digest) = head_and_digest(&place, whole, &content);
    assert!(head.contains(&digest));
    assert!(!wal_push(&medium, whole, &content, &sealing).unwrap());
}

/// What an older build made has a digest, and is told from another piece under its name.
#[test]
fn a_piece_with_a_digest_is_not_replaced_by_another() {
    let place = Place::new();
    let medium = place.medium();
    made(&medium, &place.tree(10), &options(None)).unwrap();
    let piece = "000000010000000000000001.00000000.00000028.piece";
    assert!(wal_push(&medium, piece, &[1; 40], &options(None)).unwrap());
    assert!(!wal_push(&medium, piece, &[1; 40], &options(None)).unwrap());
    let refused = wal_push(&medium, piece, &[2; 40], &options(None)).unwrap_err();
    assert_eq!(refused.code(), &code::WAL_DIFFERS);
    assert_eq!(wal_fetch(&medium, piece, None).unwrap(), [1; 40]);
}

#[test]
fn a_piece_says_no_size_that_a_segment_cannot_have() {
    let place = Place::new();
    let medium = place.medium();
    made(&medium, &place.tree(10), &options(None)).unwrap();
    let sizes: [(u64, bool); 5] = [
        (16 << 20, true),
        (1 << 20, true),
        (3 << 20, false),
        (1 << 31, false),
        (1 << 19, false),
    ];
    for (number, (size, sound)) in (1_u64..).zip(sizes) {
        let name = format!("0000000{number}0000000000000001");
        let mut content = vec![0; 40];
        content[2] = 2;
        content[8..16].copy_from_slice(&size.to_le_bytes());
        content[32..36].copy_from_slice(&u32::try_from(size).unwrap().to_le_bytes());
        let piece = format!("{name}.00000000.00000028.piece");
        assert!(wal_push(&medium, &piece, &content, &options(None)).unwrap());
        match wal_partial(&medium, &name, None) {
            Ok(found) => {
                let found = found.unwrap();
                assert!(sound, "{size}");
                assert_eq!((found.received, found.content.len() as u64), (40, size));
            }
            Err(error) => assert!(!sound && error.code() == &code::SET_HEAD, "{size}"),
        }
    }
    // Another segment's beginning.
    let mut content = vec![0; 40];
    content[2] = 2;
    content[34] = 16;
    let piece = "000000090000000000000001.00000000.00000028.piece";
    assert!(wal_push(&medium, piece, &content, &options(None)).unwrap());
    let refused = wal_partial(&medium, "000000090000000000000001", None).unwrap_err();
    assert_eq!(refused.code(), &code::SET_HEAD);
}

#[test]
fn what_is_there_already_must_be_whole_and_this_file() {
    let place = Place::new();
    let medium = place.medium();
    let opener = key();
    let options = options(Some(&opener));
    made(&medium, &place.tree(10), &options).unwrap();
    let (name, other) = ("000000010000000000000001", "000000010000000000000002");
    let content = noise(3_000_000);
    assert!(wal_push(&medium, name, &content, &options).unwrap());
    assert!(!wal_push(&medium, name, &content, &options).unwrap());
    let refused = wal_push(&medium, name, b"another", &options).unwrap_err();
    assert_eq!(refused.code(), &code::WAL_DIFFERS);
    let path = place.at("medium/wal").join(name);
    let whole = fs::read(&path).unwrap();
    put(&path, &whole[..whole.len() - 1]);
    let refused = wal_push(&medium, name, &content, &options).unwrap_err();
    assert_eq!(refused.code(), &code::FAMILY_SHORT);
    put(&path, &[&whole[..], b"x"].concat());
    let refused = wal_push(&medium, name, &content, &options).unwrap_err();
    assert_eq!(refused.code(), &code::FAMILY_SHORT);
    put(&path, &whole);
    put(&place.at("medium/wal").join(other), &whole);
    let refused = wal_push(&medium, other, &content, &options).unwrap_err();
    assert_eq!(refused.code(), &code::SET_HEAD);
    // A set under the name of a file.
    let set = fs::read(place.at("medium/sets/00000001")).unwrap();
    put(&place.at("medium/wal").join(other), &set);
    let refused = wal_push(&medium, other, &content, &options).unwrap_err();
    assert_eq!(refused.code(), &code::SET_HEAD);
}

#[test]
fn what_is_there_already_is_made_durable_first() {
    let place = Place::new();
    let opener = key();
    let options = options(Some(&opener));
    made(&place.medium(), &place.tree(10), &options).unwrap();
    let watched = Watched {
        store: place.medium(),
        synced: Mutex::default(),
        fails: AtomicBool::new(false),
    };
    let name = "000000010000000000000001";
    assert!(wal_push(&watched, name, b"content", &options).unwrap());
    assert!(watched.synced.lock().unwrap().is_empty());
    assert!(!wal_push(&watched, name, b"content", &options).unwrap());
    assert_eq!(*watched.synced.lock().unwrap(), [format!("wal/{name}")]);
    watched.fails.store(true, Ordering::Relaxed);
    let refused = wal_push(&watched, name, b"content", &options).unwrap_err();
    assert_eq!(refused.code(), &code::IO);
}

#[test]
fn what_was_removed_does_not_come_back_under_another_key() {
    let place = Place::new();
    let medium = place.medium();
    let (old, new) = (key(), key());
    let options = options(Some(&old));
    made(&medium, &place.tree(10), &options).unwrap();
    let name = "000000010000000000000001";
    assert!(wal_push(&medium, name, b"content", &options).unwrap());
    for (directory, object) in [("sets", "sets/00000001"), ("wal", &format!("wal/{name}"))] {
        let path = place.at("medium").join(object);
        // Whoever removes it was faster.
        let other = fs::File::open(place.at("medium").join(directory)).unwrap();
        other.lock().unwrap();
        std::thread::scope(|scope| {
            let rewrapped = scope.spawn(|| {
                if directory == "sets" {
                    return rewrap_set(
                        &medium,
                        1,
                        &old,
                        &[&new.recipient().unwrap()],
                        Others::Refuse,
                    )
                    .map(|()| 1);
                }
                rewrap_archive(
                    &medium,
                    &old,
                    &[&new.recipient().unwrap()],
                    Others::Refuse,
                    &mut |_, error| Err(error),
                )
            });
            std::thread::sleep(std::time::Duration::from_millis(500));
            fs::remove_file(&path).unwrap();
            drop(other);
            let refused = rewrapped.join().unwrap().unwrap_err();
            assert_eq!(refused.code(), &code::SET_ABSENT);
        });
        assert!(!path.exists());
    }
}

#[test]
fn other_recipients_are_not_dropped_unasked() {
    let place = Place::new();
    let medium = place.medium();
    let (old, escrow, new) = (key(), key(), key());
    let mut options = options(Some(&old));
    options.recipients.push(escrow.recipient().unwrap());
    made(&medium, &place.tree(10), &options).unwrap();
    let name = "000000010000000000000001";
    assert!(wal_push(&medium, name, b"content", &options).unwrap());
    let rewrap = |others| {
        let set = rewrap_set(&medium, 1, &old, &[&new.recipient().unwrap()], others);
        let log = rewrap_archive(
            &medium,
            &old,
            &[&new.recipient().unwrap()],
            others,
            &mut |_, error| Err(error),
        );
        (set, log)
    };
    let (set, log) = rewrap(Others::Refuse);
    assert_eq!(set.unwrap_err().code(), &code::OTHER_RECIPIENTS);
    assert_eq!(log.unwrap_err().code(), &code::OTHER_RECIPIENTS);
    for opener in [&old, &escrow] {
        verified(&medium, Some(1), Some(opener)).unwrap();
        wal_fetch(&medium, name, Some(opener)).unwrap();
    }
    let (set, log) = rewrap(Others::Drop);
    set.unwrap();
    assert_eq!(log.unwrap(), 1);
    for opener in [&old, &escrow] {
        let refused = wal_fetch(&medium, name, Some(opener)).unwrap_err();
        assert_eq!(refused.code(), &code::WRONG_KEY);
    }
    verified(&medium, Some(1), Some(&new)).unwrap();
    wal_fetch(&medium, name, Some(&new)).unwrap();
    // One recipient for another needs no word.
    rewrap_set(
        &medium,
        1,
        &new,
        &[&old.recipient().unwrap()],
        Others::Refuse,
    )
    .unwrap();
}

/// And whoever removes waits for whoever has read what it will replace.
#[test]
fn what_is_being_rewrapped_is_removed_afterwards() {
    let place = Place::new();
    let medium = place.medium();
    let tree = place.tree(10);
    made(&medium, &tree, &options(None)).unwrap();
    made(&medium, &tree, &options(None)).unwrap();
    let other = fs::File::open(place.at("medium/sets")).unwrap();
    other.lock().unwrap();
    std::thread::scope(|scope| {
        let expired = scope.spawn(|| expire(&medium, 1, false));
        std::thread::sleep(std::time::Duration::from_millis(500));
        assert!(place.at("medium/sets/00000001").exists());
        drop(other);
        assert_eq!(expired.join().unwrap().unwrap().sets, [1]);
    });
    assert!(!place.at("medium/sets/00000001").exists());
}

#[test]
fn a_set_is_made_though_older_ones_cannot_be_removed() {
    let place = Place::new();
    let tree = place.tree(10);
    made(&place.medium(), &tree, &options(None)).unwrap();
    let watched = Watched {
        store: place.medium(),
        synced: Mutex::default(),
        fails: AtomicBool::new(true),
    };
    let init = CreateOptions {
        mode: Mode::Init,
        ..options(None)
    };
    let mut source = DirectorySource::new(&tree);
    let created = create(&watched, &mut source, &init, &mut |_| {}).unwrap();
    assert_eq!(created.position, 2);
    assert_eq!(created.not_cleared.unwrap().code(), &code::IO);
    for set in [1, 2] {
        verified(&place.medium(), Some(set), None).unwrap();
    }
    watched.fails.store(false, Ordering::Relaxed);
    let created = create(&watched, &mut source, &init, &mut |_| {}).unwrap();
    assert!(created.not_cleared.is_none());
    assert!(!place.at("medium/sets/00000001").exists());
}

/// A directory of which is known what was made durable once more, and that can fail.
struct Watched {
    store: LocalStore,
    synced: Mutex<Vec<String>>,
    fails: AtomicBool,
}

impl Store for Watched {
    fn sync(&self, name: &str) -> io::Result<()> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Other.into());
        }
        self.store.sync(name)?;
        let synced = self.synced.lock();
        synced
            .map_err(|_| io::ErrorKind::Other)?
            .push(name.to_owned());
        Ok(())
    }

    fn read(&self, name: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
        self.store.read(name, limit)
    }

    fn open(&self, name: &str) -> io::Result<(Box<dyn Read + Send>, u64)> {
        self.store.open(name)
    }

    fn create_new(&self, name: &str, bytes: &[u8]) -> io::Result<bool> {
        self.store.create_new(name, bytes)
    }

    fn replace(&self, name: &str, bytes: &[u8], seen: &Version) -> io::Result<bool> {
        self.store.replace(name, bytes, seen)
    }

    fn begin(&self, name: &str) -> io::Result<Box<dyn Upload>> {
        self.store.begin(name)
    }

    fn list(&self, directory: &str) -> io::Result<Vec<(String, u64)>> {
        self.store.list(directory)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Other.into());
        }
        self.store.remove(name)
    }

    fn lock_writers(&self, alone: bool) -> io::Result<Option<Box<dyn Send>>> {
        self.store.lock_writers(alone)
    }

    fn lock_changes(&self, directory: &str) -> io::Result<Box<dyn Send>> {
        self.store.lock_changes(directory)
    }

    fn is_empty(&self) -> io::Result<bool> {
        self.store.is_empty()
    }

    fn prepare(&self) -> io::Result<()> {
        self.store.prepare()
    }

    fn shown(&self) -> String {
        self.store.shown()
    }
}
