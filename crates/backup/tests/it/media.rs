//! Goal: what is restored is what was there; media keep their rules; whatever ends a writer, whole
//! sets stay.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;

use common::{Place, key, made, noise, options, picture, put, restored, verified};
use strongroom_backup::{
    Cipher, Compression, CreateOptions, Mode, expire, list, open_chain, verify_chain,
};
use strongroom_format::code;

#[test]
fn what_is_restored_is_what_was_there() {
    for (cipher, compression, stripes) in [
        (Cipher::Aes256, Compression::Zstd(3), 1),
        (Cipher::Aes192, Compression::None, 3),
        (Cipher::Aes128, Compression::Zstd(19), 64),
    ] {
        let place = Place::new();
        let tree = place.tree(3_300_000);
        let opener = key();
        let wanted = CreateOptions {
            cipher,
            compression,
            stripes: Some(stripes),
            ..options(Some(&opener))
        };
        let created = made(&place.medium(), &tree, &wanted).unwrap();
        assert_eq!(created.position, 1);
        assert_eq!(created.description.key_algorithm, cipher.name());
        assert_eq!(created.description.families.len(), usize::from(stripes));
        let good = verified(&place.medium(), None, Some(&opener)).unwrap();
        assert_eq!(good.files, 6);
        restored(&place.medium(), None, Some(&opener), &place.at("out")).unwrap();
        assert_eq!(picture(&place.at("out")), picture(&tree));
    }
}

#[test]
fn a_medium_in_clear_says_so_and_works() {
    let place = Place::new();
    let tree = place.tree(10_000);
    made(&place.medium(), &tree, &options(None)).unwrap();
    let good = verified(&place.medium(), None, None).unwrap();
    assert!(
        good.not_checked
            .iter()
            .any(|text| text.contains("on purpose"))
    );
    restored(&place.medium(), None, None, &place.at("out")).unwrap();
    assert_eq!(picture(&place.at("out")), picture(&tree));
}

#[test]
fn nothing_of_the_content_is_on_a_sealed_medium() {
    let place = Place::new();
    let tree = place.tree(1000);
    let opener = key();
    for compression in [Compression::None, Compression::Zstd(1)] {
        let wanted = CreateOptions {
            compression,
            ..options(Some(&opener))
        };
        made(&place.medium(), &tree, &wanted).unwrap();
    }
    let canaries: [&[u8]; 4] = [b"CANARY-7c1e", b"odd name", b"deeper", b"dangling"];
    let mut seen = 0;
    for (path, (_, bytes, ..)) in picture(&place.at("medium")) {
        seen += bytes.len();
        for canary in canaries {
            let found = bytes.windows(canary.len()).any(|window| window == canary);
            assert!(
                !found,
                "{} in {}",
                String::from_utf8_lossy(canary),
                path.display()
            );
        }
    }
    assert!(seen > 10_000);
    // The test would find them where nothing is sealed.
    let plain = Place::new();
    let wanted = CreateOptions {
        compression: Compression::None,
        ..options(None)
    };
    made(&plain.medium(), &plain.tree(10), &wanted).unwrap();
    let all: Vec<u8> = picture(&plain.at("medium"))
        .into_values()
        .flat_map(|(_, bytes, ..)| bytes)
        .collect();
    for canary in canaries {
        assert!(all.windows(canary.len()).any(|window| window == canary));
    }
}

#[test]
fn the_two_protections_do_not_mix_and_both_ways_out_are_named() {
    let place = Place::new();
    let tree = place.tree(100);
    let opener = key();
    made(&place.medium(), &tree, &options(Some(&opener))).unwrap();
    let before = picture(&place.at("medium"));
    let refused = made(&place.medium(), &tree, &options(None)).unwrap_err();
    assert_eq!(refused.code(), &code::MEDIUM_SEALED);
    assert!(
        refused.code().todo.contains("--format") && refused.code().todo.contains("another medium")
    );
    assert_eq!(picture(&place.at("medium")), before);
    let anew = CreateOptions {
        mode: Mode::Format,
        ..options(None)
    };
    made(&place.medium(), &tree, &anew).unwrap();
    assert_eq!(list(&place.medium()).unwrap().sets.len(), 1);
    let refused = made(&place.medium(), &tree, &options(Some(&opener))).unwrap_err();
    assert_eq!(refused.code(), &code::MEDIUM_PLAIN);
    assert!(
        refused.code().todo.contains("--format") && refused.code().todo.contains("another medium")
    );
}

