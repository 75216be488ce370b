//! Goal: operations on many values give what the same operations give one by one. Method: both, on
//! the same values.

use strongroom_columns_ring::function::{Arg, by_name};
use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{ANSWER_HALF, Descriptor, Fault, Host, Op};
use strongroom_format::columns::Kind;
use strongroom_format::columns::channel::right::ORDINARY;

use super::{A, call, earlier, fault, go_on, intake, of_kind, output, sealed, with_zone};

/// Pairs, tests and tokens of many values are what they are one by one.
pub(crate) fn in_batches(owner: &mut Host, stored: &[u64], five: u64) {
    let pairs = [stored[0], stored[1], stored[1], stored[3], stored[1], five];
    owner.area(go_on).unwrap().write_words(0, &pairs).unwrap();
    let compare = Descriptor {
        flags: u16::from(Kind::Int8.number()) | flag::PAIRS,
        n: 3,
        ..Descriptor::of(Op::CompareMany)
    };
    owner.call(compare, go_on).unwrap();
    let mut orders = [9; 3];
    let area = owner.area(go_on).unwrap();
    area.read(ANSWER_HALF, &mut orders).unwrap();
    assert_eq!(orders, [2, 1, 0]);
    // A pair that is not whole, and more than fits.
    let too_many = Descriptor {
        n: u32::MAX,
        ..compare
    };
    assert_eq!(
        owner.call(too_many, go_on).map(|_| ()),
        fault(Fault::BadRequest)
    );

    let area = owner.area(go_on).unwrap();
    area.write_words(0, stored).unwrap();
    let tokens = Descriptor {
        flags: u16::from(Kind::Int8.number()),
        n: 4,
        ..Descriptor::of(Op::TokenMany)
    };
    owner.call(tokens, go_on).unwrap();
    let mut words = [0; 8];
    let area = owner.area(go_on).unwrap();
    area.read_words(ANSWER_HALF, &mut words).unwrap();
    let (tokens, _) = words.as_chunks::<2>();
    assert!(tokens[1] == tokens[3] && tokens[0] != tokens[1] && tokens[0] != tokens[2]);
    for (fid, token) in stored.iter().zip(tokens) {
        let single = of_kind(owner, Op::Token, Kind::Int8, *fid, 0);
        assert_eq!(single, Ok(token[0]));
    }
}

/// Envelopes are opened without waiting, and a condition on many values tells which ones fail.
#[test]
fn many_envelopes_and_many_tests_go_together() {
    with_zone("many", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        let accept = |host: &mut Host, text: &[u8], at: usize, broken: bool| {
            let mut sealed = scene.owner.seal(A, Kind::Text, text);
            if broken {
                *sealed.last_mut().unwrap() ^= 1;
            }
            let offset = ANSWER_HALF + 4096 * at;
            host.area(go_on).unwrap().write(offset, &sealed).unwrap();
            let fid = host.fresh().unwrap().bits();
            let posted = Descriptor {
                flags: u16::from(Kind::Text.number()),
                n: u32::try_from(sealed.len()).unwrap(),
                b: offset as u64,
                r: fid,
                ..Descriptor::of(Op::PostEnvelope)
            };
            host.post(posted, go_on).unwrap();
            fid
        };
        let mut fids = Vec::new();
        let texts: [&[u8]; 4] = [b"abc", b"xbc", b"a", b"abcd"];
        for (at, text) in texts.iter().enumerate() {
            fids.push(accept(&mut host, text, at, false));
        }
        // A pattern that ends in its escape: it fails for values that reach its end, and for no
        // others.
        fids.push(accept(&mut host, b"a\\", 5, false));
        fids.push(accept(&mut host, b"a%", 6, false));
        call(&mut host, Op::Sync, 0, 0).unwrap();
        let like = u32::from(by_name("textlike", &[Arg::Of(Kind::Text); 2]).unwrap().code);
        let one = |host: &mut Host, fid: u64, pattern: u64| {
            let descriptor = Descriptor {
                n: like,
                a: fid,
                b: pattern,
                ..Descriptor::of(Op::Test)
            };
            host.call(descriptor, go_on).map(|answer| answer.value)
        };
        for pattern in [fids[4], fids[5]] {
            let words = &fids[..4];
            host.area(go_on).unwrap().write_words(0, words).unwrap();
            let many = Descriptor {
                n: like,
                a: pattern,
                r: 4,
                ..Descriptor::of(Op::TestMany)
            };
            host.call(many, go_on).unwrap();
            let mut truths = [9; 4];
            let area = host.area(go_on).unwrap();
            area.read(ANSWER_HALF, &mut truths).unwrap();
            let expected = words.iter().map(|fid| match one(&mut host, *fid, pattern) {
                Ok(truth) => u8::try_from(truth).unwrap(),
                Err(_) => 2,
            });
            assert_eq!(truths.to_vec(), expected.collect::<Vec<_>>());
            assert!(truths.contains(&0) && truths.iter().any(|truth| *truth != 0));
        }
        accept(&mut host, b"late", 7, true);
        assert_eq!(call(&mut host, Op::Sync, 0, 0), earlier(Fault::BadEnvelope));
    });
}

