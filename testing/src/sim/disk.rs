//! A disk that forgets: what was written, what of it is durable, and what a power cut may leave.
//!
//! Media model (docs/spec/sqlite.md, "Media assumptions"):
//! - after a successful sync of a file its bytes and its length are durable; its name is not, until
//!   its directory is synced;
//! - without a sync any subset of the writes since the last one may be there, sector by sector
//!   ([`SECTOR`] bytes), and any subset of the changes of length;
//! - of names that were made, removed and renamed since the last sync of the directory, any subset
//!   may be in force; a rename happens as a whole or not at all;
//! - a file is not cut before what was done to names before it: a change of length that is durable
//!   makes them so. POSIX does not say it, journalling file systems do it, and SQLite needs it: it
//!   cuts a database when the journal is removed, and has no page of what it cuts in the journal;
//! - a failed sync may have lost what it was to make durable, while reads still show it (Linux
//!   behaves so).
//!
//! Must not: know SQLite, or anything of what is in the files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::random::Random;

/// What a disk writes as a whole, in bytes.
pub const SECTOR: usize = 512;

/// A file's number; names lead to it.
pub type Ino = u64;

/// A change of a file that is not durable yet.
#[derive(Debug)]
enum Change {
    Write {
        at: usize,
        data: Vec<u8>,
    },
    SetLen {
        len: usize,
        /// Changes of names before it.
        names: usize,
    },
}

/// A change of the directory that is not durable yet.
#[derive(Clone, Debug)]
enum NameChange {
    Link(String, Ino),
    Unlink(String),
    Rename(String, String, Ino),
}

#[derive(Clone, Debug, Default)]
struct Inode {
    durable: Arc<Vec<u8>>,
    now: Vec<u8>,
    pending: Vec<Arc<Change>>,
}

/// The files of one directory. See the module comment.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    inodes: BTreeMap<Ino, Inode>,
    names: BTreeMap<String, Ino>,
    durable_names: BTreeMap<String, Ino>,
    pending_names: Vec<NameChange>,
    /// Changes of names that are durable.
    settled_names: usize,
    next: Ino,
}

/// What of the changes that are not durable survives a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// All of them: not a power cut, but the end of a process.
    Everything,
    /// None of them.
    Nothing,
    /// Any subset, chosen anew for each file.
    Some,
}

