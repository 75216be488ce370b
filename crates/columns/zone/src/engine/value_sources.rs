//! Where the values of identifiers come from: the arenas of the rings, and the store.
//!
//! Invariants: a permanent value without a known column key is refused ([`Fault::NoColumnKey`]),
//! because the policy could not decide about it; only its own ring and its parallel group read an
//! arena. Must not: decide who may do what with a value.

use std::collections::BTreeMap;

use strongroom_columns_ring::Fault;
use strongroom_columns_values::Out;
use strongroom_format::columns::{Fid, Kind};

use super::backends::Rings;
use super::vector::{Origin, Vector};
use crate::arena::ScopeId;
use crate::policy::{ColumnAddress, Common};
use crate::store::{Binding, Store};

/// Kind and origin of a value that was copied out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loaded {
    pub(super) kind: Kind,
    /// Number of its scope in the arena of the ring that asked.
    pub(super) scope: ScopeId,
    /// Where it is stored; `None` for an ephemeral.
    pub(super) place: Option<ColumnAddress>,
}

/// Arenas and store.
pub(super) struct ValueSources {
    pub(super) rings: Rings,
    pub(super) store: Store,
    /// The store's number of each ring, for its redo records.
    chains: BTreeMap<u16, u32>,
}

impl ValueSources {
    /// The sources with this store and no rings, whose arenas take memory from the store's.
    pub(super) fn new(store: Store) -> Self {
        Self {
            rings: Rings::new(store.memory()),
            store,
            chains: BTreeMap::new(),
        }
    }

    /// Opens a ring and its chain of redo records, and returns the ring's number. `None` if every
    /// number is taken.
    pub(super) fn open(&mut self) -> Option<u16> {
        let number = self.rings.open()?;
        self.chains.insert(number, self.store.attach());
        Some(number)
    }

    /// Closes a ring and its chain of redo records. Returns the session that ended with it; `None`
    /// for a member of a parallel group, whose values are kept until its leader's statement ends.
    pub(super) fn close(&mut self, number: u16) -> Option<[u8; 16]> {
        if let Some(chain) = self.chains.remove(&number) {
            self.store.detach(chain);
        }
        self.rings.close(number)
    }

    /// The number under which the store chains the ring's redo records. `Fault::BadRequest` for an
    /// unknown ring.
    pub(super) fn chain(&self, ring: u16) -> Result<u32, Fault> {
        self.chains.get(&ring).copied().ok_or(Fault::BadRequest)
    }

    /// The key and the lineage that a column is bound to. `Fault::NoColumnKey` if it is bound to
    /// none.
    pub(super) fn binding_of(&self, place: ColumnAddress) -> Result<Binding, Fault> {
        self.store
            .binding(place.0, place.1)
            .ok_or(Fault::NoColumnKey)
    }

    /// Copies the value of the identifier `bits`, stored or of a statement, to `out`; returns its
    /// kind, its scope in the ring's arena and its column.
    ///
    /// # Errors
    /// [`Fault::ForgedFid`] for bits that are no identifier, or one of an arena outside the ring's
    /// group; [`Fault::StaleFid`] if the value no longer exists; [`Fault::NoColumnKey`] if its
    /// column is bound to no key; [`Fault::Recovering`] before the host's log is replayed; the
    /// store's faults of reading; the fault that the slot holds instead of a value.
    pub(super) fn load(&mut self, ring: u16, bits: u64, out: &mut Out) -> Result<Loaded, Fault> {
        let fid = Fid::from_bits(bits).ok_or(Fault::ForgedFid)?;
        if fid.is_ephemeral() {
            return self.load_ephemeral(ring, fid, out);
        }
        let held = self.store.get(fid)?;
        out.set(held.value);
        let (kind, place) = (held.kind, (fid.partition(), held.column));
        Ok(Loaded {
            kind,
            scope: self.scope_of(ring, place)?,
            place: Some(place),
        })
    }

