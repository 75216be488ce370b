//! Texts that are sent although the proxy does not read their constants: whether they are
//! statements at all, and of which query their rows are.
//!
//! Must not: look for names of what is confidential.

use pg_query::ParserOptions;
use pg_query::protobuf::Node;

use super::STATEMENT_MAX;
use super::catalog::Catalog;
use super::plan::NamedUse;
use super::utility;

/// The words with which PostgreSQL's statements begin (src/backend/parser/gram.y).
const BEGINNINGS: &[&str] = &[
    "abort",
    "alter",
    "analyse",
    "analyze",
    "begin",
    "call",
    "checkpoint",
    "close",
    "cluster",
    "comment",
    "commit",
    "copy",
    "create",
    "deallocate",
    "declare",
    "delete",
    "discard",
    "do",
    "drop",
    "end",
    "execute",
    "explain",
    "fetch",
    "grant",
    "import",
    "insert",
    "listen",
    "load",
    "lock",
    "merge",
    "move",
    "notify",
    "prepare",
    "reassign",
    "refresh",
    "reindex",
    "release",
    "reset",
    "revoke",
    "rollback",
    "savepoint",
    "security",
    "select",
    "set",
    "show",
    "start",
    "table",
    "truncate",
    "unlisten",
    "update",
    "vacuum",
    "values",
    "with",
];

/// Returns what a text does with a query that has a name, if it is one statement. `None` if it does
/// not begin as a statement does, as the lines of a COPY that has failed, or if of which query its
/// rows are is not known: FETCH or EXECUTE together with other statements. In a database without
/// confidential types nothing is known of any text.
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
        return (!runs && begins_as_statement(sql)).then_some(None);
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

/// Returns whether the first word of a text, behind white space, comments and parentheses, is one
/// with which a statement begins. A text of comments alone is no statement, and passes.
fn begins_as_statement(sql: &str) -> bool {
    let mut rest = sql;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '(' || c == ';');
        if rest.starts_with("--") {
            rest = rest.split_once('\n').map_or("", |(_, after)| after);
        } else if let Some(inside) = rest.strip_prefix("/*") {
            let mut depth = 1_u32;
            let mut after = inside;
            while depth > 0 && !after.is_empty() {
                if let Some(next) = after.strip_prefix("*/") {
                    depth = depth.saturating_sub(1);
                    after = next;
                } else if let Some(next) = after.strip_prefix("/*") {
                    depth = depth.saturating_add(1);
                    after = next;
                } else {
                    let mut chars = after.chars();
                    chars.next();
                    after = chars.as_str();
                }
            }
            rest = after;
        } else {
            break;
        }
    }
    let end = rest.find(|c: char| !c.is_ascii_alphabetic());
    let word = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
    rest.is_empty()
        || BEGINNINGS
            .iter()
            .any(|known| word.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::plan::QueryName;

    #[test]
    fn lines_of_data_are_no_statement() {
        for text in [
            "1\tAlice\n\\.\nSELECT setval('q', 1)",
            "Alice,1;",
            "\\N\t5",
            "/* c */ -- d\n 5 SELECT",
            "selected 1",
        ] {
            assert!(!begins_as_statement(text), "{text}");
        }
        for text in [
            "SELECT 1 ==",
            " -- a comment\n /* another /* one */ */ ((select 1)",
            "",
            "-- nothing",
            "WITH\tx",
        ] {
            assert!(begins_as_statement(text), "{text}");
        }
    }

    #[test]
    fn a_fetch_is_known_as_one() {
        let catalog = crate::sql::tests::catalog(&["p(id, name text)"]);
        let of = |text: &str| named_use(text, &catalog);
        let cursor = NamedUse::Runs(QueryName::Cursor("c".to_owned()));
        assert_eq!(of("FETCH 1 FROM c"), Some(Some(cursor)));
        assert_eq!(of("SELECT 1; FETCH 1 FROM c"), None);
        assert_eq!(of("FETCH 1 FROM c; SELECT 'a\\'b'"), None);
        assert_eq!(of("SELECT 'a\\'b'"), Some(None));
        assert_eq!(of("1 Alice"), None);
    }
}
