//! A host with a log, and what it expects of the store: the other half of every test here.
//!
//! Everything that happens is noted with the number of disk calls before it, so that the state at a
//! crash after any call can be had.

use std::collections::{BTreeMap, BTreeSet};

use strongroom_columns_ring::Fault;
use strongroom_columns_values::Value;
use strongroom_columns_zone::store::{
    Binding, Keys, Options, Promotion, Source, Store, StoredValue,
};
use strongroom_crypto::SecretKey;
use strongroom_format::columns::redo::Relation;
use strongroom_format::columns::{Class, Fid, Kind, Lineage};
use strongroom_keyring::{NewObject, Object, Opener};

use crate::disk::{Dice, Disk, State};

/// A value that the host remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Word(u64),
    Bytes(Vec<u8>),
}

impl Known {
    pub(crate) fn value(&self) -> Value<'_> {
        match self {
            Self::Word(word) => Value::Word(*word),
            Self::Bytes(bytes) => Value::Bytes(bytes),
        }
    }
}

pub(crate) fn known(held: StoredValue<'_>) -> Known {
    match held.value {
        Value::Word(word) => Known::Word(word),
        Value::Bytes(bytes) => Known::Bytes(bytes.to_vec()),
    }
}

/// What a record in the log means.
#[derive(Clone, Default)]
struct Meaning {
    put: Vec<(Fid, Known)>,
    freed: Vec<Fid>,
    dropped: Vec<u16>,
}

#[derive(Clone)]
enum Event {
    Inserted(u64, Vec<u8>, Meaning),
    Acknowledged(u64),
}

/// A header, and the key that opens it, made once for each test.
pub(crate) struct Safe(Vec<u8>);

impl Safe {
    pub(crate) fn new() -> Self {
        let object = Object::create(&NewObject::zone(), &opener().recipient().unwrap()).unwrap();
        Self(object.initial_bytes())
    }

    pub(crate) fn keys(&self) -> Keys {
        let kind = strongroom_format::header::ObjectKind::Zone;
        Keys::derive(&Object::open(&self.0, kind, &opener()).unwrap()).unwrap()
    }

    pub(crate) fn open(&self, disk: &Disk, limit: u64) -> Result<Store, strongroom_keyring::Error> {
        Store::with_files(
            self.keys(),
            Box::new(disk.clone()),
            Box::new(disk.clone()),
            options(limit),
        )
    }
}

pub(crate) fn opener() -> Opener {
    Opener::raw(SecretKey::take(&mut [7; 32]).unwrap())
}

pub(crate) fn options(memory_limit: u64) -> Options {
    Options {
        memory_limit,
        insist_on_locks: false,
        accept_restored: false,
    }
}

/// A key by its id's byte, and a lineage.
pub(crate) fn to(key: u8) -> Binding {
    Binding {
        key: [key; 16],
        lineage: Lineage::of_column(0x40 * (1 + u64::from(key)), Class::Ordered),
    }
}

pub(crate) fn relation(filenode: u32) -> Relation {
    Relation {
        tablespace: 1663,
        database: 5,
        filenode,
    }
}

/// Columns of every relation here: a word, a short or long text, a large one now and then.
const KINDS: [Kind; 3] = [Kind::Int8, Kind::Text, Kind::Bytea];

/// The host.
pub(crate) struct Host {
    pub(crate) safe: Safe,
    pub(crate) disk: Disk,
    pub(crate) limit: u64,
    pub(crate) dice: Dice,
    rings: Vec<u32>,
    /// By ring, number of the record that is in the log while the zone does not know that yet.
    unconfirmed: BTreeMap<u32, u64>,
    /// Log: position and record.
    log: Vec<(u64, Vec<u8>)>,
    end: u64,
    pub(crate) live: BTreeMap<u64, Known>,
    /// FIDs that must never again lead to a value.
    pub(crate) dead: BTreeSet<u64>,
    partitions: BTreeMap<u16, u32>,
    next_filenode: u32,
    events: Vec<(usize, Event)>,
    /// The position of a checkpoint that was asked for and goes on.
    requested: Option<u64>,
}

