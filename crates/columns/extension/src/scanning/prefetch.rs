//! Questions about the next page of a scan: what was asked of the rows of one page is asked of the
//! next page's rows while the executor works on this one.
//!
//! A scan of a whole table reads block after block. When it reaches a page, the following block is
//! read, and every question that was useful on earlier pages is sent for its rows, without waiting;
//! when the scan reaches that block the answers are there. Rows that the scan will not return
//! (deleted, not yet committed) may be among them: an answer is kept for exactly what was asked, as
//! any other ([`answers`]). Must not: raise the failure of a question, or change what a scan
//! returns.

use std::cell::RefCell;

use pg_sys::{HeapScanDescData, HeapTupleData, TableScanDescData};
use pgrx::pg_sys;
use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{Descriptor, Op};
use strongroom_format::columns::Kind;

use crate::ring::connection::{PREFETCH_SIZE, Prefetched};
use crate::ring::zone;
use crate::scanning::{answers, pages};

/// Most scans that are followed at a time: those of a join.
const SCANS: usize = 2;
/// Bytes of the data area for one scan.
const PART_SIZE: usize = PREFETCH_SIZE / SCANS;
/// Most questions of one scan.
const QUESTIONS: usize = 15;
/// Pages on which a question may be useless before it is dropped.
const USELESS_PAGES_MAX: u8 = 8;

/// What is asked of every row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    /// The order of the column and one value; with `turned`, the value is the left operand.
    Compare {
        kind: Kind,
        column: i16,
        with: u64,
        turned: bool,
    },
    /// The order of two columns.
    Pairs { kind: Kind, columns: (i16, i16) },
    /// What a function says of the column and one value.
    Test { code: u16, column: i16, with: u64 },
    /// The column's equality token.
    Token { kind: Kind, column: i16 },
}

/// A question that is asked of each page.
struct Repeated {
    question: Question,
    /// For how many pages its answers were not used.
    useless_pages: u8,
}

/// A question that was sent for one page.
struct Sent {
    question: Question,
    prefetched: Prefetched,
    fids: Vec<u64>,
}

/// The questions of one scan.
struct ScanQuestions {
    scan: *mut HeapScanDescData,
    /// Number of the scan's part of the data area, so that no other scan's answers are taken for
    /// this one's.
    part: usize,
    repeated: Vec<Repeated>,
    sent: Vec<Sent>,
    /// The block that `sent` is about.
    block: u32,
}

thread_local! {
    static SCAN_QUESTIONS: RefCell<Vec<ScanQuestions>> = const { RefCell::new(Vec::new()) };
}

/// Notes a question that was asked of the current page of `scan`, to be asked of the next pages.
/// Follows at most 2 scans, with 15 questions each; a third scan replaces the first.
pub(crate) fn remember(scan: *mut HeapScanDescData, question: Question) {
    SCAN_QUESTIONS.with(|all| {
        let mut all = all.borrow_mut();
        let known = all.iter().position(|one| one.scan == scan);
        let at = known.unwrap_or_else(|| {
            if all.len() == SCANS {
                all.remove(0);
            }
            let is_taken = |part: &usize| all.iter().any(|one| one.part == *part);
            let part = (0..SCANS).find(|part| !is_taken(part)).unwrap_or(0);
            all.push(ScanQuestions {
                scan,
                part,
                repeated: Vec::new(),
                sent: Vec::new(),
                block: 0,
            });
            all.len() - 1
        });
        let Some(scan) = all.get_mut(at) else {
            return;
        };
        let known = scan.repeated.iter().any(|one| one.question == question);
        if !known && scan.repeated.len() < QUESTIONS {
            scan.repeated.push(Repeated {
                question,
                useless_pages: 0,
            });
        }
    });
}

/// Called when a scan has reached another page: keeps the answers for it that were asked ahead, and
/// asks about the next block. May wait for the zone, and raise an ERROR.
pub(crate) fn page_reached(scan: *mut TableScanDescData) {
    let scan: *mut HeapScanDescData = scan.cast();
    // A wait for the zone may unwind: nothing is borrowed meanwhile.
    let taken = SCAN_QUESTIONS.with(|all| {
        let mut all = all.borrow_mut();
        let at = all.iter().position(|one| one.scan == scan)?;
        Some(all.remove(at))
    });
    let Some(mut questions) = taken else { return };
    // SAFETY: the scan has just returned a row.
    let block = unsafe { (*scan).rs_cblock };
    questions.drop_useless();
    if questions.block == block {
        questions.take_answers();
    }
    questions.sent.clear();
    questions.ask_next_block(block);
    SCAN_QUESTIONS.with(|all| all.borrow_mut().push(questions));
}

/// Forgets the questions of a scan, which has ended or begins again.
pub(crate) fn forget(scan: *mut TableScanDescData) {
    SCAN_QUESTIONS.with(|all| {
        if let Ok(mut all) = all.try_borrow_mut() {
            all.retain(|one| one.scan != scan.cast());
        }
    });
}

/// Forgets the questions of all scans: each may have ended.
pub(crate) fn forget_all() {
    SCAN_QUESTIONS.with(|all| {
        if let Ok(mut all) = all.try_borrow_mut() {
            all.clear();
        }
    });
}

