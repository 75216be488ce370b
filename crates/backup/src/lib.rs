//! Backups: media, sets, and the log archive. The library of `strongroom backup`. The bytes are
//! those of docs/spec/backup.md.
//!
//! A [`Source`] writes a stream of members ([`stream`]); the stream is cut into pieces that are
//! compressed and sealed by several threads ([`pipeline`]) and become the families of a set; its
//! head is written last ([`medium`], [`head`]).
//! docs/internals/backup.md lists the invariants B1 to B27; each file names those that it keeps.
//!
//! Must not: name a cryptographic primitive, print, read the environment, or take a secret other
//! than an opener or the source of one.
#![forbid(unsafe_code)]

mod chain;
mod clock;
mod combine;
mod continuity;
mod create;
mod delta;
mod directory_lock;
pub mod drill;
mod expire;
mod family;
mod fetch_command;
mod files;
mod first_page;
mod head;
pub mod history;
mod io_error;
mod leftovers;
mod log_names;
mod manifest;
mod medium;
mod medium_head;
mod medium_name;
mod medium_rules;
pub mod metrics;
mod mounts;
#[cfg(feature = "object-store")]
mod object;
mod opener_names;
mod options;
mod partial_segment;
mod pipeline;
mod read;
mod receive;
mod recovery;
mod removal;
mod replay;
mod restore;
mod restore_options;
mod restore_paths;
mod rewrap;
mod rewrap_medium;
mod sealing;
mod segment;
mod server_log;
mod set;
mod set_heads;
mod set_openers;
mod signature;
mod signing_keys;
mod single_family;
mod source;
mod store;
mod stream;
mod target_medium;
mod timeline_history;
mod verify;
mod wal;
mod writeback;

pub use chain::{Base, Chain, open_base, open_chain, restore_newest};
pub use continuity::{LogCheck, check_log};
pub use create::{create, create_on};
pub use expire::{Expired, expire};
pub use fetch_command::{FetchCommand, settings_of_recovery};
pub use head::{Description, FamilyEnd, Kind, PostgresFacts, SqliteFacts, TablespaceFacts};
pub use medium::{ListedSet, Listing, Unreadable, list, listed};
pub use medium_head::{MediumHead, Protection};
pub use medium_name::is_url;
#[cfg(feature = "object-store")]
pub use object::ObjectMedium;
pub use opener_names::opener_names;
pub use options::{Compression, CreateOptions, Mode};
pub use partial_segment::{Partial, wal_partial};
pub use read::{SetReader, Verified, open_set, verify};
pub use receive::{ReceiveOptions, Received, wal_receive};
pub use recovery::RecoveryTarget;
pub use replay::{ArchivedLog, Replayed};
pub use restore::{Restored, restore};
pub use restore_options::{Delta, Kept, Owners, RestoreOptions};
pub use rewrap::{Others, rewrap_archive, rewrap_set};
pub use rewrap_medium::{RewrappedMedium, rewrap_medium};
pub use sealing::{Becomes, SealedFile, Sealing};
pub use server_log::{LogSealing, ServerFile, read_to_archive};
pub use set::Cipher;
pub use set_openers::{fetch_opener, set_recipients, with_kept_key, with_key};
pub use signing_keys::{check_signers, read_public_key, read_signing_key};
pub use source::{
    DirectorySource, LocalSource, PostgresSource, Source, SqliteSource, is_connection,
    refuse_within,
};
pub use store::{LocalStore, Store, Upload, Version};
pub use stream::writer::StreamWriter;
pub use strongroom_keyring::Error;
pub use target_medium::Created;
pub use verify::{verified_by_restore, verify_chain};
pub use wal::{wal_fetch, wal_push};

/// The result of this library's functions; its error has a stable code.
pub type Result<T> = std::result::Result<T, Error>;
