//! What the values of a redo record were made for: the identity of their columns.
//!
//! A partition's number and the number of a column say little: a store that is started twice from
//! one state gives both numbers out twice, and its host may show it the records of either history.
//! So a record says of each column which partition it is of, by the partition's first extent, and
//! what it is bound to, and its values are put nowhere else. Must not: change the store.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use strongroom_format::code;
use strongroom_format::columns::Fid;
use strongroom_format::columns::redo::{ColumnBinding, REDO_BOUND_SINCE};
use strongroom_keyring::Error;

use super::Store;
use super::faults::not_opened;

/// The bindings that a record has.
pub(super) struct MadeFor {
    /// Version of the record.
    version: u8,
    /// By partition and column.
    bindings: BTreeMap<(u16, u16), ColumnBinding>,
}

impl MadeFor {
    /// No binding of a record of this version was read yet.
    pub(super) const fn new(version: u8) -> Self {
        Self {
            version,
            bindings: BTreeMap::new(),
        }
    }

    /// Notes that the record has a binding, in place of an earlier one of the column.
    pub(super) fn note(&mut self, binding: &ColumnBinding) {
        self.bindings
            .insert((binding.partition, binding.column), *binding);
    }
}

impl Store {
    /// Whether a value of a record at `position` is one of its column as the store has it. False if
    /// its partition is gone. SR-8012 if the record that made the partition or bound the column is
    /// missing; SR-8030 if the column is bound to something else than what the value was made for.
    pub(super) fn is_for(
        &self,
        fid: Fid,
        column: u16,
        made_for: &MadeFor,
        position: u64,
    ) -> Result<bool, Error> {
        let number = fid.partition();
        let not_bound = || {
            let what = format!(
                "at position {position}: column {column} of partition {number} was not bound"
            );
            Error::new(&code::LOG_GAP, what)
        };
        let Some(partition) = self.partitions.get(number) else {
            let dropped = self.partitions.dropped.get(&number);
            let before = dropped.is_some_and(|dropped| fid.extent() < dropped.next_extent);
            return before
                .then_some(false)
                .ok_or_else(|| not_opened(number, position));
        };
        let Some(binding) = made_for.bindings.get(&(number, column)) else {
            if made_for.version >= REDO_BOUND_SINCE {
                return Err(not_bound());
            }
            // Before that version a record had the binding only as long as the log or the manifest
            // could lack it.
            if fid.extent() < partition.first_extent {
                return Ok(false);
            }
            let is_bound = partition.column_keys.contains_key(&column);
            return is_bound.then_some(true).ok_or_else(not_bound);
        };
        match binding.first_extent.cmp(&partition.first_extent) {
            Ordering::Less => Ok(false),
            Ordering::Greater => Err(not_opened(number, position)),
            Ordering::Equal => {
                // A host that could leave out a binding could bind the column to a key of its own
                // (S6).
                let known = partition.column_keys.get(&column).ok_or_else(not_bound)?;
                if (known.id, known.lineage) != (binding.key_id, binding.lineage) {
                    let what = format!(
                        "at position {position}: a value was made for another column than column \
                         {column} of partition {number}"
                    );
                    return Err(Error::new(&code::STORE_HISTORY, what));
                }
                Ok(fid.extent() >= partition.first_extent)
            }
        }
    }
}
