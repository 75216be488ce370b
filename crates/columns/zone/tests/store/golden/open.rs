//! Golden stores and envelopes are opened, read and written on.

use std::collections::BTreeSet;

use strongroom_columns_envelope::{ColumnKey, id_of};
use strongroom_columns_ring::Fault;
use strongroom_columns_values::{Out, Value, receive};
use strongroom_columns_zone::key_ledger::LedgerBook as _;
use strongroom_columns_zone::store::{ANCHOR_NAME, LogFile, MANIFEST_NAME, Store};
use strongroom_crypto::{MacKey, SecretKey, hkdf};
use strongroom_format::columns::channel::PROOF_LABEL;
use strongroom_format::columns::envelope::Sealer;
use strongroom_format::columns::manifest::ManifestHead;
use strongroom_format::columns::{Class, EnvelopeHeader, Fid, Kind};

use super::contents::{Contents, Shown, Stored};
use super::{Place, golden_stores, present};

/// Checks that the store holds what the list says.
fn check(store: &mut Store, contents: &Contents) {
    for value in &contents.values {
        let held = store.get(value.fid);
        let held = held.unwrap_or_else(|fault| panic!("{value:?}: {fault}"));
        let found = Stored {
            fid: value.fid,
            column: held.column,
            kind: held.kind,
            shown: Shown::of(held.kind, held.value),
        };
        assert_eq!(found, *value);
    }
    for fid in &contents.stale {
        assert_eq!(store.get(*fid).err(), Some(Fault::StaleFid), "{fid:?}");
    }
    let mut partitions = contents.partitions.clone();
    partitions.sort_unstable();
    assert_eq!(store.partitions().collect::<Vec<_>>(), partitions);
    let values: u64 = partitions
        .iter()
        .map(|(number, _)| store.values_of(*number))
        .sum();
    assert_eq!(values, contents.values.len() as u64, "and nothing else");
    for (number, relation) in &contents.moved {
        assert_eq!(store.moved_from(*relation), Some(*number));
    }
    for (partition, column, binding) in &contents.columns {
        assert_eq!(store.binding(*partition, *column), Some(*binding));
    }
    let kept: Vec<_> = store
        .kept_keys()
        .map(|(id, key)| (*id, *key.expose()))
        .collect();
    assert_eq!(kept, contents.kept);
    for (id, key) in &contents.former {
        let key = SecretKey::take(&mut { *key }).unwrap();
        let proofs = hkdf(&key, id, PROOF_LABEL.as_bytes()).unwrap();
        let proof = MacKey::new(&proofs).unwrap().mac(&[&[9; 32]]);
        assert_eq!(store.prove(id, &[9; 32]), Some(proof));
    }
    let kept: Vec<_> = contents.kept.iter().map(|(id, _)| *id).collect();
    let ledgers = store.to_json(&kept);
    match &contents.ledgers {
        Some(known) => assert_eq!(ledgers, *known),
        None => assert_eq!(ledgers.matches("\"lines\":[]").count(), kept.len()),
    }
}

/// Puts a value into the first text column of the list, and into the log.
fn put_more(store: &mut Store, log: &mut LogFile, contents: &mut Contents, text: &str) {
    let like = contents
        .values
        .iter()
        .find(|value| value.kind == Kind::Text)
        .unwrap();
    let (partition, column) = (like.fid.partition(), like.column);
    let ring = store.attach();
    let value = Value::Bytes(text.as_bytes());
    let fid = store
        .put(Some(ring), partition, column, Kind::Text, value)
        .unwrap();
    let used: BTreeSet<Fid> = contents.values.iter().map(|value| value.fid).collect();
    assert!(!used.contains(&fid) && !contents.stale.contains(&fid));
    let record = store.flush_log(ring).unwrap().unwrap();
    log.append(&record.bytes).unwrap();
    log.sync().unwrap();
    store.confirm_inserted(ring, record.number);
    contents.values.push(Stored {
        fid,
        column,
        kind: Kind::Text,
        shown: Shown::of(Kind::Text, value),
    });
}

/// Frees the first value of the list, and says so in the log.
fn free_one(store: &mut Store, log: &mut LogFile, contents: &mut Contents) {
    let ring = store.attach();
    let gone = contents.values.remove(0).fid;
    store.delete(Some(ring), gone).unwrap();
    let record = store.flush_log(ring).unwrap().unwrap();
    log.append(&record.bytes).unwrap();
    log.sync().unwrap();
    store.confirm_inserted(ring, record.number);
    contents.stale.push(gone);
}