impl Host {
    pub(crate) fn new(seed: u64, limit: u64) -> (Self, Store) {
        let (safe, disk) = (Safe::new(), Disk::default());
        let mut store = safe.open(&disk, limit).unwrap();
        store.finish_recovery(0).unwrap();
        keep_key(&mut store);
        let rings = vec![store.attach(), store.attach(), store.attach()];
        let host = Self {
            safe,
            disk,
            limit,
            dice: Dice(seed),
            rings,
            unconfirmed: BTreeMap::new(),
            log: Vec::new(),
            end: 0,
            live: BTreeMap::new(),
            dead: BTreeSet::new(),
            partitions: BTreeMap::new(),
            next_filenode: 16_384,
            events: Vec::new(),
            requested: None,
        };
        (host, store)
    }

    /// A ring for the next operation. What it has inserted is confirmed first: a backend posts that
    /// before its next request.
    fn ring(&mut self, store: &mut Store) -> u32 {
        let ring = self.rings[self.dice.pick(self.rings.len())];
        self.confirm(store, ring);
        ring
    }

    /// Confirms what a ring has inserted, if it has not been confirmed yet.
    fn confirm(&mut self, store: &mut Store, ring: u32) {
        if let Some(number) = self.unconfirmed.remove(&ring) {
            store.confirm_inserted(ring, number);
        }
    }

    /// Flushes a ring and inserts its record, or loses it.
    fn insert(&mut self, store: &mut Store, ring: u32, meaning: Meaning) {
        let Some(record) = store.flush_log(ring).unwrap() else {
            return;
        };
        self.insert_record(store, ring, record.number, record.bytes, meaning);
    }

    fn insert_record(
        &mut self,
        store: &mut Store,
        ring: u32,
        number: u64,
        bytes: Vec<u8>,
        meaning: Meaning,
    ) {
        let position = self.end;
        self.end += 24 + bytes.len() as u64;
        self.log.push((position, bytes.clone()));
        self.confirm(store, ring);
        self.unconfirmed.insert(ring, number);
        if self.dice.roll(2) == 0 {
            self.confirm(store, ring);
        }
        for (fid, value) in &meaning.put {
            assert!(
                !self.dead.contains(&fid.bits()),
                "a dead FID is given out again"
            );
            let before = self.live.insert(fid.bits(), value.clone());
            assert!(before.is_none(), "a FID in use is given out again");
        }
        for fid in &meaning.freed {
            self.live.remove(&fid.bits());
            self.dead.insert(fid.bits());
        }
        for number in &meaning.dropped {
            let gone: Vec<u64> = self
                .live
                .keys()
                .copied()
                .filter(|bits| bits >> 48 == u64::from(*number))
                .collect();
            for bits in gone {
                self.live.remove(&bits);
                self.dead.insert(bits);
            }
        }
        self.events
            .push((self.disk.calls(), Event::Inserted(position, bytes, meaning)));
    }

    fn some_value(&mut self, kind: Kind) -> Known {
        if kind == Kind::Int8 {
            return Known::Word(self.dice.roll(u64::MAX));
        }
        let len = match self.dice.roll(40) {
            0 => self.dice.roll(80_000),
            1..=20 => self.dice.roll(10),
            _ => self.dice.roll(300),
        };
        let byte = u8::try_from(self.dice.roll(256)).unwrap();
        Known::Bytes(vec![byte; usize::try_from(len).unwrap()])
    }

    pub(crate) fn some_partition(&mut self, store: &mut Store) -> u16 {
        if self.partitions.len() < 2 || (self.partitions.len() < 5 && self.dice.roll(20) == 0) {
            let ring = self.ring(store);
            self.next_filenode += 1;
            let filenode = self.next_filenode;
            let number = store
                .open_partition(Some(ring), relation(filenode))
                .unwrap();
            assert_eq!(
                store.open_partition(Some(ring), relation(filenode)),
                Ok(number)
            );
            self.partitions.insert(number, filenode);
            // Half of the time another ring's record says it first.
            if self.dice.roll(2) == 0 {
                self.insert(store, ring, Meaning::default());
            }
        }
        let at = self.dice.pick(self.partitions.len());
        *self.partitions.keys().nth(at).unwrap()
    }

