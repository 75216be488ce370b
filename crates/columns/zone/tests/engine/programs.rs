//! Goal: a program gives for many rows what single operations give one by one, tells no more, and
//! is charged as they are. Method: programs on some hundred random values with NULLs among them,
//! beside the same in Rust; tickets with limits.

use strongroom_columns_ring::function::{Aggregate, Arg, by_name};
use strongroom_columns_ring::program::{Fold, Instruction, Program, Sort, Step, orders, truths};
use strongroom_columns_ring::{ANSWER_HALF, Broken, Descriptor, Fault, Host, Op};
use strongroom_format::columns::Kind;

use super::{A, ORDINARY, Scene, call, code, fault, go_on, with_zone};

pub(super) const NUMBER: Sort = Sort::Value(Kind::Int8);

/// The code of a function on two bigints.
pub(super) fn function(name: &str) -> u16 {
    u16::try_from(code(name, &[Arg::Of(Kind::Int8); 2])).unwrap()
}

/// The value of an identifier, for all rows.
pub(super) fn literal(fid: u64) -> Instruction {
    let kind = Kind::Int8;
    Instruction::Literal { kind, fid }
}

/// A function of two registers.
pub(super) fn compute(name: &str, a: u16, b: u16) -> Instruction {
    Instruction::Compute {
        function: function(name),
        args: [a, b, 0],
    }
}

/// Whether the order of two registers is one of these.
pub(super) fn compare(orders: u8, a: u16, b: u16) -> Instruction {
    Instruction::Compare { orders, a, b }
}

/// The number of rows.
pub(super) const COUNT: Step = Step {
    fold: Fold::Count,
    of: None,
    filter: None,
};

/// An aggregate of a register, for all rows.
pub(super) fn of(aggregate: Aggregate, register: u16) -> Step {
    Step {
        fold: Fold::Of(aggregate),
        of: Some(register),
        filter: None,
    }
}

/// Has the zone keep a program; returns its identifier.
pub(super) fn keep(host: &mut Host, program: &Program) -> Result<u64, Broken> {
    let bytes = program.encode();
    host.area(go_on)?.write(0, &bytes).unwrap();
    let r = host.fresh().unwrap().bits();
    let descriptor = Descriptor {
        n: u32::try_from(bytes.len()).unwrap(),
        r,
        ..Descriptor::of(Op::Program)
    };
    host.call(descriptor, go_on).map(|_| r)
}

/// Has a program carried out for rows, whose inputs are the elements of `inputs`, and returns the
/// bytes of a condition's answer.
pub(super) fn run(host: &mut Host, program: u64, inputs: &[&[u64]]) -> Result<Vec<u8>, Broken> {
    let rows = inputs.first().map_or(0, |first| first.len());
    let mut answers = Vec::new();
    while answers.len() < rows {
        let words: Vec<u64> = inputs
            .iter()
            .flat_map(|input| &input[answers.len()..])
            .copied()
            .collect();
        host.area(go_on)?.write_words(0, &words).unwrap();
        let descriptor = Descriptor {
            a: program,
            n: u32::try_from(rows - answers.len()).unwrap(),
            ..Descriptor::of(Op::RunProgram)
        };
        let done = usize::try_from(host.call(descriptor, go_on)?.value).unwrap();
        assert!(done > 0 && done <= rows - answers.len());
        let mut bytes = vec![9; done];
        host.area(go_on)?.read(ANSWER_HALF, &mut bytes).unwrap();
        answers.extend(bytes);
    }
    Ok(answers)
}