    /// The scope of the values stored in a column. The ring keeps it for later values.
    /// `Fault::NoColumnKey` for a column that is bound to no key.
    #[inline]
    fn scope_of(&mut self, ring: u16, place: ColumnAddress) -> Result<ScopeId, Fault> {
        let bindings = self.store.bindings();
        if let Some(known) = self.rings.get(ring)?.columns.get(place, bindings) {
            return Ok(known);
        }
        let of = self.binding_of(place)?;
        let ring = self.rings.get_mut(ring)?;
        let scope = ring.arena.scopes.column(of)?;
        ring.columns.insert(place, scope, bindings);
        Ok(scope)
    }

    /// Copies a value of this ring, or of another one in its parallel group, to `out`; in the
    /// second case adds its scope to this ring's. `Fault::ForgedFid` for a ring outside the group
    /// or an empty slot, `Fault::StaleFid` for another statement, `Fault::KindMismatch` for an
    /// accumulator; the fault that the slot holds.
    fn load_ephemeral(&mut self, ring: u16, fid: Fid, out: &mut Out) -> Result<Loaded, Fault> {
        let other = fid.partition();
        let loaded = |kind, scope| Loaded {
            kind,
            scope,
            place: None,
        };
        if other == ring {
            let meta = self.rings.get(ring)?.arena.get(fid, out)?;
            return Ok(loaded(meta.kind, meta.scope));
        }
        if !self.rings.same_group(ring, other) {
            return Err(Fault::ForgedFid);
        }
        let theirs = &self.rings.get(other)?.arena;
        let meta = theirs.get(fid, out)?;
        let scope = theirs.scopes.get(meta.scope)?.clone();
        let scope = self.rings.get_mut(ring)?.arena.scopes.intern(scope)?;
        Ok(loaded(meta.kind, scope))
    }

    /// Copies the value of the identifier `bits`, which has to be of this kind, to `out`; returns
    /// its kind, its scope in the ring's arena and its column.
    ///
    /// # Errors
    /// [`Fault::KindMismatch`] for a value of another kind; otherwise as [`Self::load`], for
    /// example [`Fault::StaleFid`] if the value no longer exists, or the fault that the slot holds
    /// instead of a value.
    pub(super) fn load_of(
        &mut self,
        ring: u16,
        bits: u64,
        kind: Kind,
        out: &mut Out,
    ) -> Result<Loaded, Fault> {
        let loaded = self.load(ring, bits, out)?;
        if loaded.kind == kind {
            Ok(loaded)
        } else {
            Err(Fault::KindMismatch)
        }
    }

    /// Copies the values of identifiers, which have to be of this kind, into the rows of a vector;
    /// 0 stands for NULL. `faults` gets the rows whose value cannot be loaded, as by
    /// [`Self::load_of`]. Returns the first row that was left out, because the rows before it have
    /// so many bytes. `Fault::NoColumnKey` for a column that is bound to no key.
    pub(super) fn load_rows(
        &mut self,
        ring: u16,
        kind: Kind,
        fids: impl Iterator<Item = (usize, u64)>,
        vector: &mut Vector,
        faults: &mut Vec<(usize, Fault)>,
    ) -> Result<Option<usize>, Fault> {
        let mut stored = Vec::new();
        let mut left = None;
        let mut out = Out::new();
        for (row, bits) in fids.filter(|(_, bits)| *bits != 0) {
            if vector.is_full() {
                left = Some(row);
                break;
            }
            match Fid::from_bits(bits) {
                Some(fid) if !fid.is_ephemeral() => stored.push((row, fid)),
                _ => match self.load_of(ring, bits, kind, &mut out) {
                    Ok(loaded) if vector.set(row, out.value()) => {
                        vector.add_origin((loaded.scope, loaded.place));
                    }
                    Ok(_) => faults.push((row, Fault::StringTooLong)),
                    Err(fault) => faults.push((row, fault)),
                },
            }
        }
        let mut places: Vec<ColumnAddress> = Vec::new();
        let mut numbers = stored.iter();
        self.store.get_each(&stored, |row, found| {
            let partition = numbers.next().map_or(0, |(_, fid)| fid.partition());
            if vector.is_full() {
                left = Some(left.map_or(row, |left: usize| left.min(row)));
                return;
            }
            match found {
                Ok(held) if held.kind != kind => faults.push((row, Fault::KindMismatch)),
                Ok(held) => {
                    let place = (partition, held.column);
                    if places.last() != Some(&place) && !places.contains(&place) {
                        places.push(place);
                    }
                    if !vector.set(row, held.value) {
                        faults.push((row, Fault::StringTooLong));
                    }
                }
                Err(fault) => faults.push((row, fault)),
            }
        });
        for place in places {
            vector.add_origin((self.scope_of(ring, place)?, Some(place)));
        }
        Ok(left)
    }

