//! A blocking client of PostgreSQL's physical replication protocol, for PostgreSQL 15 to 18: base
//! backups and the write-ahead log as a stream. Begin with a [`Config`], read from a connection
//! string, and [`Connection::open`]. docs/internals/postgres-wire.md lists the invariants Q1 to
//! Q10, docs/internals/replication.md Q11 to Q16; each file names those that it keeps.
//!
//! Must not: write a file, interpret a tar archive or a record of the log, retry after an error, or
//! start a thread. It reads only the files that a connection string names.
#![forbid(unsafe_code)]

mod backup;
mod command;
mod connection;
mod lsn;
mod stream;

pub use backup::{
    BackupEnd, BackupEvent, BackupOptions, BaseBackup, Checkpoint, ManifestChecksums, Tablespace,
};
pub use command::{Identity, NewSlot, Slot, TimelineHistory};
pub use connection::{Connection, Interrupter, Notice};
pub use lsn::{Lsn, ParseLsnError};
pub use stream::{NextTimeline, Positions, Started, WalEvent, WalStream};
pub use strongroom_postgres_wire::client::{
    AuthenticationError, ChannelBindingMode, Config, Error, Result, ServerError, SslMode,
};
