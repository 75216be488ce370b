//! Promotion: ephemerals become permanent. And partitions, and the relations that they belong to.
//!
//! Invariants: a column's key is bound when its first value is stored, and never changes (the store
//! keeps the binding, in its log too); X1: a value of the target's own partition and column keeps
//! its identifier, every other value is copied. Must not: promote a value without asking the
//! policy.

use strongroom_columns_envelope::lineage_by_name;
use strongroom_columns_ring::layout::{column_layout, promote_layout, relation_layout};
use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{AREA_SIZE, Answer, Area, Descriptor, Fault};
use strongroom_columns_values::Value;
use strongroom_crypto::fill_random;
use strongroom_format::columns::redo::{COLUMNS_MAX, Relation};
use strongroom_format::columns::{Class, Fid, Kind, Lineage};
use strongroom_format::layout::{Field, array};

use super::batch::Batch;
use super::compute::settle;
use super::{Zone, copy_bytes, len_of, offset_of};
use crate::policy;
use crate::store::{Promotion, Record, Source};

/// A value to be promoted, as the data area has it.
struct PromoteRequest {
    fid: u64,
    column: u16,
    kind: Kind,
}

impl PromoteRequest {
    /// Parses a request. `None` if it is too short, its kind is unknown or its reserved bytes are
    /// not zero.
    fn parse(record: &[u8]) -> Option<Self> {
        let [kind] = array(record, promote_layout::KIND)?;
        let reserved: [u8; 5] = array(record, promote_layout::RESERVED)?;
        let requests = Self {
            fid: u64::from_le_bytes(array(record, promote_layout::FID)?),
            column: u16::from_le_bytes(array(record, promote_layout::COLUMN)?),
            kind: Kind::from_number(kind)?,
        };
        (reserved == [0; 5]).then_some(requests)
    }
}

