//! Goal: a medium in an object store keeps what one in a directory keeps, through lost connections
//! and answers and beside other writers, and gives nothing away. Method: a real S3 server (moto), a
//! relay that loses what a test says.
#![cfg(feature = "object-store")]
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::{Place, key, options, picture, put};
use strongroom_backup::{
    Compression, DirectorySource, Error, Mode, ObjectMedium, Others, RestoreOptions, Store, create,
    expire, list, open_set, restore, rewrap_archive, rewrap_set, verify, wal_fetch, wal_push,
};
use strongroom_format::code;
use strongroom_keyring::Opener;
use strongroom_testing_support::port::free_port;
use strongroom_testing_support::s3::{self, BUCKET, Fate, Relay, S3, settings};

fn medium(port: u16, prefix: &str) -> ObjectMedium {
    patient(port, prefix, 20)
}

fn patient(port: u16, prefix: &str, seconds: u64) -> ObjectMedium {
    let url = format!("s3://{BUCKET}/{prefix}");
    let patience = Duration::from_secs(seconds);
    ObjectMedium::open(&url, settings(port).into_iter(), patience).unwrap()
}

fn checked(store: &dyn Store, set: Option<u32>, opener: &Opener) -> Result<u64, Error> {
    let set = open_set(store, set, Some(opener))?;
    Ok(verify(&set, 2, &mut |_| {})?.files)
}

fn made(
    store: &dyn Store,
    tree: &std::path::Path,
    opener: &Opener,
    mode: Mode,
    stripes: u16,
) -> Result<u32, Error> {
    let mut options = options(Some(opener));
    options.mode = mode;
    options.stripes = Some(stripes);
    options.compression = Compression::None;
    let mut source = DirectorySource::new(tree);
    Ok(create(store, &mut source, &options, &mut |_| {})?.position)
}

#[test]
fn sets_in_a_bucket_are_what_they_were() {
    let (place, opener, s3) = (Place::new(), key(), S3::started());
    let tree = place.tree(21 << 20);
    let store = medium(s3.port, "a b/c");
    assert_eq!(list(&store).unwrap_err().code(), &code::MEDIUM_ABSENT);
    assert_eq!(made(&store, &tree, &opener, Mode::Append, 2).unwrap(), 1);
    put(&tree.join("added"), b"CANARY-7c1e later");
    assert_eq!(made(&store, &tree, &opener, Mode::Append, 2).unwrap(), 2);
    let other = made(&store, &tree, &opener, Mode::Append, 3).unwrap_err();
    assert_eq!(other.code(), &code::STRIPES);
    let listed = list(&store).unwrap();
    assert_eq!(listed.sets.len(), 2);
    assert!(listed.unreadable.is_empty());
    checked(&store, Some(1), &opener).unwrap();
    let to = place.at("restored");
    let wanted = RestoreOptions {
        to: to.clone(),
        tablespaces: None,
        threads: 2,
        recovery: None,
        kept: strongroom_backup::Kept::default(),
        sealing: None,
        delta: None,
        stop: None,
    };
    let set = open_set(&store, None, Some(&opener)).unwrap();
    restore(&set, &wanted, &mut |_| {}).unwrap();
    assert_eq!(picture(&to), picture(&tree));
    s3.nothing_has("CANARY-7c1e");
    s3.nothing_has(s3::SECRET);
    assert_eq!(s3.unfinished(), 0);
    // Each in its place: another prefix is another medium.
    assert!(list(&medium(s3.port, "a")).is_err());
    let foreign = made(&medium(s3.port, "a b"), &tree, &opener, Mode::Append, 1);
    assert_eq!(foreign.unwrap_err().code(), &code::MEDIUM_FOREIGN);
}

