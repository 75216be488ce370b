//! Freshness of a database: what its anchors keep of all its pages. Specified in docs/spec/sqlite.md, "Freshness".
//!
//! Must not: compute a digest, or seal one.

use crate::layout::{array, layout, put, u32_at, u64_at};

layout! {
    /// Layout of the sealed state in an anchor.
    freshness_layout, 128, {
        NONCE @ 0, 12;
        STATE @ 12, 100;
        TAG @ 112, 16;
    }
}

layout! {
    /// Layout of the state.
    freshness_state_layout, 100, {
        BEFORE @ 0, 32;
        BEFORE_PAGES @ 32, 8;
        NOW @ 40, 32;
        NOW_PAGES @ 72, 8;
        JOURNAL @ 80, 16;
        FLAGS @ 96, 4;
    }
}

/// Bit of `FLAGS`: a transaction was rolled back after a crash that may have written free pages.
pub const FLAG_DOUBT: u32 = 1;

/// The digest over the pages of a database, and how many they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Covered {
    /// The digest. Secret: whoever sees digests and single changes can look for pages with the same sum.
    pub digest: [u8; 32],
    /// Pages 1 to this one are in it, but for the page of SQLite's lock bytes.
    pub pages: u64,
}

/// What an anchor keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreshState {
    /// In force while `journal` is to be played back, or while the log that the anchor names has frames.
    pub before: Covered,
    /// In force else.
    pub now: Covered,
    /// Beginning of the salt of the rollback journal of the transaction that led from `before` to `now`; zero: none.
    pub journal: [u8; 16],
    /// A rollback after a crash may have left free pages that the digest does not know ([`FLAG_DOUBT`]).
    pub doubt: bool,
}

impl FreshState {
    /// The state in an opened field. `None` when it has another length, or a flag that no version sets.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        use freshness_state_layout as at;
        let flags = u32_at(bytes, at::FLAGS)?;
        let state = Self {
            before: Covered {
                digest: array(bytes, at::BEFORE)?,
                pages: u64_at(bytes, at::BEFORE_PAGES)?,
            },
            now: Covered {
                digest: array(bytes, at::NOW)?,
                pages: u64_at(bytes, at::NOW_PAGES)?,
            },
            journal: array(bytes, at::JOURNAL)?,
            doubt: flags == FLAG_DOUBT,
        };
        (bytes.len() == at::SIZE && flags & !FLAG_DOUBT == 0).then_some(state)
    }

    /// The plaintext of the field.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; freshness_state_layout::SIZE] {
        use freshness_state_layout as at;
        let flags = if self.doubt { FLAG_DOUBT } else { 0 };
        let mut out = [0; at::SIZE];
        let done = [
            put(&mut out, at::BEFORE, &self.before.digest),
            put(&mut out, at::BEFORE_PAGES, &self.before.pages.to_le_bytes()),
            put(&mut out, at::NOW, &self.now.digest),
            put(&mut out, at::NOW_PAGES, &self.now.pages.to_le_bytes()),
            put(&mut out, at::JOURNAL, &self.journal),
            put(&mut out, at::FLAGS, &flags.to_le_bytes()),
        ];
        assert!(done.iter().all(Option::is_some), "freshness state layout");
        out
    }

    /// The same pages, without a way back: no journal, and no log with frames.
    #[must_use]
    pub fn settled(&self) -> Self {
        Self {
            before: self.now,
            now: self.now,
            journal: [0; 16],
            doubt: self.doubt,
        }
    }
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
            now: Covered {
                digest: [3; 32],
                pages: 4,
            },
            journal: [5; 16],
            doubt: true,
        };
        let mut bytes = state.to_bytes();
        assert_eq!(FreshState::parse(&bytes), Some(state));
        assert_eq!(FreshState::parse(&bytes[1..]), None);
        bytes[96] = 2;
        assert_eq!(FreshState::parse(&bytes), None);
    }
}
