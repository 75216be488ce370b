//! The plan of one statement: its text, its constants, its effects.
//!
//! Must not: hold a parse tree.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::Node;
use strongroom_format::columns::Kind;

use super::catalog::{Catalog, EncType};
use super::changes::Changes;
use super::comparable::ComparableColumn;
use super::copy_options::CopyOptions;
use super::defining::apply_definition;
use super::flow::{Columns, Flow, Origins};
use super::functions::Structure;
use super::literal::Literal;
use super::plain_definition::apply_plain;
use super::position::Texts;
use super::site::KeptConstant;

/// A constant that is sent as a parameter.
#[derive(Clone, Debug)]
pub(crate) struct Constant {
    /// Number of its parameter.
    pub(crate) number: i32,
    pub(crate) literal: Literal,
    /// The type that the text says it has; `None` where the server finds it out.
    pub(crate) of: Option<EncType>,
    /// The comparable column that it is sealed for.
    pub(crate) column: Option<ComparableColumn>,
}

/// Whether a statement is a COPY between the client and the server, and in which direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Copies {
    #[default]
    Nothing,
    FromClient,
    ToClient,
    /// It may be any, because it is not read.
    Anything,
}

impl Copies {
    /// Returns what two statements together copy.
    pub(super) const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, of) | (of, Self::Nothing) => of,
            (Self::FromClient, Self::FromClient) => Self::FromClient,
            (Self::ToClient, Self::ToClient) => Self::ToClient,
            _ => Self::Anything,
        }
    }
}

/// The effects of a statement besides its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    /// It may change which columns there are.
    pub(crate) defines: bool,
    /// Its result's columns may differ from one execution to the next (FETCH, EXECUTE).
    pub(crate) utility: bool,
    /// Whether it is a COPY.
    pub(crate) copies: Copies,
    /// It ends a transaction and begins another at once.
    pub(crate) chains: bool,
    /// It undoes what statements before it have done: ROLLBACK.
    pub(crate) undoes: bool,
    /// It may undo a part of what the transaction has done, or leave open whether it is carried
    /// out: ROLLBACK TO SAVEPOINT, PREPARE TRANSACTION.
    pub(crate) undoes_part: bool,
    /// It begins a transaction.
    pub(crate) begins: bool,
    /// It ends a transaction and begins no other: COMMIT, ROLLBACK, PREPARE TRANSACTION.
    pub(crate) ends: bool,
    /// It may change the session's time zone.
    pub(crate) sets_zone: bool,
    /// It has to be in a transaction block: LOCK TABLE, and DECLARE without WITH HOLD.
    pub(crate) needs_block: bool,
}

impl Effects {
    /// Returns the effects of a statement of which nothing is known.
    pub(crate) const fn of_anything() -> Self {
        Self {
            defines: true,
            utility: true,
            copies: Copies::Nothing,
            chains: false,
            undoes: false,
            undoes_part: false,
            begins: false,
            ends: false,
            sets_zone: true,
            needs_block: false,
        }
    }

    /// Returns the same with what another one does to transactions.
    pub(super) const fn with_transactions_of(self, other: Self) -> Self {
        Self {
            chains: other.chains,
            undoes: other.undoes,
            undoes_part: other.undoes_part,
            begins: other.begins,
            ends: other.ends,
            ..self
        }
    }

    /// Returns the effects of two statements together.
    pub(super) const fn and(self, other: Self) -> Self {
        Self {
            defines: self.defines || other.defines,
            utility: self.utility || other.utility,
            copies: self.copies.and(other.copies),
            chains: self.chains || other.chains,
            undoes: self.undoes || other.undoes,
            undoes_part: self.undoes_part || other.undoes_part,
            begins: self.begins || other.begins,
            ends: self.ends || other.ends,
            sets_zone: self.sets_zone || other.sets_zone,
            needs_block: self.needs_block || other.needs_block,
        }
    }
}

/// A confidential column of a COPY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyColumn {
    /// Kind of its values.
    pub(crate) kind: Kind,
    /// Set if it is comparable, and values are stored in it.
    pub(crate) comparable: Option<ComparableColumn>,
}

/// A COPY between the client and a table or query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    pub(crate) from: bool,
    /// What is known of the columns, in the order of the stream: `None` for a plain one. `None`
    /// when the query's columns are not known.
    pub(crate) columns: Option<Vec<Option<CopyColumn>>>,
    /// What each of the columns is to be that are sent to the client.
    pub(crate) expected: ExpectedColumns,
    /// Whether it is of a relation that the catalog does not know.
    pub(crate) unknown: bool,
    pub(crate) options: CopyOptions,
}

/// A query that a session knows by a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum QueryName {
    /// A cursor.
    Cursor(String),
    /// A prepared statement, made by SQL or by the driver.
    Prepared(String),
}

/// What a statement does with a query that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NamedUse {
    /// DECLARE or PREPARE. `is_held`: it outlives its transaction, as WITH HOLD says, and as every
    /// prepared statement does.
    Names { name: QueryName, is_held: bool },
    /// FETCH or EXECUTE: the statement's rows are the query's.
    Runs(QueryName),
    /// CLOSE or DEALLOCATE.
    Ends(QueryName),
    /// CLOSE ALL.
    EndsCursors,
    /// DEALLOCATE ALL.
    EndsPrepared,
    /// DISCARD ALL.
    EndsAll,
}

