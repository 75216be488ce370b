//! Programs: what the zone does with many rows at once, in the place of an operation for each row.
//!
//! A program has the confidential part of a query's condition, or of an aggregation. It is a list
//! of instructions. Each defines one register; the registers of the inputs come first. A register
//! is a vector: it has something for each row. The extension compiles a program once for each
//! execution of a plan ([`crate::Op::Program`]), and then sends the inputs of its rows in batches
//! ([`crate::Op::RunProgram`]). NULL is the identifier 0.
//!
//! Invariant: [`Program::decode`] returns only programs whose registers are defined before they are
//! used and have the sort that each use takes, so that the zone need not check it again. Must not:
//! compute anything.

use strongroom_format::columns::Kind;

use crate::fault::Fault;
use crate::function::{Aggregate, Arg, Field, Gives, by_code};

mod checks;
mod encoding;

/// The most bytes that [`crate::Op::Groups`] writes.
const GROUP_BYTES_MAX: usize = 1 << 16;
/// The most rows of one batch.
pub const ROWS_MAX: usize = 1024;
/// The most inputs of a program.
pub const INPUTS_MAX: usize = 48;
/// The most instructions of a program.
pub const INSTRUCTIONS_MAX: usize = 512;
/// The most keys that a program groups by.
pub const KEYS_MAX: usize = 16;
/// The most aggregates of a program.
pub const AGGREGATES_MAX: usize = 64;
/// The most conditions within which an instruction may be carried out for some rows only.
pub const DEPTH_MAX: usize = 32;

/// Number of a register: inputs from 0, then one for each instruction.
pub type Register = u16;

/// What a register holds for each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// A confidential value, or NULL.
    Value(Kind),
    /// True, false or NULL.
    Truth,
    /// A number in clear, which is the argument of a function, or part of a key to group by.
    Plain,
}

/// One step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// The value of an identifier, the same for all rows; 0 for NULL.
    Literal {
        /// Kind of the value.
        kind: Kind,
        /// The identifier.
        fid: u64,
    },
    /// A number in clear, the same for all rows.
    Number(i64),
    /// The function of this code, whose result is a value; NULL if one of its arguments is.
    Compute {
        /// Code of the function.
        function: u16,
        /// As many arguments as the function has; the others are 0.
        args: [Register; 3],
    },
    /// The function of this code, whose result is a truth; NULL if one of its arguments is.
    Test {
        /// Code of the function.
        function: u16,
        /// As many arguments as the function has; the others are 0.
        args: [Register; 3],
    },
    /// Whether the order of two values is one of `orders`; NULL if one of them is.
    Compare {
        /// Bits: [`orders::LESS`], [`orders::EQUAL`], [`orders::GREATER`].
        orders: u8,
        /// The left operand.
        a: Register,
        /// The right operand, of the same kind.
        b: Register,
    },
    /// SQL's AND of two truths.
    And(Register, Register),
    /// SQL's OR of two truths.
    Or(Register, Register),
    /// SQL's NOT of a truth.
    Not(Register),
    /// Whether a value or a truth is NULL.
    IsNull(Register),
    /// Until the matching [`Self::Widen`], instructions are carried out only for rows whose truth
    /// `of` is one of `truths`; their registers are NULL for the others. Defines a truth: that of
    /// `of`.
    Narrow {
        /// The truth.
        of: Register,
        /// Bits: [`truths::FALSE`], [`truths::TRUE`], [`truths::NULL`].
        truths: u8,
    },
    /// The end of the last [`Self::Narrow`]. Defines a number, 0.
    Widen,
    /// The second register for rows whose truth `of` is true, otherwise the third.
    Choose {
        /// The truth.
        of: Register,
        /// For rows for which it is true.
        then: Register,
        /// For the other rows; of the same sort as `then`.
        otherwise: Register,
    },
    /// From here on only rows count whose truth is true. Not within [`Self::Narrow`]. Defines the
    /// same truth.
    Keep(Register),
}

impl Instruction {
    /// The instruction with each of its registers replaced by what `f` gives for it.
    #[must_use]
    pub fn map_registers(self, f: impl Fn(Register) -> Register) -> Self {
        match self {
            Self::Literal { .. } | Self::Number(_) | Self::Widen => self,
            Self::Compute { function, args } => Self::Compute {
                function,
                args: args.map(f),
            },
            Self::Test { function, args } => Self::Test {
                function,
                args: args.map(f),
            },
            Self::Compare { orders, a, b } => Self::Compare {
                orders,
                a: f(a),
                b: f(b),
            },
            Self::And(a, b) => Self::And(f(a), f(b)),
            Self::Or(a, b) => Self::Or(f(a), f(b)),
            Self::Not(of) => Self::Not(f(of)),
            Self::IsNull(of) => Self::IsNull(f(of)),
            Self::Narrow { of, truths } => Self::Narrow { of: f(of), truths },
            Self::Choose {
                of,
                then,
                otherwise,
            } => Self::Choose {
                of: f(of),
                then: f(then),
                otherwise: f(otherwise),
            },
            Self::Keep(of) => Self::Keep(f(of)),
        }
    }
}

