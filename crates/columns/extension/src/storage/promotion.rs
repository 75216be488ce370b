//! Promotion: before rows reach the heap, their ephemeral values become permanent values of the
//! table's partition.
//!
//! Invariants: the sealed redo record of the new values is in the write-ahead log before heap is
//! called (L1). The zone decides for each value whether it is promoted, because an identifier names
//! its partition and not its column (X1). An ephemeral is not freed by its promotion (X2). Must
//! not: change a row that has nothing to promote.

use std::cell::Cell;
use std::ffi::{CStr, c_char};

use pg_sys::{Datum, TupleTableSlot};
use pgrx::pg_sys;
use strongroom_columns_ring::Broken;
use strongroom_columns_ring::layout::promote_layout;
use strongroom_columns_ring::{Descriptor, Fault, Op};
use strongroom_format::columns::redo::RedoHead;

use crate::call::{call_postgres, datum};
use crate::execution::slot::Row;
use crate::ring::connection::Connection;
use crate::ring::{shared_memory, zone};
use crate::storage::partition::{self, Column};
use crate::storage::storage_id::{StorageId, put};

/// Prefix of the messages in the write-ahead log that hold redo records.
pub(crate) const MESSAGE_PREFIX: &CStr = c"strongroom";
/// Most values that are promoted in one call.
const BATCH: usize = 8192;
/// Length of the record of a value, in words.
const WORDS: usize = promote_layout::SIZE / 8;

unsafe extern "C-unwind" {
    /// Puts a message into the write-ahead log; returns its position.
    // src/backend/replication/logical/message.c; not among pgrx's bindings.
    fn LogLogicalMessage(
        prefix: *const c_char,
        message: *const c_char,
        size: usize,
        transactional: bool,
    ) -> pg_sys::XLogRecPtr;
}

/// A redo record that is in the write-ahead log.
#[derive(Clone, Copy)]
pub(crate) struct InsertedRecord {
    /// Its number.
    number: u64,
    /// The position at which it ends.
    end: pg_sys::XLogRecPtr,
}

/// One confidential value of one row.
struct Value {
    /// Index of the row's slot.
    row: usize,
    column: Column,
    fid: u64,
}

/// Has the zone store the confidential values of these rows of `relation`, logs their redo records
/// without a flush, and replaces their identifiers in the slots by permanent ones. Makes the
/// table's partition if the zone has none. NULL values, and tables without confidential columns,
/// are left alone. Raises an ERROR with the zone's fault, or when the zone is gone or was started
/// again; the identifiers in the slots are then unchanged.
pub(crate) fn promote_rows(relation: pg_sys::Relation, slots: &[*mut TupleTableSlot]) {
    let table = partition::table_of(relation);
    if table.columns.is_empty() {
        return;
    }
    let mut found = Vec::new();
    for (row, slot) in slots.iter().enumerate() {
        // SAFETY: PostgreSQL's slots, filled with rows of this relation.
        unsafe { collect_values(*slot, row, &table.columns, &mut found) };
    }
    if found.is_empty() {
        return;
    }
    let partition = partition::find_or_make(StorageId::of(relation), &table);
    let mut changed = vec![false; slots.len()];
    for batch in found.chunks_mut(BATCH) {
        let before: Vec<u64> = batch.iter().map(|one| one.fid).collect();
        promote_batch(partition, batch);
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
            unsafe { replace_identifiers(*slot, these) };
        }
        rest = others;
    }
}

/// Has the zone store a batch of values, replaces their identifiers, and logs the redo record. A
/// batch whose record is too long for one call is handled in halves. Raises the zone's faults as an
/// ERROR.
fn promote_batch(partition: u16, batch: &mut [Value]) {
    let done = zone::with(
        |connection| match call_promote(connection, partition, batch) {
            Err(Broken::Fault(Fault::StringTooLong)) if batch.len() > 1 => Ok(None),
            done => done.map(Some),
        },
    );
    match done {
        Some(record) if record.is_empty() => {}
        Some(record) => log_record(&record),
        None => {
            let (first, second) = batch.split_at_mut(batch.len() / 2);
            promote_batch(partition, first);
            promote_batch(partition, second);
        }
    }
}

/// Appends the confidential values of a row that are not NULL to `found`. `row` is the index of its
/// slot.
///
/// # Safety
///
/// A slot with a row of the relation that has `columns`.
unsafe fn collect_values(
    slot: *mut TupleTableSlot,
    row: usize,
    columns: &[Column],
    found: &mut Vec<Value>,
) {
    // SAFETY: the caller's promise.
    let values = unsafe { Row::of(slot) };
    found.extend(columns.iter().filter_map(|column| {
        Some(Value {
            row,
            column: *column,
            fid: values.identifier(column.number)?,
        })
    }));
}

