//! Which column key a column is bound to, under which its values may be sealed for a client; and
//! the keys of bound columns.
//!
//! Invariants: S6: a column is bound once, when its first value is stored, and stays bound; the
//! binding is in the manifest and in the log before the column's first value, and in every record
//! of its values, which are put into no column with another binding. A host that could bind a
//! column anew could have its values sealed under a key of its own. S7: the key is in a durable
//! manifest before the binding is in the log. Must not: use a key, or have one outside locked
//! memory.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, btree_map};

use strongroom_columns_ring::Fault;
use strongroom_crypto::{MacKey, SecretKey, hkdf};
use strongroom_format::code;
use strongroom_format::columns::Lineage;
use strongroom_format::columns::channel::{PROOF_LABEL, PROOFS_MAX};
use strongroom_format::columns::manifest::{ColumnKeyEntry, KeptKey};
use strongroom_format::columns::redo::{COLUMNS_MAX, ColumnBinding};
use strongroom_keyring::Error;
use zeroize::Zeroizing;

use super::Store;
use super::faults::{crypto_error, not_opened};
use super::memory::{Buffer, NoMemory};
use super::partition::{ColumnKey, Partition};
use super::replay::Phase;

/// The key and lineage that a column is bound to when it gets its first value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Id of the column key.
    pub key: [u8; 16],
    /// The lineage of the column's values: drawn at random, or that of the column that they were
    /// copied from.
    pub lineage: Lineage,
}

impl Store {
    /// The binding of a column, which is given by its number (`attnum`): the id of its column key,
    /// and the lineage of its values. `None` if the column has no values yet, or there is no such
    /// partition.
    #[must_use]
    pub fn binding(&self, partition: u16, column: u16) -> Option<Binding> {
        let partition = self.partitions.get(partition)?;
        partition.column_keys.get(&column).map(|key| Binding {
            key: key.id,
            lineage: key.lineage,
        })
    }

    /// Notes the lineages that columns of a partition have by their names, as the host says: in
    /// place of what it said before. Nothing if there is no such partition.
    pub(crate) fn name_columns(&mut self, number: u16, by_name: &[(u16, Lineage)]) {
        if let Some(partition) = self.partitions.get_mut(number) {
            partition.by_name = by_name.iter().copied().collect();
        }
    }

    /// The lineage that a column has by its name, as the host said last. `None` if it has given the
    /// column no name.
    pub(crate) fn lineage_by_name(&self, partition: u16, column: u16) -> Option<Lineage> {
        let partition = self.partitions.get(partition)?;
        partition.by_name.get(&column).copied()
    }

    /// How many values all columns with this binding have together. It counts them by block, so it
    /// is no call for each value of a load.
    pub(crate) fn values_bound_to(&self, to: Binding) -> u64 {
        let is_bound = |key: &ColumnKey| (key.id, key.lineage) == (to.key, to.lineage);
        let mut sum = 0;
        for (_, partition) in self.partitions.iter() {
            if !partition.column_keys.values().any(is_bound) {
                continue;
            }
            let of = |column| partition.column_keys.get(column).is_some_and(is_bound);
            let extents = partition.extents.iter().flatten();
            let blocks = extents
                .filter(|extent| of(&extent.column))
                .flat_map(|extent| &extent.blocks);
            sum += blocks.map(|block| u64::from(block.live)).sum::<u64>();
        }
        sum
    }

    /// A number that rises with every partition that is made. While it is the same, no binding of a
    /// column with values has changed: a binding lives as long as the partition, so only a new
    /// partition under an old number can have another.
    #[must_use]
    pub const fn bindings(&self) -> u64 {
        self.partitions.made()
    }

    /// Binds a column to a key. The records of the column's first values say so. Nothing if it is
    /// bound so already. A key that the store does not have is made durable first, by a checkpoint
    /// (S7).
    ///
    /// # Errors
    /// [`Fault::BadRequest`] for a number that no column has; [`Fault::PartitionUnknown`] if there
    /// is no such partition; [`Fault::Recovering`] while the host's log is replayed or followed;
    /// [`Fault::ColumnMismatch`] if it is bound to something else; [`Fault::NoColumnKey`] if it has
    /// values without a binding, which nobody may choose for them; those of [`Store::checkpoint`].
    /// The column is not bound then.
    pub fn bind(
        &mut self,
        number: u16,
        column: u16,
        to: Binding,
        key: &SecretKey,
    ) -> Result<(), Fault> {
        self.check_writable()?;
        check_column(column)?;
        let partition = self
            .partitions
            .get_mut(number)
            .ok_or(Fault::PartitionUnknown)?;
        let has_values = partition.has_column(column);
        match partition.column_keys.entry(column) {
            btree_map::Entry::Occupied(known)
                if known.get().id == to.key && known.get().lineage == to.lineage =>
            {
                return Ok(());
            }
            btree_map::Entry::Occupied(_) => return Err(Fault::ColumnMismatch),
            btree_map::Entry::Vacant(_) if has_values => return Err(Fault::NoColumnKey),
            btree_map::Entry::Vacant(place) => place.insert(ColumnKey {
                id: to.key,
                lineage: to.lineage,
            }),
        };
        let kept = self.keep_key(to.key, key);
        if kept.is_err()
            && let Some(partition) = self.partitions.get_mut(number)
        {
            partition.column_keys.remove(&column);
        }
        kept
    }

