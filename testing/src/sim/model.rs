//! What a workload does, and what the database must then hold, worked out without SQLite.
//!
//! Every transaction has a number and writes it into the table `applied` in the same transaction,
//! so that a database says which transactions it holds. What each one does to the rows does not
//! depend on what is there.
//!
//! Must not: run SQL.

use std::collections::BTreeMap;

use crate::random::Random;

/// A change within a transaction.
#[derive(Clone, Debug)]
pub enum Op {
    /// A row is put, over the one that is there.
    Put {
        /// Primary key.
        id: i64,
        /// Indexed column.
        k: i64,
        /// Length of the body, in bytes.
        len: usize,
        /// What the body is made from.
        salt: u64,
    },
    /// Adds to `k`.
    Add(std::ops::RangeInclusive<i64>, i64),
    /// Rows go.
    Delete(std::ops::RangeInclusive<i64>),
    /// A row of so many bytes that nobody looks at: makes pages, and free ones later.
    Fill(usize),
    /// All such rows go.
    Clear,
    /// Changes that are undone within the transaction.
    Undone(Vec<Self>),
    /// Changes in a savepoint that is released.
    Nested(Vec<Self>),
}

/// A transaction.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Its number.
    pub number: u64,
    /// What it does.
    pub ops: Vec<Op>,
    /// It is rolled back in the end.
    pub undone: bool,
}

/// What a workload does at a time.
#[derive(Clone, Debug)]
pub enum Step {
    /// A transaction.
    Run(Transaction),
    /// `PRAGMA wal_checkpoint`.
    Checkpoint(&'static str),
    /// VACUUM.
    Vacuum,
    /// `PRAGMA incremental_vacuum`.
    Incremental,
    /// A sort that does not fit into the cache.
    Sort,
    /// Closes and opens again.
    Reopen,
    /// `PRAGMA integrity_check`.
    Integrity,
    /// A new data key, where there is one.
    Rekey,
}

/// The rows of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    /// `(k, body)` by id.
    pub rows: BTreeMap<i64, (i64, Vec<u8>)>,
    /// Lengths of the rows of `Fill`, in order.
    pub filled: Vec<usize>,
}

impl Model {
    /// After these transactions, in this order.
    #[must_use]
    pub fn after(steps: &[Step], applied: &[u64]) -> Self {
        let mut model = Self::default();
        for number in applied {
            let done = steps.iter().find_map(|step| match step {
                Step::Run(transaction) if transaction.number == *number => Some(transaction),
                _ => None,
            });
            if let Some(transaction) = done {
                model.apply(&transaction.ops);
            }
        }
        model
    }

    fn apply(&mut self, ops: &[Op]) {
        for op in ops {
            match op {
                Op::Put { id, k, len, salt } => {
                    self.rows.insert(*id, (*k, body(*salt, *len)));
                }
                Op::Add(ids, by) => {
                    for (_, (k, _)) in self.rows.range_mut(ids.clone()) {
                        *k += by;
                    }
                }
                Op::Delete(ids) => self.rows.retain(|id, _| !ids.contains(id)),
                Op::Fill(len) => self.filled.push(*len),
                Op::Clear => self.filled.clear(),
                Op::Undone(_) => {}
                Op::Nested(ops) => self.apply(ops),
            }
        }
    }
}

/// The body of a row.
#[must_use]
pub fn body(salt: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(salt);
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        out.extend_from_slice(&random.next().to_le_bytes());
    }
    out.truncate(len);
    out
}

/// A workload of `transactions` transactions and what lies between them, for pages of `page_size`
/// bytes.
#[must_use]
pub fn workload(random: &mut Random, transactions: u64, page_size: usize, wal: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    for number in 1..=transactions {
        if random.once_in(5) {
            steps.push(Step::Run(Transaction {
                number: 1000 + number,
                ops: ops(random, page_size, 0),
                undone: true,
            }));
        }
        steps.push(Step::Run(Transaction {
            number,
            ops: ops(random, page_size, 0),
            undone: false,
        }));
        match random.below(16) {
            0 | 1 if wal => {
                let modes = ["PASSIVE", "FULL", "RESTART", "TRUNCATE"];
                steps.push(Step::Checkpoint(random.one_of(&modes)));
            }
            2 => steps.push(Step::Vacuum),
            3 | 4 => steps.push(Step::Incremental),
            5 => steps.push(Step::Sort),
            6 => steps.push(Step::Reopen),
            7 => steps.push(Step::Integrity),
            8 => steps.push(Step::Rekey),
            _ => {}
        }
    }
    steps
}

fn ops(random: &mut Random, page_size: usize, depth: u64) -> Vec<Op> {
    let count = 1 + random.below(6);
    (0..count).map(|_| op(random, page_size, depth)).collect()
}

fn op(random: &mut Random, page_size: usize, depth: u64) -> Op {
    let from = i64::try_from(random.below(40)).unwrap_or(0);
    let span = i64::try_from(random.below(12)).unwrap_or(0);
    let limit = if random.once_in(4) {
        page_size * 3
    } else {
        200
    };
    let len = usize::try_from(random.below(limit.min(20_000) as u64)).unwrap_or(0);
    match random.below(14) {
        0..=5 => Op::Put {
            id: from,
            k: span * 100 + from,
            len,
            salt: random.next(),
        },
        6 | 7 => Op::Add(from..=from + span, 1 + span),
        8 => Op::Delete(from..=from + span),
        9 | 10 => Op::Fill(len * 2),
        11 => Op::Clear,
        12 if depth < 2 => Op::Undone(ops(random, page_size, depth + 1)),
        13 if depth < 2 => Op::Nested(ops(random, page_size, depth + 1)),
        _ => Op::Fill(page_size.min(3000)),
    }
}
