//! Goal: single operations do what they say, for those that may ask for them.
//! Method: values computed, kept, compared and added up beside the same in Rust; every descriptor.

use std::time::Duration;

use strongroom_columns_ring::function::{Aggregate, Arg};
use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{ANSWER_HALF, Broken, Descriptor, Fault, Host, Op};
use strongroom_format::columns::channel::right::{self, ORDINARY};
use strongroom_format::columns::{Kind, Lineage};

use super::lineages::{lineage, ordered_partition};
use super::owner::intake;
use super::{
    A, B, Scene, call, call_bytes, code, compute, earlier, fault, go_on, int8, of_kind, promote,
    with_zone,
};

#[test]
fn values_go_in_are_computed_with_and_come_out() {
    with_zone("compute", |scene| {
        let mut host = scene.client(ORDINARY, &[A, B]);
        let a = scene.int8(&mut host, A, 40);
        let b = scene.int8(&mut host, B, 2);
        let sum = int8(&mut host, "int8pl", a, b);
        let product = int8(&mut host, "int8mul", sum, sum);
        assert_eq!(scene.opened_int8(&mut host, product), Ok(1764));
        // Of two keys: sealed under the first of the ticket. Of one: under that.
        assert_eq!(scene.opened(&mut host, Kind::Int8, sum).unwrap().0, A);
        let twice = int8(&mut host, "int8pl", b, b);
        assert_eq!(scene.opened(&mut host, Kind::Int8, twice).unwrap().0, B);
        assert_eq!(of_kind(&mut host, Op::Compare, Kind::Int8, a, b), Ok(1));
        assert_eq!(
            of_kind(&mut host, Op::Compare, Kind::Int8, b, a),
            Ok(u64::MAX)
        );
        let mismatch = of_kind(&mut host, Op::Compare, Kind::Int4, b, a);
        assert_eq!(mismatch, fault(Fault::KindMismatch));

        let text = |text: &str| scene.owner.seal(A, Kind::Text, text.as_bytes());
        let long = intake(
            &mut host,
            Kind::Text,
            &text("a rather long text, out of line"),
            0,
        )
        .unwrap();
        let pattern = intake(&mut host, Kind::Text, &text("%rather%"), flag::LITERAL).unwrap();
        let kind = Arg::Of(Kind::Text);
        let like = Descriptor {
            n: code("textlike", &[kind, kind]),
            a: long,
            b: pattern,
            ..Descriptor::of(Op::Test)
        };
        assert_eq!(host.call(like, go_on).unwrap().value, 1);
        let third = Descriptor {
            a: 6,
            ..Descriptor::of(Op::ThirdArgument)
        };
        host.post(third, go_on).unwrap();
        let part = compute(
            &mut host,
            code("substring", &[kind, Arg::Plain, Arg::Plain]),
            long,
            3,
        );
        assert_eq!(
            scene.opened(&mut host, Kind::Text, part).unwrap().1,
            b"rather"
        );
    });
}

#[test]
fn literals_are_found_again_and_outlive_the_statement() {
    with_zone("literals", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        let sealed = scene.owner.seal(A, Kind::Int8, &77_i64.to_be_bytes());
        let first = intake(&mut host, Kind::Int8, &sealed, flag::LITERAL).unwrap();
        host.end_statement(go_on).unwrap();
        assert_eq!(
            intake(&mut host, Kind::Int8, &sealed, flag::LITERAL),
            Ok(first)
        );
        assert_eq!(scene.opened_int8(&mut host, first), Ok(77));
        let mut bad = sealed;
        bad[40] ^= 1;
        let refused = intake(&mut host, Kind::Int8, &bad, flag::LITERAL);
        assert_eq!(refused, fault(Fault::BadEnvelope));
    });
}

