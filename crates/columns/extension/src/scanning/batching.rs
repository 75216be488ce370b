//! Asking ahead: what is asked of a row of a scan is asked of all rows still to come of its page, in one call.
//!
//! A scan of heap has the visible rows of a page at hand while it gives them out one by one (heapam.c, "page-at-a-time mode"). When a
//! comparison, a test or a hash concerns a column of the row that a scan stands on, the others are sent along, and their answers wait in
//! the memo ([`crate::scanning::memo`]). Invariants: an answer is used for exactly what was asked; what cannot be answered for all is asked for
//! one, which then reports the failure, so that no row fails that an earlier condition removes. A scan is looked at only while it
//! lives: whatever may end one has it forgotten. Must not: change what a scan gives.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

use pg_sys::{HeapScanDescData, HeapTupleData, TableScanDescData};
use pgrx::pg_sys;
use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{ANSWER_HALF, Broken, Descriptor, Fault, Op};
use strongroom_format::columns::{Fid, Kind};

use crate::ring::zone;
use crate::scanning::memo::{Hits, Memo, Ranks, Run, Token};
use crate::scanning::pages;
use crate::scanning::prefetch::{self, Question};
use crate::storage::partition;

/// Scans that gave a row last: an outer and an inner one of a join, mostly. A backend has one thread.
static SCANS: [AtomicPtr<TableScanDescData>; 3] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; 3];

/// The page on which the first of them stands.
static BLOCK: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static MEMO: RefCell<Memo> = const { RefCell::new(Memo::new()) };
    static RUN: RefCell<Run> = const { RefCell::new(Run::new()) };
    /// By kind: values of different kinds have no order.
    static RANKS: RefCell<BTreeMap<u8, Ranks>> = const { RefCell::new(BTreeMap::new()) };
}

/// This scan has given a row. Called for every row: it does next to nothing, but for the first row of a page.
pub(crate) fn stands(scan: *mut TableScanDescData) {
    let [first, second, third] = &SCANS;
    let before = first.load(Relaxed);
    // SAFETY: the scan has just given a row; the access method's scans are heap's.
    let block = unsafe { (*scan.cast::<HeapScanDescData>()).rs_cblock };
    if before == scan && BLOCK.load(Relaxed) == block {
        return;
    }
    BLOCK.store(block, Relaxed);
    prefetch::turned(scan);
    if before == scan {
        return;
    }
    let between = second.load(Relaxed);
    if between != scan {
        third.store(between, Relaxed);
    }
    second.store(before, Relaxed);
    first.store(scan, Relaxed);
}

/// This scan stands on no row any more.
pub(crate) fn ended(scan: *mut TableScanDescData) {
    prefetch::forget(scan);
    for known in &SCANS {
        if known.load(Relaxed) == scan {
            known.store(std::ptr::null_mut(), Relaxed);
        }
    }
}

/// Scans may have been freed without an end: a transaction or a part of it has failed.
pub(crate) fn forget_scans() {
    prefetch::forget_all();
    for known in &SCANS {
        known.store(std::ptr::null_mut(), Relaxed);
    }
}

/// The statement is over.
pub(crate) fn forget_answers() {
    prefetch::forget_all();
    MEMO.with(|memo| {
        if let Ok(mut memo) = memo.try_borrow_mut() {
            memo.forget();
        }
    });
    RUN.with(|run| {
        if let Ok(mut run) = run.try_borrow_mut() {
            run.forget();
        }
    });
    RANKS.with(|ranks| {
        if let Ok(mut ranks) = ranks.try_borrow_mut() {
            ranks.clear();
        }
    });
}

/// The answer that is known already.
pub(crate) fn known(what: u32, a: u64, b: u64) -> Option<i32> {
    MEMO.with(|memo| memo.borrow_mut().answer(zone::connection(), what, a, b))
}

/// Which answers were used since this was last asked.
pub(crate) fn take_hits() -> Hits {
    MEMO.with(|memo| memo.borrow_mut().take_hits())
}

/// The token that is known already.
pub(crate) fn known_token(fid: u64) -> Option<Token> {
    MEMO.with(|memo| memo.borrow_mut().token(zone::connection(), fid))
}

