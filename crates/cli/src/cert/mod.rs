//! `strongroom cert`: one file per verb.
//!
//! Must not: show a private key, or write one anywhere but sealed.

mod create;
mod export;
mod import;
mod list;
mod restore;
mod retire;

use std::path::Path;

use clap::{Args, Subcommand};
use strongroom_format::code;
use strongroom_keyring::{CertificateInfo, Identity, KeySource, Keyring, SourceContext};

use crate::Context;
use crate::args::KeyOptions;
use crate::failure::{Failure, warn};
use crate::help::tail;
use crate::keys;
use crate::output::hex;

/// Make, import, list, export, restore and retire certificates: what backups are sealed for.
#[derive(Args)]
#[command(after_help = tail!("  strongroom cert create backup"))]
pub(crate) struct CertArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Create(create::CreateArgs),
    Import(import::ImportArgs),
    List(list::ListArgs),
    Export(export::ExportArgs),
    Restore(restore::RestoreArgs),
    Retire(retire::RetireArgs),
}

impl CertArgs {
    pub(crate) fn wants_json(&self) -> bool {
        matches!(&self.verb, Verb::List(args) if args.json)
    }

    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        match self.verb {
            Verb::Create(args) => args.run(context),
            Verb::Import(args) => args.run(context),
            Verb::List(args) => args.run(context),
            Verb::Export(args) => args.run(context),
            Verb::Restore(args) => args.run(context),
            Verb::Retire(args) => args.run(context),
        }
    }
}

/// Says which certificate it is and what was done, then what is not well with it.
fn told(
    context: &mut Context,
    keyring: &Keyring,
    certificate: &CertificateInfo,
    done: &str,
) -> Result<(), Failure> {
    let line = format!(
        "certificate {} {done}: id {}",
        certificate.name,
        hex(&certificate.id)
    );
    context.output.line(&line)?;
    context.output.flush()?;
    warn_of(keyring, certificate);
    Ok(())
}

/// Warns of a private key that is in this keyring only, and of dates.
fn warn_of(keyring: &Keyring, certificate: &CertificateInfo) {
    if let Some((code, detail)) = certificate.export_warning() {
        warn(code, &format!("{}; {detail}", keyring.path().display()));
    }
    if !certificate.is_valid_now() {
        warn(&code::CERT_DATES, &certificate.name);
    }
}

/// Reads a certificate's file; the passphrase is fetched only when the file needs one.
fn read(file: &Path, key: KeyOptions, context: &Context) -> Result<Identity, Failure> {
    let source = keys::source(key).unwrap_or(KeySource::Ask);
    let asking = SourceContext {
        keyring: context.keyring.clone(),
        creating: false,
        prompt: format!("Passphrase of {}", file.display()),
    };
    Ok(strongroom_keyring::read_identity(file, &source, &asking)?)
}