#[test]
fn stored_values_stay_and_are_compared_without_a_ticket_in_one_column_only() {
    with_zone("stored", |scene| {
        // Keys get to the zone with a client's session, and stay with the columns that are bound to
        // them.
        let mut owner = scene.client(ORDINARY, &[A, B]);
        let mut host = scene.host();
        let table = ordered_partition(&mut owner, 16_384);
        let of = lineage(16_384);
        // Constants are for a ticket: stored side by side with a column's values they could be
        // compared with them.
        for lineage in [Lineage::CLIENT, of] {
            let constant = scene.int8_for(lineage, &mut host, A, 5);
            let refused = promote(&mut host, table, 1, Kind::Int8, &[constant]);
            assert_eq!(refused, fault(Fault::NotAllowed));
        }
        host.end_statement(go_on).unwrap();
        let values: Vec<u64> = [5, 3, 9, 3]
            .map(|value| scene.int8_for(of, &mut owner, A, value))
            .to_vec();
        let (stored, record) = promote(&mut owner, table, 1, Kind::Int8, &values).unwrap();
        assert!(!record.is_empty());
        owner.end_statement(go_on).unwrap();
        // Kept as they are by a second promotion into the same column; another column is for a
        // ticket.
        let (again, record) = promote(&mut host, table, 1, Kind::Int8, &stored).unwrap();
        assert_eq!((again == stored, record.len()), (true, 0));
        let other = scene.int8(&mut owner, B, 1);
        let (other, _) = promote(&mut owner, table, 2, Kind::Int8, &[other]).unwrap();
        let moved = promote(&mut host, table, 2, Kind::Int8, &stored);
        assert_eq!(moved, fault(Fault::NotAllowed));

        let compare = |host: &mut Host, a, b| of_kind(host, Op::Compare, Kind::Int8, a, b);
        assert_eq!(compare(&mut host, stored[0], stored[1]), Ok(1));
        assert_eq!(compare(&mut host, stored[1], stored[3]), Ok(0));
        host.area(go_on).unwrap().write_words(0, &stored).unwrap();
        let rank = Descriptor {
            flags: u16::from(Kind::Int8.number()),
            n: 4,
            ..Descriptor::of(Op::RankMany)
        };
        host.call(rank, go_on).unwrap();
        let mut ranks = [9; 4];
        host.area(go_on).unwrap().read_words(0, &mut ranks).unwrap();
        assert_eq!(ranks, [1, 0, 2, 0]);

        // Nothing else: no constant, no computation, no other column, no token.
        let constant = scene.int8(&mut host, A, 4);
        assert_eq!(
            compare(&mut host, stored[0], constant),
            fault(Fault::NotAllowed)
        );
        assert_eq!(
            compare(&mut host, stored[0], other[0]),
            fault(Fault::NotAllowed)
        );
        let token = of_kind(&mut host, Op::Token, Kind::Int8, stored[0], 0);
        assert_eq!(token, fault(Fault::NotAllowed));
        int8(&mut host, "int8mi", stored[0], stored[0]);
        assert_eq!(call(&mut host, Op::Sync, 0, 0), earlier(Fault::NotAllowed));
        host.end_statement(go_on).unwrap();
        // Sealed under the column's key.
        assert_eq!(scene.opened(&mut host, Kind::Int8, stored[2]).unwrap().0, A);
        let foreign = scene.int8(&mut host, B, 1);
        let bound = promote(&mut host, table, 1, Kind::Int8, &[foreign]);
        assert_eq!(bound, fault(Fault::NotAllowed), "a column has one key");

        with_a_ticket(scene, &mut owner, &stored, other[0]);
    });
}

/// With the ticket all of that is possible.
fn with_a_ticket(scene: &Scene, owner: &mut Host, stored: &[u64], other: u64) {
    let sum = int8(owner, "int8pl", stored[0], other);
    assert_eq!(scene.opened_int8(owner, sum), Ok(6));
    let same = [stored[1], stored[3], stored[0]]
        .map(|fid| of_kind(owner, Op::Token, Kind::Int8, fid, 0).unwrap());
    assert!(same[0] == same[1] && same[0] != same[2]);
    owner.end_statement(go_on).unwrap();
    let later = of_kind(owner, Op::Token, Kind::Int8, stored[1], 0).unwrap();
    assert_ne!(later, same[0], "tokens of two statements are unrelated");
    owner.area(go_on).unwrap().write_words(0, stored).unwrap();
    let five = scene.int8(owner, A, 5);
    owner.area(go_on).unwrap().write_words(0, stored).unwrap();
    let many = Descriptor {
        flags: u16::from(Kind::Int8.number()),
        n: 4,
        a: five,
        ..Descriptor::of(Op::CompareMany)
    };
    owner.call(many, go_on).unwrap();
    let mut orders = [9; 4];
    owner
        .area(go_on)
        .unwrap()
        .read(ANSWER_HALF, &mut orders)
        .unwrap();
    assert_eq!(orders, [1, 0, 2, 0]);
    super::batches::in_batches(owner, stored, five);
    // To another column of the table: copies, bound to the same key.
    let table = stored[0] >> 48;
    let (copies, record) = promote(owner, table, 3, Kind::Int8, stored).unwrap();
    assert!(!record.is_empty() && copies.iter().all(|copy| !stored.contains(copy)));
    assert_eq!(scene.opened_int8(owner, copies[2]), Ok(9));
    let mut stranger = scene.client(ORDINARY & !right::COMPUTE, &[A]);
    let refused = promote(&mut stranger, table, 3, Kind::Int8, stored);
    assert_eq!(refused, fault(Fault::NotAllowed));
}