impl ScanQuestions {
    /// Drops the questions whose answers were not used on 8 pages in turn.
    fn drop_useless(&mut self) {
        let used = answers::take_hits();
        for one in &mut self.repeated {
            let sent = self.sent.iter().any(|sent| sent.question == one.question);
            let hit = match one.question {
                Question::Compare { with, .. } => used.answer(answers::ORDER, with),
                Question::Pairs { .. } => used.answer(answers::ORDER, 0),
                Question::Test { code, with, .. } => used.answer(u32::from(code), with),
                Question::Token { .. } => used.token(),
            };
            one.useless_pages = if hit || !sent {
                0
            } else {
                one.useless_pages + 1
            };
        }
        self.repeated
            .retain(|one| one.useless_pages < USELESS_PAGES_MAX);
    }

    /// Waits for the answers to what was sent, and keeps them. A question that failed is not
    /// repeated. Raises an ERROR if the zone is lost.
    fn take_answers(&mut self) {
        for sent in &self.sent {
            let len = sent.question.answer_bytes(sent.fids.len());
            let answers =
                zone::with(|connection| connection.prefetched_answers(sent.prefetched, len));
            match answers {
                Some(answers) => sent.question.keep(&answers, &sent.fids),
                // It may have failed for one row of the page: the failure is raised when that row
                // is asked about.
                None => self.repeated.retain(|one| one.question != sent.question),
            }
        }
    }

    /// Reads the block after this one, and sends the questions about its rows, without waiting for
    /// the answers. Nothing unless the scan is one of the whole table, not parallel, and has a next
    /// block. Raises an ERROR if the zone is lost.
    fn ask_next_block(&mut self, block: u32) {
        // SAFETY: the scan lives.
        let scan = unsafe { &*self.scan };
        let parallel = !scan.rs_base.rs_parallel.is_null();
        let next = block + 1;
        // Only a scan of the whole table certainly goes on to the next block.
        let whole = scan.rs_base.rs_flags & pg_sys::ScanOptions::SO_TYPE_SEQSCAN != 0
            && scan.rs_numblocks == pg_sys::InvalidBlockNumber;
        if self.repeated.is_empty() || parallel || !whole || next >= scan.rs_nblocks {
            return;
        }
        let mut fids: Vec<Vec<u64>> = vec![Vec::new(); self.repeated.len()];
        let relation = scan.rs_base.rs_rd;
        pages::each_row(relation, next, scan.rs_strategy, |row| {
            for (one, fids) in self.repeated.iter().zip(&mut fids) {
                one.question.collect(relation, row, fids);
            }
        });
        let mut at = 0;
        self.block = next;
        zone::with(|connection| {
            connection.finish_prefetches()?;
            for (one, fids) in self.repeated.iter().zip(fids) {
                let count = fids.len() / one.question.width();
                let size = 8 * (fids.len() * 2);
                if count < 2 || at + size > PART_SIZE {
                    continue;
                }
                let prefetched = connection.prefetch(
                    one.question.descriptor(count),
                    self.part * PART_SIZE + at,
                    &fids,
                )?;
                at += size;
                self.sent.push(Sent {
                    question: one.question,
                    prefetched,
                    fids,
                });
            }
            Ok(())
        });
    }
}

impl Question {
    /// How many identifiers the question has for each row.
    const fn width(self) -> usize {
        match self {
            Self::Pairs { .. } => 2,
            _ => 1,
        }
    }

    /// Length of the answers to a question about so many identifiers, in bytes.
    const fn answer_bytes(self, fids: usize) -> usize {
        match self {
            Self::Pairs { .. } => fids / 2,
            Self::Token { .. } => fids * 16,
            _ => fids,
        }
    }

    /// Appends the values of a row that the question concerns to `fids`; none if one of them is
    /// NULL.
    fn collect(self, relation: pg_sys::Relation, row: *mut HeapTupleData, fids: &mut Vec<u64>) {
        let (first, second) = match self {
            Self::Compare { column, .. }
            | Self::Test { column, .. }
            | Self::Token { column, .. } => (column, None),
            Self::Pairs { columns, .. } => (columns.0, Some(columns.1)),
        };
        let Some(value) = pages::value(relation, row, first) else {
            return;
        };
        match second.map(|second| pages::value(relation, row, second)) {
            None => fids.push(value),
            Some(Some(second)) => fids.extend([value, second]),
            Some(None) => {}
        }
    }

    /// The operation that asks this question of `count` rows.
    fn descriptor(self, count: usize) -> Descriptor {
        let n = u32::try_from(count).unwrap_or(u32::MAX);
        match self {
            Self::Compare { kind, with, .. } => Descriptor {
                flags: u16::from(kind.number()),
                n,
                a: with,
                ..Descriptor::of(Op::CompareMany)
            },
            Self::Pairs { kind, .. } => Descriptor {
                flags: u16::from(kind.number()) | flag::PAIRS,
                n,
                ..Descriptor::of(Op::CompareMany)
            },
            Self::Test { code, with, .. } => Descriptor {
                n: u32::from(code),
                a: with,
                r: u64::from(n),
                ..Descriptor::of(Op::TestMany)
            },
            Self::Token { kind, .. } => Descriptor {
                flags: u16::from(kind.number()),
                n,
                ..Descriptor::of(Op::TokenMany)
            },
        }
    }

    /// Keeps the zone's answers about these identifiers.
    fn keep(self, answers: &[u8], fids: &[u64]) {
        match self {
            Self::Compare { with, turned, .. } => {
                answers::keep_orders(answers, fids, with, turned);
            }
            Self::Pairs { .. } => {
                answers::keep_pair_orders(answers, fids);
            }
            Self::Test { code, with, .. } => answers::keep_truths(answers, fids, code, with),
            Self::Token { .. } => {
                let (words, _) = answers.as_chunks::<8>();
                let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
                answers::keep_tokens(&words, fids);
            }
        }
    }
}
