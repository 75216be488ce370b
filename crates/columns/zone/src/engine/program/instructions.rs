//! The instructions of a program, each for the rows of a chunk.
//!
//! Must not: know what a function does, or give a truth without asking the policy.

use strongroom_columns_ring::Fault;
use strongroom_columns_ring::function::{Arg, Field};
use strongroom_columns_ring::program::{Instruction, Register, Sort};
use strongroom_columns_values::{Operand, Value, WordFunction};
use strongroom_format::columns::Fid;
use strongroom_format::columns::channel::right;

use super::chunk::{Called, Chunk};
use crate::engine::Zone;
use crate::engine::compute::plain;
use crate::engine::functions::Resolved;
use crate::engine::value_sources::PolicyInput;
use crate::engine::vector::Vector;

impl Zone {
    /// Carries out an instruction of a program, which defines a register. Rows for which it fails
    /// are dropped, with their faults. Other faults are of the policy.
    pub(super) fn carry_out(
        &mut self,
        ring: u16,
        sorts: &[Sort],
        chunk: &mut Chunk<'_>,
        instruction: Instruction,
        register: usize,
    ) -> Result<(), Fault> {
        for used in registers_of(instruction).into_iter().flatten() {
            self.fill_input(ring, sorts, chunk, used)?;
        }
        match instruction {
            Instruction::Literal { fid, .. } => self.literal(ring, chunk, fid, register),
            Instruction::Number(number) => {
                let mut vector = chunk.take(register);
                let word = Value::of_int8(number);
                let is_set = vector.set(0, word);
                vector.repeat_first();
                chunk.put(register, vector);
                if is_set {
                    Ok(())
                } else {
                    Err(Fault::BadRequest)
                }
            }
            Instruction::Compute { function, args } => {
                let resolved = self.functions.get(u32::from(function))?;
                self.compute_rows(ring, chunk, resolved, args, register)
            }
            Instruction::Test { function, args } => {
                let resolved = self.functions.get(u32::from(function))?;
                self.test_rows(ring, chunk, resolved, args, register)
            }
            Instruction::Compare { orders, a, b } => {
                let Some(Sort::Value(kind)) = sorts.get(usize::from(a)) else {
                    return Err(Fault::BadRequest);
                };
                self.compare_rows(ring, chunk, (*kind, orders), (a, b), register)
            }
            Instruction::Narrow { of, truths } => {
                chunk.narrow(of, truths)?;
                copy_truths(chunk, of, register)
            }
            Instruction::Widen => {
                chunk.widen();
                let vector = chunk.take(register);
                chunk.put(register, vector);
                Ok(())
            }
            Instruction::Keep(of) => {
                chunk.keep(of)?;
                copy_truths(chunk, of, register)
            }
            Instruction::Choose {
                of,
                then,
                otherwise,
            } => choose(chunk, of, (then, otherwise), register),
            Instruction::And(a, b) => combine(chunk, (a, b), register, and),
            Instruction::Or(a, b) => combine(chunk, (a, b), register, or),
            Instruction::Not(a) => combine(chunk, (a, a), register, |truth, _| {
                truth.map(|truth| !truth)
            }),
            Instruction::IsNull(a) => {
                let mut vector = chunk.take(register);
                let of = chunk.vector(a)?;
                for row in chunk.rows() {
                    vector.set_truth(*row, Some(of.get(*row).is_none()));
                }
                chunk.put(register, vector);
                Ok(())
            }
        }
    }

    /// Fills the vector of an input, if the register is one and was not filled yet, for all rows
    /// that count.
    pub(super) fn fill_input(
        &mut self,
        ring: u16,
        sorts: &[Sort],
        chunk: &mut Chunk<'_>,
        register: Register,
    ) -> Result<(), Fault> {
        let at = usize::from(register);
        if !chunk.is_missing(at) {
            return Ok(());
        }
        let sort = *sorts.get(at).ok_or(Fault::BadRequest)?;
        let mut vector = chunk.take(at);
        let mut faults = Vec::new();
        match sort {
            Sort::Value(kind) => {
                let is_computed = |row: &usize| {
                    let fid = Fid::from_bits(chunk.input(register, *row));
                    fid.is_some_and(|fid| fid.is_ephemeral() && !fid.is_literal())
                };
                let reads_computed = chunk.all_rows().iter().any(is_computed);
                chunk.reads_computed |= reads_computed;
                let rows = chunk.all_rows().iter();
                let fids = rows.map(|row| (*row, chunk.input(register, *row)));
                let loaded = self
                    .sources
                    .load_rows(ring, kind, fids, &mut vector, &mut faults);
                if let Some(row) = loaded? {
                    chunk.leave_from(row);
                }
            }
            Sort::Truth => {
                for row in chunk.all_rows() {
                    vector.set_truth(
                        *row,
                        match chunk.input(register, *row) {
                            0 => Some(false),
                            1 => Some(true),
                            _ => None,
                        },
                    );
                }
            }
            Sort::Plain => {
                for row in chunk.all_rows() {
                    let word = Value::Word(chunk.input(register, *row));
                    if !vector.set(*row, word) {
                        return Err(Fault::BadRequest);
                    }
                }
            }
        }
        chunk.put(at, vector);
        chunk.fail(faults);
        Ok(())
    }

