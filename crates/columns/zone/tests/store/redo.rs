//! Redo records: chains, forgery, order, and what a FID may never do.

use std::collections::BTreeSet;

use strongroom_columns_ring::Fault;
use strongroom_columns_values::Value;
use strongroom_columns_zone::store::{Promotion, Record, Source, Store};
use strongroom_format::columns::redo::RedoHead;
use strongroom_format::columns::{Fid, Kind};

use crate::disk::{Disk, State};
use crate::host::{Known, Safe, bind_all, fresh, keep_key, known, relation};

fn word(n: u64) -> Promotion<'static> {
    Promotion {
        source: Source::Value(Value::Word(n)),
        column: 1,
        kind: Kind::Int8,
    }
}

fn promoted(store: &mut Store, ring: u32, partition: u16, n: u64) -> (Fid, Record) {
    bind_all(store, partition);
    let mut fids = Vec::new();
    let record = store
        .promote(ring, partition, &[word(n)], &mut fids)
        .unwrap()
        .unwrap();
    (fids[0], record)
}

/// A store before anything was done, and the records of what was done: three of ring 1 with one of
/// ring 2 between.
fn story(safe: &Safe) -> (State, Vec<(Fid, Record)>) {
    let (disk, mut store) = fresh(safe);
    let before = disk.state();
    let (a, b) = (store.attach(), store.attach());
    let partition = store.open_partition(Some(a), relation(1)).unwrap();
    let mut records = Vec::new();
    for (n, ring) in [a, a, b, a].into_iter().enumerate() {
        let (fid, record) = promoted(&mut store, ring, partition, n as u64);
        store.confirm_inserted(ring, record.number);
        records.push((fid, record));
    }
    (before, records)
}

fn replayed(safe: &Safe, state: &State, records: &[&[u8]]) -> Result<Store, Fault> {
    let mut store = safe.open(&Disk::of(state.clone()), 1 << 30).unwrap();
    for (position, record) in records.iter().enumerate() {
        store.recover(record, position as u64)?;
    }
    store.finish_recovery(records.len() as u64).unwrap();
    Ok(store)
}

#[test]
fn a_record_taken_out_of_the_middle_is_found() {
    let safe = Safe::new();
    let (state, story) = story(&safe);
    let all: Vec<&[u8]> = story
        .iter()
        .map(|(_, record)| record.bytes.as_slice())
        .collect();
    let mut store = replayed(&safe, &state, &all).unwrap();
    for (n, (fid, _)) in story.iter().enumerate() {
        assert_eq!(known(store.get(*fid).unwrap()), Known::Word(n as u64));
    }
    for without in [0, 1] {
        let mut some = all.clone();
        some.remove(without);
        assert_eq!(
            replayed(&safe, &state, &some).err(),
            Some(Fault::LogGap),
            "without {without}"
        );
    }
    // The end may be missing: a crash takes it. Of ring 2 this is the end.
    for without in [2, 3] {
        let mut some = all.clone();
        some.remove(without);
        replayed(&safe, &state, &some).unwrap();
    }
    let order = [all[1], all[0], all[2], all[3]];
    assert_eq!(replayed(&safe, &state, &order).err(), Some(Fault::LogGap));
}

#[test]
fn a_changed_or_foreign_record_is_found() {
    let safe = Safe::new();
    let (state, story) = story(&safe);
    let record = &story[0].1.bytes;
    for at in 0..record.len() {
        let mut bad = record.clone();
        bad[at] ^= 4;
        assert_eq!(
            replayed(&safe, &state, &[&bad]).err(),
            Some(Fault::BadRecord),
            "byte {at}"
        );
    }
    for len in [0, 47, 59, 60, 92, record.len() - 1] {
        assert_eq!(
            replayed(&safe, &state, &[&record[..len]]).err(),
            Some(Fault::BadRecord)
        );
    }
    let (other, state) = (Safe::new(), State::default());
    assert_eq!(
        replayed(&other, &state, &[record]).err(),
        Some(Fault::BadRecord),
        "another store's"
    );
}

