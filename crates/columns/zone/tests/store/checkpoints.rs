//! Checkpoints that are made while the store is used: what is changed after the manifest was made,
//! and before it is durable, does not count as durable with it.

use std::collections::BTreeSet;
use std::sync::Arc;

use strongroom_columns_ring::Fault;
use strongroom_columns_values::Value;
use strongroom_columns_zone::key_ledger::{LedgerBook as _, To, Told};
use strongroom_columns_zone::store::{Promotion, Source, Store};
use strongroom_format::columns::channel::{LIMITLESS, Limit};
use strongroom_format::columns::{Fid, Kind};

use crate::disk::{Disk, Unsynced};
use crate::host::{Known, Safe, bind_all, fresh, known, relation};

/// Asks for a checkpoint at this position until its manifest is made and its publication has begun.
/// How many blocks a step writes before that depends on the time.
fn begin(disk: &Disk, store: &mut Store, position: u64) {
    let before = store.status().counter;
    while !disk.is_publishing() {
        assert_eq!(store.request_checkpoint(position).unwrap(), None);
    }
    assert_eq!(store.status().counter, before, "it is not durable yet");
}

/// Asks until it has ended.
fn end(store: &mut Store) -> u64 {
    for _ in 0..10 {
        if let Some(position) = store.request_checkpoint(0).unwrap() {
            return position;
        }
    }
    panic!("the checkpoint does not end");
}

/// Stores a value in each of these columns of an unlogged table.
fn put(store: &mut Store, partition: u16, columns: std::ops::Range<u16>) -> Vec<Fid> {
    columns
        .map(|column| {
            let value = Value::Word(u64::from(column));
            let put = store.put(None, partition, column, Kind::Int8, value);
            put.unwrap()
        })
        .collect()
}

fn promoted(store: &mut Store, ring: u32, partition: u16, n: u64) -> (Fid, u64, Vec<u8>) {
    bind_all(store, partition);
    let mut fids = Vec::new();
    let item = Promotion {
        source: Source::Value(Value::Word(n)),
        column: 1,
        kind: Kind::Int8,
    };
    let record = store.promote(ring, partition, &[item], &mut fids);
    let record = record.unwrap().unwrap();
    (fids[0], record.number, record.bytes)
}

#[test]
fn the_store_is_used_while_a_manifest_is_published() {
    let safe = Safe::new();
    let (disk, mut store) = fresh(&safe);
    let partition = store.open_partition(None, relation(1)).unwrap();
    let before = put(&mut store, partition, 1..3);
    begin(&disk, &mut store, 0);
    // In the same block as a value that the manifest has.
    let after = put(&mut store, partition, 1..3);
    assert_eq!(end(&mut store), 0);
    for (fid, n) in before.iter().chain(&after).zip([1, 2, 1, 2]) {
        assert_eq!(known(store.get(*fid).unwrap()), Known::Word(n));
    }
    let state = disk.crashed(disk.calls(), Unsynced::None);
    let mut store = safe.open(&Disk::of(state), 1 << 30).unwrap();
    store.finish_recovery(0).unwrap();
    for (fid, n) in before.iter().zip([1, 2]) {
        assert_eq!(known(store.get(*fid).unwrap()), Known::Word(n));
    }
    for fid in after {
        assert_eq!(store.get(fid).err(), Some(Fault::ForgedFid));
    }
}

/// F4: the manifest reserves extents from those on that were used when it was made.
#[test]
fn extents_are_reserved_by_what_the_manifest_says() {
    let safe = Safe::new();
    let (disk, mut store) = fresh(&safe);
    let partition = store.open_partition(None, relation(1)).unwrap();
    store.checkpoint(0).unwrap();
    begin(&disk, &mut store, 0);
    // Each column's first value takes an extent; 64 are reserved.
    let mut given = put(&mut store, partition, 1..61);
    end(&mut store);
    given.extend(put(&mut store, partition, 61..100));
    let state = disk.crashed(disk.calls(), Unsynced::None);
    let mut store = safe.open(&Disk::of(state), 1 << 30).unwrap();
    store.finish_recovery(0).unwrap();
    let used: BTreeSet<u32> = given.iter().map(|fid| fid.extent()).collect();
    let new = put(&mut store, partition, 200..260);
    assert!(new.iter().all(|fid| !used.contains(&fid.extent())));
}

/// A load takes extents as fast as it can: the reserve is renewed while it goes on.
#[test]
fn a_load_does_not_wait_for_extents_to_be_reserved() {
    let safe = Safe::new();
    let (disk, mut store) = fresh(&safe);
    let partition = store.open_partition(None, relation(1)).unwrap();
    store.checkpoint(0).unwrap();
    let before = (disk.waits(), store.status().counter);
    for column in 1..1600 {
        put(&mut store, partition, column..column + 1);
        // An extent has room for more values than that, after each of which the engine goes on.
        for _ in 0..100 {
            store.go_on();
        }
    }
    assert_eq!(disk.waits(), before.0);
    assert!(store.status().counter > before.1 + 1600 / 64);
}

