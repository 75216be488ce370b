//! What the catalogue knows of the past: when something was backed up, and a medium verified.
//!
//! Must not: ask for anything, unless the catalogue was named.

use std::collections::BTreeSet;
use std::path::Path;

use super::catalogue::Catalogue;
use super::entry::{DONE, Entry};
use crate::failure::Failure;

/// The runs that did what they were to do.
pub(crate) struct Past {
    runs: Vec<Entry>,
}

/// Reads the catalogue. `None` where there is none, or where the keyring would ask for its root key.
///
/// # Errors
/// What opening it reports.
pub(crate) fn past(named: Option<&Path>, keyring: &Path) -> Result<Option<Past>, Failure> {
    let path = super::path(named, keyring);
    if named.is_none() && (!path.exists() || !super::can_be_opened_unasked(keyring)) {
        return Ok(None);
    }
    let mut runs = Catalogue::open(&path, keyring)?.runs(None, None)?;
    runs.retain(|run| run.outcome == DONE);
    Ok(Some(Past { runs }))
}

impl Past {
    /// When the newest backup of a file or directory ended that has one of these names.
    pub(crate) fn backed_up(&self, names: &[String]) -> Option<u64> {
        self.newest(|run| run.operation == "create" && names.contains(&run.source))
    }

    /// When the newest backup of a PostgreSQL server ended, if all there are, are of one server: a data directory does not
    /// say without a key which server it is.
    pub(crate) fn server_backed_up(&self) -> Option<u64> {
        let set = |run: &Entry| {
            run.set
                .as_ref()
                .and_then(|set| set.system_identifier.clone())
        };
        let servers: BTreeSet<String> = self.runs.iter().filter_map(set).collect();
        if servers.len() != 1 {
            return None;
        }
        self.newest(|run| run.operation == "create" && set(run).is_some())
    }

    /// When a medium that has one of these names was verified last.
    pub(crate) fn verified(&self, names: &[String]) -> Option<u64> {
        self.newest(|run| run.operation() == "verify" && names.contains(&run.medium))
    }

    fn newest(&self, wanted: impl Fn(&Entry) -> bool) -> Option<u64> {
        let runs = self.runs.iter().filter(|run| wanted(run));
        runs.map(|run| run.ended_unix_s).max()
    }
}
