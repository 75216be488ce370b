//! `strongroom pg decrypt -D DIR`: opens a stopped instance in place, for good.
//!
//! Must not: remove the header before the last file is plain; strongroom-postgres-shield keeps that
//! order.

use clap::Args;
use strongroom_postgres_instance::conversion::decrypt;

use super::convert::{Bars, ThreadsOption, amount, remarks};
use super::directory::DirectoryOption;
use super::given::given_key;
use crate::context::Context;
use crate::failure::{Failure, note};
use crate::help::tail;
use crate::key_options::KeyOptions;

/// Turn a stopped, sealed instance into a plain one in place.
///
/// As encrypt the other way round. Afterwards header and configuration are gone, and whoever can
/// read the files can read the data.
#[derive(Args)]
#[command(after_help = tail!("  strongroom pg decrypt -D /srv/pg/data"))]
pub(super) struct DecryptArgs {
    #[command(flatten)]
    pub(super) directory: DirectoryOption,
    #[command(flatten)]
    key: KeyOptions,
    #[command(flatten)]
    threads: ThreadsOption,
}

impl DecryptArgs {
    /// Turns the stopped, sealed instance into a plain one in place, shows progress, and prints
    /// what was converted, with notes. Completes a run that was interrupted. SR-7011 if the
    /// directory holds no instance, SR-7004 if it is not sealed, SR-2001 without a key; the errors
    /// of the key and of the conversion.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let directory = self.directory.existing()?;
        let key = given_key(self.key, context);
        let bars = Bars::new("unsealing");
        let done = self
            .threads
            .run(&bars, |options| decrypt(&directory, key, options));
        drop(bars);
        let report = done?;
        let shown = directory.shown();
        context
            .output
            .line(&format!("plaintext {shown}: {}", amount(&report)))?;
        context.output.flush()?;
        remarks(&report);
        note(
            "start it without the shield from now on: take it out of LD_PRELOAD and of the service",
        );
        Ok(())
    }
}