/// The words of all groups of a program, and the number of groups.
pub(super) fn groups(host: &mut Host, program: u64, width: usize) -> Result<Vec<Vec<u64>>, Broken> {
    let mut all = Vec::new();
    loop {
        let r = host.fresh().unwrap().bits();
        let descriptor = Descriptor {
            a: program,
            n: u32::try_from(all.len()).unwrap(),
            r,
            ..Descriptor::of(Op::Groups)
        };
        let answer = host.call(descriptor, go_on)?;
        let written = usize::try_from(answer.value).unwrap();
        let mut words = vec![0; written * width];
        host.area(go_on)?.read_words(0, &mut words).unwrap();
        all.extend(words.chunks(width).map(<[u64]>::to_vec));
        // As many as may have been put.
        for _ in 1..written * width {
            host.fresh().unwrap();
        }
        if all.len() == usize::try_from(answer.aux).unwrap() {
            return Ok(all);
        }
    }
}

/// Numbers that repeat, with NULLs among them; the same for the same seed.
fn numbers(count: usize, mut seed: u64) -> Vec<Option<i64>> {
    let mut next = || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(99);
        (seed >> 33) % 24
    };
    (0..count)
        .map(|_| match next() {
            23 => None,
            number => Some(i64::try_from(number).unwrap() - 11),
        })
        .collect()
}

/// Constants of these numbers; 0 for NULL.
fn constants(scene: &Scene, host: &mut Host, numbers: &[Option<i64>]) -> Vec<u64> {
    let constant = |number: &Option<i64>| number.map_or(0, |n| scene.int8(host, A, n));
    numbers.iter().map(constant).collect()
}

/// `a + b > limit AND (b IS NULL OR b <> a) OR flag`, as SQL has it.
fn expected(a: Option<i64>, b: Option<i64>, flag: Option<bool>, limit: i64) -> bool {
    let greater = a.zip(b).map(|(a, b)| a + b > limit);
    let other = if b.is_none() {
        Some(true)
    } else {
        a.zip(b).map(|(a, b)| a != b)
    };
    let both = match (greater, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    };
    both == Some(true) || flag == Some(true)
}

/// That condition; its inputs are a, b and the flag.
fn condition(limit: u64) -> Program {
    Program {
        inputs: vec![NUMBER, NUMBER, Sort::Truth],
        instructions: vec![
            compute("int8pl", 0, 1),
            literal(limit),
            compare(orders::GREATER, 3, 4),
            Instruction::Narrow {
                of: 5,
                truths: truths::TRUE | truths::NULL,
            },
            Instruction::IsNull(1),
            compare(orders::LESS | orders::GREATER, 1, 0),
            Instruction::Or(7, 8),
            Instruction::Widen,
            Instruction::And(5, 9),
            Instruction::Or(11, 2),
            Instruction::Keep(12),
        ],
        ..Program::default()
    }
}

#[test]
fn a_condition_is_true_for_the_rows_for_which_sql_has_it() {
    with_zone("condition", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        let (a, b) = (numbers(600, 1), numbers(600, 2));
        let flags = numbers(600, 3);
        let flags: Vec<Option<bool>> = flags.iter().map(|n| n.map(|n| n == 4)).collect();
        let inputs = [
            constants(scene, &mut host, &a),
            constants(scene, &mut host, &b),
            flags.iter().map(|flag| flag.map_or(2, u64::from)).collect(),
        ];
        let limit = scene.int8(&mut host, A, 3);
        let program = keep(&mut host, &condition(limit)).unwrap();
        let answers = run(&mut host, program, &[&inputs[0], &inputs[1], &inputs[2]]).unwrap();
        let rows = a.iter().zip(&b).zip(&flags);
        let wanted = rows.map(|((a, b), flag)| u8::from(expected(*a, *b, *flag, 3)));
        assert_eq!(answers, wanted.collect::<Vec<_>>());
        assert!(answers.contains(&1) && answers.contains(&0));
    });
}

/// What is computed of each group: how many rows, and how many of them have a value; sum, least and
/// greatest value.
fn aggregates(of: u16) -> Vec<Step> {
    let step = |fold, of, filter| Step { fold, of, filter };
    vec![
        step(Fold::Count, None, None),
        step(Fold::Count, Some(of), None),
        step(Fold::Of(Aggregate::Sum), Some(of), None),
        step(Fold::Of(Aggregate::Min), Some(of), None),
        step(Fold::Of(Aggregate::Max), Some(of), Some(2)),
    ]
}

