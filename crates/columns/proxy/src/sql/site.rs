//! Places of a statement that may have to be changed: constants, parameters, casts.
//!
//! Must not: decide whether a place is confidential.

use strongroom_format::columns::Kind;

use super::comparable::ComparableColumn;
use super::functions::Structure;
use super::literal::{Form, Literal};

/// The kind of a site.
#[derive(Clone, Debug)]
pub(crate) enum SiteKind {
    Constant(Literal),
    /// A parameter of the client.
    Parameter(i32),
    /// A cast of an expression that is not a constant, and the form of one to the confidential
    /// type; `None` if no confidential type corresponds to that of the cast.
    Cast(Option<Form>),
    /// A column of a recursive query, before its type is known. It has no place in the text.
    RecursiveColumn,
}

/// A place in the statement that may have to be changed.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) kind: SiteKind,
    /// Set when it belongs to a confidential expression.
    pub(crate) form: Option<Form>,
    /// Kind of the value that it is combined with.
    pub(crate) beside: Option<Kind>,
    /// For a parameter that is structure and not data, the form that its value has to have.
    pub(crate) structure: Option<Structure>,
    /// The comparable column that it is stored in.
    pub(crate) destination: Destination,
}

/// A constant that stands in a definition as an envelope.
#[derive(Clone, Debug)]
pub(crate) struct KeptConstant {
    /// What stands in the text in the envelope's place, without quotes.
    pub(crate) placeholder: String,
    /// The kind that it is sealed as.
    pub(crate) kind: Kind,
    pub(crate) literal: Literal,
    /// The comparable column whose default it is, or a part of it.
    pub(crate) column: Option<ComparableColumn>,
}

/// The comparable column that a constant or parameter is stored in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Destination {
    /// None.
    #[default]
    Nowhere,
    /// This one.
    Column(ComparableColumn),
    /// Several: it cannot be sealed for all of them.
    Several,
}

impl Destination {
    /// Adds a column that the constant or parameter is stored in too.
    pub(crate) fn add(&mut self, column: ComparableColumn) {
        *self = match self {
            Self::Nowhere => Self::Column(column),
            Self::Column(known) if *known == column => *self,
            _ => Self::Several,
        };
    }

    /// Returns the column that it is sealed for; `None` if it is stored in no comparable column, or
    /// in several.
    pub(crate) const fn column(self) -> Option<ComparableColumn> {
        match self {
            Self::Column(column) => Some(column),
            Self::Nowhere | Self::Several => None,
        }
    }
}
