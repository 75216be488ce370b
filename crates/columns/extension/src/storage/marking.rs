//! Marks the identifiers that a table and its indexes still hold: in every tuple on every page,
//! dead or not, with the pivots and high keys of indexes.
//!
//! Invariants: G3 (a B-tree is read level by level from the leaves up, each level from left to
//! right). Marking is throttled, and can be cancelled at every page. Index pages are copied before
//! they are read: no lock is held while the zone is called. Must not: decide what is garbage.

use pg_sys::{Buffer, Relation};
use pgrx::pg_sys;
use strongroom_columns_ring::{Descriptor, Op};
use strongroom_format::columns::Fid;

use crate::call::{bits, call_postgres};
use crate::catalog::{tuples, types};
use crate::execution::slot::Row;
use crate::ring::zone;
use crate::storage::partition::Column;
use crate::{fault, interrupts, settings};

/// Most identifiers of one call.
const BATCH: usize = 32_768;
/// Pages between two pauses: 1 MiB.
const PAUSE_PAGES: u32 = 128;
/// Size of a page.
const PAGE: usize = pg_sys::BLCKSZ as usize;

unsafe extern "C-unwind" {
    /// The leftmost, or rightmost, page of a level of a B-tree, pinned and locked for reading; 0
    /// for an empty tree.
    // src/backend/access/nbtree/nbtsearch.c of PostgreSQL 15; not among pgrx's bindings. The
    // leftmost page of a level, pinned and locked for reading; no buffer for an empty tree.
    fn _bt_get_endpoint(
        index: Relation,
        level: u32,
        rightmost: bool,
        snapshot: pg_sys::Snapshot,
    ) -> Buffer;
}

/// Collects identifiers of a partition, and has the zone mark them in batches.
pub(crate) struct Marker {
    partition: u16,
    found: Vec<u64>,
    marked: u64,
    pages: u32,
}

impl Marker {
    /// A marker for a partition, in which marking has begun in the zone.
    pub(crate) fn new(partition: u16) -> Self {
        Self {
            partition,
            found: Vec::with_capacity(BATCH),
            marked: 0,
            pages: 0,
        }
    }

    /// Adds an identifier, if it is one of the partition; has the zone mark a full batch.
    fn add(&mut self, found: u64) {
        let own = Fid::from_bits(found)
            .is_some_and(|fid| !fid.is_ephemeral() && fid.partition() == self.partition);
        if own {
            self.found.push(found);
            if self.found.len() == BATCH {
                self.send();
            }
        }
    }

    /// Has the zone mark the identifiers that were collected, and empties the batch. Raises the
    /// zone's faults as an ERROR.
    fn send(&mut self) {
        let found = std::mem::take(&mut self.found);
        zone::with(|connection| {
            connection.write_words(0, &found)?;
            connection.call(Descriptor {
                n: u32::try_from(found.len()).unwrap_or(u32::MAX),
                ..Descriptor::of(Op::Mark)
            })
        });
        self.marked += found.len() as u64;
        self.found = found;
        self.found.clear();
    }

    /// Has the zone mark the rest; returns how many identifiers there were in all.
    pub(crate) fn finish(mut self) -> u64 {
        self.send();
        self.marked
    }

    /// Counts a page that was read: sleeps after each MiB, as the setting says, and handles
    /// interrupts. A cancelled statement raises an ERROR here.
    fn count_page(&mut self) {
        self.pages += 1;
        if self.pages.is_multiple_of(PAUSE_PAGES) {
            interrupts::pause(settings::sweep_delay());
        }
        interrupts::check();
    }
}

