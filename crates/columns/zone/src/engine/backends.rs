//! The state of each backend: its arena, its session, its time zone, its parallel group.
//!
//! An arena that is in a parallel group outlives its backend until the group's leader ends its
//! statement: the results of a worker are read after the worker has ended. Must not: resolve
//! identifiers.

use std::collections::BTreeMap;
use std::sync::Arc;

use strongroom_columns_ring::Fault;
use strongroom_columns_values::Settings;
use strongroom_crypto::MacKey;

use super::running::Programs;
use crate::arena::{Arena, ScopeId};
use crate::policy::ColumnAddress;
use crate::store::memory::Memory;

/// Numbers of arenas: 1 to this.
const ARENAS: u16 = 32_767;

/// One backend.
pub(super) struct Ring {
    pub(super) arena: Arena,
    pub(super) settings: Settings,
    /// The session of the data owner's client, this ring's own or its leader's. Changed by
    /// [`Self::set_session`] alone.
    session: Option<[u8; 16]>,
    pub(super) group: Group,
    /// The first fault that was not reported yet (R2).
    pub(super) fault: Option<Fault>,
    /// Something was computed since a call last showed whether a computation has failed (A4).
    pub(super) fallible: bool,
    /// The keys of what was computed since then. `None` if that is nothing, or not known.
    pub(super) computed_from: Option<ScopeId>,
    /// A computation of this statement has failed: questions about its values show which.
    pub(super) failed: bool,
    /// How many computations of this statement were asked for.
    pub(super) attempts: u64,
    /// Of the other rings of the group: how many computations each had been asked for when this
    /// ring was last charged for knowing whether they have failed (A4).
    known: BTreeMap<u16, u64>,
    /// The group was dissolved while this ring still had values of its statement, whose session is
    /// gone: nothing is told of them.
    pub(super) is_orphan: bool,
    /// Third argument of the next operation.
    pub(super) third_argument: Option<u64>,
    pub(super) granted: GrantCache,
    pub(super) columns: ColumnScopes,
    /// Computations asked for that the ledger has not counted yet.
    pub(super) computed: u64,
    token: Option<MacKey>,
    pub(super) programs: Programs,
    open: bool,
}

/// Rights and scopes that the session has granted in this statement, and how often each grant may
/// still be used.
#[derive(Default)]
pub(super) struct GrantCache {
    answers: [Option<(u32, ScopeId, u16)>; GRANTS_MAX],
    next: usize,
}

/// The most grants that are kept: enough for the expressions of one query, mostly.
const GRANTS_MAX: usize = 8;

impl GrantCache {
    /// Uses up one use of the grant of exactly these rights on this scope. False if there is none,
    /// or it is used up.
    pub(super) fn take(&mut self, rights: u32, scope: ScopeId) -> bool {
        let known = |one: &&mut (u32, ScopeId, u16)| one.0 == rights && one.1 == scope;
        let found = self.answers.iter_mut().flatten().find(known);
        found.is_some_and(|(_, _, left)| {
            let holds = *left > 0;
            *left = left.saturating_sub(1);
            holds
        })
    }

    /// Keeps a grant that may be used `times` times. It replaces the one of the same rights and
    /// scope, or, if all places are taken, another one.
    pub(super) fn insert(&mut self, rights: u32, scope: ScopeId, times: u16) {
        let known = |one: &Option<(u32, ScopeId, u16)>| {
            one.is_none_or(|one| one.0 == rights && one.1 == scope)
        };
        let at = self.answers.iter().position(known).unwrap_or_else(|| {
            self.next = (self.next + 1) % GRANTS_MAX;
            self.next
        });
        if let Some(answer) = self.answers.get_mut(at) {
            *answer = Some((rights, scope, times));
        }
    }
}

/// Scopes of columns whose values were read in this statement.
#[derive(Default)]
pub(super) struct ColumnScopes {
    known: [Option<(ColumnAddress, ScopeId)>; COLUMNS],
    /// State of the store's bindings ([`crate::store::Store::bindings`]) when they were looked up.
    bindings: u64,
}

/// The most columns that are kept. A power of two.
const COLUMNS: usize = 16;

