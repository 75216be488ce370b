//! The bytes of a program. Little-endian, as the other records of the data area
//! ([`crate::layout`]).
//!
//! | part | bytes each | what |
//! |---|---:|---|
//! | head | 8 | the numbers of inputs, instructions, keys and aggregates, 2 bytes each |
//! | input | 2 | its sort, and its kind |
//! | instruction | 16 | its code, a detail, a function, two registers, a word |
//! | key | 2 | its register |
//! | aggregate | 6 | the number of what is computed; register and filter, 0xffff for none |
//!
//! Must not: know which programs are valid.

use strongroom_format::columns::Kind;

use super::{Fold, Instruction, Program, Register, Sort, Step};
use crate::function::Aggregate;

/// Numbers of the sorts of inputs.
mod sort {
    pub(super) const VALUE: u8 = 1;
    pub(super) const TRUTH: u8 = 2;
    pub(super) const PLAIN: u8 = 3;
}

/// Numbers of instructions.
mod code {
    pub(super) const LITERAL: u8 = 1;
    pub(super) const NUMBER: u8 = 2;
    pub(super) const COMPUTE: u8 = 3;
    pub(super) const TEST: u8 = 4;
    pub(super) const COMPARE: u8 = 5;
    pub(super) const AND: u8 = 6;
    pub(super) const OR: u8 = 7;
    pub(super) const NOT: u8 = 8;
    pub(super) const IS_NULL: u8 = 9;
    pub(super) const NARROW: u8 = 10;
    pub(super) const WIDEN: u8 = 11;
    pub(super) const CHOOSE: u8 = 12;
    pub(super) const KEEP: u8 = 13;
}

/// Numbers of what is computed in clear. Those of aggregates of values are below 0x8000.
mod fold {
    pub(super) const COUNT: u16 = 0;
    pub(super) const COUNT_DISTINCT: u16 = 0x8000;
    pub(super) const SUM: u16 = 0x8001;
    pub(super) const LEAST: u16 = 0x8002;
    pub(super) const GREATEST: u16 = 0x8003;
}

/// The number of what is computed.
const fn number_of(of: Fold) -> u16 {
    match of {
        Fold::Count => fold::COUNT,
        Fold::CountDistinct => fold::COUNT_DISTINCT,
        Fold::Sum => fold::SUM,
        Fold::Least => fold::LEAST,
        Fold::Greatest => fold::GREATEST,
        Fold::Of(aggregate) => aggregate as u16,
    }
}

/// What has this number. `None` for an unknown one.
fn fold_of(number: u16) -> Option<Fold> {
    Some(match number {
        fold::COUNT => Fold::Count,
        fold::COUNT_DISTINCT => Fold::CountDistinct,
        fold::SUM => Fold::Sum,
        fold::LEAST => Fold::Least,
        fold::GREATEST => Fold::Greatest,
        number => Fold::Of(Aggregate::from_number(number)?),
    })
}

/// Stands for no register.
const NONE: Register = Register::MAX;

/// An instruction in bytes.
#[derive(Default)]
struct Packed {
    code: u8,
    detail: u8,
    function: u16,
    a: Register,
    b: Register,
    word: u64,
}

impl Packed {
    /// The 16 bytes.
    fn bytes(&self) -> [u8; 16] {
        let [f0, f1] = self.function.to_le_bytes();
        let ([a0, a1], [b0, b1]) = (self.a.to_le_bytes(), self.b.to_le_bytes());
        let [w0, w1, w2, w3, w4, w5, w6, w7] = self.word.to_le_bytes();
        let (code, detail) = (self.code, self.detail);
        [
            code, detail, f0, f1, a0, a1, b0, b1, w0, w1, w2, w3, w4, w5, w6, w7,
        ]
    }

    /// Reads 16 bytes. `None` for another number.
    fn read(from: &mut &[u8]) -> Option<Self> {
        Some(Self {
            code: u8::from_le_bytes(take(from)?),
            detail: u8::from_le_bytes(take(from)?),
            function: u16::from_le_bytes(take(from)?),
            a: Register::from_le_bytes(take(from)?),
            b: Register::from_le_bytes(take(from)?),
            word: u64::from_le_bytes(take(from)?),
        })
    }

    /// The third register. `None` if the word is none.
    fn third(&self) -> Option<Register> {
        Register::try_from(self.word).ok()
    }
}

/// The next `N` bytes. `None` if there are fewer.
fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*first)
}

/// The program in bytes.
pub(super) fn encode(program: &Program) -> Vec<u8> {
    let mut bytes = Vec::new();
    let counts = [
        program.inputs.len(),
        program.instructions.len(),
        program.keys.len(),
        program.aggregates.len(),
    ];
    for count in counts {
        // A number that does not fit is beyond every limit, and so is the greatest one.
        let count = u16::try_from(count).unwrap_or(u16::MAX);
        bytes.extend_from_slice(&count.to_le_bytes());
    }
    for input in &program.inputs {
        bytes.extend_from_slice(&match input {
            Sort::Value(kind) => [sort::VALUE, kind.number()],
            Sort::Truth => [sort::TRUTH, 0],
            Sort::Plain => [sort::PLAIN, 0],
        });
    }
    for instruction in &program.instructions {
        bytes.extend_from_slice(&pack(*instruction).bytes());
    }
    for key in &program.keys {
        bytes.extend_from_slice(&key.to_le_bytes());
    }
    for step in &program.aggregates {
        let number = number_of(step.fold);
        let registers = [step.of.unwrap_or(NONE), step.filter.unwrap_or(NONE)];
        bytes.extend_from_slice(&number.to_le_bytes());
        for register in registers {
            bytes.extend_from_slice(&register.to_le_bytes());
        }
    }
    bytes
}

