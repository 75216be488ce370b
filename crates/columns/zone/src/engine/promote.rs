//! Ephemerals become permanent; partitions and whose they are.
//!
//! Invariants: a column's key is bound when its first value is stored, and never changes (the binding is the store's, and in its
//! log); X1: a value of the target's own partition and column keeps its identifier, every other one is copied. Must not: promote a
//! value that the policy was not asked for.

use strongroom_columns_ring::layout::{promote_layout, relation_layout};
use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{AREA_SIZE, Answer, Area, Descriptor, Fault};
use strongroom_columns_values::Value;
use strongroom_crypto::fill_random;
use strongroom_format::columns::redo::Relation;
use strongroom_format::columns::{Fid, Kind, Lineage};
use strongroom_format::layout::{Field, array};

use super::batch::Batch;
use super::{Zone, copy_bytes, len_of, offset_of};
use crate::policy;
use crate::store::{Promotion, Record, Source};

/// One value to be promoted, as it stands in the data area.
struct Wanted {
    fid: u64,
    column: u16,
    kind: Kind,
}

impl Wanted {
    fn parse(record: &[u8]) -> Option<Self> {
        let [kind] = array(record, promote_layout::KIND)?;
        let reserved: [u8; 5] = array(record, promote_layout::RESERVED)?;
        let wanted = Self {
            fid: u64::from_le_bytes(array(record, promote_layout::FID)?),
            column: u16::from_le_bytes(array(record, promote_layout::COLUMN)?),
            kind: Kind::from_number(kind)?,
        };
        (reserved == [0; 5]).then_some(wanted)
    }
}