impl ColumnScopes {
    /// The index in the cache at which a column is kept; columns may share one.
    fn at(place: ColumnAddress) -> usize {
        usize::from(place.0.wrapping_mul(5) ^ place.1) % COLUMNS
    }

    /// The scope of a column, if it is in the cache. `None` if another column took its place, or
    /// any column was bound since (`bindings` is the present state of the store's bindings).
    #[inline]
    pub(super) fn get(&self, place: ColumnAddress, bindings: u64) -> Option<ScopeId> {
        let (known, scope) = (*self.known.get(Self::at(place))?)?;
        (known == place && self.bindings == bindings).then_some(scope)
    }

    /// Keeps the scope of a column. If the bindings have changed since the last call, forgets all
    /// others.
    pub(super) fn insert(&mut self, place: ColumnAddress, scope: ScopeId, bindings: u64) {
        if self.bindings != bindings {
            *self = Self {
                bindings,
                ..Self::default()
            };
        }
        if let Some(known) = self.known.get_mut(Self::at(place)) {
            *known = Some((place, scope));
        }
    }
}

/// The role of a backend in a parallel group.
#[derive(Default)]
pub(super) enum Group {
    /// None.
    #[default]
    Alone,
    /// It leads one: the secret that a member has to know, and the members.
    Leader(u64, Vec<u16>),
    /// It follows this arena. When it has ended its statement: number and first slot of its next
    /// one, which begins when the leader's statement ends.
    Member(u16, Option<(u8, u64)>),
}

impl Ring {
    /// An open ring without session or group, whose arena has this number.
    fn new(number: u16, memory: &Arc<Memory>) -> Self {
        Self {
            arena: Arena::new(number, memory),
            settings: Settings::utc(),
            session: None,
            group: Group::Alone,
            fault: None,
            fallible: false,
            computed_from: None,
            failed: false,
            attempts: 0,
            known: BTreeMap::new(),
            is_orphan: false,
            third_argument: None,
            granted: GrantCache::default(),
            columns: ColumnScopes::default(),
            computed: 0,
            token: None,
            programs: Programs::default(),
            open: true,
        }
    }

    /// The session of the data owner's client, this ring's own or its leader's.
    pub(super) const fn session(&self) -> Option<[u8; 16]> {
        self.session
    }

    /// Gives the ring another session, or none. What a statement has for one session is not
    /// another's: grants, and the token key and programs' groups, by which the next session's
    /// values could be compared with those of this one. Nothing if it is the ring's session
    /// already.
    pub(super) fn set_session(&mut self, session: Option<[u8; 16]>) {
        if self.session != session {
            self.session = session;
            self.token = None;
            self.granted = GrantCache::default();
            self.programs.clear();
        }
    }

    /// Notes that something is computed from values of this scope. `Fault::ArenaFull` if there are
    /// too many scopes.
    pub(super) fn note_computed_from(&mut self, scope: ScopeId) -> Result<(), Fault> {
        self.computed_from = match self.computed_from {
            Some(before) if before != scope => Some(self.arena.scopes.join_cached(before, scope)?),
            _ => Some(scope),
        };
        Ok(())
    }

    /// Forgets what is valid for one statement only: values, which are wiped, the token key,
    /// grants, faults, a pending argument. Literals, session, settings and group remain.
    /// `statement` and `base` are the next one's number and first slot.
    fn end_statement(&mut self, statement: u8, base: u64) {
        self.arena.end_statement(statement, base);
        self.token = None;
        self.granted = GrantCache::default();
        self.fault = None;
        self.fallible = false;
        self.computed_from = None;
        self.failed = false;
        self.attempts = 0;
        self.known.clear();
        self.is_orphan = false;
        self.third_argument = None;
        self.programs.clear();
    }
}

/// Every backend, by the number of its arena.
pub(super) struct Rings {
    rings: Vec<Option<Box<Ring>>>,
    last: u16,
    memory: Arc<Memory>,
}

impl Rings {
    /// No rings. Their arenas take memory from `memory`.
    pub(super) fn new(memory: &Arc<Memory>) -> Self {
        Self {
            rings: Vec::new(),
            last: 0,
            memory: Arc::clone(memory),
        }
    }

