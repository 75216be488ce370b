//! What the nodes send: programs, and the inputs of rows.
//!
//! Must not: read a row.

use strongroom_columns_ring::Program;

use super::expressions::Source;
use crate::ring::connection::latest_number;
use crate::ring::zone;

/// The identifier of a program over the present connection. Sends it if that was not done yet.
pub(super) fn program_of(known: &mut Option<(u64, u32)>, program: &Program) -> u64 {
    if let Some((id, connection)) = *known
        && connection == latest_number()
    {
        return id;
    }
    let id = zone::with(|connection| connection.send_program(program));
    *known = Some((id, latest_number()));
    id
}

/// The inputs of rows, of which each has its inputs together, with those of each input together.
pub(super) fn by_input(words: &[u64], inputs: usize) -> Vec<u64> {
    let mut turned = Vec::with_capacity(words.len());
    for input in 0..inputs {
        turned.extend(words.iter().skip(input).step_by(inputs));
    }
    turned
}

/// The word of an input whose column has these bits; `None` for NULL.
pub(super) fn input_word(source: Source, bits: Option<u64>) -> u64 {
    match source {
        Source::Value(_) | Source::Word(_) => bits.unwrap_or(0),
        Source::IsNull(_) => u64::from(bits.is_none()),
    }
}

/// Has the zone forget a program, if it was sent over the present connection.
pub(super) fn forget_program(program: &mut Option<(u64, u32)>) {
    if let Some((id, number)) = program.take()
        && number == latest_number()
    {
        zone::forget_program(id);
    }
}
