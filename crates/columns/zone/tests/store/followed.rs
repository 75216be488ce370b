//! Goal: a replica's zone keeps no more than its primary's.
//! Method: the records of a primary that sweeps and frees are given to a store that follows.

use strongroom_columns_values::Value;
use strongroom_columns_zone::store::{Promotion, Record, Source, Store};
use strongroom_format::columns::{Fid, Kind};

use crate::disk::Disk;
use crate::host::{Safe, bind_all, fresh, relation};

fn promoted(store: &mut Store, ring: u32, partition: u16, n: u64) -> (Fid, Record) {
    bind_all(store, partition);
    let mut fids = Vec::new();
    let item = Promotion {
        source: Source::Value(Value::Word(n)),
        column: 1,
        kind: Kind::Int8,
    };
    let record = store.promote(ring, partition, &[item], &mut fids).unwrap();
    let record = record.unwrap();
    store.confirm_inserted(ring, record.number);
    (fids[0], record)
}

/// The ring's next record, which the host inserts.
fn inserted(store: &mut Store, ring: u32) -> Option<Record> {
    let record = store.flush_log(ring).unwrap()?;
    store.confirm_inserted(ring, record.number);
    Some(record)
}

/// Sweeps a partition in which nothing is marked; returns the sweep's number and the record.
fn swept(store: &mut Store, ring: u32, table: u16) -> (u64, Option<Record>) {
    let number = store.mark_begin(Some(ring), table, 0).unwrap();
    while !store.sweep(Some(ring), table, 100).unwrap().done {}
    (number, inserted(store, ring))
}

#[test]
fn a_replica_s_quarantine_does_not_grow_for_ever() {
    let safe = Safe::new();
    let (disk, mut store) = fresh(&safe);
    let before = disk.state();
    let ring = store.attach();
    let table = store.open_partition(Some(ring), relation(1)).unwrap();
    let mut records: Vec<Record> = (0..20)
        .map(|n| promoted(&mut store, ring, table, n).1)
        .collect();
    let (first, record) = swept(&mut store, ring, table);
    records.extend(record);
    records.extend(swept(&mut store, ring, table).1);
    let in_quarantine = records.len();
    assert_eq!(store.free(Some(ring), table, first, 100), Ok(20));
    records.extend(inserted(&mut store, ring));
    assert_eq!((store.status().quarantine, store.values_of(table)), (0, 0));

    let mut replica = safe.open(&Disk::of(before), 1 << 30).unwrap();
    replica.follow(0).unwrap();
    for (at, (record, position)) in records.iter().zip(1..).enumerate() {
        if at == in_quarantine {
            assert_eq!(replica.status().quarantine, 20);
        }
        replica.recover(&record.bytes, position).unwrap();
    }
    assert_eq!(replica.values_of(table), 0);
    assert_eq!(replica.status().quarantine, 0);
}

/// The record that freed a slot is not in the log any more; the next value of the slot is.
#[test]
fn a_value_that_takes_the_place_of_one_takes_it_out_of_quarantine() {
    let safe = Safe::new();
    let (disk, mut store) = fresh(&safe);
    let ring = store.attach();
    let table = store.open_partition(Some(ring), relation(1)).unwrap();
    let (old, _) = promoted(&mut store, ring, table, 1);
    let (first, _) = swept(&mut store, ring, table);
    store.checkpoint(10).unwrap();
    let before = disk.state();
    swept(&mut store, ring, table);
    assert_eq!(store.free(Some(ring), table, first, 100), Ok(1));
    inserted(&mut store, ring).unwrap();
    // Records of the ring that are left out would be missed: the next one names none before it.
    store.begin_server_generation().unwrap();
    let (new, record) = promoted(&mut store, ring, table, 2);
    assert_eq!((new.extent(), new.index()), (old.extent(), old.index()));

    let mut replica = safe.open(&Disk::of(before), 1 << 30).unwrap();
    replica.follow(10).unwrap();
    assert_eq!(replica.status().quarantine, 1);
    replica.recover(&record.bytes, 20).unwrap();
    assert!(replica.get(old).is_err() && replica.get(new).is_ok());
    assert_eq!(replica.status().quarantine, 0);
}
