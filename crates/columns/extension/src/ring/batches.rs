//! Programs and batches of rows over the connection: up to four batches are on their way at a time,
//! each in a part of the data area of its own.
//!
//! Invariant: a part is written only when the batch that was in it before is answered, and its
//! answer is copied. Must not: know what a program does.

use std::collections::BTreeMap;

use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{ANSWER_HALF, Broken, Descriptor, ENTRIES, Fault, Op, Program};

use crate::interrupts::check_while_waiting;
use crate::ring::connection::{Connection, PREFETCH_OFFSET};

/// Batches that are on their way at a time.
const PARTS: usize = 4;
/// Bytes of the data area for the inputs of one batch.
const PART_SIZE: usize = 1 << 16;
/// Where the first part begins. The parts lie before those of prefetched questions.
pub(super) const BATCH_OFFSET: usize = PREFETCH_OFFSET - PARTS * PART_SIZE;

/// The most rows of a batch with so many inputs, which fit into a part.
pub(crate) fn rows_max(inputs: usize) -> usize {
    strongroom_columns_ring::program::ROWS_MAX.min(PART_SIZE / (8 * inputs.max(1)))
}

/// The answer of a row for which a condition is true.
pub(crate) const IS_TRUE: u8 = 1;
/// The answer of a row that is to be asked about by the ordinary operators: the condition has
/// failed for it, or was not carried out.
pub(crate) const ASK: u8 = 2;

/// What became of a batch.
#[derive(Clone)]
pub(crate) enum BatchAnswer {
    /// So many rows were done, with a byte for each if the program is a condition; without any if
    /// another answer needed their place.
    Done(usize, Vec<u8>),
    /// It was refused or has failed, and with an earlier fault was not carried out.
    Failed(Broken),
}

/// A batch on its way.
#[derive(Clone, Copy)]
struct OnItsWay {
    ticket: u64,
    operation: u32,
    overwritten: u32,
    /// Whether somebody will ask for the answer.
    is_wanted: bool,
}

/// The batches of a connection.
#[derive(Default)]
pub(super) struct Batches {
    parts: [Option<OnItsWay>; PARTS],
    next_part: usize,
    next_ticket: u64,
    /// Whether the zone takes programs, if that is known.
    knows_programs: Option<bool>,
    /// Operations since the last batch was sent.
    operations: u32,
    /// Answers that were copied and not asked for yet, by ticket.
    answers: BTreeMap<u64, BatchAnswer>,
}

impl Batches {
    /// Forgets whether the zone takes programs.
    pub(super) fn forget_abilities(&mut self) {
        self.knows_programs = None;
    }

    /// Forgets answers that nobody has asked for: the statement is over.
    pub(super) fn forget_answers(&mut self) {
        self.answers.clear();
    }

    /// Counts an operation. Whether batches on their way are due to be answered, before their
    /// entries in the ring are used again.
    fn is_due(&mut self) -> bool {
        self.operations += 1;
        self.operations > ENTRIES / 2 && self.parts.iter().any(Option::is_some)
    }
}

impl Connection {
    /// Sends a program, which lasts until the statement ends, without waiting; returns its
    /// identifier. That it was refused, its first batch tells. `Lost` if the zone is gone,
    /// `Earlier` for the fault of a posted operation.
    pub(crate) fn send_program(&mut self, program: &Program) -> Result<u64, Broken> {
        let n = self.write(0, &program.encode())?;
        let r = self.new_identifier()?;
        self.call(Descriptor {
            n,
            r,
            ..Descriptor::of(Op::Program)
        })?;
        Ok(r)
    }

    /// Whether the zone takes programs: a record that is replayed has none. Asks it once, and
    /// waits. `Lost` if the zone is gone, `Interrupted` at the end of a transaction.
    pub(crate) fn knows_programs(&mut self) -> Result<bool, Broken> {
        // What is recorded has none either.
        self.send_record_name()?;
        if let Some(known) = self.batches.knows_programs {
            return Ok(known);
        }
        let known = match self.send_program(&Program::default()) {
            Ok(id) => {
                self.forget_program(id)?;
                true
            }
            Err(Broken::Fault(_) | Broken::Earlier(_)) => false,
            Err(broken) => return Err(broken),
        };
        self.batches.knows_programs = Some(known);
        Ok(known)
    }

    /// Has the zone forget a program, without waiting. `Interrupted` if the ring is full.
    pub(crate) fn forget_program(&mut self, id: u64) -> Result<(), Broken> {
        let descriptor = Descriptor {
            a: id,
            ..Descriptor::of(Op::ForgetProgram)
        };
        let interrupted = || Err(strongroom_columns_ring::Interrupted);
        self.host.post(descriptor, interrupted)
    }

