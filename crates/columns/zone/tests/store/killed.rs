//! The store's own log: kills under puts, torn and damaged ends.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use strongroom_columns_values::Value;
use strongroom_columns_zone::store::{
    ANCHOR_NAME, FileAnchor, LOG_NAME, LogFile, Store, create, open,
};
use strongroom_format::code;
use strongroom_format::columns::{Fid, Kind};

use crate::disk::{Disk, State, Unsynced};
use crate::host::{Known, Safe, bind_all, known, opener, options, relation};

/// Names the directory to the process that is to be killed.
const DIRECTORY: &str = "STRONGROOM_TEST_ZONE";

fn opened(directory: &Path) -> (Store, LogFile) {
    let anchor = Box::new(FileAnchor::at(directory.join(ANCHOR_NAME)));
    let mut store = open(directory, &opener(), anchor, options(200 * 1024)).unwrap();
    let log = LogFile::open(&directory.join(LOG_NAME), &mut store).unwrap();
    (store, log)
}

fn text(n: u64) -> Vec<u8> {
    let len = usize::try_from(n % 50).unwrap();
    let byte = u8::try_from(n % 251).unwrap();
    vec![byte; len]
}

/// Not a test of its own: what the next test runs and kills. Says each FID, and the number behind
/// its value, once it is durable.
#[test]
fn puts_until_it_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else {
        return;
    };
    let (mut store, mut log) = opened(&directory);
    let ring = store.attach();
    let partition = store.open_partition(Some(ring), relation(1)).unwrap();
    bind_all(&mut store, partition);
    for round in 0.. {
        let mut said = Vec::new();
        for n in round * 10..round * 10 + 10 {
            let fid = store
                .put(Some(ring), partition, 1, Kind::Text, Value::Bytes(&text(n)))
                .unwrap();
            said.push((fid, n));
        }
        let record = store.flush_log(ring).unwrap().unwrap();
        log.append(&record.bytes).unwrap();
        store.confirm_inserted(ring, record.number);
        log.sync().unwrap();
        for (fid, n) in said {
            println!("put {} {n}", fid.bits());
        }
        if round % 7 == 6 {
            let position = store.checkpoint(log.end()).unwrap();
            log.cut(position).unwrap();
        }
    }
}

#[test]
fn what_was_acknowledged_survives_kills() {
    let directory = std::env::temp_dir().join(format!("strongroom-zone-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    create(&directory, &opener().recipient().unwrap()).unwrap();
    let mut acknowledged: Vec<(u64, u64)> = Vec::new();
    for lines in [3, 40, 77, 150, 211, 333, 8, 500] {
        let program = std::env::current_exe().unwrap();
        let mut child = Command::new(program)
            .args(["killed::puts_until_it_is_killed", "--exact", "--nocapture"])
            .env(DIRECTORY, &directory)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut before = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            if let Some(("", rest)) = line.split_once("put ") {
                let (bits, n) = rest.split_once(' ').unwrap();
                acknowledged.push((bits.parse().unwrap(), n.parse().unwrap()));
                before += 1;
            }
            if before == lines {
                // What it says from now on is read to its end as well.
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(before >= lines);
        let (mut store, _log) = opened(&directory);
        for (bits, n) in &acknowledged {
            let held = store.get(Fid::from_bits(*bits).unwrap());
            assert_eq!(known(held.unwrap()), Known::Bytes(text(*n)));
        }
    }
    let mut bits: Vec<u64> = acknowledged.iter().map(|(bits, _)| *bits).collect();
    bits.sort_unstable();
    bits.dedup();
    assert_eq!(bits.len(), acknowledged.len(), "a FID was given out twice");
    std::fs::remove_dir_all(&directory).unwrap();
}

/// A run with its own log on the recording disk: what was durable after how many calls.
fn logged(safe: &Safe) -> (Disk, Vec<(usize, u64, u64)>) {
    let disk = Disk::default();
    let mut store = safe.open(&disk, 1 << 30).unwrap();
    let mut log = LogFile::with_storage(Box::new(disk.clone()), &mut store).unwrap();
    let ring = store.attach();
    let partition = store.open_partition(Some(ring), relation(1)).unwrap();
    bind_all(&mut store, partition);
    let mut durable = Vec::new();
    for round in 0..12 {
        let mut put = Vec::new();
        for n in 0..4 {
            let n = round * 4 + n;
            let fid = store
                .put(Some(ring), partition, 1, Kind::Text, Value::Bytes(&text(n)))
                .unwrap();
            let record = store.flush_log(ring).unwrap().unwrap();
            log.append(&record.bytes).unwrap();
            store.confirm_inserted(ring, record.number);
            put.push((fid.bits(), n));
        }
        log.sync().unwrap();
        durable.extend(put.into_iter().map(|(bits, n)| (disk.calls(), bits, n)));
        if round % 5 == 4 {
            let position = store.checkpoint(log.end()).unwrap();
            log.cut(position).unwrap();
        }
    }
    (disk, durable)
}

#[test]
fn a_crash_after_any_call_leaves_what_was_synced_in_the_log() {
    let safe = Safe::new();
    let (disk, durable) = logged(&safe);
    for after in 0..=disk.calls() {
        for unsynced in [Unsynced::All, Unsynced::None, Unsynced::Some(after as u64)] {
            let crashed = Disk::of(disk.crashed(after, unsynced));
            let mut store = safe.open(&crashed, 1 << 30).unwrap();
            let log = LogFile::with_storage(Box::new(crashed.clone()), &mut store);
            assert!(log.is_ok(), "{after} {unsynced:?}: {}", log.err().unwrap());
            for (_, bits, n) in durable.iter().filter(|(calls, _, _)| *calls <= after) {
                let held = store.get(Fid::from_bits(*bits).unwrap());
                assert_eq!(
                    known(held.unwrap()),
                    Known::Bytes(text(*n)),
                    "{after} {unsynced:?}"
                );
            }
        }
    }
}

#[test]
fn damage_in_the_middle_of_the_log_is_not_its_end() {
    let safe = Safe::new();
    let (disk, _) = logged(&safe);
    let state = disk.state();
    let code_with = |log: Vec<u8>| {
        let disk = Disk::of(State {
            log,
            ..state.clone()
        });
        let mut store = safe.open(&disk, 1 << 30).unwrap();
        LogFile::with_storage(Box::new(disk), &mut store)
            .err()
            .map(|error| error.code().number)
    };
    assert_eq!(code_with(state.log.clone()), None);
    for at in [30, 100, state.log.len() / 4] {
        let mut bad = state.log.clone();
        bad[at] ^= 1;
        assert_eq!(code_with(bad), Some(code::REDO_RECORD.number), "byte {at}");
    }
    // The last frame may be torn.
    let mut torn = state.log.clone();
    *torn.last_mut().unwrap() ^= 1;
    assert_eq!(code_with(torn), None);
}