    /// Adds a ring, under the number that has been free for longest, and returns this number.
    /// `None` if no number is free.
    pub(super) fn open(&mut self) -> Option<u16> {
        let mut number = self.last;
        for _ in 0..ARENAS {
            number = number % ARENAS + 1;
            let at = usize::from(number);
            if self.rings.len() <= at {
                self.rings.resize_with(at + 1, || None);
            }
            let place = self.rings.get_mut(at)?;
            if place.is_none() {
                *place = Some(Box::new(Ring::new(number, &self.memory)));
                self.last = number;
                return Some(number);
            }
        }
        None
    }

    /// Removes a ring whose backend has gone, and dissolves the group that it leads. Returns the
    /// session that ended with it. A member of a group is kept, without session, until its leader's
    /// statement ends, because its results may still be read; then `None`.
    pub(super) fn close(&mut self, number: u16) -> Option<[u8; 16]> {
        self.dissolve_group(number);
        let ring = self.get_mut(number).ok()?;
        ring.open = false;
        if matches!(ring.group, Group::Member(..)) {
            ring.set_session(None);
            return None;
        }
        let session = ring.session;
        if let Some(place) = self.rings.get_mut(usize::from(number)) {
            *place = None;
        }
        session
    }

    /// The ring with this number, perhaps a closed one whose values its group still needs.
    /// `Fault::ForgedFid` if there is none.
    #[inline]
    pub(super) fn get(&self, number: u16) -> Result<&Ring, Fault> {
        let ring = self
            .rings
            .get(usize::from(number))
            .and_then(Option::as_deref);
        ring.ok_or(Fault::ForgedFid)
    }

    /// The ring with this number, to be changed; perhaps a closed one whose values its group still
    /// needs. `Fault::ForgedFid` if there is none.
    #[inline]
    pub(super) fn get_mut(&mut self, number: u16) -> Result<&mut Ring, Fault> {
        let ring = self
            .rings
            .get_mut(usize::from(number))
            .and_then(Option::as_deref_mut);
        ring.ok_or(Fault::ForgedFid)
    }

    /// All rings. Those whose backends have gone are among them while their parallel group needs
    /// their values.
    pub(super) fn all(&self) -> impl Iterator<Item = &Ring> {
        self.rings.iter().filter_map(Option::as_deref)
    }

    /// As [`Self::all`], for changing them.
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Ring> {
        self.rings.iter_mut().filter_map(Option::as_deref_mut)
    }

    /// Whether `reader` may read the arena of `other`: it is the same, or in the same parallel
    /// group.
    pub(super) fn same_group(&self, reader: u16, other: u16) -> bool {
        let head = |number: u16| match self.get(number).map(|ring| &ring.group) {
            Ok(Group::Member(leader, _)) => Some(*leader),
            Ok(Group::Leader(..)) => Some(number),
            _ => None,
        };
        reader == other || head(reader).is_some_and(|leader| head(other) == Some(leader))
    }

    /// Makes the ring the leader of a group whose secret is `fresh`, and returns the group's
    /// secret; that of the existing group if it leads one. `Fault::BadRequest` if it is a member of
    /// a group, `Fault::ForgedFid` if there is no such ring.
    pub(super) fn lead(&mut self, number: u16, fresh: u64) -> Result<u64, Fault> {
        let ring = self.get_mut(number)?;
        match ring.group {
            Group::Leader(secret, _) => Ok(secret),
            Group::Member(..) => Err(Fault::BadRequest),
            Group::Alone => {
                ring.group = Group::Leader(fresh, Vec::new());
                Ok(fresh)
            }
        }
    }

