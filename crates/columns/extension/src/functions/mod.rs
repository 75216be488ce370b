//! The functions that SQL calls: input and output, comparison, computing, values in clear, administration.
//!
//! Must not: compute on a value; the zone does.

pub(crate) mod administration;
pub(crate) mod comparison;
pub(crate) mod compute;
pub(crate) mod conversion_trigger;
pub(crate) mod input_output;
pub(crate) mod plaintext;
