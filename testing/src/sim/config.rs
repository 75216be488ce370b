//! What a simulated database is like, as a text that a failure prints and a run by hand reads.
//!
//! Must not: have a setting that the text leaves out.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use strongroom_crypto::SecretKey;
use strongroom_keyring::Opener;

/// What stands on the simulated disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// SQLite on the VFS.
    Sealed,
    /// SQLite alone: what it does shows whether the simulation is to be believed.
    Control,
}

/// Settings of a database and its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Sealed or control.
    pub stack: Stack,
    /// `PRAGMA journal_mode`.
    pub journal: String,
    /// `PRAGMA synchronous`.
    pub synchronous: String,
    /// Page size in bytes.
    pub page_size: usize,
    /// `PRAGMA auto_vacuum`.
    pub auto_vacuum: u8,
    /// Two databases in each transaction.
    pub two: bool,
    /// `PRAGMA locking_mode=EXCLUSIVE`.
    pub exclusive: bool,
    /// `PRAGMA cache_size`: few pages make a transaction spill.
    pub cache: u32,
    /// `PRAGMA wal_autocheckpoint`.
    pub autocheckpoint: u32,
    /// The VFS's cipher.
    pub cipher: String,
    /// The VFS keeps freshness.
    pub freshness: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            stack: Stack::Sealed,
            journal: "delete".to_owned(),
            synchronous: "full".to_owned(),
            page_size: 1024,
            auto_vacuum: 0,
            two: false,
            exclusive: false,
            cache: 5,
            autocheckpoint: 12,
            cipher: "aes-256-gcm".to_owned(),
            freshness: false,
        }
    }
}

/// What of the transactions that were acknowledged a power cut may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Nothing.
    All,
    /// The last one: the removal, or the cutting, of its journal is not made durable.
    AllButOne,
    /// Those since the last checkpoint.
    Checkpointed,
    /// Only the end of a process leaves the database whole.
    Process,
    /// Not even that within a transaction.
    Nothing,
}

impl Config {
    /// What SQLite promises for these settings
    /// (<https://www.sqlite.org/pragma.html#pragma_synchronous>).
    #[must_use]
    pub fn promise(&self) -> Promise {
        let synchronous = self.synchronous.as_str();
        match (self.journal.as_str(), synchronous) {
            ("memory" | "off", _) => Promise::Nothing,
            (_, "off") => Promise::Process,
            ("wal", "normal") => Promise::Checkpointed,
            ("wal" | "persist", _) | ("delete", "extra") | ("truncate", "full" | "extra") => {
                Promise::All
            }
            // Instead of being removed, the journal is overwritten with zeros, and synced.
            ("delete", _) if self.exclusive => Promise::All,
            _ => Promise::AllButOne,
        }
    }

    /// The locking mode's name.
    #[must_use]
    pub const fn locking(&self) -> &'static str {
        if self.exclusive {
            "exclusive"
        } else {
            "normal"
        }
    }

    /// Whether it has a write-ahead log.
    #[must_use]
    pub fn wal(&self) -> bool {
        self.journal == "wal"
    }
}

impl fmt::Display for Config {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stack = match self.stack {
            Stack::Sealed => "sealed",
            Stack::Control => "control",
        };
        write!(
            out,
            "{stack},{},{},{},av{},{},{},cache{},auto{},{},{}",
            self.journal,
            self.synchronous,
            self.page_size,
            self.auto_vacuum,
            if self.two { "two" } else { "one" },
            self.locking(),
            self.cache,
            self.autocheckpoint,
            self.cipher,
            if self.freshness { "fresh" } else { "plain" },
        )
    }
}

impl FromStr for Config {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("no settings: {text}");
        let parts: Vec<&str> = text.split(',').collect();
        let [
            stack,
            journal,
            synchronous,
            page_size,
            vacuum,
            two,
            locking,
            cache,
            auto,
            cipher,
            freshness,
        ] = parts[..]
        else {
            return Err(wrong());
        };
        fn number<T: FromStr>(text: &str, prefix: &str) -> Option<T> {
            text.strip_prefix(prefix)?.parse().ok()
        }
        Ok(Self {
            stack: match stack {
                "sealed" => Stack::Sealed,
                "control" => Stack::Control,
                _ => return Err(wrong()),
            },
            journal: journal.to_owned(),
            synchronous: synchronous.to_owned(),
            page_size: number(page_size, "").ok_or_else(wrong)?,
            auto_vacuum: number(vacuum, "av").ok_or_else(wrong)?,
            two: two == "two",
            exclusive: locking == "exclusive",
            cache: number(cache, "cache").ok_or_else(wrong)?,
            autocheckpoint: number(auto, "auto").ok_or_else(wrong)?,
            cipher: cipher.to_owned(),
            freshness: freshness == "fresh",
        })
    }
}

/// A key of the simulated databases. They hold nothing.
///
/// # Panics
/// When no locked memory is to be had.
#[must_use]
pub fn key(number: u8) -> Arc<Opener> {
    let key = SecretKey::take(&mut [number ^ 0x5a; 32]);
    Arc::new(Opener::raw(key.expect("locked memory")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_are_written() {
        let config = Config {
            stack: Stack::Control,
            journal: "wal".to_owned(),
            two: true,
            exclusive: true,
            auto_vacuum: 2,
            freshness: true,
            ..Config::default()
        };
        assert_eq!(config.to_string().parse(), Ok(config));
    }
}