    /// Makes the ring a member of the group that `leader` leads; it uses the leader's session in
    /// place of its own. `Fault::BadRequest` if it leads or is in a group already,
    /// `Fault::NotAllowed` if there is no such leader, its backend has gone, or the secret is
    /// wrong; `Fault::ForgedFid` if there is no ring `number`.
    pub(super) fn join(&mut self, number: u16, leader: u16, secret: u64) -> Result<(), Fault> {
        if !matches!(self.get(number)?.group, Group::Alone) {
            return Err(Fault::BadRequest);
        }
        let head = self.get_mut(leader).map_err(|_| Fault::NotAllowed)?;
        let session = head.session;
        match &mut head.group {
            Group::Leader(known, members) if *known == secret && head.open => members.push(number),
            _ => return Err(Fault::NotAllowed),
        }
        let ring = self.get_mut(number)?;
        ring.group = Group::Member(leader, None);
        ring.set_session(session);
        Ok(())
    }

    /// Ends a ring's statement, and dissolves the group that it leads. A member's values remain
    /// until its leader's statement ends. `Fault::ForgedFid` if there is no such ring.
    pub(super) fn end_statement(
        &mut self,
        number: u16,
        statement: u8,
        base: u64,
    ) -> Result<(), Fault> {
        self.dissolve_group(number);
        let ring = self.get_mut(number)?;
        if let Group::Member(_, ended) = &mut ring.group {
            *ended = Some((statement, base));
            ring.fault = None;
            return Ok(());
        }
        ring.end_statement(statement, base);
        Ok(())
    }

    /// Dissolves the group that the ring leads, if any: members without a backend are removed; of
    /// the others, the statements that have ended are wiped, and the leader's session is taken
    /// away.
    fn dissolve_group(&mut self, number: u16) {
        let Ok(ring) = self.get_mut(number) else {
            return;
        };
        if !matches!(ring.group, Group::Leader(..)) {
            return;
        }
        let Group::Leader(_, members) = core::mem::take(&mut ring.group) else {
            return;
        };
        for member in members {
            let Some(place) = self.rings.get_mut(usize::from(member)) else {
                continue;
            };
            let Some(ring) = place.as_deref_mut() else {
                continue;
            };
            if !ring.open {
                *place = None;
                continue;
            }
            match core::mem::take(&mut ring.group) {
                Group::Member(_, Some((statement, base))) => ring.end_statement(statement, base),
                _ => ring.is_orphan = ring.attempts > 0,
            }
            ring.set_session(None);
        }
    }

    /// The other rings of the ring's parallel group of whose computations it may learn now whether
    /// they have failed, without having been charged for that: those that have been asked for some
    /// since it was charged last, and those in which one has failed. Mostly none.
    pub(super) fn unknown_outcomes(&self, number: u16) -> Vec<u16> {
        let Ok(ring) = self.get(number) else {
            return Vec::new();
        };
        let leader = match ring.group {
            Group::Alone => return Vec::new(),
            Group::Leader(..) => number,
            Group::Member(leader, _) => leader,
        };
        let Ok(Group::Leader(_, members)) = self.get(leader).map(|ring| &ring.group) else {
            return Vec::new();
        };
        let all = std::iter::once(leader).chain(members.iter().copied());
        let is_unknown = |other: &u16| {
            let known = ring.known.get(other).copied().unwrap_or(0);
            let of = self.get(*other);
            of.is_ok_and(|of| of.attempts > 0 && (of.failed || of.attempts != known))
        };
        all.filter(|other| *other != number)
            .filter(is_unknown)
            .collect()
    }

    /// Notes that the ring was charged for knowing whether the computations of another one have
    /// failed, as far as they have been asked for.
    pub(super) fn note_outcome(&mut self, number: u16, other: u16) {
        let attempts = self.get(other).map_or(0, |other| other.attempts);
        if let Ok(ring) = self.get_mut(number) {
            ring.known.insert(other, attempts);
        }
    }

