//! Making and opening a store.
//!
//! Invariants: S4 (a store that is not the newest is refused), F4 (a new incarnation begins after
//! what the last manifest reserved), and the two checkpoints that raise the counter beyond every
//! manifest that a crash may have left. Must not: trust a manifest before it is opened.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use strongroom_format::code;
use strongroom_format::columns::manifest::{
    BlockEntry, ChainEntry, ExtentEntry, MANIFEST_VERSION, ManifestBody, ManifestError,
    ManifestHead, MovedEntry, PartitionEntry, QuarantineEntry, manifest_layout,
};
use strongroom_format::columns::redo::REDO_VERSION;
use strongroom_format::header::ObjectKind;
use strongroom_keyring::{Error, NewObject, Object, Opener, Recipient, durable};

use super::Store;
use super::anchor::Anchor;
use super::block_cache::BlockCache;
use super::column_keys::load_keys;
use super::durability::{Durability, Reached};
use super::faults::{crypto_error, no_memory};
use super::files::{Directory, Files, HEADER_NAME, io_error, path_error};
use super::free_space::round_up;
use super::keyed_order::KeyedOrder;
use super::memory::{Buffer, Memory, Region};
use super::partition::{Extent, Partition};
use super::partition_table::{Dropped, PartitionTable};
use super::reclamation::Reclamation;
use super::redo_log::RedoLog;
use super::replay::Replay;
use super::seal::{Keys, NONCE, PartitionKey};
use crate::key_ledger::KeyLedgers;

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

/// Makes the header of a new store in `directory`, which has to exist, durably and readable by this
/// user only. [`open`] makes the other files.
///
/// # Errors
/// SR-1002 if there is one; those of [`Object::create`]; SR-8015 if the disk is full; SR-8023 if it
/// cannot be written.
pub fn create(directory: &Path, recipient: &Recipient) -> Result<(), Error> {
    let object = Object::create(&NewObject::zone(), recipient)?;
    let path = directory.join(HEADER_NAME);
    durable::create_new(&path, &object.initial_bytes(), 0o600).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Error::new(&code::EXISTS, path.display().to_string()),
        _ => path_error(&path, error),
    })
}

/// Opens the store in `directory`, locks it, and writes two manifests. It is recovering then: the
/// host's log is to be replayed from [`Store::position`].
///
/// # Errors
/// Those of a header that does not open; SR-8025 if another process has it open; SR-3002 if a later
/// version of Strongroom has written it, SR-8032 if an early one has; SR-8010 if it is not the
/// newest; SR-8024 if its manifest is damaged; SR-8027 if memory cannot be locked and has to be;
/// SR-8014 without memory; SR-8015 if the disk is full; SR-8023 if a file cannot be read or
/// written. A store of another version is left as it is.
pub fn open(
    directory: &Path,
    opener: &Opener,
    anchor: Box<dyn Anchor>,
    options: Options,
) -> Result<Store, Error> {
    let path = directory.join(HEADER_NAME);
    let header = std::fs::read(&path).map_err(|error| path_error(&path, error))?;
    let object = Object::open(&header, ObjectKind::Zone, opener)?;
    let keys = Keys::derive(&object)?;
    let files = Directory::open(directory)?;
    Store::with_files(keys, Box::new(files), anchor, options)
}

/// The error SR-8024 for a manifest that cannot be read, with this detail.
fn damaged(what: &str) -> Error {
    Error::new(&code::STORE_MANIFEST, what)
}

/// The error for a manifest's head that cannot be read: SR-3002 or SR-8032 for another version,
/// otherwise SR-8024.
fn unreadable_head(error: ManifestError) -> Error {
    let versions = |found| {
        format!("the store's manifest has version {found}, this program's {MANIFEST_VERSION}")
    };
    match error {
        ManifestError::Newer(found) => Error::new(&code::NEWER_FORMAT, versions(found)),
        ManifestError::Older(found) => Error::new(&code::STORE_EARLY, versions(found)),
        ManifestError::Malformed => damaged("its head"),
    }
}

