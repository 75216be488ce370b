//! The answers that this backend keeps until the statement is over.
//!
//! Invariant: an answer is used for exactly the question that was asked, and only over the
//! connection that gave it. Must not: ask the zone.

use std::cell::RefCell;

use crate::ring::connection::latest_number;
use crate::scanning::memo::{Hits, Memo, Token};

thread_local! {
    static MEMO: RefCell<Memo> = const { RefCell::new(Memo::new()) };
}

/// What of the memo an answer is kept as: the order of two values, or the truth of a function.
pub(crate) const ORDER: u32 = 0;

/// The kept answer to `question` ([`ORDER`], or a function's code) about `a` and `b`: -1, 0 or 1,
/// or for a function 0 or 1. `None` if none is kept.
pub(crate) fn get(question: u32, a: u64, b: u64) -> Option<i32> {
    MEMO.with(|memo| memo.borrow_mut().answer(latest_number(), question, a, b))
}

/// Which kept answers were used since this was last called; forgets that.
pub(crate) fn take_hits() -> Hits {
    MEMO.with(|memo| memo.borrow_mut().take_hits())
}

/// The kept equality token of a value. `None` if none is kept.
pub(crate) fn token(fid: u64) -> Option<Token> {
    MEMO.with(|memo| memo.borrow_mut().token(latest_number(), fid))
}

/// Whether `a` and `b` are equal. `None` unless the tokens of both are kept.
pub(crate) fn are_equal(a: u64, b: u64) -> Option<bool> {
    MEMO.with(|memo| {
        let (mut memo, connection) = (memo.borrow_mut(), latest_number());
        let first = memo.token(connection, a)?;
        Some(first == memo.token(connection, b)?)
    })
}

/// Keeps, until the statement is over, the order (0 less, 1 equal, 2 greater) of each value in `of`
/// compared with the value `with`. With `turned`, `with` is the left operand of the question that
/// will be asked: each order is kept, and the first one returned, with its sign turned. Returns the
/// first order, as -1, 0 or 1, and the length of `of`; `None` without orders.
pub(crate) fn keep_orders(
    orders: &[u8],
    of: &[u64],
    with: u64,
    turned: bool,
) -> Option<(i32, usize)> {
    keep(orders, of, |fid, order| {
        if turned {
            (with, fid, -order)
        } else {
            (fid, with, order)
        }
    })
}

/// Keeps, until the statement is over, the order (0 less, 1 equal, 2 greater) of each pair of
/// values in `pairs`, where the two lie next to each other. Returns the first order, as -1, 0 or 1,
/// and the number of pairs; `None` without orders.
pub(crate) fn keep_pair_orders(orders: &[u8], pairs: &[u64]) -> Option<(i32, usize)> {
    let (pairs, _) = pairs.as_chunks::<2>();
    keep(orders, pairs, |[a, b], order| (a, b, order))
}

/// Keeps a batch of orders (0 to 2); `as_asked` takes one of `of` and its order, as -1, 0 or 1, and
/// returns the operands and the order of its question. Returns the first such order and the length
/// of `of`; `None` without orders.
fn keep<T: Copy>(
    orders: &[u8],
    of: &[T],
    as_asked: impl Fn(T, i32) -> (u64, u64, i32),
) -> Option<(i32, usize)> {
    let connection = latest_number();
    let mut answer = None;
    MEMO.with(|memo| {
        let mut memo = memo.borrow_mut();
        for (order, one) in orders.iter().zip(of) {
            let (a, b, order) = as_asked(*one, i32::from(*order) - 1);
            answer.get_or_insert(order);
            memo.keep(connection, ORDER, a, b, order);
        }
    });
    Some((answer?, of.len()))
}

/// Keeps, until the statement is over, the booleans (0 or 1) that the function `code` returns for
/// each of the values `of` with the value `with`. A 2, where the function failed, is not kept.
pub(crate) fn keep_truths(truths: &[u8], of: &[u64], code: u16, with: u64) {
    let connection = latest_number();
    MEMO.with(|memo| {
        let mut memo = memo.borrow_mut();
        for (truth, fid) in truths.iter().zip(of) {
            if *truth < 2 {
                memo.keep(connection, u32::from(code), *fid, with, i32::from(*truth));
            }
        }
    });
}

/// Keeps the equality tokens, two words each, of the values `of` until the statement is over.
pub(crate) fn keep_tokens(tokens: &[u64], of: &[u64]) {
    let connection = latest_number();
    let (tokens, _) = tokens.as_chunks::<2>();
    MEMO.with(|memo| {
        let mut memo = memo.borrow_mut();
        for (token, fid) in tokens.iter().zip(of) {
            memo.keep_token(connection, *fid, *token);
        }
    });
}

/// Forgets all kept answers: the statement is over.
pub(crate) fn forget_all() {
    MEMO.with(|memo| {
        if let Ok(mut memo) = memo.try_borrow_mut() {
            memo.forget();
        }
    });
}
