//! Several histories of one store: its host starts it twice from one state, and shows the records
//! of both to a third start. What the values of one history were made for is what they stay.

use strongroom_columns_ring::Fault;
use strongroom_columns_values::Value;
use strongroom_columns_zone::store::{Binding, Promotion, Record, Source, Store};
use strongroom_crypto::SecretKey;
use strongroom_format::columns::{Fid, Kind};

use crate::disk::{Disk, State};
use crate::host::{Known, Safe, fresh, known, relation, to};

/// The column that the host wants its own key for.
const COLUMN: u16 = 2;

/// The host's own key, and the owner's.
const HOST: u8 = 7;
const OWNER: u8 = 5;

fn key(id: u8) -> SecretKey {
    SecretKey::take(&mut [id; 32]).unwrap()
}

/// A state of a store that keeps both keys: a column with a value is bound to each.
fn with_both_keys(safe: &Safe) -> State {
    let (disk, mut store) = fresh(safe);
    let table = store.open_partition(None, relation(50)).unwrap();
    store.bind(table, 1, to(HOST), &key(HOST)).unwrap();
    store.bind(table, 2, to(OWNER), &key(OWNER)).unwrap();
    for column in [1, 2] {
        let put = store.put(None, table, column, Kind::Int8, Value::Word(0));
        put.unwrap();
    }
    store.checkpoint(0).unwrap();
    disk.state()
}

/// A start of the zone on this disk, whose log is at its end.
fn started(safe: &Safe, disk: &Disk) -> Store {
    let mut store = safe.open(disk, 1 << 30).unwrap();
    let position = store.position();
    store.finish_recovery(position).unwrap();
    store
}

/// Stores a value in a table's column, which is bound to this, by a new ring.
fn promoted(store: &mut Store, table: u16, (column, of): (u16, Binding), n: u64) -> (Fid, Record) {
    store.bind(table, column, of, &key(of.key[0])).unwrap();
    let ring = store.attach();
    let item = Promotion {
        source: Source::Value(Value::Word(n)),
        column,
        kind: Kind::Int8,
    };
    let mut fids = Vec::new();
    let record = store.promote(ring, table, &[item], &mut fids);
    let record = record.unwrap().unwrap();
    store.confirm_inserted(ring, record.number);
    (fids[0], record)
}

/// Shows a start of the zone these records, whatever it says of them, and has it end recovery.
fn shown(safe: &Safe, disk: &Disk, records: &[&Record]) -> (Store, Vec<Result<(), Fault>>) {
    let mut store = safe.open(disk, 1 << 30).unwrap();
    let answers = records.iter().zip(1..);
    let answers = answers.map(|(record, at)| store.recover(&record.bytes, at));
    let answers = answers.collect();
    store.finish_recovery(9).unwrap();
    (store, answers)
}

#[test]
fn values_of_another_history_are_not_put_into_a_column_that_the_host_has_bound() {
    let safe = Safe::new();
    for moves in [0, 2] {
        let disk = Disk::of(with_both_keys(&safe));
        let mut store = started(&safe, &disk);
        let table = store.open_partition(None, relation(1)).unwrap();
        for n in 0..moves {
            let other = relation(60 + n);
            store.reassign_partition(None, table, other).unwrap();
        }
        let (own, first) = promoted(&mut store, table, (COLUMN, to(HOST)), 1);
        drop(store);
        let mut store = started(&safe, &disk);
        assert_eq!(store.open_partition(None, relation(1)), Ok(table));
        let (secret, second) = promoted(&mut store, table, (COLUMN, to(OWNER)), 42);
        assert!(secret.extent() > own.extent(), "one number, two partitions");
        drop(store);

        let state = disk.state();
        for records in [[&first, &second], [&second, &first]] {
            let disk = Disk::of(state.clone());
            let (mut store, answers) = shown(&safe, &disk, &records);
            assert_eq!(answers[0], Ok(()));
            assert_eq!(answers[1], Err(Fault::OtherHistory), "{moves} moves");
            let of = store.binding(table, COLUMN).unwrap();
            let (there, n, away) = match of == to(OWNER) {
                true => (secret, 42, own),
                false => (own, 1, secret),
            };
            assert_eq!(known(store.get(there).unwrap()), Known::Word(n));
            assert!(store.get(away).is_err(), "under {of:?}");
        }
    }
}

