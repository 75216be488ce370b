//! Asking about the page after: what was asked of the rows of one page of a scan is asked of the next page's while this one is worked on.
//!
//! A scan that goes through a table block by block will stand on the next block soon. When it comes to a page, the block behind that page is
//! looked at, and every question that was of use on pages before goes out for its rows, without waiting; when the scan gets there the
//! answers are there. Rows that the scan will not give - deleted, not yet committed - may be among them: an answer is kept for exactly what was
//! asked, as any other ([`crate::scanning::batching`]). Must not: raise what a question fails with, or change what a scan gives.

use std::cell::RefCell;

use pg_sys::{HeapScanDescData, HeapTupleData, TableScanDescData};
use pgrx::pg_sys;
use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{Descriptor, Op};
use strongroom_format::columns::Kind;

use crate::ring::zone::{self, Asked, OUTLOOK_SIZE};
use crate::scanning::{batching, pages};

/// Scans that are followed at a time: the ones of a join.
const SCANS: usize = 2;
/// Bytes of the data area for one scan.
const ROOM: usize = OUTLOOK_SIZE / SCANS;
/// Questions of one scan.
const QUESTIONS: usize = 15;
/// Pages on which a question may be of no use before it is dropped.
const IDLE: u8 = 8;

/// What is asked of every row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    /// The order of the column and one value; `turned` when the value stands on the left.
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

/// A question, and for how many pages it was of no use.
struct Kept {
    question: Question,
    idle: u8,
}

/// A question that has gone out.
struct Sent {
    question: Question,
    asked: Asked,
    fids: Vec<u64>,
}

/// One scan.
struct Outlook {
    scan: *mut HeapScanDescData,
    /// Which part of the room in the data area is its own: another scan's answers must not be taken for this one's.
    part: usize,
    kept: Vec<Kept>,
    sent: Vec<Sent>,
    /// The block that `sent` is about.
    block: u32,
}

thread_local! {
    static OUTLOOKS: RefCell<Vec<Outlook>> = const { RefCell::new(Vec::new()) };
}

/// A question was asked of the page that `scan` stands on.
pub(crate) fn note(scan: *mut HeapScanDescData, question: Question) {
    OUTLOOKS.with(|outlooks| {
        let mut outlooks = outlooks.borrow_mut();
        let known = outlooks.iter().position(|outlook| outlook.scan == scan);
        let at = known.unwrap_or_else(|| {
            if outlooks.len() == SCANS {
                outlooks.remove(0);
            }
            let taken = |part: &usize| outlooks.iter().any(|outlook| outlook.part == *part);
            let part = (0..SCANS).find(|part| !taken(part)).unwrap_or(0);
            outlooks.push(Outlook {
                scan,
                part,
                kept: Vec::new(),
                sent: Vec::new(),
                block: 0,
            });
            outlooks.len() - 1
        });
        let Some(outlook) = outlooks.get_mut(at) else {
            return;
        };
        let known = outlook.kept.iter().any(|kept| kept.question == question);
        if !known && outlook.kept.len() < QUESTIONS {
            outlook.kept.push(Kept { question, idle: 0 });
        }
    });
}

/// The scan has come to another page.
pub(crate) fn turned(scan: *mut TableScanDescData) {
    let scan: *mut HeapScanDescData = scan.cast();
    // What waits for the zone may unwind: nothing is borrowed meanwhile.
    let taken = OUTLOOKS.with(|outlooks| {
        let mut outlooks = outlooks.borrow_mut();
        let at = outlooks.iter().position(|outlook| outlook.scan == scan)?;
        Some(outlooks.remove(at))
    });
    let Some(mut outlook) = taken else { return };
    // SAFETY: the scan has just given a row.
    let block = unsafe { (*scan).rs_cblock };
    outlook.count_use();
    if outlook.block == block {
        outlook.harvest();
    }
    outlook.sent.clear();
    outlook.look(block);
    OUTLOOKS.with(|outlooks| outlooks.borrow_mut().push(outlook));
}

/// The scan has ended, or begins again.
pub(crate) fn forget(scan: *mut TableScanDescData) {
    OUTLOOKS.with(|outlooks| {
        if let Ok(mut outlooks) = outlooks.try_borrow_mut() {
            outlooks.retain(|outlook| outlook.scan != scan.cast());
        }
    });
}

