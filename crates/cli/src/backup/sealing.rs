//! The options that say how a set is sealed and for which keys, the same for `create`, `wal-push`
//! and `wal-receive`.
//!
//! Must not: allow unencrypted sets unless the user asks for them with `--no-encryption`.

use std::path::Path;

use clap::Args;
use strongroom_backup::{Cipher, Compression, Error, set_recipients};
use strongroom_format::code;
use strongroom_keyring::{KeySource, Recipient};

use crate::failure::{Failure, warn};
use crate::key_options::KeyOptions;
use crate::keys;

/// Keys, certificates, cipher and compression.
#[derive(Args)]
pub(super) struct SealingOptions {
    #[command(flatten)]
    pub(super) key: KeyOptions,
    /// A certificate of the keyring to seal for; may be given several times, and beside a key
    #[arg(long, value_name = "NAME")]
    certificate: Vec<String>,
    /// Do not encrypt: whoever can read the medium can read the data
    #[arg(long, conflicts_with_all = ["key_id", "key_env", "key_file", "key_command", "ask", "certificate"])]
    no_encryption: bool,
    /// aes-256, aes-192, aes-128, or, with --allow-legacy, triple-des-3key
    #[arg(long, value_name = "NAME", default_value = "aes-256", value_parser = cipher)]
    algorithm: Cipher,
    /// Allow --algorithm triple-des-3key, which NIST allows for no encryption since 2024
    #[arg(long)]
    allow_legacy: bool,
    /// none, zstd, or zstd:LEVEL with a level from 1 to 19
    #[arg(long, value_name = "NAME", default_value = "zstd", value_parser = compression)]
    pub(super) compression: Compression,
}

impl SealingOptions {
    /// Returns the key source that the options name, without fetching the key. If they name none:
    /// `None` with certificates or with `--no-encryption`, otherwise SR-2041. `command` names the
    /// command in that error.
    pub(super) fn key(&self, command: &str) -> Result<Option<KeySource>, Failure> {
        if self.no_encryption || self.has_certificates() {
            return Ok(keys::source(self.key.clone()));
        }
        let what = format!("{command} without --no-encryption");
        keys::required(self.key.clone(), &what).map(Some)
    }

    /// Returns whether `--certificate` was given.
    pub(super) const fn has_certificates(&self) -> bool {
        !self.certificate.is_empty()
    }

    /// Returns the recipients of a set: the certificates that the options name, and `key`. Empty if
    /// it is not sealed. Warnings and errors as [`set_recipients`].
    pub(super) fn recipients(
        &self,
        key: Option<&KeySource>,
        keyring: &Path,
    ) -> Result<Vec<Recipient>, Error> {
        set_recipients(key, &self.certificate, keyring, &mut warn)
    }

    /// Returns the cipher. Triple DES needs `--allow-legacy`, otherwise SR-7170; with it, warns
    /// with SR-7171 every time. `medium` is for the warning.
    pub(super) fn cipher(&self, medium: &Path) -> Result<Cipher, Failure> {
        if !self.algorithm.is_legacy() {
            return Ok(self.algorithm);
        }
        if !self.allow_legacy {
            return Err(Failure::new(&code::LEGACY_CIPHER, self.algorithm.name()));
        }
        warn(&code::LEGACY_SET, &medium.display().to_string());
        Ok(self.algorithm)
    }
}

/// Parses the name of a cipher. The error is the text that clap shows.
fn cipher(name: &str) -> Result<Cipher, String> {
    Cipher::ALL
        .into_iter()
        .find(|cipher| cipher.name() == name)
        .ok_or_else(|| "use aes-256, aes-192, aes-128 or triple-des-3key".to_owned())
}

/// Parses `none`, `zstd` or `zstd:LEVEL`. The error is the text that clap shows.
fn compression(name: &str) -> Result<Compression, String> {
    Compression::from_name(name)
        .ok_or_else(|| "use none, zstd, or zstd:LEVEL with a level from 1 to 19".to_owned())
}
