//! Ephemeral values: the values that a statement of one backend computes, and its literals.
//!
//! Invariants:
//! - A slot is chosen by the backend, filled once, and void when its statement ends. An identifier
//!   of another statement is [`Fault::StaleFid`], one that was never filled [`Fault::ForgedFid`];
//!   never another value (F1).
//! - A slot whose operation failed holds the fault: an operation that takes it as an argument fails
//!   in the same way (R2).
//! - Values lie in locked memory that is left out of core dumps, and are overwritten when the
//!   statement ends.
//! - Each value has the [`Scope`] of the column keys it was made from: the policy decides by it.
//!
//! Must not: decide who may do what, or know permanent values.

mod heap;
mod scope;

use std::collections::BTreeMap;
use std::sync::Arc;

use strongroom_columns_ring::Fault;
use strongroom_columns_values::{Accumulator, Out, Value};
use strongroom_format::columns::{Fid, Kind};

use crate::store::memory::Memory;
use heap::{Form, Heap, Slot, Slots};
pub(crate) use scope::{Origin, Scope, ScopeId, Scopes};

/// The most slots that a backend may skip: those of operations that it gave up.
const SKIPPED_SLOTS_MAX: u64 = 1 << 16;
/// The most values that one statement may have at a time: 1 GiB of slots.
const VALUES_MAX: u64 = 1 << 26;
/// The most literals of one connection.
const LITERALS_MAX: u64 = 1 << 20;
/// The most bytes out of line of one statement, and of the literals of one connection.
const BYTES_MAX: u64 = 4 << 30;

/// Kind of an ephemeral value, and its scope: the column keys that it was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) kind: Kind,
    pub(crate) scope: ScopeId,
}

/// An aggregate while values are added to it.
pub(crate) struct RunningAggregate {
    pub(crate) accumulator: Accumulator,
    pub(crate) scope: ScopeId,
}

/// Aggregates, by number. They are never moved: memory that grows by copying would leave sums
/// behind that nobody wipes.
#[derive(Default)]
struct Aggregates(Vec<Vec<RunningAggregate>>);

/// Aggregates whose memory is allocated together.
const AGGREGATES_PER_CHUNK: usize = 64;

impl Aggregates {
    /// The number of aggregates.
    fn len(&self) -> usize {
        let full = self.0.len().saturating_sub(1) * AGGREGATES_PER_CHUNK;
        full + self.0.last().map_or(0, Vec::len)
    }

    /// The aggregate at this index, counted from 0. `None` past the last one.
    fn get(&self, at: usize) -> Option<&RunningAggregate> {
        self.0
            .get(at / AGGREGATES_PER_CHUNK)?
            .get(at % AGGREGATES_PER_CHUNK)
    }

    /// The aggregate at this index, to be changed. `None` past the last one.
    fn get_mut(&mut self, at: usize) -> Option<&mut RunningAggregate> {
        self.0
            .get_mut(at / AGGREGATES_PER_CHUNK)?
            .get_mut(at % AGGREGATES_PER_CHUNK)
    }

    /// Appends an aggregate, whose index is the former [`Self::len`].
    fn push(&mut self, total: RunningAggregate) {
        match self.0.last_mut() {
            Some(last) if last.len() < AGGREGATES_PER_CHUNK => last.push(total),
            _ => {
                let mut next = Vec::with_capacity(AGGREGATES_PER_CHUNK);
                next.push(total);
                self.0.push(next);
            }
        }
    }
}

/// The ephemerals of one backend.
pub(crate) struct Arena {
    number: u16,
    statement: u8,
    /// First slot of the current statement.
    base: u64,
    values: ValueArea,
    aggregates: Aggregates,
    literals: ValueArea,
    literals_by_digest: BTreeMap<[u8; 32], Fid>,
    pub(crate) scopes: Scopes,
}

/// Slots and the bytes that do not fit into them.
struct ValueArea {
    slots: Slots,
    heap: Heap,
}