/// Whether `a` and `b` are equal, when their tokens tell.
pub(crate) fn known_equal(a: u64, b: u64) -> Option<bool> {
    MEMO.with(|memo| {
        let (mut memo, connection) = (memo.borrow_mut(), zone::connection());
        let first = memo.token(connection, a)?;
        Some(first == memo.token(connection, b)?)
    })
}

/// The row that a scan stands on, and those behind it on the page.
struct Page {
    scan: *mut HeapScanDescData,
    relation: pg_sys::Relation,
}

impl Page {
    /// The pages of the scans that gave rows last.
    fn all() -> impl Iterator<Item = Self> {
        SCANS.iter().filter_map(|scan| {
            let scan = scan.load(Relaxed);
            // SAFETY: a scan that is remembered lives (`ended`, `forget_scans`).
            let base = unsafe { scan.as_ref() }?;
            let relation = base.rs_rd;
            let by_page = base.rs_flags & pg_sys::ScanOptions::SO_ALLOW_PAGEMODE != 0;
            let scan: *mut HeapScanDescData = scan.cast();
            // SAFETY: the access method's scans are heap's: it is heap's own routine that makes them.
            let on_row = unsafe { (*scan).rs_cbuf != 0 && !(*scan).rs_ctup.t_data.is_null() };
            (by_page && on_row).then_some(Self { scan, relation })
        })
    }

    /// The value of a column in a row; `None` for NULL.
    fn value(&self, tuple: *mut HeapTupleData, column: i16) -> Option<u64> {
        pages::value(self.relation, tuple, column)
    }

    /// The column of the row that has this value.
    fn column_of(&self, kind: Kind, fid: u64) -> Option<i16> {
        let table = partition::table(self.relation);
        // SAFETY: the scan lives.
        let row = unsafe { &raw mut (*self.scan).rs_ctup };
        let columns = table.columns.iter().filter(|column| column.kind == kind);
        columns
            .map(|column| column.number)
            .find(|number| self.value(row, *number) == Some(fid))
    }

    /// Gives the rows of the page that are still to come.
    fn each(&self, mut take: impl FnMut(&mut HeapTupleData)) {
        // SAFETY: the scan lives, and keeps its page pinned while it stands on it.
        let (scan, page) = unsafe { (&*self.scan, pg_sys::BufferGetPage((*self.scan).rs_cbuf)) };
        let count = usize::try_from(scan.rs_ntuples).unwrap_or(0);
        let from = usize::try_from(scan.rs_cindex).unwrap_or(usize::MAX);
        let rows = scan.rs_vistuples.get(..count).unwrap_or_default();
        for offset in rows.get(from..).unwrap_or_default() {
            // SAFETY: heap found a visible row there, and rows do not move or go while the page is pinned.
            let mut tuple = unsafe {
                let item = pg_sys::PageGetItemId(page, *offset);
                HeapTupleData {
                    t_len: (*item).lp_len(),
                    t_self: scan.rs_ctup.t_self,
                    t_tableOid: scan.rs_ctup.t_tableOid,
                    t_data: page.add((*item).lp_off() as usize).cast(),
                }
            };
            take(&mut tuple);
        }
    }

    /// `first`, and the values of `column` in the rows to come.
    fn values(&self, column: i16, first: u64) -> Vec<u64> {
        let mut values = vec![first];
        self.each(|row| values.extend(self.value(row, column).filter(|value| *value != first)));
        values
    }
}

fn is_stored(fid: u64) -> bool {
    Fid::from_bits(fid).is_some_and(|fid| !fid.is_ephemeral())
}

/// The page on which `fid` is a value of the row, and its column.
fn found(kind: Kind, fid: u64) -> Option<(Page, i16)> {
    if !is_stored(fid) {
        return None;
    }
    Page::all().find_map(|page| {
        let column = page.column_of(kind, fid)?;
        Some((page, column))
    })
}

