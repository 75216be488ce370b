//! `strongroom volume`: one file per verb.
//!
//! Must not: know LUKS2 or libcryptsetup; those are strongroom-volume's. Decide anything that a
//! program without a command line would have to decide too.

mod attach;
mod backup;
mod close;
mod create;
mod detach;
mod enroll;
mod list;
mod material;
mod messages;
mod migrate;
mod open;
mod recovery;
mod repair;
mod restore;
mod rotate;
mod secret;
mod shred;
mod status;
mod swap;
mod tpm;
mod unenroll;
mod unlock;

use clap::{Args, Subcommand};

use crate::context::Context;
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
    Restore(restore::RestoreArgs),
    Rotate(rotate::RotateArgs),
    Repair(repair::RepairArgs),
    Migrate(migrate::MigrateArgs),
    Swap(swap::SwapArgs),
    Unlock(unlock::UnlockArgs),
    Shred(shred::ShredArgs),
}

impl VolumeArgs {
    /// Returns whether `--json` was given to a verb that has it.
    pub(crate) fn wants_json(&self) -> bool {
        match &self.verb {
            Verb::Create(args) => args.json,
            Verb::Status(args) => args.json,
            Verb::List(args) => args.json,
            Verb::Open(args) => args.json,
            Verb::Enroll(args) => args.json,
            Verb::Restore(args) => args.json,
            Verb::Migrate(args) => args.json,
            Verb::Unlock(args) => args.json,
            Verb::Shred(args) => args.json,
            Verb::Close(_)
            | Verb::Attach(_)
            | Verb::Detach(_)
            | Verb::Unenroll(_)
            | Verb::Backup(_)
            | Verb::Rotate(_)
            | Verb::Repair(_)
            | Verb::Swap(_) => false,
        }
    }

    /// Runs the verb that was named and returns its result.
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
            Verb::Restore(args) => args.run(context),
            Verb::Rotate(args) => args.run(context),
            Verb::Repair(args) => args.run(context),
            Verb::Migrate(args) => args.run(context),
            Verb::Swap(args) => args.run(context),
            Verb::Unlock(args) => args.run(context),
            Verb::Shred(args) => args.run(context),
        }
    }
}