/// The value of a bigint, or of a numeric that is a whole number, by its identifier; `None` for 0.
fn opened(scene: &Scene, host: &mut Host, fid: u64) -> Option<i64> {
    if fid == 0 {
        return None;
    }
    Some(scene.opened_int8(host, fid).unwrap())
}

#[test]
fn groups_are_those_that_sql_makes() {
    with_zone("groups", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        let (keys, values) = (numbers(700, 4), numbers(700, 5));
        let inputs = [
            constants(scene, &mut host, &keys),
            constants(scene, &mut host, &values),
            values
                .iter()
                .map(|value| u64::from(value.is_some_and(|value| value < 0)))
                .collect(),
        ];
        let program = Program {
            inputs: vec![NUMBER, NUMBER, Sort::Truth],
            keys: vec![0],
            aggregates: aggregates(1)
                .into_iter()
                // The sum of bigints is a numeric; it is looked at below.
                .filter(|step| step.fold != Fold::Of(Aggregate::Sum))
                .collect(),
            ..Program::default()
        };
        let kept = keep(&mut host, &program).unwrap();
        run(&mut host, kept, &[&inputs[0], &inputs[1], &inputs[2]]).unwrap();
        let found = groups(&mut host, kept, program.group_width()).unwrap();
        // In the order in which their first rows came.
        let mut order: Vec<Option<i64>> = Vec::new();
        for key in &keys {
            if !order.contains(key) {
                order.push(*key);
            }
        }
        assert_eq!(found.len(), order.len());
        for (group, key) in found.iter().zip(order) {
            let first = keys.iter().position(|known| *known == key).unwrap();
            assert_eq!(group[0], inputs[0][first], "the first row's identifier");
            let rows = keys.iter().zip(&values).filter(|(known, _)| **known == key);
            let all: Vec<Option<i64>> = rows.map(|(_, value)| *value).collect();
            let some = || all.iter().flatten().copied();
            assert_eq!(group[1], all.len() as u64);
            assert_eq!(group[2], some().count() as u64);
            assert_eq!(opened(scene, &mut host, group[3]), some().min());
            let negative = some().filter(|value| *value < 0).max();
            assert_eq!(opened(scene, &mut host, group[4]), negative);
        }
    });
}

#[test]
fn without_keys_there_is_one_group_even_of_no_rows() {
    with_zone("one-group", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        let program = Program {
            inputs: vec![NUMBER, Sort::Plain, Sort::Truth],
            aggregates: aggregates(0),
            ..Program::default()
        };
        let kept = keep(&mut host, &program).unwrap();
        let nothing = groups(&mut host, kept, 5).unwrap();
        assert_eq!(nothing, [[0; 5]]);
        // Plain words and truths are keys too.
        let program = Program {
            keys: vec![1, 2],
            ..program
        };
        let kept = keep(&mut host, &program).unwrap();
        assert!(groups(&mut host, kept, 7).unwrap().is_empty());
        let one = scene.int8(&mut host, A, 5);
        let inputs: [&[u64]; 3] = [&[one, 0, one, one], &[7, 7, 8, 7], &[1, 1, 1, 2]];
        run(&mut host, kept, &inputs).unwrap();
        let found = groups(&mut host, kept, 7).unwrap();
        let heads: Vec<&[u64]> = found.iter().map(|group| &group[..4]).collect();
        assert_eq!(heads, [[7, 1, 2, 1], [8, 1, 1, 1], [7, 2, 1, 1]]);
        // A sum of bigints, as text.
        let sum = found[0][4];
        let r = host.fresh().unwrap().bits();
        let whole = by_name("int8", &[Arg::Of(Kind::Numeric)]).unwrap();
        let cast = Descriptor {
            n: u32::from(whole.code),
            a: sum,
            r,
            ..Descriptor::of(Op::Compute)
        };
        host.post(cast, go_on).unwrap();
        assert_eq!(scene.opened_int8(&mut host, r), Ok(5));
    });
}