/// Two starts of copies of one state give out the same numbers; and what a checkpoint of one has is
/// not in the other.
#[test]
fn a_record_says_what_its_values_are_of_although_a_checkpoint_has_it() {
    let safe = Safe::new();
    let state = with_both_keys(&safe);
    let [own, secret] = [(HOST, 1), (OWNER, 42)].map(|(of, n)| {
        let disk = Disk::of(state.clone());
        let mut store = started(&safe, &disk);
        let table = store.open_partition(None, relation(1)).unwrap();
        let first = promoted(&mut store, table, (COLUMN, to(of)), n);
        store.checkpoint(1).unwrap();
        let later = promoted(&mut store, table, (COLUMN, to(of)), n);
        (table, first, later)
    });
    assert_eq!(own.0, secret.0);
    let disk = Disk::of(state.clone());
    let (mut store, answers) = shown(&safe, &disk, &[&own.1.1, &secret.2.1]);
    assert_eq!(answers, [Ok(()), Err(Fault::OtherHistory)]);
    assert_eq!(store.binding(own.0, COLUMN), Some(to(HOST)));
    assert!(store.get(secret.2.0).is_err());
    // The records of one history alone are replayed, with what the checkpoint had.
    let (mut store, answers) = shown(&safe, &Disk::of(state), &[&secret.1.1, &secret.2.1]);
    assert_eq!(answers, [Ok(()), Ok(())]);
    for fid in [secret.1.0, secret.2.0] {
        assert_eq!(known(store.get(fid).unwrap()), Known::Word(42));
    }
}

/// A number that was dropped and given out again, in one history: the log is replayed from its
/// beginning, onto the first state and onto the last one.
#[test]
fn a_number_that_is_given_out_again_is_replayed() {
    let safe = Safe::new();
    let (disk, mut store) = fresh(&safe);
    let before = disk.state();
    let ring = store.attach();
    let (table, empty) = (
        store.open_partition(Some(ring), relation(1)).unwrap(),
        store.open_partition(Some(ring), relation(2)).unwrap(),
    );
    let mut records = Vec::new();
    let mut log = |store: &mut Store| {
        let record = store.flush_log(ring).unwrap().unwrap();
        store.confirm_inserted(ring, record.number);
        records.push(record);
    };
    log(&mut store);
    let mut put = |store: &mut Store, table, of| {
        store.bind(table, COLUMN, to(of), &key(of)).unwrap();
        let put = store.put(Some(ring), table, COLUMN, Kind::Int8, Value::Word(3));
        let fid = put.unwrap();
        log(store);
        fid
    };
    let gone = put(&mut store, table, HOST);
    let others = (100..).map_while(|n| store.open_partition(None, relation(n)).ok());
    assert!(others.count() > 32_000);
    for number in [table, empty] {
        store.drop_partition(Some(ring), number).unwrap();
    }
    put(&mut store, table + 2, OWNER);
    assert_eq!(store.open_partition(Some(ring), relation(3)), Ok(table));
    assert_eq!(store.open_partition(Some(ring), relation(4)), Ok(empty));
    let there = [put(&mut store, table, OWNER), put(&mut store, empty, OWNER)];
    store.checkpoint(0).unwrap();
    drop(store);
    for state in [before, disk.state()] {
        let all: Vec<&Record> = records.iter().collect();
        let (mut store, answers) = shown(&safe, &Disk::of(state), &all);
        assert!(
            answers.iter().all(|answer| *answer == Ok(())),
            "{answers:?}"
        );
        for fid in there {
            assert_eq!(known(store.get(fid).unwrap()), Known::Word(3));
            assert_eq!(store.binding(fid.partition(), COLUMN), Some(to(OWNER)));
        }
        assert_eq!(store.get(gone).err(), Some(Fault::StaleFid));
    }
}

/// What follows a refused record in its chain is refused, too, until the record itself is accepted.
#[test]
fn a_refused_record_is_not_passed_over() {
    let safe = Safe::new();
    let state = with_both_keys(&safe);
    let mut store = started(&safe, &Disk::of(state.clone()));
    let table = store.open_partition(None, relation(1)).unwrap();
    let (_, first) = promoted(&mut store, table, (COLUMN, to(HOST)), 1);
    let mut store = started(&safe, &Disk::of(state.clone()));
    assert_eq!(store.open_partition(None, relation(1)), Ok(table));
    let (_, refused) = promoted(&mut store, table, (COLUMN, to(OWNER)), 42);
    // The next record of the same ring has only a value of a column that nobody has bound yet.
    store.detach(1);
    let (next, harmless) = promoted(&mut store, table, (3, to(OWNER)), 43);
    let records = [&first, &refused, &harmless, &refused];
    let (mut store, answers) = shown(&safe, &Disk::of(state), &records);
    let other = Err(Fault::OtherHistory);
    assert_eq!(answers, [Ok(()), other, Err(Fault::LogGap), other]);
    assert!(store.get(next).is_err());
}

