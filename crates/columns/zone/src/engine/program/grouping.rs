//! Adds rows to the groups of an aggregation.
//!
//! Must not: give anything to the backend.

use strongroom_columns_ring::Fault;
use strongroom_columns_ring::program::{Fold, Program, Register, Sort};
use strongroom_columns_values::{Accumulator, Out};
use strongroom_format::columns::channel::right;

use super::chunk::Chunk;
use crate::arena::ScopeId;
use crate::engine::Zone;
use crate::engine::compute::with_ledger;
use crate::engine::groups::{KeyValue, new_states};
use crate::engine::running::Running;
use crate::engine::vector::Vector;
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
        let added = add_rows(running, chunk, chunk.len());
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

/// Adds the rows of a chunk before row `end` to their groups, one aggregate after the other. The
/// fault of the first row that cannot be added; others may have been added then.
pub(super) fn add_rows(running: &mut Running, chunk: &Chunk<'_>, end: usize) -> Result<(), Fault> {
    let count = chunk.all_rows().partition_point(|row| *row < end);
    let rows = chunk.all_rows().get(..count).unwrap_or_default();
    let numbers = group_numbers(running, chunk, rows)?;
    let Running {
        program, groups, ..
    } = running;
    let mut first: Option<(usize, Fault)> = None;
    for (at, step) in program.aggregates.iter().enumerate() {
        let of = step.of.map(|of| chunk.vector(of)).transpose()?;
        let filter = step.filter.map(|filter| chunk.vector(filter)).transpose()?;
        let keeps_bytes = step.fold == Fold::CountDistinct || of.is_some_and(Vector::has_bytes);
        for (row, number) in rows.iter().zip(&numbers) {
            if filter.is_some_and(|filter| filter.truth(*row) != Some(true)) {
                continue;
            }
            let value = match of.map(|of| of.get(*row)) {
                Some(None) => continue,
                value => value.flatten(),
            };
            let added = if keeps_bytes {
                groups.add_and_measure(*number, at, value)
            } else {
                groups.add(*number, at, value)
            };
            if let Err(fault) = added
                && first.is_none_or(|(before, _)| *row < before)
            {
                first = Some((*row, fault));
            }
        }
    }
    match first {
        Some((_, fault)) => Err(fault),
        None => Ok(()),
    }
}

/// By row the number of its group, which is made if there is none.
fn group_numbers(
    running: &mut Running,
    chunk: &Chunk<'_>,
    rows: &[usize],
) -> Result<Vec<usize>, Fault> {
    let Running {
        program,
        sorts,
        groups,
        ..
    } = running;
    if program.keys.is_empty() {
        return Ok(vec![0; rows.len()]);
    }
    let mut keys = Vec::with_capacity(program.keys.len());
    for key in &program.keys {
        let sort = *sorts.get(usize::from(*key)).ok_or(Fault::BadRequest)?;
        keys.push((sort, chunk.vector(*key)?));
    }
    let number = |row: &usize| {
        groups.begin_row();
        for (sort, vector) in &keys {
            groups.append_key(*sort, vector.get(*row))?;
        }
        groups.find(
            || first_keys(program, chunk, *row),
            || new_states(program, sorts),
        )
    };
    rows.iter().map(number).collect()
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
