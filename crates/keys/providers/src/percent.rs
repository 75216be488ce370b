//! Percent-encoding (RFC 3986, section 2.1), strictly: a `%` without two hexadecimal digits is
//! refused.

/// What stays as it is in a stored argument, besides letters and digits.
const PLAIN: &[u8] = b"-._~/:@,+=*";

/// Decodes `%XX`. `None` for a `%` without two hexadecimal digits.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let value = digit()?.checked_mul(16)?.checked_add(digit()?)?;
        out.push(u8::try_from(value).ok()?);
    }
    Some(out)
}

/// Encodes everything that is not [`PLAIN`], a letter or a digit as `%XX`.
pub(crate) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || PLAIN.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_and_nothing_else() {
        let text = "a b;c%d\u{e9}";
        assert_eq!(encode(text), "a%20b%3Bc%25d%C3%A9");
        assert_eq!(decode(&encode(text)).unwrap(), text.as_bytes());
        for text in ["%", "%1", "%zz", "%+1"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
