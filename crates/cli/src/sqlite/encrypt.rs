//! `strongroom sqlite encrypt PLAIN SEALED`: a sealed copy of a plain database.
//!
//! Must not: change or remove the plain database; overwrite anything; leave half a copy behind.

use std::path::PathBuf;

use clap::Args;
use strongroom_format::code;
use strongroom_format::header::Cipher;
use strongroom_keyring::paths;
use strongroom_sqlite::OpenOptions;

use super::format_options::{cipher, page_size};
use crate::context::Context;
use crate::failure::{Failure, note, warn};
use crate::help::tail;
use crate::key_options::KeyOptions;
use crate::{keys, sealed_sqlite};

/// Make a sealed copy of a plain database. The plain one stays as it is.
#[derive(Args)]
#[command(after_help = tail!("  strongroom sqlite encrypt plain.db sealed.db --key-id app"))]
pub(super) struct EncryptArgs {
    /// The plain database
    #[arg(value_name = "PLAIN")]
    pub(super) plain: PathBuf,
    /// The sealed database to make
    #[arg(value_name = "SEALED")]
    pub(super) sealed: PathBuf,
    #[command(flatten)]
    key: KeyOptions,
    /// gcm authenticates every page; ctr does not
    #[arg(long, value_name = "gcm|ctr", default_value = "gcm", value_parser = cipher)]
    cipher: Cipher,
    /// Page size of the sealed database in bytes, 512 to 65536 [default: that of the plain one]
    #[arg(long, value_name = "N", value_parser = page_size)]
    page_size: Option<u32>,
    /// Keep a digest over all pages, so that verify finds an older copy of one; makes writing
    /// slower
    #[arg(long)]
    freshness: bool,
}

impl EncryptArgs {
    /// Writes a sealed copy of the plain database to a new file, prints its number of pages, and
    /// notes that the plain one is still there. Warns with SR-6008 for AES-256-CTR.
    /// Errors: SR-2041 without a key, SR-1002 if the output exists, SR-1003 if it is the input,
    /// SR-1006 if the input is missing, SR-1007 if it is no regular file, SR-3011 if it is sealed;
    /// the errors of the key.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let key = keys::required(self.key, "encrypt")?;
        paths::check_copy(&self.plain, &self.sealed)?;
        // A pipe would be waited for.
        let _regular = paths::open_to_read(&self.plain)?;
        if self.cipher == Cipher::Aes256Ctr {
            warn(&code::CTR_WARNING, &self.sealed.display().to_string());
        }
        let options = OpenOptions {
            freshness: self.freshness,
            ..sealed_sqlite::options(Some(key), context)
        };
        let report = sealed_sqlite::encrypt(
            &self.plain,
            &self.sealed,
            options,
            self.cipher,
            self.page_size,
        )?;
        let (plain, sealed) = (self.plain.display(), self.sealed.display());
        context
            .output
            .line(&format!("sealed {sealed}: {} pages", report.pages))?;
        context.output.flush()?;
        note(&format!("{plain} is still there, in plaintext"));
        Ok(())
    }
}