/// A test that takes long is the only one of its batch: nobody is kept waiting for all of them, and
/// the rest is asked about again.
#[test]
fn a_batch_that_takes_long_is_broken_off() {
    with_zone("broken-off", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        let mut text = |text: String| scene.text(&mut host, A, &text);
        let long = text("a".repeat(1 << 19));
        let short = text("b".to_owned());
        // Neither a search for its beginning nor one from the end helps.
        let pattern = text(format!("%{}_b%", "a".repeat(1000)));
        host.area(go_on)
            .unwrap()
            .write_words(0, &[short, long, short, short])
            .unwrap();
        let kind = Arg::Of(Kind::Text);
        let many = Descriptor {
            n: u32::from(by_name("textlike", &[kind, kind]).unwrap().code),
            a: pattern,
            r: 4,
            ..Descriptor::of(Op::TestMany)
        };
        assert_eq!(host.call(many, go_on).unwrap().value, 4);
        let mut truths = [9; 4];
        let area = host.area(go_on).unwrap();
        area.read(ANSWER_HALF, &mut truths).unwrap();
        assert_eq!(truths, [0, 2, 2, 2]);
    });
}

#[test]
fn the_values_of_a_row_are_sealed_together() {
    with_zone("row", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        let number = scene.int8(&mut host, A, 5);
        let mut text = |bytes: &[u8]| {
            let envelope = scene.owner.seal(A, Kind::Text, bytes);
            intake(&mut host, Kind::Text, &envelope, 0).unwrap()
        };
        let (short, long, longer) = (text(b"abc"), text(&[b'x'; 600_000]), text(&[b'y'; 600_000]));
        let row = sealed(&mut host, 0, &[short, number, short]).unwrap();
        let opened: Vec<_> = row
            .iter()
            .map(|envelope| scene.owner.open_envelope(envelope).1)
            .collect();
        assert_eq!(opened, [&b"abc"[..], &5_i64.to_be_bytes(), b"abc"]);
        // Each of them fits, but not both.
        assert_eq!(sealed(&mut host, 0, &[long, number, longer]), Ok(vec![]));
        for fid in [long, longer] {
            assert_eq!(sealed(&mut host, 0, &[fid]).map(|row| row.len()), Ok(1));
        }
        assert_eq!(
            output(&mut host, Kind::Text, &[short, number]),
            fault(Fault::KindMismatch)
        );
        assert_eq!(
            sealed(&mut host, 0, &[short, 0x1234]),
            fault(Fault::ForgedFid)
        );
    });
}

/// Documents are read anew for each answer: a request on many ends before others have waited long.
#[test]
fn a_batch_of_long_documents_is_asked_about_one_by_one() {
    with_zone("documents", |scene| {
        let mut host = scene.client(ORDINARY, &[A]);
        // The binary form has a version in front.
        let text = format!("\u{1}[{}1]", "1, ".repeat(100_000));
        let documents: Vec<u64> = (0..3)
            .map(|_| {
                let sealed = scene.owner.seal(A, Kind::Jsonb, text.as_bytes());
                intake(&mut host, Kind::Jsonb, &sealed, 0).unwrap()
            })
            .collect();
        let kind = u16::from(Kind::Jsonb.number());
        for (op, count, done) in [
            (Op::TokenMany, 1, true),
            (Op::TokenMany, 3, false),
            (Op::RankMany, 1, true),
            (Op::RankMany, 3, false),
            (Op::CompareMany, 1, true),
            (Op::CompareMany, 3, false),
        ] {
            let words = &documents[..count];
            host.area(go_on).unwrap().write_words(0, words).unwrap();
            let descriptor = Descriptor {
                flags: kind,
                n: u32::try_from(count).unwrap(),
                a: if op == Op::CompareMany {
                    documents[2]
                } else {
                    0
                },
                ..Descriptor::of(op)
            };
            let answer = host.call(descriptor, go_on).map(|answer| answer.value);
            let expected = if done {
                Ok(count as u64)
            } else {
                fault(Fault::StringTooLong)
            };
            assert_eq!(answer, expected, "{op:?} {count}");
        }
    });
}
