//! What a ticket gives, and on which columns.

use strongroom_columns_ring::function::Arg;
use strongroom_columns_ring::{Broken, Fault, Host, Op};
use strongroom_format::columns::channel::{Ticket, right};
use strongroom_format::columns::{Kind, Lineage};

use super::refused::status;
use super::{
    A, B, ORDINARY, call, code, compute, earlier, fault, go_on, int8, intake, of_kind, ticket,
    with_zone,
};

#[test]
fn a_ticket_gives_its_rights_on_its_columns_and_no_more() {
    with_zone("rights", |scene| {
        // Both keys are there while this session is.
        let other = scene.client(ORDINARY, &[A, B]);
        let mut host = scene.client(right::COMPARE | right::COMPUTE, &[A]);
        let a = scene.int8(&mut host, A, 1);
        let compared = of_kind(&mut host, Op::Compare, Kind::Int8, a, a);
        assert_eq!(compared, fault(Fault::NotAllowed), "a constant");
        let mut host = scene.client(ORDINARY & !right::OUTPUT, &[A]);
        let (a, b) = (scene.int8(&mut host, A, 1), scene.int8(&mut host, B, 1));
        let sum = int8(&mut host, "int8pl", a, a);
        assert_eq!(scene.opened_int8(&mut host, sum), fault(Fault::NotAllowed));
        assert_eq!(
            scene.opened_int8(&mut host, a),
            Ok(1),
            "what came in may go out"
        );
        int8(&mut host, "int8pl", a, b);
        assert_eq!(
            call(&mut host, Op::Sync, 0, 0),
            earlier(Fault::NotAllowed),
            "B is not the ticket's"
        );
        drop(other);
    });
}

/// A session that another one of its ring replaces is over, and its keys go with it.
#[test]
fn the_next_session_of_a_ring_ends_the_one_before() {
    with_zone("next", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        let sealed = scene.owner.seal(A, Kind::Int8, &[0; 8]);
        assert!(intake(&mut host, Kind::Int8, &sealed, 0).is_ok());
        scene
            .owner
            .open(&mut host, &ticket(ORDINARY, &[B]))
            .unwrap();
        let refused = intake(&mut host, Kind::Int8, &sealed, 0);
        assert_eq!(refused, fault(Fault::NoColumnKey));
    });
}

/// Whether a computation has failed, as the next call tells.
fn fails(host: &mut Host, name: &str, a: u64, b: u64) -> Result<bool, Broken> {
    int8(host, name, a, b);
    match call(host, Op::Sync, 0, 0) {
        Ok(_) => Ok(false),
        Err(Broken::Earlier(Fault::Int8OutOfRange | Fault::DivisionByZero)) => Ok(true),
        Err(other) => Err(other),
    }
}

fn limited(truths: u64) -> Ticket {
    Ticket {
        ticket_id: [7; 16],
        truths,
        ..ticket(ORDINARY, &[A])
    }
}

/// A4: an overflow tells where a value is as a comparison does, and so does there being none.
#[test]
fn failing_and_not_failing_are_answers_of_the_budget() {
    with_zone("checks", |scene| {
        let mut host = scene.host();
        scene.owner.open(&mut host, &limited(20)).unwrap();
        let (mut low, mut high, mut asked) = (0_i64, 1_i64 << 40, 0);
        let spent = loop {
            let middle = low + (high - low) / 2;
            let secret = scene.int8(&mut host, A, 1_234_567);
            let edge = scene.int8(&mut host, A, i64::MAX - middle);
            match fails(&mut host, "int8pl", secret, edge) {
                Ok(true) => low = middle + 1,
                Ok(false) => high = middle,
                Err(broken) => break broken,
            }
            asked += 1;
            host.end_statement(go_on).unwrap();
        };
        assert_eq!((spent, asked), (Broken::Earlier(Fault::BudgetSpent), 20));
        assert!(high - low >= (1 << 20) - 1, "a bit for each");
        // Nothing at all is told of this statement any more, and of another one nothing that was
        // computed.
        let any = call(&mut host, Op::Sync, 0, 0);
        assert_eq!(any, earlier(Fault::BudgetSpent));
        host.end_statement(go_on).unwrap();
        let secret = scene.int8(&mut host, A, 5);
        assert_eq!(scene.opened_int8(&mut host, secret), Ok(5));
        let double = int8(&mut host, "int8pl", secret, secret);
        let any = scene.opened_int8(&mut host, double);
        assert_eq!(any, earlier(Fault::BudgetSpent));
    });
}

