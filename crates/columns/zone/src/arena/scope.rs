//! Which column keys a value was made from: sets of key ids, interned per arena.
//!
//! Must not: decide what a scope allows.

use std::collections::BTreeMap;

use strongroom_columns_ring::Fault;
use strongroom_format::columns::{Lineage, Sealer};

use crate::session::KeyId;
use crate::store::Binding;

/// The keys that a value depends on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Scope {
    /// Ids, ascending. At least one.
    keys: Vec<KeyId>,
    origin: Origin,
    lineage: Lineage,
}

/// How a value came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// It is a stored value of a column.
    Column,
    /// It came in an envelope that a zone has sealed, such as a dump's.
    Envelope,
    /// It came in an envelope that the data owner's client has sealed: a constant or a parameter.
    Constant,
    /// It was computed.
    Computed,
}

impl Scope {
    /// The scope of a stored value of a column.
    pub(crate) fn column(of: Binding) -> Self {
        Self {
            keys: vec![of.key],
            origin: Origin::Column,
            lineage: of.lineage,
        }
    }

    /// The scope of a value that came in an envelope under this key, of this lineage.
    pub(crate) fn envelope(of: Binding, sealer: Sealer) -> Self {
        let origin = match sealer {
            Sealer::Client => Origin::Constant,
            // No result of a session is opened as an operand.
            Sealer::Zone | Sealer::Session => Origin::Envelope,
        };
        Self {
            keys: vec![of.key],
            origin,
            lineage: of.lineage,
        }
    }

    /// The ids of the column keys that the value was made from, ascending; at least one.
    pub(crate) fn keys(&self) -> &[KeyId] {
        &self.keys
    }

    /// The key, when there is exactly one.
    pub(crate) fn only_key(&self) -> Option<KeyId> {
        match self.keys.as_slice() {
            [key] => Some(*key),
            _ => None,
        }
    }

    /// How the value came to be.
    pub(crate) const fn origin(&self) -> Origin {
        self.origin
    }

    /// The column that the value belongs to, or that a constant is for; [`Lineage::RESULT`] for a
    /// computed value.
    pub(crate) const fn lineage(&self) -> Lineage {
        self.lineage
    }
}

/// Number of a scope in its arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ScopeId(u16);

impl ScopeId {
    /// The number, for a slot of the arena.
    pub(crate) const fn number(self) -> u16 {
        self.0
    }

    /// The scope id of this number; whether there is such a scope is checked by [`Scopes::get`].
    pub(crate) const fn of(number: u16) -> Self {
        Self(number)
    }
}

/// The scopes of one arena.
#[derive(Default)]
pub(crate) struct Scopes {
    scopes: Vec<Scope>,
    numbers: BTreeMap<Scope, ScopeId>,
    joined: BTreeMap<(ScopeId, ScopeId), ScopeId>,
    /// The last answer, because most often the next question is the same.
    last_column: Option<(Binding, ScopeId)>,
    last_joined: [Option<(ScopeId, ScopeId, ScopeId)>; JOINS_CACHED],
}

/// The most joins that are kept: enough for the expressions of one query, mostly.
const JOINS_CACHED: usize = 16;

impl Scopes {
    /// No scopes yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The scope of this number.
    ///
    /// # Errors
    /// [`Fault::ForgedFid`] when there is none: a number from another arena.
    pub(crate) fn get(&self, id: ScopeId) -> Result<&Scope, Fault> {
        self.scopes.get(usize::from(id.0)).ok_or(Fault::ForgedFid)
    }

    /// The number of a scope, which is added if it is not there yet.
    ///
    /// # Errors
    /// [`Fault::ArenaFull`] if there are 65536 different ones already.
    pub(crate) fn intern(&mut self, scope: Scope) -> Result<ScopeId, Fault> {
        if let Some(id) = self.numbers.get(&scope) {
            return Ok(*id);
        }
        let number = u16::try_from(self.scopes.len()).map_err(|_| Fault::ArenaFull)?;
        self.scopes.push(scope.clone());
        self.numbers.insert(scope, ScopeId(number));
        Ok(ScopeId(number))
    }

