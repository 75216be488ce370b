//! What another version has written is refused as that, not as damage, and is left as it is.

use std::collections::BTreeSet;

use strongroom_columns_envelope::{EnvelopeError, parse_header};
use strongroom_columns_ring::Fault;
use strongroom_columns_zone::session::ColumnKeys;
use strongroom_columns_zone::store::{HEADER_NAME, LOG_NAME, MANIFEST_NAME, fault_of};
use strongroom_crypto::{GcmKey, SecretKey, hkdf};
use strongroom_format::code;
use strongroom_format::columns::envelope::{ENVELOPE_VERSION, envelope_layout};
use strongroom_format::columns::log::{FrameHead, log_frame_layout};
use strongroom_format::columns::manifest::{MANIFEST_VERSION, manifest_layout};
use strongroom_format::columns::redo::{
    Entry, Link, REDO_KEY_USES, REDO_VERSION, RedoHead, redo_layout,
};
use strongroom_format::header::{ObjectKind, header_layout};
use strongroom_keyring::{Object, Purpose};

use crate::contents::Contents;
use crate::{Place, opener, present};

/// Opens the store with other bytes in one of its files; returns the number of the error, and that
/// no file has changed.
fn opened_with(place: &Place, name: &str, change: impl Fn(&mut Vec<u8>)) -> (u16, String) {
    let before = place.read(name);
    let mut bytes = before.clone();
    change(&mut bytes);
    place.write(name, &bytes);
    let files = place.files();
    let Err(error) = place.open() else {
        panic!("it opens");
    };
    assert!(
        place.files() == files,
        "a store that is refused is left as it is"
    );
    place.write(name, &before);
    (error.code().number, error.to_string())
}

fn version(bytes: &mut [u8], at: usize, version: u16) {
    bytes[at..at + 2].copy_from_slice(&version.to_le_bytes());
}

#[test]
fn a_store_of_another_version_is_told_from_a_damaged_one() {
    let place = Place::copy_of(&present(), "manifest");
    let at = manifest_layout::VERSION.offset;
    let with = |number| opened_with(&place, MANIFEST_NAME, |file| version(file, at, number));
    let (newer, message) = with(MANIFEST_VERSION + 1);
    assert_eq!(newer, code::NEWER_FORMAT.number, "{message}");
    assert!(message.contains("version 3, this program's 2"), "{message}");
    let (older, message) = with(1);
    assert_eq!(older, code::STORE_EARLY.number, "{message}");
    assert!(message.contains("version 1, this program's 2"), "{message}");
    // There was never such a version.
    assert_eq!(with(0).0, code::STORE_MANIFEST.number);
    // A later version may have changed everything behind its number.
    let (newer, _) = opened_with(&place, MANIFEST_NAME, |file| {
        version(file, at, MANIFEST_VERSION + 1);
        file.truncate(100);
        file[at + 2..].fill(0xee);
    });
    assert_eq!(newer, code::NEWER_FORMAT.number);
    let (damaged, _) = opened_with(&place, MANIFEST_NAME, |file| file[70] ^= 1);
    assert_eq!(damaged, code::STORE_MANIFEST.number);
    let (header, _) = opened_with(&place, HEADER_NAME, |file| {
        version(file, header_layout::VERSION.offset, 2);
    });
    assert_eq!(header, code::NEWER_FORMAT.number);
    assert!(place.open().is_ok());
}

/// Offsets of the log's frames.
fn frames(log: &[u8]) -> Vec<usize> {
    let mut at = 0;
    let mut all = Vec::new();
    while let Some(head) = FrameHead::parse(&log[at..]) {
        all.push(at);
        at += log_frame_layout::SIZE + usize::try_from(head.length).unwrap();
    }
    assert_eq!(at, log.len());
    all
}

/// Numbers of the entries of a record, opened as docs/spec/columns.md says, without the zone's code.
fn entries(object: &Object, record: &[u8]) -> Vec<u8> {
    let head = RedoHead::parse(record).unwrap();
    let redo = object.subkey(object.epoch(), Purpose::ZoneRedo).unwrap();
    let run = head.number / REDO_KEY_USES;
    let key = hkdf(&redo, &head.incarnation, &run.to_le_bytes()).unwrap();
    let bound = head.associated_data(object.object_id(), object.epoch());
    let mut body = record[redo_layout::SIZE..].to_vec();
    let key = GcmKey::new(&key).unwrap();
    key.open(&head.nonce, &bound, &mut body, &head.tag).unwrap();
    let (_, mut rest) = Link::parse(&body).unwrap();
    let mut numbers = Vec::new();
    while !rest.is_empty() {
        numbers.push(rest[0]);
        (_, rest) = Entry::parse(rest).unwrap();
    }
    numbers
}

