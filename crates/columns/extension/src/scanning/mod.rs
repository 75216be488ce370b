//! Scans of tables: questions about the rows of a page are sent to the zone together, and answers are
//! kept until the statement is over.
//!
//! Must not: change what a scan returns.

pub(crate) mod batching;
pub(crate) mod memo;
pub(crate) mod pages;
pub(crate) mod prefetch;
