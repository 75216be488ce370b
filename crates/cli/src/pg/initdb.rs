//! `strongroom pg initdb -D DIR`: a new instance, sealed from its first byte.
//!
//! Must not: make anything itself.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use clap::Args;
use strongroom_format::code;
use strongroom_format::header::Cipher;
use strongroom_postgres_instance::creation::{CreatedInstance, CreationOptions, Initdb, create};
use strongroom_postgres_instance::directory::refuse_root;

use super::directory::DirectoryOption;
use super::given::{cipher, given_key, warn_about_key};
use super::programs::BindirOption;
use crate::context::Context;
use crate::failure::{Failure, note, warn};
use crate::help::tail;
use crate::key_options::KeyOptions;
use crate::signals;

/// Make a sealed instance: PostgreSQL's initdb under the shield.
///
/// Writes strongroom.header (the wrapped data key) and strongroom.conf (where the key comes from)
/// into the data directory, then runs initdb. The key must be given: by a key option or by
/// PGENCRYPTIONKEY. Options of initdb itself follow `--`.
#[derive(Args)]
#[command(after_help = tail!("  strongroom pg initdb -D /srv/pg/data --key-command 'cat /run/keys/pg' -- --data-checksums"))]
pub(super) struct InitdbArgs {
    #[command(flatten)]
    directory: DirectoryOption,
    #[command(flatten)]
    key: KeyOptions,
    /// aes-128-xts or aes-256-xts
    #[arg(long, value_name = "CIPHER", default_value = "aes-256-xts", value_parser = cipher)]
    cipher: Cipher,
    /// Take over the data key of another instance, as `pg_upgrade` --link needs it
    #[arg(long, value_name = "DIR", conflicts_with = "cipher")]
    copy_key_from: Option<PathBuf>,
    /// Make header and configuration only: for `pg_basebackup`, which fills the directory itself
    #[arg(long)]
    header_only: bool,
    #[command(flatten)]
    bindir: BindirOption,
    /// Options of initdb
    #[arg(last = true, value_name = "INITDB OPTION")]
    options: Vec<OsString>,
}

impl InitdbArgs {
    /// Creates a sealed instance with initdb, or with `--header-only` only its header and
    /// configuration, and prints that, with warnings about the key and about data checksums that
    /// are off.
    /// A signal ends initdb and this command, and what was made is removed. SR-7015 for root,
    /// SR-1002 if the directory is not empty, SR-7012 if it is sealed, SR-2041 without a key,
    /// SR-7018 if initdb fails.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        refuse_root()?;
        let named = self.directory.named()?;
        let initdb = self.initdb()?;
        // A signal ends initdb, which then cleans up, and afterwards this command does.
        signals::stop_on_signals(&STOPPED)?;
        let made = create(CreationOptions {
            directory: &named,
            key: given_key(self.key.clone(), context),
            cipher: self.cipher,
            copy_key_from: self.copy_key_from.as_deref(),
            initdb,
            stop: &STOPPED,
        })?;
        report(context, &named, &made, self.header_only)?;
        if !made.has_checksums {
            warn(&code::PG_NO_CHECKSUMS, &named.display().to_string());
        }
        Ok(())
    }

    /// Returns initdb and its options, or `None` with `--header-only`. SR-1001 if initdb options
    /// are given with `--header-only` or name the data directory; SR-7016 if PostgreSQL's programs
    /// are not found.
    fn initdb(&self) -> Result<Option<Initdb<'_>>, Failure> {
        if self.header_only {
            return match self.options.first() {
                None => Ok(None),
                Some(_) => Err(Failure::usage(
                    "--header-only runs no initdb: it takes no initdb options",
                )),
            };
        }
        let names_directory = |option: &OsString| {
            let text = option.to_string_lossy();
            text.starts_with("-D") || text.starts_with("--pgd")
        };
        if self.options.iter().any(names_directory) {
            return Err(Failure::usage("the data directory is named before `--`"));
        }
        let bindir = self.bindir.find(None)?;
        Ok(Some(Initdb {
            program: bindir.join("initdb"),
            options: &self.options,
        }))
    }
}

static STOPPED: AtomicBool = AtomicBool::new(false);

/// Prints what was made, warns about the key as [`warn_about_key`] does, and, if the server can
/// find the key by itself, notes the next step. `header_only`: only header and configuration were
/// made. SR-5001 if standard output cannot be written.
fn report(
    context: &mut Context,
    named: &Path,
    made: &CreatedInstance,
    header_only: bool,
) -> Result<(), Failure> {
    let (shown, facts) = (named.display(), &made.facts);
    let what = if header_only {
        "header in"
    } else {
        "sealed instance"
    };
    context.output.line(&format!(
        "{what} {shown}: {}, {}, fingerprint {}",
        facts.cipher,
        facts.openers_text(),
        facts.fingerprint
    ))?;
    context.output.flush()?;
    warn_about_key(made.is_unattended, named);
    if !made.is_unattended {
        return Ok(());
    }
    note(&match header_only {
        true => {
            format!("fill it with: strongroom pg run -D {shown} -- pg_basebackup -D {shown} ...")
        }
        false => format!("start it with: strongroom pg start -D {shown}"),
    });
    Ok(())
}