#[test]
fn no_two_records_have_one_nonce_even_after_a_restore() {
    let safe = Safe::new();
    let (mut seen, mut nonces) = (BTreeSet::new(), BTreeSet::new());
    let mut state = State::default();
    for _ in 0..3 {
        let disk = Disk::of(State {
            anchor: 0,
            manifest: None,
            ..state.clone()
        });
        let mut store = safe.open(&disk, 1 << 30).unwrap();
        store.finish_recovery(0).unwrap();
        keep_key(&mut store);
        let ring = store.attach();
        let partition = store.open_partition(Some(ring), relation(1)).unwrap();
        for n in 0..5 {
            let record = promoted(&mut store, ring, partition, n).1.bytes;
            let head = RedoHead::parse(&record).unwrap();
            assert!(seen.insert((head.incarnation, head.number)));
            assert!(nonces.insert(head.nonce), "a number may come twice");
        }
        state = disk.state();
    }
}

#[test]
fn a_fid_of_a_lost_incarnation_is_never_given_to_another_value() {
    let safe = Safe::new();
    let (disk, mut store) = fresh(&safe);
    let mut seen = BTreeSet::new();
    for round in 0..4 {
        let ring = store.attach();
        // One relation that every round loses again, and one that is known from the first
        // checkpoint on.
        let lost = store
            .open_partition(Some(ring), relation(100 + round))
            .unwrap();
        let kept = store.open_partition(Some(ring), relation(1)).unwrap();
        if round == 0 {
            store.checkpoint(0).unwrap();
        }
        for n in 0..3000 {
            let (fid, _) = promoted(&mut store, ring, if n % 2 == 0 { lost } else { kept }, n);
            assert!(seen.insert(fid.bits()), "{fid:?} in round {round}");
        }
        // Ends without a checkpoint, and no record of it was inserted.
        drop(store);
        store = safe.open(&disk, 1 << 30).unwrap();
        store.finish_recovery(0).unwrap();
    }
}

#[test]
fn slots_are_given_out_in_no_order_and_again_only_after_the_log_knows() {
    let safe = Safe::new();
    let (_, mut store) = fresh(&safe);
    let ring = store.attach();
    let partition = store.open_partition(Some(ring), relation(1)).unwrap();
    let fids: Vec<Fid> = (0..1024)
        .map(|n| {
            store
                .put(Some(ring), partition, 1, Kind::Int8, Value::Word(n))
                .unwrap()
        })
        .collect();
    let rises = fids.windows(2).filter(|pair| pair[0] < pair[1]).count();
    assert!((350..680).contains(&rises), "{rises}");
    assert!(
        fids.iter()
            .all(|fid| fid.index() >> 10 == fids[0].index() >> 10),
        "block by block"
    );

    store.delete(Some(ring), fids[5]).unwrap();
    let record = store.flush_log(ring).unwrap().unwrap();
    let next = store
        .put(Some(ring), partition, 1, Kind::Int8, Value::Word(0))
        .unwrap();
    assert_ne!(next.slot(), fids[5].slot());
    store.confirm_inserted(ring, record.number);
    let next = store
        .put(Some(ring), partition, 1, Kind::Int8, Value::Word(77))
        .unwrap();
    assert_eq!(
        (next.slot(), next.generation()),
        (fids[5].slot(), fids[5].generation() + 1)
    );
    assert_eq!(store.get(fids[5]).err(), Some(Fault::StaleFid));
    assert_eq!(known(store.get(next).unwrap()), Known::Word(77));
}

