//! What another version has written is refused as that, not as damage, and is left as it is.

use std::collections::BTreeSet;

use strongroom_columns_envelope::{EnvelopeError, parse_header};
use strongroom_columns_ring::Fault;
use strongroom_columns_zone::session::ColumnKeys;
use strongroom_columns_zone::store::{HEADER_NAME, LOG_NAME, MANIFEST_NAME};
use strongroom_crypto::{GcmKey, SecretKey, hkdf};
use strongroom_format::code;
use strongroom_format::columns::envelope::{ENVELOPE_VERSION, envelope_layout};
use strongroom_format::columns::log::{FrameHead, log_frame_layout};
use strongroom_format::columns::manifest::{
    MANIFEST_VERSION, MANIFEST_VERSION_OLDEST, manifest_layout,
};
use strongroom_format::columns::redo::{
    Entry, Link, REDO_KEY_USES, REDO_VERSION, RedoHead, redo_layout, redo_link_layout,
};
use strongroom_format::header::{ObjectKind, header_layout};
use strongroom_keyring::{Object, Purpose};

use super::contents::Contents;
use super::{Place, golden, opener, present};

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
    let versions = |found: u16| format!("version {found}, this program's {MANIFEST_VERSION}");
    assert!(
        message.contains(&versions(MANIFEST_VERSION + 1)),
        "{message}"
    );
    let (older, message) = with(1);
    assert_eq!(older, code::STORE_EARLY.number, "{message}");
    assert!(message.contains(&versions(1)), "{message}");
    // The version is authenticated: nobody makes a manifest pass for an older one.
    assert_eq!(with(MANIFEST_VERSION_OLDEST).0, code::STORE_MANIFEST.number);
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

/// A record of the store's log, opened as docs/spec/columns.md says, without the zone's code.
struct Opened {
    key: GcmKey,
    object: ([u8; 16], u32),
    head: RedoHead,
    body: Vec<u8>,
}

impl Opened {
    fn of(object: &Object, record: &[u8]) -> Self {
        let head = RedoHead::parse(record).unwrap();
        let redo = object.subkey(object.epoch(), Purpose::ZoneRedo).unwrap();
        let run = head.number / REDO_KEY_USES;
        let key = hkdf(&redo, &head.incarnation, &run.to_le_bytes()).unwrap();
        let mut opened = Self {
            key: GcmKey::new(&key).unwrap(),
            object: (object.object_id(), object.epoch()),
            head,
            body: record[redo_layout::SIZE..].to_vec(),
        };
        let bound = head.associated_data(opened.object.0, opened.object.1);
        let done = opened
            .key
            .open(&head.nonce, &bound, &mut opened.body, &head.tag);
        done.unwrap();
        opened
    }

    /// Numbers of its entries.
    fn entries(&self) -> Vec<u8> {
        let (_, mut rest) = Link::parse(&self.body).unwrap();
        let mut numbers = Vec::new();
        while !rest.is_empty() {
            numbers.push(rest[0]);
            (_, rest) = Entry::parse(rest).unwrap();
        }
        numbers
    }

    /// The record as a later version would have sealed it, with an entry that is not known.
    fn newer(mut self) -> Vec<u8> {
        self.head.version = REDO_VERSION + 1;
        // The length stays, so that the log's other frames stay where they are.
        *self.body.last_mut().unwrap() ^= 0xff;
        self.body[redo_link_layout::SIZE] = 200;
        let bound = self.head.associated_data(self.object.0, self.object.1);
        let nonce = self.head.nonce;
        self.head.tag = self.key.seal(&nonce, &bound, &mut self.body).unwrap();
        [&self.head.to_bytes()[..], &self.body].concat()
    }
}

/// The store's object.
fn object(place: &Place) -> Object {
    Object::open(&place.read(HEADER_NAME), ObjectKind::Zone, &opener()).unwrap()
}

