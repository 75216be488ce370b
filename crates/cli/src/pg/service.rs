//! `strongroom pg service`: shows or installs what makes a Debian cluster start under the shield at
//! boot.
//!
//! Must not: start, stop or reload anything.

use std::path::PathBuf;

use clap::Args;
use strongroom_format::code;
use strongroom_postgres_instance::service::{ServiceFiles, UNITS};

use super::directory::DirectoryOption;
use crate::context::Context;
use crate::failure::{Failure, note, warn};
use crate::help::tail;

/// Let a Debian cluster start under the shield: the lines for its environment file and its systemd
/// unit.
///
/// The cluster is the one of /etc/postgresql whose `data_directory` is DIR. Without --install the
/// lines are printed. With --install, as root, they are put in place; then run `systemctl
/// daemon-reload` and restart the cluster.
#[derive(Args)]
#[command(after_help = tail!("  strongroom pg service -D /var/lib/postgresql/15/main --install"))]
pub(super) struct ServiceArgs {
    #[command(flatten)]
    directory: DirectoryOption,
    /// Write the files instead of printing them
    #[arg(long)]
    install: bool,
    /// Where drop-ins of units are kept
    #[arg(long, value_name = "DIR", default_value = UNITS)]
    unit_dir: PathBuf,
}

impl ServiceArgs {
    /// Prints the lines for the cluster's environment file and its systemd drop-in; with
    /// `--install` writes both files instead, and notes the commands to run next. Warns with
    /// SR-7020 if the instance's configuration names no key. Errors: SR-7004 if the instance is not
    /// sealed, SR-7028 if no Debian cluster has this directory, SR-7017 without the library,
    /// SR-1002 if another `LD_PRELOAD` is set already, or the drop-in has another text; SR-5001
    /// when the system reports an error.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let directory = self.directory.sealed()?;
        let files = ServiceFiles::of(&directory, &self.unit_dir)?;
        if !files.names_key_source {
            warn(&code::PG_NO_SOURCE, &directory.shown());
        }
        let (environment, drop_in) = (&files.environment, &files.drop_in);
        if !self.install {
            for (path, lines) in [
                (environment, &files.environment_line),
                (drop_in, &files.drop_in_text),
            ] {
                context.output.line(&format!("# {}", path.display()))?;
                context.output.line(lines)?;
            }
            return Ok(());
        }
        files.install()?;
        for path in [environment, drop_in] {
            context
                .output
                .line(&format!("installed {}", path.display()))?;
        }
        context.output.flush()?;
        note(&format!(
            "now run: systemctl daemon-reload && systemctl restart postgresql@{}-{}",
            files.cluster.version, files.cluster.name
        ));
        Ok(())
    }
}
