//! Goal: a program tells no more than single operations would, is charged as they are, and is not
//! carried out where they would be refused.
//! Method: tickets with limits, and without rights.

use strongroom_columns_ring::function::Aggregate;
use strongroom_columns_ring::program::{Instruction, Program, Sort, orders};
use strongroom_columns_ring::{Broken, Fault, Host, Op};
use strongroom_format::columns::Kind;
use strongroom_format::columns::channel::{Ticket, right};

use super::programs::{COUNT, NUMBER, compare, compute, groups, keep, literal, of, run};
use super::refused::computed;
use super::{
    A, B, ORDINARY, Scene, call, fault, go_on, int8, lineage, of_kind, ordered_partition, promote,
    ticket, with_zone,
};

/// A ticket that no other session has.
fn limited(truths: u64) -> Ticket {
    Ticket {
        ticket_id: strongroom_crypto::random16().unwrap(),
        truths,
        ..ticket(ORDINARY, &[A])
    }
}

/// How many truths a session with so many has left after `act`, and what `act` returned.
fn left_after<T>(scene: &Scene, truths: u64, act: impl FnOnce(&Scene, &mut Host) -> T) -> (T, u64) {
    let mut host = scene.host();
    scene.owner.open(&mut host, &limited(truths)).unwrap();
    let outcome = act(scene, &mut host);
    host.end_statement(go_on).unwrap();
    let mut left = 0;
    loop {
        let (a, b) = (scene.int8(&mut host, A, 1), scene.int8(&mut host, A, 2));
        if of_kind(&mut host, Op::Compare, Kind::Int8, a, b).is_err() {
            return (outcome, left);
        }
        left += 1;
    }
}

/// E1: each truth of each row, and each token of a key, is charged as that of a single operation;
/// and so is what a program tells of rows that fail.
#[test]
fn a_program_is_charged_as_single_operations_are() {
    with_zone("program-charges", |scene| {
        // 300 comparisons.
        let compare = |limit: u64| Program {
            inputs: vec![NUMBER],
            instructions: vec![
                literal(limit),
                compare(orders::LESS, 0, 1),
                Instruction::Keep(2),
            ],
            ..Program::default()
        };
        let compared = |scene: &Scene, host: &mut Host| {
            let one = scene.int8(host, A, 1);
            let kept = keep(host, &compare(one)).unwrap();
            run(host, kept, &[&[one; 300]])
        };
        let (answers, left) = left_after(scene, 310, compared);
        assert_eq!((answers.map(|answers| answers.len()), left), (Ok(300), 10));
        let (answers, left) = left_after(scene, 299, compared);
        assert_eq!((answers, left), (fault(Fault::BudgetSpent), 0));

        // As many rows, of which nothing is told but whether each fails.
        let failing = |scene: &Scene, host: &mut Host| {
            let edge = scene.int8(host, A, i64::MAX - 5);
            let program = Program {
                inputs: vec![NUMBER],
                instructions: vec![
                    literal(edge),
                    compute("int8pl", 0, 1),
                    Instruction::IsNull(2),
                    Instruction::Keep(3),
                ],
                ..Program::default()
            };
            let kept = keep(host, &program).unwrap();
            let secrets: Vec<u64> = (0..10).map(|n| scene.int8(host, A, n)).collect();
            run(host, kept, &[&secrets])
        };
        let (answers, left) = left_after(scene, 30, failing);
        assert_eq!(answers, Ok(vec![0, 0, 0, 0, 0, 0, 2, 2, 2, 2]));
        assert!(left <= 20, "{left}");
    });
}

/// The same, of values that an earlier operation may have failed to compute, and of keys.
#[test]
fn failures_of_earlier_operations_and_tokens_are_charged_too() {
    with_zone("program-charges-2", |scene| {
        let failed = |scene: &Scene, host: &mut Host| {
            let edge = scene.int8(host, A, i64::MAX - 5);
            let secrets: Vec<u64> = (0..10).map(|n| scene.int8(host, A, n)).collect();
            let sums: Vec<u64> = secrets
                .iter()
                .map(|secret| int8(host, "int8pl", *secret, edge))
                .collect();
            let program = Program {
                inputs: vec![NUMBER],
                instructions: vec![Instruction::IsNull(0), Instruction::Keep(1)],
                ..Program::default()
            };
            let told = call(host, Op::Sync, 0, 0);
            assert_eq!(told, super::earlier(Fault::Int8OutOfRange));
            let kept = keep(host, &program).unwrap();
            run(host, kept, &[&sums])
        };
        let (answers, left) = left_after(scene, 30, failed);
        assert_eq!(answers, Ok(vec![0, 0, 0, 0, 0, 0, 2, 2, 2, 2]));
        assert!(left <= 19, "{left}");

        // Tokens of the rows' keys.
        let grouped = |scene: &Scene, host: &mut Host| {
            let one = scene.int8(host, A, 1);
            let program = Program {
                inputs: vec![NUMBER],
                keys: vec![0],
                ..Program::default()
            };
            let kept = keep(host, &program).unwrap();
            run(host, kept, &[&[one; 300]]).map(|_| ())
        };
        let (answers, left) = left_after(scene, 310, grouped);
        assert_eq!((answers, left), (Ok(()), 10));
        let (answers, _) = left_after(scene, 299, grouped);
        assert_eq!(answers, fault(Fault::BudgetSpent));
    });
}

