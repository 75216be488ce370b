//! A program that a ring has sent, and what it has come to.
//!
//! Must not: carry it out.

use strongroom_columns_ring::program::{Program, Sort};

use super::groups::Groups;
use crate::arena::ScopeId;

/// A program of a statement, and the groups of the rows that it has had.
pub(super) struct Running {
    pub(super) program: Program,
    /// Of all registers, inputs first.
    pub(super) sorts: Vec<Sort>,
    pub(super) groups: Groups,
    /// Of each aggregate, the keys that its values were made from. `None` without a value.
    pub(super) scopes: Vec<Option<ScopeId>>,
    /// Of each key that is computed, likewise.
    pub(super) key_scopes: Vec<Option<ScopeId>>,
}
