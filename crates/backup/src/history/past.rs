//! Questions to the catalogue: when something was last backed up, and when a medium was last
//! verified.
//!
//! Must not: ask for anything, unless the catalogue was named.

use std::collections::BTreeSet;
use std::path::Path;

use super::catalogue::Catalogue;
use super::catalogue_path::{can_be_opened_unasked, catalogue_path};
use super::run_record::{DONE, RunRecord};
use crate::Result;

/// The runs of the catalogue that ended without an error.
pub struct PastRuns {
    runs: Vec<RunRecord>,
}

/// Reads the successful runs from the catalogue that was named, or the one beside the keyring.
/// `None` when no catalogue was named and there is none, or the keyring would ask for its root key.
///
/// # Errors
/// Those of opening and reading the catalogue.
pub fn past_runs(named: Option<&Path>, keyring: &Path) -> Result<Option<PastRuns>> {
    let path = catalogue_path(named, keyring);
    if named.is_none() && (!path.exists() || !can_be_opened_unasked(keyring)) {
        return Ok(None);
    }
    let mut runs = Catalogue::open(&path, keyring)?.runs(None, None)?;
    runs.retain(|run| run.outcome == DONE);
    Ok(Some(PastRuns { runs }))
}

impl PastRuns {
    /// When the newest successful backup of a file or directory with one of these names ended, in
    /// seconds since the Unix epoch. `None` when there was none.
    #[must_use]
    pub fn backed_up(&self, names: &[String]) -> Option<u64> {
        self.newest(|run| run.operation == "create" && names.contains(&run.source))
    }

    /// When the newest successful backup of a PostgreSQL server ended, in seconds since the Unix
    /// epoch. `None` unless the catalogue has sets of exactly one server: without a key, a data
    /// directory does not say which server it belongs to.
    #[must_use]
    pub fn server_backed_up(&self) -> Option<u64> {
        let set = |run: &RunRecord| {
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

    /// When the last successful verification of a medium with one of these names ended, restore
    /// tests included, in seconds since the Unix epoch. `None` when there was none.
    #[must_use]
    pub fn verified(&self, names: &[String]) -> Option<u64> {
        self.newest(|run| run.operation() == "verify" && names.contains(&run.medium))
    }

    /// The latest end of the runs that `wanted` accepts, in seconds since the Unix epoch; `None`
    /// when it accepts none.
    fn newest(&self, wanted: impl Fn(&RunRecord) -> bool) -> Option<u64> {
        let runs = self.runs.iter().filter(|run| wanted(run));
        runs.map(|run| run.ended_unix_s).max()
    }
}
