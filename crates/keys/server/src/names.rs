//! The names of a key server: DNS names and addresses that go into its certificate and into the
//! URLs of its clients.
//!
//! Names are checked when they are given, not when a configuration is read, so that a server with a
//! name that an older version accepted can still start.

use std::net::IpAddr;

use rustls::pki_types::DnsName;
use strongroom_format::code;
use strongroom_keyring::Error;

/// Checks the names of a server.
///
/// # Errors
/// SR-8412 for the first one that is neither a DNS name (RFC 1123) nor an IP address, or is the
/// unspecified address (`0.0.0.0`, `::`). The detail suggests a correction where there is one.
pub fn check(names: &[String]) -> Result<(), Error> {
    match names
        .iter()
        .find_map(|name| Some((name, refusal_reason(name)?)))
    {
        None => Ok(()),
        Some((name, why)) => {
            let shown: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
            let detail = format!("\"{shown}\": {why}");
            Err(Error::new(&code::SERVER_NAME, detail))
        }
    }
}

/// Returns why a text is not a name of a server, with a correction where there is one; `None` when
/// it is a DNS name or an IP address to which clients can connect.
fn refusal_reason(name: &str) -> Option<String> {
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
    // The host of a URL or of an address with a port, and the name without a dot at its end.
    let host = name.split_once("://").map_or(name, |(_, rest)| rest);
    let host = host.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let host = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((inner, _)) => inner,
        None => host.rsplit_once(':').map_or(host, |(host, _)| host),
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    match host != name && (host.parse::<IpAddr>().is_ok() || is_dns_name(host)) {
        true => Some(format!("write {host}; the port belongs into `--address`")),
        false => Some(
            "a name consists of labels of letters, digits and hyphens, with dots between them"
                .to_owned(),
        ),
    }
}

/// Whether a text is a host name by RFC 1123, 2.1. rustls checks the lengths, the hyphens, and that
/// the last label is not a part of an IPv4 address. It allows underscores and a dot at the end,
/// which host names do not have.
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
    fn other_names_are_refused_with_a_correction() {
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