#[test]
fn sets_are_replaced_expired_and_begun_anew() {
    let (place, opener, s3) = (Place::new(), key(), S3::started());
    let tree = place.tree(1000);
    let store = medium(s3.port, "m");
    for position in 1..=3 {
        let made = made(&store, &tree, &opener, Mode::Append, 1);
        assert_eq!(made.unwrap(), position);
    }
    // What a killed writer leaves is young: it may be at work.
    let mut orphan = store
        .begin("data/00112233445566778899aabbccddeeff.0")
        .unwrap();
    orphan.write_all(b"of a set without a head").unwrap();
    orphan.finish().unwrap();
    assert_eq!(expire(&store, 2, false).unwrap().sets, [1]);
    assert_eq!(made(&store, &tree, &opener, Mode::Init, 1).unwrap(), 4);
    let before = list(&store).unwrap().head.unwrap().medium_id;
    assert_eq!(made(&store, &tree, &opener, Mode::Format, 3).unwrap(), 5);
    let listed = list(&store).unwrap();
    assert_ne!(listed.head.unwrap().medium_id, before);
    assert_eq!(s3.heads(), ["m/sets/00000005"]);
    assert_eq!(checked(&store, None, &opener).unwrap(), 6);
    let orphan = "m/data/00112233445566778899aabbccddeeff.0".to_owned();
    assert!(s3.names().contains(&orphan));
}

#[test]
fn writers_at_once_lose_no_set() {
    let (place, opener, s3) = (Place::new(), key(), S3::started());
    let tree = place.tree(300_000);
    let port = s3.port;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (tree, opener) = (&tree, &opener);
            scope.spawn(move || {
                let store = medium(port, "m");
                made(&store, tree, opener, Mode::Append, 1).unwrap();
            });
        }
    });
    let store = medium(port, "m");
    let listed = list(&store).unwrap();
    let positions: Vec<u32> = listed.sets.iter().map(|set| set.position).collect();
    assert_eq!(positions, [1, 2, 3, 4]);
    for position in positions {
        checked(&store, Some(position), &opener).unwrap();
    }
    // Of two that begin the medium anew, one at least succeeds, and what is told as made is there
    // or was replaced by the other.
    let done: Vec<_> = std::thread::scope(|scope| {
        let two = [0, 1].map(|_| {
            let (tree, opener) = (&tree, &opener);
            scope.spawn(move || made(&medium(port, "m"), tree, opener, Mode::Format, 1))
        });
        two.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(done.iter().any(Result::is_ok), "{done:?}");
    for refused in done.iter().filter_map(|done| done.as_ref().err()) {
        assert_eq!(refused.code(), &code::MEDIUM_CHANGED);
    }
    assert_eq!(list(&store).unwrap().sets.len(), 1);
    checked(&store, None, &opener).unwrap();
}

#[test]
fn what_was_replaced_or_removed_since_it_was_read_is_not_written() {
    let (place, s3) = (Place::new(), S3::started());
    let (one, other, third) = (key(), key(), key());
    let tree = place.tree(1000);
    let store = medium(s3.port, "m");
    made(&store, &tree, &one, Mode::Append, 1).unwrap();
    let name = "sets/00000001";
    let (bytes, seen) = store.read_version(name, 1 << 20).unwrap().unwrap();
    rewrap_set(
        &store,
        1,
        &one,
        &[&other.recipient().unwrap()],
        Others::Refuse,
    )
    .unwrap();
    assert!(!store.replace(name, &bytes, &seen).unwrap());
    checked(&store, Some(1), &other).unwrap();
    let refused = checked(&store, Some(1), &one).unwrap_err();
    assert_eq!(refused.code(), &code::WRONG_KEY);
    let (_, seen) = store.read_version(name, 1 << 20).unwrap().unwrap();
    store.remove(name).unwrap();
    store.remove(name).unwrap();
    assert!(!store.replace(name, &bytes, &seen).unwrap());
    assert!(store.read(name, 1 << 20).unwrap().is_none());
    let gone = rewrap_set(
        &store,
        1,
        &other,
        &[&third.recipient().unwrap()],
        Others::Refuse,
    );
    assert_eq!(gone.unwrap_err().code(), &code::SET_ABSENT);
}

#[test]
fn the_log_is_archived_once() {
    let (place, s3) = (Place::new(), S3::started());
    let (opener, other) = (key(), key());
    let tree = place.tree(1000);
    let store = medium(s3.port, "m");
    let name = "000000010000000000000001";
    let push = |content: &[u8]| wal_push(&store, name, content, &options(Some(&opener)));
    let content = common::noise(2_000_000);
    assert_eq!(push(&content).unwrap_err().code(), &code::MEDIUM_ABSENT);
    made(&store, &tree, &opener, Mode::Append, 1).unwrap();
    assert!(push(&content).unwrap());
    assert!(!push(&content).unwrap());
    assert_eq!(push(b"other").unwrap_err().code(), &code::WAL_DIFFERS);
    assert_eq!(wal_fetch(&store, name, Some(&opener)).unwrap(), content);
    let fetch = |name: &str| wal_fetch(&store, name, Some(&opener)).unwrap_err();
    let later = "000000010000000000000002";
    assert_eq!(fetch(later).code(), &code::WAL_ABSENT);
    let third = "000000010000000000000003";
    wal_push(&store, third, &content, &options(Some(&opener))).unwrap();
    assert_eq!(fetch(later).code(), &code::WAL_GAP);
    let each = &mut |_: &str, error: Error| Err(error);
    let count = rewrap_archive(
        &store,
        &opener,
        &[&other.recipient().unwrap()],
        Others::Refuse,
        each,
    );
    assert_eq!(count.unwrap(), 2);
    assert_eq!(wal_fetch(&store, name, Some(&other)).unwrap(), content);
    assert_eq!(fetch(name).code(), &code::WRONG_KEY);
}

#[test]
fn lost_connections_and_answers_neither_lose_nor_double() {
    let (place, opener, s3) = (Place::new(), key(), S3::started());
    let tree = place.tree(20 << 20);
    let cuts = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&cuts);
    let mut seen = std::collections::BTreeSet::new();
    // Each sort of request once: cut within, or its answer lost.
    let relay = Relay::started(s3.port, move |first| {
        let sort = |word: &str| first.contains(word);
        let method = first.split(' ').next().unwrap_or_default().to_owned();
        let (what, fate) = match method.as_str() {
            "PUT" if sort("partNumber=1&") => ("part", Fate::Cut(3_000_000)),
            "PUT" if sort("partNumber=2&") => ("answer of a part", Fate::Unanswered),
            "PUT" if sort("/sets/") => ("answer of a head", Fate::Unanswered),
            "PUT" if sort("/wal/") => ("answer of a file", Fate::Unanswered),
            "PUT" if sort("/medium.json") => ("medium", Fate::Cut(100)),
            "POST" if sort("uploadId=") => ("answer of the end", Fate::Unanswered),
            "GET" if sort("/data/") => ("answer of a range", Fate::Unanswered),
            _ => return Fate::Passes,
        };
        if seen.insert(what) {
            counted.fetch_add(1, Ordering::Relaxed);
            return fate;
        }
        Fate::Passes
    });
    let store = medium(relay.port, "m");
    assert_eq!(made(&store, &tree, &opener, Mode::Append, 1).unwrap(), 1);
    assert_eq!(checked(&store, None, &opener).unwrap(), 6);
    let name = "000000010000000000000001";
    assert!(wal_push(&store, name, b"log", &options(Some(&opener))).unwrap());
    assert_eq!(cuts.load(Ordering::Relaxed), 7);
    assert_eq!(s3.heads(), ["m/sets/00000001"]);
    assert_eq!(s3.names().len(), 4);
    assert_eq!(s3.unfinished(), 0);
}