#[test]
fn forged_fids_lead_nowhere_and_columns_keep_their_kind() {
    let safe = Safe::new();
    let (_, mut store) = fresh(&safe);
    let ring = store.attach();
    let partition = store.open_partition(Some(ring), relation(1)).unwrap();
    let (fid, _) = promoted(&mut store, ring, partition, 1);
    let forged = [
        Fid::permanent(partition + 1, 0, fid.extent(), fid.index()),
        Fid::permanent(partition, 1, fid.extent(), fid.index()),
        Fid::permanent(partition, 0, fid.extent() + 1, fid.index()),
        Fid::permanent(partition, 0, fid.extent(), fid.index() ^ 1),
        Fid::permanent(partition, 0, fid.extent(), fid.index() ^ 0x8000),
        Fid::ephemeral(partition, 0, 0),
    ];
    for fid in forged.into_iter().flatten() {
        assert_eq!(store.get(fid).err(), Some(Fault::ForgedFid), "{fid:?}");
        assert_eq!(store.delete(None, fid).err(), Some(Fault::ForgedFid));
        let item = Promotion {
            source: Source::Stored(fid),
            column: 1,
            kind: Kind::Int8,
        };
        let mut fids = Vec::new();
        assert_eq!(
            store
                .promote(ring, partition, &[word(3), item], &mut fids)
                .err(),
            Some(Fault::ForgedFid)
        );
        assert!(fids.is_empty());
    }
    let item = |column, kind| Promotion {
        source: Source::Stored(fid),
        column,
        kind,
    };
    let mut fids = Vec::new();
    let wrong = store.promote(ring, partition, &[item(1, Kind::Text)], &mut fids);
    assert_eq!(wrong.err(), Some(Fault::KindMismatch));
    // Another column of the partition gets a copy, its own column the value itself.
    let both = [item(2, Kind::Int8), item(1, Kind::Int8)];
    store.promote(ring, partition, &both, &mut fids).unwrap();
    assert_eq!((fids.len(), fids[1]), (2, fid));
    assert_ne!(fids[0].extent(), fid.extent());
    assert_eq!(store.get(fids[0]).unwrap().column, 2);
    assert_eq!(known(store.get(fids[0]).unwrap()), Known::Word(1));
    let text = Value::Bytes(b"text");
    assert_eq!(
        store.put(None, partition, 1, Kind::Text, text).err(),
        Some(Fault::KindMismatch)
    );
    assert_eq!(
        store.put(None, partition + 1, 1, Kind::Text, text).err(),
        Some(Fault::PartitionUnknown)
    );
    let long = vec![1; 1_048_577];
    assert_eq!(
        store
            .put(None, partition, 3, Kind::Text, Value::Bytes(&long))
            .err(),
        Some(Fault::StringTooLong)
    );
}

#[test]
fn generations_end_and_then_the_slot_is_retired() {
    let safe = Safe::new();
    let (_, mut store) = fresh(&safe);
    let ring = store.attach();
    let partition = store.open_partition(Some(ring), relation(1)).unwrap();
    let mut fid = store
        .put(Some(ring), partition, 1, Kind::Int8, Value::Word(0))
        .unwrap();
    let slot = fid.slot();
    for generation in 0..=255 {
        assert_eq!((fid.slot(), fid.generation()), (slot, generation));
        store.delete(Some(ring), fid).unwrap();
        let record = store.flush_log(ring).unwrap().unwrap();
        store.confirm_inserted(ring, record.number);
        let next = store
            .put(Some(ring), partition, 1, Kind::Int8, Value::Word(1))
            .unwrap();
        if generation == 255 {
            assert_ne!(next.slot(), slot);
            assert_eq!(store.get(fid).err(), Some(Fault::StaleFid));
        }
        fid = next;
    }
}

/// A replica follows the log, writes checkpoints of its own, is started anew in the middle, and
/// takes over.
#[test]
fn a_replica_follows_and_takes_over() {
    let safe = Safe::new();
    let (primary, mut store) = fresh(&safe);
    let replica = Disk::of(primary.state());
    let mut follower = safe.open(&replica, 1 << 30).unwrap();
    let rings = [store.attach(), store.attach()];
    let partition = store.open_partition(Some(rings[0]), relation(1)).unwrap();
    let mut fids = Vec::new();
    for n in 0..300 {
        let ring = rings[usize::try_from(n % 2).unwrap()];
        let (fid, record) = promoted(&mut store, ring, partition, n);
        store.confirm_inserted(ring, record.number);
        fids.push(fid);
        follower.recover(&record.bytes, n).unwrap();
        assert_eq!(follower.get(fid).err(), Some(Fault::Recovering));
        if n % 70 == 69 {
            follower.checkpoint(n + 1).unwrap();
            drop(follower);
            follower = safe.open(&replica, 1 << 30).unwrap();
            assert_eq!(follower.position(), n + 1);
        }
    }
    // The primary has given out more than its log got: the replica's values must not have those
    // names.
    let lost: BTreeSet<Fid> = (0..2000)
        .map(|n| promoted(&mut store, rings[0], partition, n).0)
        .collect();
    follower.finish_recovery(300).unwrap();
    for (n, fid) in fids.iter().enumerate() {
        assert_eq!(known(follower.get(*fid).unwrap()), Known::Word(n as u64));
    }
    assert_eq!(follower.partition_of(relation(1)), Some(partition));
    let ring = follower.attach();
    for n in 0..2000 {
        let (fid, _) = promoted(&mut follower, ring, partition, n);
        assert!(!lost.contains(&fid) && !fids.contains(&fid));
    }
}

