//! `strongroom pg encrypt -D DIR`: seals a stopped instance in place.
//!
//! Must not: convert anything itself.

use std::path::Path;

use clap::Args;
use strongroom_format::code;
use strongroom_format::header::Cipher;
use strongroom_postgres_instance::conversion::encrypt;

use super::convert::{Bars, ThreadsOption, amount, remarks};
use super::directory::DirectoryOption;
use super::given::{cipher, given_key, warn_about_key};
use crate::context::Context;
use crate::failure::{Failure, note, warn};
use crate::help::tail;
use crate::key_options::KeyOptions;

/// Seal an existing, stopped instance in place.
///
/// Every file is written anew beside the old one, renamed over it, and read back at the end. Files
/// are converted in parallel; a run that was interrupted is completed by the same command. Until it
/// is complete no server starts.
#[derive(Args)]
#[command(after_help = tail!("  strongroom pg encrypt -D /srv/pg/data --key-file /etc/strongroom/pg.key"))]
pub(super) struct EncryptArgs {
    #[command(flatten)]
    pub(super) directory: DirectoryOption,
    #[command(flatten)]
    key: KeyOptions,
    /// aes-128-xts or aes-256-xts
    #[arg(long, value_name = "CIPHER", default_value = "aes-256-xts", value_parser = cipher)]
    cipher: Cipher,
    #[command(flatten)]
    threads: ThreadsOption,
}

impl EncryptArgs {
    /// Seals the stopped instance in place, shows progress, and prints what was converted, with
    /// notes. Completes a run that was interrupted. Warns that the key must not be lost, with
    /// SR-7020 if the server cannot find it by itself, and with SR-7030 if data checksums are off.
    /// Errors: SR-7011 if the directory holds no instance, SR-7012 if it is sealed, SR-7008 while a
    /// server runs, SR-2041 without a key; the errors of the key and of the conversion.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let directory = self.directory.existing()?;
        let key = given_key(self.key, context);
        let bars = Bars::new("sealing");
        let done = self.threads.run(&bars, |options| {
            encrypt(&directory, key, self.cipher, options)
        });
        drop(bars);
        let sealed = done?;
        let facts = &sealed.facts;
        context.output.line(&format!(
            "sealed {}: {}, {}, {}, fingerprint {}",
            directory.shown(),
            amount(&sealed.report),
            facts.cipher,
            facts.openers_text(),
            facts.fingerprint
        ))?;
        context.output.flush()?;
        remarks(&sealed.report);
        note("backups, archived logs and free blocks of the disk still hold the data in clear");
        warn_about_key(sealed.is_unattended, Path::new(&directory.shown()));
        if !sealed.has_checksums(&directory)? {
            warn(&code::PG_NO_CHECKSUMS, &directory.shown());
        }
        Ok(())
    }
}