impl Store {
    /// Opens a store with any implementation of its files and its anchor, and writes two manifests.
    /// It is recovering then.
    ///
    /// # Errors
    /// SR-3002 or SR-8032 if another version of Strongroom has written it; SR-8010 if it is not the
    /// newest; SR-8024 if its manifest is damaged; SR-8027 if memory cannot be locked and has to
    /// be; SR-8014 without memory; SR-8015 if the disk is full; SR-8023 if a file cannot be read or
    /// written.
    pub fn with_files(
        keys: Keys,
        mut files: Box<dyn Files>,
        anchor: Box<dyn Anchor>,
        options: Options,
    ) -> Result<Self, Error> {
        let memory = Memory::new(options.insist_on_locks);
        // Shows whether memory can be locked before the first value is kept in it.
        drop(Region::new(1 << 20, &memory));
        if options.insist_on_locks && !memory.is_locked() {
            return Err(Error::new(&code::ZONE_LOCK, ""));
        }
        let manifest = files
            .read_manifest()
            .map_err(|error| io_error("reading the manifest", error))?;
        let redo = RedoLog::new(&keys)?;
        let mut store = Self {
            keys,
            anchor: Arc::from(anchor),
            partitions: PartitionTable::new(),
            cache: BlockCache::new(files, options.memory_limit, &memory),
            column_keys: BTreeMap::new(),
            former_keys: BTreeMap::new(),
            keyed_order: KeyedOrder::default(),
            key_ledgers: KeyLedgers::default(),
            reclamation: Reclamation::default(),
            durability: Durability::default(),
            redo,
            replay: Replay::new(&memory),
            last_error: None,
        };
        let anchored = store.anchor.read()?;
        match manifest {
            Some(file) => store.load_manifest(&file, anchored, options)?,
            // A new store: nothing in its log is older than it is.
            None if anchored == 0 => store.replay.redo_from = u32::from(REDO_VERSION),
            None if options.accept_restored => store.partitions.skip_extents(),
            None => return Err(Error::new(&code::STORE_OLD, "there is no manifest")),
        }
        store.durability.counter = anchored;
        // Two manifests are written: docs/spec/columns.md, "Freshness".
        store.durability.manifest_unanchored = true;
        store.checkpoint_in_place()?;
        Ok(store)
    }

    /// Authenticates a manifest's file, checks that it is the newest, and loads it. `anchored` is
    /// the counter of the freshness anchor, which the manifest's has to equal or exceed by one:
    /// otherwise SR-8010, unless a restored store is accepted, which then skips identifiers that
    /// may have been given out. SR-3002 or SR-8032 if it is of another version, SR-8024 if it is
    /// damaged.
    fn load_manifest(&mut self, file: &[u8], anchored: u64, options: Options) -> Result<(), Error> {
        let head = ManifestHead::parse(file).map_err(unreadable_head)?;
        let mut body = Buffer::new(&self.cache.pools.memory);
        body.extend(file.get(manifest_layout::SIZE..).unwrap_or_default())
            .map_err(no_memory)?;
        let opened = self.keys.open_manifest(&head, body.as_mut_slice());
        opened.map_err(|_| damaged("it does not open"))?;
        let fresh = head.counter == anchored || Some(head.counter) == anchored.checked_add(1);
        if !fresh && !options.accept_restored {
            let what = format!(
                "the store's counter is {}, the anchor's {anchored}",
                head.counter
            );
            return Err(Error::new(&code::STORE_OLD, what));
        }
        self.load_body(body.as_slice(), head.version)
            .ok_or_else(|| damaged("its body"))??;
        if !fresh {
            // Identifiers that the lost history of a restored store has given out must not name
            // other values (F1).
            self.partitions.skip_extents();
        }
        Ok(())
    }