/// E2: what is not allowed is not computed.
#[test]
fn a_program_without_the_right_is_not_carried_out() {
    with_zone("program-rights", |scene| {
        // Both keys are there while this session is.
        let mut owner = scene.client(ORDINARY, &[A, B]);
        let constants: Vec<u64> = [3, 1, 2]
            .iter()
            .map(|n| scene.int8_for(lineage(16_384), &mut owner, A, *n))
            .collect();
        let table = ordered_partition(&mut owner, 16_384);
        let (stored, _) = promote(&mut owner, table, 1, Kind::Int8, &constants).unwrap();
        let mut host = scene.client(right::COMPUTE | right::CONSTANT, &[A]);
        let one = scene.int8(&mut host, A, 1);
        let program = Program {
            inputs: vec![NUMBER],
            instructions: vec![
                literal(one),
                compare(orders::LESS, 0, 1),
                Instruction::Keep(2),
            ],
            ..Program::default()
        };
        let before = computed(scene, &mut owner);
        let kept = keep(&mut host, &program).unwrap();
        let refused = run(&mut host, kept, &[&[one, one]]);
        assert_eq!(refused, fault(Fault::NotAllowed));
        let grouping = Program {
            inputs: vec![NUMBER],
            keys: vec![0],
            ..Program::default()
        };
        let summing = Program {
            inputs: vec![NUMBER],
            aggregates: vec![of(Aggregate::Sum, 0)],
            ..Program::default()
        };
        for program in [&grouping, &summing] {
            let kept = keep(&mut host, program).unwrap();
            let refused = run(&mut host, kept, &[&[one, one]]);
            assert_eq!(refused, fault(Fault::NotAllowed));
        }
        // Without a session: the order of an ordered column's values, and nothing else of them.
        let mut nobody = scene.host();
        let order = Program {
            inputs: vec![NUMBER, NUMBER],
            instructions: vec![compare(orders::LESS, 0, 1), Instruction::Keep(2)],
            ..Program::default()
        };
        for program in [&grouping, &summing] {
            let kept = keep(&mut nobody, program).unwrap();
            let refused = run(&mut nobody, kept, &[&stored]);
            assert_eq!(refused, fault(Fault::NotAllowed));
        }
        assert_eq!(computed(scene, &mut owner), before, "nothing was computed");
        let kept = keep(&mut nobody, &order).unwrap();
        let turned = [stored[1], stored[2], stored[0]];
        assert_eq!(
            run(&mut nobody, kept, &[&stored, &turned]),
            Ok(vec![0, 1, 1])
        );
    });
}

/// A program that counts rows and adds up their numbers, and the outcome of these rows.
fn counted_and_added(host: &mut Host, numbers: &[u64]) -> (u64, Result<(), Broken>) {
    let program = Program {
        inputs: vec![Sort::Value(Kind::Float8)],
        aggregates: vec![COUNT, of(Aggregate::Sum, 0)],
        ..Program::default()
    };
    let kept = keep(host, &program).unwrap();
    (kept, run(host, kept, &[numbers]).map(|_| ()))
}

/// A4: whether a number could be added is charged before it is told.
#[test]
fn an_overflow_of_a_sum_is_charged_before_it_is_told() {
    with_zone("program-sums", |scene| {
        let mut host = scene.host();
        scene.owner.open(&mut host, &limited(3)).unwrap();
        let mut outcomes = Vec::new();
        for secret in [1e308, 1.0, 1e308, 1e308, 1.0] {
            let numbers = [1e308, secret].map(|number| scene.float8(&mut host, A, number));
            outcomes.push(counted_and_added(&mut host, &numbers).1);
            host.end_statement(go_on).unwrap();
        }
        let overflow = || fault(Fault::FloatOverflow);
        let spent = || fault(Fault::BudgetSpent);
        assert_eq!(outcomes, [overflow(), Ok(()), overflow(), spent(), spent()]);
    });
}

/// A sum that cannot overflow while it grows tells nothing, whatever its numbers.
#[test]
fn adding_what_cannot_fail_costs_nothing() {
    with_zone("program-free", |scene| {
        let added = |scene: &Scene, host: &mut Host| {
            let most = scene.int8(host, A, i64::MAX);
            let program = Program {
                inputs: vec![NUMBER],
                aggregates: vec![of(Aggregate::Sum, 0), of(Aggregate::Max, 0)],
                ..Program::default()
            };
            let kept = keep(host, &program).unwrap();
            run(host, kept, &[&[most; 600]]).map(|_| ())
        };
        assert_eq!(left_after(scene, 3, added), (Ok(()), 3));
    });
}

/// An aggregation to which a row could not be added is gone: the number of rows before that one
/// would tell which it was.
#[test]
fn an_aggregation_that_has_failed_is_gone() {
    with_zone("program-failed", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        let numbers = [1.0, 1e308, 1e308, 1.0].map(|number| scene.float8(&mut host, A, number));
        let (program, outcome) = counted_and_added(&mut host, &numbers);
        assert_eq!(outcome, fault(Fault::FloatOverflow));
        assert_eq!(groups(&mut host, program, 2), fault(Fault::ForgedFid));
    });
}

/// X6: a program is of the session that it was sent in. Otherwise the number of its groups would
/// tell which values of another session are equal to those of this one.
#[test]
fn a_program_ends_with_its_session() {
    with_zone("program-sessions", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        let grouping = Program {
            inputs: vec![NUMBER],
            keys: vec![0],
            ..Program::default()
        };
        let kept = keep(&mut host, &grouping).unwrap();
        let secret = scene.int8(&mut host, A, 7);
        run(&mut host, kept, &[&[secret]]).unwrap();
        scene.owner.open(&mut host, &limited(u64::MAX)).unwrap();
        let guess = scene.int8(&mut host, A, 7);
        let refused = run(&mut host, kept, &[&[guess]]);
        assert_eq!(refused, fault(Fault::ForgedFid));
    });
}
