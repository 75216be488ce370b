//! What a host may not have a store believe: values without a binding, old records, an end of the
//! log that it did not read.

use strongroom_columns_ring::Fault;
use strongroom_columns_values::Value;
use strongroom_columns_zone::store::{Options, Promotion, Source, Store};
use strongroom_crypto::SecretKey;
use strongroom_format::columns::{Fid, Kind};

use crate::disk::{Disk, State};
use crate::host::{Known, Safe, bind_all, fresh, known, options, relation, to};

fn value(value: Value<'_>) -> Promotion<'_> {
    Promotion {
        source: Source::Value(value),
        column: 2,
        kind: Kind::Text,
    }
}

fn key() -> SecretKey {
    SecretKey::take(&mut [5; 32]).unwrap()
}

#[test]
fn a_promotion_after_a_failed_one_says_the_binding_too() {
    let safe = Safe::new();
    let (disk, mut store) = fresh(&safe);
    let ring = store.attach();
    let table = store.open_partition(Some(ring), relation(1)).unwrap();
    store.bind(table, 2, to(5), &key()).unwrap();
    let before = disk.state();
    let long = vec![7; 1_048_577];
    let batch = [value(Value::Bytes(b"first")), value(Value::Bytes(&long))];
    let mut fids = Vec::new();
    let failed = store.promote(ring, table, &batch, &mut fids);
    assert_eq!(failed, Err(Fault::StringTooLong));
    let record = store.promote(ring, table, &batch[..1], &mut fids);
    let record = record.unwrap().unwrap();
    store.confirm_inserted(ring, record.number);
    drop(store);
    let mut store = safe.open(&Disk::of(before), 1 << 30).unwrap();
    store.recover(&record.bytes, 1).unwrap();
    store.finish_recovery(2).unwrap();
    assert_eq!(store.binding(table, 2), Some(to(5)));
    assert_eq!(
        known(store.get(fids[0]).unwrap()),
        Known::Bytes(b"first".to_vec())
    );
}

#[test]
fn a_value_whose_binding_was_left_out_is_not_replayed_and_a_column_with_values_is_not_bound() {
    let safe = Safe::new();
    let (disk, mut store) = fresh(&safe);
    let before = disk.state();
    let (first, second) = (store.attach(), store.attach());
    let table = store.open_partition(Some(first), relation(1)).unwrap();
    // A column that was never bound: what a record without the entry comes to.
    let mut fids = Vec::new();
    let batch = [value(Value::Bytes(b"unbound"))];
    let record = store.promote(first, table, &batch, &mut fids);
    let record = record.unwrap().unwrap();
    assert_eq!(store.bind(table, 2, to(5), &key()), Err(Fault::NoColumnKey));
    let mut replaying = safe.open(&Disk::of(before), 1 << 30).unwrap();
    assert_eq!(replaying.recover(&record.bytes, 1), Err(Fault::LogGap));
    // Another ring says a binding again, whatever the host says of the first one's record.
    let (disk, mut store) = fresh(&safe);
    let before = disk.state();
    let (first, second) = (store.attach(), second.max(store.attach()));
    let table = store.open_partition(Some(first), relation(1)).unwrap();
    store.bind(table, 2, to(5), &key()).unwrap();
    let hidden = store.promote(first, table, &batch, &mut fids);
    store.confirm_inserted(first, hidden.unwrap().unwrap().number);
    let shown = store.promote(second, table, &batch, &mut fids);
    let shown = shown.unwrap().unwrap();
    let mut replaying = safe.open(&Disk::of(before), 1 << 30).unwrap();
    replaying.recover(&shown.bytes, 1).unwrap();
    replaying.finish_recovery(2).unwrap();
    assert_eq!(replaying.binding(table, 2), Some(to(5)));
}

#[test]
fn a_record_that_was_kept_back_is_not_taken_after_recovery() {
    let safe = Safe::new();
    let (disk, mut store) = fresh(&safe);
    let ring = store.attach();
    let table = store.open_partition(Some(ring), relation(1)).unwrap();
    bind_all(&mut store, table);
    let mut fids = Vec::new();
    let batch = [value(Value::Bytes(b"kept back"))];
    let record = store.promote(ring, table, &batch, &mut fids);
    let record = record.unwrap().unwrap();
    assert_eq!(store.recover(&record.bytes, 1), Err(Fault::BadRequest));
    drop(store);
    let mut store = safe.open(&disk, 1 << 30).unwrap();
    store.finish_recovery(2).unwrap();
    assert_eq!(store.recover(&record.bytes, 3), Err(Fault::BadRequest));
    assert!(store.get(fids[0]).is_err());
}

/// A replica's zone: values are read while the log goes on, checkpoints are made, nothing is given
/// out before the end.
#[test]
fn a_replica_is_read_while_it_follows() {
    let safe = Safe::new();
    let (primary, mut store) = fresh(&safe);
    let replica = Disk::of(primary.state());
    let mut follower = safe.open(&replica, 1 << 30).unwrap();
    let ring = store.attach();
    let table = store.open_partition(Some(ring), relation(1)).unwrap();
    bind_all(&mut store, table);
    let mut fids: Vec<Fid> = Vec::new();
    for n in 0..6 {
        let mut made = Vec::new();
        let batch = [value(Value::Bytes(b"row"))];
        let record = store.promote(ring, table, &batch, &mut made);
        let record = record.unwrap().unwrap();
        store.confirm_inserted(ring, record.number);
        follower.recover(&record.bytes, n).unwrap();
        fids.extend(made);
        if n == 1 {
            assert_eq!(follower.get(fids[0]).err(), Some(Fault::Recovering));
            follower.follow(2).unwrap();
        }
        if n > 0 {
            assert!(fids.iter().all(|fid| follower.get(*fid).is_ok()), "{n}");
            follower.checkpoint(n + 1).unwrap();
            let ring = follower.attach();
            let refused = follower.promote(ring, table, &batch, &mut Vec::new());
            assert_eq!(refused, Err(Fault::Recovering));
            assert_eq!(follower.drop_partition(None, table), Err(Fault::Recovering));
            follower.detach(ring);
        }
    }
    follower.finish_recovery(6).unwrap();
    let ring = follower.attach();
    let batch = [value(Value::Bytes(b"own"))];
    let mut own = Vec::new();
    follower.promote(ring, table, &batch, &mut own).unwrap();
    assert!(fids.iter().all(|fid| follower.get(*fid).is_ok()));
    assert!(!fids.contains(&own[0]));
}

/// Identifiers that the history after the restored store has given out lead nowhere, and to no
/// other value (F1).
#[test]
fn a_restored_store_gives_out_none_of_what_was_lost() {
    let safe = Safe::new();
    let (disk, mut store) = fresh(&safe);
    let table = store.open_partition(None, relation(1)).unwrap();
    store.checkpoint(0).unwrap();
    let older = disk.state();
    let mut lost = std::collections::BTreeSet::new();
    for round in 0..4 {
        for n in 0..300 {
            let fid = store.put(None, table, 1, Kind::Int8, Value::Word(n));
            lost.insert(fid.unwrap().bits());
        }
        store.checkpoint(round).unwrap();
        drop(store);
        store = safe.open(&disk, 1 << 30).unwrap();
        store.finish_recovery(round).unwrap();
    }
    let restored = Options {
        accept_restored: true,
        ..options(1 << 30)
    };
    for manifest in [older.manifest, None] {
        let disk = Disk::of(State {
            manifest,
            blocks: older.blocks.clone(),
            anchor: disk.state().anchor,
            log: Vec::new(),
        });
        let files = (Box::new(disk.clone()), Box::new(disk.clone()));
        let mut store = Store::with_files(safe.keys(), files.0, files.1, restored).unwrap();
        store.finish_recovery(0).unwrap();
        let table = store.open_partition(None, relation(1)).unwrap();
        for n in 0..2000 {
            let fid = store.put(None, table, 1, Kind::Int8, Value::Word(n));
            assert!(!lost.contains(&fid.unwrap().bits()));
        }
    }
}

/// L8: a position has the timeline that the host was on when a checkpoint reached it, whatever the
/// host has said since, and after opening too.
/// VACUUM FULL has given the partition to the copy, before its transaction commits; the server
/// crashes before the commit record is durable, and the table has its old files.
#[test]
fn a_partition_goes_back_to_the_files_whose_rewrite_a_crash_has_undone() {
    let safe = Safe::new();
    let (disk, mut store) = fresh(&safe);
    let before = disk.state();
    let ring = store.attach();
    let table = store.open_partition(Some(ring), relation(1)).unwrap();
    bind_all(&mut store, table);
    let fid = store
        .put(Some(ring), table, 1, Kind::Int8, Value::Word(42))
        .unwrap();
    let mut records = vec![store.flush_log(ring).unwrap().unwrap()];
    store
        .reassign_partition(Some(ring), table, relation(2))
        .unwrap();
    store
        .reassign_partition(Some(ring), table, relation(3))
        .unwrap();
    records.push(store.flush_log(ring).unwrap().unwrap());
    for record in &records {
        store.confirm_inserted(ring, record.number);
    }
    // The zone lives on; it is started anew; it is that of a standby.
    store.begin_server_generation().unwrap();
    drop(store);
    let mut by_log = safe.open(&Disk::of(before), 1 << 30).unwrap();
    for (record, position) in records.iter().zip(1..) {
        by_log.recover(&record.bytes, position).unwrap();
    }
    let by_manifest = safe.open(&Disk::of(disk.state()), 1 << 30).unwrap();
    for mut store in [by_log, by_manifest] {
        assert_eq!(store.moved_from(relation(1)), None, "the log is read");
        store.finish_recovery(10).unwrap();
        assert_eq!(store.moved_from(relation(1)), Some(table));
        let ring = store.attach();
        assert_eq!(store.open_partition(Some(ring), relation(1)), Ok(table));
        assert_eq!(store.partition_of(relation(3)), None);
        assert_eq!(store.moved_from(relation(3)), None, "nobody has it");
        assert!(store.get(fid).is_ok());
        let record = store.flush_log(ring).unwrap();
        assert!(record.is_some(), "the log says so");
    }
}

#[test]
fn a_partition_that_has_moved_for_good_does_not_go_back() {
    let safe = Safe::new();
    let (disk, mut store) = fresh(&safe);
    let ring = store.attach();
    let mut moved = |from, to| {
        let table = store.open_partition(Some(ring), relation(from)).unwrap();
        store
            .reassign_partition(Some(ring), table, relation(to))
            .unwrap();
        assert_eq!(store.moved_from(relation(from)), Some(table));
        table
    };
    let (settled, dropped, undone) = (moved(1, 2), moved(3, 4), moved(5, 6));
    store.settle_moves(settled);
    store.drop_partition(Some(ring), dropped).unwrap();
    store
        .reassign_partition(Some(ring), undone, relation(5))
        .unwrap();
    for gone in [1, 3, 6] {
        assert_eq!(store.moved_from(relation(gone)), None, "{gone}");
    }
    // What comes later under the number of the former files is another table's.
    let other = store.open_partition(Some(ring), relation(1)).unwrap();
    assert_ne!(other, settled);
    store.checkpoint(10).unwrap();
    drop(store);
    let mut store = safe.open(&Disk::of(disk.state()), 1 << 30).unwrap();
    store.finish_recovery(10).unwrap();
    for gone in [1, 3, 6] {
        assert_eq!(store.moved_from(relation(gone)), None, "{gone}");
    }
    assert_eq!(store.partition_of(relation(2)), Some(settled));
}

/// The host was put back to a time between the position of the last checkpoint that it has asked
/// for and what the store holds.
#[test]
fn a_store_of_a_later_time_than_its_position_says_so() {
    let safe = Safe::new();
    let (disk, mut store) = fresh(&safe);
    let reopened = || safe.open(&Disk::of(disk.state()), 1 << 30).unwrap();
    store.set_host_timeline(1);
    let ring = store.attach();
    let table = store.open_partition(Some(ring), relation(1)).unwrap();
    store.checkpoint(10).unwrap();
    assert_eq!(store.reached(), (0, 0), "the host has said nothing");
    store.drop_partition(Some(ring), table).unwrap();
    let dropped = store.flush_log(ring).unwrap().unwrap();
    store.confirm_inserted(ring, dropped.number);
    store.note_reached(20);
    // Neither an earlier record nor a host that does not say takes it back.
    store.note_reached(18);
    store.note_reached(0);
    store.last_checkpoint().unwrap();
    drop(store);
    let mut store = reopened();
    assert_eq!(store.position(), 10);
    assert_eq!(store.reached(), (20, 1));
    // While the log is read, its positions are said by the reader.
    store.note_reached(99);
    store.finish_recovery(15).unwrap();
    assert_eq!(store.reached(), (20, 1));
    // On the next timeline its positions count.
    store.set_host_timeline(2);
    store.note_reached(17);
    assert_eq!(store.reached(), (17, 2));
}

#[test]
fn a_position_keeps_its_timeline_until_a_checkpoint_goes_beyond_it() {
    let safe = Safe::new();
    let (disk, mut store) = fresh(&safe);
    let at = |store: &Store| (store.position(), store.timeline());
    assert_eq!(at(&store), (0, 0));
    store.set_host_timeline(3);
    store.checkpoint(100).unwrap();
    assert_eq!(at(&store), (100, 3));
    store.set_host_timeline(4);
    store.set_host_timeline(0);
    store.checkpoint(100).unwrap();
    assert_eq!((at(&store), store.host_timeline()), ((100, 3), 4));
    let state = disk.state();
    disk.allow(Some(0));
    assert!(store.checkpoint(200).is_err());
    assert_eq!(at(&store), (100, 3));
    drop(store);
    let mut store = safe.open(&Disk::of(state), 1 << 30).unwrap();
    assert_eq!((at(&store), store.host_timeline()), ((100, 3), 3));
    store.set_host_timeline(5);
    store.finish_recovery(200).unwrap();
    assert_eq!(at(&store), (200, 5));
}
