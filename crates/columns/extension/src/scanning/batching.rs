//! Questions about one row are asked for all rows that its scan has still to return from the page,
//! in one call.
//!
//! When a comparison, a test or a hash concerns a column of the current row of a scan
//! ([`CurrentPage`]), the column's other values on the page are sent along, and their answers wait
//! in the memo ([`answers`]). Invariants: an answer is used for exactly what was asked. A batch
//! that fails is asked again for one value, which then reports the failure, so that no row fails
//! that an earlier condition removes. Must not: change what a scan returns.

use std::cell::RefCell;
use std::collections::BTreeMap;

use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{ANSWER_HALF, Broken, Descriptor, Fault, Op};
use strongroom_format::columns::Kind;

use crate::ring::connection::latest_number;
use crate::ring::zone;
use crate::scanning::answers;
use crate::scanning::current_page::CurrentPage;
use crate::scanning::memo::{ListComparisons, Ranks, Token};
use crate::scanning::prefetch::{self, Question};

thread_local! {
    static LIST: RefCell<ListComparisons> = const { RefCell::new(ListComparisons::new()) };
    /// By kind: values of different kinds have no order.
    static RANKS: RefCell<BTreeMap<u8, Ranks>> = const { RefCell::new(BTreeMap::new()) };
}

/// Forgets all kept answers, prefetched questions, lists and ranks: the statement is over.
pub(crate) fn forget_answers() {
    prefetch::forget_all();
    answers::forget_all();
    LIST.with(|list| {
        if let Ok(mut list) = list.try_borrow_mut() {
            list.forget();
        }
    });
    RANKS.with(|ranks| {
        if let Ok(mut ranks) = ranks.try_borrow_mut() {
            ranks.clear();
        }
    });
}

/// Has the zone answer a batch about the words; returns `count` bytes of answers. `None` if the
/// ticket's budget does not allow so many, the documents are too long together, or the zone
/// refuses: it may allow one, or another question. Raises other faults as an ERROR.
fn call_batch(words: &[u64], descriptor: Descriptor, count: usize) -> Option<Vec<u8>> {
    zone::with(|connection| {
        connection.write_words(0, words)?;
        match connection.call(descriptor) {
            Ok(_) => connection.read(ANSWER_HALF, count).map(Some),
            Err(Broken::Fault(Fault::BudgetSpent | Fault::NotAllowed | Fault::StringTooLong)) => {
                Ok(None)
            }
            Err(broken) => Err(broken),
        }
    })
}

/// Notes a question that was asked of the rows of a page, to be asked of the next pages. Nothing
/// for a batch, which is asked about when it was read.
fn remember(page: &CurrentPage, question: Question) {
    if let Some(scan) = page.scan() {
        prefetch::remember(scan, question);
    }
}

/// The number of words, for a descriptor.
fn length(words: &[u64]) -> u32 {
    u32::try_from(words.len()).unwrap_or(u32::MAX)
}

/// The order (-1, 0, 1) of `a` and `b`, asked together with that of the page's remaining rows,
/// which are kept; and how many orders were asked. `None` if neither is of a scan's current row,
/// there is nothing to ask together, or the budget is too small.
pub(crate) fn compare(kind: Kind, a: u64, b: u64) -> Option<(i32, usize)> {
    let (page, column, with, turned) =
        match (CurrentPage::find(kind, a), CurrentPage::find(kind, b)) {
            (Some((page, first)), Some((other, second))) if page.source == other.source => {
                return compare_pairs(kind, &page, (first, second), (a, b));
            }
            (Some((page, column)), _) => (page, column, b, false),
            (None, Some((page, column))) => (page, column, a, true),
            (None, None) => return None,
        };
    let of = page.remaining_values(column, if turned { b } else { a });
    let descriptor = Descriptor {
        flags: u16::from(kind.number()),
        n: length(&of),
        a: with,
        ..Descriptor::of(Op::CompareMany)
    };
    if of.len() < 2 {
        return None;
    }
    let orders = call_batch(&of, descriptor, of.len())?;
    let question = Question::Compare {
        kind,
        column,
        with,
        turned,
    };
    remember(&page, question);
    answers::keep_orders(&orders, &of, with, turned)
}

/// The order (-1, 0, 1) of the values `first`, asked together with the orders of these two columns
/// in the page's remaining rows, which are kept; and how many orders were asked. `None` if there is
/// nothing to ask together, or the budget is too small.
fn compare_pairs(
    kind: Kind,
    page: &CurrentPage,
    columns: (i16, i16),
    first: (u64, u64),
) -> Option<(i32, usize)> {
    let mut pairs = vec![first.0, first.1];
    page.each_remaining(|row| {
        if let (Some(a), Some(b)) = (page.value(row, columns.0), page.value(row, columns.1))
            && (a, b) != first
        {
            pairs.extend([a, b]);
        }
    });
    let count = pairs.len() / 2;
    if count < 2 {
        return None;
    }
    let descriptor = Descriptor {
        flags: u16::from(kind.number()) | flag::PAIRS,
        n: u32::try_from(count).unwrap_or(u32::MAX),
        ..Descriptor::of(Op::CompareMany)
    };
    let orders = call_batch(&pairs, descriptor, count)?;
    remember(page, Question::Pairs { kind, columns });
    answers::keep_pair_orders(&orders, &pairs)
}

