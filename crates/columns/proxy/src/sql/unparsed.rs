//! Texts that are sent although the proxy does not read their constants: of which query their rows
//! are.
//!
//! Must not: look for names of what is confidential.

use pg_query::ParserOptions;
use pg_query::protobuf::Node;

use super::STATEMENT_MAX;
use super::catalog::Catalog;
use super::plan::NamedUse;
use super::utility;

/// Returns what a text does with a query that has a name, if it is one statement. `None` if of
/// which query its rows are is not known: FETCH or EXECUTE together with other statements. In a
/// database without confidential types nothing is known of any text.
pub(super) fn named_use(sql: &str, catalog: &Catalog) -> Option<Option<NamedUse>> {
    if !catalog.is_confidential() {
        return Some(None);
    }
    let parsed = Some(sql).filter(|sql| sql.len() <= STATEMENT_MAX);
    let parsed = parsed.and_then(|sql| pg_query::parse(sql, ParserOptions::default()).ok());
    let Some(parsed) = parsed else {
        let runs = words(sql).any(|word| {
            ["fetch", "execute"]
                .iter()
                .any(|it| word.eq_ignore_ascii_case(it))
        });
        return (!runs).then_some(None);
    };
    let nodes = parsed.protobuf.stmts.into_iter();
    let nodes: Vec<Node> = nodes.filter_map(|raw| raw.stmt.map(|node| *node)).collect();
    match nodes.as_slice() {
        [only] => Some(utility::named_use(only)),
        all => {
            let runs = |node: &Node| matches!(utility::named_use(node), Some(NamedUse::Runs(_)));
            (!all.iter().any(runs)).then_some(None)
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
        let of = |text: &str| named_use(text, &catalog);
        let cursor = NamedUse::Runs(QueryName::Cursor("c".to_owned()));
        assert_eq!(of("FETCH 1 FROM c"), Some(Some(cursor)));
        assert_eq!(of("SELECT 1; FETCH 1 FROM c"), None);
        assert_eq!(of("FETCH 1 FROM c; SELECT 'a\\'b'"), None);
        assert_eq!(of("SELECT 'a\\'b'"), Some(None));
    }
}
