//! What may be the name of a key server: what goes into its certificate, and what its clients write
//! between `https://` and the port.
//!
//! Names are checked when they are given, and not when a configuration is read: a server that runs
//! under a name that was accepted before goes on running.

use std::net::IpAddr;

use rustls::pki_types::DnsName;
use strongroom_format::code;
use strongroom_keyring::Error;

/// Checks names that a server is to have.
///
/// # Errors
/// SR-8412 for the first one that is neither a DNS name (RFC 1123) nor an IP address. The detail
/// says what to write instead where that can be seen.
pub fn check(names: &[String]) -> Result<(), Error> {
    match names.iter().find_map(|name| Some((name, refusal(name)?))) {
        None => Ok(()),
        Some((name, why)) => {
            let shown: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
            let detail = format!("\"{shown}\": {why}");
            Err(Error::new(&code::SERVER_NAME, detail))
        }
    }
}

/// Why a text is no name of a server; `None` when it is one.
fn refusal(name: &str) -> Option<String> {
    if name
        .parse::<IpAddr>()
        .is_ok_and(|address| address.is_unspecified())
    {
        return Some(
            "no client can connect to it; give the name or the address that clients use".to_owned(),
        );
    }
    if name.parse::<IpAddr>().is_ok() || is_dns_name(name) {
        return None;
    }
    if name.is_empty() {
        return Some("it is empty".to_owned());
    }
    if name.contains('*') {
        return Some(
            "clients need a name to connect to, which a pattern is not; give each name with an option of its own"
                .to_owned(),
        );
    }
    // What was meant, of a URL, an address with a port, and a name with a dot at its end.
    let meant = name.split_once("://").map_or(name, |(_, rest)| rest);
    let meant = meant.split(['/', '?', '#']).next().unwrap_or_default();
    let meant = meant.rsplit_once('@').map_or(meant, |(_, host)| host);
    let meant = match meant
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
    {
        Some((inner, _)) => inner,
        None => meant.rsplit_once(':').map_or(meant, |(host, _)| host),
    };
    let meant = meant.strip_suffix('.').unwrap_or(meant);
    match meant != name && (meant.parse::<IpAddr>().is_ok() || is_dns_name(meant)) {
        true => Some(format!("write {meant}; the port belongs into `--address`")),
        false => Some(
            "a name consists of labels of letters, digits and hyphens, with dots between them"
                .to_owned(),
        ),
    }
}

/// Whether a text is the name of a host by RFC 1123, 2.1. rustls checks lengths, hyphens, and that
/// the last label cannot be taken for a part of an IPv4 address; it allows underscores and a dot at
/// the end, which names of hosts do not have.
fn is_dns_name(name: &str) -> bool {
    DnsName::try_from(name).is_ok() && !name.contains('_') && !name.ends_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str) -> String {
        let error = check(&["keys".to_owned(), name.to_owned()]).unwrap_err();
        assert_eq!(error.code(), &code::SERVER_NAME, "{name}");
        error.detail().to_owned()
    }

    #[test]
    fn names_and_addresses_are_accepted() {
        let label = "a".repeat(63);
        let long = [&label[..], &label, &label, &"a".repeat(61)].join(".");
        assert_eq!(long.len(), 253);
        for name in [
            "keys",
            "keys.example.org",
            "KEYS-2.example",
            "1.example",
            "3com",
            "xn--schlssel-65a.example",
            "127.0.0.1",
            "::1",
            "2001:db8::7",
            &long,
        ] {
            check(&[name.to_owned()]).unwrap();
        }
    }

    #[test]
    fn everything_else_is_refused_with_what_to_write() {
        for (name, instead) in [
            ("https://keys.example.org", "write keys.example.org;"),
            ("https://u@keys:8443/v1?x", "write keys;"),
            ("keys.example.org:8443", "write keys.example.org;"),
            ("127.0.0.1:8443", "write 127.0.0.1;"),
            ("[::1]:8443", "write ::1;"),
            ("[::1]", "write ::1;"),
            ("keys.example.org.", "write keys.example.org;"),
            ("*.x", "a pattern"),
            ("*", "a pattern"),
            ("", "empty"),
            ("0.0.0.0", "that clients use"),
            ("::", "that clients use"),
        ] {
            let detail = refused(name);
            assert!(detail.contains(instead), "{name}: {detail}");
        }
        for name in [
            " ",
            "a b",
            "keys_a",
            "-keys",
            "keys-",
            "a..b",
            ".a",
            "10.0.0",
            "256.0.0.1",
            "1.2.3.4.5",
            "schl\u{fc}ssel.example",
            "a\nb",
            "keys\0",
            &"a".repeat(64),
            &["a"; 128].join("."),
        ] {
            refused(name);
        }
        assert!(!refused("a\u{1b}[31mb").contains('\u{1b}'));
    }
}
