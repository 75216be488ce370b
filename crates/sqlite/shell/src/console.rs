//! What the shell says beside its results: the caller shows it.
//!
//! Must not: receive results.

use crate::error::Error;

/// Receives what is not a result: on a terminal, what goes to standard error.
pub trait Console {
    /// Shows a remark.
    fn note(&self, text: &str);
    /// Shows a line as it is, without a line end.
    fn line(&self, text: &str);
    /// Shows that a statement or dot-command failed. The shell continues.
    fn failed(&self, error: Error);
    /// Begins to show the progress of some work. The function that is returned is called with the
    /// number of bytes done and in all, and dropped at the end.
    fn progress(&self, label: &'static str) -> Box<dyn FnMut(u64, u64)>;
}
