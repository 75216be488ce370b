//! Expressions of types in clear that depend on confidential conditions: the arguments of counts
//! and sums in clear, as in `sum(CASE WHEN state = 'A' THEN 1 ELSE 0 END)`.
//!
//! Must not: make an instruction whose result differs from the expression's.

use pg_sys::NodeTag;
use pgrx::pg_sys;
use strongroom_columns_ring::program::{Instruction, Register, Sort};
use strongroom_format::columns::Kind;

use super::expressions::{Compiler, Source};
use super::operands::plain_width;
use super::sending::input_word;
use crate::call::bits;

/// A number in clear of each row.
#[derive(Clone, Copy)]
pub(super) struct Number {
    /// The register of the number, which is any one where it is NULL.
    pub(super) register: Register,
    /// The register of the truth that it is not NULL. `None` if it never is.
    pub(super) not_null: Option<Register>,
}

impl Compiler {
    /// Appends the instructions of an expression that is not confidential and whose type is a whole
    /// number, a date or a time: a column, a constant, or CASE whose results are such expressions.
    /// Returns the registers of its value. `None` for any other expression; the program is then not
    /// to be used.
    ///
    /// # Safety
    ///
    /// An expression of a finished plan.
    pub(super) unsafe fn number(&mut self, node: *mut pg_sys::Node) -> Option<Number> {
        // SAFETY: the caller's promise; a node begins with its tag, which tells its structure.
        unsafe {
            let width = plain_width(pg_sys::exprType(node))?;
            match (*node).type_ {
                NodeTag::T_Var => {
                    let not_null = Some(self.is_not_null(node)?);
                    let column = (*node.cast::<pg_sys::Var>()).varattno;
                    let register = self.input(Source::Word(column, width), Sort::Plain)?;
                    Some(Number { register, not_null })
                }
                NodeTag::T_Const => {
                    let of: *mut pg_sys::Const = node.cast();
                    if (*of).constisnull {
                        return self.null_number();
                    }
                    // As a column of the type has it.
                    let of_column = Source::Word(0, width);
                    let word = input_word(of_column, Some(bits((*of).constvalue)));
                    Some(Number {
                        register: self.push(Instruction::Number(word.cast_signed()))?,
                        not_null: None,
                    })
                }
                NodeTag::T_CaseExpr => self.arms(
                    node.cast(),
                    |this, result| this.number(result),
                    Self::null_number,
                    Self::chosen_number,
                ),
                _ => None,
            }
        }
    }

    /// NULL as a number.
    fn null_number(&mut self) -> Option<Number> {
        let never = self.constant_truth(false)?;
        Some(Number {
            register: self.push(Instruction::Number(0))?,
            not_null: Some(never),
        })
    }

    /// Appends the choice between two numbers by a truth.
    fn chosen_number(&mut self, of: Register, then: Number, otherwise: Number) -> Option<Number> {
        let not_null = match (then.not_null, otherwise.not_null) {
            (None, None) => None,
            (then, otherwise) => {
                let then = then.map_or_else(|| self.constant_truth(true), Some)?;
                let otherwise = otherwise.map_or_else(|| self.constant_truth(true), Some)?;
                Some(self.choose(of, then, otherwise)?)
            }
        };
        Some(Number {
            register: self.choose(of, then.register, otherwise.register)?,
            not_null,
        })
    }

    /// Appends a truth that is the same for all rows.
    fn constant_truth(&mut self, truth: bool) -> Option<Register> {
        let null = self.push(Instruction::Literal {
            kind: Kind::Bool,
            fid: 0,
        })?;
        let is_true = self.push(Instruction::IsNull(null))?;
        if truth {
            Some(is_true)
        } else {
            self.push(Instruction::Not(is_true))
        }
    }
}
