//! `strongroom_columns`, the PostgreSQL extension of confidential columns.
//!
//! PostgreSQL stores and moves identifiers of eight bytes; this library has the zone, a process of
//! its own, compute on the values that they identify. The contract is docs/internals/columns.md,
//! whose X1 to X6 are this library's. The library must be named in `shared_preload_libraries`;
//! otherwise its checks of definitions would be missing in sessions that have not called it yet.
//!
//! | module | what it does |
//! |---|---|
//! | `catalog` | finds confidential types; checks definitions |
//! | `functions` | the functions of SQL: input, output, comparison, computing, aggregates |
//! | `planning` | selectivity and ANALYZE |
//! | `batches` | nodes of plans that ask the zone about many rows at once |
//! | `execution` | when a statement is over; seals rows for the client |
//! | `scanning` | asks the zone about many rows of a scan at once; keeps its answers |
//! | `storage` | table access method, promotion, partitions, sweeps |
//! | `ring` | the connection to the zone, shared memory, replay of the write-ahead log |
//! | `call`, `fault`, `interrupts`, `settings` | what PostgreSQL requires for each of these |
//!
//! Must not: see a value; let a panic or a fault of the zone become more than an ERROR.

mod batches;
mod call;
mod catalog;
mod execution;
mod fault;
mod functions;
mod interrupts;
mod planning;
mod ring;
mod scanning;
mod settings;
mod storage;

use catalog::{definitions, types};
use execution::statement;
use pgrx::pg_sys;
use planning::indexes;
use ring::{log_follower, server_generation, shared_memory};
use storage::{sweep_workers, transaction_end};

pgrx::pg_magic_func!();

/// PostgreSQL calls this once, when it loads the library: defines settings, and installs hooks and
/// background workers. Raises an ERROR unless the library is being preloaded
/// (`shared_preload_libraries`).
#[unsafe(no_mangle)]
pub extern "C-unwind" fn _PG_init() {
    call::guarded(|| {
        // SAFETY: reads a flag of the server.
        if !unsafe { pg_sys::process_shared_preload_libraries_in_progress } {
            fault::Report::new(
                "55000",
                "strongroom_columns must be loaded when the server starts",
            )
            .hint(
                "Add strongroom_columns to shared_preload_libraries in postgresql.conf and \
                 restart the server.",
            )
            .raise();
        }
        settings::define();
        shared_memory::install();
        server_generation::install();
        types::install();
        statement::install();
        transaction_end::install();
        definitions::install();
        indexes::install();
        batches::install();
        log_follower::register();
        sweep_workers::register();
    });
}
