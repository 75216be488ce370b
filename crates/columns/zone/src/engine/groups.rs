//! The groups of an aggregation: found by their keys, in the order in which their first rows came.
//!
//! Invariant: keys and states are never moved but to memory whose former place is overwritten, and
//! are overwritten when they are dropped. Must not: give anything to the backend.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

use strongroom_columns_ring::Fault;
use strongroom_columns_ring::program::{Fold, Program, Sort, Step};
use strongroom_columns_values::{Accumulator, Buf, Out, Value, token_bytes};

/// The most groups of a program.
const GROUPS_MAX: usize = 1 << 24;
/// Bytes of a group without its keys and states: itself, and its places in the table.
const GROUP_SIZE: usize = size_of::<Group>() + 4 * size_of::<u32>();
/// Stands for an empty place of the table.
const EMPTY: u32 = u32::MAX;

/// What is computed of a group.
pub(super) enum GroupState {
    /// Number of rows.
    Count(u64),
    /// The different ones of numbers in clear.
    Distinct(HashSet<u64>),
    /// Of numbers in clear the sum, the least or the greatest so far. `None` before the first one.
    Number(Fold, Option<i64>),
    /// An aggregate of values.
    Total(Accumulator),
}

impl GroupState {
    /// Bytes of what it keeps beyond itself, about.
    fn size(&self) -> usize {
        match self {
            Self::Count(_) | Self::Number(..) => 0,
            Self::Distinct(numbers) => numbers.capacity() * 2 * size_of::<u64>(),
            Self::Total(total) => total.kept_bytes(),
        }
    }

    /// Adds a row: its value, or none if all rows count.
    ///
    /// # Errors
    /// Those of [`Accumulator::add`]; [`Fault::Int8OutOfRange`] if a sum of numbers overflows;
    /// [`Fault::BadRequest`] without a value that it needs, [`Fault::KindMismatch`] for bytes in
    /// the place of a number.
    #[inline]
    fn add(&mut self, value: Option<Value<'_>>) -> Result<(), Fault> {
        if let Self::Count(count) = self {
            *count = count.saturating_add(1);
            return Ok(());
        }
        let value = value.ok_or(Fault::BadRequest)?;
        match self {
            Self::Count(_) => {}
            Self::Distinct(numbers) => {
                numbers.insert(value.word()?);
            }
            Self::Number(fold, so_far) => {
                let number = value.int8()?;
                *so_far = Some(match (fold, *so_far) {
                    (_, None) => number,
                    (Fold::Least, Some(before)) => before.min(number),
                    (Fold::Greatest, Some(before)) => before.max(number),
                    (_, Some(before)) => before.checked_add(number).ok_or(Fault::Int8OutOfRange)?,
                });
            }
            Self::Total(total) => total.add(value, None)?,
        }
        Ok(())
    }
}

/// A key of a group, as its first row had it.
pub(super) enum KeyValue {
    /// The word of an input.
    Word(u64),
    /// A value that was computed.
    Computed(Out),
}

/// One group.
pub(super) struct Group {
    /// By key.
    pub(super) keys: Box<[KeyValue]>,
    /// By aggregate.
    pub(super) states: Box<[GroupState]>,
    hash: u64,
    /// Where the bytes that its keys are compared by are.
    from: usize,
    len: usize,
}

/// All groups of a program.
pub(super) struct Groups {
    hasher: RandomState,
    /// Numbers of groups, by their hashes; at least half are empty. Its length is a power of two.
    table: Vec<u32>,
    groups: Vec<Group>,
    /// The bytes that keys are compared by, of all groups.
    bytes: Buf,
    /// Those of the row that is looked up.
    wanted: Buf,
    /// Those of one of its keys.
    token: Buf,
    /// Bytes that the groups take, about.
    size: usize,
}

impl Groups {
    /// No groups; of an aggregation without keys the one that it always has. `Fault::BadRequest`
    /// for an aggregate that there is not.
    pub(super) fn new(program: &Program, sorts: &[Sort]) -> Result<Self, Fault> {
        let mut groups = Self {
            hasher: RandomState::new(),
            table: vec![EMPTY; 16],
            groups: Vec::new(),
            bytes: Buf::new(),
            wanted: Buf::new(),
            token: Buf::new(),
            size: 0,
        };
        if program.keys.is_empty() && !program.aggregates.is_empty() {
            groups.groups.push(Group {
                keys: Box::default(),
                states: new_states(program, sorts)?,
                hash: 0,
                from: 0,
                len: 0,
            });
        }
        Ok(groups)
    }

    /// Begins to look for the group of another row: no bytes of its keys are known yet.
    pub(super) fn begin_row(&mut self) {
        self.wanted.clear();
    }

    /// Appends the bytes that the next key of the row is compared by; `None` is NULL.
    ///
    /// # Errors
    /// [`Fault::KindMismatch`] if the value is not what the sort has.
    pub(super) fn append_key(&mut self, sort: Sort, value: Option<Value<'_>>) -> Result<(), Fault> {
        let Some(value) = value else {
            self.wanted.push(0);
            return Ok(());
        };
        self.wanted.push(1);
        match sort {
            Sort::Value(kind) => {
                self.token.clear();
                token_bytes(kind, value, &mut self.token)?;
                let token = self.token.as_slice();
                self.wanted.extend(&(token.len() as u64).to_le_bytes());
                self.wanted.extend(token);
            }
            Sort::Truth | Sort::Plain => self.wanted.extend(&value.word()?.to_le_bytes()),
        }
        Ok(())
    }

    /// Bytes that the groups take, about.
    pub(super) const fn size(&self) -> usize {
        self.size
    }

