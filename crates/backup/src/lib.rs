//! Backup media, sets and archives: what `strongroom backup` does. The bytes are those of docs/spec/backup.md.
//!
//! A [`Source`] writes a stream of members ([`stream`]); the stream is cut into pieces that are compressed and sealed by
//! several threads ([`pipeline`]) and become the families of a set; its head is written last ([`medium`], [`head`]).
//! Invariants B1 to B27 are in docs/internals/backup.md; each file names those that it keeps.
//!
//! Must not: name a cryptographic primitive, print, read the environment, or take a secret that is not an opener.
#![forbid(unsafe_code)]

mod berth;
mod chain;
mod combine;
mod continuity;
mod create;
mod delta;
pub mod drill;
mod expire;
mod family;
mod files;
mod head;
pub mod history;
mod io_error;
mod leftovers;
mod medium;
pub mod metrics;
mod mounts;
#[cfg(feature = "object-store")]
mod object;
mod opener_names;
mod pieces;
mod pipeline;
mod read;
mod receive;
mod recovery;
mod removal;
mod replay;
mod restore;
mod rewrap;
mod sealing;
mod segment;
mod set;
mod signature;
mod source;
mod store;
mod stream;
mod verify;
mod wal;
mod writeback;

pub use chain::{Base, Chain, open_base, open_chain, restore_chain, restore_chain_sealed};
pub use continuity::{LogCheck, check_log};
pub use create::{Compression, CreateOptions, Created, Mode, create, create_on};
pub use delta::Delta;
pub use expire::{Expired, expire};
pub use files::{Kept, Owners};
pub use head::{Description, FamilyEnd, Kind, PostgresFacts, SqliteFacts, TablespaceFacts};
pub use medium::{ListedSet, Listing, MediumHead, Protection, Unreadable, list, listed};
#[cfg(feature = "object-store")]
pub use object::ObjectMedium;
pub use opener_names::opener_names;
pub use pieces::{Partial, wal_partial};
pub use read::{SetReader, Verified, open_set, verify};
pub use receive::{ReceiveOptions, Received, wal_receive};
pub use recovery::{RecoveryTarget, recovery_settings};
pub use replay::{ArchivedLog, Replayed};
pub use restore::{RestoreOptions, Restored, restore};
pub use rewrap::{Others, rewrap_archive, rewrap_set};
pub use sealing::{Becomes, SealedFile, Sealing};
pub use segment::check_archivable;
pub use set::Cipher;
pub use source::{DirectorySource, PostgresSource, Source, SqliteSource};
pub use store::{LocalStore, Store, Upload, Version};
pub use stream::writer::StreamWriter;
pub use strongroom_keyring::Error;
pub use verify::{verified_by_restore, verify_chain};
pub use wal::{begins_segment, wal_fetch, wal_push};

/// Everything here fails with a stable code.
pub type Result<T> = std::result::Result<T, Error>;
