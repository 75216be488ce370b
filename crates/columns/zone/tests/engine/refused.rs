//! Goal: what a ring may not ask is refused before anything is computed: the server sees for how
//! long the zone computes, and could tell values by that.
//! Method: the zone counts how many values were computed since the start; every operation on values
//! is refused, and the number stays.

use strongroom_columns_ring::function::{Aggregate, Arg};
use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{Broken, Descriptor, Fault, Host, Op};
use strongroom_format::columns::channel::right::ORDINARY;
use strongroom_format::columns::channel::{Ticket, right};
use strongroom_format::columns::{Kind, Lineage};

use super::{
    A, B, Scene, call, call_bytes, code, earlier, fault, go_on, lineage, of_kind,
    ordered_partition, output, promote, ticket, with_zone,
};

/// How many values were computed since the start, for what this ring has asked among others.
pub(crate) fn computed(scene: &Scene, host: &mut Host) -> u64 {
    status(host);
    scene.computed.get()
}

/// How many truths were given under the ticket whose id is this byte, in hexadecimal, 16 times.
fn truths(host: &mut Host, byte: &str) -> u64 {
    let status = status(host);
    let (_, ledger) = status.split_once(&byte.repeat(16)).unwrap();
    number(ledger, "\"truths\":")
}

pub(crate) fn status(host: &mut Host) -> String {
    String::from_utf8(call_bytes(host, Op::Status, &[]).unwrap()).unwrap()
}

/// The number behind the first occurrence of this name.
fn number(text: &str, name: &str) -> u64 {
    let (_, behind) = text.split_once(name).unwrap();
    let digits = behind.split(|char: char| !char.is_ascii_digit()).next();
    digits.unwrap().parse().unwrap()
}

/// Texts stored in the ordered column 1 under the key A, and one in column 2 under B.
fn stored(scene: &Scene, owner: &mut Host) -> Vec<u64> {
    let table = ordered_partition(owner, 16_384);
    let text = |owner: &mut Host, of, key, text: &str| {
        let sealed = scene.owner.seal_for(of, key, Kind::Text, text.as_bytes());
        super::intake(owner, Kind::Text, &sealed, 0).unwrap()
    };
    let values = ["a", "ab", "b%"].map(|value| text(owner, lineage(16_384), A, value));
    let (mut fids, _) = promote(owner, table, 1, Kind::Text, &values).unwrap();
    let other = text(owner, Lineage::CLIENT, B, "a");
    fids.extend(promote(owner, table, 2, Kind::Text, &[other]).unwrap().0);
    owner.end_statement(go_on).unwrap();
    fids
}

/// An operation on many identifiers, whose functions are those of text.
fn many(host: &mut Host, descriptor: Descriptor, words: &[u64]) -> Result<u64, Broken> {
    host.area(go_on)?.write_words(0, words).unwrap();
    host.call(descriptor, go_on).map(|answer| answer.value)
}

/// Posts an operation, and returns what the next call says of it.
fn posted(host: &mut Host, descriptor: Descriptor) -> Result<u64, Broken> {
    let r = host.fresh().unwrap().bits();
    host.post(Descriptor { r, ..descriptor }, go_on).unwrap();
    call(host, Op::Sync, 0, 0)
}

/// Asks everything that needs a right about these values: three of one column, one of another.
/// Each has to be refused with this fault.
fn every_question(host: &mut Host, fids: &[u64], refusal: Fault) {
    let text = Arg::Of(Kind::Text);
    let like = code("textlike", &[text, text]);
    let flags = u16::from(Kind::Text.number());
    let of = |op| Descriptor {
        flags,
        n: 3,
        ..Descriptor::of(op)
    };
    let (one, other) = (fids[0], fids[3]);
    let test = Descriptor {
        n: like,
        a: one,
        b: fids[2],
        ..Descriptor::of(Op::Test)
    };
    let tests = Descriptor {
        n: like,
        a: fids[2],
        r: 3,
        ..Descriptor::of(Op::TestMany)
    };
    let against_other = Descriptor {
        a: other,
        ..of(Op::CompareMany)
    };
    let pairs = Descriptor {
        flags: flags | flag::PAIRS,
        n: 2,
        ..Descriptor::of(Op::CompareMany)
    };
    let answers = [
        of_kind(host, Op::Compare, Kind::Text, one, other),
        many(host, against_other, fids),
        many(host, pairs, &[other, one, one, other]),
        host.call(test, go_on).map(|answer| answer.value),
        many(host, tests, fids),
        of_kind(host, Op::Token, Kind::Text, one, 0),
        many(host, of(Op::TokenMany), fids),
        many(
            host,
            Descriptor {
                n: 4,
                ..of(Op::RankMany)
            },
            fids,
        ),
        of_kind(host, Op::Declassify, Kind::Text, one, 0),
    ];
    for (at, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer, fault(refusal), "question {at}");
    }
}

/// Asks for a computation and for an aggregate of a text, which nobody waits for. Both have to be
/// refused.
fn every_posted_question(host: &mut Host, text: u64) {
    let of = Arg::Of(Kind::Text);
    let computes = Descriptor {
        n: code("textcat", &[of, of]),
        a: text,
        b: text,
        ..Descriptor::of(Op::Compute)
    };
    assert_eq!(posted(host, computes), earlier(Fault::NotAllowed));
    let accumulates = Descriptor {
        flags: u16::from(Kind::Text.number()),
        n: Aggregate::Min as u32,
        b: text,
        ..Descriptor::of(Op::Accumulate)
    };
    assert_eq!(posted(host, accumulates), earlier(Fault::NotAllowed));
    host.end_statement(go_on).unwrap();
}

