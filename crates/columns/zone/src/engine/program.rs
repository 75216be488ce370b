//! Programs: conditions and aggregations of many rows in one operation (docs/internals/
//! columns-execution.md).
//!
//! Invariants: E1 (a program tells no more than single operations would, and every truth and token
//! is charged as theirs), E2 (the policy judges the values of an instruction before it is carried
//! out), E3 (the fault of a row is that row's, and the first one is an aggregation's). Must not:
//! compute itself, or decide who may do what.

mod chunk;
mod grouping;
mod instructions;
mod truths;

use std::time::Instant;

use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::program::{Program, ROWS_MAX, Sort};
use strongroom_columns_ring::{Answer, Area, Descriptor, Fault};
use strongroom_columns_values::Out;
use strongroom_format::columns::Fid;
use strongroom_format::columns::channel::right;

use super::backends::Group;
use super::compute::BATCH_TIME_MAX;
use super::groups::{GroupState, Groups, KeyValue};
use super::running::Running;
use super::value_sources::PolicyInput;
use super::{Zone, answers_of, copy_bytes, copy_words, len_of, offset_of};
use crate::arena::Meta;
use chunk::{CHUNK_ROWS, Chunk};
use grouping::add_rows;

/// The byte of a row for which a condition has failed.
const FAILS: u8 = 2;