/// Calls a batch; `count` bytes of answer. `None` when the ticket does not allow as many: then one may be allowed.
fn batch(words: &[u64], descriptor: Descriptor, count: usize) -> Option<Vec<u8>> {
    zone::with(|link| {
        link.area_words(0, words)?;
        match link.call(descriptor) {
            Ok(_) => link.read(ANSWER_HALF, count).map(Some),
            Err(Broken::Fault(Fault::BudgetSpent)) => Ok(None),
            Err(broken) => Err(broken),
        }
    })
}

fn length(words: &[u64]) -> u32 {
    u32::try_from(words.len()).unwrap_or(u32::MAX)
}

/// The order of `a` and `b`, asked along with that of the rows to come; and how many were asked. `None` when there is nothing to ask along.
pub(crate) fn compare(kind: Kind, a: u64, b: u64) -> Option<(i32, usize)> {
    let (page, column, with, turned) = match (found(kind, a), found(kind, b)) {
        (Some((page, first)), Some((other, second))) if page.scan == other.scan => {
            return compare_pairs(kind, &page, (first, second), (a, b));
        }
        (Some((page, column)), _) => (page, column, b, false),
        (None, Some((page, column))) => (page, column, a, true),
        (None, None) => return None,
    };
    let of = page.values(column, if turned { b } else { a });
    let descriptor = Descriptor {
        flags: u16::from(kind.number()),
        n: length(&of),
        a: with,
        ..Descriptor::of(Op::CompareMany)
    };
    if of.len() < 2 {
        return None;
    }
    let orders = batch(&of, descriptor, of.len())?;
    prefetch::note(
        page.scan,
        Question::Compare {
            kind,
            column,
            with,
            turned,
        },
    );
    keep_compared(&orders, &of, with, turned)
}