    /// The key of the equality tokens of this ring, or of its group, in the running statement and
    /// the present session (X6); drawn at the first call. `Fault::OutOfMemory` if none can be
    /// drawn, `Fault::ForgedFid` if there is no such ring.
    pub(super) fn token_key(&mut self, number: u16) -> Result<&MacKey, Fault> {
        let number = match self.get(number)?.group {
            Group::Member(leader, _) => leader,
            _ => number,
        };
        let ring = self.get_mut(number)?;
        if ring.token.is_none() {
            let key = strongroom_crypto::SecretKey::generate().map_err(|_| Fault::OutOfMemory)?;
            ring.token = Some(MacKey::new(&key).map_err(|_| Fault::OutOfMemory)?);
        }
        ring.token.as_ref().ok_or(Fault::OutOfMemory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rings() -> Rings {
        Rings::new(&Memory::new(false))
    }

    #[test]
    fn numbers_are_used_again_as_late_as_possible() {
        let mut rings = rings();
        assert_eq!((rings.open(), rings.open()), (Some(1), Some(2)));
        rings.close(1);
        assert_eq!(rings.open(), Some(3));
        rings.last = ARENAS;
        assert_eq!(rings.open(), Some(1));
        assert_eq!(rings.open(), Some(4), "2 and 3 are taken");
        for _ in 0..u32::from(ARENAS) - 4 {
            assert!(rings.open().is_some());
        }
        assert_eq!(rings.open(), None);
    }

    #[test]
    fn what_is_at_hand_is_of_the_same_question() {
        let scope = |number| ScopeId::of(number);
        let mut granted = GrantCache::default();
        granted.insert(1, scope(1), 2);
        assert!(granted.take(1, scope(1)) && granted.take(1, scope(1)));
        assert!(!granted.take(1, scope(1)), "used up");
        assert!(!granted.take(2, scope(1)) && !granted.take(1, scope(2)));
        for number in 0..100 {
            granted.insert(1, scope(number), 9);
            assert!(granted.take(1, scope(number)));
        }
        let mut columns = ColumnScopes::default();
        columns.insert((1, 2), scope(7), 5);
        assert_eq!(columns.get((1, 2), 5), Some(scope(7)));
        assert_eq!(
            columns.get((1, 2), 6),
            None,
            "something was bound or dropped"
        );
        assert_eq!(columns.get((2, 2), 5), None);
        columns.insert((3, 3), scope(8), 6);
        assert_eq!(columns.get((1, 2), 6), None);
    }

    #[test]
    fn a_worker_s_arena_stays_until_its_leader_s_statement_ends() {
        let mut rings = rings();
        let [leader, worker, stranger] = [(); 3].map(|()| rings.open().unwrap());
        assert_eq!(
            rings.join(worker, leader, 7),
            Err(Fault::NotAllowed),
            "leads nothing"
        );
        let secret = rings.lead(leader, 7).unwrap();
        assert_eq!(rings.lead(leader, 8), Ok(secret));
        assert_eq!(rings.join(worker, leader, 8), Err(Fault::NotAllowed));
        rings.join(worker, leader, secret).unwrap();
        assert!(rings.same_group(leader, worker) && rings.same_group(worker, leader));
        assert!(!rings.same_group(leader, stranger) && !rings.same_group(stranger, worker));
        assert_eq!(rings.lead(worker, 9), Err(Fault::BadRequest));
        assert_eq!(rings.join(worker, leader, secret), Err(Fault::BadRequest));
        rings.end_statement(worker, 1, 10).unwrap();
        rings.close(worker);
        assert!(
            rings.same_group(leader, worker),
            "read after the worker's end"
        );
        rings.end_statement(leader, 1, 10).unwrap();
        assert!(rings.get(worker).is_err());
        assert!(!rings.same_group(leader, worker));
        assert_eq!(
            rings.join(stranger, leader, secret),
            Err(Fault::NotAllowed),
            "an old secret"
        );
    }

    #[test]
    fn members_that_live_are_let_go() {
        let mut rings = rings();
        let [leader, worker] = [(); 2].map(|()| rings.open().unwrap());
        let secret = rings.lead(leader, 7).unwrap();
        rings.get_mut(leader).unwrap().set_session(Some([4; 16]));
        rings.join(worker, leader, secret).unwrap();
        assert_eq!(rings.get(worker).unwrap().session, Some([4; 16]));
        assert_eq!(rings.close(leader), Some([4; 16]));
        assert_eq!(
            rings.get(worker).unwrap().session,
            None,
            "the leader's right goes with it"
        );
        assert!(matches!(rings.get(worker).unwrap().group, Group::Alone));
    }
}
