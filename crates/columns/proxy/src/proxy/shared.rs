//! What all connections of a proxy share.
//!
//! Must not: change with a connection, but for the counters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use super::stream::Address;
use super::tls::Tls;
use super::zone_session::TicketTerms;
use crate::keys::ColumnKeys;
use crate::relations::KnownRelations;
use crate::sql::comparable::{ColumnPath, FormerName};
use crate::sql::pins::PinnedColumn;

/// What the proxy does with a constant that is compared or combined with a confidential value where
/// the server expects a plain one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaintextConstants {
    /// An error that names it.
    Refuse,
    /// It is sent in clear.
    Allow,
}

/// What all connections share.
pub(crate) struct Shared {
    pub(super) server: Address,
    pub(super) tls: Tls,
    pub(super) keys: Arc<ColumnKeys>,
    pub(super) terms: Option<TicketTerms>,
    pub(super) plaintext_constants: PlaintextConstants,
    pub(super) pinned: Vec<PinnedColumn>,
    pub(super) adopted: BTreeMap<ColumnPath, FormerName>,
    pub(super) adopted_databases: BTreeMap<String, String>,
    pub(super) relations: Arc<KnownRelations>,
    /// Raised when a connection has changed which columns there are.
    pub(super) epoch: AtomicU64,
    pub(super) connections: AtomicUsize,
    /// How many connections above the greatest number are being asked what they want.
    pub(super) surplus: AtomicUsize,
    pub(super) connections_max: usize,
}
