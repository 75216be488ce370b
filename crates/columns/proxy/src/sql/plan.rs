//! The plan of one statement: its text, its constants, its effects.
//!
//! Must not: hold a parse tree.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use strongroom_format::columns::Kind;

use super::catalog::Catalog;
use super::copy_options::CopyOptions;
use super::functions::Structure;
use super::literal::Literal;

/// A constant that is sent as a parameter.
#[derive(Clone, Debug)]
pub(crate) struct Constant {
    /// Number of its parameter.
    pub(crate) number: i32,
    pub(crate) literal: Literal,
}

/// The effects of a statement besides its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    /// It may change which columns there are.
    pub(crate) defines: bool,
    /// It removes prepared statements.
    pub(crate) deallocates: bool,
    /// Its result's columns may differ from one execution to the next (FETCH, EXECUTE).
    pub(crate) utility: bool,
}

/// A COPY between the client and a table or query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    pub(crate) from: bool,
    /// Kinds of the columns, in the order of the stream; `None` when the query's columns are not
    /// known.
    pub(crate) columns: Option<Vec<Option<Kind>>>,
    pub(crate) options: CopyOptions,
}

/// One statement in the form in which it is to be sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// The text.
    pub(crate) sql: String,
    /// Whether the text is not the client's.
    pub(crate) changed: bool,
    pub(crate) constants: Vec<Constant>,
    /// The client's parameters that belong to confidential expressions.
    pub(crate) confidential: BTreeSet<i32>,
    /// The client's parameters that are structure and not data, beside confidential values: they
    /// are sent in clear after a check.
    pub(crate) structural: BTreeMap<i32, Structure>,
    /// The highest number of the client's parameters in the text.
    pub(crate) parameters: i32,
    pub(crate) effects: Effects,
    pub(crate) copy: Option<Copy>,
    /// EXECUTE with constants: the name of the statement.
    pub(crate) executes: Option<String>,
    /// Names of relations that the catalog does not know.
    pub(crate) unknown: Vec<String>,
    /// The catalog after this statement and those before it, if they change it.
    pub(crate) defined: Option<Arc<Catalog>>,
}
