//! What the shell says beside its results: the caller shows it.
//!
//! Must not: receive results.

use crate::error::Error;

/// Receives what is not a result: on a terminal, what goes to standard error.
pub trait Console {
    /// A remark.
    fn note(&self, text: &str);
    /// A line as it is, without a line end.
    fn line(&self, text: &str);
    /// A statement failed, and the shell goes on.
    fn failed(&self, error: Error);
    /// Begins some work. The function that is returned is called with how many bytes of how many
    /// are done, and dropped at the end.
    fn progress(&self, label: &'static str) -> Box<dyn FnMut(u64, u64)>;
}