/// What a column of a result is to be, as far as that is certain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExpectedColumn {
    /// Of a column that is certainly confidential: whose values it can have.
    pub(crate) origins: Option<Origins>,
    /// The kind of its values, where these are certainly values of columns.
    pub(crate) kind: Option<Kind>,
    /// Its name.
    pub(crate) label: Option<String>,
}

/// What the columns of a result are to be. Those beyond its end are not known.
pub(crate) type ExpectedColumns = Arc<[ExpectedColumn]>;

/// Returns what the columns are to be: nothing is known where their places are not.
pub(super) fn expected_columns(columns: &Columns) -> ExpectedColumns {
    if columns.open.is_some() || columns.certain.is_some() || columns.places.is_some() {
        return Arc::default();
    }
    let expected = |flow: &Flow| {
        let origins = flow.origins.clone();
        let origins = origins.filter(|_| flow.confidential && flow.kind.is_some());
        let is_kept = matches!(origins, Some(Origins::Of { made: false, .. }));
        ExpectedColumn {
            origins,
            kind: flow.kind.filter(|_| is_kept),
            label: flow.label.clone(),
        }
    };
    columns
        .named
        .iter()
        .map(|(_, flow)| expected(flow))
        .collect()
}

/// One statement in the form in which it is to be sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// The text.
    pub(crate) sql: String,
    /// Whether the text is one statement that the parser has read.
    pub(crate) is_parsed: bool,
    /// Whether the text is not the client's.
    pub(crate) changed: bool,
    /// Where the statement is in the client's text, in bytes.
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) constants: Vec<Constant>,
    /// Constants whose placeholders in the text are to be replaced by envelopes.
    pub(crate) kept: Vec<KeptConstant>,
    /// The client's parameters that belong to confidential expressions.
    pub(crate) confidential: BTreeSet<i32>,
    /// The client's parameters that are stored in a comparable column.
    pub(crate) stored: BTreeMap<i32, ComparableColumn>,
    /// The client's parameters that are structure and not data, beside confidential values: they
    /// are sent in clear after a check.
    pub(crate) structural: BTreeMap<i32, Structure>,
    /// The highest number of the client's parameters in the text.
    pub(crate) parameters: i32,
    pub(crate) effects: Effects,
    pub(crate) copy: Option<Copy>,
    /// What each column of its result is to be, as far as that is known; of a DECLARE or a PREPARE,
    /// each column of the query's rows.
    pub(crate) expected: ExpectedColumns,
    /// What it does with a query that has a name.
    pub(crate) named: Option<NamedUse>,
    /// Whether it has to do with anything confidential, or with something that is not known.
    pub(crate) touched: bool,
    /// Whether it has constants whose place the proxy does not know: nothing that the catalog calls
    /// confidential is named in its text.
    pub(crate) unread: bool,
    /// PREPARE of SQL: the name of the statement.
    pub(crate) prepares: Option<String>,
    /// EXECUTE with constants: the name of the statement.
    pub(crate) executes: Option<String>,
    /// Relations that it may make, change or drop.
    pub(crate) changes: Changes,
    /// Names of relations and types that the catalog does not know.
    pub(crate) unknown: Vec<String>,
    /// Of the last statement of a text: the catalog after all of them, if they change it.
    pub(crate) defined: Option<Arc<Catalog>>,
}

impl Plan {
    /// Returns the statement with the client's text that it was made from, in which an error of the
    /// server's gets its position; `None` if the server reads that text itself.
    pub(crate) fn texts(&self, original: &Arc<str>) -> Option<Arc<Texts>> {
        let is_same = !self.changed && self.sql.len() == original.len();
        let texts = || Texts {
            sent: self.sql.clone(),
            original: Arc::clone(original),
            start: self.start,
            len: self.len,
        };
        (!is_same).then(|| Arc::new(texts()))
    }

    /// Returns the catalog after the statement, where that is another one, and notes whether it has
    /// to be read again.
    pub(super) fn define(
        &mut self,
        catalog: &Catalog,
        node: &Node,
        text: &str,
    ) -> Option<Arc<Catalog>> {
        if self.effects.defines
            && let Some(after) = apply_plain(catalog, node, text, !self.touched)
        {
            self.effects.defines = false;
            self.changes = Changes::default();
            return (after != *catalog).then(|| Arc::new(after));
        }
        let mut after = apply_definition(catalog, node, text, !self.touched)?;
        // A setting defines nothing, so that the server is not asked after it.
        if !matches!(node.node, Some(NodeEnum::VariableSetStmt(_))) {
            after.set_provisional(true);
            self.effects.defines = true;
        }
        Some(Arc::new(after))
    }

    /// Returns whether the statement may be a COPY from the client.
    pub(crate) fn may_copy_from_client(&self) -> bool {
        matches!(self.effects.copies, Copies::FromClient | Copies::Anything)
    }

    /// Returns the plan of a text that is not read, in a database without confidential columns.
    pub(crate) fn of_any() -> Self {
        Self {
            effects: Effects {
                copies: Copies::Anything,
                ..Effects::default()
            },
            ..Self::default()
        }
    }

    /// Returns the plan of a text that the proxy's parser does not read: it is sent as it is, and
    /// may do anything.
    pub(super) fn of_unparsed(text: &str, copies: Copies) -> Self {
        Self {
            sql: text.to_owned(),
            unread: true,
            effects: Effects {
                copies,
                ..Effects::of_anything()
            },
            ..Self::default()
        }
    }
}