    /// Notes that the groups take so many bytes more.
    const fn grow_by(&mut self, bytes: usize) {
        self.size = self.size.saturating_add(bytes);
    }

    /// The aggregate at index `at` of a group.
    ///
    /// # Errors
    /// [`Fault::BadRequest`] if there is none.
    #[inline]
    fn state_mut(&mut self, number: usize, at: usize) -> Result<&mut GroupState, Fault> {
        let group = self.groups.get_mut(number).ok_or(Fault::BadRequest)?;
        group.states.get_mut(at).ok_or(Fault::BadRequest)
    }

    /// Adds a row's value, or a row if all count, to an aggregate of a group.
    ///
    /// # Errors
    /// Those of [`GroupState::add`], and [`Fault::BadRequest`] if there is no such aggregate.
    #[inline]
    pub(super) fn add(
        &mut self,
        number: usize,
        at: usize,
        value: Option<Value<'_>>,
    ) -> Result<(), Fault> {
        self.state_mut(number, at)?.add(value)
    }

    /// The same for an aggregate that may keep more bytes after it.
    ///
    /// # Errors
    /// Those of [`Self::add`].
    pub(super) fn add_and_measure(
        &mut self,
        number: usize,
        at: usize,
        value: Option<Value<'_>>,
    ) -> Result<(), Fault> {
        let state = self.state_mut(number, at)?;
        let before = state.size();
        let added = state.add(value);
        let more = state.size().saturating_sub(before);
        self.grow_by(more);
        added
    }

    /// The number of groups.
    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    /// The groups, in the order in which their first rows came.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter()
    }

    /// The index in the table of the group with the bytes `wanted`, or of the empty place where it
    /// belongs.
    fn place(&self, hash: u64) -> usize {
        let mask = self.table.len().wrapping_sub(1);
        let mut at = usize::try_from(hash).unwrap_or(usize::MAX) & mask;
        loop {
            let found = self.table.get(at).copied().unwrap_or(EMPTY);
            let group = usize::try_from(found)
                .ok()
                .and_then(|at| self.groups.get(at));
            let is_it = group.is_none_or(|group| {
                let bytes = self.bytes.as_slice();
                let known = bytes.get(group.from..group.from.saturating_add(group.len));
                group.hash == hash && known == Some(self.wanted.as_slice())
            });
            if is_it {
                return at;
            }
            at = at.wrapping_add(1) & mask;
        }
    }

    /// The number of the group of the row whose keys were appended. A new one has the keys and
    /// states that the functions return. `Fault::ArenaFull` above 2^24 groups; faults of `states`.
    pub(super) fn find(
        &mut self,
        keys: impl FnOnce() -> Box<[KeyValue]>,
        states: impl FnOnce() -> Result<Box<[GroupState]>, Fault>,
    ) -> Result<usize, Fault> {
        let hash = self.hasher.hash_one(self.wanted.as_slice());
        let place = self.place(hash);
        match self.table.get(place) {
            Some(&EMPTY) => {}
            Some(number) => return usize::try_from(*number).map_err(|_| Fault::ArenaFull),
            None => return Err(Fault::ArenaFull),
        }
        let number = self.groups.len();
        if number >= GROUPS_MAX {
            return Err(Fault::ArenaFull);
        }
        let states = states()?;
        let (from, len) = (self.bytes.as_slice().len(), self.wanted.as_slice().len());
        self.bytes.extend(self.wanted.as_slice());
        let keys = keys();
        // A key that is computed has about as many bytes as are compared.
        self.grow_by(GROUP_SIZE + 2 * len + size_of_val(&*keys) + size_of_val(&*states));
        self.groups.push(Group {
            keys,
            states,
            hash,
            from,
            len,
        });
        if let Some(place) = self.table.get_mut(place) {
            *place = u32::try_from(number).map_err(|_| Fault::ArenaFull)?;
        }
        if self.groups.len().saturating_mul(2) > self.table.len() {
            self.grow();
        }
        Ok(number)
    }

    /// Doubles the table.
    fn grow(&mut self) {
        let mut table = vec![EMPTY; self.table.len().saturating_mul(2)];
        let mask = table.len().wrapping_sub(1);
        for (group, number) in self.groups.iter().zip(0_u32..) {
            let mut at = usize::try_from(group.hash).unwrap_or(usize::MAX) & mask;
            while table.get(at).is_some_and(|taken| *taken != EMPTY) {
                at = at.wrapping_add(1) & mask;
            }
            if let Some(place) = table.get_mut(at) {
                *place = number;
            }
        }
        self.table = table;
    }
}

/// The states of a new group. `Fault::BadRequest` for an aggregate that there is not.
pub(super) fn new_states(program: &Program, sorts: &[Sort]) -> Result<Box<[GroupState]>, Fault> {
    let state = |step: &Step| {
        let aggregate = match step.fold {
            Fold::Count => return Ok(GroupState::Count(0)),
            Fold::CountDistinct => return Ok(GroupState::Distinct(HashSet::new())),
            Fold::Sum | Fold::Least | Fold::Greatest => {
                return Ok(GroupState::Number(step.fold, None));
            }
            Fold::Of(aggregate) => aggregate,
        };
        let of = step.of.and_then(|of| sorts.get(usize::from(of)));
        match of {
            Some(Sort::Value(kind)) => Accumulator::new(aggregate, *kind)
                .map(GroupState::Total)
                .ok_or(Fault::BadRequest),
            _ => Err(Fault::BadRequest),
        }
    };
    program.aggregates.iter().map(state).collect()
}