/// A4: where one of many values has failed, it is an answer as well which one.
#[test]
fn which_one_has_failed_is_asked_at_a_price() {
    with_zone("which", |scene| {
        let mut host = scene.host();
        scene.owner.open(&mut host, &limited(5)).unwrap();
        let secret = scene.int8(&mut host, A, 50);
        let edges: Vec<u64> = (46..54)
            .map(|edge| scene.int8(&mut host, A, i64::MAX - edge))
            .collect();
        let sums: Vec<u64> = edges
            .iter()
            .map(|edge| int8(&mut host, "int8pl", secret, *edge))
            .collect();
        let told = call(&mut host, Op::Sync, 0, 0);
        assert_eq!(told, earlier(Fault::Int8OutOfRange));
        for sum in sums.iter().rev().take(4) {
            assert!(scene.opened_int8(&mut host, *sum).is_ok());
        }
        let fifth = scene.opened_int8(&mut host, sums[3]);
        assert_eq!(fifth, earlier(Fault::BudgetSpent));
    });
}

/// A3: a connection that is made again finds the budget as the one before left it.
#[test]
fn what_a_ticket_allows_its_sessions_have_together() {
    with_zone("together", |scene| {
        let mut host = scene.host();
        scene.owner.open(&mut host, &limited(3)).unwrap();
        let compared = |host: &mut Host| {
            let (a, b) = (scene.int8(host, A, 1), scene.int8(host, A, 2));
            of_kind(host, Op::Compare, Kind::Int8, a, b).map(drop)
        };
        assert_eq!(compared(&mut host), Ok(()));
        let mut beside = scene.host();
        scene.owner.open(&mut beside, &limited(3)).unwrap();
        assert_eq!(compared(&mut beside), Ok(()));
        drop(host);
        drop(beside);
        let mut again = scene.host();
        scene.owner.open(&mut again, &limited(3)).unwrap();
        assert_eq!(compared(&mut again), Ok(()));
        assert_eq!(compared(&mut again), fault(Fault::BudgetSpent));
        let mut other = scene.client(ORDINARY, &[A]);
        assert_eq!(compared(&mut other), Ok(()), "another ticket");
    });
}

/// Nobody who asks for attestations keeps others from having theirs answered.
#[test]
fn agreements_of_one_ring_make_room_for_one_another_only() {
    with_zone("agreements", |scene| {
        let (mut host, mut loud) = (scene.host(), scene.host());
        let begun = scene.owner.ask(&mut host).unwrap();
        for _ in 0..200 {
            scene.owner.ask(&mut loud).unwrap();
        }
        let ticket = ticket(ORDINARY, &[A]);
        assert!(scene.owner.answer(&mut host, begun, &ticket).is_ok());
        // Of its own only so many wait.
        let first = scene.owner.ask(&mut loud).unwrap();
        for _ in 0..4 {
            scene.owner.ask(&mut loud).unwrap();
        }
        let late = scene.owner.answer(&mut loud, first, &ticket);
        assert_eq!(late, fault(Fault::BadMessage));
    });
}

