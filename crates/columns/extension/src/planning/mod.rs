//! What this library tells the planner: the fraction of rows that a comparison keeps, and
//! statistics without values.
//!
//! Must not: keep a value, or a statistic that reveals one.

mod analyze;
mod selectivity;
