//! The result of a verification.
//!
//! Must not: judge anything.

use strongroom_format::code::{self, Code};
use strongroom_format::sqlite::page_offset;

use crate::freshness::Freshness;

/// The kind of a unit.
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
    /// Returns the kind's name as it is shown in output.
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

/// A unit that is not authentic or is missing.
#[derive(Clone, Copy, Debug)]
pub struct BadUnit {
    /// Kind of the unit.
    pub kind: UnitKind,
    /// Number of the unit, from 1.
    pub index: u64,
    /// Offset of the unit in its file, in bytes.
    pub offset: u64,
    /// The error.
    pub code: &'static Code,
}

/// The result of a verification.
#[derive(Clone, Debug, Default)]
pub struct VerifyReport {
    /// Pages in the file.
    pub pages: u64,
    /// Pages whose tag verifies.
    pub pages_ok: u64,
    /// Log frames whose tag verifies.
    pub frames_ok: u64,
    /// Journal slots whose tag verifies.
    pub slots_ok: u64,
    /// All units that are not authentic or are missing, in order.
    pub bad: Vec<BadUnit>,
    /// Findings that are neither good nor bad.
    pub notes: Vec<String>,
    /// What was not checked, and why.
    pub not_checked: Vec<String>,
    /// Cipher suite of the pages.
    pub cipher: &'static str,
    /// A rekey was begun and is not finished.
    pub rekey_under_way: bool,
    /// Whether the pages are the newest ones.
    pub freshness: Freshness,
    /// An estimate of the number of pages sealed under the data key. `None` when the cipher has no
    /// limit, or no anchor is valid.
    pub seals: Option<u64>,
}

impl VerifyReport {
    /// Adds the page after the last whole one to the bad units, as SR-4002: it is missing or
    /// incomplete.
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
