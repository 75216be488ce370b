//! `strongroom pg service`: shows or installs what makes a Debian cluster start under the shield at
//! boot.
//!
//! `pg_ctlcluster`(1) empties its environment and takes the one in
//! `/etc/postgresql/VERSION/CLUSTER/environment`, so only that file names the library. In a systemd
//! unit the library would be loaded into every helper, and be lost before the server starts. The
//! unit's drop-in sets limits only.
//!
//! Invariants: nothing that an administrator wrote is removed, and a file that exists keeps its
//! owner and mode; a second installation changes nothing. The cluster's directory belongs to its
//! user, so root follows no link in it.
//!
//! Must not: start, stop or reload anything; write a key.

use std::path::{Path, PathBuf};

use clap::Args;
use strongroom_format::code;
use strongroom_postgres_shield::clusters::{Cluster, clusters_of};
use strongroom_postgres_shield::source;

use super::clusters;
use super::directory::{Directory, DirectoryOption};
use super::programs;
use crate::context::Context;
use crate::failure::{Failure, note, warn};
use crate::help::tail;
use crate::owner::held::HeldDirectory;

/// Where drop-ins of units lie.
const UNITS: &str = "/etc/systemd/system";
/// The drop-in's name.
const DROP_IN: &str = "strongroom.conf";
/// Mark of the line that this command adds.
const MARK: &str = "# Added by strongroom pg service: the server reads and writes sealed files through this library.";

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
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let directory = self.directory.sealed()?;
        let cluster = cluster_of(&directory)?;
        let library = programs::library()?;
        let line = environment_line(&library)?;
        let environment = cluster.configuration.join("environment");
        let unit = format!("postgresql@{}-{}.service.d", cluster.version, cluster.name);
        let drop_in = self.unit_dir.join(unit).join(DROP_IN);
        match source::from_configuration(&directory.path) {
            Ok(Some(_)) => {}
            Ok(None) => warn(&code::PG_NO_SOURCE, &directory.shown()),
            // The server's user may run it. Root, who installs a service, does not, and need not.
            Err(error) if error.code() == &code::KEY_COMMAND_FOREIGN => {}
            Err(error) => return Err(error.into()),
        }
        if !self.install {
            return show_files(
                context,
                [(&environment, &line), (&drop_in, &resource_limits())],
            );
        }
        add_line(&environment, &line)?;
        write_drop_in(&drop_in)?;
        for path in [&environment, &drop_in] {
            context
                .output
                .line(&format!("installed {}", path.display()))?;
        }
        context.output.flush()?;
        note(&format!(
            "now run: systemctl daemon-reload && systemctl restart postgresql@{}-{}",
            cluster.version, cluster.name
        ));
        Ok(())
    }
}

/// The line of the cluster's `environment`, in its syntax: that of postgresql.conf.
fn environment_line(library: &Path) -> Result<String, Failure> {
    let shown = library.display().to_string();
    if shown.contains(['\'', '\\', '\n']) {
        return Err(Failure::new(&code::PG_SHIELD, shown));
    }
    Ok(format!("LD_PRELOAD = '{shown}'\n"))
}

/// Keys are in locked memory; a core would hold what they open. 1 byte and not 0: a core that is
/// piped to a program is not limited by 0 (core(5)).
fn resource_limits() -> String {
    String::from(
        "# Added by strongroom pg service. The library itself is named in the cluster's environment file.\n\
         [Service]\n\
         LimitMEMLOCK=64M\n\
         LimitCORE=1\n",
    )
}

fn show_files(context: &mut Context, files: [(&PathBuf, &String); 2]) -> Result<(), Failure> {
    for (path, lines) in files {
        context.output.line(&format!("# {}", path.display()))?;
        context.output.line(lines)?;
    }
    Ok(())
}

/// The cluster whose `data_directory` this is.
fn cluster_of(directory: &Directory) -> Result<Cluster, Failure> {
    clusters_of(&directory.path, &clusters::root())
        .into_iter()
        .next()
        .ok_or_else(|| {
            let detail = format!("looked in {}", clusters::root().display());
            directory.failure(&code::PG_NO_CLUSTER, &detail)
        })
}

/// Adds the line, unless a line sets `LD_PRELOAD` already: to the same, which is fine, or to
/// something else, which the administrator has to join.
fn add_line(path: &Path, line: &str) -> Result<(), Failure> {
    let io = |e: std::io::Error| Failure::io(path, &e);
    let (directory, name) = open_parent(path)?;
    let known = directory.read(name).map_err(io)?;
    let former = known.as_ref().map_or("", |known| known.text.as_str());
    let set = former
        .lines()
        .find(|line| line.trim_start().starts_with("LD_PRELOAD"));
    if let Some(set) = set {
        if set.contains(programs::LIBRARY) {
            return Ok(());
        }
        let detail = format!(
            "{}: sets LD_PRELOAD already; put this library first in that line, before a colon",
            path.display()
        );
        return Err(Failure::new(&code::EXISTS, detail));
    }
    let end = if former.is_empty() || former.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    let text = format!("{former}{end}\n{MARK}\n{line}");
    directory.replace(name, &text, known.as_ref()).map_err(io)
}

fn write_drop_in(path: &Path) -> Result<(), Failure> {
    let directory = path.parent().unwrap_or_else(|| Path::new(UNITS));
    std::fs::create_dir_all(directory).map_err(|e| Failure::io(directory, &e))?;
    let io = |e: std::io::Error| Failure::io(path, &e);
    let (directory, name) = open_parent(path)?;
    let known = directory.read(name).map_err(io)?;
    if known
        .as_ref()
        .is_some_and(|known| known.text == resource_limits())
    {
        return Ok(());
    }
    directory
        .replace(name, &resource_limits(), known.as_ref())
        .map_err(io)
}

/// The directory of a file, held open, and the file's name. The cluster's directory belongs to the
/// server's user, and what is in it may be exchanged at any time.
fn open_parent(path: &Path) -> Result<(HeldDirectory, &str), Failure> {
    let io = |e: std::io::Error| Failure::io(path, &e);
    let above = path.parent().unwrap_or_else(|| Path::new("/"));
    let above = above.canonicalize().map_err(io)?;
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Failure::usage("a name that is no text"))?;
    Ok((HeldDirectory::open(&above).map_err(io)?, name))
}
