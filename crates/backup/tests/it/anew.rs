//! Goal: whoever begins a medium anew, or puts a wrong head on it, makes no writer lose a set or
//! tell of one that is not there.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::fs;
use std::path::Path;

use common::{Place, key, made, options, put, verified};
use strongroom_backup::{CreateOptions, Created, DirectorySource, Error, Mode, create, list};
use strongroom_format::code;

/// Makes a set; `meanwhile` is done once, while its families are written.
fn made_while(
    place: &Place,
    tree: &Path,
    options: &CreateOptions<'_>,
    mut meanwhile: impl FnMut(),
) -> Result<Created, Error> {
    let mut done = false;
    let created = create(
        &place.medium(),
        &mut DirectorySource::new(tree),
        options,
        &mut |_| {
            if !done {
                done = true;
                meanwhile();
            }
        },
    );
    assert!(done);
    created
}

fn anew() -> CreateOptions<'static> {
    CreateOptions {
        mode: Mode::Format,
        ..options(None)
    }
}

fn names(place: &Place, directory: &str) -> Vec<String> {
    let entries = fs::read_dir(place.at("medium").join(directory)).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_medium_is_not_begun_anew_under_another_writer() {
    let place = Place::new();
    let tree = place.tree(2000);
    made(&place.medium(), &tree, &options(None)).unwrap();
    let created = made_while(&place, &tree, &options(None), || {
        let refused = made(&place.medium(), &tree, &anew()).unwrap_err();
        assert_eq!(refused.code(), &code::MEDIUM_CHANGED);
    });
    assert_eq!(created.unwrap().position, 2);
    for set in [1, 2] {
        verified(&place.medium(), Some(set), None).unwrap();
    }
    assert_eq!(list(&place.medium()).unwrap().sets.len(), 2);
    made(&place.medium(), &tree, &anew()).unwrap();
    assert_eq!(names(&place, "sets"), ["00000003"]);
    assert_eq!(names(&place, "data").len(), 1);
}

#[test]
fn a_writer_that_waited_finds_that_the_medium_is_another_one() {
    let place = Place::new();
    let tree = place.tree(2000);
    made(&place.medium(), &tree, &options(None)).unwrap();
    std::thread::scope(|scope| {
        let mut waiting = None;
        made_while(&place, &tree, &anew(), || {
            waiting = Some(scope.spawn(|| made(&place.medium(), &tree, &options(None))));
            // It has read the medium's head and waits.
            std::thread::sleep(std::time::Duration::from_millis(500));
        })
        .unwrap();
        let refused = waiting.unwrap().join().unwrap().unwrap_err();
        assert_eq!(refused.code(), &code::MEDIUM_CHANGED);
    });
    assert_eq!(names(&place, "sets"), ["00000002"]);
    verified(&place.medium(), None, None).unwrap();
}

/// The lock of another host is not seen here.
#[test]
fn a_set_of_another_medium_is_not_told_as_made() {
    let place = Place::new();
    let tree = place.tree(2000);
    made(&place.medium(), &tree, &options(None)).unwrap();
    let other = Place::new();
    made(&other.medium(), &tree, &options(None)).unwrap();
    let head = fs::read(place.at("medium/medium.json")).unwrap();
    let wrong = fs::read(other.at("medium/medium.json")).unwrap();
    for mode in [Mode::Append, Mode::Init, Mode::Format] {
        let options = CreateOptions {
            mode,
            ..options(None)
        };
        let before = names(&place, "data");
        let refused = made_while(&place, &tree, &options, || {
            put(&place.at("medium/medium.json"), &wrong);
        });
        assert_eq!(refused.unwrap_err().code(), &code::MEDIUM_CHANGED);
        assert_eq!(names(&place, "sets"), ["00000001"]);
        assert_eq!(names(&place, "data"), before);
        put(&place.at("medium/medium.json"), &head);
    }
    verified(&place.medium(), None, None).unwrap();
}

#[test]
fn a_wrong_head_of_the_medium_costs_no_set() {
    let place = Place::new();
    let tree = place.tree(2000);
    let kept = CreateOptions {
        expires_unix_s: Some(u64::MAX),
        ..options(None)
    };
    made(&place.medium(), &tree, &kept).unwrap();
    made(&place.medium(), &tree, &options(None)).unwrap();
    let other = Place::new();
    made(&other.medium(), &tree, &options(None)).unwrap();
    let head = fs::read(place.at("medium/medium.json")).unwrap();
    let wrong = fs::read(other.at("medium/medium.json")).unwrap();
    put(&place.at("medium/medium.json"), &wrong);
    made(&place.medium(), &tree, &options(None)).unwrap();
    let init = CreateOptions {
        mode: Mode::Init,
        ..options(None)
    };
    made(&place.medium(), &tree, &init).unwrap();
    assert_eq!(names(&place, "sets"), ["00000001", "00000002", "00000004"]);
    put(&place.at("medium/medium.json"), &head);
    let positions: Vec<u32> = list(&place.medium())
        .unwrap()
        .sets
        .iter()
        .map(|set| set.position)
        .collect();
    assert_eq!(positions, [1, 2]);
    for set in positions {
        verified(&place.medium(), Some(set), None).unwrap();
    }
}

/// A later version may have other rules for everything behind the version, which is in bytes 16 and
/// 17 of the object header.
#[test]
fn a_sealed_set_of_a_newer_version_is_not_called_damaged_and_is_not_overwritten() {
    let place = Place::new();
    let tree = place.tree(10);
    let opener = key();
    made(&place.medium(), &tree, &options(Some(&opener))).unwrap();
    let path = place.at("medium/sets/00000001");
    let whole = fs::read(&path).unwrap();
    for also in [16, 4000] {
        let mut head = whole.clone();
        (head[also], head[16]) = (9, 9);
        put(&path, &head);
        let listing = list(&place.medium()).unwrap();
        let found = listing.unreadable.first().unwrap();
        assert_eq!(found.error.code(), &code::NEWER_FORMAT, "byte {also}");
        let begin_anew = CreateOptions {
            mode: Mode::Format,
            ..options(Some(&opener))
        };
        let refused = made(&place.medium(), &tree, &begin_anew).unwrap_err();
        assert_eq!(refused.code(), &code::NEWER_FORMAT, "byte {also}");
        assert_eq!(names(&place, "sets"), ["00000001"]);
    }
    let mut head = whole;
    head[100] = 1; // Bytes that are zero in this version.
    put(&path, &head);
    let listing = list(&place.medium()).unwrap();
    let found = listing.unreadable.first().unwrap();
    assert_eq!(found.error.code(), &code::HEADER_DAMAGED);
}

#[test]
fn what_cannot_be_read_now_has_not_expired() {
    let place = Place::new();
    let tree = place.tree(10);
    made(&place.medium(), &tree, &options(None)).unwrap();
    made(&place.medium(), &tree, &options(None)).unwrap();
    let path = place.at("medium/sets/00000001");
    let mut head = fs::read(&path).unwrap();
    // The version of its record.
    head[8] = 2;
    put(&path, &head);
    for mode in [Mode::Init, Mode::Format] {
        let options = CreateOptions {
            mode,
            ..options(None)
        };
        let refused = made(&place.medium(), &tree, &options).unwrap_err();
        assert_eq!(refused.code(), &code::NEWER_FORMAT);
        assert_eq!(names(&place, "sets"), ["00000001", "00000002"]);
    }
    let skip = CreateOptions {
        mode: Mode::Init,
        skip_expiry: true,
        ..options(None)
    };
    made(&place.medium(), &tree, &skip).unwrap();
    assert_eq!(names(&place, "sets"), ["00000003"]);
    // Damage needs no option.
    put(&place.at("medium/sets/00000003"), b"no head");
    let init = CreateOptions {
        skip_expiry: false,
        ..skip
    };
    made(&place.medium(), &tree, &init).unwrap();
    assert_eq!(names(&place, "sets"), ["00000004"]);
}
