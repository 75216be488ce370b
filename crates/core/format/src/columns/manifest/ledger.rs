//! What the zone has told under each column key, and how much it may tell, in a manifest.
//!
//! Must not: know what a limit means.

use super::super::channel::{CLIENT_NAME_MAX, LIMITLESS, is_name};
use crate::layout::{array, layout, put, u32_at, u64_at, zero_at};

layout! {
    /// Layout of a column key's ledger; LINES lines follow.
    ledger_layout, 72, {
        KEY_ID @ 0, 16;
        LINES @ 16, 4;
        RESERVED @ 20, 4;
        PERIOD @ 24, 8;
        TRUTHS @ 32, 8;
        OUTPUTS @ 40, 8;
        BEGUN @ 48, 8;
        SPENT_TRUTHS @ 56, 8;
        SPENT_OUTPUTS @ 64, 8;
    }
}

layout! {
    /// Layout of a line of a ledger.
    ledger_line_layout, 112, {
        ASKER @ 0, 1;
        LENGTH @ 1, 1;
        RESERVED @ 2, 6;
        NAME @ 8, 64;
        SEEN @ 72, 8;
        TRUTHS @ 80, 8;
        CHECKS @ 88, 8;
        OUTPUTS @ 96, 8;
        DECLASSIFIED @ 104, 8;
    }
}

/// The ledger of a column key in a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerEntry {
    /// The column key's id.
    pub key_id: [u8; 16],
    /// How many lines follow.
    pub lines: u32,
    /// Seconds after which what was spent is forgotten; 0 for never.
    pub period: u64,
    /// Answers that may be given in a period; [`LIMITLESS`] for any number.
    pub truths: u64,
    /// Values that may leave the zone in a period; [`LIMITLESS`] for any number.
    pub outputs: u64,
    /// When the period has begun, in seconds since 1970.
    pub begun: u64,
    /// Answers of the period that count as given, at least as many as were.
    pub spent_truths: u64,
    /// Values that count as having left in the period, at least as many as have.
    pub spent_outputs: u64,
}

impl LedgerEntry {
    /// Parses the entry that the bytes begin with, and returns it with the bytes that follow.
    /// `None` when it is cut short, or a field has a value that no writer gives it.
    #[must_use]
    pub fn parse(rest: &[u8]) -> Option<(Self, &[u8])> {
        use ledger_layout as at;
        let found = Self {
            key_id: array(rest, at::KEY_ID)?,
            lines: u32_at(rest, at::LINES)?,
            period: u64_at(rest, at::PERIOD)?,
            truths: u64_at(rest, at::TRUTHS)?,
            outputs: u64_at(rest, at::OUTPUTS)?,
            begun: u64_at(rest, at::BEGUN)?,
            spent_truths: u64_at(rest, at::SPENT_TRUTHS)?,
            spent_outputs: u64_at(rest, at::SPENT_OUTPUTS)?,
        };
        let rest_behind = rest.get(ledger_layout::SIZE..)?;
        zero_at(rest, at::RESERVED).then_some((found, rest_behind))
    }

    /// Returns its bytes, as they are written.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; ledger_layout::SIZE] {
        use ledger_layout as at;
        let mut out = [0; ledger_layout::SIZE];
        let fields = [
            put(&mut out, at::KEY_ID, &self.key_id),
            put(&mut out, at::LINES, &self.lines.to_le_bytes()),
            put(&mut out, at::PERIOD, &self.period.to_le_bytes()),
            put(&mut out, at::TRUTHS, &self.truths.to_le_bytes()),
            put(&mut out, at::OUTPUTS, &self.outputs.to_le_bytes()),
            put(&mut out, at::BEGUN, &self.begun.to_le_bytes()),
            put(&mut out, at::SPENT_TRUTHS, &self.spent_truths.to_le_bytes()),
            put(
                &mut out,
                at::SPENT_OUTPUTS,
                &self.spent_outputs.to_le_bytes(),
            ),
        ];
        assert!(fields.iter().all(Option::is_some), "ledger layout");
        out
    }

    /// Whether the ledger has a limit.
    #[must_use]
    pub const fn is_limited(&self) -> bool {
        self.truths != LIMITLESS || self.outputs != LIMITLESS
    }
}