    /// Promotes up to `most` values, some of them from other partitions; now and then the record is
    /// never inserted.
    pub(crate) fn promote(&mut self, store: &mut Store, most: u64) {
        let partition = self.some_partition(store);
        let count = 1 + self.dice.roll(most);
        let mut values = Vec::new();
        for _ in 0..count {
            let column = self.dice.pick(KINDS.len());
            values.push((self.some_value(KINDS[column]), column));
        }
        let items: Vec<Promotion<'_>> = values
            .iter()
            .map(|(value, column)| Promotion {
                source: Source::Value(value.value()),
                column: u16::try_from(*column).unwrap() + 1,
                kind: KINDS[*column],
            })
            .collect();
        let ring = self.ring(store);
        bind_all(store, partition);
        let mut fids = Vec::new();
        let record = store
            .promote(ring, partition, &items, &mut fids)
            .unwrap()
            .unwrap();
        if self.dice.roll(10) == 0 {
            return;
        }
        let put = fids
            .into_iter()
            .zip(values.into_iter().map(|(value, _)| value))
            .collect();
        let meaning = Meaning {
            put,
            ..Meaning::default()
        };
        self.insert_record(store, ring, record.number, record.bytes, meaning);
    }

    /// Copies a value into another partition, or finds that it is there already.
    pub(crate) fn copy(&mut self, store: &mut Store) {
        let Some(bits) = self.some_live() else { return };
        let fid = Fid::from_bits(bits).unwrap();
        let target = self.some_partition(store);
        let held = store.get(fid).unwrap();
        let item = Promotion {
            source: Source::Stored(fid),
            column: held.column,
            kind: held.kind,
        };
        let ring = self.ring(store);
        bind_all(store, target);
        let mut fids = Vec::new();
        let record = store.promote(ring, target, &[item], &mut fids).unwrap();
        if fid.partition() == target {
            assert_eq!(fids, [fid]);
        }
        if let Some(record) = record {
            let put = if fid.partition() == target {
                Vec::new()
            } else {
                vec![(fids[0], self.live[&bits].clone())]
            };
            self.insert_record(
                store,
                ring,
                record.number,
                record.bytes,
                Meaning {
                    put,
                    ..Meaning::default()
                },
            );
        }
    }

    pub(crate) fn some_live(&mut self) -> Option<u64> {
        if self.live.is_empty() {
            return None;
        }
        let at = self.dice.pick(self.live.len());
        self.live.keys().nth(at).copied()
    }

    pub(crate) fn delete(&mut self, store: &mut Store) {
        let Some(bits) = self.some_live() else { return };
        let fid = Fid::from_bits(bits).unwrap();
        let ring = self.ring(store);
        store.delete(Some(ring), fid).unwrap();
        assert_eq!(store.get(fid).err(), Some(Fault::StaleFid));
        let meaning = Meaning {
            freed: vec![fid],
            ..Meaning::default()
        };
        self.insert(store, ring, meaning);
    }

    pub(crate) fn drop_or_rehome(&mut self, store: &mut Store) {
        let number = self.some_partition(store);
        let ring = self.ring(store);
        if self.dice.roll(3) == 0 {
            store.drop_partition(Some(ring), number).unwrap();
            self.partitions.remove(&number);
            let meaning = Meaning {
                dropped: vec![number],
                ..Meaning::default()
            };
            self.insert(store, ring, meaning);
        } else {
            self.next_filenode += 1;
            store
                .reassign_partition(Some(ring), number, relation(self.next_filenode))
                .unwrap();
            self.partitions.insert(number, self.next_filenode);
            self.insert(store, ring, Meaning::default());
        }
    }