/// A4: whether the owner's computations have failed is the owner's to be charged for. A backend
/// that could begin a session of its own key first would have it for nothing.
#[test]
fn no_session_begins_where_something_has_failed() {
    with_zone("replaced", |scene| {
        // Nothing has failed yet: that is an answer, charged to the session that computed.
        let mut host = scene.host();
        scene.owner.open(&mut host, &limited(2)).unwrap();
        let one = scene.int8(&mut host, A, 1);
        int8(&mut host, "int8pl", one, one);
        scene
            .owner
            .open(&mut host, &ticket(ORDINARY, &[B]))
            .unwrap();
        let mut again = scene.host();
        scene.owner.open(&mut again, &limited(2)).unwrap();
        let one = scene.int8(&mut again, A, 1);
        int8(&mut again, "int8pl", one, one);
        assert_eq!(call(&mut again, Op::Sync, 0, 0), Ok(0), "the second of two");
        let third = fails(&mut again, "int8pl", one, one);
        assert_eq!(third, earlier(Fault::BudgetSpent));
        // Something has: no session, until the statement is over.
        let mut host = scene.client(ORDINARY, &[A]);
        let zero = scene.int8(&mut host, A, 0);
        int8(&mut host, "int8div", zero, zero);
        assert!(
            scene
                .owner
                .open(&mut host, &ticket(ORDINARY, &[B]))
                .is_err()
        );
        let mut leader = scene.client(ORDINARY, &[B]);
        let secret = call(&mut leader, Op::Lead, 0, 0).unwrap();
        let arena = u64::from(leader.arena());
        let joined = call(&mut host, Op::Join, arena, secret);
        assert_eq!(joined, earlier(Fault::DivisionByZero), "told once");
        let joined = call(&mut host, Op::Join, arena, secret);
        assert_eq!(joined, fault(Fault::NotAllowed));
        host.end_statement(go_on).unwrap();
        scene
            .owner
            .open(&mut host, &ticket(ORDINARY, &[B]))
            .unwrap();
        assert!(call(&mut host, Op::Join, arena, secret).is_ok());
    });
}

/// A4: what one ring of a parallel group has computed shows its outcome to all of them.
#[test]
fn a_group_s_outcomes_are_charged_to_whoever_can_see_them() {
    with_zone("outcomes", |scene| {
        let mut leader = scene.host();
        scene.owner.open(&mut leader, &limited(3)).unwrap();
        let secret = call(&mut leader, Op::Lead, 0, 0).unwrap();
        let arena = u64::from(leader.arena());
        let mut member = scene.host();
        call(&mut member, Op::Join, arena, secret).unwrap();
        let zero = scene.int8(&mut member, A, 0);
        let failed = int8(&mut member, "int8div", zero, zero);
        let done = int8(&mut member, "int8pl", zero, zero);
        // The zone has done it.
        status(&mut member);
        // Each of the leader's calls could tell which of them has failed: one truth each.
        let wrong = |host: &mut Host, fid: u64| of_kind(host, Op::Compare, Kind::Text, fid, fid);
        assert_eq!(wrong(&mut leader, failed), fault(Fault::DivisionByZero));
        assert_eq!(wrong(&mut leader, done), fault(Fault::KindMismatch));
        // Nor does another session of the group begin without.
        let other = ticket(ORDINARY, &[B]);
        assert!(scene.owner.open(&mut leader, &other).is_err());
        for fid in [failed, done] {
            assert_eq!(wrong(&mut leader, fid), earlier(Fault::BudgetSpent));
        }
        // The leader's statement ends, and the member's does not: nothing is told of it.
        leader.end_statement(go_on).unwrap();
        for fid in [failed, done] {
            assert_eq!(wrong(&mut member, fid), earlier(Fault::NotAllowed));
        }
        member.end_statement(go_on).unwrap();
        scene
            .owner
            .open(&mut member, &ticket(ORDINARY, &[A]))
            .unwrap();
        let one = scene.int8(&mut member, A, 1);
        let two = int8(&mut member, "int8pl", one, one);
        assert_eq!(scene.opened_int8(&mut member, two), Ok(2));
    });
}

