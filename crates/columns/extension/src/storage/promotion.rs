//! Promotion: before rows reach the heap, their confidential values become permanent ones of the table's partition.
//!
//! Invariants: the sealed redo record of the new values is in the WAL before the heap is called (L1); the zone decides value by value whether
//! it is promoted, because an identifier says its partition and not its column (X1); an ephemeral is not freed by it (X2).
//! Must not: touch a row that has nothing to promote.

use std::ffi::{CStr, c_char};

use pg_sys::{Datum, TupleTableSlot};
use pgrx::pg_sys;
use strongroom_columns_ring::Broken;
use strongroom_columns_ring::layout::promote_layout;
use strongroom_columns_ring::{Descriptor, Fault, Op};
use strongroom_format::columns::redo::RedoHead;

use crate::call::{datum, outside};
use crate::execution::slot::Row;
use crate::ring::shared_memory;
use crate::ring::zone::{self, Link};
use crate::storage::partition::{self, Column, put};

/// What the messages in the WAL are known by.
pub(crate) const PREFIX: &CStr = c"strongroom";
/// Most values of one call.
const BATCH: usize = 8192;
const WORDS: usize = promote_layout::SIZE / 8;

unsafe extern "C-unwind" {
    // src/backend/replication/logical/message.c; not among pgrx's bindings.
    fn LogLogicalMessage(
        prefix: *const c_char,
        message: *const c_char,
        size: usize,
        transactional: bool,
    ) -> pg_sys::XLogRecPtr;
}

/// One value of one row.
struct Found {
    row: usize,
    column: Column,
    fid: u64,
}

/// Promotes what `slots` hold for `relation`.
pub(crate) fn rows(relation: pg_sys::Relation, slots: &[*mut TupleTableSlot]) {
    let table = partition::table(relation);
    if table.columns.is_empty() {
        return;
    }
    let mut found = Vec::new();
    for (row, slot) in slots.iter().enumerate() {
        // SAFETY: PostgreSQL's slots, filled with rows of this relation.
        unsafe { collect(*slot, row, &table.columns, &mut found) };
    }
    if found.is_empty() {
        return;
    }
    let partition = partition::partition(partition::storage(relation), &table);
    let mut changed = vec![false; slots.len()];
    for batch in found.chunks_mut(BATCH) {
        let before: Vec<u64> = batch.iter().map(|one| one.fid).collect();
        promote(partition, batch);
        for (one, before) in batch.iter().zip(before) {
            if let Some(changed) = changed.get_mut(one.row) {
                *changed |= one.fid != before;
            }
        }
    }
    let mut rest = found.as_slice();
    for (row, (slot, changed)) in slots.iter().zip(changed).enumerate() {
        let (these, others) = rest.split_at(rest.iter().take_while(|one| one.row == row).count());
        if changed {
            // SAFETY: as above.
            unsafe { replace(*slot, these) };
        }
        rest = others;
    }
}

/// Promotes a batch: in halves where its record is too long for one call.
fn promote(partition: u16, batch: &mut [Found]) {
    let done = zone::with(|link| match call(link, partition, batch) {
        Err(Broken::Fault(Fault::StringTooLong)) if batch.len() > 1 => Ok(None),
        done => done.map(Some),
    });
    match done {
        Some(record) if record.is_empty() => {}
        Some(record) => log(&record),
        None => {
            let (first, second) = batch.split_at_mut(batch.len() / 2);
            promote(partition, first);
            promote(partition, second);
        }
    }
}

/// # Safety
///
/// A slot with a row of the relation that `columns` are of.
unsafe fn collect(
    slot: *mut TupleTableSlot,
    row: usize,
    columns: &[Column],
    found: &mut Vec<Found>,
) {
    // SAFETY: the caller's promise.
    let values = unsafe { Row::of(slot) };
    found.extend(columns.iter().filter_map(|column| {
        Some(Found {
            row,
            column: *column,
            fid: values.identifier(column.number)?,
        })
    }));
}