#[test]
fn append_init_and_format() {
    let place = Place::new();
    let tree = place.tree(2000);
    let (one, two) = (key(), key());
    made(&place.medium(), &tree, &options(Some(&one))).unwrap();
    // Another key is another set's own business.
    let second = made(&place.medium(), &tree, &options(Some(&two))).unwrap();
    assert_eq!(second.position, 2);
    verified(&place.medium(), Some(1), Some(&one)).unwrap();
    verified(&place.medium(), Some(2), Some(&two)).unwrap();
    let refused = verified(&place.medium(), Some(1), Some(&two)).unwrap_err();
    assert_eq!(refused.code(), &code::WRONG_KEY);
    assert_eq!(
        verified(&place.medium(), Some(1), None).unwrap_err().code(),
        &code::NO_KEY
    );
    assert_eq!(
        verified(&place.medium(), Some(3), None).unwrap_err().code(),
        &code::SET_ABSENT
    );

    let striped = CreateOptions {
        stripes: Some(4),
        ..options(Some(&one))
    };
    assert_eq!(
        made(&place.medium(), &tree, &striped).unwrap_err().code(),
        &code::STRIPES
    );
    let kept = CreateOptions {
        expires_unix_s: Some(u64::MAX),
        mode: Mode::Init,
        ..options(Some(&one))
    };
    let medium_id = list(&place.medium()).unwrap().head.unwrap().medium_id;
    let third = made(&place.medium(), &tree, &kept).unwrap();
    assert_eq!(third.position, 3);
    let listing = list(&place.medium()).unwrap();
    assert_eq!(listing.sets.len(), 1);
    assert_eq!(listing.head.unwrap().medium_id, medium_id);
    assert_eq!(files(&place, "data"), 1);
    let again = CreateOptions {
        mode: Mode::Init,
        ..options(Some(&one))
    };
    assert_eq!(
        made(&place.medium(), &tree, &again).unwrap_err().code(),
        &code::UNEXPIRED
    );
    let anew = CreateOptions {
        mode: Mode::Format,
        skip_expiry: true,
        ..striped
    };
    made(&place.medium(), &tree, &anew).unwrap();
    let listing = list(&place.medium()).unwrap();
    assert_eq!(listing.sets.len(), 1);
    let head = listing.head.unwrap();
    assert!(head.stripes == 4 && head.medium_id != medium_id);
    assert_eq!(files(&place, "data"), 4);
    verified(&place.medium(), None, Some(&one)).unwrap();
}

fn files(place: &Place, directory: &str) -> usize {
    fs::read_dir(place.at("medium").join(directory))
        .unwrap()
        .count()
}

#[test]
fn a_place_that_is_no_medium_is_left_alone() {
    let place = Place::new();
    let tree = place.tree(10);
    let refused = made(
        &strongroom_backup::LocalStore::new(&tree),
        &tree,
        &options(None),
    );
    assert_eq!(refused.unwrap_err().code(), &code::MEDIUM_FOREIGN);
    assert_eq!(
        list(&place.medium()).unwrap_err().code(),
        &code::MEDIUM_ABSENT
    );
    assert!(!place.at("medium").exists());
    // An empty directory is a place for a medium, and so is what a writer that was killed at its
    // beginning has left.
    fs::create_dir_all(place.at("medium/sets")).unwrap();
    fs::create_dir(place.at("medium/data")).unwrap();
    fs::create_dir(place.at("medium/wal")).unwrap();
    made(&place.medium(), &tree, &options(None)).unwrap();
    put(
        &place.at("medium/medium.json"),
        b"{\"format\": \"strongroom medium\", ",
    );
    let refused = made(&place.medium(), &tree, &options(None)).unwrap_err();
    assert_eq!(refused.code(), &code::MEDIUM_DAMAGED);
    // What is restored does not depend on it.
    restored(&place.medium(), None, None, &place.at("out")).unwrap();
    put(
        &place.at("medium/medium.json"),
        b"{\"format\": \"strongroom medium\", \"version\": 2}",
    );
    let refused = made(&place.medium(), &tree, &options(None)).unwrap_err();
    assert_eq!(refused.code(), &code::NEWER_FORMAT);
}