    /// The scope, in the ring's arena, of a value that is computed from values of both scopes.
    /// `Fault::ForgedFid` if there is no such ring or scope, `Fault::ArenaFull` if there are too
    /// many scopes.
    pub(super) fn joined_scope(
        &mut self,
        ring: u16,
        a: ScopeId,
        b: ScopeId,
    ) -> Result<ScopeId, Fault> {
        self.rings.get_mut(ring)?.arena.scopes.join_cached(a, b)
    }

    /// Adds a loaded value to what the policy decides by: its column and origin to `common`, its
    /// keys to `scope`. If that changes them, the policy has to judge again. `Fault::ArenaFull` if
    /// there are too many scopes.
    pub(super) fn add_operand(
        &mut self,
        ring: u16,
        policy_input: &mut PolicyInput,
        loaded: &Loaded,
    ) -> Result<(), Fault> {
        self.add_origin(ring, policy_input, (loaded.scope, loaded.place))
    }

    /// Adds values of one origin to what the policy decides by, as [`Self::add_operand`] does.
    pub(super) fn add_origin(
        &mut self,
        ring: u16,
        policy_input: &mut PolicyInput,
        origin: Origin,
    ) -> Result<(), Fault> {
        if policy_input.last == Some(origin) {
            return Ok(());
        }
        policy_input.last = Some(origin);
        let (own, place) = origin;
        let of = self.rings.get(ring)?.arena.scopes.get(own)?;
        let common = policy_input.common.with(place, of);
        let before = policy_input.scope.unwrap_or(own);
        let scope = Some(self.joined_scope(ring, before, own)?);
        if (common, scope) != (policy_input.common, policy_input.scope) {
            (policy_input.common, policy_input.scope) = (common, scope);
            policy_input.judged = false;
        }
        Ok(())
    }
}

/// What the policy decides an operation by: what its values have in common, and the keys that they
/// were made from.
#[derive(Clone, Copy, Debug)]
pub(super) struct PolicyInput {
    pub(super) common: Common,
    pub(super) scope: Option<ScopeId>,
    /// The value that was added last: most often the next one is like it.
    last: Option<Origin>,
    /// Whether the policy has allowed an answer about what was added so far.
    pub(super) judged: bool,
    /// The most answers that the operation may give.
    pub(super) wanted: u64,
}

impl PolicyInput {
    /// An input without any value yet.
    pub(super) const fn new() -> Self {
        Self {
            common: Common::Nothing,
            scope: None,
            last: None,
            judged: false,
            wanted: 0,
        }
    }

    /// The scope of the value that was added last, as it is. `None` if none was.
    pub(super) fn last_scope(&self) -> Option<ScopeId> {
        self.last.map(|(scope, _)| scope)
    }

    /// The scope with the keys of all values that were added; of origin computed.
    ///
    /// # Errors
    /// [`Fault::BadRequest`] if no value was added.
    pub(super) fn scope(&self) -> Result<ScopeId, Fault> {
        self.scope.ok_or(Fault::BadRequest)
    }
}