    /// The number of the scope of values stored in this column, which is added if it is new.
    ///
    /// # Errors
    /// [`Fault::ArenaFull`] if there are 65536 different scopes already.
    #[inline]
    pub(crate) fn column(&mut self, of: Binding) -> Result<ScopeId, Fault> {
        if let Some((last, id)) = self.last_column
            && last == of
        {
            return Ok(id);
        }
        let id = self.intern(Scope::column(of))?;
        self.last_column = Some((of, id));
        Ok(id)
    }

    /// The number of the scope of a value that is computed from values of these two scopes: the
    /// keys of both, origin computed. Adds it if it is new. Looks into a small cache before
    /// [`Self::join`].
    ///
    /// # Errors
    /// [`Fault::ForgedFid`] for a number that is no scope's, [`Fault::ArenaFull`] if there are
    /// 65536 different scopes already.
    pub(crate) fn join_cached(&mut self, a: ScopeId, b: ScopeId) -> Result<ScopeId, Fault> {
        let at = usize::from(a.0 ^ b.0.rotate_left(2)) % JOINS_CACHED;
        if let Some(Some((one, other, id))) = self.last_joined.get(at)
            && (*one, *other) == (a, b)
        {
            return Ok(*id);
        }
        let id = self.join(a, b)?;
        if let Some(last) = self.last_joined.get_mut(at) {
            *last = Some((a, b, id));
        }
        Ok(id)
    }

    /// The number of the scope that has the keys of both, is computed, and belongs to no column.
    /// Added if it is new; remembered for each pair. `Fault::ForgedFid` for a number that is no
    /// scope's, `Fault::ArenaFull` if there are 65536 different scopes already.
    fn join(&mut self, a: ScopeId, b: ScopeId) -> Result<ScopeId, Fault> {
        let pair = (a.min(b), a.max(b));
        if let Some(id) = self.joined.get(&pair) {
            return Ok(*id);
        }
        let mut keys = self.get(a)?.keys.clone();
        keys.extend_from_slice(&self.get(b)?.keys);
        keys.sort_unstable();
        keys.dedup();
        let id = self.intern(Scope {
            keys,
            origin: Origin::Computed,
            lineage: Lineage::RESULT,
        })?;
        self.joined.insert(pair, id);
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(key: u8) -> Binding {
        Binding {
            key: [key; 16],
            lineage: Lineage::of(8),
        }
    }

    #[test]
    fn what_is_computed_has_the_keys_of_both() {
        let mut scopes = Scopes::new();
        let a = scopes.intern(Scope::column(of(1))).unwrap();
        let b = scopes
            .intern(Scope::envelope(of(2), Sealer::Client))
            .unwrap();
        assert_eq!(scopes.intern(Scope::column(of(1))), Ok(a));
        assert_ne!(scopes.intern(Scope::envelope(of(1), Sealer::Client)), Ok(a));
        let both = scopes.join_cached(b, a).unwrap();
        assert_eq!(scopes.join_cached(a, b), Ok(both));
        assert_eq!(scopes.get(both).unwrap().keys(), [[1; 16], [2; 16]]);
        assert_eq!(scopes.get(both).unwrap().origin(), Origin::Computed);
        assert_eq!(scopes.get(both).unwrap().lineage(), Lineage::RESULT);
        assert_eq!(scopes.get(both).unwrap().only_key(), None);
        let same = scopes.join_cached(a, a).unwrap();
        assert_eq!(scopes.get(same).unwrap().only_key(), Some([1; 16]));
        assert_eq!(scopes.join_cached(both, same), Ok(both));
        assert_eq!(scopes.get(ScopeId::of(99)).err(), Some(Fault::ForgedFid));
    }
}
