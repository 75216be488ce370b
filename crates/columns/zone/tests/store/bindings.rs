//! A column's binding comes back from the log and from the manifest, and no other takes its place
//! (S6); so does the key (S7).

use std::path::Path;

use strongroom_columns_ring::Fault;
use strongroom_columns_values::Value;
use strongroom_columns_zone::store::{
    ANCHOR_NAME, FileAnchor, Options, Promotion, Source, Store, create, open,
};
use strongroom_crypto::{MacKey, SecretKey, hkdf};
use strongroom_format::columns::Kind;
use strongroom_format::columns::channel::PROOF_LABEL;
use strongroom_format::columns::redo::Relation;

use crate::disk::{Disk, State};
use crate::host::{Safe, fresh, opener, options, relation, to};

fn opened(directory: &Path) -> Store {
    let anchor = Box::new(FileAnchor::at(directory.join(ANCHOR_NAME)));
    open(directory, &opener(), anchor, options(1 << 20)).unwrap()
}

#[test]
fn a_binding_survives_a_crash_by_the_log_and_a_restart_by_the_manifest() {
    let directory = std::env::temp_dir().join(format!("sr-bindings-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    create(&directory, &opener().recipient().unwrap()).unwrap();
    let mut store = opened(&directory);
    store.finish_recovery(1).unwrap();
    let (first, second) = (store.attach(), store.attach());
    let table = store.open_partition(Some(first), relation(1)).unwrap();
    assert_eq!(store.binding(table, 3), None);
    let key = SecretKey::generate().unwrap();
    // The checkpoint that the first binding of a key makes has another column's only.
    store.bind(table, 2, to(9), &key).unwrap();
    store.bind(table, 3, to(9), &key).unwrap();
    // Another ring's record is the one that gets into the log.
    let item = Promotion {
        source: Source::Value(Value::Word(5)),
        column: 3,
        kind: Kind::Int8,
    };
    let mut fids = Vec::new();
    let lost = store.promote(first, table, &[item], &mut fids).unwrap();
    let kept = store
        .promote(second, table, &[item, item], &mut fids)
        .unwrap()
        .unwrap();
    assert!(lost.is_some());
    store.confirm_inserted(second, kept.number);
    drop(store);

    let mut store = opened(&directory);
    assert_eq!(store.binding(table, 3), None, "the checkpoint is older");
    store.recover(&kept.bytes, 2).unwrap();
    assert_eq!(store.binding(table, 3), Some(to(9)));
    assert_eq!(store.get(fids[0]).err(), Some(Fault::Recovering));
    store.finish_recovery(3).unwrap();
    assert!(store.get(fids[1]).is_ok());
    drop(store);

    let mut store = opened(&directory);
    assert_eq!(
        store.binding(table, 3),
        Some(to(9)),
        "by the manifest alone"
    );
    store.finish_recovery(3).unwrap();
    assert_eq!(
        store.bind(table, 3, to(8), &key),
        Err(Fault::ColumnMismatch)
    );
    assert_eq!(store.bind(table, 3, to(9), &key), Ok(()));
    store.drop_partition(None, table).unwrap();
    assert_eq!(store.binding(table, 3), None, "it goes with its partition");
    drop(store);
    std::fs::remove_dir_all(&directory).unwrap();
}

/// A checkpoint is made when a key is first bound to; the value that it was for is then not stored,
/// and the column's first value comes from a client of another key.
#[test]
fn a_binding_that_was_taken_back_makes_way_for_the_next_one_after_a_crash() {
    let safe = Safe::new();
    let (disk, mut store) = fresh(&safe);
    let ring = store.attach();
    let table = store.open_partition(Some(ring), relation(1)).unwrap();
    let key = SecretKey::generate().unwrap();
    store.bind(table, 2, to(9), &key).unwrap();
    store.unbind(table, 2);
    store.bind(table, 2, to(5), &key).unwrap();
    let item = Promotion {
        source: Source::Value(Value::Word(5)),
        column: 2,
        kind: Kind::Int8,
    };
    let mut fids = Vec::new();
    let record = store.promote(ring, table, &[item], &mut fids);
    let record = record.unwrap().unwrap();
    drop(store);
    let mut store = safe.open(&disk, 1 << 20).unwrap();
    assert_eq!(store.binding(table, 2), Some(to(9)), "by the manifest");
    store.recover(&record.bytes, 1).unwrap();
    assert_eq!(store.binding(table, 2), Some(to(5)));
    store.finish_recovery(2).unwrap();
    assert!(store.get(fids[0]).is_ok());
}

/// The checkpoint of a key's first binding has the column bound; the value that it was for is not
/// stored, and the zone ends before another checkpoint. Nothing of that binding is left.
#[test]
fn a_binding_that_was_taken_back_does_not_outlive_a_crash() {
    let (safe, disk) = (Safe::new(), Disk::default());
    let mut store = safe.open(&disk, 1 << 20).unwrap();
    store.finish_recovery(1).unwrap();
    let key = SecretKey::generate().unwrap();
    let table = store.open_partition(None, relation(1)).unwrap();
    store.bind(table, 3, to(8), &key).unwrap();
    put(&mut store, table, 3);
    store.bind(table, 2, to(9), &key).unwrap();
    store.unbind(table, 2);
    drop(store);
    let mut store = safe.open(&disk, 1 << 20).unwrap();
    assert_eq!(store.binding(table, 2), Some(to(9)), "by the manifest");
    store.follow(1).unwrap();
    assert_eq!(store.binding(table, 2), Some(to(9)), "the log may say so");
    store.finish_recovery(1).unwrap();
    assert_eq!(store.binding(table, 2), None);
    assert_eq!(store.binding(table, 3), Some(to(8)), "it has a value");
    let ids: Vec<[u8; 16]> = store.kept_keys().map(|(id, _)| *id).collect();
    assert_eq!(ids, [[8; 16]]);
    store.bind(table, 2, to(5), &key).unwrap();
}

/// Stores a value, in no record.
fn put(store: &mut Store, table: u16, column: u16) {
    let put = store.put(None, table, column, Kind::Int8, Value::Word(1));
    put.unwrap();
}

fn kept(store: &Store) -> Vec<([u8; 16], [u8; 32])> {
    let keys = store.kept_keys();
    keys.map(|(id, key)| (*id, *key.expose())).collect()
}

#[test]
fn the_key_of_a_bound_column_survives_a_restart_and_leaves_with_its_last_column() {
    let (safe, disk) = (Safe::new(), Disk::default());
    let mut store = safe.open(&disk, 1 << 20).unwrap();
    store.finish_recovery(1).unwrap();
    let (key, other) = (
        SecretKey::generate().unwrap(),
        SecretKey::generate().unwrap(),
    );
    let table = store.open_partition(None, relation(1)).unwrap();
    store.keep_key([9; 16], &key).unwrap();
    assert_eq!(kept(&store), [], "no column is bound to it");
    store.bind(table, 3, to(9), &key).unwrap();
    store.bind(table, 4, to(9), &other).unwrap();
    store.bind(table, 5, to(7), &other).unwrap();
    let both = [([7; 16], *other.expose()), ([9; 16], *key.expose())];
    assert_eq!(kept(&store), both, "an id keeps the key it came with");
    // Nothing was said to the log, and no checkpoint was asked for.
    let unasked = safe.open(&Disk::of(disk.state()), 1 << 20).unwrap();
    assert_eq!(kept(&unasked), both);
    for column in 3..=5 {
        put(&mut store, table, column);
    }
    store.checkpoint(1).unwrap();
    drop(store);
    for secret in [key.expose(), other.expose()] {
        let state = disk.state();
        let manifest = state.manifest.as_deref().unwrap();
        let clear = |bytes: &[u8]| bytes.windows(32).any(|window| window == secret);
        assert!(!clear(manifest) && !clear(&state.blocks));
    }

    let mut store = safe.open(&disk, 1 << 20).unwrap();
    assert_eq!(kept(&store), both);
    store.finish_recovery(1).unwrap();
    assert_eq!(kept(&store), both);
    store.drop_partition(None, table).unwrap();
    store.checkpoint(2).unwrap();
    assert_eq!(kept(&store), []);
    // What its owner expects of this zone is left: a proof that it had the key.
    let proofs = |store: &Store| {
        let ids = store.provable_keys().copied();
        ids.map(|id| (id, store.prove(&id, &[5; 32])))
            .collect::<Vec<_>>()
    };
    let proof = |id: [u8; 16], key: &SecretKey| {
        let key = hkdf(key, &id, PROOF_LABEL.as_bytes()).unwrap();
        (id, Some(MacKey::new(&key).unwrap().mac(&[&[5; 32]])))
    };
    let former = [proof([7; 16], &other), proof([9; 16], &key)];
    assert_eq!(proofs(&store), former);
    drop(store);
    let mut store = safe.open(&disk, 1 << 20).unwrap();
    assert_eq!(proofs(&store), former);
    store.finish_recovery(2).unwrap();
    let table = store.open_partition(None, relation(2)).unwrap();
    store.bind(table, 3, to(9), &key).unwrap();
    let again = [proof([9; 16], &key), proof([7; 16], &other)];
    assert_eq!(proofs(&store), again, "a key that is kept proves itself");
    // Also after the column has gone and before a checkpoint has noticed that.
    store.drop_partition(None, table).unwrap();
    assert_eq!(proofs(&store), again, "until a checkpoint");
}

/// The older store, without the keys, is refused; restored on purpose it gets the key again when a
/// column needs it.
#[test]
fn a_store_from_before_a_key_was_kept_is_refused_and_can_be_restored() {
    let (safe, disk) = (Safe::new(), Disk::default());
    let mut store = safe.open(&disk, 1 << 20).unwrap();
    store.finish_recovery(1).unwrap();
    let key = SecretKey::generate().unwrap();
    let table = store.open_partition(None, relation(1)).unwrap();
    let before = disk.state();
    store.bind(table, 3, to(9), &key).unwrap();
    store.checkpoint(2).unwrap();
    drop(store);
    let older = Disk::of(State {
        anchor: disk.state().anchor,
        ..before
    });
    let refused = safe.open(&older, 1 << 20).err().unwrap();
    assert_eq!(refused.code().number, 8010);
    let restored = Options {
        accept_restored: true,
        ..options(1 << 20)
    };
    let files = (Box::new(older.clone()), Box::new(older));
    let mut store = Store::with_files(safe.keys(), files.0, files.1, restored).unwrap();
    assert_eq!(kept(&store), []);
    store.finish_recovery(1).unwrap();
    let table = store.open_partition(None, relation(1)).unwrap();
    store.bind(table, 3, to(9), &key).unwrap();
    assert_eq!(kept(&store), [([9; 16], *key.expose())]);
}

#[test]
fn a_key_that_cannot_be_made_durable_binds_no_column() {
    let (safe, disk) = (Safe::new(), Disk::default());
    let mut store = safe.open(&disk, 1 << 20).unwrap();
    store.finish_recovery(1).unwrap();
    let key = SecretKey::generate().unwrap();
    let mut table = store.open_partition(None, relation(1)).unwrap();
    for allowed in 0..3 {
        disk.allow(Some(allowed));
        let bound = store.bind(table, 3, to(9), &key);
        assert_eq!(bound, Err(Fault::DiskFull), "{allowed}");
        assert_eq!(store.binding(table, 3), None);
        assert_eq!(kept(&store), []);
        if allowed == 0 {
            // A sync that failed is for ever: a store of its own for each of the others.
            disk.allow(None);
            store = safe.open(&disk, 1 << 20).unwrap();
            store.finish_recovery(1).unwrap();
            table = store.open_partition(None, relation(1)).unwrap();
        }
    }
    disk.allow(None);
    store.bind(table, 3, to(9), &key).unwrap();
    assert_eq!(kept(&store).len(), 1);
}

/// A manifest counts the columns of a partition in 16 bits: with 65536 of them there would be no
/// checkpoint any more.
#[test]
fn a_table_has_no_more_columns_than_postgresql_gives_it() {
    let (safe, disk) = (Safe::new(), Disk::default());
    let mut store = safe.open(&disk, 1 << 20).unwrap();
    store.finish_recovery(1).unwrap();
    let key = SecretKey::generate().unwrap();
    let table = store.open_partition(None, relation(1)).unwrap();
    for column in [0, 1601, u16::MAX] {
        let bound = store.bind(table, column, to(9), &key);
        assert_eq!(bound, Err(Fault::BadRequest));
        let put = store.put(None, table, column, Kind::Int8, Value::Word(1));
        assert_eq!(put, Err(Fault::BadRequest));
    }
    for column in 1..=1600 {
        store.bind(table, column, to(9), &key).unwrap();
    }
    store.checkpoint(2).unwrap();
    drop(store);
    let store = safe.open(&disk, 1 << 20).unwrap();
    assert_eq!(store.binding(table, 1600), Some(to(9)));
}

#[test]
fn the_databases_that_have_partitions_are_told_in_order() {
    let (safe, disk) = (Safe::new(), Disk::default());
    let mut store = safe.open(&disk, 1 << 20).unwrap();
    store.finish_recovery(1).unwrap();
    let of = |database, filenode| Relation {
        database,
        ..relation(filenode)
    };
    assert_eq!(store.next_database(0), None);
    let high = store.open_partition(None, of(900, 1)).unwrap();
    let shared = store.open_partition(None, of(0, 2)).unwrap();
    let low = store.open_partition(None, of(7, 3)).unwrap();
    assert_eq!(store.next_database(0), Some((7, low)));
    assert_eq!(store.next_database(7), Some((900, high)));
    assert_eq!(store.next_database(900), None);
    store.drop_partition(None, low).unwrap();
    store.drop_partition(None, shared).unwrap();
    assert_eq!(store.next_database(0), Some((900, high)));
}
