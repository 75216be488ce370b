//! The options of a conversion, its progress, and its result.

use std::path::PathBuf;

/// How a conversion is run.
pub struct Options<'a> {
    /// Files that are converted at the same time; 0 means as many as there are processors.
    pub threads: usize,
    /// Called from any of the threads, many times each second.
    pub progress: &'a (dyn Fn(Progress) + Sync),
}

/// The phase of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Files are converted.
    Converting,
    /// Converted files are read back.
    Verifying,
}

/// The progress of a conversion.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The current phase.
    pub phase: Phase,
    /// Bytes of this phase that were processed.
    pub bytes: u64,
    /// Total bytes of this phase.
    pub bytes_total: u64,
}

/// The result of a conversion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Whether it completed one that had been interrupted.
    pub resumed: bool,
    /// Files that were converted by this run.
    pub converted: u64,
    /// Files that an earlier run had converted.
    pub converted_before: u64,
    /// Bytes of the converted files, as PostgreSQL sees them, earlier runs included.
    pub bytes: u64,
    /// Files that are stored in clear, sealed instance or not.
    pub in_clear: u64,
    /// Temporary files that were removed, as PostgreSQL would.
    pub removed: u64,
    /// Files that have other names, by hard links. Under those names they are not converted.
    pub other_names: Vec<PathBuf>,
    /// Symbolic links that were not followed, because PostgreSQL does not know them.
    pub not_followed: Vec<PathBuf>,
}