/// The form of an instruction that is written.
fn pack(instruction: Instruction) -> Packed {
    let of = |code, a| Packed {
        code,
        a,
        ..Packed::default()
    };
    let of_two = |code, a, b| Packed { b, ..of(code, a) };
    let call = |code, function, [a, b, c]: [Register; 3]| Packed {
        function,
        word: u64::from(c),
        ..of_two(code, a, b)
    };
    match instruction {
        Instruction::Literal { kind, fid } => Packed {
            detail: kind.number(),
            word: fid,
            ..of(code::LITERAL, 0)
        },
        Instruction::Number(number) => Packed {
            word: number.cast_unsigned(),
            ..of(code::NUMBER, 0)
        },
        Instruction::Compute { function, args } => call(code::COMPUTE, function, args),
        Instruction::Test { function, args } => call(code::TEST, function, args),
        Instruction::Compare { orders, a, b } => Packed {
            detail: orders,
            ..of_two(code::COMPARE, a, b)
        },
        Instruction::And(a, b) => of_two(code::AND, a, b),
        Instruction::Or(a, b) => of_two(code::OR, a, b),
        Instruction::Not(a) => of(code::NOT, a),
        Instruction::IsNull(a) => of(code::IS_NULL, a),
        Instruction::Narrow { of: a, truths } => Packed {
            detail: truths,
            ..of(code::NARROW, a)
        },
        Instruction::Widen => of(code::WIDEN, 0),
        Instruction::Choose {
            of: a,
            then,
            otherwise,
        } => Packed {
            word: u64::from(otherwise),
            ..of_two(code::CHOOSE, a, then)
        },
        Instruction::Keep(a) => of(code::KEEP, a),
    }
}

/// The instruction that was written so. `None` for an unknown code or kind.
fn unpack(packed: &Packed) -> Option<Instruction> {
    let args = || Some([packed.a, packed.b, packed.third()?]);
    Some(match packed.code {
        code::LITERAL => Instruction::Literal {
            kind: Kind::from_number(packed.detail)?,
            fid: packed.word,
        },
        code::NUMBER => Instruction::Number(packed.word.cast_signed()),
        code::COMPUTE => Instruction::Compute {
            function: packed.function,
            args: args()?,
        },
        code::TEST => Instruction::Test {
            function: packed.function,
            args: args()?,
        },
        code::COMPARE => Instruction::Compare {
            orders: packed.detail,
            a: packed.a,
            b: packed.b,
        },
        code::AND => Instruction::And(packed.a, packed.b),
        code::OR => Instruction::Or(packed.a, packed.b),
        code::NOT => Instruction::Not(packed.a),
        code::IS_NULL => Instruction::IsNull(packed.a),
        code::NARROW => Instruction::Narrow {
            of: packed.a,
            truths: packed.detail,
        },
        code::WIDEN => Instruction::Widen,
        code::CHOOSE => Instruction::Choose {
            of: packed.a,
            then: packed.b,
            otherwise: packed.third()?,
        },
        code::KEEP => Instruction::Keep(packed.a),
        _ => return None,
    })
}

/// Reads a program, valid or not. `None` for bytes that are too few or too many, or have an unknown
/// number of something.
pub(super) fn decode(mut bytes: &[u8]) -> Option<Program> {
    let from = &mut bytes;
    let mut counts = [0_u16; 4];
    for count in &mut counts {
        *count = u16::from_le_bytes(take(from)?);
    }
    let [inputs, instructions, keys, aggregates] = counts;
    let mut program = Program::default();
    for _ in 0..inputs {
        let [sort, kind] = take(from)?;
        program.inputs.push(match sort {
            sort::VALUE => Sort::Value(Kind::from_number(kind)?),
            sort::TRUTH => Sort::Truth,
            sort::PLAIN => Sort::Plain,
            _ => return None,
        });
    }
    for _ in 0..instructions {
        let packed = Packed::read(from)?;
        program.instructions.push(unpack(&packed)?);
    }
    for _ in 0..keys {
        program.keys.push(Register::from_le_bytes(take(from)?));
    }
    for _ in 0..aggregates {
        let number = u16::from_le_bytes(take(from)?);
        let mut register = || {
            let register = Register::from_le_bytes(take(from)?);
            Some((register != NONE).then_some(register))
        };
        program.aggregates.push(Step {
            of: register()?,
            filter: register()?,
            fold: fold_of(number)?,
        });
    }
    from.is_empty().then_some(program)
}
