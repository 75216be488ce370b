//! Freshness: a digest over all pages of a database, kept in its anchors, which reveals a page that
//! was replaced by an older copy. docs/spec/sqlite.md, "Freshness". Only for databases whose header
//! asks for it.
//!
//! Invariants:
//! X1. The contribution of a page to the digest is a MAC over its number and its whole tail, under
//!     its own epoch.
//! X2. The journal's records and the log's frames hold the tail that their page had on the disk
//!     before. So what is played back or copied from the log after a crash starts from the digest
//!     that does not include it.
//! X3. The digest is read from the anchor whenever another connection could have written, and is in
//!     an anchor before SQLite syncs the database.
//! X4. A digest leaves the process only sealed.
//!
//! Must not: decide whether a page is authentic.

mod check;
mod log;
mod settle;
mod sum;
mod tally;

pub use check::Freshness;
pub(crate) use check::judge;
pub(crate) use log::LogTails;
pub use settle::settle;
pub(crate) use sum::DigestSum;
pub(crate) use tally::{Contribution, RunningDigest};
