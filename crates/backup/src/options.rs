//! How a set is made: the options of a backup and of an archived file.

use strongroom_crypto::SigningKey;
use strongroom_format::hex;
use strongroom_keyring::Recipient;

use crate::clock::now_unix_s;
use crate::head::{Description, Kind};
use crate::medium_head::Protection;
use crate::set::{Cipher, SetKeys};

/// What is done with the sets that the medium has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They stay.
    #[default]
    Append,
    /// They are removed once the new one is complete; the medium's protection and stripes stay.
    Init,
    /// As `Init`, and the medium gets a new id.
    Format,
}

/// How pieces are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// zstd at this level.
    Zstd(i32),
}

impl Default for Compression {
    fn default() -> Self {
        Self::Zstd(3)
    }
}

impl Compression {
    /// Parses `none`, `zstd` (level 3) or `zstd:LEVEL`, level 1 to 19. `None` for anything else.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name.split_once(':') {
            None if name == "none" => Some(Self::None),
            None if name == "zstd" => Some(Self::default()),
            Some(("zstd", level)) => {
                let level: i32 = level.parse().ok()?;
                (1..=19).contains(&level).then_some(Self::Zstd(level))
            }
            _ => None,
        }
    }

    /// The compression as the description of a set has it: `none` or `zstd:LEVEL`.
    fn description(self) -> String {
        match self {
            Self::None => String::from("none"),
            Self::Zstd(level) => format!("zstd:{level}"),
        }
    }

    /// The level of zstd; `None` without compression.
    pub(crate) fn level(self) -> Option<i32> {
        match self {
            Self::None => None,
            Self::Zstd(level) => Some(level),
        }
    }
}

/// How a set is made.
pub struct CreateOptions<'a> {
    /// Whom the set is sealed for. Empty: it is not sealed.
    pub recipients: Vec<Recipient>,
    /// What it is sealed with.
    pub cipher: Cipher,
    /// How it is compressed.
    pub compression: Compression,
    /// What is done with older sets.
    pub mode: Mode,
    /// Number of families. `None`: that of the medium, or 1 on a new one.
    pub stripes: Option<u16>,
    /// Threads that compress and seal, at least 1.
    pub threads: usize,
    /// The set's name, may be empty.
    pub name: String,
    /// The host's name.
    pub machine_name: String,
    /// The user's name.
    pub user_name: String,
    /// Until when the set must not be overwritten, in seconds since the Unix epoch.
    pub expires_unix_s: Option<u64>,
    /// Overwrite sets that have not expired.
    pub skip_expiry: bool,
    /// The key that signs the set. `None`: it is not signed. Archived files never are.
    pub sign_key: Option<&'a SigningKey>,
}

impl CreateOptions<'_> {
    /// The options of a set for these recipients (none: not sealed), made on this machine by this
    /// user, with the defaults for all else and one thread.
    #[must_use]
    pub fn new(recipients: Vec<Recipient>, machine_name: String, user_name: String) -> Self {
        Self {
            recipients,
            cipher: Cipher::default(),
            compression: Compression::default(),
            mode: Mode::default(),
            stripes: None,
            threads: 1,
            name: String::new(),
            machine_name,
            user_name,
            expires_unix_s: None,
            skip_expiry: false,
            sign_key: None,
        }
    }

    /// Returns whether the set is sealed or plain: sealed if it has a recipient.
    pub(crate) fn protection(&self) -> Protection {
        if self.recipients.is_empty() {
            Protection::Plain
        } else {
            Protection::Sealed
        }
    }

    /// Draws the keys of a new set: a new data key and a key slot for each recipient, or a random
    /// id when the set is not sealed. Two calls give two sets. Errors of sealing for a recipient.
    pub(crate) fn new_set_keys(&self) -> crate::Result<SetKeys> {
        match self.protection() {
            Protection::Plain => SetKeys::plain(),
            Protection::Sealed => SetKeys::sealed(self.cipher, &self.recipients),
        }
    }

    /// The description of a set, as far as it is known before its stream is read; its end is now.
    /// Its kind is `Files` and its counts are 0 until the caller fills them in.
    pub(crate) fn describe(
        &self,
        set_keys: &SetKeys,
        medium_id: &str,
        started_unix_s: u64,
    ) -> Description {
        Description {
            set_id: hex::hex(&set_keys.set_id()),
            medium_id: medium_id.to_owned(),
            name: self.name.clone(),
            kind: Kind::Files,
            source: String::new(),
            machine_name: self.machine_name.clone(),
            user_name: self.user_name.clone(),
            software: format!("strongroom {}", env!("CARGO_PKG_VERSION")),
            started_unix_s,
            finished_unix_s: now_unix_s(),
            expires_unix_s: self.expires_unix_s,
            compression: self.compression.description(),
            key_algorithm: set_keys.algorithm().to_owned(),
            members: 0,
            files: 0,
            backup_size_bytes: 0,
            compressed_size_bytes: 0,
            families: Vec::new(),
            postgres: None,
            sqlite: None,
            content_digest: None,
            set_position: None,
        }
    }
}