#[test]
fn nothing_is_computed_for_a_ring_without_a_session() {
    with_zone("refused", |scene| {
        let mut owner = scene.client(ORDINARY, &[A, B]);
        let fids = stored(scene, &mut owner);
        let mut host = scene.host();
        let before = computed(scene, &mut host);
        every_question(&mut host, &fids, Fault::NotAllowed);
        every_posted_question(&mut host, fids[0]);
        assert_eq!(computed(scene, &mut host), before);
        // The count is one that rises: what everybody may ask is computed.
        of_kind(&mut host, Op::Compare, Kind::Text, fids[0], fids[1]).unwrap();
        assert_eq!(computed(scene, &mut host), before + 1);
    });
}

#[test]
fn nothing_is_computed_without_the_right() {
    with_zone("rightless", |scene| {
        let mut owner = scene.client(ORDINARY, &[A, B]);
        let fids = stored(scene, &mut owner);
        let mut host = scene.client(right::OUTPUT | right::CONSTANT, &[A, B]);
        let before = computed(scene, &mut host);
        every_question(&mut host, &fids, Fault::NotAllowed);
        every_posted_question(&mut host, fids[0]);
        assert_eq!(computed(scene, &mut host), before);
    });
}

#[test]
fn nothing_is_computed_when_the_budget_is_spent() {
    with_zone("spent", |scene| {
        let mut owner = scene.client(ORDINARY, &[A, B]);
        let fids = stored(scene, &mut owner);
        let mut host = scene.host();
        let spent = Ticket {
            ticket_id: [5; 16],
            truths: 0,
            outputs: 0,
            ..ticket(ORDINARY | right::DECLASSIFY, &[A, B])
        };
        scene.owner.open(&mut host, &spent).unwrap();
        let before = computed(scene, &mut host);
        every_question(&mut host, &fids, Fault::BudgetSpent);
        let sealed = output(&mut host, Kind::Text, &fids[..1]);
        assert_eq!(sealed.map(drop), fault(Fault::BudgetSpent));
        assert_eq!(computed(scene, &mut host), before);
    });
}

/// A batch whose last value is not the ring's to ask about is charged for what was computed before
/// it: the ring saw how long that took.
#[test]
fn what_was_computed_counts_although_it_is_not_given() {
    with_zone("half", |scene| {
        let mut owner = scene.client(ORDINARY, &[A, B]);
        let fids = stored(scene, &mut owner);
        let mut host = scene.host();
        let limited = Ticket {
            ticket_id: [6; 16],
            truths: 100,
            ..ticket(ORDINARY, &[A])
        };
        scene.owner.open(&mut host, &limited).unwrap();
        let before = computed(scene, &mut host);
        let tokens = Descriptor {
            flags: u16::from(Kind::Text.number()),
            n: 4,
            ..Descriptor::of(Op::TokenMany)
        };
        assert_eq!(many(&mut host, tokens, &fids), fault(Fault::NotAllowed));
        assert_eq!(computed(scene, &mut host), before + 3);
        assert_eq!(truths(&mut host, "06"), 3);
    });
}

/// What everybody gets needs no right of a ticket, but it is charged to one, and not given where
/// the budget has fewer left.
#[test]
fn what_is_free_without_a_ticket_is_charged_to_one() {
    with_zone("charged", |scene| {
        let mut owner = scene.client(ORDINARY, &[A, B]);
        let fids = stored(scene, &mut owner);
        let mut host = scene.host();
        // No right at all on this column.
        let other = Ticket {
            ticket_id: [8; 16],
            truths: 5,
            ..ticket(right::OUTPUT, &[B])
        };
        scene.owner.open(&mut host, &other).unwrap();
        let of = |op| Descriptor {
            flags: u16::from(Kind::Text.number()),
            n: 3,
            ..Descriptor::of(op)
        };
        let with_first = Descriptor {
            a: fids[0],
            ..of(Op::CompareMany)
        };
        assert_eq!(many(&mut host, of(Op::RankMany), &fids[..3]), Ok(3));
        let spent = many(&mut host, with_first, &fids[..3]);
        assert_eq!(spent, fault(Fault::BudgetSpent));
        assert_eq!(truths(&mut host, "08"), 3, "none was given");
        for _ in 0..2 {
            of_kind(&mut host, Op::Compare, Kind::Text, fids[0], fids[1]).unwrap();
        }
        let spent = of_kind(&mut host, Op::Compare, Kind::Text, fids[0], fids[1]);
        assert_eq!(spent, fault(Fault::BudgetSpent));
        assert_eq!(truths(&mut host, "08"), 5);
    });
}

/// The condition of `LIKE` on two stored values of one column is not their order, which everybody
/// gets: it is in no index.
#[test]
fn a_pattern_in_the_column_is_not_matched_without_a_session() {
    with_zone("like", |scene| {
        let mut owner = scene.client(ORDINARY, &[A, B]);
        let fids = stored(scene, &mut owner);
        let text = Arg::Of(Kind::Text);
        for name in ["textlike", "texticlike", "textregexeq", "starts_with"] {
            let test = Descriptor {
                n: code(name, &[text, text]),
                a: fids[0],
                b: fids[2],
                ..Descriptor::of(Op::Test)
            };
            let ask = |host: &mut Host| host.call(test, go_on).map(|answer| answer.value);
            assert_eq!(ask(&mut scene.host()), fault(Fault::NotAllowed), "{name}");
            assert_eq!(ask(&mut owner), Ok(0), "{name}");
        }
    });
}
