//! Texts that are sent although the proxy does not read their constants: of which query their rows
//! are.
//!
//! Must not: look for names of what is confidential.

use pg_query::ParserOptions;
use pg_query::protobuf::Node;

use super::STATEMENT_MAX;
use super::catalog::Catalog;
use super::plan::{Copies, NamedUse};
use super::utility;

/// Returns what a text does with a query that has a name, if it is one statement, and what it
/// copies. `None` if of which query its rows are is not known: FETCH or EXECUTE together with other
/// statements. In a database without confidential types nothing is known of any text.
pub(super) fn uses(sql: &str, catalog: &Catalog) -> Option<(Option<NamedUse>, Copies)> {
    if !catalog.is_confidential() {
        return Some((None, Copies::Anything));
    }
    let parsed = Some(sql).filter(|sql| sql.len() <= STATEMENT_MAX);
    let parsed = parsed.and_then(|sql| pg_query::parse(sql, ParserOptions::default()).ok());
    let Some(parsed) = parsed else {
        let has = |wanted: &str| words(sql).any(|word| word.eq_ignore_ascii_case(wanted));
        let copies = if has("copy") {
            Copies::Anything
        } else {
            Copies::Nothing
        };
        return (!has("fetch") && !has("execute")).then_some((None, copies));
    };
    let nodes = parsed.protobuf.stmts.into_iter();
    let nodes: Vec<Node> = nodes.filter_map(|raw| raw.stmt.map(|node| *node)).collect();
    let copies = nodes.iter().map(|node| utility::effects(node).copies);
    let copies = copies.fold(Copies::Nothing, Copies::and);
    match nodes.as_slice() {
        [only] => Some((utility::named_use(only), copies)),
        all => {
            let runs = |node: &Node| matches!(utility::named_use(node), Some(NamedUse::Runs(_)));
            (!all.iter().any(runs)).then_some((None, copies))
        }
    }
}

/// Returns the runs of letters in a text.
fn words(sql: &str) -> impl Iterator<Item = &str> {
    sql.split(|c: char| !c.is_alphabetic())
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::plan::QueryName;

    #[test]
    fn a_fetch_is_known_as_one() {
        let catalog = crate::sql::tests::catalog(&["p(id, name text)"]);
        let of = |text: &str| uses(text, &catalog);
        let cursor = NamedUse::Runs(QueryName::Cursor("c".to_owned()));
        assert_eq!(of("FETCH 1 FROM c"), Some((Some(cursor), Copies::Nothing)));
        assert_eq!(of("SELECT 1; FETCH 1 FROM c"), None);
        assert_eq!(of("FETCH 1 FROM c; SELECT 'a\\'b'"), None);
        assert_eq!(of("SELECT 'a\\'b'"), Some((None, Copies::Nothing)));
        assert_eq!(of("COPY t FROM STDIN"), Some((None, Copies::FromClient)));
        assert_eq!(
            of("COPY t TO STDOUT NULL 'a\\'b'"),
            Some((None, Copies::Anything))
        );
    }
}