/// Marks the identifiers in these columns of every row version of an open table, dead or not.
pub(crate) fn mark_table(relation: Relation, columns: &[Column], marker: &mut Marker) {
    let flags = pg_sys::ScanOptions::SO_TYPE_SEQSCAN | pg_sys::ScanOptions::SO_ALLOW_STRAT;
    let null = std::ptr::null_mut();
    // SAFETY: an open table, which is a heap; the end of the transaction closes what an error
    // leaves open.
    unsafe {
        let slot = pg_sys::MakeSingleTupleTableSlot(
            (*relation).rd_att,
            &raw const pg_sys::TTSOpsBufferHeapTuple,
        );
        let any = &raw mut pg_sys::SnapshotAnyData;
        let scan = pg_sys::heap_beginscan(relation, any, 0, null, std::ptr::null_mut(), flags);
        let mut page = u32::MAX;
        while pg_sys::heap_getnextslot(scan, pg_sys::ScanDirection::ForwardScanDirection, slot) {
            mark_row(slot, columns, marker);
            let now = (*scan.cast::<pg_sys::HeapScanDescData>()).rs_cblock;
            if now != page {
                page = now;
                marker.count_page();
            }
        }
        pg_sys::heap_endscan(scan);
        pg_sys::ExecDropSingleTupleTableSlot(slot);
    }
}

/// Marks the identifiers in these columns of a row.
///
/// # Safety
///
/// A slot with a row of the table that has `columns`.
unsafe fn mark_row(slot: *mut pg_sys::TupleTableSlot, columns: &[Column], marker: &mut Marker) {
    // SAFETY: the caller's promise.
    let row = unsafe { Row::of(slot) };
    for fid in columns
        .iter()
        .filter_map(|column| row.identifier(column.number))
    {
        marker.add(fid);
    }
}

/// Marks the identifiers in every index of an open table.
pub(crate) fn mark_indexes(relation: Relation, marker: &mut Marker) {
    let mode = pg_sys::AccessShareLock.cast_signed();
    // SAFETY: an open table; the list is copied before anything can change it.
    let all = unsafe {
        let list = pg_sys::RelationGetIndexList(relation);
        let cells = list.as_ref().map_or(&[][..], |list| {
            let count = usize::try_from(list.length).unwrap_or(0);
            std::slice::from_raw_parts(list.elements, count)
        });
        let all: Vec<pg_sys::Oid> = cells.iter().map(|cell| cell.oid_value).collect();
        pg_sys::list_free(list);
        all
    };
    for oid in all {
        // SAFETY: an index of the table, on which this transaction holds a lock.
        unsafe {
            let index = pg_sys::index_open(oid, mode);
            mark_btree(index, marker);
            pg_sys::index_close(index, mode);
        }
    }
}

/// Marks the identifiers in an index, level by level from the leaves up. Nothing for one without
/// confidential columns; raises an internal ERROR for any other that is not a B-tree.
///
/// # Safety
///
/// An open index.
unsafe fn mark_btree(index: Relation, marker: &mut Marker) {
    // SAFETY: the caller's promise.
    let (method, row) = unsafe { ((*(*index).rd_rel).relam, (*index).rd_att) };
    // SAFETY: the index's row type, for as long as it is open.
    let columns = unsafe { tuples::columns(row) };
    let columns: Vec<i16> = columns
        .filter(|(_, oid)| types::kind_of(*oid).is_some())
        .map(|(number, _)| number)
        .collect();
    if columns.is_empty() {
        return;
    }
    if method != pg_sys::BTREE_AM_OID {
        fault::raise_internal("an index on a confidential column is not a B-tree");
    }
    let mut page = Box::new(Page([0; PAGE]));
    for level in 0.. {
        // SAFETY: an open B-tree that has this level: its root was above the previous level.
        let first = unsafe {
            call_postgres(|| _bt_get_endpoint(index, level, false, std::ptr::null_mut()))
        };
        if first == 0 {
            return;
        }
        // SAFETY: pinned and locked for reading.
        unsafe { page.copy(first) };
        let is_root = page.has(flag::ROOT);
        loop {
            // SAFETY: a page of this index.
            unsafe { page.mark(row, &columns, marker) };
            marker.count_page();
            let next = page.right_sibling();
            if next == 0 {
                break;
            }
            // SAFETY: a page that another page of the index points to.
            unsafe {
                let buffer = pg_sys::ReadBuffer(index, next);
                pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_SHARE.cast_signed());
                page.copy(buffer);
            }
        }
        if is_root {
            return;
        }
    }
}

/// Bits of a page's flags (access/nbtree.h).
mod flag {
    pub(super) const ROOT: u16 = 1 << 1;
    pub(super) const DELETED: u16 = 1 << 2;
}