impl Disk {
    /// The file of that name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Ino> {
        self.names.get(name).copied()
    }

    /// Every name.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    /// A new, empty file under that name.
    pub fn create(&mut self, name: &str) -> Ino {
        let ino = self.create_nameless();
        self.names.insert(name.to_owned(), ino);
        self.pending_names
            .push(NameChange::Link(name.to_owned(), ino));
        ino
    }

    /// A new, empty file without a name.
    pub fn create_nameless(&mut self) -> Ino {
        self.next += 1;
        self.inodes.insert(self.next, Inode::default());
        self.next
    }

    /// Takes the name away. False when there is none.
    pub fn unlink(&mut self, name: &str) -> bool {
        let there = self.names.remove(name).is_some();
        if there {
            self.pending_names.push(NameChange::Unlink(name.to_owned()));
        }
        there
    }

    /// Gives the file another name, in place of the one that has it. False when there is no such
    /// file.
    pub fn rename(&mut self, from: &str, to: &str) -> bool {
        let Some(ino) = self.names.remove(from) else {
            return false;
        };
        self.names.insert(to.to_owned(), ino);
        self.pending_names
            .push(NameChange::Rename(from.to_owned(), to.to_owned(), ino));
        true
    }

    /// Makes the names durable.
    pub fn sync_names(&mut self) {
        self.durable_names = self.names.clone();
        self.settled_names += self.pending_names.len();
        self.pending_names.clear();
    }

    /// The first changes of names, up to that many in all, are durable.
    fn settle_names(&mut self, names: usize) {
        let count = names.saturating_sub(self.settled_names);
        for change in self.pending_names.drain(..count) {
            rename(&mut self.durable_names, &change);
            self.settled_names += 1;
        }
    }

    /// Forgets a file that has no name.
    pub fn drop_nameless(&mut self, ino: Ino) {
        self.inodes.remove(&ino);
    }

    /// The file's bytes as its readers see them.
    #[must_use]
    pub fn bytes(&self, ino: Ino) -> &[u8] {
        self.inodes.get(&ino).map_or(&[], |inode| &inode.now)
    }

    /// Writes; what lies between the end and `at` becomes zeros.
    pub fn write(&mut self, ino: Ino, at: usize, data: &[u8]) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            let change = Change::Write {
                at,
                data: data.to_vec(),
            };
            apply(&mut inode.now, &change);
            inode.pending.push(Arc::new(change));
        }
    }

    /// Sets the length.
    pub fn set_len(&mut self, ino: Ino, len: usize) {
        let names = self.settled_names + self.pending_names.len();
        if let Some(inode) = self.inodes.get_mut(&ino) {
            let change = Change::SetLen { len, names };
            apply(&mut inode.now, &change);
            inode.pending.push(Arc::new(change));
        }
    }

    /// Makes the file's bytes and length durable.
    pub fn sync(&mut self, ino: Ino) {
        if let Some(inode) = self.inodes.get_mut(&ino)
            && !inode.pending.is_empty()
        {
            let durable = Arc::make_mut(&mut inode.durable);
            let mut names = 0;
            for change in inode.pending.drain(..) {
                names = names.max(apply(durable, &change));
            }
            self.settle_names(names);
        }
    }

    /// A sync that fails and loses what it was given: readers still see it, no later sync makes it
    /// durable.
    pub fn lose(&mut self, ino: Ino, random: &mut Random) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            let pending = std::mem::take(&mut inode.pending);
            let durable = Arc::make_mut(&mut inode.durable);
            let names = survive(durable, &pending, inode.now.len(), Survival::Some, random);
            self.settle_names(names);
        }
    }

    /// The state that a power cut now would leave to [`Snapshot::image`].
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let files = self
            .inodes
            .iter()
            .map(|(ino, inode)| {
                let file = Kept {
                    durable: Arc::clone(&inode.durable),
                    pending: inode.pending.clone(),
                    len: inode.now.len(),
                };
                (*ino, file)
            })
            .collect();
        Snapshot {
            files,
            durable_names: self.durable_names.clone(),
            pending_names: self.pending_names.clone(),
            settled_names: self.settled_names,
        }
    }
}

/// Makes the change; gives how many changes of names go before it.
fn apply(bytes: &mut Vec<u8>, change: &Change) -> usize {
    match change {
        Change::SetLen { len, names } => {
            bytes.resize(*len, 0);
            *names
        }
        Change::Write { at, data } => {
            put(bytes, *at, data);
            0
        }
    }
}

fn rename(names: &mut BTreeMap<String, Ino>, change: &NameChange) {
    match change {
        NameChange::Link(name, ino) => {
            names.insert(name.clone(), *ino);
        }
        NameChange::Unlink(name) => {
            names.remove(name);
        }
        NameChange::Rename(from, to, ino) => {
            names.remove(from);
            names.insert(to.clone(), *ino);
        }
    }
}

fn put(bytes: &mut Vec<u8>, at: usize, data: &[u8]) {
    let end = at + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[at..end].copy_from_slice(data);
}

struct Kept {
    durable: Arc<Vec<u8>>,
    pending: Vec<Arc<Change>>,
    len: usize,
}

/// A disk at one moment: what is durable, and what is not yet.
pub struct Snapshot {
    files: BTreeMap<Ino, Kept>,
    durable_names: BTreeMap<String, Ino>,
    pending_names: Vec<NameChange>,
    settled_names: usize,
}

impl Snapshot {
    /// Whether something is not durable, so that there is more than one image.
    #[must_use]
    pub fn is_unsettled(&self) -> bool {
        !self.pending_names.is_empty() || self.files.values().any(|file| !file.pending.is_empty())
    }