    /// Sends a batch of `rows` rows for a program without waiting for the answer; returns a ticket
    /// for [`Self::batch_answer`]. `words` are its inputs, each with a word for every row. `ahead`:
    /// the rows may not be needed, so that earlier faults stay with other operations. `BadRequest`
    /// for more rows than [`rows_max`], `Lost` if the zone is gone.
    pub(crate) fn send_batch(
        &mut self,
        program: u64,
        rows: usize,
        words: &[u64],
        ahead: bool,
    ) -> Result<u64, Broken> {
        let bad = Broken::Fault(Fault::BadRequest);
        let part = self.batches.next_part;
        self.batches.next_part = (part + 1) % PARTS;
        self.finish_batch(part)?;
        let offset = BATCH_OFFSET + part * PART_SIZE;
        if words.len().saturating_mul(8) > PART_SIZE {
            return Err(bad);
        }
        let area = self.host.area(check_while_waiting)?;
        area.write_words(offset, words).ok_or(bad)?;
        let descriptor = Descriptor {
            flags: if ahead { flag::AHEAD } else { 0 },
            n: u32::try_from(rows).map_err(|_| bad)?,
            a: program,
            b: offset as u64,
            ..Descriptor::of(Op::RunProgram)
        };
        let operation = self.host.submit(descriptor, check_while_waiting)?;
        let ticket = self.batches.next_ticket;
        self.batches.next_ticket += 1;
        if self.batches.parts.iter().all(Option::is_none) {
            self.batches.operations = 0;
        }
        let on_its_way = OnItsWay {
            ticket,
            operation,
            overwritten: self.overwritten,
            is_wanted: true,
        };
        if let Some(place) = self.batches.parts.get_mut(part) {
            *place = Some(on_its_way);
        }
        Ok(ticket)
    }

    /// Waits for the answer to a batch, handling interrupts, and returns it, once. `Lost` if the
    /// zone is gone; `BadRequest` for a ticket that was used.
    pub(crate) fn batch_answer(&mut self, ticket: u64) -> Result<BatchAnswer, Broken> {
        let is_it = |part: &Option<OnItsWay>| part.is_some_and(|part| part.ticket == ticket);
        if let Some(part) = self.batches.parts.iter().position(is_it) {
            self.finish_batch(part)?;
        }
        let answer = self.batches.answers.remove(&ticket);
        answer.ok_or(Broken::Fault(Fault::BadRequest))
    }

    /// Counts an operation that is about to be sent, and waits for all batches on their way if
    /// their entries in the ring would be used again.
    pub(super) fn finish_due_batches(&mut self) -> Result<(), Broken> {
        if self.batches.is_due() {
            self.finish_batches()?;
        }
        Ok(())
    }

    /// Gives the answer to a batch up: nobody will ask for it.
    pub(crate) fn forget_batch(&mut self, ticket: u64) {
        self.batches.answers.remove(&ticket);
        let mut parts = self.batches.parts.iter_mut().flatten();
        if let Some(batch) = parts.find(|batch| batch.ticket == ticket) {
            batch.is_wanted = false;
        }
    }

    /// Waits for all batches on their way, and copies their answers: their parts of the data area
    /// are about to be written.
    pub(super) fn finish_batches(&mut self) -> Result<(), Broken> {
        for part in 0..PARTS {
            self.finish_batch(part)?;
        }
        Ok(())
    }

    /// Waits for the batch in a part, if there is one, and copies its answer.
    fn finish_batch(&mut self, part: usize) -> Result<(), Broken> {
        let Some(Some(batch)) = self.batches.parts.get(part).copied() else {
            return Ok(());
        };
        let answer = self.host.answer(batch.operation, check_while_waiting)?;
        // Its entry in the ring was not used again: batches are answered before (`is_due`).
        let answer = answer.ok_or(Broken::Fault(Fault::BadRequest))?;
        let outcome = match answer.failure() {
            Some(fault) if answer.is_earlier() => BatchAnswer::Failed(Broken::Earlier(fault)),
            Some(fault) => BatchAnswer::Failed(Broken::Fault(fault)),
            None => {
                let rows = usize::try_from(answer.value).unwrap_or(usize::MAX);
                let bytes = if batch.overwritten == self.overwritten {
                    self.copy(ANSWER_HALF + BATCH_OFFSET + part * PART_SIZE, rows)?
                } else {
                    Vec::new()
                };
                BatchAnswer::Done(rows, bytes)
            }
        };
        if batch.is_wanted {
            self.batches.answers.insert(batch.ticket, outcome);
        }
        if let Some(place) = self.batches.parts.get_mut(part) {
            *place = None;
        }
        Ok(())
    }

    /// The words of a program's groups from number `first` on, as many as one answer has, and the
    /// number of all groups. Waits; fails as [`Self::call`] does.
    pub(crate) fn groups(
        &mut self,
        id: u64,
        program: &Program,
        first: usize,
    ) -> Result<(Vec<u64>, usize), Broken> {
        let bad = Broken::Fault(Fault::BadRequest);
        let width = program.group_width();
        self.wait_until_writable(8 * width * program.groups_per_call())?;
        let r = self.new_identifier()?;
        let answer = self.call(Descriptor {
            n: u32::try_from(first).map_err(|_| bad)?,
            a: id,
            r,
            ..Descriptor::of(Op::Groups)
        })?;
        let count = usize::try_from(answer.value).map_err(|_| bad)?;
        let mut words = vec![0; count.min(program.groups_per_call()) * width];
        self.read_words(0, &mut words)?;
        // The identifiers of what was computed follow one another.
        let puts = |(at, word): &(usize, &u64)| **word != 0 && program.is_put(at % width);
        for _ in 1..words.iter().enumerate().filter(puts).count() {
            self.new_identifier()?;
        }
        let all = usize::try_from(answer.aux).map_err(|_| bad)?;
        Ok((words, all))
    }
}
