//! PostgreSQL for the benchmark and the tour: data directories, servers and clients of this run,
//! and nothing of anybody else's.
//!
//! Invariants:
//! B3. A sealed and a plain data directory differ in the shield and its two files, and in nothing
//!     else: same programs, same `initdb` options, same settings. A plain server's processes never
//!     have the shield in them; this is looked up, not assumed.
//! B4. Servers listen on Unix sockets in a directory of this run only, are ended by their process
//!     ids, and are gone when the run is over, however it ends.
//!
//! Must not: run PostgreSQL as root (it refuses), or heed the caller's `PG*` variables.

mod account;
mod cluster;
mod server;
mod tools;

pub use account::Account;
pub use cluster::{Cluster, PSQL, Place, feed};
pub use server::Server;
pub use tools::{Tools, failed};
