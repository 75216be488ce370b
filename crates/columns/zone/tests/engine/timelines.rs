//! A host whose log is on another timeline than it was (L8).

use std::time::Duration;

use strongroom_columns_ring::op::{MORE, flag};
use strongroom_columns_ring::{Broken, Descriptor, Fault, Host, Op};
use strongroom_format::columns::Kind;
use strongroom_format::columns::redo::RedoHead;

use crate::lineages::{lineage, ordered_partition};
use crate::{A, ORDINARY, fault, go_on, promote, with_zone};

fn say(host: &mut Host, op: Op, a: u64, b: u64, timeline: u32, flags: u16) -> Result<u64, Broken> {
    let descriptor = Descriptor {
        n: timeline,
        flags,
        a,
        b,
        ..Descriptor::of(op)
    };
    loop {
        let answer = host.call(descriptor, go_on)?;
        if op != Op::Checkpoint || answer.aux & MORE == 0 {
            return Ok(answer.value);
        }
    }
}

/// Position and timeline.
fn position(host: &mut Host) -> (u64, u32) {
    let answer = host.call(Descriptor::of(Op::Position), go_on).unwrap();
    assert_eq!(answer.aux & 3, 0, "neither recovering nor following");
    (answer.value, answer.aux >> 2)
}

#[test]
fn a_host_that_has_gone_to_another_timeline_is_refused() {
    with_zone("timelines", |scene| {
        let mut host = scene.host();
        assert_eq!(position(&mut host), (0, 0));
        // The first one that is named. The position is not the backend's to say.
        assert_eq!(say(&mut host, Op::ServerGeneration, 1, 10, 2, 0), Ok(0));
        assert_eq!(position(&mut host), (0, 0));
        assert_eq!(say(&mut host, Op::Checkpoint, 20, 0, 2, 0), Ok(20));
        let other = fault(Fault::OtherHistory);
        for now in [1, 3] {
            assert_eq!(say(&mut host, Op::Checkpoint, 30, 0, now, 0), other);
            let mut host = Host::connect(&scene.path, Duration::from_secs(20), go_on).unwrap();
            // In the same life and in another one.
            for life in [1, 2] {
                assert_eq!(
                    say(&mut host, Op::ServerGeneration, life, 40, now, 0),
                    other
                );
            }
        }
        // A server in recovery does not say.
        assert_eq!(say(&mut host, Op::ServerGeneration, 3, 0, 0, 0), Ok(0));
        assert_eq!(position(&mut host), (20, 2));
        assert_eq!(
            say(&mut host, Op::Replayed, 50, 0, 0, flag::FOLLOWS),
            Ok(20)
        );
        assert_eq!(say(&mut host, Op::Checkpoint, 50, 0, 2, 0), Ok(50));
        assert_eq!(position(&mut host), (50, 2));
    });
}

/// What a record's confirmation says of the log is answered to its reader, beside the position.
#[test]
fn how_far_the_log_is_that_the_store_holds_is_told() {
    with_zone("reached", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        assert_eq!(say(&mut host, Op::ServerGeneration, 1, 0, 3, 0), Ok(0));
        let reached = |host: &mut Host| {
            let asked = Descriptor {
                flags: flag::REACHED,
                ..Descriptor::of(Op::Position)
            };
            let answer = host.call(asked, go_on).unwrap();
            assert_eq!(answer.aux & 3, 0, "neither recovering nor following");
            (answer.value, answer.aux >> 2)
        };
        assert_eq!(reached(&mut host), (0, 0));
        assert_eq!(say(&mut host, Op::Checkpoint, 100, 0, 3, 0), Ok(100));
        assert_eq!(reached(&mut host), (0, 0));
        let table = ordered_partition(&mut host, 16_384);
        for (end, highest) in [(500, 500), (400, 500), (0, 500), (600, 600)] {
            let value = scene.int8_for(lineage(16_384), &mut host, A, 5);
            let (_, record) = promote(&mut host, table, 1, Kind::Int8, &[value]).unwrap();
            let inserted = Descriptor {
                a: RedoHead::parse(&record).unwrap().number,
                b: end,
                ..Descriptor::of(Op::Inserted)
            };
            host.post(inserted, go_on).unwrap();
            assert_eq!(reached(&mut host), (highest, 3));
        }
        assert_eq!(position(&mut host), (100, 3));
    });
}

/// Attack: a process of the server's user has the zone believe that the log is longer than it is.
/// What is stored until the log gets there would not be read after an end of the zone.
#[test]
fn only_the_log_s_reader_says_how_far_the_log_is() {
    with_zone("positions", |scene| {
        let mut reader = scene.host();
        assert_eq!(position(&mut reader), (0, 0));
        assert_eq!(say(&mut reader, Op::Checkpoint, 20, 0, 2, 0), Ok(20));
        let mut other = scene.host();
        assert_eq!(position(&mut other), (20, 2));
        let far = 1 << 40;
        for op in [Op::Checkpoint, Op::Replayed, Op::Replay] {
            let refused = say(&mut other, op, far, 0, 2, 0);
            assert_eq!(refused, fault(Fault::BadRequest), "{op:?}");
        }
        // The first request of every connection, as of a server that was started anew.
        for generation in [7, 8] {
            let answer = say(&mut other, Op::ServerGeneration, generation, far, 2, 0);
            assert_eq!(answer, Ok(0));
        }
        assert_eq!(position(&mut reader), (20, 2));
        assert_eq!(say(&mut reader, Op::Checkpoint, 30, 0, 2, 0), Ok(30));
        // When it has gone another one takes its place, as the server's next worker does.
        drop(reader);
        for _ in 0..200 {
            if say(&mut other, Op::Checkpoint, 40, 0, 2, 0) == Ok(40) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
            assert!(position(&mut other).0 <= 40);
        }
        panic!("no ring takes the reader's place");
    });
}

/// The server crashes and loses the end of its log: records say the opening of their partition
/// again, for standbys that have never got it.
#[test]
fn records_say_openings_again_when_the_server_s_memory_was_made_anew() {
    with_zone("generations", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        assert_eq!(say(&mut host, Op::ServerGeneration, 1, 0, 2, 0), Ok(0));
        let table = ordered_partition(&mut host, 16_384);
        let mut stored = |generation| {
            let said = say(&mut host, Op::ServerGeneration, generation, 0, 2, 0);
            assert_eq!(said, Ok(0));
            let value = scene.int8_for(lineage(16_384), &mut host, A, 5);
            let (_, record) = promote(&mut host, table, 1, Kind::Int8, &[value]).unwrap();
            let inserted = Descriptor {
                a: RedoHead::parse(&record).unwrap().number,
                ..Descriptor::of(Op::Inserted)
            };
            host.post(inserted, go_on).unwrap();
            record.len()
        };
        // The first value's binding has made a checkpoint, which has the opening.
        let with_opening = stored(1);
        assert_eq!(stored(1) + 28, with_opening);
        assert_eq!(stored(2), with_opening);
        assert_eq!(stored(2) + 28, with_opening);
    });
}
