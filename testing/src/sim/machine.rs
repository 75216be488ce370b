//! A machine with one simulated disk: counts the calls that reach the disk, makes one of them fail
//! or all from one on, keeps the moments at which the power could be cut, and locks and shared
//! memory, which a power cut takes away.
//!
//! Every machine has a directory, `/sim/N`; files without a name go to the machine that its thread
//! used last.
//!
//! Invariant: what happens is determined by the [`Plan`] and the calls alone.
//! Must not: touch a real file.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::disk::{Disk, Ino, Snapshot};
use super::lock::Locks;
use super::shared::Shared;
use crate::random::Random;

/// Where all simulated files are.
pub const ROOT: &str = "/sim/";

/// What kind of file a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A database.
    Main,
    /// A rollback journal.
    Journal,
    /// A write-ahead log.
    Wal,
    /// A super-journal.
    Super,
    /// A file without a name.
    Temp,
    /// A file that is not SQLite's: redo copies, keyrings.
    Other,
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Opens or creates.
    Open,
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Changes the length.
    Truncate,
    /// Makes a file durable.
    Sync,
    /// Makes the names durable.
    SyncNames,
    /// Removes a name.
    Delete,
    /// Asks whether there is a file.
    Access,
    /// Asks for a length.
    Size,
    /// Takes a lock.
    Lock,
    /// Maps or locks shared memory.
    Shared,
    /// Renames.
    Rename,
}

impl Class {
    /// Whether the disk is another one after such a call.
    #[must_use]
    pub const fn changes(self) -> bool {
        matches!(
            self,
            Self::Write
                | Self::Truncate
                | Self::Sync
                | Self::SyncNames
                | Self::Delete
                | Self::Rename
        )
    }

    /// How such a call can fail.
    #[must_use]
    pub fn faults(self, kind: Kind) -> &'static [Fault] {
        match self {
            Self::Read if matches!(kind, Kind::Main | Kind::Wal | Kind::Journal) => {
                &[Fault::Error, Fault::Short]
            }
            Self::Write => &[Fault::Error, Fault::Full, Fault::Short, Fault::ShortFull],
            Self::Sync => &[Fault::Error, Fault::Lost],
            Self::Lock => &[Fault::Error, Fault::Busy],
            _ => &[Fault::Error],
        }
    }
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The device's error (EIO); nothing was done.
    Error,
    /// No room on the disk; nothing was done.
    Full,
    /// A write: part of it was done, then the device's error. A read: fewer bytes than there are.
    Short,
    /// Part of a write was done, then there was no room.
    ShortFull,
    /// A sync failed and lost what it was to make durable.
    Lost,
    /// Somebody else has the lock.
    Busy,
}

/// Which call fails, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The number of the call, from 1.
    pub at: u64,
    /// How it fails.
    pub fault: Fault,
    /// All later calls fail too, until [`Machine::heal`].
    pub lasting: bool,
    /// Chooses the part of a write that is done.
    pub seed: u64,
}

/// A disk that says that it has done what it has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Syncs of one kind of file do nothing.
    Sync(Kind),
    /// Syncs of a database do nothing when its first 4096 bytes are all that was written since the
    /// last one.
    SyncOfHeader,
    /// Syncs of the directory do nothing.
    SyncNames,
}

/// A moment at which the power could be cut.
pub struct Moment {
    /// The disk.
    pub snapshot: Snapshot,
    /// Calls before it.
    pub calls: u64,
    /// What the workload had noted ([`Machine::note`]).
    pub note: u64,
}

pub(super) struct State {
    pub(super) disk: Disk,
    pub(super) locks: BTreeMap<Ino, Locks>,
    pub(super) shared: BTreeMap<Ino, Shared>,
    /// Every handle of an earlier life is dead.
    pub(super) life: u64,
    next_handle: u64,
    calls: u64,
    plan: Option<Plan>,
    hit: bool,
    healed: bool,
    trace: Option<Vec<(Class, Kind)>>,
    moments: Option<Vec<Moment>>,
    note: u64,
    lie: Option<Lie>,
    /// Since the last sync of a database: nothing written, the header alone, pages.
    header_only: BTreeMap<Ino, bool>,
}

/// A machine. See the module comment.
pub struct Machine {
    id: u64,
    state: Mutex<State>,
}

static MACHINES: Mutex<BTreeMap<u64, Arc<Machine>>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static CURRENT: RefCell<Option<Arc<Machine>>> = const { RefCell::new(None) };
}

fn machines() -> MutexGuard<'static, BTreeMap<u64, Arc<Machine>>> {
    MACHINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The machine that the path is on, and the name there.
#[must_use]
pub fn find(path: &str) -> Option<(Arc<Machine>, String)> {
    let (id, name) = path.strip_prefix(ROOT)?.split_once('/')?;
    let machine = Arc::clone(machines().get(&id.parse().ok()?)?);
    CURRENT.with(|current| current.replace(Some(Arc::clone(&machine))));
    Some((machine, name.to_owned()))
}

/// The machine that this thread used last.
#[must_use]
pub fn current() -> Option<Arc<Machine>> {
    CURRENT.with(|current| current.borrow().clone())
}

