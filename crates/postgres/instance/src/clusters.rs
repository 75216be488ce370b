//! The configuration file that the server of a data directory is started with.
//!
//! Must not: write; be called by root for a directory that another user owns, except for
//! `strongroom pg service`, which root runs.

use std::path::{Path, PathBuf};

use strongroom_format::code;
use strongroom_format::text::printable;
use strongroom_keyring::Error;
use strongroom_postgres_shield::clusters::clusters_of;
use strongroom_postgres_shield::settings::{CONFIGURATION, Settings};

use crate::directory::Directory;

/// Where clusters are configured, unless the variable names another directory, as for the programs
/// of postgresql-common.
const CLUSTERS: &str = "/etc/postgresql";
const CLUSTERS_VARIABLE: &str = "PG_CLUSTER_CONF_ROOT";

/// Returns the directory that holds the configuration of all clusters of postgresql-common:
/// `/etc/postgresql`, or the one that the variable `PG_CLUSTER_CONF_ROOT` names.
#[must_use]
pub(crate) fn root() -> PathBuf {
    let named = std::env::var_os(CLUSTERS_VARIABLE).filter(|value| !value.is_empty());
    named.map_or_else(|| PathBuf::from(CLUSTERS), PathBuf::from)
}

/// Returns the configuration file that a server needs to be told of: the one that was `named` by an
/// option, or that of the directory's cluster. `None` when the data directory has its own.
///
/// # Errors
/// SR-7033 when there is none, or more than one, or `named` is of another data directory; SR-1006
/// when `named` does not exist.
pub(crate) fn configuration_of(
    directory: &Directory,
    named: Option<&Path>,
) -> Result<Option<PathBuf>, Error> {
    if let Some(named) = named {
        // The server's working directory is its data directory.
        let file = named.canonicalize().map_err(|e| Error::opening(named, e))?;
        check_is_of(directory, &file)?;
        return Ok(Some(file));
    }
    if directory.path.join(CONFIGURATION).exists() {
        return Ok(None);
    }
    let clusters = clusters_of(&directory.path, &root());
    match clusters.as_slice() {
        [one] => Ok(Some(one.configuration.join(CONFIGURATION))),
        [] => {
            let detail = format!("no cluster in {} has this directory", root().display());
            Err(directory.failure(&code::PG_NO_CONFIGURATION, &detail))
        }
        several => {
            let names = several
                .iter()
                .map(|one| format!("{}/{}", one.version, one.name));
            let names: Vec<String> = names.collect();
            let detail = format!("clusters {} have this directory", names.join(" and "));
            Err(directory.failure(&code::PG_NO_CONFIGURATION, &detail))
        }
    }
}

/// Refuses a configuration file whose `data_directory` is another one: SR-7033. A server goes by
/// that, whatever it was given with `-D`, and would run on another instance than the one whose key
/// was tried.
fn check_is_of(directory: &Directory, file: &Path) -> Result<(), Error> {
    let settings = Settings::of_file(file);
    let Some(setting) = settings.last("data_directory") else {
        return Ok(());
    };
    let other = directory.path.join(setting.path());
    if other
        .canonicalize()
        .is_ok_and(|other| other == directory.path)
    {
        return Ok(());
    }
    let detail = format!("{} is of {}", file.display(), printable(&setting.text()));
    Err(directory.failure(&code::PG_NO_CONFIGURATION, &detail))
}
