//! The ledgers of column keys are as durable as the store (A8): a store that ends at any moment
//! gives nothing twice.

use std::sync::Arc;

use strongroom_columns_ring::Fault;
use strongroom_columns_zone::key_ledger::{LedgerBook as _, To, Told};
use strongroom_columns_zone::store::Store;
use strongroom_crypto::SecretKey;
use strongroom_format::columns::channel::{LIMITLESS, Limit};

use crate::disk::Disk;
use crate::host::{Safe, relation, to};

const KEY: [u8; 16] = [9; 16];

fn limit(truths: u64) -> Limit {
    Limit {
        key_id: KEY,
        period: 0,
        truths,
        outputs: LIMITLESS,
    }
}

fn tell(store: &mut Store, count: u64) -> Result<(), Fault> {
    let name: Arc<str> = Arc::from("payroll@shop");
    store.charge(&[KEY], To::Session(&name), Told::truths(count))
}

/// A store with a value's column bound to the key.
fn bound(store: &mut Store) {
    store.finish_recovery(1).unwrap();
    let table = store.open_partition(None, relation(1)).unwrap();
    let key = SecretKey::generate().unwrap();
    store.bind(table, 3, to(9), &key).unwrap();
}

#[test]
fn what_was_given_stays_given_whenever_the_zone_ends() {
    let (safe, disk) = (Safe::new(), Disk::default());
    let mut store = safe.open(&disk, 1 << 20).unwrap();
    bound(&mut store);
    store.set_limit(&limit(1600)).unwrap();
    let mut given = 0;
    // Each zone gives a little and is killed.
    while tell(&mut store, 30).is_ok() {
        given += 30;
        drop(store);
        store = safe.open(&disk, 1 << 20).unwrap();
        assert!(given <= 1600, "{given}");
    }
    // A part of the limit is lost with each kill, and no more.
    assert!(given >= 30 * (1600 / 130), "{given}");
}

#[test]
fn an_orderly_end_loses_nothing() {
    let (safe, disk) = (Safe::new(), Disk::default());
    let mut store = safe.open(&disk, 1 << 20).unwrap();
    bound(&mut store);
    store.set_limit(&limit(100)).unwrap();
    for _ in 0..100 {
        tell(&mut store, 1).unwrap();
        store.last_checkpoint().unwrap();
        drop(store);
        store = safe.open(&disk, 1 << 20).unwrap();
    }
    assert_eq!(tell(&mut store, 1), Err(Fault::BudgetSpent));
    let ledgers = store.to_json(&[KEY]);
    assert!(ledgers.contains("\"name\":\"payroll@shop\""), "{ledgers}");
    assert!(ledgers.contains("\"truths\":100,"), "{ledgers}");
}

#[test]
fn nothing_is_given_that_the_disk_does_not_take() {
    let (safe, disk) = (Safe::new(), Disk::default());
    let mut store = safe.open(&disk, 1 << 20).unwrap();
    bound(&mut store);
    store.set_limit(&limit(100)).unwrap();
    disk.allow(Some(0));
    assert_eq!(tell(&mut store, 1), Err(Fault::DiskFull));
    drop(store);
    disk.allow(None);
    let mut store = safe.open(&disk, 1 << 20).unwrap();
    for _ in 0..100 {
        tell(&mut store, 1).unwrap();
    }
}

#[test]
fn a_key_without_columns_loses_its_ledger_unless_it_has_a_limit() {
    let (safe, disk) = (Safe::new(), Disk::default());
    let mut store = safe.open(&disk, 1 << 20).unwrap();
    store.finish_recovery(1).unwrap();
    let key = SecretKey::generate().unwrap();
    for limited in [false, true] {
        let table = store.open_partition(None, relation(1)).unwrap();
        store.bind(table, 3, to(9), &key).unwrap();
        if limited {
            store.set_limit(&limit(100)).unwrap();
        }
        tell(&mut store, 7).unwrap();
        store.drop_partition(None, table).unwrap();
        store.checkpoint(1).unwrap();
        let kept = store.to_json(&[KEY]).contains("payroll");
        assert_eq!(kept, limited);
    }
}
