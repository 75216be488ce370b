//! Making and opening a store.
//!
//! Invariants: S4 (a store that is not the newest is refused), F4 (a new incarnation begins behind what the last manifest reserved), and the
//! two checkpoints that leave behind whatever manifest a crash may have left. Must not: believe a manifest before it is opened.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use strongroom_crypto::random16;
use strongroom_format::code;
use strongroom_format::columns::fid::{EXTENTS, PARTITIONS};
use strongroom_format::columns::manifest::{
    BlockEntry, ChainEntry, ExtentEntry, ManifestBody, ManifestHead, PartitionEntry,
    QuarantineEntry, RESTORE_STRIDE, manifest_layout,
};
use strongroom_format::header::ObjectKind;
use strongroom_keyring::{Error, NewObject, Object, Opener, durable};

use super::anchor::Anchor;
use super::files::{Directory, Files, HEADER_NAME, about, trouble};
use super::memory::{Buffer, Memory, Region};
use super::partition::{Extent, Partition};
use super::partitions::Dropped;
use super::places::{Places, rounded};
use super::recover::Chains;
use super::redo::Rings;
use super::seal::{Keys, NONCE, PartitionKey};
use super::space::Space;
use super::{Store, no_memory, of_crypto};

/// How a store is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of values that may be in memory; more are on disk.
    pub memory_limit: u64,
    /// Memory that cannot be locked is an error (SR-8027), not a warning (SR-8026).
    pub insist_on_locks: bool,
    /// Opens a store that is older than the freshness anchor, or has none: a restore on purpose.
    pub accept_restored: bool,
}

/// Makes the header of a new store in `directory`, which exists. [`open`] does the rest.
///
/// # Errors
/// SR-1002 when there is one; those of the opener; SR-8023.
pub fn create(directory: &Path, opener: &Opener) -> Result<(), Error> {
    let object = Object::create(&NewObject::zone(), opener)?;
    let path = directory.join(HEADER_NAME);
    durable::create_new(&path, &object.initial_bytes(), 0o600).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Error::new(&code::EXISTS, path.display().to_string()),
        _ => trouble(&path, error),
    })
}

/// Opens the store in `directory`. It is recovering: the host's log is to be replayed from [`Store::position`].
///
/// # Errors
/// Those of a header; SR-8025 when another process has it open; SR-8010, SR-8024, SR-8023, SR-8027.
pub fn open(
    directory: &Path,
    opener: &Opener,
    anchor: Box<dyn Anchor>,
    options: Options,
) -> Result<Store, Error> {
    let path = directory.join(HEADER_NAME);
    let header = std::fs::read(&path).map_err(|error| trouble(&path, error))?;
    let object = Object::open(&header, ObjectKind::Zone, opener)?;
    let keys = Keys::of(&object)?;
    let files = Directory::open(directory)?;
    Store::over(keys, Box::new(files), anchor, options)
}

fn damaged(what: &str) -> Error {
    Error::new(&code::STORE_MANIFEST, what)
}

impl Store {
    /// Opens a store over any files and any anchor.
    ///
    /// # Errors
    /// As [`open`].
    pub fn over(
        keys: Keys,
        mut files: Box<dyn Files>,
        anchor: Box<dyn Anchor>,
        options: Options,
    ) -> Result<Self, Error> {
        let memory = Memory::new(options.insist_on_locks);
        // Known before the first value is.
        drop(Region::new(1 << 20, &memory));
        if options.insist_on_locks && !memory.is_locked() {
            return Err(Error::new(&code::ZONE_LOCK, ""));
        }
        let found = files
            .read_manifest()
            .map_err(|error| about("reading the manifest", error))?;
        let mut store = Self::empty(keys, files, anchor, options, &memory)?;
        let stands = store.anchor.read()?;
        match found {
            Some(file) => store.load(&file, stands, options)?,
            None if stands == 0 => {}
            None if options.accept_restored => store.skip_extents(),
            None => return Err(Error::new(&code::STORE_OLD, "there is no manifest")),
        }
        store.counter = stands;
        // Twice: docs/spec/columns.md, "Freshness".
        store.unsettled = true;
        let position = store.position;
        store.checkpoint(position)?;
        Ok(store)
    }

    fn empty(
        keys: Keys,
        files: Box<dyn Files>,
        anchor: Box<dyn Anchor>,
        options: Options,
        memory: &std::sync::Arc<Memory>,
    ) -> Result<Self, Error> {
        let incarnation = random16()?;
        let redo_nonces = keys.redo_nonces(incarnation).map_err(of_crypto)?;
        let redo_key = (0, keys.redo_run(incarnation, 0).map_err(of_crypto)?);
        let count = usize::try_from(PARTITIONS).unwrap_or_default();
        let mut partitions = Vec::new();
        partitions.resize_with(count, || None);
        Ok(Self {
            keys,
            files,
            anchor,
            space: Space::new(memory),
            limit: options.memory_limit,
            partitions,
            made: 0,
            dropped: BTreeMap::new(),
            relations: BTreeMap::new(),
            places: Places::default(),
            leaving: Vec::new(),
            frames: 0,
            strings: 0,
            clock: VecDeque::new(),
            scratch: Buffer::new(memory),
            inbox: Buffer::new(memory),
            stamp: 0,
            block_version: 0,
            floor: 0,
            kept: BTreeMap::new(),
            sweep: 0,
            marking: BTreeMap::new(),
            quarantine: BTreeMap::new(),
            counter: 0,
            position: 0,
            timeline: 0,
            host_timeline: 0,
            unsettled: false,
            poisoned: false,
            incarnation,
            redo_key,
            redo_nonces,
            number: 0,
            rings: Rings::default(),
            chains: Chains::default(),
            recovering: true,
            following: false,
            trouble: None,
        })
    }

