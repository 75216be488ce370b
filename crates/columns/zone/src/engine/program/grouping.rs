//! Adds rows to the groups of an aggregation.
//!
//! Must not: give anything to the backend.

use strongroom_columns_ring::Fault;
use strongroom_columns_ring::program::{Fold, Program, Register, Sort, Step};
use strongroom_columns_values::{Accumulator, Out};
use strongroom_format::columns::channel::right;

use super::chunk::Chunk;
use crate::arena::ScopeId;
use crate::engine::Zone;
use crate::engine::compute::with_ledger;
use crate::engine::groups::{GroupState, KeyValue, new_states};
use crate::engine::running::Running;
use crate::policy::Truth;

impl Zone {
    /// Loads what the rows of a chunk are grouped by and what is to be added of them, and asks
    /// whether the session allows that. Returns how many values are to be added of which some may
    /// fail, NULLs among them. Faults of the policy; those of rows are left in the chunk.
    pub(super) fn prepare_groups(
        &mut self,
        ring: u16,
        running: &mut Running,
        chunk: &mut Chunk<'_>,
    ) -> Result<u64, Fault> {
        let program = &running.program;
        let steps = program.aggregates.iter();
        let registers = steps.flat_map(|step| [step.of, step.filter]).flatten();
        let registers = registers.chain(program.keys.iter().copied());
        for register in registers.clone() {
            self.fill_input(ring, &running.sorts, chunk, register)?;
        }
        chunk.limit_bytes(registers)?;
        if chunk.first_fault().is_some() {
            // The chunk is not added.
            return Ok(0);
        }
        self.judge_values(ring, running, chunk)
    }

    /// Adds the rows that are left of a chunk to the program's groups, after
    /// [`Self::prepare_groups`]. Each key of each row is charged as its token would be. Faults of
    /// the policy, and of the first row whose value cannot be added.
    pub(super) fn add_to_groups(
        &mut self,
        ring: u16,
        running: &mut Running,
        chunk: &Chunk<'_>,
    ) -> Result<(), Fault> {
        self.judge_keys(ring, running, chunk)?;
        let mut rows = chunk.all_rows().iter();
        let added = rows.try_for_each(|row| add_row(running, chunk, *row));
        if added.is_err() {
            let state = self.sources.rings.get_mut(ring)?;
            state.failed = true;
            state.fallible = true;
        }
        added
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
            self.join_scope(ring, key_scope, input.scope()?)?;
            self.charge_computed(ring, &input, count as u64)?;
            let state = self.sources.rings.get(ring).ok();
            with_ledger(&mut self.channel, state, |ledger| {
                ledger.count_tokens(count as u64);
            });
        }
        Ok(())
    }

    /// Asks whether the session allows aggregates of the values of a chunk. Returns how many they
    /// are of those that may fail.
    fn judge_values(
        &mut self,
        ring: u16,
        running: &mut Running,
        chunk: &Chunk<'_>,
    ) -> Result<u64, Fault> {
        let mut count = 0;
        let steps = running.program.aggregates.iter().zip(&mut running.scopes);
        for (step, total) in steps {
            let (Fold::Of(aggregate), Some(of)) = (step.fold, step.of) else {
                continue;
            };
            let Some(Sort::Value(kind)) = running.sorts.get(usize::from(of)).copied() else {
                continue;
            };
            let vector = chunk.vector(of)?;
            let input = self.input_of(ring, [vector])?;
            let Some(scope) = input.scope else {
                continue;
            };
            let rights = right::AGGREGATE | input.common.extra_rights();
            self.allow(ring, rights, scope)?;
            let rows = chunk.all_rows().len() as u64;
            self.computed.add(rows);
            let state = self.sources.rings.get_mut(ring)?;
            state.note_computed_from(scope)?;
            if Accumulator::can_fail(aggregate, kind) {
                count += rows;
                state.fallible = true;
            }
            self.join_scope(ring, total, scope)?;
        }
        Ok(count)
    }

    /// Adds the keys of a scope to those that a program's values were made from so far.
    fn join_scope(
        &mut self,
        ring: u16,
        so_far: &mut Option<ScopeId>,
        scope: ScopeId,
    ) -> Result<(), Fault> {
        *so_far = Some(match *so_far {
            Some(before) => self.sources.joined_scope(ring, before, scope)?,
            None => scope,
        });
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
        groups.begin_row();
        for key in &program.keys {
            let sort = sorts.get(usize::from(*key)).ok_or(Fault::BadRequest)?;
            groups.append_key(*sort, chunk.vector(*key)?.get(row))?;
        }
        groups.find(
            || first_keys(program, chunk, row),
            || new_states(program, sorts),
        )?
    };
    let group = groups.get_mut(number).ok_or(Fault::BadRequest)?;
    let mut more = 0;
    for (step, state) in program.aggregates.iter().zip(&mut group.states) {
        let before = state.size();
        add_value(chunk, *step, row, state)?;
        more += state.size().saturating_sub(before);
    }
    groups.grow_by(more);
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
    state.add(value)
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