/// Bits of [`Instruction::Compare`].
pub mod orders {
    /// The left operand is less.
    pub const LESS: u8 = 1;
    /// The operands are equal.
    pub const EQUAL: u8 = 2;
    /// The left operand is greater.
    pub const GREATER: u8 = 4;
}

/// Bits of [`Instruction::Narrow`].
pub mod truths {
    /// Rows for which it is false.
    pub const FALSE: u8 = 1;
    /// Rows for which it is true.
    pub const TRUE: u8 = 2;
    /// Rows for which it is NULL.
    pub const NULL: u8 = 4;
}

/// What an aggregate of a program computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// The number of rows, in clear.
    Count,
    /// How many different ones there are of numbers in clear.
    CountDistinct,
    /// The sum of numbers in clear; 0 of none.
    Sum,
    /// The least of numbers in clear; 0 of none.
    Least,
    /// The greatest of numbers in clear; 0 of none.
    Greatest,
    /// An aggregate of confidential values.
    Of(Aggregate),
}

impl Fold {
    /// Whether it is computed of numbers in clear.
    #[must_use]
    pub const fn takes_numbers(self) -> bool {
        matches!(
            self,
            Self::CountDistinct | Self::Sum | Self::Least | Self::Greatest
        )
    }
}

/// One aggregate of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is computed.
    pub fold: Fold,
    /// What it is computed of; rows for which it is NULL do not count. `None` counts all rows.
    pub of: Option<Register>,
    /// A truth: only rows for which it is true count. `None` for all rows.
    pub filter: Option<Register>,
}

/// A program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// What each input is.
    pub inputs: Vec<Sort>,
    /// The instructions, in their order.
    pub instructions: Vec<Instruction>,
    /// What the rows are grouped by: inputs, and values that are computed.
    pub keys: Vec<Register>,
    /// What is computed of each group. Without keys and aggregates the program is a condition: it
    /// says which rows are kept.
    pub aggregates: Vec<Step>,
}

impl Program {
    /// Whether the program only says which rows are kept.
    #[must_use]
    pub fn is_condition(&self) -> bool {
        self.keys.is_empty() && self.aggregates.is_empty()
    }

    /// How many words [`crate::Op::Groups`] writes for a group.
    #[must_use]
    pub fn group_width(&self) -> usize {
        self.keys.len() + self.aggregates.len()
    }

    /// Whether [`crate::Op::Groups`] puts what this word of a group stands for into an ephemeral,
    /// unless it is NULL: keys and aggregates whose values are computed.
    #[must_use]
    pub fn is_put(&self, word: usize) -> bool {
        match (self.keys.get(word), word.checked_sub(self.keys.len())) {
            (Some(key), _) => usize::from(*key) >= self.inputs.len(),
            (None, Some(at)) => {
                let step = self.aggregates.get(at);
                step.is_some_and(|step| matches!(step.fold, Fold::Of(_)))
            }
            (None, None) => false,
        }
    }

    /// The most groups that one [`crate::Op::Groups`] writes.
    #[must_use]
    pub fn groups_per_call(&self) -> usize {
        GROUP_BYTES_MAX / (8 * self.group_width().max(1))
    }

    /// The sorts of all registers, inputs first.
    ///
    /// # Errors
    /// [`Fault::BadRequest`] if the program is not a valid one: an unknown function, a register
    /// that is not defined before or is of another sort, a limit that is passed, a `Widen` without
    /// `Narrow`.
    pub fn sorts(&self) -> Result<Vec<Sort>, Fault> {
        checks::sorts(self)
    }

    /// The program in bytes, as [`crate::Op::Program`] takes it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encoding::encode(self)
    }

    /// Reads a program.
    ///
    /// # Errors
    /// [`Fault::BadRequest`] for bytes that are no valid program.
    pub fn decode(bytes: &[u8]) -> Result<Self, Fault> {
        let program = encoding::decode(bytes).ok_or(Fault::BadRequest)?;
        program.sorts()?;
        Ok(program)
    }
}

#[cfg(test)]
mod tests;
