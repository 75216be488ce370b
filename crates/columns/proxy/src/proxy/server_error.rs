//! Errors of the server as the application sees them: their place is one in its own text, and where
//! confidential types are the cause a hint says what to write instead. And what the proxy itself
//! makes of errors.
//!
//! Must not: change an error's SQLSTATE or message.

use strongroom_postgres_wire::{error_field, without_field};

use super::session::Interrupt;
use crate::sql::{Texts, confidential_type};

/// The hint where a plain value and a confidential one are operands of one operator or function.
const MIXED: &str = "A plain value does not meet a confidential one at the server. Make both \
columns confidential, or read the plain value first and give it as a parameter.";
/// The hint where the operator or function has confidential operands only.
const NOT_COMPUTED: &str = "The zone does not compute this of confidential values. Read the \
columns and compute it in the application, or store the result in a column of its own; \
docs/reference/columns.md lists what the zone computes.";

/// The hint where the server needs a boolean in clear, or has one for a confidential column.
const BOOLEAN: &str = "Compare the confidential boolean with true. To store the result of a \
condition, write CASE WHEN ... THEN true ELSE false END; to compare one with it, write both cases.";

/// The hint where the zone tells nothing more (SR-8007).
const SPENT: &str = "strongroom columns ledger shows the limits of the column key and what was \
told under it. A limit begins anew after its period, or when the key's owner sets another one; the \
budget of a ticket is of one connection.";

/// Words of PostgreSQL's names of the types that have a confidential counterpart.
const PLAIN_TYPES: &[&str] = &[
    "boolean",
    "smallint",
    "integer",
    "bigint",
    "real",
    "double",
    "numeric",
    "text",
    "character",
    "bytea",
    "date",
    "time",
    "timestamp",
    "interval",
    "uuid",
    "jsonb",
];

/// Returns the body of an error for the application. `texts` has the application's text and the one
/// that was sent; without them the text was the application's, and the place stays.
pub(super) fn for_application(body: &[u8], texts: Option<&Texts>) -> Vec<u8> {
    let mut shown = match texts {
        Some(texts) => with_original_position(body, texts),
        None => body.to_vec(),
    };
    if let Some(hint) = hint(body) {
        shown = without_field(&shown, b'H');
        add_field(&mut shown, b'H', hint);
    }
    shown
}

/// Returns the body of an error with its position in the client's text in place of that in the
/// statement that was sent; without one if that is not known.
fn with_original_position(body: &[u8], texts: &Texts) -> Vec<u8> {
    let position = error_field(body, b'P').and_then(|text| std::str::from_utf8(text).ok());
    let position = position.and_then(|text| text.parse().ok());
    let original = position.and_then(|position| texts.original_position(position));
    let mut shown = without_field(body, b'P');
    if let Some(original) = original {
        add_field(&mut shown, b'P', &original.to_string());
    }
    shown
}

/// Adds a field to the body of an error.
fn add_field(body: &mut Vec<u8>, tag: u8, text: &str) {
    // The last byte ends the fields.
    body.pop();
    body.push(tag);
    body.extend_from_slice(text.as_bytes());
    body.extend_from_slice(&[0, 0]);
}

/// Returns what to write instead, for an operator or function that does not exist
/// (`undefined_function`) or types that do not match (`datatype_mismatch`), where the message names
/// a confidential type, and for a budget that is spent. `None` for every other error. The message
/// may be in any language: only the types' names and our own codes are looked at.
fn hint(body: &[u8]) -> Option<&'static str> {
    let state = error_field(body, b'C')?;
    let spent = || error_field(body, b'M').is_some_and(|text| text.ends_with(b"(SR-8007)"));
    if state == b"53400" && spent() {
        return Some(SPENT);
    }
    if state != b"42883" && state != b"42804" {
        return None;
    }
    let message = String::from_utf8_lossy(error_field(body, b'M')?);
    let words = || message.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names_one = words().any(|word| confidential_type(word).is_some());
    if !names_one {
        return None;
    }
    if words().any(|word| word == "enc_bool") && words().any(|word| word == "boolean") {
        return Some(BOOLEAN);
    }
    let mixed = words().any(|word| PLAIN_TYPES.contains(&word));
    Some(if mixed { MIXED } else { NOT_COMPUTED })
}

/// Returns why the server has ended a statement with the SQLSTATE 57014.
pub(super) fn interrupt(body: &[u8]) -> Interrupt {
    let message = error_field(body, b'M').unwrap_or_default();
    if message.ends_with(b"user request") {
        Interrupt::Cancel
    } else if message.ends_with(b"statement timeout") {
        Interrupt::Timeout
    } else {
        Interrupt::Either
    }
}

/// Returns whether an error says that the zone has forgotten the session: the zone was started anew
/// (SR-8003), has no ticket for the session (SR-8006), or lacks the keys (SR-8008).
pub(super) fn is_lost(body: &[u8]) -> bool {
    let message = error_field(body, b'M').unwrap_or_default();
    [b"(SR-8003)", b"(SR-8006)", b"(SR-8008)"]
        .iter()
        .any(|code| message.windows(code.len()).any(|window| window == *code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(state: &str, message: &str) -> Vec<u8> {
        format!("SERROR\0C{state}\0M{message}\0Hcasts\0P7\0\0").into_bytes()
    }

    fn hint_of(state: &str, message: &str) -> String {
        let shown = for_application(&error(state, message), None);
        assert!(shown.ends_with(b"\0\0"), "{message}");
        assert_eq!(error_field(&shown, b'P'), Some(&b"7"[..]), "{message}");
        let hint = error_field(&shown, b'H').unwrap();
        String::from_utf8(hint.to_vec()).unwrap()
    }

    #[test]
    fn what_the_server_says_of_confidential_types_has_another_hint() {
        let unknown = "operator does not exist: enc_int8 << unknown";
        assert_eq!(hint_of("42883", unknown), NOT_COMPUTED);
        let mixed = "operator does not exist: integer = enc_int4";
        assert_eq!(hint_of("42883", mixed), MIXED);
        let function = "function chr(enc_int4) does not exist";
        assert_eq!(hint_of("42883", function), NOT_COMPUTED);
        let check = "argument of CHECK must be type boolean, not type enc_bool";
        assert_eq!(hint_of("42804", check), BOOLEAN);
        let case = "CASE types enc_float8 and double precision cannot be matched";
        assert_eq!(hint_of("42804", case), MIXED);
    }

    #[test]
    fn a_spent_budget_has_a_hint_what_to_do() {
        let spent = "the budget of the ticket or of the column key is spent (SR-8007)";
        assert_eq!(hint_of("53400", spent), SPENT);
        assert_eq!(hint_of("53400", "too many of something"), "casts");
    }

    #[test]
    fn other_errors_keep_theirs() {
        let function = "function enc_f(integer) does not exist";
        assert_eq!(hint_of("42883", function), "casts");
        assert_eq!(
            hint_of("42P01", "relation \"enc_a\" does not exist"),
            "casts"
        );
    }
}