/// Layout of a page of a B-tree (storage/bufpage.h, access/itup.h, access/nbtree.h).
mod at {
    pub(super) const LOWER: usize = 12;
    pub(super) const SPECIAL: usize = 16;
    pub(super) const ITEMS: usize = 24;
    /// Offsets in the special space.
    pub(super) const NEXT: usize = 4;
    pub(super) const FLAGS: usize = 12;
    /// Offsets in a tuple.
    pub(super) const POSITION: usize = 4;
    pub(super) const INFO: usize = 6;
    pub(super) const NULLS: usize = 8;
}

/// A tuple's position field has another meaning (`INDEX_ALT_TID_MASK`): the tuple has a list of
/// rows, or is a pivot with fewer columns.
const NO_POSITION: u16 = 1 << 13;
const POSTING: u16 = 1 << 13;
const COUNT: u16 = 0x0fff;
const HAS_NULLS: u16 = 1 << 15;

/// A copy of an index page.
#[repr(C, align(8))]
struct Page([u8; PAGE]);

impl Page {
    /// Copies a page, and unlocks and releases its buffer.
    ///
    /// # Safety
    ///
    /// The buffer is pinned and locked for reading.
    unsafe fn copy(&mut self, buffer: Buffer) {
        // SAFETY: the caller's promise: no other process writes to the page.
        unsafe {
            let page = pg_sys::BufferGetPage(buffer).cast::<u8>();
            std::ptr::copy_nonoverlapping(page, self.0.as_mut_ptr(), PAGE);
            pg_sys::UnlockReleaseBuffer(buffer);
        }
    }

    /// The number of 2 bytes at this offset of the page; 0 beyond its end.
    fn u16(&self, at: usize) -> u16 {
        let bytes = self.0.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u16::from_le_bytes(*bytes))
    }

    /// The number of 4 bytes at this offset of the page; 0 beyond its end.
    fn u32(&self, at: usize) -> u32 {
        let bytes = self.0.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    /// The offset of the page's special space.
    fn special(&self) -> usize {
        usize::from(self.u16(at::SPECIAL))
    }

    /// Whether the page has this flag.
    fn has(&self, flag: u16) -> bool {
        self.u16(self.special() + at::FLAGS) & flag != 0
    }

    /// The number of the page to the right on its level; 0 if there is none.
    fn right_sibling(&self) -> u32 {
        self.u32(self.special() + at::NEXT)
    }

    /// Marks the identifiers in the page's tuples, including those that are known to be dead;
    /// nothing for a deleted page.
    ///
    /// # Safety
    ///
    /// A page of an index with this row type.
    unsafe fn mark(&self, row: pg_sys::TupleDesc, columns: &[i16], marker: &mut Marker) {
        if self.has(flag::DELETED) {
            return;
        }
        // SAFETY: the index's row type.
        let all = unsafe { (*row).natts };
        for item in (at::ITEMS..usize::from(self.u16(at::LOWER))).step_by(4) {
            let (offset, len) = (self.u32(item) & 0x7fff, self.u32(item) >> 17);
            let (offset, len) = (offset as usize, len as usize);
            if len < at::NULLS || offset + len > self.special() {
                continue;
            }
            let info = self.u16(offset + at::INFO);
            let position = self.u16(offset + at::POSITION);
            let is_pivot = info & NO_POSITION != 0 && position & POSTING == 0;
            let count = if is_pivot {
                i32::from(position & COUNT)
            } else {
                all
            };
            for column in columns.iter().filter(|column| i32::from(**column) <= count) {
                if info & HAS_NULLS != 0 && self.is_null(offset, *column) {
                    continue;
                }
                // SAFETY: a tuple inside the page, whose column is there and not null.
                let datum = unsafe {
                    let tuple = self.0.as_ptr().add(offset).cast_mut().cast();
                    pg_sys::nocache_index_getattr(tuple, i32::from(*column), row)
                };
                marker.add(bits(datum));
            }
        }
    }

    /// Whether a column, from 1, of the tuple at this offset is NULL. Only for a tuple that has
    /// NULLs.
    fn is_null(&self, tuple: usize, column: i16) -> bool {
        let at = usize::try_from(column - 1).unwrap_or(0);
        let byte = self.0.get(tuple + at::NULLS + at / 8).copied().unwrap_or(0);
        byte >> (at % 8) & 1 == 0
    }
}
