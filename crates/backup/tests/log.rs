//! Goal: what was told to be archived is there and stays there, and what is not there is never told as the archive's end.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;

use std::fs;

use common::{Place, key, made, options};
use strongroom_backup::{wal_fetch, wal_push};
use strongroom_format::code;

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
