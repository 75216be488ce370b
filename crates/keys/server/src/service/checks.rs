//! Checks of what a client sends: names, ids and texts.

use strongroom_format::code;
use strongroom_format::keyring::NAME_MAX;
use strongroom_keyring::Error;

/// Checks the name of a key or of a client: a name that a keyring accepts, 1 to 128 characters of
/// `a-z A-Z 0-9 . _ -`, and not of dots only.
///
/// # Errors
/// SR-8429 for any other text.
pub fn check_name(name: &str) -> Result<(), Error> {
    let fine = (1..=NAME_MAX).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        && name.bytes().any(|b| b != b'.');
    match fine {
        true => Ok(()),
        false => Err(Error::new(
            &code::SERVER_REQUEST,
            "a name is 1 to 128 of a-z A-Z 0-9 . _ -",
        )),
    }
}

/// Checks the id of an object: 32 hexadecimal digits in lower case.
///
/// # Errors
/// SR-8429 for any other text.
pub(super) fn check_object_id(id: &str) -> Result<(), Error> {
    let fine = id.len() == 32
        && id
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    match fine {
        true => Ok(()),
        false => Err(Error::new(
            &code::SERVER_REQUEST,
            "an object id is 32 hexadecimal digits",
        )),
    }
}

/// Checks a text that a client may choose: printable, and at most 256 bytes.
///
/// # Errors
/// SR-8429 for any other text; `what` names it in the detail.
pub(super) fn check_text(text: &str, what: &str) -> Result<(), Error> {
    match text.len() <= 256 && !text.contains(is_misleading) {
        true => Ok(()),
        false => Err(Error::new(
            &code::SERVER_REQUEST,
            format!("{what}: at most 256 bytes, printable"),
        )),
    }
}

/// Whether a character is a control, a line separator or a mark of direction (Unicode UAX #9).
/// These change how the text around them is displayed.
fn is_misleading(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
