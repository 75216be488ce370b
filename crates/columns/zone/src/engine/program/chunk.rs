//! The rows for which a program is carried out together: what its registers hold, which rows are
//! left, which have failed.
//!
//! Must not: compute.

use std::ops::Range;
use std::time::Instant;

use strongroom_columns_ring::Fault;
use strongroom_columns_ring::program::{Register, truths};
use strongroom_columns_values::Value;

use crate::engine::vector::{BYTES_MAX, Vector};

/// Rows that are carried out together: their vectors stay in the processor's cache.
pub(super) const CHUNK_ROWS: usize = 256;

/// Some rows of a batch.
pub(super) struct Chunk<'a> {
    /// Of each input the words of all rows of the batch.
    inputs: &'a [u64],
    /// Rows of the batch.
    batch_rows: usize,
    /// The rows of the batch that are in the chunk.
    range: Range<usize>,
    /// The number of inputs, which are the first registers.
    input_count: usize,
    /// By register.
    pub(super) vectors: Vec<Vector>,
    /// By register, whether the vector has been filled.
    filled: Vec<bool>,
    /// The rows that count: those that were not dropped and have not failed, in ascending order.
    /// Behind them, for each condition within which instructions are carried out, its rows.
    rows: Vec<Vec<usize>>,
    /// The rows that have failed, and why.
    faults: Vec<(usize, Fault)>,
    /// How many values were computed.
    pub(super) computed: u64,
    /// Whether an input has values of the statement, which it may have computed.
    pub(super) reads_computed: bool,
    /// When the batch is to be answered, even if rows are left.
    deadline: Instant,
}

/// What has become of the rows for which a function was called.
#[derive(Default)]
pub(super) struct Called {
    /// For how many it was called.
    pub(super) done: usize,
    /// For which it has failed, and why.
    pub(super) faults: Vec<(usize, Fault)>,
    /// The first one for which it was not called, because there is no time or no room for more.
    pub(super) left: Option<usize>,
}

impl Called {
    /// Calls `call` with each of these rows, until it returns true or the batch is to be answered,
    /// but for the first row of the chunk in any case. Looks at the clock every
    /// `rows_between_looks` rows. The faults of `call` are the rows'.
    pub(super) fn each(
        chunk: &Chunk<'_>,
        rows: &[usize],
        rows_between_looks: usize,
        mut call: impl FnMut(usize) -> Result<bool, Fault>,
    ) -> Self {
        let mut called = Self::default();
        let mut is_full = false;
        for row in rows {
            let looks = row % rows_between_looks == 0;
            if *row > 0 && (is_full || looks && chunk.is_late()) {
                called.left = Some(*row);
                break;
            }
            called.done += 1;
            match call(*row) {
                Ok(full) => is_full = full,
                Err(fault) => called.faults.push((*row, fault)),
            }
        }
        called
    }
}

impl<'a> Chunk<'a> {
    /// These rows of a batch of `batch_rows` rows, whose inputs are `inputs`, and which is to be
    /// answered at `deadline`.
    pub(super) fn new(
        inputs: &'a [u64],
        batch_rows: usize,
        range: Range<usize>,
        deadline: Instant,
    ) -> Self {
        Self {
            inputs,
            batch_rows,
            input_count: inputs.len() / batch_rows.max(1),
            rows: vec![(0..range.len()).collect()],
            range,
            vectors: Vec::new(),
            filled: Vec::new(),
            faults: Vec::new(),
            computed: 0,
            reads_computed: false,
            deadline,
        }
    }

    /// Makes as many empty registers as a program has.
    pub(super) fn begin(&mut self, registers: usize) {
        if self.vectors.len() < registers {
            self.vectors.resize_with(registers, Vector::new);
        }
        self.filled = vec![false; registers];
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.range.len()
    }

    /// The word of an input in a row; 0 for an unknown one.
    pub(super) fn input(&self, register: Register, row: usize) -> u64 {
        let at = usize::from(register) * self.batch_rows + self.range.start + row;
        self.inputs.get(at).copied().unwrap_or(0)
    }

