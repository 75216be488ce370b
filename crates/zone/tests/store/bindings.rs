//! A column's key comes back from the log and from the manifest, and no other takes its place (S6).

use std::path::Path;

use strongroom_format::columns::Kind;
use strongroom_rpc::Fault;
use strongroom_values::Value;
use strongroom_zone::store::{ANCHOR_NAME, FileAnchor, Promotion, Source, Store, create, open};

use crate::host::{opener, options, relation};

fn opened(directory: &Path) -> Store {
    let anchor = Box::new(FileAnchor::at(directory.join(ANCHOR_NAME)));
    open(directory, &opener(), anchor, options(1 << 20)).unwrap()
}

#[test]
fn a_binding_survives_a_crash_by_the_log_and_a_restart_by_the_manifest() {
    let directory = std::env::temp_dir().join(format!("sr-bindings-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    create(&directory, &opener()).unwrap();
    let mut store = opened(&directory);
    store.recovered(1).unwrap();
    let (first, second) = (store.attach(), store.attach());
    let table = store.open_partition(Some(first), relation(1)).unwrap();
    assert_eq!(store.column_key(table, 3), None);
    store.bind(table, 3, [9; 16]).unwrap();
    // Another ring's record is the one that gets into the log.
    let item = Promotion {
        source: Source::Value(Value::Word(5)),
        column: 3,
        kind: Kind::Int8,
    };
    let mut fids = Vec::new();
    let lost = store
        .promote(first, table, &[item], true, &mut fids)
        .unwrap();
    let kept = store
        .promote(second, table, &[item, item], true, &mut fids)
        .unwrap()
        .unwrap();
    assert!(lost.is_some());
    store.inserted(second, kept.number);
    drop(store);

    let mut store = opened(&directory);
    assert_eq!(store.column_key(table, 3), None, "the checkpoint is older");
    store.recover(&kept.bytes, 2).unwrap();
    assert_eq!(store.column_key(table, 3), Some([9; 16]));
    assert_eq!(store.get(fids[0]).err(), Some(Fault::Recovering));
    store.recovered(3).unwrap();
    assert!(store.get(fids[1]).is_ok());
    drop(store);

    let mut store = opened(&directory);
    assert_eq!(
        store.column_key(table, 3),
        Some([9; 16]),
        "by the manifest alone"
    );
    store.recovered(3).unwrap();
    assert_eq!(store.bind(table, 3, [8; 16]), Err(Fault::ColumnMismatch));
    assert_eq!(store.bind(table, 3, [9; 16]), Ok(()));
    store.drop_partition(None, table).unwrap();
    assert_eq!(
        store.column_key(table, 3),
        None,
        "it goes with its partition"
    );
    drop(store);
    std::fs::remove_dir_all(&directory).unwrap();
}
