//! Rows of a table that a scan has read and not returned yet, with the pages that they are on.
//!
//! Invariant: the pages are pinned as long as the rows are here. Must not: ask the zone.

use std::cell::RefCell;

use pg_sys::{Buffer, HeapTupleData};
use pgrx::pg_sys;

use super::nodes;
use crate::call::call_postgres;
use crate::ring::batches::IS_TRUE;

thread_local! {
    /// The batches whose rows are being returned: of these an expression may concern the current
    /// row.
    static CURRENT: RefCell<Vec<*const RowBatch>> = const { RefCell::new(Vec::new()) };
}

/// The rows of one batch.
pub(super) trait Rows {
    /// The number of rows.
    fn len(&self) -> usize;
    /// What is asked about them.
    fn asked(&mut self) -> &mut Asked;
    /// Makes it empty. No slot may have one of its rows.
    fn clear(&mut self);
}

/// What the zone is asked about the rows of a batch, and what it has answered.
#[derive(Default)]
pub(super) struct Asked {
    /// The inputs of a program, all of a row together.
    pub(super) inputs: Vec<u64>,
    /// By row, what is known of the condition.
    pub(super) answers: Vec<u8>,
    /// The number of the row that was returned last, plus one.
    next: usize,
}

impl Asked {
    /// The number of the next row for which the condition is true or not known yet, and the answer.
    /// `None` after the last one.
    pub(super) fn next(&mut self) -> Option<(usize, u8)> {
        while let Some(answer) = self.answers.get(self.next).copied() {
            let at = self.next;
            self.next += 1;
            if answer != 0 {
                return Some((at, answer));
            }
        }
        None
    }

    /// Forgets the rows.
    pub(super) fn clear(&mut self) {
        self.inputs.clear();
        self.answers.clear();
        self.next = 0;
    }
}

/// Rows of a table.
pub(crate) struct RowBatch {
    relation: pg_sys::Relation,
    rows: Vec<HeapTupleData>,
    /// By row, the page that it is on.
    buffers: Vec<Buffer>,
    /// Pages that are pinned, each once for being here.
    pins: Vec<Buffer>,
    pub(super) asked: Asked,
}

/// A row, the page that it is on, and the answer about it.
pub(super) type Found = (*mut HeapTupleData, Buffer, u8);

/// The most pages that a batch has pinned: others need buffers, too, and a session has few for its
/// temporary tables (`temp_buffers`).
const PINS_MAX: usize = 24;

impl RowBatch {
    /// An empty batch with room for `rows` rows of `inputs` inputs each.
    pub(super) fn new(relation: pg_sys::Relation, rows: usize, inputs: usize) -> Self {
        Self {
            relation,
            rows: Vec::with_capacity(rows),
            buffers: Vec::with_capacity(rows),
            pins: Vec::with_capacity(rows),
            asked: Asked {
                inputs: Vec::with_capacity(rows * inputs),
                answers: Vec::with_capacity(rows),
                next: 0,
            },
        }
    }

    /// Whether another row fits without new memory and without too many pins.
    pub(super) fn has_room(&self) -> bool {
        self.rows.len() < self.rows.capacity() && self.pins.len() < PINS_MAX
    }

    /// Adds a row; its inputs are added to `asked` apart.
    ///
    /// # Safety
    ///
    /// Within [`call_postgres`]; a row on a page that is pinned; there is room.
    pub(super) unsafe fn push(&mut self, row: HeapTupleData, buffer: Buffer) {
        if self.pins.last() != Some(&buffer) {
            // SAFETY: the caller's promise.
            unsafe { nodes::pin(buffer) };
            self.pins.push(buffer);
        }
        self.rows.push(row);
        self.buffers.push(buffer);
    }

    /// The next row for which the condition is true or not known yet, with its page and its answer.
    /// `None` after the last one. The row stays where it is until [`Self::clear`].
    pub(super) fn next(&mut self) -> Option<Found> {
        let (at, answer) = self.asked.next()?;
        Some((self.rows.get_mut(at)?, *self.buffers.get(at)?, answer))
    }

    /// The table.
    pub(crate) const fn relation(&self) -> pg_sys::Relation {
        self.relation
    }

    /// The row that was returned last. `None` before the first one.
    pub(crate) fn current(&self) -> Option<*mut HeapTupleData> {
        let at = self.asked.next.checked_sub(1)?;
        self.rows
            .get(at)
            .map(|row| std::ptr::from_ref(row).cast_mut())
    }

    /// Calls `take` with each row that will still be returned, as far as the condition is known to
    /// be true for it.
    pub(crate) fn each_remaining(&self, mut take: impl FnMut(&mut HeapTupleData)) {
        let rows = self.rows.iter().zip(&self.asked.answers);
        let rows = rows.skip(self.asked.next);
        for (row, _) in rows.filter(|(_, answer)| **answer == IS_TRUE) {
            let mut row = *row;
            take(&mut row);
        }
    }
}

impl Rows for RowBatch {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn asked(&mut self) -> &mut Asked {
        &mut self.asked
    }

    /// Makes it empty, and gives its pages back.
    fn clear(&mut self) {
        leave(self);
        self.rows.clear();
        self.buffers.clear();
        self.asked.clear();
        let pins = &mut self.pins;
        // SAFETY: each was pinned by `push`; the closure owns nothing.
        unsafe {
            call_postgres(|| {
                while let Some(buffer) = pins.pop() {
                    nodes::unpin(buffer);
                }
            });
        }
    }
}

/// Notes that rows of this batch are returned from now on, until [`Rows::clear`].
pub(super) fn enter(batch: &RowBatch) {
    CURRENT.with(|current| {
        let mut current = current.borrow_mut();
        let batch: *const RowBatch = batch;
        if !current.contains(&batch) {
            current.push(batch);
        }
    });
}

/// Notes that no row of this batch is returned any more.
fn leave(batch: &RowBatch) {
    CURRENT.with(|current| {
        if let Ok(mut current) = current.try_borrow_mut() {
            current.retain(|known| !std::ptr::eq(*known, batch));
        }
    });
}

/// The batches whose rows are being returned, the last one first.
pub(crate) fn current() -> Vec<*const RowBatch> {
    CURRENT.with(|current| current.borrow().iter().rev().copied().collect())
}

impl Drop for RowBatch {
    /// Forgets the batch. Its pages are given back before, or by the end of the transaction.
    fn drop(&mut self) {
        leave(self);
    }
}