    /// [`Instruction::Literal`]: the value of an identifier for all rows.
    fn literal(
        &mut self,
        ring: u16,
        chunk: &mut Chunk<'_>,
        fid: u64,
        register: usize,
    ) -> Result<(), Fault> {
        let mut vector = chunk.take(register);
        if fid != 0 {
            let [out, ..] = &mut self.scratch.args;
            let loaded = self.sources.load(ring, fid, out)?;
            vector.add_origin((loaded.scope, loaded.place));
            if !vector.set(0, out.value()) {
                return Err(Fault::StringTooLong);
            }
        }
        vector.repeat_first();
        chunk.put(register, vector);
        Ok(())
    }

    /// What the policy needs to know about the values of these vectors.
    pub(super) fn input_of<'a>(
        &mut self,
        ring: u16,
        vectors: impl IntoIterator<Item = &'a Vector>,
    ) -> Result<PolicyInput, Fault> {
        let mut input = PolicyInput::new();
        for vector in vectors {
            for origin in vector.origins() {
                self.sources.add_origin(ring, &mut input, *origin)?;
            }
        }
        Ok(input)
    }

    /// [`Instruction::Compute`]: a function's values. `Fault::NotAllowed` if the session does not
    /// allow it.
    fn compute_rows(
        &mut self,
        ring: u16,
        chunk: &mut Chunk<'_>,
        resolved: Resolved,
        args: [Register; 3],
        register: usize,
    ) -> Result<(), Fault> {
        let computation = resolved.computation.ok_or(Fault::BadRequest)?;
        let mut result = chunk.take(register);
        let given = Arguments::of(chunk, resolved.function.args, args)?;
        let rows = given.rows_without_null(chunk.rows());
        let input = self.input_of(ring, given.vectors())?;
        let mut called = Called::default();
        if !rows.is_empty() {
            let scope = input.scope()?;
            let rights = right::COMPUTE | input.common.extra_rights();
            self.allow(ring, rights, scope)?;
            let state = self.sources.rings.get_mut(ring)?;
            state.note_computed_from(scope)?;
            state.fallible = true;
            result.add_origin((scope, None));
            self.computed.add(rows.len() as u64);
            let out = &mut self.scratch.out;
            let on_words = computation.on_words();
            called = Called::each(chunk, &rows, given.rows_between_looks(), |row| {
                let words = on_words.and_then(|function| given.on_words(function, row));
                let is_set = match words {
                    Some(word) => result.set(row, Value::Word(word)),
                    None => {
                        let operands = given.operands(row)?;
                        computation.run(given.own(&operands)?, &state.settings, out)?;
                        result.set(row, out.value())
                    }
                };
                if is_set {
                    Ok(result.is_full())
                } else {
                    Err(Fault::StringTooLong)
                }
            });
        }
        chunk.computed += called.done as u64;
        chunk.finish(register, result, called);
        Ok(())
    }
}

/// Rows of short values that are computed between two looks at the clock, which cost as much as a
/// computation.
pub(super) const ROWS_BETWEEN_LOOKS: usize = 32;

/// The arguments of a function for the rows of a chunk.
pub(super) struct Arguments<'a> {
    args: &'static [Arg],
    vectors: [&'a Vector; 3],
}

impl<'a> Arguments<'a> {
    /// The arguments that these registers hold. `Fault::BadRequest` for an unknown register.
    pub(super) fn of(
        chunk: &'a Chunk<'_>,
        args: &'static [Arg],
        registers: [Register; 3],
    ) -> Result<Self, Fault> {
        let [a, b, c] = registers;
        Ok(Self {
            args,
            vectors: [chunk.vector(a)?, chunk.vector(b)?, chunk.vector(c)?],
        })
    }

    /// The vectors of confidential arguments.
    pub(super) fn vectors(&self) -> impl Iterator<Item = &'a Vector> + '_ {
        let given = self.args.iter().zip(self.vectors);
        given.filter_map(|(arg, vector)| matches!(arg, Arg::Of(_)).then_some(vector))
    }

    /// How many rows are computed between two looks at the clock: one where values are long.
    fn rows_between_looks(&self) -> usize {
        if self.vectors().any(Vector::is_long) {
            1
        } else {
            ROWS_BETWEEN_LOOKS
        }
    }