#[test]
fn orphans_are_removed_by_the_next_writer_but_not_under_another_one() {
    let place = Place::new();
    let tree = place.tree(10);
    let opener = key();
    made(&place.medium(), &tree, &options(Some(&opener))).unwrap();
    let orphan = place.at("medium/data/00112233445566778899aabbccddeeff.0");
    put(&orphan, b"half a family");
    let other = fs::File::open(place.at("medium/data")).unwrap();
    other.lock_shared().unwrap();
    made(&place.medium(), &tree, &options(Some(&opener))).unwrap();
    assert!(orphan.exists());
    drop(other);
    made(&place.medium(), &tree, &options(Some(&opener))).unwrap();
    assert!(!orphan.exists());
    for set in 1..=3 {
        verified(&place.medium(), Some(set), Some(&opener)).unwrap();
    }
}

#[test]
fn two_writers_at_once_both_succeed() {
    let place = Place::new();
    let tree = place.tree(2_000_000);
    let opener = key();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| made(&place.medium(), &tree, &options(Some(&opener))).unwrap());
        }
    });
    let listing = list(&place.medium()).unwrap();
    let positions: Vec<u32> = listing.sets.iter().map(|set| set.position).collect();
    assert_eq!(positions, [1, 2, 3, 4]);
    for set in positions {
        verified(&place.medium(), Some(set), Some(&opener)).unwrap();
    }
    assert_eq!(files(&place, "data"), 4);
}

#[test]
fn a_restore_takes_an_absent_or_empty_directory_only() {
    let place = Place::new();
    let tree = place.tree(5000);
    made(&place.medium(), &tree, &options(None)).unwrap();
    fs::create_dir(place.at("out")).unwrap();
    restored(&place.medium(), None, None, &place.at("out")).unwrap();
    let before = picture(&place.at("out"));
    for taken in ["out", "tree/noise", "tree/link"] {
        let refused = restored(&place.medium(), None, None, &place.at(taken)).unwrap_err();
        assert_eq!(refused.code(), &code::TARGET_NOT_EMPTY, "{taken}");
    }
    assert_eq!(picture(&place.at("out")), before);
}

