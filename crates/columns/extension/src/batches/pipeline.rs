//! Rows that a condition is asked about in batches: while the zone works on one batch, the next one
//! is read.
//!
//! Must not: read a row.

use super::expressions::{Compiled, Source};
use super::rows::Rows;
use super::sending::{SentProgram, by_input};
use crate::fault;
use crate::ring::batches::{ASK, BatchAnswer, rows_max};
use crate::ring::zone;

/// Rows of the first batch: a query that needs only some rows has asked about no more.
const FIRST_ROWS: usize = 64;
/// By which factor batches grow.
const GROWTH: usize = 4;

/// Two batches of rows, and the program of the condition.
pub(super) struct Pipeline<R> {
    /// Where the program's inputs come from.
    sources: Vec<Source>,
    /// Made when the first row was read: a subplan whose result it has is executed for rows only.
    program: Option<SentProgram>,
    /// The batch whose rows are returned, and the next one.
    batches: [Batch<R>; 2],
    /// Which of these is returned.
    current: usize,
    /// The most rows of the next batch.
    size: usize,
    has_ended: bool,
    /// Batches so far, for EXPLAIN.
    sent: i64,
}

/// Rows, and the ticket of what the zone was asked about them.
struct Batch<R> {
    rows: R,
    ticket: Option<u64>,
}

/// The other one of two batches.
const fn other_of(at: usize) -> usize {
    1 - at
}

impl<R: Rows> Pipeline<R> {
    /// A pipeline with these batches, which are empty, for a program whose inputs come from these
    /// sources.
    pub(super) fn new(batches: [R; 2], sources: Vec<Source>) -> Self {
        Self {
            sources,
            program: None,
            batches: batches.map(|rows| Batch { rows, ticket: None }),
            current: 0,
            size: FIRST_ROWS,
            has_ended: false,
            sent: 0,
        }
    }

    /// The number of batches that were sent.
    pub(super) const fn sent(&self) -> i64 {
        self.sent
    }

    /// The rows that are returned.
    pub(super) fn current(&mut self) -> Option<&mut R> {
        self.batches
            .get_mut(self.current)
            .map(|batch| &mut batch.rows)
    }

    /// Goes on to the next batch, and has the one after it read and asked about. False when there
    /// is none. `read` adds rows to an empty batch, at most so many, with the inputs from these
    /// sources; it returns whether there are no more. `compile` makes the program. No slot may have
    /// a row of the batch before.
    pub(super) fn advance(
        &mut self,
        mut read: impl FnMut(&mut R, usize, &[Source]) -> bool,
        compile: impl Fn() -> Option<Compiled>,
    ) -> bool {
        let finished = self.current;
        if let Some(batch) = self.batches.get_mut(finished) {
            batch.rows.clear();
        }
        let other = other_of(finished);
        if self.is_empty(other) {
            self.fill(other, &mut read, &compile);
        }
        self.current = other;
        if self.is_empty(other) {
            return false;
        }
        self.fill(finished, &mut read, &compile);
        self.take_answers(other);
        true
    }

    /// Whether a batch has no rows.
    fn is_empty(&self, at: usize) -> bool {
        let batch = self.batches.get(at);
        batch.is_none_or(|batch| batch.rows.len() == 0)
    }

    /// Has rows read into a batch, which is empty, and sends it to the zone without waiting. Raises
    /// an internal ERROR if there is no program, though the plan has the node.
    fn fill(
        &mut self,
        at: usize,
        read: &mut impl FnMut(&mut R, usize, &[Source]) -> bool,
        compile: &impl Fn() -> Option<Compiled>,
    ) {
        let Some(batch) = self.batches.get_mut(at) else {
            return;
        };
        if self.has_ended {
            return;
        }
        let inputs = self.sources.len();
        let size = self.size.min(rows_max(inputs));
        self.has_ended = read(&mut batch.rows, size, &self.sources);
        self.size = size.saturating_mul(GROWTH);
        let rows = batch.rows.len();
        if rows == 0 {
            return;
        }
        if self.program.is_none() {
            self.program = compile().map(SentProgram::new);
        }
        let Some(program) = &mut self.program else {
            fault::raise_internal("a condition of a plan is not in a program");
        };
        let words = by_input(&batch.rows.asked().inputs, inputs);
        batch.ticket = Some(program.send_batch(rows, &words, true));
        self.sent += 1;
    }

    /// Waits for the zone's answers about a batch. Rows that it has not answered for are to be
    /// asked about by the ordinary operators.
    fn take_answers(&mut self, at: usize) {
        let Some(batch) = self.batches.get_mut(at) else {
            return;
        };
        let rows = batch.rows.len();
        let answers = &mut batch.rows.asked().answers;
        if let (Some(ticket), Some(program)) = (batch.ticket.take(), &self.program)
            && let BatchAnswer::Done(_, bytes) = program.answer(ticket)
        {
            answers.extend_from_slice(&bytes);
        }
        answers.resize(rows, ASK);
    }

    /// Begins again: forgets the rows that were read and not returned. The program is made anew if
    /// it depends on what may have changed. No slot may have one of the rows.
    pub(super) fn restart(&mut self) {
        self.clear();
        self.has_ended = false;
        self.size = FIRST_ROWS;
        let depends = |known: &mut SentProgram| known.compiled.depends_on_subplans;
        drop(self.program.take_if(depends));
    }

    /// Forgets rows and program. No slot may have one of the rows.
    pub(super) fn end(&mut self) {
        self.clear();
        drop(self.program.take());
    }

    /// Forgets the rows.
    fn clear(&mut self) {
        for batch in &mut self.batches {
            batch.rows.clear();
            if let Some(ticket) = batch.ticket.take() {
                zone::forget_batch(ticket);
            }
        }
    }
}