    /// The rows for which the next instruction is to be carried out.
    pub(super) fn rows(&self) -> &[usize] {
        self.rows.last().map_or(&[], Vec::as_slice)
    }

    /// The rows that count, within conditions or not.
    pub(super) fn all_rows(&self) -> &[usize] {
        self.rows.first().map_or(&[], Vec::as_slice)
    }

    /// Takes a register's vector out, emptied, to be filled and put back.
    pub(super) fn take(&mut self, register: usize) -> Vector {
        let mut vector = Vector::new();
        if let Some(place) = self.vectors.get_mut(register) {
            std::mem::swap(&mut vector, place);
        }
        vector.begin(self.range.len());
        vector
    }

    /// Puts a register's vector back, filled.
    pub(super) fn put(&mut self, register: usize, vector: Vector) {
        if let Some(place) = self.vectors.get_mut(register) {
            *place = vector;
        }
        if let Some(filled) = self.filled.get_mut(register) {
            *filled = true;
        }
    }

    /// Puts a register's vector back, filled by a function; drops the rows for which it has failed,
    /// and leaves those to another chunk for which it was not called.
    pub(super) fn finish(&mut self, register: usize, vector: Vector, called: Called) {
        self.put(register, vector);
        self.fail(called.faults);
        if let Some(row) = called.left {
            self.leave_from(row);
        }
    }

    /// Whether a register is an input that was not filled yet.
    pub(super) fn is_missing(&self, register: usize) -> bool {
        register < self.input_count && self.filled.get(register).is_some_and(|filled| !filled)
    }

    /// A register's vector.
    ///
    /// # Errors
    /// [`Fault::BadRequest`] for an unknown register.
    pub(super) fn vector(&self, register: Register) -> Result<&Vector, Fault> {
        let vector = self.vectors.get(usize::from(register));
        vector.ok_or(Fault::BadRequest)
    }

    /// Whether the batch is to be answered now.
    pub(super) fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Leaves this row and those behind it to another chunk, unless it is the first one. To be
    /// called before anything is known of them that lasts.
    pub(super) fn leave_from(&mut self, row: usize) {
        if row > 0 && row < self.range.len() {
            self.range.end = self.range.start + row;
            for rows in &mut self.rows {
                rows.retain(|known| *known < row);
            }
            self.faults.retain(|(failed, _)| *failed < row);
        }
    }

    /// Limits the chunk to its first rows whose values in these registers have about a mebibyte
    /// together; the rows behind them are left to a later chunk. To be called before anything is
    /// known of those that lasts, as [`Self::leave_from`].
    ///
    /// # Errors
    /// [`Fault::BadRequest`] for an unknown register.
    pub(super) fn limit_bytes(
        &mut self,
        registers: impl Iterator<Item = Register>,
    ) -> Result<(), Fault> {
        let mut bytes = vec![0_usize; self.range.len()];
        for register in registers {
            let vector = self.vector(register)?;
            if !vector.has_bytes() {
                continue;
            }
            for row in self.all_rows() {
                if let (Some(sum), Some(Value::Bytes(of))) = (bytes.get_mut(*row), vector.get(*row))
                {
                    *sum = sum.saturating_add(of.len());
                }
            }
        }
        let mut total = 0_usize;
        let first = bytes.iter().position(|of| {
            let is_full = total > BYTES_MAX;
            total = total.saturating_add(*of);
            is_full
        });
        if let Some(row) = first {
            self.leave_from(row);
        }
        Ok(())
    }

    /// Drops rows that have failed.
    pub(super) fn fail(&mut self, faults: Vec<(usize, Fault)>) {
        if faults.is_empty() {
            return;
        }
        for rows in &mut self.rows {
            rows.retain(|row| faults.iter().all(|(failed, _)| failed != row));
        }
        self.faults.extend(faults);
    }

