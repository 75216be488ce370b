//! Text whose meaning the proxy does not know: the bodies of functions and of `DO`, rules, and
//! statements that its parser does not read.
//!
//! Its constants may go to the server in clear when nothing confidential is named in it: neither a
//! relation with confidential columns, nor a function with confidential arguments, nor a type that
//! holds confidential values. All words of the text count as names, those within strings and
//! comments too, because a body may make SQL of a string. Must not: parse a language.

use std::collections::BTreeSet;

use super::catalog::{Catalog, Relation};
use super::functions;
use super::refusal::Refusal;

/// Bytes of a name that the server keeps (`NAMEDATALEN` less one).
const NAME_MAX: usize = 63;

/// Words of a text that may read the rows of a trigger or a rule, and name their columns without
/// the table: through `NEW` and `OLD`, other variables, and tables of all rows that have changed.
const ROWS: &[&str] = &["new", "old", "trigger", "referencing"];

pub(super) const HINT: &str = "Give the values as parameters of ordinary statements, or run it over a connection that does not go \
                    through the proxy if the server may see the constants.";

/// Checks a statement with constants that the proxy cannot place. `what` names it for the message.
/// Fails with SR-8103 if something confidential, or something that is not known, is named in its
/// text.
pub(super) fn check(catalog: &Catalog, what: &str, text: &str) -> Result<(), Refusal> {
    match confidential_name(catalog, text) {
        None => Ok(()),
        Some(name) => {
            let message = format!(
                "{what} has constants and names {name}, and the proxy does not know whether they are confidential"
            );
            Err(Refusal::statement(&message, HINT))
        }
    }
}

/// Returns whether a text that the proxy's parser does not read may be sent as it is: nothing
/// confidential is named in it, and it executes no prepared statement, whose constants may be
/// confidential.
pub(super) fn may_be_sent(catalog: &Catalog, text: &str) -> bool {
    let lower = text.to_lowercase();
    let words = lower.split(|c: char| !is_word(c));
    let mut words = words.filter(|word| !word.is_empty()).peekable();
    let mut executes = false;
    while let Some(word) = words.next() {
        // A trigger's definition names its function.
        let of_trigger = matches!(words.peek(), Some(&("function" | "procedure")));
        executes |= word == "execute" && !of_trigger;
    }
    !executes && confidential_name(catalog, text).is_none()
}

/// Returns the first name in the text that is of something confidential, or may be: of a relation
/// with confidential columns, of a function with confidential arguments, of a type that holds
/// values; of any confidential column, if the text may read a trigger's rows. Case does not count.
/// `None` if there is no such name.
pub(super) fn confidential_name(catalog: &Catalog, text: &str) -> Option<String> {
    if catalog.all_doubted {
        return Some("something that was defined before it".to_owned());
    }
    let text = text.to_lowercase();
    // Escapes can spell a name that no word shows: those of identifiers anywhere, and those of
    // strings where SQL is made of strings.
    let words: BTreeSet<&str> = text
        .split(|c: char| !is_word(c))
        // Next to a name may be the quotes of a string.
        .flat_map(|word| word.split('$').chain([word]))
        .filter(|word| !word.is_empty())
        .map(cut)
        .collect();
    let reads_rows = ROWS.iter().any(|word| words.contains(word));
    let escaped = (words.contains("execute") || reads_rows) && has_code_escape(&text);
    if text.contains("u&\"") || escaped {
        return Some("something by codes of characters".to_owned());
    }
    let has = |name: &str| {
        let name = name.to_lowercase();
        if name.chars().all(is_word) {
            words.contains(cut(&name))
        } else {
            text.contains(&name) || text.contains(&name.replace('"', "\"\""))
        }
    };
    let of_type = |word: &&&str| functions::confidential_type(word).is_some();
    if let Some(word) = words.iter().find(of_type) {
        return Some((*word).to_owned());
    }
    let column_of_row = |relation: &Relation| {
        let mut columns = relation.columns.iter().filter(|it| is_confidential(it));
        let named = columns.find(|column| reads_rows && has(&column.name));
        named.map(|column| column.name.clone())
    };
    for (name, relations) in &catalog.relations {
        for relation in relations {
            if !relation.is_confidential() {
                continue;
            }
            if has(name) {
                return Some(name.clone());
            }
            if let Some(column) = column_of_row(relation) {
                return Some(column);
            }
        }
    }
    let others = [
        &catalog.functions,
        &catalog.bearing_names,
        &catalog.doubted,
        &catalog.missing,
    ];
    let mut others = others.into_iter().flatten();
    others.find(|name| has(name)).cloned()
}

/// Returns whether everything confidential has a name of ASCII characters, which has the same bytes
/// in every encoding of a client.
pub(super) fn has_ascii_names(catalog: &Catalog) -> bool {
    let relations = catalog.relations.iter().all(|(name, relations)| {
        let mut confidential = relations
            .iter()
            .filter(|relation| relation.is_confidential());
        confidential.all(|relation| {
            let mut columns = relation.columns.iter().filter(|it| is_confidential(it));
            name.is_ascii() && columns.all(|column| column.name.is_ascii())
        })
    });
    let others = [
        &catalog.functions,
        &catalog.bearing_names,
        &catalog.doubted,
        &catalog.missing,
    ];
    relations && others.into_iter().flatten().all(|name| name.is_ascii())
}

