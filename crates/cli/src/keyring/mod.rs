//! `strongroom keyring`: one file per verb.
//!
//! Must not: touch a keyring but through strongroom-keyring.

mod accept_older;
mod export;
mod import;
mod init;
mod rotate_root;
pub(crate) mod status;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use strongroom_format::code;
use strongroom_keyring::{KeySource, Keyring};

use crate::args::KeyOptions;
use crate::failure::Failure;
use crate::help::tail;
use crate::{Context, keys};

/// Make, show, rotate, export and import a keyring.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyring init --provider file:/etc/strongroom/root.key"))]
pub(crate) struct KeyringArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Init(init::InitArgs),
    Status(status::StatusArgs),
    RotateRoot(rotate_root::RotateRootArgs),
    Export(export::ExportArgs),
    Import(import::ImportArgs),
    AcceptOlder(accept_older::AcceptOlderArgs),
}

/// What an export is sealed for: whatever is no key of the keyring. SR-2044 when there is none.
fn export_key(options: KeyOptions) -> Result<KeySource, Failure> {
    match keys::source(options) {
        Some(KeySource::KeyId { id }) => {
            let detail = format!("--key-id {id} names a key of the keyring");
            Err(Failure::new(&code::EXPORT_KEY, detail))
        }
        Some(source) => Ok(source),
        None => Err(Failure::new(&code::EXPORT_KEY, "")),
    }
}

impl KeyringArgs {
    pub(crate) fn wants_json(&self) -> bool {
        matches!(&self.verb, Verb::Status(args) if args.json)
    }

    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        match self.verb {
            Verb::Init(args) => args.run(context),
            Verb::Status(args) => args.run(context),
            Verb::RotateRoot(args) => args.run(context),
            Verb::Export(args) => args.run(context),
            Verb::Import(args) => args.run(context),
            Verb::AcceptOlder(args) => args.run(context),
        }
    }
}

/// The keyring that the command works on.
pub(crate) fn path(context: &Context) -> PathBuf {
    context
        .keyring
        .clone()
        .unwrap_or_else(Keyring::default_path)
}