    /// A disk that a power cut at this moment may leave.
    #[must_use]
    pub fn image(&self, survival: Survival, random: &mut Random) -> Disk {
        let drawn = self.drawn_names(survival, random);
        let (mut settled, mut inodes) = (0, BTreeMap::new());
        // What a file became may settle names, and so bring other files.
        let names = loop {
            let names = self.names(&drawn, settled);
            let mut missing: BTreeSet<Ino> = names.values().copied().collect();
            missing.retain(|ino| !inodes.contains_key(ino));
            if missing.is_empty() {
                break names;
            }
            for ino in missing {
                let (inode, names) = self.file(ino, survival, random);
                settled = settled.max(names);
                inodes.insert(ino, inode);
            }
        };
        inodes.retain(|ino, _| names.values().any(|named| named == ino));
        let mut disk = Disk {
            inodes,
            durable_names: names.clone(),
            names,
            ..Disk::default()
        };
        disk.next = self.files.keys().max().copied().unwrap_or(0);
        disk
    }

    /// What became of a file, and how many changes of names are durable with it.
    fn file(&self, ino: Ino, survival: Survival, random: &mut Random) -> (Inode, usize) {
        let Some(kept) = self.files.get(&ino) else {
            return (Inode::default(), 0);
        };
        let mut bytes = kept.durable.as_ref().clone();
        let names = survive(&mut bytes, &kept.pending, kept.len, survival, random);
        let inode = Inode {
            now: bytes.clone(),
            durable: Arc::new(bytes),
            pending: Vec::new(),
        };
        (inode, names)
    }

    /// Which changes of names survive by themselves.
    fn drawn_names(&self, survival: Survival, random: &mut Random) -> Vec<bool> {
        let chance = chance_of(survival, random);
        // Journalling file systems keep changes of a directory in order; POSIX does not ask for it.
        let in_order = random.once_in(2);
        let mut over = false;
        let mut draw = || {
            let hit = !over && chance.hit(random);
            over |= in_order && !hit;
            hit
        };
        self.pending_names.iter().map(|_| draw()).collect()
    }

    fn names(&self, drawn: &[bool], settled: usize) -> BTreeMap<String, Ino> {
        let mut names = self.durable_names.clone();
        let sure = settled.saturating_sub(self.settled_names);
        for (at, (change, drawn)) in self.pending_names.iter().zip(drawn).enumerate() {
            if *drawn || at < sure {
                rename(&mut names, change);
            }
        }
        names
    }
}

/// How likely it is that a change survives.
#[derive(Clone, Copy)]
struct Chance(u64);

impl Chance {
    fn hit(self, random: &mut Random) -> bool {
        random.below(100) < self.0
    }
}

fn chance_of(survival: Survival, random: &mut Random) -> Chance {
    Chance(match survival {
        Survival::Everything => 100,
        Survival::Nothing => 0,
        Survival::Some => random.one_of(&[0, 5, 50, 50, 95, 100]),
    })
}

/// Lays a part of `pending` over `bytes`; gives how many changes of names are durable then. `len`
/// is the length that readers saw.
fn survive(
    bytes: &mut Vec<u8>,
    pending: &[Arc<Change>],
    len: usize,
    survival: Survival,
    random: &mut Random,
) -> usize {
    let mut names = 0;
    let chance = chance_of(survival, random);
    let torn = survival == Survival::Some && random.once_in(2);
    // A queue that was drained up to some point, or out of order.
    let in_order = survival == Survival::Some && random.once_in(3);
    for change in pending {
        match change.as_ref() {
            Change::Write { at, data } if torn => tear(bytes, *at, data, chance, random),
            _ if chance.hit(random) => names = names.max(apply(bytes, change)),
            Change::Write { at, data } if in_order => {
                tear(bytes, *at, data, Chance(50), random);
                break;
            }
            Change::SetLen { .. } if in_order => break,
            _ => {}
        }
    }
    // A file may have got its length and not its bytes.
    if survival == Survival::Some && bytes.len() < len && random.once_in(4) {
        bytes.resize(len, 0);
    }
    names
}

