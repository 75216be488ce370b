//! What the nodes send: programs, and the inputs of rows.
//!
//! Must not: go on to another row.

use pg_sys::TupleTableSlot;
use pgrx::pg_sys;
use strongroom_columns_ring::Broken;

use super::expressions::{Compiled, Source};
use super::nodes;
use crate::ring::batches::BatchAnswer;
use crate::ring::connection::latest_number;
use crate::ring::zone;

/// A program, which the zone has from its first batch on until this is dropped, or the statement
/// ends.
pub(super) struct SentProgram {
    pub(super) compiled: Compiled,
    /// Its identifier, and the number of the connection that it was sent over.
    sent: Option<(u64, u32)>,
}

impl SentProgram {
    /// A program that was not sent yet.
    pub(super) const fn new(compiled: Compiled) -> Self {
        Self {
            compiled,
            sent: None,
        }
    }

    /// The program's identifier over the present connection. Sends it if that was not done yet.
    fn id(&mut self) -> u64 {
        if let Some((id, connection)) = self.sent
            && connection == latest_number()
        {
            return id;
        }
        let id = zone::with(|connection| connection.send_program(&self.compiled.program));
        self.sent = Some((id, latest_number()));
        id
    }

    /// Sends a batch of rows, whose inputs are each together in `words`, without waiting; returns
    /// its ticket. `ahead`: the rows may not be needed. Raises an ERROR if the zone is gone.
    pub(super) fn send_batch(&mut self, rows: usize, words: &[u64], ahead: bool) -> u64 {
        let id = self.id();
        let needs_zone = self.compiled.depends_on_time_zone;
        zone::with(|connection| {
            if needs_zone {
                connection.send_time_zone()?;
            }
            connection.send_batch(id, rows, words, ahead)
        })
    }

    /// Waits for the answer to a batch of this program.
    pub(super) fn answer(&self, ticket: u64) -> BatchAnswer {
        match self.sent {
            Some((_, connection)) if connection == latest_number() => {
                zone::with(|connection| connection.batch_answer(ticket))
            }
            _ => BatchAnswer::Failed(Broken::Lost),
        }
    }

    /// The words of the program's groups from number `first` on, as many as one answer has, and the
    /// number of all groups. Raises the ERROR of a row or of a result that has failed.
    pub(super) fn groups(&mut self, first: usize) -> (Vec<u64>, usize) {
        let id = self.id();
        zone::with(|connection| connection.groups(id, &self.compiled.program, first))
    }
}

impl Drop for SentProgram {
    /// Has the zone forget the program, if it was sent over the present connection.
    fn drop(&mut self) {
        if let Some((id, number)) = self.sent.take()
            && number == latest_number()
        {
            zone::forget_program(id);
        }
    }
}

/// The inputs of rows, of which each has its inputs together, with those of each input together.
pub(super) fn by_input(words: &[u64], inputs: usize) -> Vec<u64> {
    let mut turned = Vec::with_capacity(words.len());
    for input in 0..inputs {
        turned.extend(words.iter().skip(input).step_by(inputs));
    }
    turned
}

/// The number of the last column that has an input; 0 for none.
pub(super) fn last_column(sources: &[Source]) -> i16 {
    let columns = sources.iter().map(|source| source.column());
    columns.max().unwrap_or(0)
}

/// Adds the inputs of the row in a slot to `inputs`, which has room for them. `last` is the number
/// of the last column that has one.
///
/// # Safety
///
/// Within [`crate::call::call_postgres`]; a slot with a row of at least so many columns.
pub(super) unsafe fn append_inputs(
    slot: *mut TupleTableSlot,
    (sources, last): (&[Source], i16),
    inputs: &mut Vec<u64>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        nodes::read_columns(slot, last);
        for source in sources {
            inputs.push(input_word(*source, nodes::column(slot, source.column())));
        }
    }
}

/// The word of an input whose column has these bits; `None` for NULL. Of a number of fewer than 8
/// bytes only these count: what PostgreSQL has beside them depends on where the value is from.
pub(super) fn input_word(source: Source, bits: Option<u64>) -> u64 {
    match source {
        Source::Value(_) => bits.unwrap_or(0),
        Source::Word(_, width) => {
            let unused = 64_u32.saturating_sub(8 * u32::from(width));
            let bits = bits.unwrap_or(0).checked_shl(unused).unwrap_or(0);
            let number = bits.cast_signed().checked_shr(unused).unwrap_or(0);
            number.cast_unsigned()
        }
        Source::IsNull(_) => u64::from(bits.is_none()),
    }
}