#[test]
fn aggregates_accumulate_combine_and_finish_across_a_parallel_group() {
    with_zone("aggregates", |scene| {
        let mut leader = scene.client(ORDINARY, &[A]);
        let secret = call(&mut leader, Op::Lead, 0, 0).unwrap();
        let mut worker = scene.host();
        let number = u64::from(leader.arena());
        assert_eq!(
            call(&mut worker, Op::Join, number, secret ^ 1),
            fault(Fault::NotAllowed)
        );
        call(&mut worker, Op::Join, number, secret).unwrap();
        let add = |host: &mut Host, op: Op, b: u64, r: u64| {
            let descriptor = Descriptor {
                flags: u16::from(Kind::Int8.number()),
                n: u32::from(Aggregate::Sum as u16),
                b,
                r,
                ..Descriptor::of(op)
            };
            host.post(descriptor, go_on).unwrap();
        };
        let total = leader.fresh().unwrap().bits();
        for value in 1..=100 {
            let value = scene.int8(&mut leader, A, value);
            add(&mut leader, Op::Accumulate, value, total);
        }
        let theirs = worker.fresh().unwrap().bits();
        for value in 101..=200 {
            let value = scene.int8(&mut worker, A, value);
            add(&mut worker, Op::Accumulate, value, theirs);
        }
        call(&mut worker, Op::Sync, 0, 0).unwrap();
        drop(worker);
        // The worker has ended, its accumulator has not.
        std::thread::sleep(Duration::from_millis(50));
        add(&mut leader, Op::Combine, theirs, total);
        let r = leader.fresh().unwrap().bits();
        let last = Descriptor {
            a: total,
            r,
            ..Descriptor::of(Op::Final)
        };
        assert_eq!(leader.call(last, go_on).unwrap().value, 1);
        let kind = Arg::Of(Kind::Numeric);
        let as_int8 = compute(&mut leader, code("int8", &[kind]), r, 0);
        assert_eq!(scene.opened_int8(&mut leader, as_int8), Ok(20_100));
        let value = scene.int8(&mut leader, A, 1);
        let wrong = Descriptor {
            a: value,
            r: leader.fresh().unwrap().bits(),
            ..Descriptor::of(Op::Final)
        };
        assert_eq!(leader.call(wrong, go_on), fault(Fault::NotAnAccumulator));
        leader.end_statement(go_on).unwrap();
        let gone = leader.fresh().unwrap().bits();
        add(&mut leader, Op::Combine, theirs, gone);
        assert_eq!(call(&mut leader, Op::Sync, 0, 0), earlier(Fault::ForgedFid));
    });
}

#[test]
fn any_descriptor_is_answered() {
    with_zone("random", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        let known = scene.int8(&mut host, A, 1);
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for round in 0..20_000_u64 {
            let small = |word: u64| if word & 1 == 0 { word >> 50 } else { word };
            let any = |word: u64| if word & 7 == 0 { known } else { small(word) };
            let op = Op::ALL[usize::try_from(round).unwrap() % Op::ALL.len()];
            let descriptor = Descriptor {
                flags: u16::try_from(random() >> 48).unwrap() & 0x070f,
                n: u32::try_from(small(random()) & 0xfff).unwrap(),
                a: any(random()),
                b: any(random()),
                r: any(random()),
                ..Descriptor::of(op)
            };
            if op.is_posted() {
                host.post(descriptor, go_on).unwrap();
            } else {
                let answer = host.call(descriptor, go_on);
                assert!(
                    !matches!(answer, Err(Broken::Lost | Broken::Interrupted)),
                    "{op:?}"
                );
            }
        }
        let mut other = scene.client(ORDINARY, &[A]);
        let one = scene.int8(&mut other, A, 1);
        assert_eq!(
            scene.opened_int8(&mut other, one),
            Ok(1),
            "others are served as before"
        );
    });
}

#[test]
fn a_status_tells_numbers() {
    with_zone("status", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        scene.int8(&mut host, A, 123_456_789);
        let status = String::from_utf8(call_bytes(&mut host, Op::Status, &[]).unwrap()).unwrap();
        for part in [
            "\"sessions\":1",
            "\"keys\":1",
            "\"values\":1",
            "\"recovering\":false",
        ] {
            assert!(status.contains(part), "{part} in {status}");
        }
        assert!(!status.contains("123456789"));
    });
}
