//! Rows of the audit log, and the hash chain that reveals a missing, changed or moved row.
//!
//! Invariant A1: the hash of a row covers the hash of the row before it, its own number and all of
//! its members (docs/spec/keyserver.md, "Audit log").
//!
//! Must not: contain the bytes of a key, a token or a share.

use serde::{Deserialize, Serialize};
use strongroom_crypto::sha256;
use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_keyring::Error;

/// The prefix of the paths for which rows are sealed. The number follows, in twenty digits.
pub const PREFIX: &str = "audit/";
/// The first bytes of the hashed message.
const LABEL: &[u8] = b"strongroom/v1/audit\0";
/// The hash that takes the place of a row before the first one.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// An event that is to become a row of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The client that caused it, or `-`.
    pub actor: String,
    /// The client's address, or `-` for the server itself.
    pub address: String,
    /// What happened, in one word: `deliver`, `create`, `rotate`, `denied` and others.
    pub action: String,
    /// What it happened to: the name of a key or a client, the id of an object, or another name.
    pub subject: String,
    /// The version of the key, or 0.
    pub version: u32,
    /// Further details, without secrets.
    pub detail: String,
}

/// One row of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The number of the row: from 1, without gaps.
    pub n: u64,
    /// When it was written, in seconds since the Unix epoch, by the server's clock.
    pub time: u64,
    /// As in [`Event`].
    pub actor: String,
    /// As in [`Event`].
    pub address: String,
    /// As in [`Event`].
    pub action: String,
    /// As in [`Event`].
    pub subject: String,
    /// As in [`Event`].
    pub version: u32,
    /// As in [`Event`].
    pub detail: String,
    /// The hash of this row, in hexadecimal digits.
    pub hash: String,
}

impl Row {
    /// Makes the row number `n` for an event, with its hash, after the row with the hash `before`.
    /// `time` is in seconds since the Unix epoch.
    #[must_use]
    pub fn following(before: &str, n: u64, time: u64, event: Event) -> Self {
        let mut row = Self {
            n,
            time,
            actor: event.actor,
            address: event.address,
            action: event.action,
            subject: event.subject,
            version: event.version,
            detail: event.detail,
            hash: String::new(),
        };
        row.hash = row.expected_hash(before);
        row
    }

    /// Returns the hash, in hexadecimal digits, that this row must have after the row with the hash
    /// `before`.
    #[must_use]
    pub fn expected_hash(&self, before: &str) -> String {
        let mut bytes = LABEL.to_vec();
        for number in [self.n, self.time, self.version.into()] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let texts = [
            before,
            self.actor.as_str(),
            self.address.as_str(),
            self.action.as_str(),
            self.subject.as_str(),
            self.detail.as_str(),
        ];
        for text in texts {
            let len = u32::try_from(text.len()).unwrap_or(u32::MAX);
            bytes.extend_from_slice(&len.to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        hex(&sha256(&[&bytes]))
    }
}

/// Returns the path for which row `n` is sealed.
#[must_use]
pub fn row_path(n: u64) -> String {
    format!("{PREFIX}{n:020}")
}

/// Verifies the hash chain of rows that come in order.
#[derive(Debug)]
pub struct Chain {
    n: u64,
    hash: String,
}

impl Default for Chain {
    fn default() -> Self {
        Self {
            n: 0,
            hash: GENESIS.to_owned(),
        }
    }
}

impl Chain {
    /// Makes a chain that continues after row `n`, whose hash is known.
    #[must_use]
    pub fn after(n: u64, hash: &str) -> Self {
        Self {
            n,
            hash: hash.to_owned(),
        }
    }

    /// Verifies the next row, and goes on to it.
    ///
    /// # Errors
    /// SR-8436 when its number is not the next one, or its hash is wrong; the chain is then as
    /// before.
    pub fn verify(&mut self, row: &Row) -> Result<(), Error> {
        let next = self.n.saturating_add(1);
        if row.n != next {
            let detail = format!("row {} comes where row {next} must", row.n);
            return Err(Error::new(&code::SERVER_AUDIT, detail));
        }
        if row.hash != row.expected_hash(&self.hash) {
            return Err(Error::new(&code::SERVER_AUDIT, format!("row {next}")));
        }
        self.n = next;
        self.hash.clone_from(&row.hash);
        Ok(())
    }

    /// The number and the hash of the last verified row; 0 and [`GENESIS`] before the first.
    #[must_use]
    pub fn last(&self) -> (u64, &str) {
        (self.n, &self.hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(count: u64) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut before = GENESIS.to_owned();
        for n in 1..=count {
            let event = Event {
                actor: format!("node{n}"),
                action: "deliver".into(),
                ..Event::default()
            };
            let row = Row::following(&before, n, 1000 + n, event);
            before.clone_from(&row.hash);
            rows.push(row);
        }
        rows
    }

    fn is_intact(rows: &[Row]) -> bool {
        let mut chain = Chain::default();
        rows.iter().all(|row| chain.verify(row).is_ok())
    }

    #[test]
    fn every_change_is_found() {
        let rows = log(5);
        assert!(is_intact(&rows));
        let mut missing = rows.clone();
        missing.remove(2);
        assert!(!is_intact(&missing));
        let mut swapped = rows.clone();
        swapped.swap(1, 2);
        assert!(!is_intact(&swapped));
        let changes: [fn(&mut Row); 8] = [
            |row| row.n = 9,
            |row| row.time += 1,
            |row| row.actor.push('x'),
            |row| row.address.push('x'),
            |row| row.action.push('x'),
            |row| row.subject.push('x'),
            |row| row.version += 1,
            |row| row.detail.push('x'),
        ];
        for change in changes {
            let mut changed = rows.clone();
            change(&mut changed[2]);
            assert!(!is_intact(&changed));
            // If the hash of the changed row is corrected, the hash of the next row is wrong.
            changed[2].hash = changed[2].expected_hash(&rows[1].hash);
            assert!(!is_intact(&changed));
        }
        // Moving text from one member to the next changes the hash.
        let mut moved = rows[0].clone();
        (moved.actor, moved.action) = ("node1d".into(), "eliver".into());
        assert_ne!(moved.expected_hash(GENESIS), rows[0].hash);
    }
}
