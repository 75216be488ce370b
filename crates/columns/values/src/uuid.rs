//! The text form of `uuid`: src/backend/utils/adt/uuid.c.
//!
//! PostgreSQL accepts hyphens between any groups of four digits, which parsers of the form that RFC
//! 9562 prescribes do not. Must not: look at a version or variant; PostgreSQL does not either.

use strongroom_columns_ring::Fault;
use strongroom_format::hex::{hex_digit, write_hex};

use crate::input::Unreadable;
use crate::value::{Buf, Value};

/// Length in bytes (`UUID_LEN`).
const LEN: usize = 16;
/// Length of the printed form: 32 digits and four hyphens.
pub(crate) const TEXT_LEN: usize = 36;

/// The bytes of a value of kind uuid. `Fault::KindMismatch` if it is none.
pub(crate) fn of(value: Value<'_>) -> Result<[u8; LEN], Fault> {
    value.bytes()?.try_into().map_err(|_| Fault::KindMismatch)
}

/// Reads a uuid (`uuid_in`): 32 hexadecimal digits in any case, with a hyphen or none after each
/// group of four but the last, all in braces or not. `Unreadable::Syntax` for anything else, blanks
/// included.
pub(crate) fn parse(text: &str) -> Result<[u8; LEN], Unreadable> {
    let inner = text
        .strip_prefix('{')
        .map_or(Some(text), |rest| rest.strip_suffix('}'));
    let mut rest = inner.ok_or(Unreadable::Syntax)?.as_bytes();
    let mut uuid = [0; LEN];
    for (at, byte) in uuid.iter_mut().enumerate() {
        let [high, low, after @ ..] = rest else {
            return Err(Unreadable::Syntax);
        };
        let (Some(high), Some(low)) = (hex_digit(*high), hex_digit(*low)) else {
            return Err(Unreadable::Syntax);
        };
        *byte = high << 4 | low;
        let ends_group = at % 2 == 1 && at < LEN - 1;
        rest = after
            .strip_prefix(b"-")
            .filter(|_| ends_group)
            .unwrap_or(after);
    }
    if rest.is_empty() {
        Ok(uuid)
    } else {
        Err(Unreadable::Syntax)
    }
}

/// Appends the text that `uuid_out` prints: lower-case digits in groups of 8, 4, 4, 4 and 12.
pub(crate) fn print(uuid: &[u8; LEN], buf: &mut Buf) {
    buf.reserve(TEXT_LEN);
    for (at, byte) in uuid.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            buf.push(b'-');
        }
        let mut digits = [0; 2];
        write_hex(&[*byte], &mut digits);
        buf.extend(&digits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Option<String> {
        let mut buf = Buf::new();
        print(&parse(text).ok()?, &mut buf);
        Some(String::from_utf8(buf.as_slice().to_vec()).unwrap())
    }

    #[test]
    fn the_forms_of_postgresqls_manual_are_read() {
        let usual = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        for text in [
            usual,
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
            "a0eebc999c0b4ef8bb6d6bb9bd380a11",
            "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
            "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
        ] {
            assert_eq!(shown(text).as_deref(), Some(usual), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "{",
            "{}",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a111",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11-",
            "-a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "a0eebc9-99c0b-4ef8-bb6d-6bb9bd380a11",
            "a0eebc99--9c0b-4ef8-bb6d-6bb9bd380a11",
            "g0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            " a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11 ",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
        ] {
            assert_eq!(parse(text), Err(Unreadable::Syntax), "{text}");
        }
    }

    #[test]
    fn other_lengths_are_no_uuid() {
        assert_eq!(of(Value::Bytes(&[1; 15])), Err(Fault::KindMismatch));
        assert_eq!(of(Value::Word(1)), Err(Fault::KindMismatch));
        assert_eq!(of(Value::Bytes(&[1; LEN])), Ok([1; LEN]));
    }
}
