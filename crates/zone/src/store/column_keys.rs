//! Which column key a column belongs to: under which its values may be sealed for whoever asks.
//!
//! Invariants (S6): a column is bound once, when its first value is stored, and stays bound; the binding is in the manifest and in the log
//! before the column's first value. A host that could bind a column anew could have its values sealed under a key of its own.
//! Must not: hold a key.

use std::collections::btree_map::Entry as Place;

use strongroom_format::code;
use strongroom_format::columns::manifest::ColumnKeyEntry;
use strongroom_format::columns::redo::{ColumnBinding, Entry};
use strongroom_keyring::Error;
use strongroom_rpc::Fault;

use super::Store;
use super::partition::{ColumnKey, Partition};

impl Store {
    /// The id of the key that a column is bound to.
    #[must_use]
    pub fn column_key(&self, partition: u16, column: u16) -> Option<[u8; 16]> {
        let partition = self.partition(partition)?;
        partition.column_keys.get(&column).map(|key| key.id)
    }

    /// Binds a column to a key. The record of the column's first value says so.
    ///
    /// # Errors
    /// [`Fault::PartitionUnknown`], [`Fault::Recovering`]; [`Fault::ColumnMismatch`] when it is bound to another key.
    pub fn bind(&mut self, number: u16, column: u16, id: [u8; 16]) -> Result<(), Fault> {
        self.admit()?;
        let partition = self.partition_mut(number).ok_or(Fault::PartitionUnknown)?;
        match partition.column_keys.entry(column) {
            Place::Occupied(known) if known.get().id == id => Ok(()),
            Place::Occupied(_) => Err(Fault::ColumnMismatch),
            Place::Vacant(place) => {
                place.insert(ColumnKey {
                    id,
                    announced: false,
                });
                Ok(())
            }
        }
    }

    /// Says in the ring's next record what a column is bound to, unless the log has it already: another ring's record of the column's
    /// values may get into the log first.
    pub(super) fn log_binding(
        &mut self,
        ring: u32,
        partition: u16,
        column: u16,
    ) -> Result<(), Fault> {
        let Some(of) = self.partition(partition) else {
            return Ok(());
        };
        let first_extent = of.first_extent;
        let bound = of.column_keys.get(&column).filter(|key| !key.announced);
        let Some(key_id) = bound.map(|key| key.id) else {
            return Ok(());
        };
        if self.rings.binds(ring, partition, column) {
            return Ok(());
        }
        self.log_entry(
            ring,
            &Entry::Bound(ColumnBinding {
                partition,
                column,
                first_extent,
                key_id,
            }),
        )
    }

    /// A record with these bindings is in the host's log.
    pub(super) fn bound_for_good(&mut self, bound: &[(u16, u16)]) {
        for (number, column) in bound {
            let partition = self.partition_mut(*number);
            if let Some(key) = partition.and_then(|partition| partition.column_keys.get_mut(column))
            {
                key.announced = true;
            }
        }
    }

    /// Takes a binding from the log. One of an earlier partition of that number is passed over.
    pub(super) fn apply_bound(&mut self, binding: &ColumnBinding) -> Result<(), Error> {
        let Some(partition) = self.partition_mut(binding.partition) else {
            return Ok(());
        };
        if binding.first_extent != partition.first_extent {
            return Ok(());
        }
        let key = partition
            .column_keys
            .entry(binding.column)
            .or_insert(ColumnKey {
                id: binding.key_id,
                announced: true,
            });
        key.announced = true;
        if key.id == binding.key_id {
            return Ok(());
        }
        Err(Error::new(
            &code::REDO_RECORD,
            "a column that is bound to another key",
        ))
    }
}

impl Partition {
    /// Reads `count` columns with their keys from a manifest; gives what follows.
    pub(super) fn load_column_keys<'a>(
        &mut self,
        count: u16,
        mut rest: &'a [u8],
    ) -> Option<&'a [u8]> {
        let mut last = None;
        for _ in 0..count {
            let (entry, tail) = ColumnKeyEntry::parse(rest)?;
            last.is_none_or(|last| last < entry.column).then_some(())?;
            last = Some(entry.column);
            let key = ColumnKey {
                id: entry.key_id,
                announced: true,
            };
            self.column_keys.insert(entry.column, key);
            rest = tail;
        }
        Some(rest)
    }
}
