//! The shared memory of a write-ahead log's index, in this process.
//!
//! Must not: move a region once it is given out.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};

use rusqlite::ffi::{SQLITE_SHM_EXCLUSIVE, SQLITE_SHM_UNLOCK};

/// Locks in shared memory (`SQLITE_SHM_NLOCK`).
const SLOTS: usize = 8;

/// Regions, and who holds which locks.
#[derive(Default)]
pub(super) struct Shared {
    regions: Vec<Box<[u64]>>,
    users: BTreeMap<u64, [Held; SLOTS]>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    No,
    Shared,
    Exclusive,
}

impl Shared {
    /// Region `index` of `size` bytes; null when it is not there and is not to be made.
    pub(super) fn map(
        &mut self,
        handle: u64,
        index: usize,
        size: usize,
        extend: bool,
    ) -> *mut c_void {
        self.users.entry(handle).or_insert([Held::No; SLOTS]);
        while extend && self.regions.len() <= index {
            self.regions.push(vec![0; size.div_ceil(8)].into());
        }
        match self.regions.get_mut(index) {
            Some(region) => region.as_mut_ptr().cast::<c_void>(),
            None => std::ptr::null_mut(),
        }
    }

    /// Takes locks or gives them back. False: somebody else is in the way.
    pub(super) fn lock(&mut self, handle: u64, first: usize, count: usize, flags: c_int) -> bool {
        let slots = first..(first + count).min(SLOTS);
        let wanted = match flags {
            _ if flags & SQLITE_SHM_UNLOCK != 0 => Held::No,
            _ if flags & SQLITE_SHM_EXCLUSIVE != 0 => Held::Exclusive,
            _ => Held::Shared,
        };
        let in_the_way = |held: &Held| match wanted {
            Held::No => false,
            Held::Shared => *held == Held::Exclusive,
            Held::Exclusive => *held != Held::No,
        };
        let refused = self
            .users
            .iter()
            .filter(|(user, _)| **user != handle)
            .any(|(_, held)| held[slots.clone()].iter().any(in_the_way));
        if !refused {
            let own = self.users.entry(handle).or_insert([Held::No; SLOTS]);
            own[slots].fill(wanted);
        }
        !refused
    }

    /// As a writer leaves it that is killed while it changes the index's two headers
    /// (`WalIndexHdr`, 48 bytes each).
    pub(super) fn forget_header(&mut self) {
        if let Some(region) = self.regions.first_mut() {
            region[..12].fill(0);
        }
    }

    /// A user goes. True when it was the last one.
    pub(super) fn leave(&mut self, handle: u64) -> bool {
        self.users.remove(&handle);
        self.users.is_empty()
    }

    /// Keeps the memory for whoever still has its address. A power cut of a machine whose files are
    /// open.
    pub(super) fn leak(self) {
        if !self.users.is_empty() {
            for region in self.regions {
                let _kept: &'static mut [u64] = Box::leak(region);
            }
        }
    }
}