    /// Removes the binding of a column that has no value. Nothing if it has one.
    pub fn unbind(&mut self, number: u16, column: u16) {
        if let Some(partition) = self.partitions.get_mut(number)
            && !partition.has_column(column)
        {
            partition.column_keys.remove(&column);
        }
    }

    /// Removes the bindings of all columns that have no value and never had one. The last manifest
    /// may have one that was taken back after it, or whose first value was lost, and nobody else
    /// could bind the column then. To be called when the host's log was replayed to its end, which
    /// could have brought the value, and before a checkpoint, which forgets the keys.
    pub(super) fn unbind_empty_columns(&mut self) {
        for partition in self.partitions.iter_mut() {
            let extents = partition.extents.iter().flatten();
            let columns: BTreeSet<u16> = extents.map(|extent| extent.column).collect();
            let keys = &mut partition.column_keys;
            keys.retain(|column, _| columns.contains(column));
        }
    }

    /// Keeps the key of a bound column, durably: makes a checkpoint. Does nothing for a key that is
    /// kept already, or that no column is bound to.
    ///
    /// # Errors
    /// [`Fault::OutOfMemory`] if there is no locked memory for the key; those of
    /// [`Store::checkpoint`]. The key is not kept then.
    pub fn keep_key(&mut self, id: [u8; 16], key: &SecretKey) -> Result<(), Fault> {
        if self.column_keys.contains_key(&id) || !self.is_bound(id) {
            return Ok(());
        }
        let copy = key.try_clone().map_err(|_| Fault::OutOfMemory)?;
        self.column_keys.insert(id, copy);
        self.key_ledgers.begin(id);
        let former = self.former_keys.remove(&id);
        let done = self.checkpoint_in_place();
        done.map_err(|error| {
            self.column_keys.remove(&id);
            self.former_keys.extend(former.map(|proof| (id, proof)));
            self.report(error)
        })
    }

    /// The keys that the store keeps, by their ids.
    pub fn kept_keys(&self) -> impl Iterator<Item = (&[u8; 16], &SecretKey)> {
        self.column_keys.iter()
    }

    /// Whether any column is bound to the key of this id.
    pub(crate) fn is_bound(&self, id: [u8; 16]) -> bool {
        let mut bound = self.partitions.iter();
        bound.any(|(_, partition)| partition.column_keys.values().any(|key| key.id == id))
    }

    /// Forgets kept keys that no column is bound to; the next manifest lacks them, and has the key
    /// of their proofs in their place: what its owner expects of this zone is that it can prove
    /// that it had the key. Not while a log is replayed or followed: it may yet bring the column.
    pub(super) fn forget_keys(&mut self) {
        if self.replay.phase != Phase::Serving {
            return;
        }
        let ids: Vec<[u8; 16]> = self.column_keys.keys().copied().collect();
        for id in ids {
            if !self.is_bound(id)
                && let Some(key) = self.column_keys.remove(&id)
                && self.former_keys.len() < PROOFS_MAX
            {
                // Without locked memory for it the zone cannot prove any more that it had the key.
                if let Ok(proof) = hkdf(&key, &id, PROOF_LABEL.as_bytes()) {
                    self.former_keys.insert(id, proof);
                }
            }
        }
        let kept = &self.column_keys;
        self.key_ledgers.retain(|id| kept.contains_key(id));
    }

    /// The ids of the column keys that the store keeps, or has kept before, of which it can prove
    /// that.
    pub fn provable_keys(&self) -> impl Iterator<Item = &[u8; 16]> {
        self.column_keys.keys().chain(self.former_keys.keys())
    }

    /// A proof that the store keeps the column key of this id, or has kept it before: a MAC of what
    /// an attestation's evidence binds. `None` if it has never kept the key, or without locked
    /// memory. A kept key may have no session any more, and no column: until the next checkpoint.
    #[must_use]
    pub fn prove(&self, id: &[u8; 16], binding: &[u8; 32]) -> Option<[u8; 32]> {
        let key = match self.column_keys.get(id) {
            Some(key) => MacKey::new(&hkdf(key, id, PROOF_LABEL.as_bytes()).ok()?).ok()?,
            None => MacKey::new(self.former_keys.get(id)?).ok()?,
        };
        Some(key.mac(&[binding]))
    }

