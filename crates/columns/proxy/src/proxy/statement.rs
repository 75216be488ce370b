//! What the proxy knows of a prepared statement.
//!
//! Must not: hold a value.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::copy::Transform;
use super::session::{Completed, DescriptionSlot};
use crate::sql::catalog::Catalog;
use crate::sql::changes::Changes;
use crate::sql::{
    ComparableColumn, Constant, Copy, Effects, ExpectedColumns, NamedUse, QueryName, Structure,
};

/// A prepared statement.
#[derive(Clone)]
pub(super) struct Statement {
    /// How many were prepared when it was.
    pub(super) number: u64,
    pub(super) slot: DescriptionSlot,
    /// Set when the client is told that it is made.
    pub(super) is_made: Completed,
    pub(super) constants: Vec<Constant>,
    pub(super) confidential: BTreeSet<i32>,
    /// Parameters that are stored in a comparable column.
    pub(super) stored: BTreeMap<i32, ComparableColumn>,
    /// Parameters that are structure and not data.
    pub(super) structural: BTreeMap<i32, Structure>,
    /// The client's text; empty when the statement was made by SQL.
    pub(super) text: Vec<u8>,
    pub(super) planned: Arc<Mutex<Planned>>,
    /// Types that the client declared.
    pub(super) declared: Vec<u32>,
    /// Types that the server was told instead, in the same order.
    pub(super) types: Vec<u32>,
    /// How many parameters are the client's own.
    pub(super) shown: usize,
    pub(super) effects: Effects,
    /// Relations that it may make, change or drop.
    pub(super) changes: Arc<Changes>,
    pub(super) named: Option<NamedUse>,
    pub(super) copy: Option<Arc<Transform>>,
    /// The COPY that it is, as the catalog had its columns when it was planned.
    pub(super) copied: Option<Copy>,
}

/// What the last planning of a statement said of it that a later one may change.
pub(super) struct Planned {
    /// The catalog that it was planned with.
    pub(super) catalog: Arc<Catalog>,
    /// What the columns of its result are to be.
    pub(super) expected: ExpectedColumns,
}

impl Planned {
    /// What a statement begins with.
    pub(super) fn of(catalog: Arc<Catalog>, expected: ExpectedColumns) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { catalog, expected }))
    }
}

impl Statement {
    /// Returns the statement of this name that the client made by SQL: of its parameters nothing is
    /// known.
    pub(super) fn of_sql(
        name: &[u8],
        (number, slot): (u64, DescriptionSlot),
        catalog: Arc<Catalog>,
    ) -> Self {
        let name = String::from_utf8_lossy(name).into_owned();
        Self {
            number,
            slot,
            is_made: Completed::default(),
            constants: Vec::new(),
            confidential: BTreeSet::new(),
            stored: BTreeMap::new(),
            structural: BTreeMap::new(),
            text: Vec::new(),
            planned: Planned::of(catalog, ExpectedColumns::default()),
            declared: Vec::new(),
            types: Vec::new(),
            shown: usize::MAX,
            effects: Effects {
                utility: true,
                ..Effects::default()
            },
            changes: Arc::default(),
            named: Some(NamedUse::Runs(QueryName::Prepared(name))),
            copy: None,
            copied: None,
        }
    }

    /// Returns the same statement with another slot for the server's description of it.
    pub(super) fn with_slot(&self, slot: DescriptionSlot) -> Self {
        Self {
            slot,
            ..self.clone()
        }
    }

    /// Returns whether the server has not described it: it has not made it, or the client was told
    /// that it has ([`Self::is_made`]), and the proxy was not told what it is.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.slot.get(), Some(None))
    }

    /// Returns whether the client was told that it is made.
    pub(super) fn is_made(&self) -> bool {
        self.is_made.load(Ordering::Acquire)
    }

    /// Returns what the last planning said.
    pub(super) fn planned(&self) -> MutexGuard<'_, Planned> {
        self.planned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
