//! What a restore test is given.
//!
//! Must not: have a default for a value that the environment decides.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use crate::Owners;

/// How a restore test is run.
#[derive(Clone, Debug)]
pub struct DrillOptions {
    /// The directory in which the test makes its private directory.
    pub scratch: PathBuf,
    /// The directory of PostgreSQL's programs, of the cluster's major version.
    pub programs: PathBuf,
    /// The version of the cluster's server, as `server_version_num`.
    pub server_version: u32,
    /// The owner of the restored files, as which the server runs. It must not be root.
    pub owners: Owners,
    /// The variables that PostgreSQL's programs get, beside `LC_ALL`.
    pub environment: Vec<(String, OsString)>,
    /// Threads that open and decompress.
    pub threads: usize,
    /// Once this is set, the test ends as if it had failed.
    pub stop: &'static AtomicBool,
}

/// What the restored server is asked.
#[derive(Clone, Debug)]
pub struct DrillQuestions {
    /// A query that it has to answer.
    pub query: Option<String>,
    /// The database of the query.
    pub database: String,
    /// A superuser of the restored cluster.
    pub superuser: String,
}