    /// Forgets some values, and has them found: mark, sweep, mark, sweep, free.
    pub(crate) fn reclaim(&mut self, store: &mut Store) {
        let mut garbage = Vec::new();
        for _ in 0..self.live.len() / 4 {
            garbage.extend(self.some_live());
        }
        garbage.sort_unstable();
        garbage.dedup();
        let keep = |live: &BTreeMap<u64, Known>, garbage: &[u64]| -> Vec<Fid> {
            let kept = live
                .keys()
                .filter(|bits| garbage.binary_search(bits).is_err());
            kept.filter_map(|bits| Fid::from_bits(*bits)).collect()
        };
        let ring = self.ring(store);
        let all: Vec<u16> = store.partitions().map(|(number, _)| number).collect();
        let mut first = 0;
        for number in &all {
            first = store.mark_begin(Some(ring), *number, 0).unwrap();
        }
        store.mark(&keep(&self.live, &garbage));
        self.promote(store, 20);
        for number in &all {
            while !store.sweep(Some(ring), *number, 10).unwrap().done {}
        }
        self.insert(store, ring, Meaning::default());
        // Only what an earlier sweep had found, and this one again, may go: orphans of records that
        // were never inserted.
        for number in &all {
            store.free(Some(ring), *number, first, 1000).unwrap();
        }
        self.insert(store, ring, Meaning::default());
        for bits in &garbage {
            assert_eq!(
                known(store.get(Fid::from_bits(*bits).unwrap()).unwrap()),
                self.live[bits]
            );
        }
        // One is rescued by the second mark.
        garbage.pop();
        for number in &all {
            store.mark_begin(Some(ring), *number, 0).unwrap();
        }
        store.mark(&keep(&self.live, &garbage));
        for number in &all {
            while !store.sweep(Some(ring), *number, 1000).unwrap().done {}
            while store.free(Some(ring), *number, first, 7).unwrap() > 0 {}
        }
        let freed = garbage
            .iter()
            .filter_map(|bits| Fid::from_bits(*bits))
            .collect();
        self.insert(
            store,
            ring,
            Meaning {
                freed,
                ..Meaning::default()
            },
        );
    }

    pub(crate) fn checkpoint(&mut self, store: &mut Store) {
        let position = store.checkpoint(self.end).unwrap();
        assert_eq!(position, self.end);
        self.acknowledged(position);
    }

    /// Asks for a checkpoint that is made while other operations go on, or goes on asking.
    pub(crate) fn request_checkpoint(&mut self, store: &mut Store) {
        let asked = *self.requested.get_or_insert(self.end);
        let Some(position) = store.request_checkpoint(asked).unwrap() else {
            return;
        };
        assert!(position >= asked, "{position} of {asked}");
        self.requested = None;
        self.acknowledged(position);
    }

    fn acknowledged(&mut self, position: u64) {
        assert!(position <= self.end);
        self.log.retain(|(at, _)| *at >= position);
        self.events
            .push((self.disk.calls(), Event::Acknowledged(position)));
    }

    /// Ends the zone without a word, and starts it anew over what the disk has now.
    pub(crate) fn restart(&mut self, store: Store) -> Store {
        drop(store);
        self.requested = None;
        self.unconfirmed.clear();
        let mut store = self.safe.open(&self.disk, self.limit).unwrap();
        if let Some(bits) = self.some_live() {
            assert_eq!(
                store.get(Fid::from_bits(bits).unwrap()).err(),
                Some(Fault::Recovering)
            );
        }
        replay(&mut store, &self.log);
        if self.dice.roll(3) == 0 {
            replay(&mut store, &self.log);
        }
        store.finish_recovery(self.end).unwrap();
        self.acknowledged(self.end);
        self.rings = vec![store.attach(), store.attach(), store.attach()];
        // A partition that no inserted record speaks of is gone, and so is its relation.
        let found: BTreeMap<u16, Relation> = store.partitions().collect();
        self.partitions
            .retain(|number, filenode| found.get(number) == Some(&relation(*filenode)));
        let with_values = self
            .live
            .keys()
            .map(|bits| u16::try_from(bits >> 48).unwrap());
        assert!(
            with_values
                .into_iter()
                .all(|number| self.partitions.contains_key(&number))
        );
        store
    }