impl ValueArea {
    /// An empty area. Takes no memory yet.
    fn new(memory: &Arc<Memory>) -> Self {
        Self {
            slots: Slots::new(memory),
            heap: Heap::new(memory),
        }
    }

    /// Stores a copy of `value` in the slot at index `at`. `Fault::BadRequest` if the slot is
    /// filled already, `Fault::StringTooLong` from 4 GiB on, `Fault::ArenaFull` if the area would
    /// hold more than 4 GiB of bytes, `Fault::OutOfMemory` if no memory is left.
    fn put(&mut self, at: u64, meta: Meta, value: Value<'_>) -> Result<(), Fault> {
        if self
            .slots
            .get(at)
            .is_some_and(|slot| slot.form != Form::Empty)
        {
            return Err(Fault::BadRequest);
        }
        let (form, word, len) = match value {
            Value::Word(word) => (Form::Word, word, 0),
            Value::Bytes(bytes) => {
                let len = u32::try_from(bytes.len()).map_err(|_| Fault::StringTooLong)?;
                if !has_room(self.heap.used(), bytes.len()) {
                    return Err(Fault::ArenaFull);
                }
                let place = self.heap.put(bytes).ok_or(Fault::OutOfMemory)?;
                (Form::Bytes, place, len)
            }
        };
        let slot = Slot {
            word,
            len,
            scope: meta.scope.number(),
            kind: meta.kind.number(),
            form,
        };
        self.slots.set(at, slot).ok_or(Fault::OutOfMemory)
    }

    /// Copies the value of a slot to `out`, and returns its kind and scope. A slot that holds a
    /// fault returns that fault; `Fault::ForgedFid` for an empty slot, `Fault::KindMismatch` for an
    /// aggregate.
    fn get(&self, at: u64, out: &mut Out) -> Result<Meta, Fault> {
        let slot = self.slots.get(at).ok_or(Fault::ForgedFid)?;
        match slot.form {
            Form::Word => out.set_word(slot.word),
            Form::Bytes => {
                let bytes = self.heap.get(slot.word, slot.len).ok_or(Fault::ForgedFid)?;
                out.set_bytes(bytes);
            }
            Form::Fault => return Err(fault_of(slot)),
            Form::Empty => return Err(Fault::ForgedFid),
            Form::Aggregate => return Err(Fault::KindMismatch),
        }
        Ok(Meta {
            kind: Kind::from_number(slot.kind).ok_or(Fault::ForgedFid)?,
            scope: ScopeId::of(slot.scope),
        })
    }
}

/// Whether a value of `len` bytes fits into an area that has taken `used` bytes. As many count as
/// it takes, padded: the length itself is a secret, and everybody can see whether the area is full.
fn has_room(used: u64, len: usize) -> bool {
    let taken = heap::taken(len).map(|taken| taken as u64);
    taken.is_some_and(|taken| used.saturating_add(taken) <= BYTES_MAX)
}

/// The fault that a slot of form `Fault` holds. `Fault::BadRequest` for an unknown number.
fn fault_of(slot: Slot) -> Fault {
    let number = u32::try_from(slot.word).unwrap_or_default();
    Fault::from_number(number).unwrap_or(Fault::BadRequest)
}

impl Arena {
    /// An empty arena, for the values of one ring's statements. `number` is the partition number in
    /// its identifiers.
    pub(crate) fn new(number: u16, memory: &Arc<Memory>) -> Self {
        Self {
            number,
            statement: 0,
            base: 0,
            values: ValueArea::new(memory),
            aggregates: Aggregates::default(),
            literals: ValueArea::new(memory),
            literals_by_digest: BTreeMap::new(),
            scopes: Scopes::new(),
        }
    }

    /// Copies a value, computed or literal, to `out`, and returns its kind and scope.
    ///
    /// # Errors
    /// [`Fault::StaleFid`] for an identifier of another statement; [`Fault::ForgedFid`] for one of
    /// another arena or of an empty slot; [`Fault::KindMismatch`] for an accumulator; the fault
    /// that the slot holds, if it holds one.
    pub(crate) fn get(&self, fid: Fid, out: &mut Out) -> Result<Meta, Fault> {
        if fid.is_literal() {
            return self.literals.get(fid.slot(), out);
        }
        self.values.get(self.slot_index(fid)?, out)
    }