#[test]
fn more_groups_than_one_answer_has_room_for_come_one_after_the_other() {
    with_zone("many-groups", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        let program = Program {
            inputs: vec![Sort::Plain, NUMBER],
            keys: vec![0],
            aggregates: vec![of(Aggregate::Max, 1)],
            ..Program::default()
        };
        let kept = keep(&mut host, &program).unwrap();
        let one = scene.int8(&mut host, A, 5);
        for from in 0..10_u64 {
            let keys: Vec<u64> = (from * 1000..from * 1000 + 1000).collect();
            run(&mut host, kept, &[&keys, &[one; 1000]]).unwrap();
        }
        assert!(program.groups_per_call() < 10_000);
        let found = groups(&mut host, kept, 2).unwrap();
        assert_eq!(found.len(), 10_000);
        let last = found.last().unwrap();
        assert_eq!(last[0], 9999);
        assert_eq!(opened(scene, &mut host, last[1]), Some(5));
    });
}

/// A row that fails is told of as such by a condition, and ends an aggregation.
#[test]
fn the_fault_of_a_row_is_that_row_s() {
    with_zone("row-faults", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        let values = [Some(6), Some(0), Some(-3), None, Some(0), Some(2)];
        let fids = constants(scene, &mut host, &values);
        let six = scene.int8(&mut host, A, 6);
        let zero = scene.int8(&mut host, A, 0);
        let mut program = Program {
            inputs: vec![NUMBER],
            instructions: vec![
                literal(six),
                compute("int8div", 1, 0),
                literal(zero),
                compare(orders::GREATER, 2, 3),
                Instruction::Keep(4),
            ],
            ..Program::default()
        };
        let kept = keep(&mut host, &program).unwrap();
        let answers = run(&mut host, kept, &[&fids]).unwrap();
        assert_eq!(answers, [1, 2, 0, 0, 2, 1]);
        // Nothing is left of the faults.
        assert_eq!(call(&mut host, Op::Sync, 0, 0), Ok(0));
        program.aggregates = vec![of(Aggregate::Max, 2)];
        let kept = keep(&mut host, &program).unwrap();
        let failed = run(&mut host, kept, &[&fids]);
        assert_eq!(failed, fault(Fault::DivisionByZero));
    });
}

#[test]
fn what_is_not_carried_out_for_a_row_does_not_fail_for_it() {
    with_zone("guarded-rows", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        let values = [Some(6), Some(0), Some(-3), None, Some(0), Some(2)];
        let fids = constants(scene, &mut host, &values);
        let six = scene.int8(&mut host, A, 6);
        let zero = scene.int8(&mut host, A, 0);
        let guarded = Program {
            instructions: vec![
                literal(zero),
                compare(orders::EQUAL, 0, 1),
                Instruction::Narrow {
                    of: 2,
                    truths: truths::FALSE,
                },
                literal(six),
                compute("int8div", 4, 0),
                Instruction::Widen,
                Instruction::Choose {
                    of: 2,
                    then: 1,
                    otherwise: 5,
                },
            ],
            aggregates: vec![of(Aggregate::Max, 7)],
            inputs: vec![NUMBER],
            keys: vec![],
        };
        let kept = keep(&mut host, &guarded).unwrap();
        run(&mut host, kept, &[&fids]).unwrap();
        let found = groups(&mut host, kept, 1).unwrap();
        assert_eq!(opened(scene, &mut host, found[0][0]), Some(3));
    });
}

