//! Goal: a program is read as it was written, and only valid ones are taken. Method: one with every
//! instruction, and each of its parts made wrong.

use super::*;
use crate::function::by_name;

/// The code of a function on two values of a kind.
fn code(name: &str, args: &[Arg]) -> u16 {
    by_name(name, args).unwrap().code
}

/// An aggregate.
fn step(fold: Fold, of: Option<Register>, filter: Option<Register>) -> Step {
    Step { fold, of, filter }
}

/// A program with every instruction.
fn program() -> Program {
    let number = Sort::Value(Kind::Int8);
    let (plus, like) = (
        code("int8pl", &[Arg::Of(Kind::Int8); 2]),
        code("textlike", &[Arg::Of(Kind::Text); 2]),
    );
    let round = code("round", &[Arg::Of(Kind::Numeric), Arg::Plain]);
    let instructions = vec![
        // Registers from 4 on.
        Instruction::Literal {
            kind: Kind::Int8,
            fid: u64::MAX,
        },
        Instruction::Compute {
            function: plus,
            args: [0, 4, 0],
        },
        Instruction::Compare {
            orders: orders::LESS | orders::EQUAL,
            a: 5,
            b: 0,
        },
        Instruction::Keep(6),
        Instruction::Test {
            function: like,
            args: [1, 1, 0],
        },
        Instruction::Narrow {
            of: 8,
            truths: truths::TRUE | truths::NULL,
        },
        Instruction::IsNull(1),
        Instruction::And(8, 10),
        Instruction::Not(11),
        Instruction::Or(12, 2),
        Instruction::Widen,
        Instruction::Choose {
            of: 13,
            then: 0,
            otherwise: 5,
        },
        Instruction::Literal {
            kind: Kind::Numeric,
            fid: 0,
        },
        Instruction::Number(-1),
        Instruction::Compute {
            function: round,
            args: [16, 17, 0],
        },
    ];
    Program {
        inputs: vec![number, Sort::Value(Kind::Text), Sort::Truth, Sort::Plain],
        instructions,
        keys: vec![1, 3, 2, 15],
        aggregates: vec![
            step(Fold::Of(Aggregate::Sum), Some(15), Some(13)),
            step(Fold::Count, None, None),
            step(Fold::Of(Aggregate::Max), Some(18), None),
            step(Fold::CountDistinct, Some(3), None),
            step(Fold::Sum, Some(17), None),
            step(Fold::Least, Some(3), None),
            step(Fold::Greatest, Some(3), Some(13)),
        ],
    }
}

#[test]
fn a_program_is_read_as_it_was_written() {
    let program = program();
    assert_eq!(Program::decode(&program.encode()), Ok(program.clone()));
    assert!(!program.is_condition());
    assert_eq!(program.sorts().unwrap().len(), 4 + 15);
    let empty = Program::default();
    assert_eq!(Program::decode(&empty.encode()), Ok(empty.clone()));
    assert!(empty.is_condition());
}

#[test]
fn bytes_that_are_no_program_are_refused() {
    let bytes = program().encode();
    for len in 0..bytes.len() {
        assert_eq!(Program::decode(&bytes[..len]), Err(Fault::BadRequest));
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert_eq!(Program::decode(&longer), Err(Fault::BadRequest));
    // Every byte changed in every bit: whatever is read is a valid program.
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            if let Ok(program) = Program::decode(&changed) {
                assert!(program.sorts().is_ok());
            }
        }
    }
}

/// Asserts that a program is refused.
fn is_refused(change: impl FnOnce(&mut Program)) {
    let mut program = program();
    change(&mut program);
    assert_eq!(program.sorts(), Err(Fault::BadRequest), "{program:?}");
}

#[test]
fn a_program_that_breaks_a_rule_is_refused() {
    let push = |instruction: Instruction| {
        move |program: &mut Program| {
            program.instructions.push(instruction);
        }
    };
    // A register that is defined by the instruction itself, and one of another sort.
    is_refused(push(Instruction::Not(19)));
    is_refused(push(Instruction::Not(0)));
    is_refused(push(Instruction::Keep(3)));
    is_refused(push(Instruction::IsNull(3)));
    is_refused(push(Instruction::And(2, 1)));
    is_refused(push(Instruction::Widen));
    is_refused(push(Instruction::Narrow { of: 2, truths: 1 }));
    is_refused(push(Instruction::Narrow { of: 2, truths: 8 }));
    is_refused(push(Instruction::Compare {
        orders: orders::LESS,
        a: 0,
        b: 1,
    }));
    is_refused(push(Instruction::Compare {
        orders: 8,
        a: 0,
        b: 0,
    }));
    is_refused(push(Instruction::Choose {
        of: 2,
        then: 0,
        otherwise: 1,
    }));
    // A function that gives a value, or that is unknown, is no test; its arguments are of its
    // kinds.
    let plus = code("int8pl", &[Arg::Of(Kind::Int8); 2]);
    for (function, args) in [(plus, [0, 0, 0]), (1, [0, 0, 0])] {
        is_refused(push(Instruction::Test { function, args }));
    }
    is_refused(push(Instruction::Compute {
        function: plus,
        args: [0, 1, 0],
    }));
    // What has to be the same for all rows is no input, and fits.
    let round = code("round", &[Arg::Of(Kind::Numeric), Arg::Plain]);
    is_refused(push(Instruction::Compute {
        function: round,
        args: [16, 3, 0],
    }));
    is_refused(|program| program.instructions[13] = Instruction::Number(1 << 40));
    // Rows are dropped for good, so not within a condition.
    is_refused(|program| program.instructions.insert(6, Instruction::Keep(2)));
    is_refused(|program| program.keys.push(99));
    is_refused(|program| program.aggregates[0].filter = Some(0));
    is_refused(|program| program.aggregates[0].of = Some(1));
    is_refused(|program| program.aggregates[0].of = None);
    is_refused(|program| program.aggregates[3].of = Some(0));
    is_refused(|program| program.aggregates[4].of = None);
    is_refused(|program| program.aggregates[0].fold = Fold::Of(Aggregate::StringAgg));
    is_refused(|program| program.inputs = vec![Sort::Truth; INPUTS_MAX + 1]);
    is_refused(|program| program.keys = vec![0; KEYS_MAX + 1]);
    is_refused(|program| program.aggregates = vec![program.aggregates[1]; AGGREGATES_MAX + 1]);
    is_refused(|program| {
        let many = INSTRUCTIONS_MAX + 1;
        program.instructions.resize(many, Instruction::Number(0));
    });
    is_refused(|program| {
        for _ in 0..=DEPTH_MAX {
            let of = Instruction::Narrow { of: 2, truths: 1 };
            program.instructions.push(of);
        }
        let ends = std::iter::repeat_n(Instruction::Widen, DEPTH_MAX + 1);
        program.instructions.extend(ends);
    });
}

/// Of a key that is computed the groups have the value: there is none for a truth.
#[test]
fn rows_are_grouped_by_inputs_and_values() {
    is_refused(|program| {
        let sorts = program.sorts().unwrap();
        let truth = sorts.iter().rposition(|sort| *sort == Sort::Truth);
        program
            .keys
            .push(Register::try_from(truth.unwrap()).unwrap());
    });
}
