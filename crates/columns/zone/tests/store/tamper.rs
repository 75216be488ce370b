//! Bytes on disk that are changed, exchanged, or from another time: each is found, with its code.

use strongroom_columns_ring::Fault;
use strongroom_columns_values::Value;
use strongroom_columns_zone::store::{Options, Store};
use strongroom_format::code;
use strongroom_format::columns::manifest::manifest_layout;
use strongroom_format::columns::{Fid, Kind};

use crate::disk::{Disk, State};
use crate::host::{Host, Safe, options, relation};

/// A store with some blocks of two partitions, closed; and FIDs of values in different blocks.
fn filled(safe: &Safe) -> (State, Vec<Fid>) {
    let disk = Disk::default();
    let mut store = safe.open(&disk, 1 << 30).unwrap();
    store.finish_recovery(0).unwrap();
    let mut fids = Vec::new();
    for filenode in [1, 2] {
        let partition = store.open_partition(None, relation(filenode)).unwrap();
        for column in [1, 2] {
            let text = format!("a text of some length in column {column}");
            fids.push(
                store
                    .put(
                        None,
                        partition,
                        column,
                        Kind::Text,
                        Value::Bytes(text.as_bytes()),
                    )
                    .unwrap(),
            );
        }
    }
    store.checkpoint(100).unwrap();
    (disk.state(), fids)
}

fn opened(safe: &Safe, state: &State) -> Result<Store, strongroom_keyring::Error> {
    safe.open(&Disk::of(state.clone()), 1 << 30)
}

fn code_of(result: Result<Store, strongroom_keyring::Error>) -> u16 {
    result.map_or_else(|error| error.code().number, |_| 0)
}

/// Blocks are read when they are needed: what the store says of these FIDs.
fn faults(safe: &Safe, state: &State, fids: &[Fid]) -> Vec<Option<Fault>> {
    let mut store = opened(safe, state).unwrap();
    store.finish_recovery(100).unwrap();
    let mut found = Vec::new();
    for fid in fids {
        let fault = store.get(*fid).err();
        if fault.is_some() {
            assert_eq!(store.take_last_error().unwrap().code(), &code::STORE_BLOCK);
        }
        found.push(fault);
    }
    found
}

#[test]
fn a_changed_block_is_found_and_the_others_are_not_touched() {
    let safe = Safe::new();
    let (state, fids) = filled(&safe);
    assert_eq!(faults(&safe, &state, &fids), [None; 4]);
    // The nonce, the states, the length and the bytes of the one value.
    for at in [0, 11, 12, 700, 1038, 1040, 1045] {
        let mut bad = state.clone();
        bad.blocks[at] ^= 1;
        let found = faults(&safe, &bad, &fids);
        let damaged = found
            .iter()
            .filter(|fault| **fault == Some(Fault::StoreDamaged))
            .count();
        assert_eq!(damaged, 1, "byte {at}: {found:?}");
    }
}

#[test]
fn exchanged_older_and_missing_blocks_are_found() {
    let safe = Safe::new();
    let (state, fids) = filled(&safe);
    // Every block takes two units here. All are turned by one place.
    let unit = 2 * 1024;
    assert_eq!(state.blocks.len(), 4 * unit);
    let mut exchanged = state.clone();
    exchanged.blocks.rotate_left(unit);
    assert_eq!(
        faults(&safe, &exchanged, &fids),
        [Some(Fault::StoreDamaged); 4]
    );
    let mut missing = state.clone();
    missing.blocks.truncate(unit);
    let found = faults(&safe, &missing, &fids);
    assert_eq!(found.iter().flatten().count(), 3, "{found:?}");

    // The block is written anew, to another place; then that place gets what the old one had.
    let disk = Disk::of(state.clone());
    let mut store = safe.open(&disk, 1 << 30).unwrap();
    store.finish_recovery(100).unwrap();
    store.delete(None, fids[0]).unwrap();
    let partition = fids[0].partition();
    store
        .put(
            None,
            partition,
            1,
            Kind::Text,
            Value::Bytes(b"another text of some length"),
        )
        .unwrap();
    store.checkpoint(100).unwrap();
    drop(store);
    let mut older = disk.state();
    for from in (0..state.blocks.len()).step_by(unit) {
        let old = state.blocks[from..from + unit].to_vec();
        for to in (4 * unit..older.blocks.len()).step_by(unit) {
            let len = old.len().min(older.blocks.len() - to);
            older.blocks[to..to + len].copy_from_slice(&old[..len]);
            let mut store = opened(&safe, &older).unwrap();
            store.finish_recovery(100).unwrap();
            let found = store.get(fids[0]).err();
            assert!(
                matches!(found, Some(Fault::StoreDamaged | Fault::StaleFid)),
                "{found:?}"
            );
        }
    }
}