    /// Until [`Self::widen`], only rows count whose truth is one of `which`.
    ///
    /// # Errors
    /// [`Fault::BadRequest`] for an unknown register.
    pub(super) fn narrow(&mut self, of: Register, which: u8) -> Result<(), Fault> {
        let vector = self.vector(of)?;
        let is_in = |row: &&usize| {
            let bit = match vector.truth(**row) {
                Some(false) => truths::FALSE,
                Some(true) => truths::TRUE,
                None => truths::NULL,
            };
            which & bit != 0
        };
        let rows = self.rows().iter().filter(is_in).copied().collect();
        self.rows.push(rows);
        Ok(())
    }

    /// Ends the last [`Self::narrow`].
    pub(super) fn widen(&mut self) {
        if self.rows.len() > 1 {
            self.rows.pop();
        }
    }

    /// Drops the rows for which a truth is not true.
    ///
    /// # Errors
    /// [`Fault::BadRequest`] for an unknown register.
    pub(super) fn keep(&mut self, of: Register) -> Result<(), Fault> {
        let vector = self.vectors.get(usize::from(of)).ok_or(Fault::BadRequest)?;
        for rows in &mut self.rows {
            rows.retain(|row| vector.truth(*row) == Some(true));
        }
        Ok(())
    }

    /// The first row that has failed, and why.
    pub(super) fn first_fault(&self) -> Option<(usize, Fault)> {
        self.faults.iter().min_by_key(|(row, _)| *row).copied()
    }

    /// Appends a byte for each row: 1 if it counts, `fails` if it has failed, otherwise 0.
    pub(super) fn answer(&self, answers: &mut Vec<u8>, fails: u8) {
        let first = answers.len();
        answers.resize(first + self.range.len(), 0);
        let kept = self.all_rows().iter().map(|row| (*row, 1));
        let failed = self.faults.iter().map(|(row, _)| (*row, fails));
        for (row, answer) in kept.chain(failed) {
            if let Some(place) = answers.get_mut(first + row) {
                *place = answer;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Four rows, to be answered that much later.
    fn chunk(inputs: &[u64], time: Duration) -> Chunk<'_> {
        let mut chunk = Chunk::new(inputs, 4, 0..4, Instant::now() + time);
        chunk.begin(2);
        chunk
    }

    #[test]
    fn a_function_is_called_until_there_is_no_time_or_no_room_but_once() {
        let inputs = [0; 4];
        let much = Duration::from_secs(3600);
        let rows = [0, 1, 2, 3];
        let cases = [
            (much, false, 4, None),
            (much, true, 1, Some(1)),
            (Duration::ZERO, false, 1, Some(1)),
        ];
        for (time, is_full, done, left) in cases {
            let called = Called::each(&chunk(&inputs, time), &rows, 1, |_| Ok(is_full));
            assert_eq!((called.done, called.left), (done, left));
        }
        let late = chunk(&inputs, Duration::ZERO);
        let called = Called::each(&late, &rows, 2, |row| match row {
            1 => Err(Fault::StringTooLong),
            _ => Ok(false),
        });
        assert_eq!((called.done, called.left), (2, Some(2)));
        assert_eq!(called.faults, [(1, Fault::StringTooLong)]);
    }

    #[test]
    fn rows_with_many_bytes_are_left_to_another_chunk() {
        let inputs = [0; 4];
        let long = vec![b'a'; BYTES_MAX / 4];
        let mut chunk = chunk(&inputs, Duration::from_secs(3600));
        for register in 0..2 {
            let mut vector = chunk.take(register);
            for row in 0..4 {
                assert!(vector.set(row, Value::Bytes(&long)));
            }
            chunk.put(register, vector);
        }
        chunk.limit_bytes([0].into_iter()).unwrap();
        assert_eq!(chunk.all_rows(), [0, 1, 2, 3]);
        // Each row has half as many as fit, with both; the third one may be above.
        chunk.limit_bytes([0, 1].into_iter()).unwrap();
        assert_eq!(chunk.all_rows(), [0, 1, 2]);
        assert_eq!(chunk.limit_bytes([9].into_iter()), Err(Fault::BadRequest));
    }
}