    /// Stores a copy of a computed value in the slot that the backend chose.
    ///
    /// # Errors
    /// [`Fault::StaleFid`] for a slot of another statement; [`Fault::ForgedFid`] for one of another
    /// arena, or of a literal; [`Fault::BadRequest`] for one that is filled;
    /// [`Fault::StringTooLong`] for a value of 4 GiB or more; [`Fault::ArenaFull`] for a slot above
    /// 2^26 or too far after the last one, or if the values' bytes are too many;
    /// [`Fault::OutOfMemory`] if no memory is left.
    pub(crate) fn put(&mut self, fid: Fid, meta: Meta, value: Value<'_>) -> Result<(), Fault> {
        let at = self.free_slot_index(fid)?;
        self.values.put(at, meta, value)
    }

    /// Checks that an identifier is one of the present statement of this arena.
    ///
    /// # Errors
    /// [`Fault::ForgedFid`] for one of another arena, or of another sort; [`Fault::StaleFid`] for
    /// one of another statement.
    pub(crate) fn check_current(&self, fid: Fid) -> Result<(), Fault> {
        self.slot_index(fid).map(drop)
    }

    /// Stores a fault in a slot, over any value there; every later use of its identifier returns
    /// the fault. Does nothing if the identifier is not one of this statement, or memory is
    /// lacking: using it is then an error anyway.
    pub(crate) fn fail(&mut self, fid: Fid, fault: Fault) {
        if let Ok(at) = self.free_slot_index(fid) {
            let slot = Slot {
                word: u64::from(fault.number()),
                form: Form::Fault,
                ..Slot::EMPTY
            };
            // Without memory for the slot it stays empty, which is an error as well.
            let _ = self.values.slots.set(at, slot);
        }
    }

    /// The identifier of the literal whose envelope has this digest. `None` if there is none yet.
    pub(crate) fn literal(&self, digest: &[u8; 32]) -> Option<Fid> {
        self.literals_by_digest.get(digest).copied()
    }

    /// Stores a literal in the slot that the backend chose, for the rest of the connection, and
    /// notes it under the digest of its envelope for [`Self::literal`].
    ///
    /// # Errors
    /// [`Fault::ForgedFid`] if the identifier is not a literal's of this arena;
    /// [`Fault::BadRequest`] if the slot is filled; [`Fault::ArenaFull`] above 2^20 literals, or
    /// too far after the last one; [`Fault::StringTooLong`] for a value of 4 GiB or more;
    /// [`Fault::OutOfMemory`] if no memory is left.
    pub(crate) fn put_literal(
        &mut self,
        fid: Fid,
        digest: [u8; 32],
        meta: Meta,
        value: Value<'_>,
    ) -> Result<(), Fault> {
        if !fid.is_literal() || fid.partition() != self.number {
            return Err(Fault::ForgedFid);
        }
        let end = self.literals.slots.len();
        if fid.slot() >= LITERALS_MAX || fid.slot() > end.saturating_add(SKIPPED_SLOTS_MAX) {
            return Err(Fault::ArenaFull);
        }
        self.literals.put(fid.slot(), meta, value)?;
        self.literals_by_digest.insert(digest, fid);
        Ok(())
    }

    /// The accumulator in this slot. `None` if the slot is empty.
    ///
    /// # Errors
    /// [`Fault::NotAnAccumulator`] if the slot holds a value; the fault that it holds;
    /// [`Fault::StaleFid`] for an identifier of another statement, [`Fault::ForgedFid`] for one of
    /// another arena.
    pub(crate) fn aggregate(&self, fid: Fid) -> Result<Option<&RunningAggregate>, Fault> {
        match self.aggregate_index(fid)? {
            Some(at) => self.aggregates.get(at).map(Some).ok_or(Fault::ForgedFid),
            None => Ok(None),
        }
    }

