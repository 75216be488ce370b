//! The operations of an open server. Each is decided, recorded in the audit log and committed.
//!
//! Invariants:
//! - V1: For every request, the client is looked up in the store by the public key of its
//!   certificate. The certificate must be the one that the store names, and its name must be the
//!   client's.
//! - V2: An operation that changes records or delivers something is committed together with its row
//!   of the audit log. The commit carries guards for every record on which the decision depends; if
//!   one of them has changed, the operation is decided again.
//! - V3: A node gets the same answer for a key that does not exist and for a key that is not
//!   granted to it.
//! - V4: Denials are recorded. When there are too many, they are counted and the count is recorded
//!   (`denials.rs`).
//!
//! From the bottom up: `state` (the store, the keys and the ledger of an open server), `identify`
//! (the client behind a certificate), `operation` (how an operation is decided and committed), and
//! the operations themselves.
//!
//! Must not: know HTTP; exist while the server is sealed.

mod archive;
mod audit_log;
mod break_glass;
mod checks;
mod clients;
mod denials;
mod destroy;
mod enrolment;
mod escrow;
mod expiry;
mod fleet;
mod fleet_cache;
mod identify;
mod initial_records;
mod key_access;
mod key_info;
mod keys;
mod objects;
mod operation;
mod peer;
mod quotas;
mod renewal;
mod space;
mod space_info;
mod state;
mod tokens;

pub use archive::{Archived, archive_row_detail};
pub use checks::check_name;
pub use clients::{GrantInfo, NodeInfo};
pub use destroy::{Need, Needs};
pub use enrolment::Enrolled;
pub use escrow::{HEADER_MAX, StoredHeader};
pub use expiry::ClientExpiry;
pub use identify::Client;
pub use initial_records::write_initial_records;
pub use key_info::{DestroyRequestInfo, KeyInfo, VersionInfo};
pub use keys::Delivered;
pub use objects::ObjectInfo;
pub use peer::{EnrolmentFlag, Peer};
pub use space_info::SpaceInfo;
pub use state::Service;
pub use tokens::{NewToken, TokenInfo};