impl Machine {
    /// A machine with an empty disk.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let state = State {
            disk: Disk::default(),
            locks: BTreeMap::new(),
            shared: BTreeMap::new(),
            life: 0,
            next_handle: 0,
            calls: 0,
            plan: None,
            hit: false,
            healed: false,
            trace: None,
            moments: None,
            note: 0,
            lie: None,
            header_only: BTreeMap::new(),
        };
        let machine = Arc::new(Self {
            id,
            state: Mutex::new(state),
        });
        machines().insert(id, Arc::clone(&machine));
        machine
    }

    /// Takes the machine out of the list; its files are gone when the last handle is.
    pub fn scrap(&self) {
        machines().remove(&self.id);
    }

    /// Where `name` lies on this machine.
    #[must_use]
    pub fn at(&self, name: &str) -> String {
        format!("{ROOT}{}/{name}", self.id)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts again with `disk`: nothing is locked, no memory is shared, no plan is in force, files
    /// that are still open answer nothing but errors.
    pub fn boot(&self, disk: Disk) {
        let mut state = self.lock();
        state.disk = disk;
        state.locks.clear();
        // Memory that a handle of the life before has mapped stays until the handle is closed.
        for (_, shared) in std::mem::take(&mut state.shared) {
            shared.leak();
        }
        state.life += 1;
        state.calls = 0;
        state.plan = None;
        state.hit = false;
        state.healed = false;
        state.trace = None;
        state.moments = None;
        state.header_only.clear();
    }

    /// The disk as it is.
    #[must_use]
    pub fn disk(&self) -> Disk {
        self.lock().disk.clone()
    }

    /// Calls so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.lock().calls
    }

    /// Begins to count calls from 1, with `plan` in force.
    pub fn plan(&self, plan: Option<Plan>) {
        let mut state = self.lock();
        state.calls = 0;
        state.plan = plan;
        state.hit = false;
        state.healed = false;
    }

    /// Whether the planned fault has happened.
    #[must_use]
    pub fn hit(&self) -> bool {
        self.lock().hit
    }

    /// Nothing fails any more.
    pub fn heal(&self) {
        self.lock().healed = true;
    }

    /// What the disk lies about.
    pub fn lie(&self, lie: Option<Lie>) {
        self.lock().lie = lie;
    }

    /// The indexes of all logs have to be made anew: what a writer leaves that is killed in the
    /// middle of changing one.
    pub fn forget_indexes(&self) {
        for shared in self.lock().shared.values_mut() {
            shared.forget_header();
        }
    }

    /// Begins to keep the class of every call.
    pub fn trace(&self) {
        self.lock().trace = Some(Vec::new());
    }

    /// The calls kept.
    #[must_use]
    pub fn take_trace(&self) -> Vec<(Class, Kind)> {
        self.lock().trace.take().unwrap_or_default()
    }

    /// Begins to keep the moments before each call that changes the disk.
    pub fn keep_moments(&self) {
        self.lock().moments = Some(Vec::new());
    }

    /// The moments kept, and the present one.
    #[must_use]
    pub fn take_moments(&self) -> Vec<Moment> {
        let mut state = self.lock();
        let Some(mut moments) = state.moments.take() else {
            return Vec::new();
        };
        moments.push(state.moment());
        moments
    }

    /// Something that the workload wants to know of the moments kept.
    pub fn note(&self, note: u64) {
        self.lock().note = note;
    }
}

impl State {
    fn moment(&self) -> Moment {
        Moment {
            snapshot: self.disk.snapshot(),
            calls: self.calls,
            note: self.note,
        }
    }

    /// A call is about to be made: how it fails, if it does, and the random choices of that.
    pub(super) fn call(&mut self, class: Class, kind: Kind) -> Option<(Fault, Random)> {
        self.calls += 1;
        if let Some(trace) = &mut self.trace {
            trace.push((class, kind));
        }
        if class.changes() && kind != Kind::Temp && self.moments.is_some() {
            let moment = self.moment();
            if let Some(moments) = &mut self.moments {
                moments.push(moment);
            }
        }
        let plan = self.plan.filter(|_| !self.healed)?;
        let random = Random::new(plan.seed ^ self.calls);
        if self.calls == plan.at {
            self.hit = true;
            return Some((plan.fault, random));
        }
        if !self.hit || !plan.lasting || self.calls < plan.at {
            return None;
        }
        match plan.fault {
            // A full disk reads, and gives room back.
            Fault::Full | Fault::ShortFull => {
                (class == Class::Write).then_some((Fault::Full, random))
            }
            _ => Some((Fault::Error, random)),
        }
    }

    pub(super) fn new_handle(&mut self) -> u64 {
        self.next_handle += 1;
        self.next_handle
    }

    pub(super) fn wrote(&mut self, ino: Ino, kind: Kind, at: usize) {
        if kind == Kind::Main {
            let header_only = self.header_only.entry(ino).or_insert(true);
            *header_only &= at < 4096;
        }
    }

    /// A sync that succeeds, or says so.
    pub(super) fn sync(&mut self, ino: Ino, kind: Kind) {
        let header_only = self.header_only.remove(&ino).unwrap_or(false);
        let ignored = match self.lie {
            Some(Lie::Sync(of)) => of == kind,
            Some(Lie::SyncOfHeader) => header_only,
            _ => false,
        };
        if !ignored {
            self.disk.sync(ino);
        }
    }

    /// The same for the directory.
    pub(super) fn sync_names(&mut self) {
        if self.lie != Some(Lie::SyncNames) {
            self.disk.sync_names();
        }
    }
}