/// Returns whether the column's values are, or hold, confidential ones.
const fn is_confidential(column: &super::catalog::Column) -> bool {
    column.kind.is_some() || column.holds_confidential
}

/// Returns whether the character can stand in a name without quotes.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$' || !c.is_ascii()
}

/// Cuts a name as the server does, which keeps its first 63 bytes.
fn cut(name: &str) -> &str {
    let mut len = NAME_MAX.min(name.len());
    while !name.is_char_boundary(len) {
        len = len.saturating_sub(1);
    }
    name.get(..len).unwrap_or(name)
}

/// Returns whether a text in lower case has a string in which a character may be given by its code
/// (`e'\x61'`, `e'\141'`, `u&'\0061'`).
fn has_code_escape(text: &str) -> bool {
    if text.contains("u&'") {
        return true;
    }
    let mut strings = text.match_indices("e'");
    let starts = |at: usize| {
        !text
            .get(..at)
            .is_some_and(|before| before.ends_with(is_word))
    };
    if !strings.any(|(at, _)| starts(at)) {
        return false;
    }
    let mut after = text.split('\\').skip(1);
    after.any(|rest| rest.starts_with(|c: char| matches!(c, 'x' | 'u' | '0'..='7')))
}

#[cfg(test)]
mod tests {
    use super::super::tests::catalog;
    use super::*;

    fn named(text: &str) -> Option<String> {
        let long = format!("{}(x text)", "l".repeat(63));
        let catalog = catalog(&["staff(id, pay int4)", "Odd name(x text)", "shop(id)", &long]);
        confidential_name(&catalog, text)
    }

    #[test]
    fn names_of_what_is_confidential_are_found_wherever_they_stand() {
        for text in [
            "DO $$ BEGIN UPDATE staff SET id = 1; END $$",
            "DO 'BEGIN UPDATE \"STAFF\" SET id = 1; END'",
            "DO $$ BEGIN EXECUTE 'select 1 from ' || 'public.staff'; END $$",
            "DO $$ BEGIN PERFORM enc_function('x'); END $$",
            "SELECT 1::enc_text ==",
            "SELECT \"Odd name\" ==",
            "SELECT U&\"\\0073taff\" ==",
            "DO $$ BEGIN EXECUTE E'select 1 from \\x73taff'; END $$",
            "CREATE FUNCTION f() RETURNS trigger AS 'BEGIN NEW.pay := 5; END'",
            "CREATE FUNCTION f() RETURNS trigger AS 'BEGIN IF 5 < old . \"pay\" THEN END IF; END'",
            "CREATE FUNCTION f() RETURNS trigger AS 'BEGIN INSERT INTO log SELECT id FROM inserted WHERE pay > 5; END'",
            "CREATE FUNCTION f() RETURNS trigger AS 'DECLARE n ALIAS FOR NEW; BEGIN n.pay := 5; END'",
            "CREATE FUNCTION f() RETURNS trigger AS 'BEGIN r := NEW; IF r.pay > 5 THEN END IF; END'",
            "CREATE FUNCTION f() RETURNS trigger AS 'BEGIN IF (NEW).pay > 5 THEN END IF; END'",
            "CREATE FUNCTION f() RETURNS trigger AS 'BEGIN IF NEW/**/.pay > 5 THEN END IF; END'",
            "CREATE FUNCTION f() RETURNS trigger AS $$BEGIN NEW := jsonb_populate_record(NEW, '{\"pay\": 5}'); END$$",
            "CREATE FUNCTION f() RETURNS trigger AS $$BEGIN NEW := jsonb_populate_record(NEW, E'{\"\\x70ay\": 5}'); END$$",
            "CREATE RULE r AS ON INSERT TO shop DO ALSO INSERT INTO log SELECT (NEW).pay > 5",
            "DO $$ BEGIN EXECUTE 'select 5 from ' || $q$staff$q$; END $$",
            &format!("SELECT {} ==", "l".repeat(70)),
        ] {
            assert!(named(text).is_some(), "{text}");
        }
        for text in [
            "DO $$ BEGIN UPDATE shop SET id = 1; END $$",
            "DO $$ BEGIN RAISE NOTICE '%', E'a\\n'; END $$",
            "CREATE FUNCTION pay() RETURNS int AS 'SELECT 5'",
            "CREATE FUNCTION f() RETURNS trigger AS 'BEGIN NEW.id := 5; IF anew.paid THEN END IF; END'",
            "CREATE FUNCTION f() RETURNS int AS 'BEGIN IF anew.pay > 5 THEN END IF; END'",
            "DO $$ BEGIN EXECUTE regexp_replace('a', '(a)', '\\1'); END $$",
            "SELECT U&'\\0061' ==",
            "SELECT staffs, my_staff ==",
        ] {
            assert_eq!(named(text), None, "{text}");
        }
    }
}