/// A start of the zone on this disk opens a partition for relation 1, and gives it to relation 60
/// in a record of its own.
fn rehomed(safe: &Safe, disk: &Disk) -> (u16, Record, Record) {
    let mut store = started(safe, disk);
    let ring = store.attach();
    let table = store.open_partition(Some(ring), relation(1)).unwrap();
    let opened = store.flush_log(ring).unwrap().unwrap();
    store.confirm_inserted(ring, opened.number);
    store.checkpoint(1).unwrap();
    let other = store.attach();
    // What comes between makes the stamp of the move the highest one of all.
    for n in 70..75 {
        store.open_partition(None, relation(n)).unwrap();
    }
    let moved = store.reassign_partition(Some(other), table, relation(60));
    moved.unwrap();
    let moved = store.flush_log(other).unwrap().unwrap();
    (table, opened, moved)
}

#[test]
fn a_partition_of_another_first_extent_is_not_given_to_another_relation() {
    let safe = Safe::new();
    let disk = Disk::of(with_both_keys(&safe));
    let low = rehomed(&safe, &Disk::of(disk.state()));
    drop(started(&safe, &disk));
    let high = rehomed(&safe, &Disk::of(disk.state()));
    let table = low.0;
    assert_eq!(table, high.0, "one number, two partitions");
    let state = disk.state();
    for (records, answer, of) in [
        ([&high.1, &high.2], Ok(()), 60),
        ([&low.1, &low.2], Ok(()), 60),
        ([&high.1, &low.2], Ok(()), 1),
        ([&low.1, &high.2], Err(Fault::LogGap), 1),
    ] {
        let (store, answers) = shown(&safe, &Disk::of(state.clone()), &records);
        assert_eq!(answers, [Ok(()), answer]);
        assert_eq!(store.partition_of(relation(of)), Some(table));
    }
}

/// The record that gives a partition to another relation reaches the log before the one of the ring
/// that opened it; and the host confirms that one only afterwards.
#[test]
fn a_record_that_moves_a_partition_brings_its_opening() {
    let safe = Safe::new();
    let (disk, mut store) = fresh(&safe);
    let before = disk.state();
    let (ring, other) = (store.attach(), store.attach());
    let table = store.open_partition(Some(ring), relation(1)).unwrap();
    let opened = store.flush_log(ring).unwrap().unwrap();
    let to_60 = store.reassign_partition(Some(other), table, relation(60));
    to_60.unwrap();
    let moved = store.flush_log(other).unwrap().unwrap();
    store.checkpoint(0).unwrap();
    store.confirm_inserted(ring, opened.number);
    // This ring's record is not inserted; its next one says the opening again.
    let (_, value) = promoted(&mut store, table, (COLUMN, to(OWNER)), 1);
    for records in [[&moved, &opened], [&opened, &value]] {
        let (store, answers) = shown(&safe, &Disk::of(before.clone()), &records);
        assert_eq!(answers, [Ok(()), Ok(())]);
        assert_eq!(store.partition_of(relation(60)), Some(table));
    }
}

/// A number is dropped and given out again while a ring's record is being collected.
#[test]
fn a_record_says_the_binding_of_each_partition_of_a_number() {
    let safe = Safe::new();
    let (disk, mut store) = fresh(&safe);
    let before = disk.state();
    let ring = store.attach();
    let table = store.open_partition(Some(ring), relation(1)).unwrap();
    let put = |store: &mut Store, n| {
        store.bind(table, COLUMN, to(OWNER), &key(OWNER)).unwrap();
        let put = store.put(Some(ring), table, COLUMN, Kind::Int8, Value::Word(n));
        put.unwrap()
    };
    let gone = put(&mut store, 1);
    let others = (100..).map_while(|n| store.open_partition(None, relation(n)).ok());
    assert!(others.count() > 32_000);
    store.drop_partition(None, table).unwrap();
    assert_eq!(store.open_partition(Some(ring), relation(3)), Ok(table));
    let there = put(&mut store, 2);
    let record = store.flush_log(ring).unwrap().unwrap();
    let (mut store, answers) = shown(&safe, &Disk::of(before), &[&record]);
    assert_eq!(answers, [Ok(())]);
    assert_eq!(known(store.get(there).unwrap()), Known::Word(2));
    assert_eq!(store.get(gone).err(), Some(Fault::StaleFid));
}
