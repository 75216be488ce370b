//! `strongroom pg encrypt -D DIR`: seals a stopped instance in place.
//!
//! Invariant: the configuration is there before the first file is sealed, and gone again when
//! nothing was sealed.
//!
//! Must not: leave an instance that its own configuration does not open.

use clap::Args;
use strongroom_format::code;
use strongroom_format::header::Cipher;
use strongroom_format::postgres::CONFIG_FILE;
use strongroom_postgres_shield::convert::{self, Action};
use strongroom_postgres_shield::instance::Instance;

use super::chosen::{ChosenKey, configure};
use super::contents::has_data_checksums;
use super::convert::{Bars, ThreadsOption, amount, remarks};
use super::directory::DirectoryOption;
use super::facts::Facts;
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
    #[arg(long, value_name = "CIPHER", default_value = "aes-256-xts", value_parser = super::initdb::cipher)]
    cipher: Cipher,
    #[command(flatten)]
    threads: ThreadsOption,
}

impl EncryptArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let directory = self.directory.existing()?;
        let begun = convert::unfinished(&directory.path)? == Some(Action::Encrypt);
        if directory.is_sealed() && !begun {
            return Err(directory.failure(&code::PG_ALREADY_SEALED, "strongroom.header is there"));
        }
        if let Some(pid) = directory.server() {
            return Err(directory.failure(&code::PG_RUNNING, &format!("process {pid}")));
        }
        let chosen = if directory.is_sealed() {
            ChosenKey::required(self.key, context, &directory)?
        } else {
            ChosenKey::for_new(self.key, context, &directory)?
        };
        let configuration = chosen.configuration()?;
        let opener = chosen.opener()?;
        configure(&directory.path, &configuration)?;
        let bars = Bars::new("sealing");
        let done = self.threads.run(&bars, |options| {
            convert::encrypt(&directory.path, self.cipher, &opener, options)
        });
        drop(bars);
        if done.is_err() && !directory.is_sealed() {
            // Nothing was sealed. The failure is the one to report.
            drop(std::fs::remove_file(directory.path.join(CONFIG_FILE)));
        }
        let report = done?;
        let facts = Facts::read(&directory)?;
        context.output.line(&format!(
            "sealed {}: {}, {}, {}, fingerprint {}",
            directory.shown(),
            amount(&report),
            facts.cipher,
            facts.openers_text(),
            facts.fingerprint
        ))?;
        context.output.flush()?;
        remarks(&report);
        note("backups, archived logs and free blocks of the disk still hold the data in clear");
        warn(&code::PG_KEEP_KEY, &directory.shown());
        if !chosen.is_unattended() {
            warn(&code::PG_NO_SOURCE, &directory.shown());
        }
        let about = |error| Failure::from(error).with_prefix(&format!("{}: ", directory.shown()));
        let instance = Instance::open(&directory.path, &[], &opener).map_err(about)?;
        if !has_data_checksums(&directory, Some(&instance))? {
            warn(&code::PG_NO_CHECKSUMS, &directory.shown());
        }
        Ok(())
    }
}