    /// The accumulator in this slot, to be changed, and the arena's scopes. `None` if the slot is
    /// empty.
    ///
    /// # Errors
    /// [`Fault::NotAnAccumulator`] if the slot holds a value; the fault that it holds;
    /// [`Fault::StaleFid`] for an identifier of another statement, [`Fault::ForgedFid`] for one of
    /// another arena.
    pub(crate) fn aggregate_mut(
        &mut self,
        fid: Fid,
    ) -> Result<Option<(&mut RunningAggregate, &mut Scopes)>, Fault> {
        match self.aggregate_index(fid)? {
            Some(at) => {
                let total = self.aggregates.get_mut(at).ok_or(Fault::ForgedFid)?;
                Ok(Some((total, &mut self.scopes)))
            }
            None => Ok(None),
        }
    }

    /// Stores a new accumulator, until the statement ends, in the slot that the backend chose: that
    /// of the identifier `fid`, which has to be empty.
    ///
    /// # Errors
    /// [`Fault::StaleFid`] for a slot of another statement; [`Fault::ForgedFid`] for one of another
    /// arena, or of a literal; [`Fault::BadRequest`] for one that is filled; [`Fault::ArenaFull`]
    /// for one above 2^26 or too far after the last one; [`Fault::OutOfMemory`] without memory.
    pub(crate) fn put_aggregate(&mut self, fid: Fid, total: RunningAggregate) -> Result<(), Fault> {
        let at = self.free_slot_index(fid)?;
        if self
            .values
            .slots
            .get(at)
            .is_some_and(|slot| slot.form != Form::Empty)
        {
            return Err(Fault::BadRequest);
        }
        let slot = Slot {
            word: self.aggregates.len() as u64,
            form: Form::Aggregate,
            ..Slot::EMPTY
        };
        self.values.slots.set(at, slot).ok_or(Fault::OutOfMemory)?;
        self.aggregates.push(total);
        Ok(())
    }

    /// Ends the statement: wipes all its values and accumulators, so that their identifiers become
    /// stale. Literals remain. `statement` is the next one's number, `base` the number of its first
    /// slot.
    pub(crate) fn end_statement(&mut self, statement: u8, base: u64) {
        self.values.slots.clear();
        self.values.heap.clear();
        self.aggregates = Aggregates::default();
        self.statement = statement;
        self.base = base;
    }

    /// For the status: how many slots of the statement and of literals there are.
    pub(crate) fn size(&self) -> (u64, u64) {
        (self.values.slots.len(), self.literals.slots.len())
    }

    /// The index of the slot that the identifier of a computed value names; the slot may be empty.
    /// `Fault::ForgedFid` for an identifier of another arena or another sort, `Fault::StaleFid` for
    /// one of another statement.
    fn slot_index(&self, fid: Fid) -> Result<u64, Fault> {
        if fid.partition() != self.number || fid.is_literal() || !fid.is_ephemeral() {
            return Err(Fault::ForgedFid);
        }
        if fid.generation() != self.statement {
            return Err(Fault::StaleFid);
        }
        fid.slot().checked_sub(self.base).ok_or(Fault::StaleFid)
    }

    /// The index of the slot in which a value with this identifier would be stored. Does not look
    /// whether the slot is empty, and reserves nothing. `Fault::ForgedFid` for an identifier of
    /// another arena or another sort, `Fault::StaleFid` for one of another statement,
    /// `Fault::ArenaFull` above 2^26 slots, or more than 65536 slots after the last one.
    fn free_slot_index(&self, fid: Fid) -> Result<u64, Fault> {
        let at = self.slot_index(fid)?;
        let end = self.values.slots.len();
        if at >= VALUES_MAX || at > end.saturating_add(SKIPPED_SLOTS_MAX) {
            return Err(Fault::ArenaFull);
        }
        Ok(at)
    }