    /// Loads the body of a manifest of the version `version` into the store. `None` if it is not
    /// exactly as a program of that version writes it, which one that was authenticated always is;
    /// an error in `Some` without memory, or for an impossible quarantine (SR-8024).
    fn load_body(&mut self, body: &[u8], version: u16) -> Option<Result<(), Error>> {
        let (body, mut rest) = ManifestBody::parse(body, version)?;
        self.durability.position = body.position;
        self.durability.timeline = body.timeline;
        self.durability.host_timeline = body.timeline;
        self.durability.reached = Reached {
            position: body.reached,
            timeline: body.reached_timeline,
        };
        self.partitions.stamp = body.stamp;
        self.reclamation.last_sweep = body.sweep;
        self.cache.block_version = body.block_version;
        self.partitions.floor = body.floor;
        self.replay.redo_from = body.redo_from;
        let mut last = 0;
        for _ in 0..body.partitions {
            let (entry, tail) = PartitionEntry::parse(rest)?;
            (entry.partition > last && entry.stamp <= self.partitions.stamp).then_some(())?;
            last = entry.partition;
            rest = match self.load_partition(&entry, tail)? {
                Ok(tail) => tail,
                Err(error) => return Some(Err(error)),
            };
        }
        for _ in 0..body.chains {
            let (chain, tail) = ChainEntry::parse(rest)?;
            self.replay.load(chain);
            rest = tail;
        }
        for _ in 0..body.quarantine {
            let (held, tail) = QuarantineEntry::parse(rest)?;
            if let Err(error) = self.load_quarantined(held.fid, held.sweep) {
                return Some(Err(error));
            }
            rest = tail;
        }
        rest = match load_keys(&mut self.column_keys, body.keys, rest)? {
            Ok(rest) => rest,
            Err(error) => return Some(Err(error)),
        };
        rest = match load_keys(&mut self.former_keys, body.former_keys, rest)? {
            Ok(rest) => rest,
            Err(error) => return Some(Err(error)),
        };
        rest = self.key_ledgers.load(body.ledgers, rest)?;
        for _ in 0..body.moved {
            let (moved, tail) = MovedEntry::parse(rest)?;
            self.partitions
                .load_moved(moved.relation, moved.partition)?;
            rest = tail;
        }
        for id in self.column_keys.keys() {
            self.key_ledgers.begin(*id);
        }
        rest.is_empty().then_some(Ok(()))
    }

    /// Loads a partition with its extents from the bytes after its entry in the manifest. Returns
    /// the bytes that follow; `None` if they are malformed; an error in `Some` if its key cannot be
    /// derived.
    fn load_partition<'a>(
        &mut self,
        entry: &PartitionEntry,
        mut rest: &'a [u8],
    ) -> Option<Result<&'a [u8], Error>> {
        let Some(relation) = entry.relation else {
            let dropped = Dropped {
                next_extent: entry.reserved_to,
                stamp: entry.stamp,
                logged: false,
            };
            self.partitions.dropped.insert(entry.partition, dropped);
            return Some(Ok(rest));
        };
        let key = match PartitionKey::derive(&self.keys, entry.key) {
            Ok(key) => key,
            Err(error) => return Some(Err(crypto_error(error))),
        };
        let mut partition = Partition::new(relation, entry.stamp, entry.first_extent, 0, key);
        // The log may have lost the record that says so: a manifest does not wait for the log.
        // Until the host has confirmed one, records repeat it for those who have the log alone.
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
                    let len = round_up(NONCE as u64 + u64::from(disk.length));
                    (self.cache.free_space.claim(disk.place, len)
                        && disk.version <= self.cache.block_version)
                        .then_some(())?;
                    block.live = disk.values;
                    block.disk = Some(disk);
                    block.in_manifest = true;
                    rest = tail;
                }
            }
            partition.insert(of.extent, extent).then_some(())?;
        }
        partition.next_extent = entry.reserved_to;
        self.partitions.load(entry.partition, partition)?;
        Some(Ok(rest))
    }
}
