//! PostgreSQL's catalogs: which types are confidential, rows of the catalogs, and the checks of
//! definitions.
//!
//! Must not: ask the zone about a value.

pub(crate) mod definitions;
pub(crate) mod names;
pub(crate) mod options;
mod rows;
mod templates;
pub(crate) mod tuples;
pub(crate) mod types;