/// Where the record of the frame at this offset is.
fn record_at(log: &[u8], at: usize) -> std::ops::Range<usize> {
    let head = FrameHead::parse(&log[at..]).unwrap();
    let from = at + log_frame_layout::SIZE;
    from..from + usize::try_from(head.length).unwrap()
}

#[test]
fn the_golden_log_has_every_entry() {
    let place = Place::copy_of(&present(), "entries");
    let object = object(&place);
    let log = place.read(LOG_NAME);
    let seen: BTreeSet<u8> = frames(&log)
        .into_iter()
        .flat_map(|at| Opened::of(&object, &log[record_at(&log, at)]).entries())
        .collect();
    assert_eq!(seen, (1..=8).collect());
}

#[test]
fn the_store_s_own_log_does_not_end_at_a_record_of_a_later_version() {
    let contents = Contents::read(&present());
    let place = Place::copy_of(&present(), "log");
    let object = object(&place);
    let log = place.read(LOG_NAME);
    let frames = frames(&log);
    let last = *frames.last().unwrap();
    let middle = frames[frames.len() - 5];
    for at in [middle, last] {
        let mut newer = log.clone();
        let record = record_at(&log, at);
        let sealed = Opened::of(&object, &log[record.clone()]).newer();
        newer[record].copy_from_slice(&sealed);
        place.write(LOG_NAME, &newer);
        let mut store = place.open().unwrap();
        let Err(error) = place.open_log(&mut store) else {
            panic!("it opens");
        };
        assert_eq!(error.code().number, code::NEWER_FORMAT.number, "{error}");
        let versions = format!(
            "version {}, this program's {REDO_VERSION}",
            REDO_VERSION + 1
        );
        assert!(error.to_string().contains(&versions), "{error}");
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
    let object = object(&place);
    let log = place.read(LOG_NAME);
    let mut store = place.open().unwrap();
    for at in frames(&log) {
        let position = FrameHead::parse(&log[at..]).unwrap().position;
        let record = &log[record_at(&log, at)];
        let newer = Opened::of(&object, record).newer();
        assert_eq!(store.recover(&newer, position), Err(Fault::NewerFormat));
        let error = store.take_last_error().unwrap();
        assert_eq!(error.code().number, code::NEWER_FORMAT.number);
        // What anybody may put into the log is no record of a later version, be it a copy of the
        // zone's own record: a host passes over it.
        let mut claimed = record.to_vec();
        claimed[redo_layout::VERSION.offset] = REDO_VERSION + 1;
        assert_eq!(store.recover(&claimed, position), Err(Fault::BadRecord));
        let mut lowered = newer;
        lowered[redo_layout::VERSION.offset] = REDO_VERSION;
        assert_eq!(store.recover(&lowered, position), Err(Fault::BadRecord));
        store.recover(record, position).unwrap();
    }
    let end = contents.position + log.len() as u64;
    store.finish_recovery(end).unwrap();
    let expected = contents.values.len() as u64;
    assert_eq!(
        store.status().values,
        expected,
        "refused records left nothing"
    );
}

/// A store that has gone on with records that say what their values are of takes none of the
/// earlier ones, which do not: a host could have kept them from another history.
#[test]
fn records_of_an_earlier_version_end_with_the_log_that_has_them() {
    let from = golden().join("manifest3-redo1-envelope1");
    let contents = Contents::read(&from);
    let place = Place::copy_of(&from, "earlier");
    let log = place.read(LOG_NAME);
    let all = frames(&log);
    let record = &log[record_at(&log, all[all.len() - 1])];
    let mut store = place.open().unwrap();
    drop(store);
    // Started, but not at the end of the log.
    store = place.open().unwrap();
    drop(place.open_log(&mut store).unwrap());
    for value in &contents.values {
        assert!(store.get(value.fid).is_ok());
    }
    drop(store);
    store = place.open().unwrap();
    let end = contents.position + log.len() as u64;
    assert_eq!(store.recover(record, end), Err(Fault::OtherHistory));
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