/// Two rings, one partition: the one that opened it is the slower to reach the log.
#[test]
fn a_record_brings_its_partition_when_the_log_may_not_have_it() {
    let safe = Safe::new();
    let (disk, mut store) = fresh(&safe);
    let before = disk.state();
    let (a, b) = (store.attach(), store.attach());
    let partition = store.open_partition(Some(a), relation(1)).unwrap();
    let (first, slow) = promoted(&mut store, a, partition, 1);
    let (second, quick) = promoted(&mut store, b, partition, 2);
    let mut found = replayed(&safe, &before, &[&quick.bytes, &slow.bytes]).unwrap();
    assert_eq!(known(found.get(first).unwrap()), Known::Word(1));
    assert_eq!(known(found.get(second).unwrap()), Known::Word(2));
    let mut found = replayed(&safe, &before, &[&quick.bytes]).unwrap();
    assert_eq!(known(found.get(second).unwrap()), Known::Word(2));
    // Once the log has it, it is not said again.
    store.confirm_inserted(b, quick.number);
    // Not by the host's word for it: by a manifest of the store's own.
    let third = promoted(&mut store, a, partition, 3).1;
    assert_eq!(third.bytes.len(), quick.bytes.len());
    store.checkpoint(0).unwrap();
    let fourth = promoted(&mut store, a, partition, 4).1;
    // The binding is said in every record: it is what its values are of.
    assert_eq!(fourth.bytes.len() + 28, quick.bytes.len());
}

/// A crash of the host's server takes records that were inserted, but in its memory only, while the
/// store lives on. What follows names them; a checkpoint before it makes that sound, which is what
/// the engine does when a backend is of another life.
#[test]
fn a_log_whose_end_was_lost_is_replayed_behind_a_checkpoint() {
    let safe = Safe::new();
    for checkpoint in [true, false] {
        let (disk, mut store) = fresh(&safe);
        let ring = store.attach();
        // The partition's opening stands in a record that is lost.
        let partition = store.open_partition(Some(ring), relation(1)).unwrap();
        let (_, lost) = promoted(&mut store, ring, partition, 1);
        store.confirm_inserted(ring, lost.number);
        store.detach(ring);
        if checkpoint {
            store.checkpoint(0).unwrap();
        }
        let ring = store.attach();
        let (fid, kept) = promoted(&mut store, ring, partition, 2);
        store.confirm_inserted(ring, kept.number);
        let again = replayed(&safe, &disk.state(), &[&kept.bytes]);
        if checkpoint {
            let mut again = again.unwrap();
            assert_eq!(known(again.get(fid).unwrap()), Known::Word(2));
        } else {
            assert_eq!(again.err(), Some(Fault::LogGap), "the hazard is no more");
        }
    }
}

