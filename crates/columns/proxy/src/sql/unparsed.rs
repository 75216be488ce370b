//! Texts that are sent although the proxy does not read their constants: of which query their rows
//! are.
//!
//! Must not: look for names of what is confidential.

use pg_query::ParserOptions;
use pg_query::protobuf::Node;

use super::STATEMENT_MAX;
use super::catalog::Catalog;
use super::plan::{Copies, Effects, NamedUse};
use super::utility;

/// What is known of a text whose constants are not read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Uses {
    /// What it does with a query that has a name, if it is one statement.
    pub(super) named: Option<NamedUse>,
    pub(super) copies: Copies,
    /// The effects of its statements; `None` if the parser does not read them.
    pub(super) effects: Option<Effects>,
}

/// Returns what is known of a text. `None` if of which query its rows are is not known: FETCH or
/// EXECUTE together with other statements, or in a text that the parser does not read. In a
/// database without confidential types it may copy anything.
pub(super) fn uses(sql: &str, catalog: &Catalog) -> Option<Uses> {
    if !catalog.is_confidential() {
        return Some(Uses {
            copies: Copies::Anything,
            ..Uses::default()
        });
    }
    let nodes = statements(sql);
    let all = nodes.as_ref().map(|nodes| {
        let effects = nodes.iter().map(utility::effects);
        effects.fold(Effects::default(), Effects::and)
    });
    let has = |wanted: &str| words(sql).any(|word| word.eq_ignore_ascii_case(wanted));
    let copies = match &all {
        Some(effects) => effects.copies,
        None if has("copy") => Copies::Anything,
        None => Copies::Nothing,
    };
    let found = |named| Uses {
        named,
        copies,
        effects: all,
    };
    match nodes.as_deref() {
        Some([only]) => Some(found(utility::named_use(only))),
        Some(nodes) => {
            let runs = |node: &Node| matches!(utility::named_use(node), Some(NamedUse::Runs(_)));
            (!nodes.iter().any(runs)).then(|| found(None))
        }
        None => (!has("fetch") && !has("execute")).then(|| found(None)),
    }
}

/// Returns the statements of a text; `None` if the parser does not read it, or it is too long.
pub(super) fn statements(sql: &str) -> Option<Vec<Node>> {
    let parsed = Some(sql).filter(|sql| sql.len() <= STATEMENT_MAX);
    let parsed = parsed.and_then(|sql| pg_query::parse(sql, ParserOptions::default()).ok());
    let nodes = parsed?.protobuf.stmts.into_iter();
    let nodes = nodes.filter_map(|raw| raw.stmt.map(|node| *node));
    Some(nodes.collect())
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
        let of = |text: &str| uses(text, &catalog).map(|uses| (uses.named, uses.copies));
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
