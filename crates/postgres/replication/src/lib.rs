//! A blocking client of PostgreSQL's physical replication protocol, for PostgreSQL 15 to 18: base
//! backups and the write-ahead log as a stream. Begin with a [`Config`], read from a connection
//! string, and [`Connection::open`]. docs/internals/replication.md lists the invariants Q1 to Q16;
//! each file names those that it keeps.
//!
//! Must not: write a file, interpret a tar archive or a record of the log, retry after an error, or
//! start a thread. It reads only the files that a connection string names.
#![forbid(unsafe_code)]

mod auth;
mod backup;
mod command;
mod config;
mod connection;
mod der;
mod error;
mod lsn;
mod passfile;
mod reply;
mod secret;
mod stream;
mod text;
mod tls;
mod transport;
mod trust;
mod wire;

pub use backup::{
    BackupEnd, BackupEvent, BackupOptions, BaseBackup, Checkpoint, ManifestChecksums, Tablespace,
};
pub use command::{Identity, NewSlot, Slot, TimelineHistory};
pub use config::{ChannelBindingMode, Config, SslMode};
pub use connection::{Connection, Interrupter, Notice};
pub use error::{Error, Result, ServerError};
pub use lsn::{Lsn, ParseLsnError};
pub use stream::{NextTimeline, Positions, Started, WalEvent, WalStream};
