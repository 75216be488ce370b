//! Connection strings as libpq reads them: `keyword = value` pairs and URIs (PostgreSQL
//! documentation, "Connection strings").
//!
//! Invariants: Q1, a message quotes keywords, never a value; Q2, a keyword that is not known is an
//! error, here by the caller, because a misspelt `sslmode` must not become the default.

use super::error::{Error, Result};

/// Keywords and values in their order; the last one of a keyword counts.
pub(crate) type Pairs = Vec<(String, String)>;

/// Parses a connection string: a URI if it begins with `postgres://` or `postgresql://`, else pairs
/// of `keyword=value`. Keywords are not checked. Fails with [`Error::Config`] if the string is
/// malformed.
pub(crate) fn pairs(text: &str) -> Result<Pairs> {
    let after_scheme = ["postgresql://", "postgres://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    match after_scheme {
        Some(rest) => uri(rest),
        None => keywords(text),
    }
}

/// Returns an [`Error::Config`] with this text.
fn bad(text: &str) -> Error {
    Error::Config(String::from(text))
}

/// Parses pairs such as `host=/run/postgresql user = 'a b'`, with quotes and backslashes as libpq's
/// `conninfo_parse` takes them. Fails with [`Error::Config`] if the text is malformed.
fn keywords(text: &str) -> Result<Pairs> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (keyword, after) = rest
            .split_once('=')
            .ok_or_else(|| bad("a connection string is a URI or pairs of keyword=value"))?;
        let keyword = keyword.trim_end();
        if keyword.is_empty() || keyword.contains(char::is_whitespace) {
            return Err(bad("a keyword of the connection string has no value"));
        }
        let (value, after) = value(after.trim_start())?;
        found.push((String::from(keyword), value));
        rest = after.trim_start();
    }
    Ok(found)
}

/// Takes one value, perhaps quoted, from the start of the text, and returns it without quotes and
/// escapes, and the text after it. Fails with [`Error::Config`] if a quote is not closed or the
/// text ends in a backslash.
fn value(text: &str) -> Result<(String, &str)> {
    let quoted = text.strip_prefix('\'');
    let mut value = String::new();
    let mut characters = quoted.unwrap_or(text).char_indices();
    let source = quoted.unwrap_or(text);
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => {
                let (_, escaped) = characters
                    .next()
                    .ok_or_else(|| bad("a connection string ends in a backslash"))?;
                value.push(escaped);
            }
            '\'' if quoted.is_some() => {
                let after = source.get(at + 1..).unwrap_or_default();
                return Ok((value, after));
            }
            other if quoted.is_none() && other.is_whitespace() => {
                return Ok((value, source.get(at..).unwrap_or_default()));
            }
            other => value.push(other),
        }
    }
    if quoted.is_some() {
        return Err(bad("a quoted value of the connection string has no end"));
    }
    Ok((value, ""))
}

/// Parses `[user[:password]@][host][:port][/dbname][?keyword=value[&...]]`, the part of a URI after
/// the scheme. Parts that are empty are left out. Fails with [`Error::Config`] if it is malformed.
fn uri(text: &str) -> Result<Pairs> {
    let mut found = Vec::new();
    let (place, query) = text.split_once('?').unwrap_or((text, ""));
    let (authority, database) = place.split_once('/').unwrap_or((place, ""));
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (user, host),
        None => ("", authority),
    };
    let (user, password) = match user.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (user, None),
    };
    let (host, port) = host_and_port(host)?;
    let mut put = |keyword: &str, value: &str| -> Result<()> {
        if !value.is_empty() {
            found.push((String::from(keyword), percent_decode(value)?));
        }
        Ok(())
    };
    put("user", user)?;
    put("password", password.unwrap_or_default())?;
    put("host", host)?;
    put("port", port)?;
    put("dbname", database)?;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (keyword, value) = pair
            .split_once('=')
            .ok_or_else(|| bad("a parameter of the URI has no value"))?;
        match (keyword, value) {
            // libpq accepts JDBC's keyword too.
            ("ssl", "true") => found.push((String::from("sslmode"), String::from("require"))),
            _ => found.push((percent_decode(keyword)?, percent_decode(value)?)),
        }
    }
    Ok(found)
}

/// Splits `host:port`, `[address]:port` or either without a port; a missing port is empty. Fails
/// with [`Error::Config`] if a bracket is not closed, or something other than a colon follows it.
fn host_and_port(text: &str) -> Result<(&str, &str)> {
    if let Some(inside) = text.strip_prefix('[') {
        let (address, after) = inside
            .split_once(']')
            .ok_or_else(|| bad("an IPv6 address in the URI has no closing bracket"))?;
        let port = match after {
            "" => "",
            _ => after
                .strip_prefix(':')
                .ok_or_else(|| bad("a port in the URI follows a colon"))?,
        };
        return Ok((address, port));
    }
    Ok(text.split_once(':').unwrap_or((text, "")))
}

/// Replaces each `%41` by the byte that its two digits mean. Fails with [`Error::Config`] for a
/// percent sign without two hexadecimal digits, for a zero byte, and if the result is not UTF-8.
fn percent_decode(text: &str) -> Result<String> {
    let wrong = || bad("a percent sign in the URI is not followed by two hexadecimal digits");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || {
            let digit = char::from(rest.next()?).to_digit(16)?;
            u8::try_from(digit).ok()
        };
        let (high, low) = (digit().ok_or_else(wrong)?, digit().ok_or_else(wrong)?);
        match high << 4 | low {
            0 => return Err(bad("a zero byte in the URI")),
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| bad("the URI is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(String, String)> {
        pairs(text).expect("a connection string")
    }

    fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let one = |(keyword, value): &(&str, &str)| (String::from(*keyword), String::from(*value));
        pairs.iter().map(one).collect()
    }

    #[test]
    fn keywords_and_values() {
        let text = r"host=/run/pg  user = 'a b' password=it\'s\\ dbname='x\'y' port=";
        let expected = [
            ("host", "/run/pg"),
            ("user", "a b"),
            ("password", r"it's\"),
            ("dbname", "x'y"),
            ("port", ""),
        ];
        assert_eq!(read(text), owned(&expected));
        assert_eq!(read("  "), owned(&[]));
        for wrong in ["host", "a b=c", "=x", "a='", r"a=\", "host=x y"] {
            assert!(pairs(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn uris() {
        let text =
            "postgresql://a%40b:p%3Aw@[::1]:5433/d?sslmode=verify-full&application_name=x%20y";
        let expected = [
            ("user", "a@b"),
            ("password", "p:w"),
            ("host", "::1"),
            ("port", "5433"),
            ("dbname", "d"),
            ("sslmode", "verify-full"),
            ("application_name", "x y"),
        ];
        assert_eq!(read(text), owned(&expected));
        let socket = read("postgres://%2Frun%2Fpg/?user=me&ssl=true");
        let expected = [("host", "/run/pg"), ("user", "me"), ("sslmode", "require")];
        assert_eq!(socket, owned(&expected));
        assert_eq!(read("postgresql://"), owned(&[]));
        for wrong in [
            "postgresql://%4",
            "postgresql://%zz",
            "postgresql://%00",
            "postgres://[::1",
            "postgres://[::1]5",
            "postgres://h?x",
        ] {
            assert!(pairs(wrong).is_err(), "{wrong}");
        }
    }
}