    fn load(&mut self, file: &[u8], stands: u64, options: Options) -> Result<(), Error> {
        let head = ManifestHead::parse(file).ok_or_else(|| damaged("its head"))?;
        let mut body = Buffer::new(&self.space.memory);
        body.extend(file.get(manifest_layout::SIZE..).unwrap_or_default())
            .map_err(no_memory)?;
        let opened = self.keys.open_manifest(&head, body.as_mut_slice());
        opened.map_err(|_| damaged("it does not open"))?;
        let fresh = head.counter == stands || Some(head.counter) == stands.checked_add(1);
        if !fresh && !options.accept_restored {
            let what = format!(
                "the store's counter is {}, the anchor's {stands}",
                head.counter
            );
            return Err(Error::new(&code::STORE_OLD, what));
        }
        self.load_body(body.as_slice())
            .ok_or_else(|| damaged("its body"))??;
        if !fresh {
            self.skip_extents();
        }
        Ok(())
    }

    /// What the lost history of a restored store has given out must not name other values now (F1): goes on far behind it.
    fn skip_extents(&mut self) {
        let behind = |extent: u32| extent.saturating_add(RESTORE_STRIDE).min(EXTENTS);
        self.floor = behind(self.floor);
        for partition in self.partitions.iter_mut().flatten() {
            partition.next_extent = behind(partition.next_extent);
        }
        for dropped in self.dropped.values_mut() {
            dropped.next_extent = behind(dropped.next_extent);
        }
    }

    /// `None` for a body that is not canonical, which no sealed one is.
    fn load_body(&mut self, body: &[u8]) -> Option<Result<(), Error>> {
        let (body, mut rest) = ManifestBody::parse(body)?;
        self.position = body.position;
        (self.timeline, self.host_timeline) = (body.timeline, body.timeline);
        self.stamp = body.stamp;
        self.sweep = body.sweep;
        self.block_version = body.block_version;
        self.floor = body.floor;
        let mut last = 0;
        for _ in 0..body.partitions {
            let (entry, tail) = PartitionEntry::parse(rest)?;
            (entry.partition > last && entry.stamp <= self.stamp).then_some(())?;
            last = entry.partition;
            rest = match self.load_partition(&entry, tail)? {
                Ok(tail) => tail,
                Err(error) => return Some(Err(error)),
            };
        }
        for _ in 0..body.chains {
            let (chain, tail) = ChainEntry::parse(rest)?;
            self.chains.load(chain);
            rest = tail;
        }
        for _ in 0..body.quarantine {
            let (held, tail) = QuarantineEntry::parse(rest)?;
            if let Err(error) = self.hold(held.fid, held.sweep) {
                return Some(Err(error));
            }
            rest = tail;
        }
        match self.load_keys(body.keys, rest)? {
            Ok(rest) => rest.is_empty().then_some(Ok(())),
            Err(error) => Some(Err(error)),
        }
    }

    fn load_partition<'a>(
        &mut self,
        entry: &PartitionEntry,
        mut rest: &'a [u8],
    ) -> Option<Result<&'a [u8], Error>> {
        let Some(relation) = entry.relation else {
            let dropped = Dropped {
                next_extent: entry.reserved_to,
                stamp: entry.stamp,
                known: false,
            };
            self.dropped.insert(entry.partition, dropped);
            return Some(Ok(rest));
        };
        let key = match PartitionKey::of(&self.keys, entry.key) {
            Ok(key) => key,
            Err(error) => return Some(Err(of_crypto(error))),
        };
        let mut partition = Partition::new(relation, entry.stamp, entry.first_extent, 0, key);
        // What is in the manifest is in every log from here on.
        partition.announced = true;
        partition.durable = true;
        rest = partition.load_column_keys(entry.column_keys, rest)?;
        let mut last = None;
        for _ in 0..entry.extents {
            let (of, tail) = ExtentEntry::parse(rest)?;
            (last.is_none_or(|last| last < of.extent) && of.extent < entry.reserved_to)
                .then_some(())?;
            last = Some(of.extent);
            let mut extent = Extent::new(of.column, of.kind, false);
            rest = tail;
            for (at, block) in extent.blocks.iter_mut().enumerate() {
                block.gone = of.gone >> at & 1 == 1;
                if of.present >> at & 1 == 1 {
                    let (disk, tail) = BlockEntry::parse(rest)?;
                    let len = rounded(NONCE as u64 + u64::from(disk.length));
                    (self.places.claim(disk.place, len) && disk.version <= self.block_version)
                        .then_some(())?;
                    block.live = disk.values;
                    block.disk = Some(disk);
                    block.kept = true;
                    rest = tail;
                }
            }
            partition.insert(of.extent, extent).then_some(())?;
        }
        partition.next_extent = entry.reserved_to;
        self.relations.insert(relation, entry.partition);
        *self.partitions.get_mut(usize::from(entry.partition))? = Some(Box::new(partition));
        Some(Ok(rest))
    }
}
