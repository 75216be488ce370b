//! `strongroom volume`: one file per verb.
//!
//! Must not: know LUKS2 or libcryptsetup; those are strongroom-volume's.

mod attach;
mod backup;
mod close;
mod create;
mod detach;
mod enroll;
mod list;
mod material;
mod open;
mod recovery;
mod secret;
mod status;
mod swap;
mod unenroll;

use clap::{Args, Subcommand};

use crate::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Make, open, close and change encrypted volumes (LUKS2), and swap.
#[derive(Args)]
#[command(after_help = tail!("  strongroom volume create /dev/vdb --key-id db-7\n  strongroom volume open /dev/vdb data\n  mkfs.ext4 /dev/mapper/data"))]
pub(crate) struct VolumeArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Create(create::CreateArgs),
    Status(status::StatusArgs),
    List(list::ListArgs),
    Open(open::OpenArgs),
    Close(close::CloseArgs),
    Attach(attach::AttachArgs),
    Detach(detach::DetachArgs),
    Enroll(enroll::EnrollArgs),
    Unenroll(unenroll::UnenrollArgs),
    Backup(backup::BackupArgs),
    Swap(swap::SwapArgs),
}

impl VolumeArgs {
    pub(crate) fn wants_json(&self) -> bool {
        match &self.verb {
            Verb::Create(args) => args.json,
            Verb::Status(args) => args.json,
            Verb::List(args) => args.json,
            Verb::Open(args) => args.json,
            Verb::Enroll(args) => args.json,
            Verb::Attach(_) | Verb::Detach(_) | Verb::Close(_) | Verb::Unenroll(_) | Verb::Backup(_) | Verb::Swap(_) => false,
        }
    }

    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        match self.verb {
            Verb::Create(args) => args.run(context),
            Verb::Status(args) => args.run(context),
            Verb::List(args) => args.run(context),
            Verb::Open(args) => args.run(context),
            Verb::Close(args) => args.run(),
            Verb::Attach(args) => args.run(context),
            Verb::Detach(args) => args.run(),
            Verb::Enroll(args) => args.run(context),
            Verb::Unenroll(args) => args.run(context),
            Verb::Backup(args) => args.run(context),
            Verb::Swap(args) => args.run(context),
        }
    }
}