/// A crash of the host's server takes the end of the log, and the zone lives on. A replica and an
/// older copy of the store have no checkpoint that has what was lost: what follows is sound for
/// them, too, and for those that have got what the log has lost.
#[test]
fn a_log_whose_end_was_lost_is_followed_by_those_who_never_got_it() {
    let safe = Safe::new();
    let (disk, mut store) = fresh(&safe);
    let before = disk.state();
    let (ring, other) = (store.attach(), store.attach());
    let partition = store.open_partition(Some(ring), relation(1)).unwrap();
    let (first, lost) = promoted(&mut store, ring, partition, 1);
    store.confirm_inserted(ring, lost.number);
    let late = promoted(&mut store, other, partition, 2).1;
    store.checkpoint(0).unwrap();
    store.begin_server_generation().unwrap();
    // What a ring of the memory before still says, does not count for records of this one.
    store.confirm_inserted(other, late.number);
    for ended in [ring, other] {
        store.detach(ended);
    }
    let rings = [store.attach(), store.attach()];
    let (mut fids, mut records) = (Vec::new(), Vec::new());
    for n in 0..4 {
        let ring = rings[usize::try_from(n % 2).unwrap()];
        let (fid, record) = promoted(&mut store, ring, partition, 10 + n);
        store.confirm_inserted(ring, record.number);
        fids.push(fid);
        records.push(record);
    }
    let kept: Vec<&[u8]> = records.iter().map(|record| &record.bytes[..]).collect();
    let all = [&[&lost.bytes[..]], &kept[..]].concat();
    for (state, log) in [(&before, &kept), (&before, &all), (&disk.state(), &kept)] {
        let mut found = replayed(&safe, state, log).unwrap();
        for (n, fid) in (10..).zip(&fids) {
            assert_eq!(known(found.get(*fid).unwrap()), Known::Word(n));
        }
        let has_first = found.get(first).is_ok();
        assert_eq!(has_first, log.len() == 5 || state.anchor > before.anchor);
    }
    // Within one life of the server's memory no record is missed unnoticed.
    for state in [&before, &disk.state()] {
        for without in [0, 1] {
            let mut some = kept.clone();
            some.remove(without);
            let gap = replayed(&safe, state, &some).err();
            assert_eq!(gap, Some(Fault::LogGap), "without {without}");
        }
    }
}

/// The machine fails: the log loses its end, although a manifest has what that said. The zone that
/// is started anew says the opening again, for those who have the log alone.
#[test]
fn an_opening_that_only_a_manifest_has_is_said_again_after_a_start() {
    let safe = Safe::new();
    let (disk, mut store) = fresh(&safe);
    let before = disk.state();
    let ring = store.attach();
    let partition = store.open_partition(Some(ring), relation(1)).unwrap();
    let (_, lost) = promoted(&mut store, ring, partition, 1);
    store.confirm_inserted(ring, lost.number);
    store.checkpoint(0).unwrap();
    drop(store);
    let mut store = safe.open(&disk, 1 << 30).unwrap();
    store.finish_recovery(0).unwrap();
    let ring = store.attach();
    let (fid, kept) = promoted(&mut store, ring, partition, 2);
    let mut replica = replayed(&safe, &before, &[&kept.bytes]).unwrap();
    assert_eq!(known(replica.get(fid).unwrap()), Known::Word(2));
}

/// A backend says that a record is in its log only after it has put it there, and a checkpoint can
/// come in between. The next record names the one before, which is not replayed any more.
#[test]
fn a_checkpoint_between_a_record_and_its_confirmation_misses_nothing() {
    let safe = Safe::new();
    for in_steps in [false, true] {
        let (disk, mut store) = fresh(&safe);
        let ring = store.attach();
        let partition = store.open_partition(Some(ring), relation(1)).unwrap();
        let (_, first) = promoted(&mut store, ring, partition, 1);
        store.confirm_inserted(ring, first.number);
        let (before, record) = promoted(&mut store, ring, partition, 2);
        if in_steps {
            while store.request_checkpoint(2).unwrap().is_none() {}
        } else {
            store.checkpoint(2).unwrap();
        }
        let state = disk.state();
        store.confirm_inserted(ring, record.number);
        let (behind, next) = promoted(&mut store, ring, partition, 3);
        let mut again = replayed(&safe, &state, &[&next.bytes]).unwrap();
        assert_eq!(known(again.get(before).unwrap()), Known::Word(2));
        assert_eq!(known(again.get(behind).unwrap()), Known::Word(3));
        // What the checkpoint does not have is missed still.
        store.confirm_inserted(ring, next.number);
        let (_, last) = promoted(&mut store, ring, partition, 4);
        let gap = replayed(&safe, &state, &[&last.bytes]);
        assert_eq!(gap.err(), Some(Fault::LogGap));
        // A record that its backend did not put into the log is none that later ones need.
        let (_, given_up) = promoted(&mut store, ring, partition, 5);
        store.checkpoint(4).unwrap();
        let (behind, kept) = promoted(&mut store, ring, partition, 6);
        assert!(given_up.number < kept.number);
        let mut again = replayed(&safe, &disk.state(), &[&kept.bytes]).unwrap();
        assert_eq!(known(again.get(behind).unwrap()), Known::Word(6));
    }
}