#[test]
fn an_answer_lost_for_a_replacement_is_settled_by_reading() {
    let (place, s3) = (Place::new(), S3::started());
    let (one, other) = (key(), key());
    let tree = place.tree(1000);
    made(&medium(s3.port, "m"), &tree, &one, Mode::Append, 1).unwrap();
    let mut lost = false;
    let relay = Relay::started(s3.port, move |first| {
        if first.starts_with("PUT") && !std::mem::replace(&mut lost, true) {
            Fate::Unanswered
        } else {
            Fate::Passes
        }
    });
    let store = medium(relay.port, "m");
    rewrap_set(
        &store,
        1,
        &one,
        &[&other.recipient().unwrap()],
        Others::Refuse,
    )
    .unwrap();
    checked(&store, None, &other).unwrap();
}

#[test]
fn a_store_that_is_gone_is_told_at_once_and_never_as_an_absent_file() {
    let opener = key();
    let nobody = patient(free_port(), "m", 2);
    let began = Instant::now();
    let gone = list(&nobody).unwrap_err();
    assert_eq!(gone.code(), &code::STORE_LOST, "{gone}");
    let fetched = wal_fetch(&nobody, "000000010000000000000001", Some(&opener));
    assert_eq!(fetched.unwrap_err().code(), &code::STORE_LOST);
    assert!(began.elapsed() < Duration::from_secs(60));
    let s3 = S3::started();
    let url = "s3://no-such-bucket/m";
    let patience = Duration::from_secs(2);
    let absent = ObjectMedium::open(url, settings(s3.port).into_iter(), patience).unwrap();
    let place = Place::new();
    let tree = place.tree(10);
    let refused = made(&absent, &tree, &opener, Mode::Append, 1).unwrap_err();
    assert_eq!(refused.code(), &code::STORE_FAILED, "{refused}");
    assert!(refused.to_string().contains("NoSuchBucket"), "{refused}");
}