/// Has the zone promote a batch; the redo record, empty when none is needed. Also for tables that PostgreSQL itself writes no log of (UNLOGGED,
/// temporary): they live through an end of the zone, as they do not through one of the server, and what the zone would read it from is the log.
fn call(link: &mut Link, partition: u16, batch: &mut [Found]) -> Result<Vec<u8>, Broken> {
    let mut words = Vec::with_capacity(batch.len() * WORDS);
    for one in &*batch {
        let mut record = [0; promote_layout::SIZE];
        put(
            &mut record,
            promote_layout::COLUMN.offset,
            &one.column.number.cast_unsigned().to_le_bytes(),
        );
        put(
            &mut record,
            promote_layout::KIND.offset,
            &[one.column.kind.number()],
        );
        put(
            &mut record,
            promote_layout::FID.offset,
            &one.fid.to_le_bytes(),
        );
        let (halves, _) = record.as_chunks::<8>();
        words.extend(halves.iter().map(|half| u64::from_le_bytes(*half)));
    }
    link.area_words(0, &words)?;
    let answer = link.call(Descriptor {
        n: u32::try_from(batch.len()).unwrap_or(u32::MAX),
        a: u64::from(partition),
        ..Descriptor::of(Op::Promote)
    })?;
    link.read_words(0, &mut words)?;
    for (one, record) in batch.iter_mut().zip(words.chunks_exact(WORDS)) {
        one.fid = record.first().copied().unwrap_or(0);
    }
    link.read(
        words.len() * 8,
        usize::try_from(answer.value).unwrap_or(usize::MAX),
    )
}

/// Puts a redo record into the WAL; its number. `None` when it is not one, or the zone that sealed it is not the one any more that the
/// WAL is read to (L4).
pub(crate) fn insert(record: &[u8]) -> Option<u64> {
    let head = RedoHead::parse(record)?;
    let done = shared_memory::insert(head.incarnation, || {
        // SAFETY: copies the bytes into the WAL's buffers; not transactional, so that it stands for aborted work too.
        unsafe {
            outside(|| {
                LogLogicalMessage(PREFIX.as_ptr(), record.as_ptr().cast(), record.len(), false)
            });
        }
    });
    done.then_some(head.number)
}

/// The message that a redo record has been inserted.
pub(crate) fn inserted(number: u64) -> Descriptor {
    Descriptor {
        a: number,
        ..Descriptor::of(Op::Inserted)
    }
}

/// Puts a redo record into the WAL, and tells the zone. A zone that is started later reads the WAL to an end behind the record; when one
/// was started before, the record is refused and the heap does not get what it names.
pub(crate) fn log(record: &[u8]) {
    match insert(record) {
        Some(number) => zone::with(|link| link.post(inserted(number))),
        None => zone::with(|_| Err(Broken::Lost)),
    }
}

/// Puts the permanent identifiers into a row.
///
/// A slot that is only values is changed in them. One that holds a tuple gets a new tuple: its own may be on a page of a buffer.
///
/// # Safety
///
/// A slot whose values have been fetched.
unsafe fn replace(slot: *mut TupleTableSlot, with: &[Found]) {
    // SAFETY: the caller's promise; values and nulls are as many as the row type has columns; heap_form_tuple copies what
    // they point to before the slot lets go of it.
    unsafe {
        for one in with {
            let at = usize::try_from(one.column.number - 1).unwrap_or(0);
            (*slot).tts_values.add(at).write(datum(one.fid));
        }
        if !holds_tuple(slot) {
            return;
        }
        let table = (*slot).tts_tableOid;
        let id = (*slot).tts_tid;
        let tuple = pg_sys::heap_form_tuple(
            (*slot).tts_tupleDescriptor,
            (*slot).tts_values.cast::<Datum>(),
            (*slot).tts_isnull,
        );
        (*tuple).t_self = id;
        (*tuple).t_tableOid = table;
        pg_sys::ExecForceStoreHeapTuple(tuple, slot, true);
        (*slot).tts_tableOid = table;
        (*slot).tts_tid = id;
        // The next reader may want values without fetching them.
        let count = (*(*slot).tts_tupleDescriptor).natts;
        pg_sys::slot_getsomeattrs_int(slot, count);
    }
}

/// Whether the slot holds a tuple, beside values.
///
/// # Safety
///
/// A slot of PostgreSQL's.
unsafe fn holds_tuple(slot: *mut TupleTableSlot) -> bool {
    // SAFETY: the operations say which structure the slot is the beginning of (executor/tuptable.h).
    unsafe {
        let ops = (*slot).tts_ops;
        if ops == &raw const pg_sys::TTSOpsVirtual {
            false
        } else if ops == &raw const pg_sys::TTSOpsBufferHeapTuple {
            !(*slot.cast::<pg_sys::BufferHeapTupleTableSlot>())
                .base
                .tuple
                .is_null()
        } else if ops == &raw const pg_sys::TTSOpsHeapTuple {
            !(*slot.cast::<pg_sys::HeapTupleTableSlot>()).tuple.is_null()
        } else {
            true
        }
    }
}
