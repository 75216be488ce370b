//! The functions that SQL calls: input and output, comparison, computing, values in clear,
//! administration.
//!
//! Must not: compute on a value; the zone does.

mod administration;
mod aggregates;
pub(crate) mod comparison;
pub(crate) mod compute;
mod conversion_trigger;
mod input_output;
pub(crate) mod modifiers;
mod plaintext;
