//! What this library tells the planner: the fraction of rows that a comparison keeps, statistics
//! without values, and what an index in a keyed order is good for.
//!
//! Must not: keep a value, or a statistic that reveals one.

mod analyze;
pub(crate) mod indexes;
mod selectivity;
