//! `strongroom key`: one file per verb.
//!
//! Must not: show a key. Keys are named, never printed.

mod create;
mod list;
mod retire;
mod rotate;

use clap::{Args, Subcommand};
use strongroom_format::code;
use strongroom_keyring::{KeyInfo, Keyring};

use crate::Context;
use crate::failure::{Failure, warn};
use crate::help::tail;

/// Make, list, rotate and retire keys of the keyring.
#[derive(Args)]
#[command(after_help = tail!("  strongroom key create app"))]
pub(crate) struct KeyArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Create(create::CreateArgs),
    List(list::ListArgs),
    Rotate(rotate::RotateArgs),
    Retire(retire::RetireArgs),
}

impl KeyArgs {
    pub(crate) fn wants_json(&self) -> bool {
        matches!(&self.verb, Verb::List(args) if args.json)
    }

    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        match self.verb {
            Verb::Create(args) => args.run(context),
            Verb::List(args) => args.run(context),
            Verb::Rotate(args) => args.run(context),
            Verb::Retire(args) => args.run(context),
        }
    }
}

/// Says which key was made, and that losing the keyring loses what it seals.
fn made(context: &mut Context, keyring: &Keyring, key: &KeyInfo) -> Result<(), Failure> {
    let line = format!("key {} version {}", key.name, key.version);
    context.output.line(&line)?;
    context.output.flush()?;
    if keyring.unexported() {
        let detail = format!(
            "{}; strongroom keyring export --out FILE --ask",
            keyring.path().display()
        );
        warn(&code::NOT_EXPORTED, &detail);
    }
    Ok(())
}