/// The boolean that the function `code` returns for `a`, a value of `kind`, and `b`, asked together
/// with those of the page's remaining rows, which are kept; and how many answers were asked for.
/// `None` if `a` is not of a scan's current row, there is nothing to ask together, the budget is
/// too small, or the function fails for `a`.
pub(crate) fn test(code: u16, kind: Kind, a: u64, b: u64) -> Option<(bool, usize)> {
    let (page, column) = CurrentPage::find(kind, a)?;
    let of = page.remaining_values(column, a);
    if of.len() < 2 {
        return None;
    }
    let descriptor = Descriptor {
        n: u32::from(code),
        a: b,
        r: of.len() as u64,
        ..Descriptor::of(Op::TestMany)
    };
    let truths = call_batch(&of, descriptor, of.len())?;
    let question = Question::Test {
        code,
        column,
        with: b,
    };
    remember(&page, question);
    answers::keep_truths(&truths, &of, code, b);
    let first = truths.first().filter(|truth| **truth < 2)?;
    Some((*first != 0, of.len()))
}

/// The equality token of a value, and how many tokens were asked for: with `batched`, those of the
/// page's remaining rows too. All are kept. Raises the zone's faults as an ERROR.
pub(crate) fn token(kind: Kind, fid: u64, batched: bool) -> (Token, usize) {
    let page = if batched {
        CurrentPage::find(kind, fid)
    } else {
        None
    };
    let mut of = page.as_ref().map_or_else(
        || vec![fid],
        |(page, column)| page.remaining_values(*column, fid),
    );
    let known = loop {
        let descriptor = Descriptor {
            flags: u16::from(kind.number()),
            n: length(&of),
            ..Descriptor::of(Op::TokenMany)
        };
        if of.len() == 1 {
            // The failure of a single one is raised.
            let words = zone::with(|connection| {
                connection.write_words(0, &of)?;
                connection.call(descriptor)?;
                let mut words = [0; 2];
                connection.read_words(ANSWER_HALF, &mut words)?;
                Ok(words)
            });
            break words.to_vec();
        }
        match call_batch(&of, descriptor, of.len() * 16) {
            Some(bytes) => {
                let (words, _) = bytes.as_chunks::<8>();
                break words.iter().map(|word| u64::from_le_bytes(*word)).collect();
            }
            None => of.truncate(1),
        }
    };
    if let Some((page, column)) = page
        && of.len() > 1
    {
        remember(&page, Question::Token { kind, column });
    }
    answers::keep_tokens(&known, &of);
    let (tokens, _) = known.as_chunks::<2>();
    (tokens.first().copied().unwrap_or_default(), of.len())
}

/// The order of `a`, a value that is computed for each row, and `b`, a constant of a list such as
/// `IN (...)`: asked together with the orders of `a` and the list's other constants, which are
/// kept. `None` if no such list is known, or the budget is too small.
pub(crate) fn compare_list(kind: Kind, a: u64, b: u64) -> Option<i32> {
    let constants = LIST.with(|list| list.borrow_mut().next(a, b).map(<[u64]>::to_vec))?;
    let descriptor = Descriptor {
        flags: u16::from(kind.number()),
        n: length(&constants),
        a,
        ..Descriptor::of(Op::CompareMany)
    };
    let orders = call_batch(&constants, descriptor, constants.len())?;
    let first = answers::keep_orders(&orders, &constants, a, true);
    first.map(|(order, _)| order)
}

/// The order (-1, 0, 1) of two values of a sort, from their ranks. `None` if one of the two is not
/// ranked.
///
/// A sort compares nearly every value once before it compares any again. The values that it has
/// shown so far are ranked in one call, and their ranks answer the comparisons that follow.
pub(crate) fn compare_by_rank(kind: Kind, a: u64, b: u64) -> Option<i32> {
    let connection = latest_number();
    let number = kind.number();
    let all = RANKS.with(|ranks| {
        let mut ranks = ranks.borrow_mut();
        let of = ranks.entry(number).or_default();
        match of.order(connection, a, b) {
            Some(order) => Err(order),
            None => Ok(of.add(connection, a, b)),
        }
    });
    let all = match all {
        Err(order) => return Some(order),
        Ok(all) => all?,
    };
    let found = rank(kind, &all);
    RANKS.with(|ranks| {
        let mut ranks = ranks.borrow_mut();
        let of = ranks.entry(number).or_default();
        match &found {
            Some(words) => of.keep(words),
            None => of.refuse(),
        }
        of.order(connection, a, b)
    })
}

/// Keeps the ranks that [`rank`] has returned of these values for a sort that compares them.
pub(crate) fn keep_ranks(kind: Kind, all: &[u64], ranks: &[u64]) {
    RANKS.with(|known| {
        let mut known = known.borrow_mut();
        let of = known.entry(kind.number()).or_default();
        of.keep_apart(latest_number(), all, ranks);
    });
}

/// The dense ranks of values of a kind, which the zone computes in one call. `None` if the zone
/// refuses to rank them all, so that pairs have to be compared. Raises its other faults as an
/// ERROR.
pub(crate) fn rank(kind: Kind, all: &[u64]) -> Option<Vec<u64>> {
    let descriptor = Descriptor {
        flags: u16::from(kind.number()),
        n: length(all),
        ..Descriptor::of(Op::RankMany)
    };
    zone::with(|connection| {
        connection.write_words(0, all)?;
        match connection.call(descriptor) {
            Ok(_) => {
                let mut words = vec![0; all.len()];
                connection.read_words(0, &mut words)?;
                Ok(Some(words))
            }
            // The ticket has no right or too little budget, the values are too long together, or a
            // value is gone that the pair in question does not need.
            Err(Broken::Fault(
                Fault::BudgetSpent
                | Fault::NotAllowed
                | Fault::StringTooLong
                | Fault::StaleFid
                | Fault::ForgedFid,
            )) => Ok(None),
            Err(broken) => Err(broken),
        }
    })
}