/// What is computed of numbers in clear is told in clear; which of two numbers counts may depend on
/// a confidential condition.
#[test]
fn numbers_in_clear_are_added_up_beside_values() {
    with_zone("numbers", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        let limit = scene.int8(&mut host, A, 10);
        let step = |fold, register, filter| Step {
            fold,
            of: Some(register),
            filter,
        };
        let program = Program {
            inputs: vec![NUMBER, Sort::Plain, NUMBER, Sort::Truth],
            instructions: vec![
                literal(limit),
                compare(orders::GREATER, 2, 4),
                Instruction::Number(100),
                Instruction::Choose {
                    of: 5,
                    then: 6,
                    otherwise: 1,
                },
            ],
            keys: vec![0],
            aggregates: vec![
                step(Fold::CountDistinct, 1, None),
                step(Fold::Sum, 7, None),
                step(Fold::Least, 1, None),
                step(Fold::Greatest, 1, Some(3)),
            ],
        };
        let kept = keep(&mut host, &program).unwrap();
        let [a, b] = [1, 2].map(|key| scene.int8(&mut host, A, key));
        let values = [5, 11, 12, 10].map(|value| scene.int8(&mut host, A, value));
        let minus = 3_i64.wrapping_neg().cast_unsigned();
        let inputs: [&[u64]; 4] = [
            &[a, a, a, b],
            &[7, 7, minus, 4],
            &[values[0], values[1], values[2], values[3]],
            &[1, 1, 0, 0],
        ];
        run(&mut host, kept, &inputs).unwrap();
        let found = groups(&mut host, kept, 5).unwrap();
        assert_eq!(found, [[a, 2, 207, minus, 7], [b, 1, 4, 4, 0]]);
        // A sum of numbers has 64 bits.
        let sum = Program {
            inputs: vec![Sort::Plain],
            aggregates: vec![step(Fold::Sum, 0, None)],
            ..Program::default()
        };
        let kept = keep(&mut host, &sum).unwrap();
        let most = i64::MAX.cast_unsigned();
        let refused = run(&mut host, kept, &[&[most, 1]]);
        assert_eq!(refused, fault(Fault::Int8OutOfRange));
    });
}

/// E3: the fault is that of the first row that fails, whether it cannot be computed or not added.
#[test]
fn an_aggregation_fails_as_its_first_failing_row_does() {
    with_zone("first-fault", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        let program = Program {
            inputs: vec![Sort::Value(Kind::Float8), NUMBER],
            instructions: vec![compute("int8div", 1, 1)],
            aggregates: vec![of(Aggregate::Sum, 0), of(Aggregate::Max, 2)],
            ..Program::default()
        };
        let [one, zero] = [1, 0].map(|number| scene.int8(&mut host, A, number));
        let [small, big] = [1.0, 1e308].map(|number| scene.float8(&mut host, A, number));
        let cases = [
            ([big, big, small], [one, one, zero], Fault::FloatOverflow),
            ([big, small, big], [one, zero, one], Fault::DivisionByZero),
        ];
        for (floats, numbers, expected) in cases {
            let kept = keep(&mut host, &program).unwrap();
            let failed = run(&mut host, kept, &[&floats, &numbers]);
            assert_eq!(failed, fault(expected));
        }
    });
}

