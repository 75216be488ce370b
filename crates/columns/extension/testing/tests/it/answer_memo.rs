//! Goal: the extension's memory of the zone's answers returns the answer that the zone gave in this
//! statement and this connection, or none.
//!
//! Method: the extension's own file, compiled here, beside a map; many more answers than there is
//! room for.

#[path = "../../../src/scanning/memo.rs"]
#[expect(dead_code, reason = "the extension uses all of it")]
mod memo;

use std::collections::BTreeMap;

use memo::{ListComparisons, Memo, Ranks};

/// Identifiers as the store gives them out: partition, extent and index, with regular bits.
fn fid(number: u64) -> u64 {
    (3 << 48) | ((number % 7) << 16) | (number / 7)
}

#[test]
fn an_answer_is_the_one_that_was_kept_or_none() {
    let mut memo = Memo::new();
    let mut told = BTreeMap::new();
    for round in 0..50_000_u64 {
        let (a, b) = (fid(round % 1009), fid(round % 13 + 5000));
        let what = u32::try_from(round % 3).unwrap() * 77;
        let answer = i32::try_from((a ^ b ^ u64::from(what)) % 3).unwrap() - 1;
        memo.keep(1, what, a, b, answer);
        told.insert((what, a, b), answer);
        assert_eq!(memo.answer(1, what, a, b), Some(answer));
    }
    let mut known = 0;
    for ((what, a, b), answer) in &told {
        if let Some(found) = memo.answer(1, *what, *a, *b) {
            assert_eq!(found, *answer);
            known += 1;
        }
        assert_eq!(memo.answer(2, *what, *a, *b), None, "another connection");
    }
    assert!(known > 1000, "{known} of {} are still known", told.len());
    assert_eq!(memo.answer(1, 0, fid(1), fid(2)), None, "never asked");
    assert_eq!(
        memo.answer(1, 0, fid(5001), fid(1)),
        None,
        "the other way round"
    );
    memo.forget();
    assert!(
        told.keys()
            .all(|(what, a, b)| memo.answer(1, *what, *a, *b).is_none())
    );
}

#[test]
fn tokens_come_back_until_there_are_too_many() {
    let mut memo = Memo::new();
    let mut most = 0;
    for number in 0..200_000_u64 {
        memo.keep_token(1, fid(number), [number, !number]);
        assert_eq!(memo.token(1, fid(number)), Some([number, !number]));
        if number % 9973 == 0 {
            let known = (0..=number).filter(|at| match memo.token(1, fid(*at)) {
                Some(token) => {
                    assert_eq!(token, [*at, !*at]);
                    true
                }
                None => false,
            });
            most = most.max(known.count());
        }
    }
    assert!(most > 50_000, "{most}");
    assert_eq!(memo.token(2, fid(199_999)), None, "another connection");
    memo.keep_token(2, fid(1), [7, 8]);
    assert_eq!(memo.token(2, fid(1)), Some([7, 8]));
    assert_eq!(memo.token(1, fid(1)), None);
    memo.forget();
    assert_eq!(memo.token(2, fid(1)), None);
}

#[test]
fn ranks_are_asked_for_at_doubling_numbers_and_tell_the_order() {
    let mut ranks = Ranks::default();
    // The value behind an identifier: many are equal.
    let value = |fid: u64| fid.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
    let (mut calls, mut known, mut asked) = (0, 0, 0);
    for round in 0..20_000_u64 {
        let (a, b) = (fid(round % 3000), fid(round * 7 % 2999));
        asked += 1;
        if let Some(order) = ranks.order(1, a, b) {
            assert_eq!(order, value(a).cmp(&value(b)) as i32);
            known += 1;
        } else if let Some(all) = ranks.add(1, a, b) {
            assert!(all.contains(&a) && all.contains(&b));
            let mut sorted: Vec<u64> = all.iter().map(|fid| value(*fid)).collect();
            sorted.sort_unstable();
            sorted.dedup();
            let of = |fid: &u64| sorted.binary_search(&value(*fid)).unwrap() as u64;
            ranks.keep(&all.iter().map(of).collect::<Vec<_>>());
            calls += 1;
        }
    }
    assert!(
        calls < 30 && known * 3 > asked * 2,
        "{calls} calls, {known} of {asked} known"
    );
    assert_eq!(ranks.order(2, fid(1), fid(2)), None, "another connection");
    ranks.refuse();
    assert_eq!(ranks.order(1, fid(1), fid(2)), None);
    assert!((0..500).all(|at| ranks.add(1, fid(at), fid(at + 1)).is_none()));
}

/// Columns are ranked apart: what is told of one says nothing of the order of another.
#[test]
fn ranks_that_were_made_apart_are_kept_apart() {
    let mut ranks = Ranks::default();
    ranks.keep_apart(1, &[fid(1), fid(2), fid(3)], &[5, 0, 5]);
    ranks.keep_apart(1, &[fid(4), fid(5)], &[0, 1]);
    assert_eq!(ranks.order(1, fid(1), fid(2)), Some(1));
    assert_eq!(ranks.order(1, fid(1), fid(3)), Some(0));
    assert_eq!(ranks.order(1, fid(4), fid(5)), Some(-1));
    assert_eq!(ranks.order(1, fid(1), fid(4)), None);
    assert_eq!(ranks.order(2, fid(1), fid(2)), None, "another connection");
    ranks.keep_apart(2, &[fid(1)], &[0]);
    assert_eq!(ranks.order(1, fid(1), fid(2)), None);
    ranks.refuse();
    ranks.keep_apart(2, &[fid(1), fid(2)], &[0, 1]);
    assert_eq!(
        ranks.order(2, fid(1), fid(2)),
        None,
        "no more in this statement"
    );
}

#[test]
fn a_list_is_learned_from_the_value_before() {
    let mut run = ListComparisons::new();
    let mut ask = |value, constant| run.next(value, constant).map(<[u64]>::to_vec);
    assert!(
        [(1, 10), (1, 11), (1, 12), (1, 11)]
            .iter()
            .all(|(a, b)| ask(*a, *b).is_none())
    );
    assert_eq!(
        ask(2, 10),
        Some(vec![10, 11, 12]),
        "the next value meets the same constant first"
    );
    assert_eq!(ask(2, 13), None);
    assert_eq!(ask(3, 10), Some(vec![10, 11, 12, 13]));
    assert_eq!(ask(4, 99), None, "another condition");
    assert_eq!(ask(5, 99), None, "of one constant");
}
