//! What makes a Debian cluster start under the shield at boot.
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

use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_launch::owner::held::HeldDirectory;
use strongroom_postgres_shield::clusters::{Cluster, clusters_of};
use strongroom_postgres_shield::source;

use crate::directory::Directory;
use crate::{clusters, programs};

/// Where drop-ins of units lie.
pub const UNITS: &str = "/etc/systemd/system";
/// The drop-in's name.
const DROP_IN: &str = "strongroom.conf";
/// Mark of the line that this command adds.
const MARK: &str = "# Added by strongroom pg service: the server reads and writes sealed files through this library.";

/// The files that make a cluster start under the shield, and what has to be in them.
pub struct ServiceFiles {
    /// The cluster whose data directory it is.
    pub cluster: Cluster,
    /// The cluster's environment file.
    pub environment: PathBuf,
    /// The line that the environment file needs.
    pub environment_line: String,
    /// The drop-in of the cluster's systemd unit.
    pub drop_in: PathBuf,
    /// What is in the drop-in.
    pub drop_in_text: String,
    /// Whether the configuration names where the key comes from, so that the server finds it.
    pub names_key_source: bool,
}

impl ServiceFiles {
    /// Finds out which files make the cluster of this data directory start under the shield, with
    /// the drop-ins of units in `units`. Writes nothing.
    ///
    /// # Errors
    /// SR-7028 without a cluster; SR-7017 without the library, or when the file cannot name it;
    /// those of the instance's configuration.
    pub fn of(directory: &Directory, units: &Path) -> Result<Self, Error> {
        let cluster = cluster_of(directory)?;
        let library = programs::library()?;
        let environment_line = environment_line(&library)?;
        let environment = cluster.configuration.join("environment");
        let unit = format!("postgresql@{}-{}.service.d", cluster.version, cluster.name);
        let names_key_source = match source::from_configuration(&directory.path) {
            Ok(found) => found.is_some(),
            // The server's user may run it. Root, who installs a service, does not, and need not.
            Err(error) if error.code() == &code::KEY_COMMAND_FOREIGN => true,
            Err(error) => return Err(error),
        };
        Ok(Self {
            cluster,
            environment,
            environment_line,
            drop_in: units.join(unit).join(DROP_IN),
            drop_in_text: resource_limits(),
            names_key_source,
        })
    }

    /// Adds the line to the environment file, and writes the drop-in. Does neither where it is
    /// there already.
    ///
    /// # Errors
    /// SR-1002 when the environment file sets another `LD_PRELOAD`, or a drop-in of that name sets
    /// other limits; nothing is written then. SR-5001 when the system reports an error.
    pub fn install(&self) -> Result<(), Error> {
        let has_limits = has_limits(&self.drop_in)?;
        add_line(&self.environment, &self.environment_line)?;
        match has_limits {
            true => Ok(()),
            false => write_drop_in(&self.drop_in),
        }
    }
}

/// Returns the line of the cluster's `environment`, in its syntax: that of postgresql.conf. SR-7017
/// for a path that cannot be written there.
fn environment_line(library: &Path) -> Result<String, Error> {
    let shown = library.display().to_string();
    if shown.contains(['\'', '\\', '\n']) {
        return Err(Error::new(&code::PG_SHIELD, shown));
    }
    Ok(format!("LD_PRELOAD = '{shown}'\n"))
}

/// Returns the text of the drop-in. Keys are in locked memory; a core would hold what they open. 1
/// byte and not 0: a core that is piped to a program is not limited by 0 (core(5)).
fn resource_limits() -> String {
    String::from(
        "# Added by strongroom pg service. The library itself is named in the cluster's environment file.\n\
         [Service]\n\
         LimitMEMLOCK=64M\n\
         LimitCORE=1\n",
    )
}

/// Returns the first cluster whose `data_directory` this is. SR-7028 when there is none.
fn cluster_of(directory: &Directory) -> Result<Cluster, Error> {
    clusters_of(&directory.path, &clusters::root())
        .into_iter()
        .next()
        .ok_or_else(|| {
            let detail = format!("looked in {}", clusters::root().display());
            directory.failure(&code::PG_NO_CLUSTER, &detail)
        })
}

/// Adds the line at the end of the file, and makes the file where it is missing. Does nothing when
/// a line sets `LD_PRELOAD` to the library already. SR-1002 when it is set to something else, which
/// the administrator has to join; SR-5001 when the system reports an error.
fn add_line(path: &Path, line: &str) -> Result<(), Error> {
    let io = |e: std::io::Error| Error::on_path(path, e);
    let (directory, name) = HeldDirectory::of_file(path)?;
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
        return Err(Error::new(&code::EXISTS, detail));
    }
    let end = if former.is_empty() || former.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    let text = format!("{former}{end}\n{MARK}\n{line}");
    directory.replace(name, &text, known.as_ref()).map_err(io)
}

/// Returns whether the drop-in is there and sets the limits, whatever else an administrator has put
/// into it. SR-1002 when it is there and does not set them all, because then it is none of ours to
/// replace; SR-5001 when the system reports an error.
fn has_limits(path: &Path) -> Result<bool, Error> {
    let io = |e: std::io::Error| Error::on_path(path, e);
    if !path.try_exists().map_err(io)? {
        return Ok(false);
    }
    let (directory, name) = HeldDirectory::of_file(path)?;
    let Some(known) = directory.read(name).map_err(io)? else {
        return Ok(false);
    };
    let limits = resource_limits();
    let mut wanted = limits.lines().filter(|line| !line.starts_with('#'));
    if wanted.all(|wanted| known.text.lines().any(|line| line.trim() == wanted)) {
        return Ok(true);
    }
    let detail = format!(
        "{}: has another text; add the limits to it that this command prints without --install, or give it another name",
        path.display()
    );
    Err(Error::new(&code::EXISTS, detail))
}

/// Writes the drop-in, which is not there, and makes its directory. SR-5001 when the system reports
/// an error.
fn write_drop_in(path: &Path) -> Result<(), Error> {
    let directory = path.parent().unwrap_or_else(|| Path::new(UNITS));
    std::fs::create_dir_all(directory).map_err(|e| Error::on_path(directory, e))?;
    let (directory, name) = HeldDirectory::of_file(path)?;
    let written = directory.replace(name, &resource_limits(), None);
    written.map_err(|e| Error::on_path(path, e))
}