#[test]
fn a_store_that_goes_while_a_set_is_written_has_none_of_it() {
    let (place, opener, s3) = (Place::new(), key(), S3::started());
    let tree = place.tree(30 << 20);
    let down = Arc::new(AtomicBool::new(false));
    let is_down = Arc::clone(&down);
    let relay = Relay::started(s3.port, move |first| {
        if first.contains("partNumber=2&") {
            is_down.store(true, Ordering::Relaxed);
        }
        if is_down.load(Ordering::Relaxed) {
            return Fate::Cut(0);
        }
        Fate::Passes
    });
    let store = patient(relay.port, "m", 2);
    let lost = made(&store, &tree, &opener, Mode::Append, 1).unwrap_err();
    assert_eq!(lost.code(), &code::STORE_LOST, "{lost}");
    assert!(!lost.to_string().contains("CANARY-"), "{lost}");
    assert_eq!(s3.names(), ["m/medium.json"]);
    down.store(false, Ordering::Relaxed);
    let direct = medium(s3.port, "m");
    assert_eq!(made(&direct, &tree, &opener, Mode::Append, 1).unwrap(), 1);
    checked(&direct, None, &opener).unwrap();
}

#[test]
fn a_source_that_fails_leaves_no_upload() {
    let (place, opener, s3) = (Place::new(), key(), S3::started());
    let tree = place.tree(10);
    let store = medium(s3.port, "m");
    made(&store, &tree, &opener, Mode::Append, 1).unwrap();
    let mut upload = store.begin("data/x.0").unwrap();
    upload.write_all(&common::noise(17 << 20)).unwrap();
    assert_eq!(s3.unfinished(), 1);
    drop(upload);
    assert_eq!(s3.unfinished(), 0);
    assert!(!s3.names().contains(&"m/data/x.0".to_owned()));
}

#[test]
fn a_store_that_ignores_conditions_is_refused() {
    let (place, opener, s3) = (Place::new(), key(), S3::started());
    let tree = place.tree(1000);
    let relay = Relay::started(s3.port, |first| {
        if first.starts_with("PUT") {
            Fate::Unconditional
        } else {
            Fate::Passes
        }
    });
    let store = medium(relay.port, "m");
    let refused = made(&store, &tree, &opener, Mode::Append, 1).unwrap_err();
    assert_eq!(refused.code(), &code::STORE_FAILED);
    assert!(refused.to_string().contains("If-None-Match"), "{refused}");
    // What was asked about is as it was, and nothing else is there.
    assert_eq!(s3.names(), ["m/medium.json"]);
    let direct = medium(s3.port, "m");
    assert_eq!(made(&direct, &tree, &opener, Mode::Append, 1).unwrap(), 1);
}

#[test]
fn no_more_of_an_answer_is_taken_than_was_asked_for() {
    let (place, opener, s3) = (Place::new(), key(), S3::started());
    let tree = place.tree(1 << 20);
    let direct = medium(s3.port, "m");
    made(&direct, &tree, &opener, Mode::Append, 1).unwrap();
    for endless in ["/data/", "/sets/0", "/medium.json"] {
        s3::SENT.store(0, Ordering::Relaxed);
        let relay = Relay::started(s3.port, move |first| {
            if first.starts_with("GET") && first.contains(endless) {
                Fate::Endless
            } else {
                Fate::Passes
            }
        });
        let store = medium(relay.port, "m");
        let refused = if endless == "/medium.json" {
            made(&store, &tree, &opener, Mode::Append, 1).unwrap_err()
        } else {
            checked(&store, Some(1), &opener).unwrap_err()
        };
        let known = [
            &code::STORE_FAILED,
            &code::SET_HEAD,
            &code::MEDIUM_DAMAGED,
            &code::IO,
        ];
        assert!(known.contains(&refused.code()), "{endless}: {refused}");
        let sent = s3::SENT.load(Ordering::Relaxed);
        // What was asked for, and what lies in buffers of the system.
        assert!((1..64 << 20).contains(&sent), "{endless}: {sent}");
    }
}