/// L6: a record brings its partition until a manifest has it.
#[test]
fn what_was_opened_after_the_manifest_was_made_is_not_durable_with_it() {
    let safe = Safe::new();
    let (disk, mut store) = fresh(&safe);
    let (a, b) = (store.attach(), store.attach());
    begin(&disk, &mut store, 0);
    let partition = store.open_partition(Some(a), relation(1)).unwrap();
    let (_, number, _) = promoted(&mut store, a, partition, 1);
    store.confirm_inserted(a, number);
    end(&mut store);
    let (fid, _, record) = promoted(&mut store, b, partition, 2);
    let state = disk.crashed(disk.calls(), Unsynced::None);
    let mut store = safe.open(&Disk::of(state), 1 << 30).unwrap();
    store.recover(&record, 0).unwrap();
    store.finish_recovery(1).unwrap();
    assert_eq!(known(store.get(fid).unwrap()), Known::Word(2));
}

/// A8: what a manifest counts in advance is durable with that manifest and not with the one before.
#[test]
fn a_budget_is_counted_by_the_manifest_that_has_it() {
    const KEY: [u8; 16] = [5; 16];
    let safe = Safe::new();
    let (disk, mut store) = fresh(&safe);
    let limit = Limit {
        key_id: KEY,
        period: 0,
        truths: 160,
        outputs: LIMITLESS,
    };
    store.set_limit(&limit).unwrap();
    let name: Arc<str> = Arc::from("payroll@shop");
    let tell = |store: &mut Store| store.charge(&[KEY], To::Session(&name), Told::truths(1));
    let mut given = 0;
    tell(&mut store).unwrap();
    begin(&disk, &mut store, 0);
    let made = disk.calls();
    // Its sync is made already or not; the manifest and the anchor are to come, and no more.
    disk.allow(Some(3));
    while tell(&mut store).is_ok() {
        given += 1;
        assert!(given < 20, "given without a manifest that counts it");
    }
    assert_eq!(disk.calls(), made + 3, "the publication has ended");
    for _ in 0..3 {
        assert!(tell(&mut store).is_err());
    }
}

/// A disk that fails while a manifest is published: nothing is acknowledged, and the store goes on
/// from the checkpoint that it has, whichever call has failed.
#[test]
fn a_publication_that_fails_acknowledges_nothing() {
    let safe = Safe::new();
    for allowed in 0..3 {
        let (disk, mut store) = fresh(&safe);
        let partition = store.open_partition(None, relation(1)).unwrap();
        let fids = put(&mut store, partition, 1..3);
        store.checkpoint(7).unwrap();
        put(&mut store, partition, 1..3);
        begin(&disk, &mut store, 9);
        disk.allow(Some(allowed));
        let failed = loop {
            match store.request_checkpoint(9) {
                Ok(None) => {}
                Ok(Some(position)) => panic!("{position} is acknowledged"),
                Err(error) => break error,
            }
        };
        assert_eq!(store.position(), 7, "{failed:?}");
        disk.allow(None);
        // After a failed sync nobody knows what the disk has.
        let again = store.checkpoint(9);
        assert_eq!(again.is_err(), allowed == 0, "{again:?}");
        drop(store);
        let mut store = safe.open(&disk, 1 << 30).unwrap();
        store.finish_recovery(9).unwrap();
        for (fid, n) in fids.iter().zip([1, 2]) {
            assert_eq!(known(store.get(*fid).unwrap()), Known::Word(n));
        }
    }
}

/// A checkpoint that has to be durable at once comes while another one is made: that one ends
/// first, and one whose manifest is not made yet goes on afterwards.
#[test]
fn a_checkpoint_that_cannot_wait_comes_between() {
    let safe = Safe::new();
    let (_, mut store) = fresh(&safe);
    let partition = store.open_partition(None, relation(1)).unwrap();
    // More changed blocks than are written together with a manifest, which a step writes in part.
    put(&mut store, partition, 1..40);
    assert_eq!(store.request_checkpoint(5).unwrap(), None);
    put(&mut store, partition, 1..3);
    let position = store.checkpoint(3).unwrap();
    assert!(position == 3 || position == 5, "{position}");
    assert_eq!(store.position(), position);
    let ended = loop {
        if let Some(ended) = store.request_checkpoint(5).unwrap() {
            break ended;
        }
    };
    assert_eq!((ended, store.position()), (5, 5));
}