/// Has the zone store a batch of values, and replaces their identifiers; returns the redo record,
/// which is empty if none is needed. `StringTooLong` if the record does not fit; the zone's other
/// faults, or `Lost` if it is gone.
///
/// Tables for which PostgreSQL itself writes no log (UNLOGGED, temporary) need the record too: they
/// survive a restart of the zone, which recovers their values from the log.
fn call_promote(
    connection: &mut Connection,
    partition: u16,
    batch: &mut [Value],
) -> Result<Vec<u8>, Broken> {
    let mut words = Vec::with_capacity(batch.len() * WORDS);
    for one in &*batch {
        let mut record = [0; promote_layout::SIZE];
        let number = one.column.number.cast_unsigned().to_le_bytes();
        put(&mut record, promote_layout::COLUMN, &number);
        put(
            &mut record,
            promote_layout::KIND,
            &[one.column.kind.number()],
        );
        put(&mut record, promote_layout::FID, &one.fid.to_le_bytes());
        let (halves, _) = record.as_chunks::<8>();
        words.extend(halves.iter().map(|half| u64::from_le_bytes(*half)));
    }
    connection.write_words(0, &words)?;
    let answer = connection.call(Descriptor {
        n: u32::try_from(batch.len()).unwrap_or(u32::MAX),
        a: u64::from(partition),
        ..Descriptor::of(Op::Promote)
    })?;
    connection.read_words(0, &mut words)?;
    for (one, record) in batch.iter_mut().zip(words.chunks_exact(WORDS)) {
        one.fid = record.first().copied().unwrap_or(0);
    }
    connection.read(
        words.len() * 8,
        usize::try_from(answer.value).unwrap_or(usize::MAX),
    )
}

/// Puts a redo record into the write-ahead log, outside of the transaction, without a flush;
/// returns its number and where it ends. `None`, and nothing is written, if the bytes are no redo
/// record, or the zone that sealed it is no longer the one that the log is replayed to (L4).
pub(crate) fn insert_record(record: &[u8]) -> Option<InsertedRecord> {
    let head = RedoHead::parse(record)?;
    let end = Cell::new(0);
    let done = shared_memory::insert_record(head.incarnation, || {
        // SAFETY: copies the bytes into the WAL's buffers; not transactional, so that it is there
        // for aborted work too.
        end.set(unsafe {
            call_postgres(|| {
                LogLogicalMessage(
                    MESSAGE_PREFIX.as_ptr(),
                    record.as_ptr().cast(),
                    record.len(),
                    false,
                )
            })
        });
    });
    done.then(|| InsertedRecord {
        number: head.number,
        end: end.get(),
    })
}

/// The operation that tells the zone that this redo record has been inserted.
pub(crate) fn inserted(record: InsertedRecord) -> Descriptor {
    Descriptor {
        a: record.number,
        b: record.end,
        ..Descriptor::of(Op::Inserted)
    }
}

/// Puts a redo record into the write-ahead log, and posts its number to the zone. Raises an ERROR,
/// and writes nothing, if another zone has been started since the record was made: that zone reads
/// the log only up to its own start, and the heap must not get the identifiers that the record
/// names.
pub(crate) fn log_record(record: &[u8]) {
    match insert_record(record) {
        Some(record) => zone::with(|connection| connection.post(inserted(record))),
        None => zone::with(|_| Err(Broken::Lost)),
    }
}

/// Writes the permanent identifiers into the row in a slot.
///
/// A slot that holds only values is changed in place. A slot that holds a tuple gets a new tuple,
/// because its own may be on a page of a buffer.
///
/// # Safety
///
/// A slot whose values have been fetched.
unsafe fn replace_identifiers(slot: *mut TupleTableSlot, with: &[Value]) {
    // SAFETY: the caller's promise; there are as many values and nulls as the row type has columns;
    // heap_form_tuple copies what they point to before the slot releases it.
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

/// Whether the slot holds a tuple besides values; true for an unknown kind of slot.
///
/// # Safety
///
/// A slot of PostgreSQL's.
unsafe fn holds_tuple(slot: *mut TupleTableSlot) -> bool {
    // SAFETY: the slot's operations tell which structure it is the beginning of
    // (executor/tuptable.h).
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
