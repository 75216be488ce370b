//! Scans of tables: questions about the rows of a page are sent to the zone together, and answers
//! are kept until the statement is over.
//!
//! Must not: change what a scan returns.

pub(crate) mod answers;
pub(crate) mod batching;
mod current_page;
pub(crate) mod memo;
pub(crate) mod pages;
mod prefetch;
pub(crate) mod scans;