#[test]
fn a_changed_manifest_is_found() {
    let safe = Safe::new();
    let (state, _) = filled(&safe);
    assert_eq!(code_of(opened(&safe, &state)), 0);
    let manifest = state.manifest.clone().unwrap();
    for at in 0..manifest.len() {
        let mut bad = state.clone();
        bad.manifest.as_mut().unwrap()[at] ^= 0x10;
        // A changed version cannot be told from another version: it is refused too.
        let version = manifest_layout::VERSION;
        let expected = if (version.offset..version.offset + version.len).contains(&at) {
            code::NEWER_FORMAT
        } else {
            code::STORE_MANIFEST
        };
        let found = code_of(opened(&safe, &bad));
        assert_eq!(found, expected.number, "byte {at}");
    }
    for len in [
        0,
        manifest_layout::SIZE - 1,
        manifest_layout::SIZE,
        manifest.len() - 1,
    ] {
        let mut bad = state.clone();
        bad.manifest.as_mut().unwrap().truncate(len);
        assert_eq!(
            code_of(opened(&safe, &bad)),
            code::STORE_MANIFEST.number,
            "{len} bytes"
        );
    }
    let other = Safe::new();
    assert_eq!(
        code_of(opened(&other, &state)),
        code::STORE_MANIFEST.number,
        "another store's"
    );
}

#[test]
fn an_older_store_is_refused_unless_the_restore_is_on_purpose() {
    let safe = Safe::new();
    let (older, fids) = filled(&safe);
    let disk = Disk::of(older.clone());
    drop(safe.open(&disk, 1 << 30).unwrap());
    let newer = disk.state();
    let put_back = State {
        anchor: newer.anchor,
        ..older.clone()
    };
    assert_eq!(code_of(opened(&safe, &put_back)), code::STORE_OLD.number);
    let gone = State {
        manifest: None,
        ..newer.clone()
    };
    assert_eq!(code_of(opened(&safe, &gone)), code::STORE_OLD.number);
    // An anchor that was put back, or is another one, does not agree either.
    let behind = State {
        anchor: older.anchor - 1,
        ..newer.clone()
    };
    assert_eq!(code_of(opened(&safe, &behind)), code::STORE_OLD.number);

    let disk = Disk::of(put_back);
    let accepted = Options {
        accept_restored: true,
        ..options(1 << 30)
    };
    let mut store = Store::with_files(
        safe.keys(),
        Box::new(disk.clone()),
        Box::new(disk.clone()),
        accepted,
    )
    .unwrap();
    store.finish_recovery(100).unwrap();
    store.get(fids[0]).unwrap();
    drop(store);
    // From then on it is the newest, and what was the newest before is not.
    assert_eq!(code_of(opened(&safe, &disk.state())), 0);
    let replaced = State {
        anchor: disk.state().anchor,
        ..newer
    };
    assert_eq!(code_of(opened(&safe, &replaced)), code::STORE_OLD.number);
}

/// A crash between manifest and anchor leaves a manifest that counts; after the next start it must
/// not any more.
#[test]
fn a_manifest_that_was_never_acknowledged_is_refused_after_the_next_start() {
    let safe = Safe::new();
    let (state, _) = filled(&safe);
    let disk = Disk::of(state.clone());
    let store = safe.open(&disk, 1 << 30).unwrap();
    drop(store);
    // The first of the two manifests of that start, with the anchor as it was before.
    let calls = disk.calls();
    let first = (0..calls)
        .map(|after| disk.crashed(after, crate::disk::Unsynced::All))
        .find(|crashed| crashed.manifest != state.manifest && crashed.anchor == state.anchor)
        .unwrap();
    assert_eq!(code_of(opened(&safe, &first)), 0, "as after a crash");
    let put_back = State {
        anchor: disk.state().anchor,
        ..first.clone()
    };
    assert_eq!(code_of(opened(&safe, &put_back)), code::STORE_OLD.number);
    // Also when the old manifest was opened instead, and a new one has the same counter.
    let fork = Disk::of(state);
    drop(safe.open(&fork, 1 << 30).unwrap());
    let put_back = State {
        anchor: fork.state().anchor,
        ..first
    };
    assert_eq!(code_of(opened(&safe, &put_back)), code::STORE_OLD.number);
}

/// A full disk: the operation fails with its fault, nothing is acknowledged, and all is well when
/// there is room again.
#[test]
fn a_full_disk_is_an_error_and_not_a_loss() {
    let (mut host, mut store) = Host::new(5, 64 * 1024);
    for _ in 0..20 {
        host.promote(&mut store, 30);
    }
    for allowed in 0..6 {
        host.promote(&mut store, 30);
        host.disk.allow(Some(allowed));
        let failed = store.checkpoint(u64::MAX - 1);
        if let Err(error) = failed {
            let number = error.code().number;
            assert!(
                [
                    code::ZONE_DISK.number,
                    code::STORE_IO.number,
                    code::IO.number
                ]
                .contains(&number),
                "{error}"
            );
            host.disk.allow(None);
            if store.checkpoint(0).is_err() {
                // A sync has failed: the store says so until it is opened anew.
                store = host.restart(store);
            }
        }
        host.disk.allow(None);
        host.check(&mut store);
    }
    // Evicting needs the disk too.
    host.disk.allow(Some(0));
    let partition = host.some_partition(&mut store);
    let mut refused = None;
    for n in 0..200_000 {
        if let Err(fault) = store.put(None, partition, 9, Kind::Int8, Value::Word(n)) {
            refused = Some(fault);
            break;
        }
    }
    assert_eq!(refused, Some(Fault::DiskFull));
    host.disk.allow(None);
    host.check(&mut store);
}
