//! PostgreSQL's catalogs: which types are confidential, rows of the catalogs, and the checks of definitions.
//!
//! Must not: ask the zone about a value.

pub(crate) mod definitions;
pub(crate) mod rows;
pub(crate) mod templates;
pub(crate) mod types;