impl Zone {
    /// [`strongroom_columns_ring::Op::Program`]: keeps the program of `n` bytes in the data area
    /// under the identifier `r`, until the statement ends. `Fault::BadRequest` for bytes that are
    /// no program, or an identifier that has one; `Fault::ForgedFid` and `Fault::StaleFid` for one
    /// that is not of this statement; `Fault::ArenaFull` above 65536 programs.
    pub(super) fn keep_program(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<u64, Fault> {
        let len = len_of(descriptor)?;
        copy_bytes(area, descriptor, len, &mut self.scratch.bytes)?;
        let program = Program::decode(&self.scratch.bytes)?;
        let fid = Fid::from_bits(descriptor.r).ok_or(Fault::ForgedFid)?;
        let state = self.sources.rings.get_mut(ring)?;
        state.arena.check_current(fid)?;
        let sorts = program.sorts()?;
        let running = Running {
            groups: Groups::new(&program, &sorts)?,
            scopes: vec![None; program.aggregates.len()],
            key_scopes: vec![None; program.keys.len()],
            sorts,
            program,
        };
        state.programs.add(descriptor.r, running)?;
        Ok(0)
    }

    /// [`strongroom_columns_ring::Op::ForgetProgram`]: drops program `a`, if it is there.
    /// `Fault::ForgedFid` for an unknown ring.
    pub(super) fn forget_program(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
    ) -> Result<(), Fault> {
        // One that has failed is gone already.
        drop(
            self.sources
                .rings
                .get_mut(ring)?
                .programs
                .take(descriptor.a),
        );
        Ok(())
    }

    /// [`strongroom_columns_ring::Op::RunProgram`]: carries out program `a` for `n` rows. Returns
    /// how many rows were done: fewer after 20 ms. `Fault::ForgedFid` for an unknown program;
    /// `Fault::BadRequest` for too many rows, or inputs that do not lie in the data area; of an
    /// aggregation the fault of the first row that fails; faults of the policy; `Fault::ArenaFull`
    /// if the groups of the statement's programs have too many bytes. An aggregation that fails is
    /// dropped: some of the rows may be in its groups.
    pub(super) fn run_program(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<u64, Fault> {
        let programs = &mut self.sources.rings.get_mut(ring)?.programs;
        let mut running = programs.take(descriptor.a)?;
        let has_room = programs.check_room(&running);
        let done = has_room.and_then(|()| self.run(ring, &mut running, descriptor, area));
        if done.is_ok() || running.program.is_condition() {
            let programs = &mut self.sources.rings.get_mut(ring)?.programs;
            programs.put_back(descriptor.a, running);
        }
        done
    }

    /// Carries out a program for the rows that a descriptor names, as [`Self::run_program`] says.
    fn run(
        &mut self,
        ring: u16,
        running: &mut Running,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<u64, Fault> {
        let rows = usize::try_from(descriptor.n).map_err(|_| Fault::BadRequest)?;
        let is_condition = running.program.is_condition();
        if rows > ROWS_MAX || (!is_condition && descriptor.flags & flag::AHEAD != 0) {
            return Err(Fault::BadRequest);
        }
        let words = rows.saturating_mul(running.program.inputs.len());
        let n = u32::try_from(words).map_err(|_| Fault::BadRequest)?;
        let mut inputs = std::mem::take(&mut self.scratch.words);
        let copied = copy_words(area, &Descriptor { n, ..*descriptor }, &mut inputs);
        let mut answers = Vec::with_capacity(rows);
        let done =
            copied.and_then(|()| self.run_chunks(ring, running, &inputs, rows, &mut answers));
        self.scratch.words = inputs;
        done?;
        if is_condition && !answers.is_empty() {
            area.write(answers_of(descriptor)?, &answers)
                .ok_or(Fault::BadRequest)?;
        }
        Ok(answers.len() as u64)
    }

    /// Carries out a program for these rows, some hundred at a time, until 20 ms have passed.
    /// `answers` gets a byte for each row that is done: 1 for one that is kept, 0 for another, 2
    /// for one that fails. Where the budget has not enough left for many rows, they are done one
    /// by one.
    fn run_chunks(
        &mut self,
        ring: u16,
        running: &mut Running,
        inputs: &[u64],
        rows: usize,
        answers: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let deadline = Instant::now() + BATCH_TIME_MAX;
        let mut size = CHUNK_ROWS;
        while answers.len() < rows && (answers.is_empty() || Instant::now() < deadline) {
            let first = answers.len();
            let len = size.min(rows - first);
            let mut chunk = Chunk::new(inputs, rows, first..first + len, deadline);
            std::mem::swap(&mut chunk.vectors, &mut self.scratch.vectors);
            let done = self.run_chunk(ring, running, &mut chunk);
            std::mem::swap(&mut chunk.vectors, &mut self.scratch.vectors);
            match done {
                Err(Fault::BudgetSpent) if len > 1 => {
                    size = 1;
                    continue;
                }
                done => done?,
            }
            chunk.answer(answers, FAILS);
        }
        Ok(())
    }

    /// Carries out a program for one chunk. The faults of a condition's rows are left in the chunk;
    /// that of the first row of an aggregation is returned, and no row is added.
    fn run_chunk(
        &mut self,
        ring: u16,
        running: &mut Running,
        chunk: &mut Chunk<'_>,
    ) -> Result<(), Fault> {
        chunk.begin(running.sorts.len());
        let inputs = running.program.inputs.len();
        let instructions = running.program.instructions.iter();
        for (instruction, register) in instructions.zip(inputs..) {
            self.carry_out(ring, &running.sorts, chunk, *instruction, register)?;
        }
        if running.program.is_condition() {
            return self.charge_failing(ring, true, 0, chunk);
        }
        let to_add = self.prepare_groups(ring, running, chunk)?;
        self.charge_failing(ring, false, to_add, chunk)?;
        if let Some((row, fault)) = chunk.first_fault() {
            // A row before it may be one that cannot be added.
            add_rows(running, chunk, row)?;
            return Err(fault);
        }
        self.add_to_groups(ring, running, chunk)
    }

    /// Charges the session for what the answer reveals about computations that can fail (invariant
    /// A4). A condition's answer reveals for each row whether it has failed, as a single call for
    /// that row would. An aggregation's reveals only whether any row has failed, or one of its
    /// `to_add` values cannot be added. Charges nothing if there are none to add, and the chunk has
    /// computed no value and read none that the statement has computed. `Fault::BudgetSpent` if the
    /// session's budget is used up.
    fn charge_failing(
        &mut self,
        ring: u16,
        is_condition: bool,
        to_add: u64,
        chunk: &Chunk<'_>,
    ) -> Result<(), Fault> {
        let state = self.sources.rings.get_mut(ring)?;
        let may_read_computed = state.attempts > 0 || !matches!(state.group, Group::Alone);
        let tried = chunk.computed + to_add;
        if tried == 0 && !(chunk.reads_computed && may_read_computed) {
            return Ok(());
        }
        state.computed += chunk.computed;
        state.attempts += tried;
        state.failed |= chunk.first_fault().is_some();
        let scope = state.computed_from;
        if is_condition {
            let mut input = PolicyInput::new();
            input.scope = scope;
            let count = chunk.len() as u64;
            self.check_budget(ring, count)?;
            self.charge(ring, count, &input)?;
        } else {
            self.charge_check(ring, scope)?;
        }
        let state = self.sources.rings.get_mut(ring)?;
        state.fallible = state.failed;
        if !state.failed {
            state.computed_from = None;
        }
        Ok(())
    }

    /// [`strongroom_columns_ring::Op::Groups`]: writes the groups of program `a` from number `n`
    /// on. Returns how many, and in `aux` the number of all. `Fault::ForgedFid` for an unknown
    /// program; `Fault::BadRequest` for a condition, or if the words do not fit into the data area;
    /// faults of the policy, and of the results.
    pub(super) fn groups(
        &mut self,
        ring: u16,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<Answer, Fault> {
        let programs = &mut self.sources.rings.get_mut(ring)?.programs;
        let running = programs.take(descriptor.a)?;
        let written = self.write_groups(ring, &running, descriptor, area);
        let all = u32::try_from(running.groups.len()).unwrap_or(u32::MAX);
        let programs = &mut self.sources.rings.get_mut(ring)?.programs;
        programs.put_back(descriptor.a, running);
        Ok(Answer {
            aux: all,
            ..Answer::of(written?)
        })
    }

    /// Writes groups of a program as [`Self::groups`] says, and returns how many.
    fn write_groups(
        &mut self,
        ring: u16,
        running: &Running,
        descriptor: &Descriptor,
        area: &Area,
    ) -> Result<u64, Fault> {
        let program = &running.program;
        if program.is_condition() {
            return Err(Fault::BadRequest);
        }
        for scope in running.scopes.iter().flatten() {
            self.allow(ring, right::AGGREGATE, *scope)?;
        }
        let first = usize::try_from(descriptor.n).map_err(|_| Fault::BadRequest)?;
        let begin = Fid::from_bits(descriptor.r).ok_or(Fault::ForgedFid)?;
        let mut slots = begin.slot()..;
        let mut words = Vec::with_capacity(program.groups_per_call() * program.group_width());
        let arena = &mut self.sources.rings.get_mut(ring)?.arena;
        let mut put = |meta, value: &Out| {
            let slot = slots.next();
            let fid = slot.and_then(|slot| Fid::ephemeral(ring, begin.generation(), slot));
            let fid = fid.ok_or(Fault::ArenaFull)?;
            arena.put(fid, meta, value.value())?;
            Ok(fid.bits())
        };
        let groups = running.groups.iter().skip(first);
        let mut count = 0;
        for group in groups.take(program.groups_per_call()) {
            let keys = group.keys.iter().zip(&running.key_scopes);
            for ((key, scope), register) in keys.zip(&program.keys) {
                words.push(match key {
                    KeyValue::Word(word) => *word,
                    KeyValue::Computed(out) => {
                        let sort = running.sorts.get(usize::from(*register));
                        let Some(Sort::Value(kind)) = sort else {
                            return Err(Fault::BadRequest);
                        };
                        let scope = scope.ok_or(Fault::BadRequest)?;
                        put(Meta { kind: *kind, scope }, out)?
                    }
                });
            }
            for (state, scope) in group.states.iter().zip(&running.scopes) {
                words.push(match state {
                    GroupState::Count(count) => *count,
                    GroupState::Distinct(numbers) => numbers.len() as u64,
                    GroupState::Number(_, number) => number.unwrap_or(0).cast_unsigned(),
                    GroupState::Total(total) => match total.finish()? {
                        None => 0,
                        Some(result) => {
                            let (aggregate, kind) = total.aggregate_and_kind();
                            let kind = aggregate.gives(kind).ok_or(Fault::BadRequest)?;
                            let scope = scope.ok_or(Fault::BadRequest)?;
                            put(Meta { kind, scope }, &result)?
                        }
                    },
                });
            }
            count += 1;
        }
        area.write_words(offset_of(descriptor)?, &words)
            .ok_or(Fault::BadRequest)?;
        Ok(count)
    }
}