#[test]
fn a_restore_that_fails_leaves_nothing() {
    let place = Place::new();
    let tree = place.tree(3_000_000);
    let opener = key();
    made(&place.medium(), &tree, &options(Some(&opener))).unwrap();
    let family = fs::read_dir(place.at("medium/data"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let mut bytes = fs::read(&family).unwrap();
    let last = bytes.len() - 100;
    bytes[last] ^= 1;
    put(&family, &bytes);
    let before: Vec<_> = fs::read_dir(place.at(""))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let refused = restored(&place.medium(), None, Some(&opener), &place.at("out")).unwrap_err();
    assert_eq!(refused.code(), &code::SEGMENT);
    let after: Vec<_> = fs::read_dir(place.at(""))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(before, after);
    put(&family, &noise(bytes.len() - 1));
    let refused = restored(&place.medium(), None, Some(&opener), &place.at("out")).unwrap_err();
    assert_eq!(refused.code(), &code::FAMILY_SHORT);
    fs::remove_file(&family).unwrap();
    let refused = restored(&place.medium(), None, Some(&opener), &place.at("out")).unwrap_err();
    assert_eq!(refused.code(), &code::FAMILY_ABSENT);
}

#[test]
fn every_changed_bit_of_a_head_is_refused() {
    for opener in [Some(key()), None] {
        let place = Place::new();
        let tree = place.tree(10);
        made(&place.medium(), &tree, &options(opener.as_ref())).unwrap();
        let path = place.at("medium/sets/00000001");
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1 << (at % 8);
            put(&path, &changed);
            let found = verified(&place.medium(), Some(1), opener.as_ref());
            assert!(found.is_err(), "byte {at} of {}", whole.len());
        }
        for length in (0..whole.len()).step_by(7) {
            put(&path, &whole[..length]);
            let found = verified(&place.medium(), Some(1), opener.as_ref());
            assert!(found.is_err(), "cut to {length}");
        }
        put(&path, &[&whole[..], b" "].concat());
        assert!(verified(&place.medium(), Some(1), opener.as_ref()).is_err());
        put(&path, &whole);
        verified(&place.medium(), Some(1), opener.as_ref()).unwrap();
    }
}

#[test]
fn the_newest_set_is_never_passed_over_silently() {
    let place = Place::new();
    let tree = place.tree(10);
    made(&place.medium(), &tree, &options(None)).unwrap();
    made(&place.medium(), &tree, &options(None)).unwrap();
    put(&place.at("medium/sets/00000002"), b"not a head");
    let refused = verified(&place.medium(), None, None).unwrap_err();
    assert_eq!(refused.code(), &code::SET_HEAD);
    verified(&place.medium(), Some(1), None).unwrap();
    let listing = list(&place.medium()).unwrap();
    assert_eq!((listing.sets.len(), listing.unreadable.len()), (1, 1));
}

/// A directory, a named pipe and a socket in the place of an object: nothing of them is waited for,
/// and nothing else is taken for the object.
#[test]
fn what_is_no_file_is_no_object() {
    let put_pipe = |path: &Path| {
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    };
    let put_directory = |path: &Path| fs::create_dir(path).unwrap();
    let put_socket = |path: &Path| drop(UnixListener::bind(path).unwrap());
    let kinds: [&dyn Fn(&Path); 3] = [&put_pipe, &put_directory, &put_socket];
    for put_other in kinds {
        let place = Place::new();
        let tree = place.tree(10);
        made(&place.medium(), &tree, &options(None)).unwrap();
        // Where the newest head would be: an older set is not taken for the newest.
        let head = place.at("medium/sets/00000002");
        put_other(&head);
        let refused = verified(&place.medium(), None, None).unwrap_err();
        assert_eq!(refused.code(), &code::SET_HEAD, "{refused}");
        verified(&place.medium(), Some(1), None).unwrap();
        let listing = list(&place.medium()).unwrap();
        assert_eq!((listing.sets.len(), listing.unreadable.len()), (1, 1));
        // The next set has another position.
        made(&place.medium(), &tree, &options(None)).unwrap();
        assert_eq!(verified(&place.medium(), None, None).unwrap().position, 3);
        let family = fs::read_dir(place.at("medium/data")).unwrap().next();
        let family = family.unwrap().unwrap().path();
        fs::remove_file(&family).unwrap();
        put_other(&family);
        let done = [1, 3].map(|set| verified(&place.medium(), Some(set), None));
        let [refused] = &done
            .iter()
            .filter_map(|done| done.as_ref().err())
            .collect::<Vec<_>>()[..]
        else {
            panic!("{done:?}");
        };
        assert!(refused.detail().contains("regular file"), "{refused}");
        let head = place.at("medium/medium.json");
        fs::remove_file(&head).unwrap();
        put_other(&head);
        let refused = made(&place.medium(), &tree, &options(None)).unwrap_err();
        assert_eq!(refused.code(), &code::MEDIUM_DAMAGED, "{refused}");
    }
}

/// Writers lock directories of the medium: what is in the place of one is not waited for.
#[test]
fn a_pipe_in_the_place_of_a_directory_is_not_waited_for() {
    for name in ["data", "sets"] {
        let place = Place::new();
        let tree = place.tree(10);
        for _ in 0..2 {
            made(&place.medium(), &tree, &options(None)).unwrap();
        }
        let path = place.at("medium").join(name);
        fs::remove_dir_all(&path).unwrap();
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        for mode in [Mode::Append, Mode::Init, Mode::Format] {
            let wanted = CreateOptions {
                mode,
                ..options(None)
            };
            made(&place.medium(), &tree, &wanted).unwrap_err();
        }
        if name == "sets" {
            expire(&place.medium(), 1, false).unwrap_err();
        }
        assert!(!path.is_dir());
    }
}

#[test]
fn no_set_is_removed_from_a_medium_without_its_own_head() {
    let place = Place::new();
    let tree = place.tree(10);
    for _ in 0..2 {
        made(&place.medium(), &tree, &options(None)).unwrap();
    }
    let head = place.at("medium/medium.json");
    let whole = fs::read(&head).unwrap();
    for damage in [None, Some(b"".as_slice()), Some(b"{}".as_slice())] {
        fs::remove_file(&head).unwrap();
        if let Some(bytes) = damage {
            put(&head, bytes);
        }
        let refused = expire(&place.medium(), 1, false).unwrap_err();
        assert_eq!(refused.code(), &code::MEDIUM_DAMAGED, "{refused}");
        assert_eq!(list(&place.medium()).unwrap().sets.len(), 2);
        let _missing = fs::remove_file(&head);
        put(&head, &whole);
    }
    let expired = expire(&place.medium(), 1, false).unwrap();
    assert_eq!(expired.sets, [1]);
}

/// Nothing is written for a set that could have no place.
#[test]
fn a_name_in_the_last_position_is_refused_before_anything_is_written() {
    let place = Place::new();
    let tree = place.tree(10);
    made(&place.medium(), &tree, &options(None)).unwrap();
    let last = place.at("medium/sets/99999999");
    put(&last, b"");
    let before = picture(&place.at("medium"));
    let refused = made(&place.medium(), &tree, &options(None)).unwrap_err();
    assert_eq!(refused.code(), &code::MEDIUM_FOREIGN, "{refused}");
    assert!(refused.detail().contains("99999999"), "{refused}");
    assert_eq!(picture(&place.at("medium")), before);
    fs::remove_file(&last).unwrap();
    made(&place.medium(), &tree, &options(None)).unwrap();
}

/// Damage in three places is told in one run of `verify`, not place by place in three.
#[test]
fn every_damaged_segment_of_a_set_is_named() {
    for opener in [Some(key()), None] {
        let place = Place::new();
        let tree = place.tree(10 << 20);
        let wanted = CreateOptions {
            stripes: Some(3),
            ..options(opener.as_ref())
        };
        let description = made(&place.medium(), &tree, &wanted).unwrap().description;
        let of_family = |family: u16| {
            let name = format!("medium/data/{}.{family}", description.set_id);
            place.at(&name)
        };
        let mut bytes = fs::read(of_family(0)).unwrap();
        for number in [1, 3] {
            bytes[(number << 20) + 1000] ^= 1;
        }
        put(&of_family(0), &bytes);
        let bytes = fs::read(of_family(1)).unwrap();
        // In the second segment: what follows its head and data is gone.
        put(&of_family(1), &bytes[..(1 << 20) + 5000]);
        let medium = place.medium();
        let chain = open_chain(&medium, None, opener.as_ref()).unwrap();
        let error = verify_chain(&chain, 2, &mut |_| {}).unwrap_err();
        let segments = |family: usize| description.families[family].segments;
        let all: u32 = (0..3).map(segments).sum();
        let lost = segments(1) - 1;
        let last = segments(1) - 1;
        let told = format!(
            "{} of {all} segments are damaged; family 0: 1 3; family 1: 1 to {last} (family 1 ends too early)",
            lost + 2
        );
        assert!(error.detail().ends_with(&told), "{error}\n{told}");
        fs::remove_file(of_family(2)).unwrap();
        let error = verify_chain(&chain, 2, &mut |_| {}).unwrap_err();
        let told = format!("; family 2: 0 to {} (", segments(2) - 1);
        assert!(error.detail().contains(&told), "{error}");
    }
}

#[test]
fn sockets_are_left_out_and_named() {
    let place = Place::new();
    let tree = place.tree(10);
    let _socket = UnixListener::bind(tree.join("socket")).unwrap();
    let created = made(&place.medium(), &tree, &options(None)).unwrap();
    assert_eq!(created.left_out.len(), 1);
    assert!(created.left_out[0].ends_with("socket: socket"));
}

/// `newest` goes by positions: whoever can write to the medium could have an older set restored for
/// the newest one.
#[test]
fn an_older_set_is_not_made_the_newest_by_another_name() {
    let place = Place::new();
    let tree = place.tree(1000);
    let key = key();
    let medium = place.medium();
    for _ in 0..2 {
        made(&medium, &tree, &options(Some(&key))).unwrap();
    }
    let sets = place.at("medium/sets");
    fs::copy(sets.join("00000001"), sets.join("00000003")).unwrap();
    for position in [None, Some(3)] {
        let error = verified(&medium, position, Some(&key)).unwrap_err();
        assert_eq!(error.code().number, 7106, "{error:?}");
        assert!(error.detail().contains("moved"), "{error:?}");
    }
    verified(&medium, Some(1), Some(&key)).unwrap();
    fs::remove_file(sets.join("00000003")).unwrap();
    assert_eq!(verified(&medium, None, Some(&key)).unwrap().position, 2);
}
