//! The text that goes into a request's line: a server's address, a key's name. Both are checked so
//! strictly that nothing needs to be quoted.
//!
//! Invariant N4: text from outside reaches a request's line or its headers only through this file.

use crate::error::{Error, Kind, Result};

/// Longest address of a server, in bytes.
const ADDRESS_MAX: usize = 300;

/// Longest name of a key, in bytes.
const NAME_MAX: usize = 128;

/// The address of a server: `https://HOST` or `https://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address(String);

impl Address {
    /// Parses `https://HOST[:PORT]`, with or without a slash at its end, which is dropped. HOST is
    /// a name, an IPv4 address, or an IPv6 address in brackets.
    ///
    /// # Errors
    /// [`Kind::Address`] for any other text: another scheme, a user, path or query, a port that is
    /// not 1 to 65535, or more than 300 bytes.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let refused = |why: &str| {
            let shown: String = text.chars().filter(|c| !c.is_control()).take(80).collect();
            Error::new(Kind::Address, format!("server \"{shown}\": {why}"))
        };
        if text.len() > ADDRESS_MAX {
            return Err(refused("is too long"));
        }
        let Some(rest) = text.strip_prefix("https://") else {
            return Err(refused("does not begin with https://"));
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.strip_prefix('[') {
            Some(inner) => {
                let (host, port) = inner.split_once(']').ok_or_else(|| refused("has no `]`"))?;
                host.parse::<std::net::Ipv6Addr>()
                    .map_err(|_| refused("is not an IPv6 address"))?;
                let port = match port {
                    "" => None,
                    port => Some(
                        port.strip_prefix(':')
                            .ok_or_else(|| refused("has no port"))?,
                    ),
                };
                (host, port)
            }
            None => match rest.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (rest, None),
            },
        };
        let name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if host.is_empty() || !(rest.starts_with('[') || host.bytes().all(name)) {
            return Err(refused(
                "has no plain host name (no user, path or query may be there)",
            ));
        }
        if let Some(port) = port {
            let fine = !port.starts_with('+') && port.parse::<u16>().is_ok_and(|port| port != 0);
            if !fine {
                return Err(refused("has no port from 1 to 65535"));
            }
        }
        Ok(Self(format!("https://{rest}")))
    }

    /// Returns the address, `https://HOST[:PORT]` without a slash at its end.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

/// Whether a key of the key server may have this name: 1 to 128 characters of `a-z A-Z 0-9 . _ -`,
/// but neither `.` nor `..`, which a path would lose.
#[must_use]
pub fn key_name_is_valid(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(allowed) && name != "." && name != ".."
}

/// Returns `name` unchanged if a key may have it ([`key_name_is_valid`]).
///
/// # Errors
/// [`Kind::Refused`] if not.
pub(crate) fn checked_key_name(name: &str) -> Result<&str> {
    match key_name_is_valid(name) {
        true => Ok(name),
        false => Err(Error::new(
            Kind::Refused,
            "a key's name has 1 to 128 characters of a-z, A-Z, 0-9, '.', '_', '-'",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_plain_or_refused() {
        for (text, kept) in [
            ("https://keys-a:8443", "https://keys-a:8443"),
            ("https://keys.example/", "https://keys.example"),
            ("https://10.0.2.100", "https://10.0.2.100"),
            ("https://[::1]:8443/", "https://[::1]:8443"),
        ] {
            assert_eq!(Address::parse(text).unwrap().text(), kept);
        }
        for text in [
            "",
            "http://keys",
            "HTTPS://keys",
            "https://",
            "https://:8443",
            "https://user@keys",
            "https://keys/v1",
            "https://keys?x",
            "https://keys#x",
            "https://keys:0",
            "https://keys:+1",
            "https://keys:65536",
            "https://keys:84\r\n43",
            "https://ke ys",
            "https://keys\\x",
            "https://[::1",
            "https://[keys]",
            "https://[::1]8443",
            "https://a:b@c:1",
            "https://keys%2e",
        ] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_safe_in_a_path() {
        for name in ["a", "vol-1", "a.b_C-9", "...", &"a".repeat(128)] {
            assert!(key_name_is_valid(name), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "a b",
            "a%2f",
            "\u{e4}",
            "a\n",
            &"a".repeat(129),
        ] {
            assert!(!key_name_is_valid(name), "{name}");
        }
    }
}