#[test]
fn a_golden_store_holds_what_its_list_says_and_is_written_on() {
    for directory in golden_stores() {
        let mut contents = Contents::read(&directory);
        let place = Place::copy_of(&directory, "open");
        let anchor = contents.counter.to_string();
        assert_eq!(place.read(ANCHOR_NAME), format!("{anchor}\n").into_bytes());

        let mut store = place.open().unwrap();
        assert_eq!(store.position(), contents.position);
        assert_eq!(store.reached(), contents.reached);
        assert_eq!(store.status().quarantine, contents.quarantined.len());
        assert!(store.status().recovering);
        let mut log = place.open_log(&mut store).unwrap();
        assert!(log.end() > contents.position, "the log has more");
        check(&mut store, &contents);

        // Once by the log alone, once by a checkpoint alone.
        put_more(&mut store, &mut log, &mut contents, "by the log");
        free_one(&mut store, &mut log, &mut contents);
        drop((store, log));
        let mut store = place.open().unwrap();
        let mut log = place.open_log(&mut store).unwrap();
        check(&mut store, &contents);
        put_more(&mut store, &mut log, &mut contents, "by the checkpoint");
        free_one(&mut store, &mut log, &mut contents);
        let position = store.checkpoint(log.end()).unwrap();
        assert_eq!(position, log.end());
        drop((store, log));
        let mut store = place.open().unwrap();
        assert_eq!(store.position(), position);
        assert_eq!(store.reached(), contents.reached);
        store.finish_recovery(position).unwrap();
        check(&mut store, &contents);
    }
}

#[test]
fn golden_envelopes_open() {
    for directory in golden_stores() {
        let contents = Contents::read(&directory);
        let keys: Vec<ColumnKey> = contents
            .kept
            .iter()
            .map(|(id, key)| {
                let key = SecretKey::take(&mut { *key }).unwrap();
                assert_eq!(id_of(&key).unwrap(), *id);
                ColumnKey::new(*id, key)
            })
            .collect();
        let mut seen = BTreeSet::new();
        for envelope in &contents.envelopes {
            let header = EnvelopeHeader::parse(&envelope.bytes).unwrap();
            let label = &envelope.label;
            let said = (header.kind, header.sealer, header.lineage);
            assert_eq!(said, (label.kind, label.by.sealer(), label.lineage));
            let key = keys.iter().find(|key| *key.id() == header.key_id).unwrap();
            let mut plain = Vec::new();
            key.open(header.kind, None, &envelope.bytes, &mut plain)
                .unwrap();
            assert_eq!(plain, envelope.shown.binary);
            let mut value = Out::new();
            receive(header.kind, &plain, &mut value).unwrap();
            assert_eq!(Shown::of(header.kind, value.value()), envelope.shown);
            seen.insert((header.kind, header.sealer));
        }
        let of = |sealer| Kind::ALL.iter().map(move |kind| (*kind, sealer));
        let all: BTreeSet<_> = of(Sealer::Client).chain(of(Sealer::Zone)).collect();
        // Kinds that came later are not in the stores of earlier versions.
        let whole = if directory == present() { &all } else { &seen };
        assert_eq!(&seen, whole, "every kind from either end");
    }
}

/// Whoever raises a version has to keep the stores of the one before, and make a store of the new
/// one.
#[test]
fn there_is_a_golden_store_of_the_versions_that_this_build_writes() {
    let directory = present();
    assert!(
        golden_stores().contains(&directory),
        "{directory:?}: see make.rs"
    );
    let contents = Contents::read(&directory);
    let manifest = std::fs::read(directory.join(MANIFEST_NAME)).unwrap();
    let head = ManifestHead::parse(&manifest).unwrap();
    assert_eq!(head.counter, contents.counter);
    // It is worth keeping only if it has something of everything.
    assert!(contents.ledgers.is_some());
    let kinds: BTreeSet<Kind> = contents.values.iter().map(|value| value.kind).collect();
    assert_eq!(kinds, Kind::ALL.iter().copied().collect());
    for class in [Class::Opaque, Class::Ordered] {
        let of = |(_, _, to): &(u16, u16, _)| -> bool {
            let to: &strongroom_columns_zone::store::Binding = to;
            to.lineage.class() == Some(class)
        };
        assert!(contents.columns.iter().any(of), "{class:?}");
    }
    assert!(!contents.moved.is_empty() && contents.partitions.len() > 3 && contents.kept.len() > 1);
    assert!(!contents.stale.is_empty() && !contents.former.is_empty());
    assert!(!contents.quarantined.is_empty() && contents.reached.0 > contents.position);
}