    /// Every FID leads to its value, or nowhere.
    pub(crate) fn check(&self, store: &mut Store) {
        check(store, &self.live, &self.dead);
    }

    /// What the host's log holds, and what must be found, after a crash behind the first `calls`
    /// disk calls.
    pub(crate) fn at_crash(&self, calls: usize) -> Expected {
        let mut expected = Expected::default();
        for (_, event) in self.events.iter().filter(|(before, _)| *before <= calls) {
            match event {
                Event::Inserted(position, bytes, meaning) => {
                    expected.log.push((*position, bytes.clone()));
                    expected.end = position + 24 + bytes.len() as u64;
                    expected.live.extend(
                        meaning
                            .put
                            .iter()
                            .map(|(fid, value)| (fid.bits(), value.clone())),
                    );
                    let freed = meaning.freed.iter().map(|fid| fid.bits());
                    let dropped = expected.live.keys().copied().filter(|bits| {
                        meaning
                            .dropped
                            .iter()
                            .any(|number| bits >> 48 == u64::from(*number))
                    });
                    let gone: Vec<u64> = freed.chain(dropped).collect();
                    for bits in gone {
                        expected.live.remove(&bits);
                        expected.dead.insert(bits);
                    }
                }
                Event::Acknowledged(position) => expected.log.retain(|(at, _)| at >= position),
            }
        }
        expected
    }

    /// Opens the store over a disk as a crash has left it, with the host's log of that moment.
    pub(crate) fn recover(&self, state: State, expected: &Expected) -> Store {
        let disk = Disk::of(state);
        let mut store = self.safe.open(&disk, self.limit).unwrap();
        replay(&mut store, &expected.log);
        store.finish_recovery(expected.end).unwrap();
        check(&mut store, &expected.live, &expected.dead);
        store
    }
}

/// A disk and a store on it that has recovered, with no value.
pub(crate) fn fresh(safe: &Safe) -> (Disk, Store) {
    let disk = Disk::default();
    let mut store = safe.open(&disk, 1 << 30).unwrap();
    store.finish_recovery(0).unwrap();
    keep_key(&mut store);
    (disk, store)
}

/// Has the store keep the key that every column here belongs to, for a table of its own: no later
/// binding makes a checkpoint.
pub(crate) fn keep_key(store: &mut Store) {
    let partition = store.open_partition(None, relation(0x00ff_ffff)).unwrap();
    bind_all(store, partition);
}

/// The columns of a partition belong to a key.
pub(crate) fn bind_all(store: &mut Store, partition: u16) {
    let key = SecretKey::take(&mut [5; 32]).unwrap();
    for column in 1..=3 {
        store.bind(partition, column, to(5), &key).unwrap();
    }
}

/// What a crash must leave.
#[derive(Default)]
pub(crate) struct Expected {
    log: Vec<(u64, Vec<u8>)>,
    pub(crate) end: u64,
    pub(crate) live: BTreeMap<u64, Known>,
    pub(crate) dead: BTreeSet<u64>,
}

fn replay(store: &mut Store, log: &[(u64, Vec<u8>)]) {
    let from = store.position();
    for (position, record) in log.iter().filter(|(position, _)| *position >= from) {
        let done = store.recover(record, *position);
        assert_eq!(
            done,
            Ok(()),
            "{position} of {from}: {:?}",
            store.take_last_error()
        );
    }
}

fn check(store: &mut Store, live: &BTreeMap<u64, Known>, dead: &BTreeSet<u64>) {
    for (bits, value) in live {
        let fid = Fid::from_bits(*bits).unwrap();
        match store.get(fid) {
            Ok(held) => assert_eq!(known(held), *value, "{fid:?}"),
            Err(fault) => panic!("{fid:?}: {fault:?} {:?}", store.take_last_error()),
        }
    }
    for bits in dead {
        let fid = Fid::from_bits(*bits).unwrap();
        let found = store.get(fid).err();
        assert!(matches!(found, Some(Fault::StaleFid)), "{fid:?}: {found:?}");
    }
}