/// Some sectors of a write.
fn tear(bytes: &mut Vec<u8>, at: usize, data: &[u8], chance: Chance, random: &mut Random) {
    let mut done = 0;
    while done < data.len() {
        let position = at + done;
        let take = (SECTOR - position % SECTOR).min(data.len() - done);
        if chance.hit(random) {
            put(bytes, position, &data[done..done + take]);
        }
        done += take;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(disk: &Disk, survival: Survival, seed: u64) -> Disk {
        disk.snapshot().image(survival, &mut Random::new(seed))
    }

    #[test]
    fn what_was_synced_is_there_and_the_rest_is_any_subset() {
        let mut disk = Disk::default();
        let ino = disk.create("a");
        disk.write(ino, 0, &[1; 1024]);
        disk.sync(ino);
        assert!(image(&disk, Survival::Nothing, 1).find("a").is_none());
        disk.sync_names();
        disk.write(ino, 512, &[2; 1024]);
        assert_eq!(disk.bytes(ino).len(), 1536);
        let nothing = image(&disk, Survival::Nothing, 1);
        assert_eq!(nothing.bytes(ino), [1; 1024]);
        let everything = image(&disk, Survival::Everything, 1);
        assert_eq!(everything.bytes(ino)[512..], [2; 1024]);
        let mut seen = BTreeSet::new();
        for seed in 0..200 {
            let left = image(&disk, Survival::Some, seed);
            let left = left.bytes(ino);
            assert_eq!(left[..512], [1; 512]);
            seen.insert((left.get(512).copied(), left.get(1024).copied()));
        }
        // Both sectors old, either one, both, and the length alone.
        for expected in [
            (Some(1), None),
            (Some(2), None),
            (Some(1), Some(2)),
            (Some(2), Some(2)),
            (Some(1), Some(0)),
        ] {
            assert!(seen.contains(&expected), "{expected:?} in {seen:?}");
        }
    }

    #[test]
    fn a_failed_sync_loses_what_a_later_one_does_not_bring_back() {
        let lost = (0..50).filter(|seed| {
            let mut disk = Disk::default();
            let ino = disk.create("a");
            disk.sync_names();
            disk.write(ino, 0, &[7; 512]);
            disk.lose(ino, &mut Random::new(*seed));
            disk.sync(ino);
            assert_eq!(disk.bytes(ino), [7; 512]);
            image(&disk, Survival::Everything, 1).bytes(ino) != [7; 512]
        });
        assert!(lost.count() > 5);
    }

    #[test]
    fn a_file_is_cut_after_what_was_done_to_names_before() {
        let mut disk = Disk::default();
        let (main, journal) = (disk.create("main"), disk.create("journal"));
        disk.write(main, 0, &[1; 1024]);
        disk.sync(main);
        disk.sync_names();
        assert!(disk.unlink("journal"));
        disk.set_len(main, 512);
        let mut seen = [0; 3];
        for seed in 0..200 {
            let left = image(&disk, Survival::Some, seed);
            let cut = left.bytes(main).len() == 512;
            match (cut, left.find("journal")) {
                (true, Some(_)) => panic!("cut before the name was removed"),
                (true, None) => seen[0] += 1,
                (false, Some(there)) => seen[1] += u32::from(there == journal),
                (false, None) => seen[2] += 1,
            }
        }
        assert!(seen.iter().all(|count| *count > 5), "{seen:?}");
        disk.sync(main);
        assert!(image(&disk, Survival::Nothing, 1).find("journal").is_none());
    }

    #[test]
    fn a_rename_is_whole() {
        let mut disk = Disk::default();
        let old = disk.create("a");
        disk.sync_names();
        let new = disk.create("b");
        assert!(disk.rename("b", "a"));
        for seed in 0..100 {
            let names = image(&disk, Survival::Some, seed);
            assert!([Some(old), Some(new)].contains(&names.find("a")));
        }
    }
}
