//! The groups of an aggregation: found by their keys, in the order in which their first rows came.
//!
//! Invariant: keys and states are never moved but to memory whose former place is overwritten, and
//! are overwritten when they are dropped. Must not: give anything to the backend.

use std::hash::{BuildHasher as _, RandomState};

use strongroom_columns_ring::Fault;
use strongroom_columns_ring::program::{Program, Register, Sort, Step};
use strongroom_columns_values::{Accumulator, Buf, Out, token_bytes};
use strongroom_format::columns::channel::right;

use super::Running;
use super::chunk::Chunk;
use crate::engine::Zone;
use crate::engine::compute::with_ledger;
use crate::policy::Truth;

/// The most groups of a program.
const GROUPS_MAX: usize = 1 << 24;
/// Stands for an empty place of the table.
const EMPTY: u32 = u32::MAX;

/// What is computed of a group.
pub(super) enum GroupState {
    /// Number of rows.
    Count(u64),
    /// An aggregate.
    Total(Accumulator),
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

    /// Appends the bytes that a key of a row is compared by to `wanted`.
    fn append_key(
        &mut self,
        chunk: &Chunk<'_>,
        key: Register,
        sort: Sort,
        row: usize,
    ) -> Result<(), Fault> {
        let Some(value) = chunk.vector(key)?.get(row) else {
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

    /// The number of the group with the bytes `wanted`. A new one has the keys and states that the
    /// functions return. `Fault::ArenaFull` above 2^24 groups; faults of `states`.
    fn find(
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
        self.groups.push(Group {
            keys: keys(),
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

impl Zone {
    /// Adds the rows that are left of a chunk to the program's groups. Each key of each row is
    /// charged as its token would be. Faults of the policy, and of the first row whose value cannot
    /// be added.
    pub(super) fn add_to_groups(
        &mut self,
        ring: u16,
        running: &mut Running,
        chunk: &mut Chunk<'_>,
    ) -> Result<(), Fault> {
        let program = &running.program;
        let steps = program.aggregates.iter();
        let registers = steps.flat_map(|step| [step.of, step.filter]).flatten();
        for register in registers.chain(program.keys.iter().copied()) {
            self.fill_input(ring, &running.sorts, chunk, register)?;
        }
        if let Some((_, fault)) = chunk.first_fault() {
            // A value that cannot be loaded: the rows are not added.
            return Err(fault);
        }
        self.judge_keys(ring, running, chunk)?;
        self.judge_values(ring, running, chunk)?;
        let rows: Vec<usize> = chunk.all_rows().to_vec();
        for row in rows {
            add_row(running, chunk, row)?;
        }
        Ok(())
    }

    /// Judges the values that the rows are grouped by, and charges them as tokens.
    fn judge_keys(
        &mut self,
        ring: u16,
        running: &mut Running,
        chunk: &Chunk<'_>,
    ) -> Result<(), Fault> {
        let keys = running.program.keys.iter().zip(&mut running.key_scopes);
        for (key, key_scope) in keys {
            let Some(Sort::Value(_)) = running.sorts.get(usize::from(*key)) else {
                continue;
            };
            let vector = chunk.vector(*key)?;
            let present = |row: &&usize| vector.get(**row).is_some();
            let count = chunk.all_rows().iter().filter(present).count();
            if count == 0 {
                continue;
            }
            let mut input = self.input_of(ring, [vector])?;
            self.judge_rows(ring, Truth::Token, &mut input, count)?;
            let scope = input.scope()?;
            *key_scope = Some(match *key_scope {
                Some(before) => self.sources.joined_scope(ring, before, scope)?,
                None => scope,
            });
            self.computed.add(count as u64);
            self.charge(ring, count as u64, &input)?;
            let state = self.sources.rings.get(ring).ok();
            with_ledger(&mut self.channel, state, |ledger| {
                ledger.count_tokens(count as u64);
            });
        }
        Ok(())
    }

    /// Asks whether the session allows aggregates of the values of a chunk.
    fn judge_values(
        &mut self,
        ring: u16,
        running: &mut Running,
        chunk: &Chunk<'_>,
    ) -> Result<(), Fault> {
        let steps = running.program.aggregates.iter().zip(&mut running.scopes);
        for (step, total) in steps {
            let (Some(_), Some(of)) = (step.aggregate, step.of) else {
                continue;
            };
            let vector = chunk.vector(of)?;
            let input = self.input_of(ring, [vector])?;
            let Some(scope) = input.scope else {
                continue;
            };
            let rights = right::AGGREGATE | input.common.extra_rights();
            self.permit(ring, rights, scope)?;
            self.computed.add(chunk.all_rows().len() as u64);
            let state = self.sources.rings.get_mut(ring)?;
            state.note_computed_from(scope)?;
            state.fallible = true;
            *total = Some(match *total {
                Some(before) => self.sources.joined_scope(ring, before, scope)?,
                None => scope,
            });
        }
        Ok(())
    }
}

/// Adds a row to its group.
fn add_row(running: &mut Running, chunk: &Chunk<'_>, row: usize) -> Result<(), Fault> {
    let Running {
        program,
        sorts,
        groups,
        ..
    } = running;
    let number = if program.keys.is_empty() {
        0
    } else {
        groups.wanted.clear();
        for key in &program.keys {
            let sort = sorts.get(usize::from(*key)).ok_or(Fault::BadRequest)?;
            groups.append_key(chunk, *key, *sort, row)?;
        }
        groups.find(
            || first_keys(program, chunk, row),
            || new_states(program, sorts),
        )?
    };
    let group = groups.groups.get_mut(number).ok_or(Fault::BadRequest)?;
    for (step, state) in program.aggregates.iter().zip(&mut group.states) {
        add_value(chunk, *step, row, state)?;
    }
    Ok(())
}

/// Adds a row to one aggregate of its group.
fn add_value(
    chunk: &Chunk<'_>,
    step: Step,
    row: usize,
    state: &mut GroupState,
) -> Result<(), Fault> {
    if let Some(filter) = step.filter
        && chunk.vector(filter)?.truth(row) != Some(true)
    {
        return Ok(());
    }
    let value = match step.of {
        Some(of) => match chunk.vector(of)?.get(row) {
            None => return Ok(()),
            value => value,
        },
        None => None,
    };
    match (state, value) {
        (GroupState::Count(count), _) => {
            *count = count.saturating_add(1);
            Ok(())
        }
        (GroupState::Total(total), Some(value)) => total.add(value, None),
        (GroupState::Total(_), None) => Err(Fault::BadRequest),
    }
}

/// The keys of a group whose first row this is.
fn first_keys(program: &Program, chunk: &Chunk<'_>, row: usize) -> Box<[KeyValue]> {
    let key = |key: &Register| {
        if usize::from(*key) < program.inputs.len() {
            return KeyValue::Word(chunk.input(*key, row));
        }
        let value = chunk.vector(*key).ok().and_then(|vector| vector.get(row));
        value.map_or(KeyValue::Word(0), |value| {
            let mut out = Out::new();
            out.set(value);
            KeyValue::Computed(out)
        })
    };
    program.keys.iter().map(key).collect()
}

/// The states of a new group. `Fault::BadRequest` for an aggregate that there is not.
fn new_states(program: &Program, sorts: &[Sort]) -> Result<Box<[GroupState]>, Fault> {
    let state = |step: &Step| {
        let Some(aggregate) = step.aggregate else {
            return Ok(GroupState::Count(0));
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
