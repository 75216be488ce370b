//! What this backend runs now: executor runs, utility commands, and portals that may hold
//! identifiers.
//!
//! Invariant G4: a backend announces in shared memory that it may hold identifiers before it reads
//! any. Must not: end a statement.

use std::cell::Cell;
use std::thread::LocalKey;

use crate::ring::shared_memory;

thread_local! {
    /// Nesting of executor runs and utility commands.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Nesting of executor runs.
    static RUNS: Cell<u32> = const { Cell::new(0) };
    /// Number of executor states and portals that may hold identifiers.
    static HOLDERS: Cell<u32> = const { Cell::new(0) };
}

/// How deeply executor runs and utility commands are nested now; 0 outside of any.
pub(crate) fn depth() -> u32 {
    DEPTH.get()
}

/// Whether nothing is left that could hold an identifier of the statement: no run, no command, no
/// holder.
pub(crate) fn is_statement_over() -> bool {
    DEPTH.get() == 0 && HOLDERS.get() == 0
}

/// Whether the executor runs a query.
pub(crate) fn is_query_running() -> bool {
    RUNS.get() > 0
}

/// Counts one more executor state or portal that may hold identifiers, and announces in shared
/// memory that this backend may hold some.
pub(crate) fn add_holder() {
    shared_memory::announce_busy();
    HOLDERS.set(HOLDERS.get() + 1);
}

/// Counts one executor state or portal less.
pub(crate) fn remove_holder() {
    HOLDERS.set(HOLDERS.get().saturating_sub(1));
}

/// One level of nesting, left when this is dropped, however the work ends.
struct Level(&'static LocalKey<Cell<u32>>);

impl Level {
    /// Counts one more level of nesting in `counter`, until the result is dropped, and announces in
    /// shared memory that this backend may hold identifiers, so that no sweep frees their values.
    /// The announcement is not taken back by the drop, but when the statement is over.
    fn enter(counter: &'static LocalKey<Cell<u32>>) -> Self {
        shared_memory::announce_busy();
        counter.set(counter.get() + 1);
        Self(counter)
    }
}

impl Drop for Level {
    /// Counts one level of nesting less.
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// A utility command that runs, until this is dropped.
pub(crate) struct Command {
    _level: Level,
}

impl Command {
    /// Counts a utility command as running, until the result is dropped. Announces in shared memory
    /// that this backend may hold identifiers.
    pub(crate) fn enter() -> Self {
        Self {
            _level: Level::enter(&DEPTH),
        }
    }
}

/// A run of the executor, until this is dropped.
pub(crate) struct Run {
    _levels: (Level, Level),
}

impl Run {
    /// Counts an executor run as running, until the result is dropped. Announces in shared memory
    /// that this backend may hold identifiers.
    pub(crate) fn enter() -> Self {
        Self {
            _levels: (Level::enter(&DEPTH), Level::enter(&RUNS)),
        }
    }
}