impl Zone {
    /// [`strongroom_columns_ring::Op::Promote`].
    pub(super) fn promote(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<u64, Fault> {
        let partition = u16::try_from(descriptor.a).map_err(|_| Fault::PartitionUnknown)?;
        let len = len_of(descriptor)?.saturating_mul(promote_layout::SIZE);
        copy_bytes(area, descriptor, len, &mut self.hands.bytes)?;
        let (records, _) = self.hands.bytes.as_chunks::<{ promote_layout::SIZE }>();
        let wanted: Option<Vec<Wanted>> =
            records.iter().map(|record| Wanted::parse(record)).collect();
        let wanted = wanted.ok_or(Fault::BadRequest)?;
        // A value of a statement only.
        if wanted.iter().any(|one| one.kind == Kind::Interval) {
            return Err(Fault::KindMismatch);
        }
        let mut bound = Vec::new();
        let promoted = self.promote_wanted(ring, partition, &wanted, &mut bound);
        if promoted.is_err() {
            for column in bound {
                self.ground.store.unbind(partition, column);
            }
        }
        let (record, fids) = promoted?;
        let offset = offset_of(descriptor)?;
        let (records, _) = self.hands.bytes.as_chunks_mut::<{ promote_layout::SIZE }>();
        for (record, fid) in records.iter_mut().zip(&fids) {
            set(record, promote_layout::FID, &fid.bits().to_le_bytes())?;
        }
        if let Some(record) = &record {
            self.hands.bytes.extend_from_slice(&record.bytes);
        }
        // A record that does not fit is one that nobody inserts: its values are orphans, and the batch has to be smaller.
        area.write(offset, &self.hands.bytes)
            .ok_or(Fault::StringTooLong)?;
        Ok(record.map_or(0, |record| record.bytes.len() as u64))
    }

    /// Promotes what was read from the data area. Columns that it binds are in `bound`, whatever comes of it.
    fn promote_wanted(
        &mut self,
        ring: u16,
        partition: u16,
        wanted: &[Wanted],
        bound: &mut Vec<u16>,
    ) -> Result<(Option<Record>, Vec<Fid>), Fault> {
        // Their record has to fit into the data area.
        let mut values = Batch::new(wanted.len(), AREA_SIZE);
        for one in wanted {
            self.collect(ring, partition, one, &mut values, bound)?;
        }
        let mut items = Vec::with_capacity(wanted.len());
        for (at, one) in wanted.iter().enumerate() {
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
        let chain = self.ground.chain(ring)?;
        let mut fids = Vec::with_capacity(items.len());
        let record = self
            .ground
            .store
            .promote(chain, partition, &items, &mut fids)?;
        Ok((record, fids))
    }

    /// Checks one value and copies it, and binds its column if it is the column's first.
    fn collect(
        &mut self,
        ring: u16,
        partition: u16,
        one: &Wanted,
        values: &mut Batch,
        made: &mut Vec<u16>,
    ) -> Result<(), Fault> {
        let [each, ..] = &mut self.hands.args;
        let loaded = self.ground.load_of(ring, one.fid, one.kind, each)?;
        if loaded.place == Some((partition, one.column)) {
            // Stays what it is.
            return values.push(Value::Word(0));
        }
        values.push(each.value())?;
        let bound = self.ground.store.binding(partition, one.column);
        let state = self.ground.rings.get(ring)?;
        let scope = state.arena.scopes.get(loaded.scope)?;
        let session = Self::session(&mut self.channel, state);
        let to = policy::store(session, scope, bound, lineage)?;
        if bound.is_none() {
            let secret = self.keys.key(&to.key).ok_or(Fault::NoColumnKey)?;
            self.ground.store.bind(partition, one.column, to, secret)?;
            made.push(one.column);
        }
        Ok(())
    }

    /// [`strongroom_columns_ring::Op::Partition`].
    pub(super) fn partition(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<Answer, Fault> {
        let relation = self.relation(descriptor, area)?;
        let chain = self.ground.chain(ring)?;
        let store = &mut self.ground.store;
        if store.is_recovering() {
            return Err(Fault::Recovering);
        }
        let number = match store.partition_of(relation) {
            Some(number) => number,
            None if descriptor.flags & flag::NEW == 0 => return Err(Fault::PartitionUnknown),
            None => store.open_partition(Some(chain), relation)?,
        };
        let values = self.ground.store.values_of(number);
        Ok(Answer {
            aux: u32::try_from(values).unwrap_or(u32::MAX),
            ..Answer::of(u64::from(number))
        })
    }

    /// [`strongroom_columns_ring::Op::Drop`].
    pub(super) fn drop_partition(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<Answer, Fault> {
        let number = u16::try_from(descriptor.a).map_err(|_| Fault::PartitionUnknown)?;
        let chain = self.ground.chain(ring)?;
        self.ground.store.drop_partition(Some(chain), number)?;
        self.flush(chain, descriptor, area, 0, false)
    }

    /// [`strongroom_columns_ring::Op::Rehome`].
    pub(super) fn rehome(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<Answer, Fault> {
        let relation = self.relation(descriptor, area)?;
        let number = u16::try_from(descriptor.a).map_err(|_| Fault::PartitionUnknown)?;
        let chain = self.ground.chain(ring)?;
        self.ground
            .store
            .reassign_partition(Some(chain), number, relation)?;
        self.flush(chain, descriptor, area, 0, false)
    }

    fn relation(&mut self, descriptor: &Descriptor, area: &Area) -> Result<Relation, Fault> {
        let bytes = &mut self.hands.bytes;
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

fn set(record: &mut [u8], field: Field, bytes: &[u8]) -> Result<(), Fault> {
    let end = field.offset.saturating_add(field.len);
    let place = record.get_mut(field.offset..end).ok_or(Fault::BadRequest)?;
    place.copy_from_slice(bytes);
    Ok(())
}

/// A lineage for a column that has none.
fn lineage() -> Result<Lineage, Fault> {
    let mut random = [0; 8];
    fill_random(&mut random).map_err(|_| Fault::OutOfMemory)?;
    Ok(Lineage::of_column(u64::from_le_bytes(random)))
}