    /// The index in `aggregates` of the accumulator that a slot holds. `None` for an empty slot,
    /// `Fault::NotAnAccumulator` for one with a value; the slot's fault if it holds one;
    /// `Fault::ForgedFid` or `Fault::StaleFid` for an identifier of another arena or statement.
    fn aggregate_index(&self, fid: Fid) -> Result<Option<usize>, Fault> {
        let slot = self.values.slots.get(self.slot_index(fid)?);
        match slot {
            None => Ok(None),
            Some(slot) => match slot.form {
                Form::Empty => Ok(None),
                Form::Fault => Err(fault_of(slot)),
                Form::Aggregate => usize::try_from(slot.word)
                    .map(Some)
                    .map_err(|_| Fault::ForgedFid),
                Form::Word | Form::Bytes => Err(Fault::NotAnAccumulator),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongroom_columns_ring::function::Aggregate;

    fn arena() -> Arena {
        Arena::new(5, &Memory::new(false))
    }

    fn meta(arena: &mut Arena) -> Meta {
        let scope = arena
            .scopes
            .intern(Scope::column(crate::store::Binding {
                key: [1; 16],
                lineage: strongroom_format::columns::Lineage::of(8),
            }))
            .unwrap();
        Meta {
            kind: Kind::Int8,
            scope,
        }
    }

    #[test]
    fn whether_an_arena_is_full_tells_no_more_of_a_length_than_an_envelope() {
        for left in [0, 16, 32, 48] {
            for padded in [0, 16, 32] {
                let lengths = padded..padded + 16;
                let room = lengths.map(|len| has_room(BYTES_MAX - left, len));
                let expected = padded as u64 + 16 <= left;
                assert!(room.clone().all(|has| has == expected), "{left} {padded}");
            }
        }
    }

    fn fid(statement: u8, slot: u64) -> Fid {
        Fid::ephemeral(5, statement, slot).unwrap()
    }

    fn word(arena: &Arena, fid: Fid) -> Result<u64, Fault> {
        let mut out = Out::new();
        arena.get(fid, &mut out)?;
        out.value().word()
    }

    #[test]
    fn values_come_back_in_their_statement_and_in_no_other() {
        let mut arena = arena();
        let meta = meta(&mut arena);
        for slot in 0..20_000 {
            arena
                .put(fid(0, slot), meta, Value::Word(slot * 3))
                .unwrap();
        }
        let long = vec![0x5a; 300_000];
        arena
            .put(fid(0, 20_000), meta, Value::Bytes(&long))
            .unwrap();
        arena.put(fid(0, 20_001), meta, Value::Bytes(b"")).unwrap();
        for slot in 0..20_000 {
            assert_eq!(word(&arena, fid(0, slot)), Ok(slot * 3));
        }
        let mut out = Out::new();
        assert_eq!(arena.get(fid(0, 20_000), &mut out), Ok(meta));
        assert_eq!(out.value().bytes().unwrap(), long);
        arena.get(fid(0, 20_001), &mut out).unwrap();
        assert_eq!(out.value().bytes().unwrap(), b"");

        arena.end_statement(1, 20_002);
        assert_eq!(word(&arena, fid(0, 3)), Err(Fault::StaleFid));
        assert_eq!(
            word(&arena, fid(1, 3)),
            Err(Fault::StaleFid),
            "below the base"
        );
        assert_eq!(
            word(&arena, fid(1, 20_002)),
            Err(Fault::ForgedFid),
            "not yet filled"
        );
        arena.put(fid(1, 20_002), meta, Value::Word(7)).unwrap();
        assert_eq!(word(&arena, fid(1, 20_002)), Ok(7));
        // The statements' numbers come round; the slots do not.
        arena.end_statement(0, 20_003);
        assert_eq!(word(&arena, fid(0, 3)), Err(Fault::StaleFid));
    }

    #[test]
    fn what_is_not_this_arena_s_or_already_filled_is_refused() {
        let mut arena = arena();
        let meta = meta(&mut arena);
        let mut put = |fid: Fid| arena.put(fid, meta, Value::Word(1));
        assert_eq!(put(Fid::ephemeral(6, 0, 0).unwrap()), Err(Fault::ForgedFid));
        assert_eq!(
            put(Fid::permanent(5, 0, 0, 0).unwrap()),
            Err(Fault::ForgedFid)
        );
        assert_eq!(put(Fid::literal(5, 0).unwrap()), Err(Fault::ForgedFid));
        assert_eq!(put(fid(1, 0)), Err(Fault::StaleFid));
        assert_eq!(put(fid(0, 1 << 30)), Err(Fault::ArenaFull));
        assert_eq!(put(fid(0, 9)), Ok(()));
        assert_eq!(put(fid(0, 9)), Err(Fault::BadRequest));
        assert_eq!(word(&arena, fid(0, 8)), Err(Fault::ForgedFid), "left out");
    }

    #[test]
    fn a_fault_is_what_its_slot_holds() {
        let mut arena = arena();
        let meta = meta(&mut arena);
        arena.fail(fid(0, 2), Fault::DivisionByZero);
        assert_eq!(word(&arena, fid(0, 2)), Err(Fault::DivisionByZero));
        assert_eq!(
            arena.aggregate(fid(0, 2)).err(),
            Some(Fault::DivisionByZero)
        );
        assert_eq!(
            arena.put(fid(0, 2), meta, Value::Word(1)),
            Err(Fault::BadRequest)
        );
    }

    #[test]
    fn literals_outlive_statements_and_are_found_by_their_envelope() {
        let mut arena = arena();
        let meta = meta(&mut arena);
        let literal = Fid::literal(5, 0).unwrap();
        assert_eq!(arena.literal(&[1; 32]), None);
        arena
            .put_literal(literal, [1; 32], meta, Value::Bytes(b"kept"))
            .unwrap();
        arena.end_statement(1, 0);
        assert_eq!(arena.literal(&[1; 32]), Some(literal));
        let mut out = Out::new();
        arena.get(literal, &mut out).unwrap();
        assert_eq!(out.value().bytes().unwrap(), b"kept");
        let other = Fid::literal(6, 1).unwrap();
        assert_eq!(
            arena.put_literal(other, [2; 32], meta, Value::Word(1)),
            Err(Fault::ForgedFid)
        );
        assert_eq!(
            word(&arena, Fid::literal(5, 1).unwrap()),
            Err(Fault::ForgedFid)
        );
    }

    #[test]
    fn accumulators_stay_where_they_are() {
        let mut aggregates = Aggregates::default();
        let mut places: Vec<*const RunningAggregate> = Vec::new();
        let scope = meta(&mut arena()).scope;
        for at in 0..3 * AGGREGATES_PER_CHUNK + 1 {
            assert_eq!(aggregates.len(), at);
            aggregates.push(RunningAggregate {
                accumulator: Accumulator::new(Aggregate::Sum, Kind::Int8).unwrap(),
                scope,
            });
            places.push(aggregates.get(at).unwrap());
        }
        let found = places.iter().enumerate();
        assert!(
            found
                .into_iter()
                .all(|(at, place)| core::ptr::eq(*place, aggregates.get(at).unwrap()))
        );
        assert!(aggregates.get(places.len()).is_none());
    }

    #[test]
    fn accumulators_are_not_values() {
        let mut arena = arena();
        let meta = meta(&mut arena);
        let total = || RunningAggregate {
            accumulator: Accumulator::new(Aggregate::Sum, Kind::Int8).unwrap(),
            scope: meta.scope,
        };
        assert!(arena.aggregate(fid(0, 0)).unwrap().is_none());
        arena.put_aggregate(fid(0, 0), total()).unwrap();
        assert!(arena.aggregate(fid(0, 0)).unwrap().is_some());
        assert_eq!(word(&arena, fid(0, 0)), Err(Fault::KindMismatch));
        assert_eq!(
            arena.put_aggregate(fid(0, 0), total()),
            Err(Fault::BadRequest)
        );
        arena.put(fid(0, 1), meta, Value::Word(1)).unwrap();
        assert_eq!(
            arena.aggregate(fid(0, 1)).err(),
            Some(Fault::NotAnAccumulator)
        );
    }
}
