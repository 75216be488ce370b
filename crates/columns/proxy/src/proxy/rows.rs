//! What the rows of an execution have to be: their columns as the server has described them, as the
//! client was told, and as the statement says.
//!
//! Must not: open a value.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::convert::{ResultColumn, format_at};
use super::messages::unexpected;
use super::session::{Columns, Description, PendingAnswer, State};
use super::settings::Settings;
use crate::results::Results;
use crate::sql::catalog::{Catalog, EncType};
use crate::sql::refusal::Refusal;
use crate::sql::{ExpectedColumn, ExpectedColumns};

/// What is known of the rows of one execution.
pub(super) struct Rows {
    pub(super) columns: Vec<ResultColumn>,
    pub(super) settings: Settings,
    pub(super) results: Arc<Results>,
    /// What the columns are to be, by the names of the catalog.
    pub(super) expected: ExpectedColumns,
    pub(super) catalog: Arc<Catalog>,
}

/// Checks that the columns that are certainly confidential are so for the server, too. Fails
/// with SR-8108 otherwise: it would make their values up; also if it gives them the names of
/// others, by which applications read them; with SR-8105 if it has described fewer columns.
pub(super) fn check_columns(
    columns: &[ResultColumn],
    expected: &ExpectedColumns,
) -> Result<(), Refusal> {
    let is_certain = |expected: &ExpectedColumn| expected.origins.is_some();
    let certain = expected.iter().rposition(is_certain);
    if certain.is_some_and(|certain| certain >= columns.len()) {
        return Err(unexpected());
    }
    let both = columns.iter().zip(expected.iter()).enumerate();
    for (at, (column, expected)) in both.filter(|(_, (_, expected))| is_certain(expected)) {
        let is_of_type = |enc: EncType| {
            expected
                .kind
                .is_none_or(|kind| kind == enc.kind && !enc.array)
        };
        if !column.enc.is_some_and(is_of_type) {
            return Err(Refusal::plain_result(at.saturating_add(1)));
        }
    }
    check_names(columns.iter().map(|column| &*column.name), expected)
}

/// Checks the names of a result's columns, by which applications read them. Fails with SR-8108
/// where a column that is certainly confidential has another name, or a column has the name of such
/// a one that has another name by the statement, or that the statement does not have. In other
/// encodings names outside ASCII have other bytes: they are not compared.
pub(super) fn check_names<'n>(
    names: impl Iterator<Item = &'n [u8]>,
    expected: &ExpectedColumns,
) -> Result<(), Refusal> {
    let label = |column: &ExpectedColumn| {
        let label = column.label.clone();
        label.filter(|label| label.is_ascii())
    };
    let confidential = expected.iter().filter(|column| column.origins.is_some());
    let labels: BTreeSet<String> = confidential.filter_map(label).collect();
    for (at, name) in names.enumerate() {
        let of = expected.get(at);
        let is_certain = of.is_some_and(|column| column.origins.is_some());
        let is_taken = || labels.iter().any(|label| label.as_bytes() == name);
        let is_other = match of.map(label) {
            Some(Some(label)) => label.as_bytes() != name && (is_certain || is_taken()),
            Some(None) => false,
            None => is_taken(),
        };
        if is_other {
            return Err(Refusal::other_name(at.saturating_add(1)));
        }
    }
    Ok(())
}

/// Returns whether the client is told of the same columns as the proxy was, when it asked for them
/// itself: rows are opened as the proxy was told, and read as the client was. Formats are those of
/// Bind. Names outside ASCII are not compared: they are in the client's encoding, which it may have
/// changed. Of a portal that is described for the first time nothing else is known, and what it is
/// described with is kept: it may be the client or the proxy that asks first.
pub(super) fn is_as_known(known: Option<&Columns>, columns: &[ResultColumn]) -> bool {
    let Some(Columns::Statement(slot, formats)) = known else {
        return true;
    };
    let first = || Description {
        parameters: Vec::new(),
        columns: columns.to_vec(),
    };
    let Some(description) = slot.get_or_init(|| Some(first())) else {
        return true;
    };
    let is_same = |(at, (one, other)): (usize, (&ResultColumn, &ResultColumn))| {
        let format = format_at(formats, at);
        let is_named_so = one.name == other.name || !(one.name.is_ascii() || other.name.is_ascii());
        is_named_so && one.oid == other.oid && other.format == format
    };
    let both = description.columns.iter().zip(columns);
    description.columns.len() == columns.len() && both.enumerate().all(is_same)
}

/// Returns whether the client is told of the same types of parameters as the proxy was: values are
/// sealed as the proxy was told, and written as the client was.
pub(super) fn has_parameters(known: Option<&Columns>, oids: &[u32]) -> bool {
    let Some(Columns::Statement(slot, _)) = known else {
        return true;
    };
    let told = slot.get().and_then(Option::as_ref);
    told.is_none_or(|told| told.parameters == oids)
}

/// Returns what the columns of the rows are to be that the server sends now.
pub(super) fn expected_columns(state: &State) -> ExpectedColumns {
    match state.pending_answers.front() {
        Some(PendingAnswer::Execute { expected, .. }) => Arc::clone(expected),
        Some(PendingAnswer::Query { expected, .. }) => {
            let statement = expected.front();
            statement.map_or_else(ExpectedColumns::default, |statement| {
                Arc::clone(&statement.columns)
            })
        }
        _ => ExpectedColumns::default(),
    }
}

#[cfg(test)]
mod tests {
    use strongroom_format::columns::Kind;

    use super::*;
    use crate::sql::Origins;

    /// An array may be empty, with nothing sealed in it, or have several of a column's values.
    #[test]
    fn a_value_of_a_column_is_no_array_and_of_no_other_kind() {
        let made = |made| Origins::Of {
            columns: Vec::new(),
            made,
        };
        let column = |kind, array| ResultColumn {
            enc: Some(EncType { kind, array }),
            format: 0,
            oid: 0,
            name: Arc::default(),
        };
        let is_taken = |columns: &[ResultColumn], kind, origins| {
            let expected = ExpectedColumn {
                origins: Some(origins),
                kind,
                label: None,
            };
            check_columns(columns, &[expected].into()).is_ok()
        };
        let int4 = Some(Kind::Int4);
        assert!(is_taken(&[column(Kind::Int4, false)], int4, made(false)));
        for other in [column(Kind::Int4, true), column(Kind::Int8, false)] {
            assert!(!is_taken(std::slice::from_ref(&other), int4, made(false)));
            assert!(is_taken(&[other], None, made(true)));
        }
    }
}