/// Every scan may have ended.
pub(crate) fn forget_all() {
    OUTLOOKS.with(|outlooks| {
        if let Ok(mut outlooks) = outlooks.try_borrow_mut() {
            outlooks.clear();
        }
    });
}

impl Outlook {
    /// Drops the questions whose answers nobody wanted for a while.
    fn count_use(&mut self) {
        let used = batching::take_hits();
        for kept in &mut self.kept {
            let sent = self.sent.iter().any(|sent| sent.question == kept.question);
            let hit = match kept.question {
                Question::Compare { with, .. } => used.answer(0, with),
                Question::Pairs { .. } => used.answer(0, 0),
                Question::Test { code, with, .. } => used.answer(u32::from(code), with),
                Question::Token { .. } => used.token(),
            };
            kept.idle = if hit || !sent { 0 } else { kept.idle + 1 };
        }
        self.kept.retain(|kept| kept.idle < IDLE);
    }

    /// Takes the answers in.
    fn harvest(&mut self) {
        for sent in &self.sent {
            let len = sent.question.answer_bytes(sent.fids.len());
            let answers = zone::with(|link| link.answers(sent.asked, len));
            match answers {
                Some(answers) => sent.question.keep(&answers, &sent.fids),
                // It fails for a row of the page, perhaps: whoever asks about that row is told.
                None => self.kept.retain(|kept| kept.question != sent.question),
            }
        }
    }

    /// Asks about the block behind this one.
    fn look(&mut self, block: u32) {
        // SAFETY: the scan lives.
        let scan = unsafe { &*self.scan };
        let parallel = !scan.rs_base.rs_parallel.is_null();
        let next = block + 1;
        // Only a scan of the whole table goes on to the next block for sure.
        let whole = scan.rs_base.rs_flags & pg_sys::ScanOptions::SO_TYPE_SEQSCAN != 0
            && scan.rs_numblocks == pg_sys::InvalidBlockNumber;
        if self.kept.is_empty() || parallel || !whole || next >= scan.rs_nblocks {
            return;
        }
        let mut fids: Vec<Vec<u64>> = vec![Vec::new(); self.kept.len()];
        let relation = scan.rs_base.rs_rd;
        pages::each_row(relation, next, scan.rs_strategy, |row| {
            for (kept, fids) in self.kept.iter().zip(&mut fids) {
                kept.question.take(relation, row, fids);
            }
        });
        let mut at = 0;
        self.block = next;
        zone::with(|link| {
            link.clear_outlook()?;
            for (kept, fids) in self.kept.iter().zip(fids) {
                let count = fids.len() / kept.question.width();
                let room = 8 * (fids.len() * 2);
                if count < 2 || at + room > ROOM {
                    continue;
                }
                let asked = link.ask(
                    kept.question.descriptor(count),
                    self.part * ROOM + at,
                    &fids,
                )?;
                at += room;
                self.sent.push(Sent {
                    question: kept.question,
                    asked,
                    fids,
                });
            }
            Ok(())
        });
    }
}

impl Question {
    /// Identifiers for each row.
    const fn width(self) -> usize {
        match self {
            Self::Pairs { .. } => 2,
            _ => 1,
        }
    }

    const fn answer_bytes(self, fids: usize) -> usize {
        match self {
            Self::Pairs { .. } => fids / 2,
            Self::Token { .. } => fids * 16,
            _ => fids,
        }
    }

    /// Takes what it is about out of a row, unless that is NULL.
    fn take(self, relation: pg_sys::Relation, row: *mut HeapTupleData, fids: &mut Vec<u64>) {
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

    fn keep(self, answers: &[u8], fids: &[u64]) {
        match self {
            Self::Compare { with, turned, .. } => {
                batching::keep_compared(answers, fids, with, turned);
            }
            Self::Pairs { .. } => {
                batching::keep_pairs(answers, fids);
            }
            Self::Test { code, with, .. } => batching::keep_truths(answers, fids, code, with),
            Self::Token { .. } => {
                let (words, _) = answers.as_chunks::<8>();
                let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
                batching::keep_tokens(&words, fids);
            }
        }
    }
}
