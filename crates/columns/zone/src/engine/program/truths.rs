//! The instructions whose result the server could learn by single operations: comparisons and
//! tests. Each row's truth is charged as that of a single operation.
//!
//! Must not: give a truth that the policy has not judged.

use core::cmp::Ordering;

use strongroom_columns_ring::Fault;
use strongroom_columns_ring::program::{Register, orders};
use strongroom_columns_values::compare;
use strongroom_format::columns::Kind;

use super::chunk::{Called, Chunk};
use super::instructions::{Arguments, ROWS_BETWEEN_LOOKS};
use crate::engine::Zone;
use crate::engine::compute::judge;
use crate::engine::functions::Resolved;
use crate::engine::value_sources::PolicyInput;
use crate::policy::Truth;

impl Zone {
    /// [`strongroom_columns_ring::program::Instruction::Compare`]: which rows have one of these
    /// orders. Faults of the policy.
    pub(super) fn compare_rows(
        &mut self,
        ring: u16,
        chunk: &mut Chunk<'_>,
        (kind, wanted): (Kind, u8),
        (a, b): (Register, Register),
        register: usize,
    ) -> Result<(), Fault> {
        let mut result = chunk.take(register);
        let (a, b) = (chunk.vector(a)?, chunk.vector(b)?);
        let present = |row: &&usize| a.get(**row).is_some() && b.get(**row).is_some();
        let rows: Vec<usize> = chunk.rows().iter().filter(present).copied().collect();
        let tells_order = (wanted & orders::LESS != 0) != (wanted & orders::GREATER != 0);
        let truth = if tells_order {
            Truth::Order
        } else {
            Truth::Equality
        };
        let mut input = self.input_of(ring, [a, b])?;
        self.judge_rows(ring, truth, &mut input, rows.len())?;
        let mut positive = 0;
        let is_long = a.is_long() || b.is_long();
        let looks = if is_long { 1 } else { ROWS_BETWEEN_LOOKS };
        let called = Called::each(chunk, &rows, looks, |row| {
            let (Some(a), Some(b)) = (a.get(row), b.get(row)) else {
                return Err(Fault::BadRequest);
            };
            let bit = match compare(kind, a, b)? {
                Ordering::Less => orders::LESS,
                Ordering::Equal => orders::EQUAL,
                Ordering::Greater => orders::GREATER,
            };
            let is_true = wanted & bit != 0;
            positive += u64::from(is_true);
            result.set_truth(row, Some(is_true));
            Ok(false)
        });
        self.charge_truths(ring, &input, called.done, positive)?;
        chunk.finish(register, result, called);
        Ok(())
    }

    /// [`strongroom_columns_ring::program::Instruction::Test`]: for which rows a function's result
    /// is true. Faults of the policy.
    pub(super) fn test_rows(
        &mut self,
        ring: u16,
        chunk: &mut Chunk<'_>,
        resolved: Resolved,
        args: [Register; 3],
        register: usize,
    ) -> Result<(), Fault> {
        let condition = resolved.condition.ok_or(Fault::BadRequest)?;
        let mut result = chunk.take(register);
        let given = Arguments::of(chunk, resolved.function.args, args)?;
        let rows = given.rows_without_null(chunk.rows());
        let mut input = self.input_of(ring, given.vectors())?;
        self.judge_rows(ring, Truth::Condition, &mut input, rows.len())?;
        let mut positive = 0;
        let called = Called::each(chunk, &rows, 1, |row| {
            let operands = given.operands(row)?;
            let truth = condition.run(given.own(&operands)?)?;
            positive += u64::from(truth);
            result.set_truth(row, Some(truth));
            Ok(false)
        });
        self.charge_truths(ring, &input, called.done, positive)?;
        chunk.finish(register, result, called);
        Ok(())
    }

    /// Asks the policy whether so many answers of this kind may be given about the values in the
    /// input, and the session whether it has as many left. Nothing for no rows.
    pub(super) fn judge_rows(
        &mut self,
        ring: u16,
        truth: Truth,
        input: &mut PolicyInput,
        rows: usize,
    ) -> Result<(), Fault> {
        if rows == 0 {
            return Ok(());
        }
        input.wanted = rows as u64;
        self.check_budget(ring, input.wanted)?;
        judge(&mut self.channel, &self.sources, ring, truth, input)
    }

    /// Charges the session for so many truths, of which `positive` are true.
    fn charge_truths(
        &mut self,
        ring: u16,
        input: &PolicyInput,
        rows: usize,
        positive: u64,
    ) -> Result<(), Fault> {
        if rows == 0 {
            return Ok(());
        }
        self.charge_computed(ring, input, rows as u64)?;
        self.count_positive_truths(ring, positive);
        Ok(())
    }

    /// Counts so many answers as computed, and charges the session for them.
    pub(super) fn charge_computed(
        &mut self,
        ring: u16,
        input: &PolicyInput,
        count: u64,
    ) -> Result<(), Fault> {
        self.computed.add(count);
        self.charge(ring, count, input)
    }
}