    /// The result of a function of two words for a row. `None` if an argument is no word, or the
    /// function has no result.
    fn on_words(&self, function: WordFunction, row: usize) -> Option<u64> {
        let [a, b, _] = self.vectors;
        function(a.word(row)?, b.word(row)?)
    }

    /// As many of these operands as the function has arguments. `Fault::BadRequest` if they are
    /// too few.
    pub(super) fn own<'b>(
        &self,
        operands: &'b [Operand<'a>; 3],
    ) -> Result<&'b [Operand<'a>], Fault> {
        operands.get(..self.args.len()).ok_or(Fault::BadRequest)
    }

    /// Those of the rows in which no argument is NULL.
    pub(super) fn rows_without_null(&self, rows: &[usize]) -> Vec<usize> {
        let given = |row: &&usize| {
            let mut vectors = self.args.iter().zip(self.vectors);
            vectors.all(|(_, vector)| vector.get(**row).is_some())
        };
        rows.iter().filter(given).copied().collect()
    }

    /// The arguments of a row; those beyond the function's are a plain 0. `Fault::BadRequest` for a
    /// NULL, or a number in clear that is no `integer`; `Fault::FieldUnknown` for an unknown field.
    pub(super) fn operands(&self, row: usize) -> Result<[Operand<'a>; 3], Fault> {
        let mut operands = [Operand::Plain(0); 3];
        for ((arg, vector), operand) in self.args.iter().zip(self.vectors).zip(&mut operands) {
            let value = vector.get(row).ok_or(Fault::BadRequest)?;
            *operand = match arg {
                Arg::Of(_) => Operand::Value(value),
                Arg::Plain => Operand::Plain(plain(value.word()?)?),
                Arg::Name => {
                    let number = u8::try_from(value.word()?).map_err(|_| Fault::FieldUnknown)?;
                    Operand::Field(Field::from_number(number).ok_or(Fault::FieldUnknown)?)
                }
            };
        }
        Ok(operands)
    }
}

/// The registers that an instruction reads. Those that a call has no use for are its first one.
fn registers_of(instruction: Instruction) -> [Option<Register>; 3] {
    match instruction {
        Instruction::Literal { .. } | Instruction::Number(_) | Instruction::Widen => [None; 3],
        Instruction::Compute { args, .. } | Instruction::Test { args, .. } => args.map(Some),
        Instruction::Compare { a, b, .. } | Instruction::And(a, b) | Instruction::Or(a, b) => {
            [Some(a), Some(b), None]
        }
        Instruction::Not(a)
        | Instruction::IsNull(a)
        | Instruction::Keep(a)
        | Instruction::Narrow { of: a, .. } => [Some(a), None, None],
        Instruction::Choose {
            of,
            then,
            otherwise,
        } => [Some(of), Some(then), Some(otherwise)],
    }
}

/// SQL's AND.
fn and(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

/// SQL's OR.
fn or(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    }
}

/// Fills a register with what two truths of each row make.
fn combine(
    chunk: &mut Chunk<'_>,
    (a, b): (Register, Register),
    register: usize,
    make: fn(Option<bool>, Option<bool>) -> Option<bool>,
) -> Result<(), Fault> {
    let mut vector = chunk.take(register);
    let (a, b) = (chunk.vector(a)?, chunk.vector(b)?);
    for row in chunk.rows() {
        vector.set_truth(*row, make(a.truth(*row), b.truth(*row)));
    }
    chunk.put(register, vector);
    Ok(())
}

/// Fills a register with the truths of another one.
fn copy_truths(chunk: &mut Chunk<'_>, of: Register, register: usize) -> Result<(), Fault> {
    combine(chunk, (of, of), register, |truth, _| truth)
}

/// [`Instruction::Choose`]: fills a register with one of two others', by a truth.
fn choose(
    chunk: &mut Chunk<'_>,
    of: Register,
    (then, otherwise): (Register, Register),
    register: usize,
) -> Result<(), Fault> {
    let mut vector = chunk.take(register);
    let of = chunk.vector(of)?;
    let (then, otherwise) = (chunk.vector(then)?, chunk.vector(otherwise)?);
    for origin in then.origins().iter().chain(otherwise.origins()) {
        vector.add_origin(*origin);
    }
    let called = Called::each(chunk, chunk.rows(), ROWS_BETWEEN_LOOKS, |row| {
        let chosen = match of.truth(row) {
            Some(true) => then,
            _ => otherwise,
        };
        match chosen.get(row) {
            Some(value) if !vector.set(row, value) => Err(Fault::StringTooLong),
            _ => Ok(vector.is_full()),
        }
    });
    chunk.finish(register, vector, called);
    Ok(())
}
