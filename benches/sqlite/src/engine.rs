//! The engines: which driver runs each, how it is given its key, and what it must look like on the
//! disk.
//!
//! Invariant: all get the same raw key of 32 bytes, the same page size and the same settings.
//! Must not: give one a setting that the others do not get.

use std::fmt::Write as _;
use std::path::Path;

use strongroom_benches::Failure;

use crate::setup::Place;

/// Page cache of each connection, in KiB: SQLite's own default.
const CACHE_KIB: u32 = 2000;

/// Who runs the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    /// Stock SQLite.
    Stock,
    /// The VFS over the same library, AES-256-GCM.
    Gcm,
    /// As [`Self::Gcm`], with a digest over all pages.
    Fresh,
    /// The VFS, AES-256-CTR: not authenticated.
    Ctr,
    /// `SQLCipher` 4 as it is by default: AES-256-CBC and HMAC-SHA512 of OpenSSL.
    SqlCipher,
    /// `SQLite3` Multiple Ciphers as it is by default: ChaCha20-Poly1305.
    McChaCha,
    /// `SQLite3` Multiple Ciphers with AEGIS-256, its fastest where the processor has AES.
    McAegis,
    /// `SQLCipher`'s library without a key: what of its figures is not encryption.
    SqlCipherPlain,
    /// `SQLite3` Multiple Ciphers' library without a key.
    McPlain,
}

/// Where the key comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// 32 bytes, as they are.
    Raw,
    /// A key of the VFS's keyring; the others have none and get the raw key.
    Keyring,
    /// A passphrase, stretched as each engine does by default.
    Passphrase,
}

impl Engine {
    /// In the order of the table's columns.
    pub(crate) const ALL: [Self; 9] = [
        Self::Stock,
        Self::Gcm,
        Self::Fresh,
        Self::Ctr,
        Self::SqlCipher,
        Self::McChaCha,
        Self::McAegis,
        Self::SqlCipherPlain,
        Self::McPlain,
    ];

    /// A word for files and options.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::Gcm => "gcm",
            Self::Fresh => "gcm-fresh",
            Self::Ctr => "ctr",
            Self::SqlCipher => "sqlcipher",
            Self::McChaCha => "mc-chacha20",
            Self::McAegis => "mc-aegis",
            Self::SqlCipherPlain => "sqlcipher-plain",
            Self::McPlain => "mc-plain",
        }
    }

    /// For the table.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::Gcm => "sealed GCM",
            Self::Fresh => "sealed GCM, freshness",
            Self::Ctr => "sealed CTR",
            Self::SqlCipher => "SQLCipher",
            Self::McChaCha => "MC ChaCha20",
            Self::McAegis => "MC AEGIS",
            Self::SqlCipherPlain => "SQLCipher, no key",
            Self::McPlain => "MC, no key",
        }
    }

    /// Which of `build-peers`' programs.
    pub(crate) const fn driver(self) -> &'static str {
        match self {
            Self::Stock | Self::Gcm | Self::Fresh | Self::Ctr => "driver-stock",
            Self::SqlCipher | Self::SqlCipherPlain => "driver-sqlcipher",
            Self::McChaCha | Self::McAegis | Self::McPlain => "driver-mc",
        }
    }

    /// Whether its files must not show what they hold.
    pub(crate) const fn seals(self) -> bool {
        !matches!(self, Self::Stock | Self::SqlCipherPlain | Self::McPlain)
    }

    const fn is_guard(self) -> bool {
        matches!(self, Self::Gcm | Self::Fresh | Self::Ctr)
    }

    /// Whether opening with that sort of key is a measurement of this engine.
    pub(crate) fn opens_with(self, key: Key) -> bool {
        key == Key::Raw || self.seals() && (key == Key::Passphrase || self.is_guard())
    }

    /// The driver's lines until the database at `path` can be opened.
    pub(crate) fn prelude(self, place: &Place, path: &Path, key: Key) -> Result<String, Failure> {
        let path = path.to_str().ok_or("the path is not UTF-8")?;
        let mut lines = String::new();
        if self.is_guard() {
            writeln!(lines, "extension {}", place.extension.display())?;
        }
        let key = if self.is_guard() && key == Key::Keyring {
            key
        } else if key == Key::Keyring {
            Key::Raw
        } else {
            key
        };
        let parameters = match (self.is_guard(), key) {
            (true, Key::Keyring) => {
                format!("?key_id=bench&keyring={}", place.keyring().display())
            }
            (true, key) => {
                format!("?key_file={}", place.key_file(key).display())
            }
            _ => String::new(),
        };
        let kind = match self {
            Self::Ctr => "&cipher=ctr",
            Self::Fresh => "&freshness=1",
            _ => "",
        };
        writeln!(lines, "uri file:{path}{parameters}{kind}")?;
        for pragma in self.key_pragmas(&place.key_text(key)?, key) {
            writeln!(lines, "init {pragma}")?;
        }
        Ok(lines)
    }

    fn key_pragmas(self, text: &str, key: Key) -> Vec<String> {
        let raw = key == Key::Raw;
        match self {
            Self::SqlCipher if raw => vec![format!("PRAGMA key = \"x'{text}'\"")],
            Self::SqlCipher => vec![format!("PRAGMA key = '{text}'")],
            Self::McChaCha | Self::McAegis => {
                let cipher = if self == Self::McAegis {
                    "aegis"
                } else {
                    "chacha20"
                };
                let form = if raw { "raw:" } else { "" };
                vec![
                    format!("PRAGMA cipher = '{cipher}'"),
                    format!("PRAGMA key = '{form}{text}'"),
                ]
            }
            _ => Vec::new(),
        }
    }
}

/// The same settings for all, after the database is open. Temporary files are in memory, because
/// `SQLCipher` has them nowhere else.
pub(crate) fn settings() -> String {
    [
        "PRAGMA mmap_size=0".to_owned(),
        "PRAGMA temp_store=MEMORY".to_owned(),
        format!("PRAGMA cache_size=-{CACHE_KIB}"),
    ]
    .map(|pragma| format!("sql {pragma}\n"))
    .concat()
}

#[cfg(test)]
mod tests {
    use super::{Engine, Key};

    #[test]
    fn a_key_reaches_every_engine_that_seals_and_no_other() {
        for engine in Engine::ALL {
            let pragmas = engine.key_pragmas("00ff", Key::Raw).concat();
            let by_pragma = engine.seals() && !engine.is_guard();
            assert_eq!(pragmas.contains("00ff"), by_pragma, "{engine:?}");
            assert_eq!(engine.opens_with(Key::Passphrase), engine.seals());
            assert_eq!(engine.opens_with(Key::Keyring), engine.is_guard());
        }
    }
}
