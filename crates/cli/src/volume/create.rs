//! `strongroom volume create DEVICE_OR_FILE`.
//!
//! Must not: show any key but a recovery key.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use strongroom_volume::create::NewVolume;
use strongroom_volume::make::make;
use strongroom_volume::recovery_place::RecoveryPlace;

use super::material::ProviderOptions;
use super::messages::StandardError;
use super::recovery::RecoveryOptions;
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Make an encrypted volume (LUKS2) on a device or in a file.
#[derive(Args)]
#[command(after_help = tail!("  strongroom volume create /dev/vdb --key-id db-7 --label db-7 --recovery-out db-7.recovery"))]
pub(super) struct CreateArgs {
    /// The device, or the file
    #[arg(value_name = "DEVICE_OR_FILE")]
    path: PathBuf,
    /// The key's name; a key of that name is made when there is none
    #[arg(long, value_name = "NAME", help_heading = "Key options")]
    key_id: String,
    #[command(flatten)]
    provider: ProviderOptions,
    /// Make a new file of this length, as 512M or 20G
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
    /// The cipher
    #[arg(long, value_name = "CIPHER", default_value = "aes-xts-plain64")]
    cipher: String,
    /// Bits of the volume key
    #[arg(long, value_name = "BITS", default_value_t = 512)]
    key_size: usize,
    /// Authenticate each sector (needs dm-integrity; the whole device is written once)
    #[arg(long, value_name = "MAC")]
    integrity: Option<Integrity>,
    /// The volume's label
    #[arg(long, value_name = "LABEL")]
    label: Option<String>,
    /// Bytes of a unit of encryption: 512, 1024, 2048 or 4096 [default: what suits the device]
    #[arg(long, value_name = "BYTES")]
    sector_size: Option<u32>,
    #[command(flatten)]
    recovery: RecoveryOptions,
    /// Make no recovery key
    #[arg(long, conflicts_with = "recovery_out")]
    no_recovery: bool,
    /// Destroy what the device holds
    #[arg(long, conflicts_with = "size")]
    overwrite: bool,
    /// Overwrite all of the device with random bytes first, so that nothing of what it held can be
    /// read below the volume
    #[arg(long, conflicts_with = "size")]
    wipe: bool,
    /// Write one JSON object to standard output
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Integrity {
    /// HMAC with SHA-256
    HmacSha256,
}

impl CreateArgs {
    /// Makes the volume: shows or writes a new recovery key, formats the device or file, stores a
    /// header backup at the key server and reports the volume to it, and prints what was made.
    /// Makes the key if there is none of that name. Warns with SR-8332 without a recovery key, and
    /// with SR-8341 if the device's former data are left.
    /// Errors: SR-2013 or SR-1001 for options, SR-8320 if the device is in use, SR-8321 if it is
    /// not empty, SR-8357 without a terminal for the recovery key; the errors of the key's source
    /// and of libcryptsetup.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        if !self.key_size.is_multiple_of(8) || !(128..=1024).contains(&self.key_size) {
            return Err(Failure::usage(
                "--key-size: a multiple of 8 from 128 to 1024",
            ));
        }
        let keys = self.provider.host_keys(context);
        let recovery: Option<&dyn RecoveryPlace> = match self.no_recovery {
            true => None,
            false => Some(&self.recovery),
        };
        let mut progress = crate::progress::Progress::new("overwritten");
        let overwritten = move |size, offset| {
            progress.update(offset, size);
            true
        };
        let new = self.new_volume();
        let made = make(
            &new,
            &self.key_id,
            &keys,
            recovery,
            overwritten,
            &StandardError,
        )?;
        if self.json {
            return context.output.json(&made);
        }
        context.output.line(&format!(
            "volume {} opened by key {} version {} of the {}",
            made.uuid, made.key_id, made.key_version, made.provider
        ))
    }

    /// Returns what the options say about the volume to make. Nothing is checked.
    fn new_volume(&self) -> NewVolume<'_> {
        NewVolume {
            path: &self.path,
            size: self.size,
            cipher: &self.cipher,
            key_len: self.key_size / 8,
            integrity: self.integrity.is_some(),
            label: self.label.as_deref(),
            sector_size: self.sector_size,
            overwrite: self.overwrite,
            wipe: self.wipe,
        }
    }
}

/// Parses a number of bytes with an optional unit: K, M, G or T, powers of 1024. The error is the
/// text that clap shows.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match text.get(digits.len()..).unwrap_or_default() {
        "" | "B" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        "T" | "TiB" => 1 << 40,
        _ => return Err("a number of bytes, with K, M, G or T".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|_| "a number of bytes".to_owned())?;
    number
        .checked_mul(unit)
        .ok_or_else(|| "too large".to_owned())
}
