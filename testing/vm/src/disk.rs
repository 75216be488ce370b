//! A disk with a write cache that forgets. Writes stay in memory until the guest flushes; a power
//! cut keeps each sector that was not flushed, or forgets it, as a seed decides. So nothing
//! survives a cut but what the guest was promised, in any combination with what it was not.
//!
//! Assumption, as for real disks: a sector of 512 bytes is written whole or not at all.
//!
//! Must not: lose a flushed write; keep a write in order, or out of it, on purpose.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::random::Random;

use crate::header;

/// Bytes of a sector.
pub const SECTOR: usize = 512;

/// When the power goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cut {
    /// When the LUKS2 header with this sequence number is written, but not flushed.
    AtHeader(u64),
    /// When that header has been flushed.
    AfterHeader(u64),
    /// So many writes after that header was written.
    WritesAfterHeader(u64, u64),
}

/// What was asked of a disk so far.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Account {
    /// Requests to write.
    pub writes: u64,
    /// Requests to flush.
    pub flushes: u64,
    /// The sequence numbers of LUKS2 headers, in the order in which they were written, and how many
    /// writes came before each.
    pub headers: Vec<(u64, u64)>,
}

/// The disk: a file, and what has not reached it.
#[derive(Debug)]
pub struct Disk {
    file: File,
    size: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    cached: BTreeMap<u64, Box<[u8]>>,
    account: Account,
    plan: Option<Cut>,
    armed: Option<u64>,
    dead: bool,
}

impl Disk {
    /// The disk in this file.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let size = file.metadata()?.len();
        Ok(Self {
            file,
            size,
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        })
    }

    /// Its size in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// What was asked of it so far.
    #[must_use]
    pub fn account(&self) -> Account {
        self.state().account.clone()
    }

    /// Plans a power cut.
    pub fn plan(&self, cut: Cut) {
        let mut state = self.state();
        state.plan = Some(cut);
        state.armed = None;
    }

    /// Waits until the planned cut has happened. False when it has not.
    #[must_use]
    pub fn wait_cut(&self, at_most: Duration) -> bool {
        let until = Instant::now() + at_most;
        let mut state = self.state();
        while !state.dead {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        true
    }

    /// The power goes now: nothing is answered any more.
    pub fn cut(&self) {
        self.state().dead = true;
        self.changed.notify_all();
    }

    /// Whether the power is gone.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// After a cut: each cached sector reaches the file or is forgotten. Returns how many were kept
    /// and how many were lost.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn settle(&self, random: &mut Random) -> io::Result<(u64, u64)> {
        let mut state = self.state();
        let cached = std::mem::take(&mut state.cached);
        // Some cuts keep nearly all, some nearly nothing: both happen.
        let share = 1 + random.below(9);
        let (mut kept, mut lost) = (0, 0);
        for (sector, bytes) in cached {
            if random.below(10) < share {
                self.file.write_all_at(&bytes, sector * SECTOR as u64)?;
                kept += 1;
            } else {
                lost += 1;
            }
        }
        state.dead = false;
        state.plan = None;
        Ok((kept, lost))
    }

    /// Reads; `None` when the power is gone.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<Option<()>> {
        let state = self.state();
        if state.dead {
            return Ok(None);
        }
        self.file.read_exact_at(buffer, offset)?;
        let first = offset / SECTOR as u64;
        let last = first + (buffer.len() / SECTOR) as u64;
        for (sector, bytes) in state.cached.range(first..last) {
            let at = usize::try_from(sector - first).unwrap_or(0) * SECTOR;
            buffer[at..at + SECTOR].copy_from_slice(bytes);
        }
        Ok(Some(()))
    }

    /// Writes into the cache; `None` when the power is gone, before or by it.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Option<()> {
        let mut state = self.state();
        if state.dead {
            return None;
        }
        let first = offset / SECTOR as u64;
        for (sector, bytes) in (first..).zip(bytes.chunks_exact(SECTOR)) {
            state.cached.insert(sector, bytes.into());
        }
        let count = state.account.writes;
        state.account.writes += 1;
        let header = (offset == 0).then(|| header::sequence(bytes)).flatten();
        state
            .account
            .headers
            .extend(header.map(|number| (number, count)));
        self.obey(&mut state, header);
        (!state.dead).then_some(())
    }

    /// Makes everything that was written durable; `None` when the power is gone, before or by it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn flush(&self) -> io::Result<Option<()>> {
        let mut state = self.state();
        if state.dead {
            return Ok(None);
        }
        state.account.flushes += 1;
        let cached = std::mem::take(&mut state.cached);
        for (sector, bytes) in cached {
            self.file.write_all_at(&bytes, sector * SECTOR as u64)?;
        }
        if let (Some(Cut::AfterHeader(_)), Some(_)) = (state.plan, state.armed) {
            state.dead = true;
            self.changed.notify_all();
        }
        Ok((!state.dead).then_some(()))
    }

    /// Decides after each write whether the power goes.
    fn obey(&self, state: &mut State, header: Option<u64>) {
        let Some(plan) = state.plan else { return };
        let (Cut::AtHeader(number) | Cut::AfterHeader(number) | Cut::WritesAfterHeader(number, _)) =
            plan;
        if state.armed.is_none() && header.is_some_and(|written| written >= number) {
            state.armed = Some(state.account.writes);
        }
        let Some(since) = state.armed else { return };
        state.dead = match plan {
            Cut::AtHeader(_) => true,
            Cut::AfterHeader(_) => false,
            Cut::WritesAfterHeader(_, more) => state.account.writes - since >= more,
        };
        if state.dead {
            self.changed.notify_all();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
