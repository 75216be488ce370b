//! The forms that results are written in.
//!
//! Must not: write one.

use clap::ValueEnum;

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Aligned columns
    Table,
    /// RFC 4180
    Csv,
    /// One array of objects per statement
    Json,
}