#[test]
fn the_golden_log_has_every_entry() {
    let place = Place::copy_of(&present(), "entries");
    let header = place.read(HEADER_NAME);
    let object = Object::open(&header, ObjectKind::Zone, &opener()).unwrap();
    let log = place.read(LOG_NAME);
    let mut seen = BTreeSet::new();
    for at in frames(&log) {
        let head = FrameHead::parse(&log[at..]).unwrap();
        let from = at + log_frame_layout::SIZE;
        let record = &log[from..from + usize::try_from(head.length).unwrap()];
        seen.extend(entries(&object, record));
    }
    assert_eq!(seen, (1..=8).collect());
}

/// The version is in clear and stands in no associated data: these are the bytes that a later
/// version's code would write for such a record.
#[test]
fn the_store_s_own_log_does_not_end_at_a_record_of_a_later_version() {
    let contents = Contents::read(&present());
    let place = Place::copy_of(&present(), "log");
    let log = place.read(LOG_NAME);
    let frames = frames(&log);
    let last = *frames.last().unwrap();
    let middle = frames[frames.len() - 5];
    for at in [middle, last] {
        let mut newer = log.clone();
        newer[at + log_frame_layout::SIZE] = REDO_VERSION + 1;
        place.write(LOG_NAME, &newer);
        let mut store = place.open().unwrap();
        let Err(error) = place.open_log(&mut store) else {
            panic!("it opens");
        };
        assert_eq!(error.code().number, code::NEWER_FORMAT.number, "{error}");
        assert!(
            error.to_string().contains("version 2, this program's 1"),
            "{error}"
        );
        assert_eq!(store.position(), contents.position, "no later checkpoint");
        drop(store);
        assert!(place.read(LOG_NAME) == newer, "the log is left as it is");
    }
    // A later build, which can read all of it, has lost nothing by that.
    place.write(LOG_NAME, &log);
    let mut store = place.open().unwrap();
    drop(place.open_log(&mut store).unwrap());
    for value in &contents.values {
        assert!(store.get(value.fid).is_ok());
    }
}

#[test]
fn a_record_of_a_later_version_stops_the_replay_of_the_host_s_log() {
    let contents = Contents::read(&present());
    let place = Place::copy_of(&present(), "host");
    let log = place.read(LOG_NAME);
    let mut store = place.open().unwrap();
    let mut refused = 0;
    for at in frames(&log) {
        let head = FrameHead::parse(&log[at..]).unwrap();
        assert!(
            head.position >= contents.position,
            "the list would not hold otherwise"
        );
        let end = at + log_frame_layout::SIZE + usize::try_from(head.length).unwrap();
        let record = &log[at + log_frame_layout::SIZE..end];
        let mut newer = record.to_vec();
        newer[redo_layout::VERSION.offset] = REDO_VERSION + 1;
        let answer = store.recover(&newer, head.position);
        assert_eq!(answer, Err(Fault::NewerFormat));
        let error = store.take_last_error().unwrap();
        assert_eq!(error.code().number, code::NEWER_FORMAT.number);
        assert_eq!(fault_of(error.code()), Fault::NewerFormat);
        // What anybody may have put into the log is no record of a later version: a host passes
        // over it.
        *newer.last_mut().unwrap() ^= 1;
        let answer = store.recover(&newer, head.position);
        assert_eq!(answer, Err(Fault::BadRecord));
        store.recover(record, head.position).unwrap();
        refused += 1;
    }
    assert!(refused > 10);
    let (start, len) = (log.len() as u64, contents.values.len());
    store.finish_recovery(start).unwrap();
    assert_eq!(
        store.status().values,
        len as u64,
        "refused records left nothing"
    );
}

#[test]
fn an_envelope_of_a_later_version_is_told_from_a_forged_one() {
    let contents = Contents::read(&present());
    let mut keys = ColumnKeys::default();
    for (id, key) in &contents.kept {
        keys.take(*id, SecretKey::take(&mut { *key }).unwrap())
            .unwrap();
    }
    let mut plain = Vec::new();
    for envelope in &contents.envelopes {
        let kind = envelope.label.kind;
        assert!(keys.open(kind, &envelope.bytes, &mut plain).is_ok());
        let mut newer = envelope.bytes.clone();
        newer[envelope_layout::VERSION.offset] = ENVELOPE_VERSION + 1;
        assert_eq!(parse_header(kind, &newer), Err(EnvelopeError::Newer));
        let refused = keys.open(kind, &newer, &mut plain);
        assert_eq!(refused.err(), Some(Fault::NewerFormat));
        newer[envelope_layout::VERSION.offset] = 0;
        let refused = keys.open(kind, &newer, &mut plain);
        assert_eq!(refused.err(), Some(Fault::BadEnvelope));
    }
}