/// Rows whose values are long, or whose conditions take long, are done some at a time; nobody is
/// kept waiting for all of them.
#[test]
fn long_rows_are_done_some_at_a_time() {
    with_zone("long-rows", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        let mut text = |text: String| scene.text(&mut host, A, &text);
        let long = text("a".repeat(1 << 19));
        let short = text("b".to_owned());
        // Neither a search for its beginning nor one from the end helps: it fails for long texts.
        let slow = text(format!("%{}_b%", "a".repeat(1000)));
        let quick = text("a%".to_owned());
        let function = code("textlike", &[Arg::Of(Kind::Text); 2]);
        let cases: [(u64, &[u64], &[u8]); 2] = [
            (quick, &[short, long, long, short, long], &[0, 1, 1, 0, 1]),
            (slow, &[short, long, short], &[0, 2, 0]),
        ];
        for (pattern, rows, expected) in cases {
            let program = Program {
                inputs: vec![Sort::Value(Kind::Text)],
                instructions: vec![
                    Instruction::Literal {
                        kind: Kind::Text,
                        fid: pattern,
                    },
                    Instruction::Test {
                        function: u16::try_from(function).unwrap(),
                        args: [0, 1, 0],
                    },
                    Instruction::Keep(2),
                ],
                ..Program::default()
            };
            let kept = keep(&mut host, &program).unwrap();
            assert_eq!(run(&mut host, kept, &[rows]), Ok(expected.to_vec()));
            if pattern == slow {
                host.area(go_on).unwrap().write_words(0, rows).unwrap();
                let descriptor = Descriptor {
                    a: kept,
                    n: 3,
                    ..Descriptor::of(Op::RunProgram)
                };
                let done = host.call(descriptor, go_on).unwrap().value;
                assert_eq!(
                    done, 2,
                    "the batch is answered behind the one that takes long"
                );
            }
        }
    });
}

#[test]
fn programs_that_are_not_there_or_not_valid_are_refused() {
    with_zone("no-program", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        let program = Program {
            inputs: vec![NUMBER],
            aggregates: vec![COUNT],
            ..Program::default()
        };
        let kept = keep(&mut host, &program).unwrap();
        let own = host.fresh().unwrap().bits();
        assert_eq!(run(&mut host, own, &[&[0]]), fault(Fault::ForgedFid));
        let mut other = scene.client(ORDINARY, &[A]);
        assert_eq!(run(&mut other, kept, &[&[0]]), fault(Fault::ForgedFid));
        // Of an aggregation nothing is asked ahead; of a condition there are no groups.
        let ahead = Descriptor {
            flags: strongroom_columns_ring::op::flag::AHEAD,
            a: kept,
            n: 1,
            ..Descriptor::of(Op::RunProgram)
        };
        let refused = host.call(ahead, go_on).map(|_| ());
        assert_eq!(refused, fault(Fault::BadRequest));
        // An aggregation that was refused is gone.
        let too_many = Descriptor {
            flags: 0,
            a: keep(&mut host, &program).unwrap(),
            n: 1025,
            ..ahead
        };
        let refused = host.call(too_many, go_on).map(|_| ());
        assert_eq!(refused, fault(Fault::BadRequest));
        let condition = keep(&mut host, &Program::default()).unwrap();
        let refused = groups(&mut host, condition, 1);
        assert_eq!(refused, fault(Fault::BadRequest));
        // A value of another kind is no input.
        let text = scene.text(&mut host, A, "x");
        let counted = Program {
            aggregates: vec![Step {
                fold: Fold::Count,
                of: Some(0),
                filter: None,
            }],
            ..program.clone()
        };
        let counted = keep(&mut host, &counted).unwrap();
        let refused = run(&mut host, counted, &[&[text]]);
        assert_eq!(refused, fault(Fault::KindMismatch));
        // Bytes that are no program, and an identifier of a statement that is over.
        host.area(go_on).unwrap().write(0, &[0xff; 64]).unwrap();
        let no_program = Descriptor {
            n: 64,
            r: own,
            ..Descriptor::of(Op::Program)
        };
        let refused = host.call(no_program, go_on).map(|_| ());
        assert_eq!(refused, fault(Fault::BadRequest));
        host.end_statement(go_on).unwrap();
        assert_eq!(run(&mut host, kept, &[&[0]]), fault(Fault::ForgedFid));
        let bytes = program.encode();
        host.area(go_on).unwrap().write(0, &bytes).unwrap();
        let stale = Descriptor {
            n: u32::try_from(bytes.len()).unwrap(),
            r: own,
            ..Descriptor::of(Op::Program)
        };
        let refused = host.call(stale, go_on).map(|_| ());
        assert_eq!(refused, fault(Fault::StaleFid));
    });
}