/// Who was told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asker<N> {
    /// The server, without a session.
    NoSession,
    /// Clients of this name.
    Named(N),
    /// Clients whose names have no line of their own.
    Others,
}

/// A line of a ledger in a manifest: what clients of one name were told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerLine<'a> {
    /// Who was told.
    pub asker: Asker<&'a str>,
    /// When a session of theirs was last opened or renewed, in seconds since 1970; 0 for never.
    pub seen: u64,
    /// Truths given: comparisons, tests, tokens, ranks.
    pub truths: u64,
    /// Answers given that showed whether a computation has failed.
    pub checks: u64,
    /// Values that were sealed for a client or given in clear.
    pub outputs: u64,
    /// Values of these that were given in clear.
    pub declassified: u64,
}

impl<'a> LedgerLine<'a> {
    /// Parses the line that the bytes begin with, and returns it with the bytes that follow. `None`
    /// when it is cut short, or a field has a value that no writer gives it.
    #[must_use]
    pub fn parse(rest: &'a [u8]) -> Option<(Self, &'a [u8])> {
        use ledger_line_layout as at;
        let [kind] = array(rest, at::ASKER)?;
        let [length] = array(rest, at::LENGTH)?;
        let end = at::NAME.offset.checked_add(at::NAME.len)?;
        let name = rest.get(at::NAME.offset..end)?;
        let (name, padding) = name.split_at_checked(usize::from(length))?;
        let name = core::str::from_utf8(name).ok()?;
        let asker = match kind {
            0 if name.is_empty() => Asker::NoSession,
            1 if is_name(name) => Asker::Named(name),
            2 if name.is_empty() => Asker::Others,
            _ => return None,
        };
        let sound = zero_at(rest, at::RESERVED) && padding.iter().all(|byte| *byte == 0);
        let line = Self {
            asker,
            seen: u64_at(rest, at::SEEN)?,
            truths: u64_at(rest, at::TRUTHS)?,
            checks: u64_at(rest, at::CHECKS)?,
            outputs: u64_at(rest, at::OUTPUTS)?,
            declassified: u64_at(rest, at::DECLASSIFIED)?,
        };
        let rest = rest.get(ledger_line_layout::SIZE..)?;
        sound.then_some((line, rest))
    }

    /// Returns its bytes, as they are written. A name that is none is written as far as it fits,
    /// and then not read again.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; ledger_line_layout::SIZE] {
        use ledger_line_layout as at;
        let mut out = [0; ledger_line_layout::SIZE];
        let (kind, name) = match self.asker {
            Asker::NoSession => (0, ""),
            Asker::Named(name) => (1, name),
            Asker::Others => (2, ""),
        };
        let mut padded = [0; CLIENT_NAME_MAX + 1];
        let mut length = 0_u8;
        for (to, from) in padded.iter_mut().zip(name.bytes().take(CLIENT_NAME_MAX)) {
            *to = from;
            length = length.saturating_add(1);
        }
        let fields = [
            put(&mut out, at::ASKER, &[kind]),
            put(&mut out, at::LENGTH, &[length]),
            put(&mut out, at::NAME, &padded),
            put(&mut out, at::SEEN, &self.seen.to_le_bytes()),
            put(&mut out, at::TRUTHS, &self.truths.to_le_bytes()),
            put(&mut out, at::CHECKS, &self.checks.to_le_bytes()),
            put(&mut out, at::OUTPUTS, &self.outputs.to_le_bytes()),
            put(&mut out, at::DECLASSIFIED, &self.declassified.to_le_bytes()),
        ];
        assert!(fields.iter().all(Option::is_some), "ledger line layout");
        out
    }
}