impl Zone {
    /// [`strongroom_columns_ring::Op::Promote`]: stores `n` values in partition `a`, and replaces
    /// each identifier in the data area by its permanent one, or leaves it if the value is of this
    /// partition and column already. Writes the redo record after them and returns its length, 0 if
    /// none is needed. A column's first value binds it to a key, which an error undoes.
    /// `Fault::StringTooLong` if all this does not fit into the area; faults of loading, of the
    /// policy and of the store.
    pub(super) fn promote(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<u64, Fault> {
        let partition = u16::try_from(descriptor.a).map_err(|_| Fault::PartitionUnknown)?;
        let len = len_of(descriptor)?.saturating_mul(promote_layout::SIZE);
        copy_bytes(area, descriptor, len, &mut self.scratch.bytes)?;
        let (records, _) = self.scratch.bytes.as_chunks::<{ promote_layout::SIZE }>();
        let requests: Option<Vec<PromoteRequest>> = records
            .iter()
            .map(|record| PromoteRequest::parse(record))
            .collect();
        let requests = requests.ok_or(Fault::BadRequest)?;
        let mut bound = Vec::new();
        let promoted = self.promote_all(ring, partition, &requests, &mut bound);
        if promoted.is_err() {
            for column in bound {
                self.sources.store.unbind(partition, column);
            }
        }
        let (record, fids) = promoted?;
        let offset = offset_of(descriptor)?;
        let (records, _) = self
            .scratch
            .bytes
            .as_chunks_mut::<{ promote_layout::SIZE }>();
        for (record, fid) in records.iter_mut().zip(&fids) {
            set_field(record, promote_layout::FID, &fid.bits().to_le_bytes())?;
        }
        if let Some(record) = &record {
            self.scratch.bytes.extend_from_slice(&record.bytes);
        }
        // A record that does not fit is never inserted: its values are orphans, and the backend
        // repeats with a smaller batch.
        area.write(offset, &self.scratch.bytes)
            .ok_or(Fault::StringTooLong)?;
        Ok(record.map_or(0, |record| record.bytes.len() as u64))
    }

    /// Stores the values that were read from the data area, and returns the redo record, if one is
    /// needed, and the permanent identifiers in the order of the requests. `bound` gets the columns
    /// that it binds, on an error too, so that the caller can undo that.
    fn promote_all(
        &mut self,
        ring: u16,
        partition: u16,
        requests: &[PromoteRequest],
        bound: &mut Vec<u16>,
    ) -> Result<(Option<Record>, Vec<Fid>), Fault> {
        // The record of the values has to fit into the data area.
        let mut values = Batch::new(requests.len(), AREA_SIZE);
        for one in requests {
            self.collect(ring, partition, one, &mut values, bound)?;
        }
        let mut items = Vec::with_capacity(requests.len());
        for (at, one) in requests.iter().enumerate() {
            let stored = Fid::from_bits(one.fid).filter(|fid| !fid.is_ephemeral());
            let source = match stored {
                Some(fid) => Source::Stored(fid),
                None => Source::Value(values.get(at)?),
            };
            items.push(Promotion {
                source,
                column: one.column,
                kind: one.kind,
            });
        }
        let chain = self.sources.chain(ring)?;
        let mut fids = Vec::with_capacity(items.len());
        let store = &mut self.sources.store;
        let record = store.promote(chain, partition, &items, &mut fids);
        // Values of eight bytes are in the list itself.
        for item in &mut items {
            item.source = Source::Value(Value::Word(0));
        }
        core::hint::black_box(&items);
        Ok((record?, fids))
    }

    /// Loads one value, asks the policy whether it may be stored in its column, and appends a copy
    /// to `values`: a placeholder if it is stored there already. Binds the column to a key if it
    /// has none, and appends it to `made`. `Fault::NoColumnKey` if that key is not known;
    /// `Fault::StringTooLong` if the batch would have more than 1 MiB; faults of loading, of the
    /// policy and of the store.
    fn collect(
        &mut self,
        ring: u16,
        partition: u16,
        one: &PromoteRequest,
        values: &mut Batch,
        made: &mut Vec<u16>,
    ) -> Result<(), Fault> {
        let [each, ..] = &mut self.scratch.args;
        let loaded = self.sources.load_of(ring, one.fid, one.kind, each)?;
        if loaded.place == Some((partition, one.column)) {
            // It keeps its identifier: no copy is needed.
            return values.push(Value::Word(0));
        }
        let store = &self.sources.store;
        let target = policy::Target {
            bound: store.binding(partition, one.column),
            by_name: store.lineage_by_name(partition, one.column),
        };
        let stored = |of| store.values_bound_to(of);
        let state = self.sources.rings.get(ring)?;
        let scope = state.arena.scopes.get(loaded.scope)?;
        let session = Self::session(&mut self.channel, state);
        let to = policy::store(session, scope, target, stored, random_lineage)?;
        settle(
            &mut self.channel,
            &mut self.sources,
            ring,
            Some(loaded.scope),
        )?;
        if target.bound.is_none() {
            let secret = self.keys.key(&to.key).ok_or(Fault::NoColumnKey)?;
            self.sources.store.bind(partition, one.column, to, secret)?;
            made.push(one.column);
        }
        values.push(each.value())
    }

    /// [`strongroom_columns_ring::Op::Partition`]: answers with the number of the partition of the
    /// relation that the data area names, and in `aux` with how many values it has. Makes it if
    /// there is none and the flag `NEW` is set; otherwise `Fault::PartitionUnknown`. Gives it back
    /// to a relation that asks for the one that it had before: the move was undone. A relation that
    /// asks for its own has it for good, but with the flag `MOVING`. Notes the
    /// lineages that the relation's columns have by their names, if the data area has columns.
    /// `Fault::Recovering` during recovery, `Fault::BadRequest` for no relation and for malformed
    /// columns.
    pub(super) fn partition(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<Answer, Fault> {
        let relation = self.relation(descriptor, area)?;
        let by_name = self.named_columns(descriptor, area)?;
        let chain = self.sources.chain(ring)?;
        let store = &mut self.sources.store;
        if store.is_recovering() {
            return Err(Fault::Recovering);
        }
        let number = match store.partition_of(relation) {
            Some(number) => {
                if descriptor.flags & flag::MOVING == 0 {
                    store.settle_moves(number);
                }
                number
            }
            None if descriptor.flags & flag::NEW == 0 && store.moved_from(relation).is_none() => {
                return Err(Fault::PartitionUnknown);
            }
            None => store.open_partition(Some(chain), relation)?,
        };
        if descriptor.n > 0 {
            store.name_columns(number, &by_name);
        }
        let values = store.values_of(number);
        Ok(Answer {
            aux: u32::try_from(values).unwrap_or(u32::MAX),
            ..Answer::of(u64::from(number))
        })
    }

    /// [`strongroom_columns_ring::Op::Drop`]: removes partition `a`, its values and its key, and
    /// writes the redo record to the data area; its length is in `aux`. Faults of the store, among
    /// them `Fault::PartitionUnknown`, also for a partition that is not the one that is meant.
    pub(super) fn drop_partition(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<Answer, Fault> {
        let number = u16::try_from(descriptor.a).map_err(|_| Fault::PartitionUnknown)?;
        let chain = self.sources.chain(ring)?;
        let store = &mut self.sources.store;
        let is_meant = match descriptor.flags {
            flag::RETIRED => store.is_retired(number, descriptor.n),
            flag::OF_DATABASE => store.is_of_database(number, descriptor.n),
            _ => true,
        };
        is_meant.then_some(()).ok_or(Fault::PartitionUnknown)?;
        store.drop_partition(Some(chain), number)?;
        self.answer_with_record(chain, descriptor, area, 0, false)
    }

    /// [`strongroom_columns_ring::Op::ReassignPartition`]: makes partition `a` belong to the
    /// relation that the data area names, and writes the redo record there; its length is in `aux`.
    /// `Fault::BadRequest` for no relation; faults of the store, among them
    /// `Fault::PartitionUnknown`.
    pub(super) fn reassign_partition(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<Answer, Fault> {
        let relation = self.relation(descriptor, area)?;
        let number = u16::try_from(descriptor.a).map_err(|_| Fault::PartitionUnknown)?;
        let chain = self.sources.chain(ring)?;
        self.sources
            .store
            .reassign_partition(Some(chain), number, relation)?;
        self.answer_with_record(chain, descriptor, area, 0, false)
    }

    /// [`strongroom_columns_ring::Op::NextDatabase`]: answers with the least OID above `a` of a
    /// database that has partitions, and in `aux` with the number of one of them; 0 for none.
    pub(super) fn next_database(&self, descriptor: &Descriptor) -> Answer {
        match self.sources.store.next_database(descriptor.a) {
            Some((database, number)) => Answer {
                aux: u32::from(number),
                ..Answer::of(u64::from(database))
            },
            None => Answer::of(0),
        }
    }

    /// [`strongroom_columns_ring::Op::NextRetired`]: answers with the number of the first retired
    /// partition above `a`, in `aux` with what tells it from others of its number; 0 if there is
    /// none. `Fault::Recovering` until the host's log is replayed.
    pub(super) fn next_retired(&self, descriptor: &Descriptor) -> Result<Answer, Fault> {
        let store = &self.sources.store;
        if store.is_recovering() || store.is_following() {
            return Err(Fault::Recovering);
        }
        let next = store.next_retired(descriptor.a);
        Ok(next.map_or(Answer::of(0), |(number, mark)| Answer {
            aux: mark,
            ..Answer::of(u64::from(number))
        }))
    }

    /// Reads the columns behind the relation in the data area: the lineages that they have by
    /// their names. `Fault::BadRequest` if they are malformed.
    fn named_columns(
        &mut self,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<Vec<(u16, Lineage)>, Fault> {
        let len = usize::try_from(descriptor.a).map_err(|_| Fault::BadRequest)?;
        let bytes = &mut self.scratch.bytes;
        let whole = relation_layout::SIZE.saturating_add(len);
        copy_bytes(area, descriptor, whole, bytes)?;
        let columns = bytes.get(relation_layout::SIZE..).unwrap_or_default();
        columns_by_name(columns, descriptor.n).ok_or(Fault::BadRequest)
    }

    /// Reads the relation that the data area names at the descriptor's offset. `Fault::BadRequest`
    /// for none, or one whose filenode is 0.
    fn relation(&mut self, descriptor: &Descriptor, area: &Area) -> Result<Relation, Fault> {
        let bytes = &mut self.scratch.bytes;
        copy_bytes(area, descriptor, relation_layout::SIZE, bytes)?;
        let number = |field: Field| array(bytes, field).map(u32::from_le_bytes);
        let relation = Relation {
            tablespace: number(relation_layout::TABLESPACE).ok_or(Fault::BadRequest)?,
            database: number(relation_layout::DATABASE).ok_or(Fault::BadRequest)?,
            filenode: number(relation_layout::FILENODE).ok_or(Fault::BadRequest)?,
        };
        if relation == Relation::NONE || relation.filenode == 0 {
            return Err(Fault::BadRequest);
        }
        Ok(relation)
    }
}

/// The lineages by name of the columns in these records
/// ([`strongroom_columns_ring::layout::column_layout`]), by the columns' numbers. `None` unless
/// there are `count` records, and nothing else, each number is one that a column can have, and each
/// class one that the kind can have.
fn columns_by_name(mut rest: &[u8], count: u32) -> Option<Vec<(u16, Lineage)>> {
    let mut found = Vec::new();
    for _ in 0..count {
        let column = u16::from_le_bytes(array(rest, column_layout::COLUMN)?);
        (1..=COLUMNS_MAX).contains(&column).then_some(())?;
        let [class] = array(rest, column_layout::CLASS)?;
        let class = Class::from_number(class)?;
        let [kind] = array(rest, column_layout::KIND)?;
        class
            .is_possible_for(Kind::from_number(kind)?)
            .then_some(())?;
        let len = u16::from_le_bytes(array(rest, column_layout::NAME)?);
        let (name, behind) = rest
            .get(column_layout::SIZE..)?
            .split_at_checked(usize::from(len))?;
        // An opaque column may do without a name.
        if class.is_comparable() || !name.is_empty() {
            let mut names = core::str::from_utf8(name).ok()?.split('\0');
            let path = [names.next()?, names.next()?, names.next()?, names.next()?];
            names.next().is_none().then_some(())?;
            found.push((column, lineage_by_name(class, path)));
        }
        rest = behind;
    }
    rest.is_empty().then_some(found)
}

/// Overwrites a field of a record with `bytes`, which must be as long as the field.
/// `Fault::BadRequest` if the record ends before the field does.
fn set_field(record: &mut [u8], field: Field, bytes: &[u8]) -> Result<(), Fault> {
    let end = field.offset.saturating_add(field.len);
    let place = record.get_mut(field.offset..end).ok_or(Fault::BadRequest)?;
    place.copy_from_slice(bytes);
    Ok(())
}

/// Draws a random lineage for a column without a name. `Fault::OutOfMemory` if the random
/// generator fails.
fn random_lineage() -> Result<Lineage, Fault> {
    let mut random = [0; 8];
    fill_random(&mut random).map_err(|_| Fault::OutOfMemory)?;
    Ok(Lineage::of_column(
        u64::from_le_bytes(random),
        Class::Opaque,
    ))
}