/// Keeps the orders of values and one other.
pub(crate) fn keep_compared(
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

/// Keeps the orders of pairs.
pub(crate) fn keep_pairs(orders: &[u8], pairs: &[u64]) -> Option<(i32, usize)> {
    let (pairs, _) = pairs.as_chunks::<2>();
    keep(orders, pairs, |[a, b], order| (a, b, order))
}

fn compare_pairs(
    kind: Kind,
    page: &Page,
    columns: (i16, i16),
    first: (u64, u64),
) -> Option<(i32, usize)> {
    let mut pairs = vec![first.0, first.1];
    page.each(|row| {
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
    let orders = batch(&pairs, descriptor, count)?;
    prefetch::note(page.scan, Question::Pairs { kind, columns });
    keep_pairs(&orders, &pairs)
}

/// Keeps the orders of a batch; the first one, and how many.
fn keep<T: Copy>(
    orders: &[u8],
    of: &[T],
    as_asked: impl Fn(T, i32) -> (u64, u64, i32),
) -> Option<(i32, usize)> {
    let connection = zone::connection();
    let mut answer = None;
    MEMO.with(|memo| {
        let mut memo = memo.borrow_mut();
        for (order, one) in orders.iter().zip(of) {
            let (a, b, order) = as_asked(*one, i32::from(*order) - 1);
            answer.get_or_insert(order);
            memo.keep(connection, 0, a, b, order);
        }
    });
    Some((answer?, of.len()))
}

/// What function `code` says of `a`, a value of `kind`, and `b`, asked along with the rows to come; and how many were asked.
pub(crate) fn test(code: u16, kind: Kind, a: u64, b: u64) -> Option<(bool, usize)> {
    let (page, column) = found(kind, a)?;
    let of = page.values(column, a);
    if of.len() < 2 {
        return None;
    }
    let descriptor = Descriptor {
        n: u32::from(code),
        a: b,
        r: of.len() as u64,
        ..Descriptor::of(Op::TestMany)
    };
    let truths = batch(&of, descriptor, of.len())?;
    prefetch::note(
        page.scan,
        Question::Test {
            code,
            column,
            with: b,
        },
    );
    keep_truths(&truths, &of, code, b);
    let first = truths.first().filter(|truth| **truth < 2)?;
    Some((*first != 0, of.len()))
}

/// Keeps what a function said of values and one other; not where it failed.
pub(crate) fn keep_truths(truths: &[u8], of: &[u64], code: u16, with: u64) {
    let connection = zone::connection();
    MEMO.with(|memo| {
        let mut memo = memo.borrow_mut();
        for (truth, fid) in truths.iter().zip(of) {
            if *truth < 2 {
                memo.keep(connection, u32::from(code), *fid, with, i32::from(*truth));
            }
        }
    });
}

/// Keeps the tokens of values.
pub(crate) fn keep_tokens(tokens: &[u64], of: &[u64]) {
    let connection = zone::connection();
    let (tokens, _) = tokens.as_chunks::<2>();
    MEMO.with(|memo| {
        let mut memo = memo.borrow_mut();
        for (token, fid) in tokens.iter().zip(of) {
            memo.keep_token(connection, *fid, *token);
        }
    });
}

/// The token of a value, asked along with the rows to come; and how many were asked.
pub(crate) fn token(kind: Kind, fid: u64, along: bool) -> (Token, usize) {
    let page = if along { found(kind, fid) } else { None };
    let mut of = page
        .as_ref()
        .map_or_else(|| vec![fid], |(page, column)| page.values(*column, fid));
    let known = loop {
        let descriptor = Descriptor {
            flags: u16::from(kind.number()),
            n: length(&of),
            ..Descriptor::of(Op::TokenMany)
        };
        if of.len() == 1 {
            // Its failure is reported.
            let words = zone::with(|link| {
                link.area_words(0, &of)?;
                link.call(descriptor)?;
                let mut words = [0; 2];
                link.read_words(ANSWER_HALF, &mut words)?;
                Ok(words)
            });
            break words.to_vec();
        }
        match batch(&of, descriptor, of.len() * 16) {
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
        prefetch::note(page.scan, Question::Token { kind, column });
    }
    keep_tokens(&known, &of);
    let (tokens, _) = known.as_chunks::<2>();
    (tokens.first().copied().unwrap_or_default(), of.len())
}

/// The order of `a`, a value that is computed for each row, and `b`, one of the constants of a list: asked along with those of the others.
pub(crate) fn compare_list(kind: Kind, a: u64, b: u64) -> Option<i32> {
    let constants = RUN.with(|run| run.borrow_mut().next(a, b).map(<[u64]>::to_vec))?;
    let descriptor = Descriptor {
        flags: u16::from(kind.number()),
        n: length(&constants),
        a,
        ..Descriptor::of(Op::CompareMany)
    };
    let orders = batch(&constants, descriptor, constants.len())?;
    let first = keep(&orders, &constants, |constant, order| (a, constant, -order));
    first.map(|(order, _)| order)
}

/// The order of two values of a sort. Sorts compare nearly everything with something once before they compare anything again: what they
/// have shown is ranked together, and the ranks tell the rest.
pub(crate) fn ranked(kind: Kind, a: u64, b: u64) -> Option<i32> {
    let connection = zone::connection();
    let number = kind.number();
    let all = RANKS.with(|ranks| {
        let mut ranks = ranks.borrow_mut();
        let of = ranks.entry(number).or_default();
        match of.order(connection, a, b) {
            Some(order) => Err(order),
            None => Ok(of.show(connection, a, b)),
        }
    });
    let all = match all {
        Err(order) => return Some(order),
        Ok(all) => all?,
    };
    let descriptor = Descriptor {
        flags: u16::from(number),
        n: length(&all),
        ..Descriptor::of(Op::RankMany)
    };
    let found = zone::with(|link| {
        link.area_words(0, &all)?;
        match link.call(descriptor) {
            Ok(_) => {
                let mut words = vec![0; all.len()];
                link.read_words(0, &mut words)?;
                Ok(Some(words))
            }
            // Without the right, or with too little left, pair by pair, and so are values that are too long together; so too when a value is
            // gone that this pair has nothing to do with.
            Err(Broken::Fault(
                Fault::BudgetSpent
                | Fault::NotAllowed
                | Fault::StringTooLong
                | Fault::StaleFid
                | Fault::ForgedFid,
            )) => Ok(None),
            Err(broken) => Err(broken),
        }
    });
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