    /// Appends all kept keys with their ids, and then the keys of proofs of former ones, in clear,
    /// to `out`, which is sealed afterwards. `NoMemory` if no memory is left.
    pub(super) fn write_keys(&self, out: &mut Buffer) -> Result<(), NoMemory> {
        for (id, key) in self.column_keys.iter().chain(&self.former_keys) {
            out.extend(id)?;
            out.extend(key.expose())?;
        }
        Ok(())
    }

    /// Adds a column's binding to the ring's next redo record, once for each record: it says what
    /// the values of the record were made for. Without it, a host could have them put into a
    /// column that it has bound to a key of its own in another history of the store.
    /// `Fault::BadRequest` for a ring that is not attached or a record that would become too long;
    /// `Fault::OutOfMemory` if no memory is left.
    pub(super) fn log_binding(
        &mut self,
        ring: u32,
        partition: u16,
        column: u16,
    ) -> Result<(), Fault> {
        let Some(of) = self.partitions.get(partition) else {
            return Ok(());
        };
        let first_extent = of.first_extent;
        let bound = of.column_keys.get(&column);
        let Some((key_id, lineage)) = bound.map(|key| (key.id, key.lineage)) else {
            return Ok(());
        };
        let binding = ColumnBinding {
            partition,
            column,
            first_extent,
            key_id,
            lineage,
        };
        self.redo.append_binding(ring, binding)
    }

    /// Applies a binding that a redo record at `position` has. One of an unknown or earlier
    /// partition of that number is ignored. SR-8012 for one of a later partition, whose opening is
    /// missing; SR-8030 if the column is bound to something else and has, or had, values.
    pub(super) fn apply_bound(
        &mut self,
        binding: &ColumnBinding,
        position: u64,
    ) -> Result<(), Error> {
        let (number, column) = (binding.partition, binding.column);
        let Some(partition) = self.partitions.get_mut(number) else {
            return Ok(());
        };
        match binding.first_extent.cmp(&partition.first_extent) {
            Ordering::Less => Ok(()),
            Ordering::Greater => Err(not_opened(number, position)),
            Ordering::Equal => {
                let bound = ColumnKey {
                    id: binding.key_id,
                    lineage: binding.lineage,
                };
                let known = partition.column_keys.get(&column);
                let is_other = known.is_some_and(|known| *known != bound);
                // The binding of a column that never had a value may have been taken back after
                // the checkpoint, when its first value could not be stored.
                if is_other && partition.has_column(column) {
                    let what = format!(
                        "at position {position}: column {column} of partition {number} is bound \
                         to something else"
                    );
                    return Err(Error::new(&code::STORE_HISTORY, what));
                }
                partition.column_keys.insert(column, bound);
                Ok(())
            }
        }
    }
}

/// Fails with `Fault::BadRequest` for a number that no column of a table has. So a partition has no
/// more columns than a manifest can name.
pub(super) fn check_column(column: u16) -> Result<(), Fault> {
    let is_one = (1..=COLUMNS_MAX).contains(&column);
    is_one.then_some(()).ok_or(Fault::BadRequest)
}

/// Reads `count` keys from the bytes of a manifest into `keys`; returns the bytes after them.
/// `None` if they are cut, or not in ascending order of id; an error in `Some` if there is no
/// locked memory.
pub(super) fn load_keys<'a>(
    keys: &mut BTreeMap<[u8; 16], SecretKey>,
    count: u32,
    mut rest: &'a [u8],
) -> Option<Result<&'a [u8], Error>> {
    let mut last = None;
    for _ in 0..count {
        let (kept, tail) = KeptKey::parse(rest)?;
        last.is_none_or(|last| last < kept.id).then_some(())?;
        last = Some(kept.id);
        let mut bytes = Zeroizing::new(*kept.key);
        match SecretKey::take(&mut bytes) {
            Ok(key) => keys.insert(kept.id, key),
            Err(error) => return Some(Err(crypto_error(error))),
        };
        rest = tail;
    }
    Some(Ok(rest))
}

impl Partition {
    /// Reads `count` column bindings from the bytes of a manifest into the partition; returns the
    /// bytes after them. `None` if they are cut or not in ascending order of column.
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
                lineage: entry.lineage,
            };
            self.column_keys.insert(entry.column, key);
            rest = tail;
        }
        Some(rest)
    }
}
