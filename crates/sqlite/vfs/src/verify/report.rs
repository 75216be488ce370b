//! What a verification found.
//!
//! Must not: judge anything.

use strongroom_format::code::{self, Code};
use strongroom_format::sqlite::page_offset;

use crate::freshness::Freshness;

/// What a unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitKind {
    /// A page of the database; numbered from 1.
    Page,
    /// A frame of the write-ahead log; numbered from 1.
    WalFrame,
    /// A slot of the rollback journal; numbered from 1.
    JournalSlot,
    /// An anchor in the header: 1 or 2.
    Anchor,
}

impl UnitKind {
    /// The word used in output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::WalFrame => "wal-frame",
            Self::JournalSlot => "journal-slot",
            Self::Anchor => "anchor",
        }
    }
}

/// A unit that did not verify.
#[derive(Clone, Copy, Debug)]
pub struct BadUnit {
    /// What it is.
    pub kind: UnitKind,
    /// Its number, from 1.
    pub index: u64,
    /// Where it begins in its file, in bytes.
    pub offset: u64,
    /// What is wrong with it.
    pub code: &'static Code,
}

/// What was verified.
#[derive(Clone, Debug, Default)]
pub struct VerifyReport {
    /// Pages in the file.
    pub pages: u64,
    /// Pages whose tag holds.
    pub pages_ok: u64,
    /// Log frames whose tag holds.
    pub frames_ok: u64,
    /// Journal slots whose tag holds.
    pub slots_ok: u64,
    /// Everything that did not verify, in order.
    pub bad: Vec<BadUnit>,
    /// What is neither good nor bad.
    pub notes: Vec<String>,
    /// What was not checked, and why.
    pub not_checked: Vec<String>,
    /// Cipher suite of the pages.
    pub cipher: &'static str,
    /// A rekey was begun and is not finished.
    pub rekey_under_way: bool,
    /// Whether these are the newest pages.
    pub freshness: Freshness,
    /// An estimate of the pages that were sealed under the data key. `None` when the cipher has no
    /// limit, or no anchor is valid.
    pub seals: Option<u64>,
}

impl VerifyReport {
    /// The page behind the last whole one is missing, or there in part.
    pub(super) fn ends_early(&mut self, page_size: u32) {
        let index = self.pages + 1;
        self.bad.push(BadUnit {
            kind: UnitKind::Page,
            index,
            offset: page_offset(index, page_size),
            code: &code::PAGE_TRUNCATED,
        });
    }
}
