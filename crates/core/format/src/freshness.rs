//! Freshness of a database: the digests over its pages that its anchors keep. Specified in
//! docs/spec/sqlite.md, "Freshness".
//!
//! Must not: compute a digest, or seal one.

use crate::layout::{Field, array, layout, put, u32_at, u64_at};

layout! {
    /// Layout of the sealed state in an anchor.
    freshness_layout, 168, {
        NONCE @ 0, 12;
        STATE @ 12, 140;
        TAG @ 152, 16;
    }
}

layout! {
    /// Layout of the state.
    freshness_state_layout, 140, {
        NOW @ 0, 32;
        NOW_PAGES @ 32, 8;
        BASE @ 40, 32;
        BASE_PAGES @ 72, 8;
        BEFORE @ 80, 32;
        BEFORE_PAGES @ 112, 8;
        JOURNAL @ 120, 16;
        FLAGS @ 136, 4;
    }
}

/// Bit of `FLAGS`: a transaction that was interrupted may have written free pages that the digest
/// does not know.
pub const FLAG_DOUBT: u32 = 1;
/// Bit of `FLAGS`: the transaction of `JOURNAL` has written free pages without a record in the
/// journal.
pub const FLAG_LOOSE: u32 = 2;

/// A digest over the pages of a database, and how many pages it covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Covered {
    /// The sum of what each page adds. Secret: somebody who sees digests and single changes can
    /// look for a set of older pages with the same sum.
    pub digest: [u8; 32],
    /// The digest covers pages 1 to this one, except the page of SQLite's lock bytes.
    pub pages: u64,
}

/// The freshness state that an anchor keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreshState {
    /// The digest of the file; in force unless `base` or `before` is.
    pub now: Covered,
    /// The digest of the file before any frame of the log was copied into it; in force while the
    /// write-ahead log that the anchor names has frames.
    pub base: Covered,
    /// The digest of the file before the transaction of `journal` began; in force when that journal
    /// is played back.
    pub before: Covered,
    /// The first 16 bytes of the salt of the last transaction's rollback journal; zero for none.
    pub journal: [u8; 16],
    /// Whether an interrupted transaction may have written free pages that the digest does not know
    /// ([`FLAG_DOUBT`]).
    pub doubt: bool,
    /// Whether `doubt` has to be set when `journal` is played back ([`FLAG_LOOSE`]).
    pub loose: bool,
}

impl FreshState {
    /// Parses the plaintext of an anchor's field. `None` when it has another length, or a flag that
    /// no version sets.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        use freshness_state_layout as at;
        let flags = u32_at(bytes, at::FLAGS)?;
        let state = Self {
            now: covered(bytes, at::NOW, at::NOW_PAGES)?,
            base: covered(bytes, at::BASE, at::BASE_PAGES)?,
            before: covered(bytes, at::BEFORE, at::BEFORE_PAGES)?,
            journal: array(bytes, at::JOURNAL)?,
            doubt: flags & FLAG_DOUBT != 0,
            loose: flags & FLAG_LOOSE != 0,
        };
        (bytes.len() == at::SIZE && flags & !(FLAG_DOUBT | FLAG_LOOSE) == 0).then_some(state)
    }

    /// The plaintext of the field.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; freshness_state_layout::SIZE] {
        use freshness_state_layout as at;
        let flag = |on: bool, bit: u32| if on { bit } else { 0 };
        let flags = flag(self.doubt, FLAG_DOUBT) | flag(self.loose, FLAG_LOOSE);
        let mut out = [0; at::SIZE];
        let done = [
            put(&mut out, at::NOW, &self.now.digest),
            put(&mut out, at::NOW_PAGES, &self.now.pages.to_le_bytes()),
            put(&mut out, at::BASE, &self.base.digest),
            put(&mut out, at::BASE_PAGES, &self.base.pages.to_le_bytes()),
            put(&mut out, at::BEFORE, &self.before.digest),
            put(&mut out, at::BEFORE_PAGES, &self.before.pages.to_le_bytes()),
            put(&mut out, at::JOURNAL, &self.journal),
            put(&mut out, at::FLAGS, &flags.to_le_bytes()),
        ];
        assert!(done.iter().all(Option::is_some), "freshness state layout");
        out
    }

    /// Returns the state for an anchor that names another write-ahead log, or none: `base` becomes
    /// `now`. `before` and `journal` stay, because the removal of the journal need not be durable
    /// yet.
    #[must_use]
    pub fn without_log(&self) -> Self {
        Self {
            base: self.now,
            ..*self
        }
    }
}

/// Reads one digest and its count of pages. `None` when the fields are beyond `bytes`.
fn covered(bytes: &[u8], digest: Field, pages: Field) -> Option<Covered> {
    Some(Covered {
        digest: array(bytes, digest)?,
        pages: u64_at(bytes, pages)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_it_is_written_and_unknown_flags_are_refused() {
        let state = FreshState {
            before: Covered {
                digest: [1; 32],
                pages: 2,
            },
            base: Covered {
                digest: [6; 32],
                pages: 7,
            },
            now: Covered {
                digest: [3; 32],
                pages: 4,
            },
            journal: [5; 16],
            doubt: true,
            loose: false,
        };
        let mut bytes = state.to_bytes();
        assert_eq!(FreshState::parse(&bytes), Some(state));
        assert_eq!(FreshState::parse(&bytes[1..]), None);
        bytes[136] = 4;
        assert_eq!(FreshState::parse(&bytes), None);
    }
}