/// A member of a group uses its leader's session, and its own has ended.
#[test]
fn a_ring_that_joins_a_group_leaves_no_session_behind() {
    with_zone("left", |scene| {
        let mut leader = scene.client(ORDINARY, &[A]);
        let secret = call(&mut leader, Op::Lead, 0, 0).unwrap();
        let arena = u64::from(leader.arena());
        let sessions = |host: &mut Host| {
            let status = status(host);
            let count = status.split("\"sessions\":").nth(1).unwrap();
            count.split(',').next().unwrap().to_owned()
        };
        let mut member = scene.client(ORDINARY, &[B]);
        assert_eq!(sessions(&mut member), "2");
        call(&mut member, Op::Join, arena, secret).unwrap();
        assert_eq!(sessions(&mut member), "1");
    });
}

/// The tokens of two values under the ring's session.
fn tokens(host: &mut Host, fids: [u64; 2]) -> [u64; 2] {
    fids.map(|fid| of_kind(host, Op::Token, Kind::Int8, fid, 0).unwrap())
}

/// X6: tokens are of a session, too. A backend could otherwise have those of a dictionary under a
/// key of its own, and compare them with those that the owner's query asks for.
#[test]
fn tokens_of_two_sessions_within_a_statement_are_unrelated() {
    with_zone("tokens", |scene| {
        let own = |host: &mut Host, key| scene.owner.open(host, &ticket(ORDINARY, &[key]));
        let mut host = scene.host();
        own(&mut host, B).unwrap();
        let guesses = [1, 2].map(|value| scene.int8(&mut host, B, value));
        let dictionary = tokens(&mut host, guesses);
        assert_eq!(tokens(&mut host, guesses), dictionary, "of one session");
        own(&mut host, A).unwrap();
        let secret = scene.int8(&mut host, A, 2);
        let of_owner = tokens(&mut host, [secret, secret]);
        assert!(!dictionary.contains(&of_owner[0]));
        // The other way round, too.
        own(&mut host, B).unwrap();
        let guesses = [1, 2].map(|value| scene.int8(&mut host, B, value));
        let dictionary = tokens(&mut host, guesses);
        assert!(!dictionary.contains(&of_owner[0]));
        // A ring that joins a group leaves its tokens behind, and has those of the group.
        let mut leader = scene.client(ORDINARY, &[B]);
        let secret = call(&mut leader, Op::Lead, 0, 0).unwrap();
        let arena = u64::from(leader.arena());
        call(&mut host, Op::Join, arena, secret).unwrap();
        let of_group = tokens(&mut host, guesses);
        assert!(!dictionary.contains(&of_group[0]));
        assert_eq!(tokens(&mut leader, guesses), of_group);
    });
}

/// Everybody sees the status, so nothing of it depends on a value.
#[test]
fn the_status_does_not_tell_values() {
    let status_after = |name: &str, divisor: i64, text: &str| {
        let mut shown = String::new();
        with_zone(name, |scene| {
            let mut host = scene.client(ORDINARY, &[A]);
            let (six, by) = (
                scene.int8(&mut host, A, 6),
                scene.int8(&mut host, A, divisor),
            );
            let lineage = Lineage::CLIENT;
            let sealed = (scene.owner).seal_for(lineage, A, Kind::Text, text.as_bytes());
            let text = intake(&mut host, Kind::Text, &sealed, 0).unwrap();
            let ratio = int8(&mut host, "int8div", six, by);
            int8(&mut host, "int8pl", ratio, ratio);
            let both = [Arg::Of(Kind::Text); 2];
            compute(&mut host, code("textcat", &both), text, text);
            assert_eq!(call(&mut host, Op::Sync, 0, 0).is_ok(), divisor != 0);
            host.end_statement(go_on).unwrap();
            shown = status(&mut host);
        });
        // Tickets have random names.
        let parts = shown.split("\"ticket\":\"").enumerate();
        let named = parts.map(|(at, part)| if at == 0 { part } else { &part[32..] });
        named.collect::<Vec<_>>().join("")
    };
    let sound = status_after("sound", 2, "a");
    assert!(sound.contains("\"computed\":3"), "{sound}");
    assert_eq!(status_after("long", 2, &"a".repeat(100_000)), sound);
    assert_eq!(status_after("failing", 0, "a"), sound);
}
