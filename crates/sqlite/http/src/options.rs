//! The address of a remote database and the options for reading it, by the names that URIs and
//! pointer files use.
//!
//! Must not: accept an address with a user's name or password in it, or show the query of an
//! address.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use strongroom_format::code;
use strongroom_keyring::Error;
use ureq::http::Uri;

use crate::etag::etag_is_strong;

/// Longest address, in bytes.
const URL_MAX: usize = 4096;
/// Default limit for one read, retries included, in seconds.
const TIMEOUT_S: u64 = 30;
/// Default size of a cache in bytes.
const CACHE_SIZE: u64 = 256 << 20;
/// Bytes of the smallest cache.
const CACHE_SIZE_MIN: u64 = 1 << 20;

/// How to read a remote database.
#[derive(Clone, Debug)]
pub struct Options {
    /// `url`: `https://HOST[:PORT]/PATH[?QUERY]`.
    pub url: String,
    /// `http_ca`: a PEM file of the only trusted certificate authorities. `None`: the system's.
    pub ca: Option<PathBuf>,
    /// `http_cache`: a directory in which fetched ciphertext is cached. `None`: there is no cache.
    pub cache: Option<PathBuf>,
    /// `http_cache_size`: largest size of the cache in bytes.
    pub cache_size: u64,
    /// `http_timeout`: limit for one read, retries included, in whole seconds.
    pub timeout: Duration,
    /// `http_plain=1`: http:// is allowed to any host, not only to this one.
    pub plain: bool,
    /// `http_etag`: the only version that is accepted.
    pub etag: Option<String>,
}

impl Options {
    /// Returns the default options for an address, which is not checked yet: a limit of 30 seconds
    /// for a read, no cache, and the system's authorities.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ca: None,
            cache: None,
            cache_size: CACHE_SIZE,
            timeout: Duration::from_secs(TIMEOUT_S),
            plain: false,
            etag: None,
        }
    }

    /// Reads the options; `get` gives the value of a URI's parameter, or of a pointer file's line.
    /// SR-2240 if `url` is missing, or an option is not valid. The address is not checked yet.
    pub(crate) fn read(get: &dyn Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let url = get("url").ok_or_else(|| refused("there is no url"))?;
        let number = |name: &str, range: std::ops::RangeInclusive<u64>| {
            let Some(text) = get(name) else {
                return Ok(None);
            };
            let number = text.parse().ok().filter(|number| range.contains(number));
            number.map(Some).ok_or_else(|| {
                let (least, most) = (range.start(), range.end());
                refused(&format!("{name} is a number from {least} to {most}"))
            })
        };
        let plain = match get("http_plain").as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(_) => return Err(refused("http_plain is 0 or 1")),
        };
        let mut options = Self::new(url);
        options.ca = path(get("http_ca"), "http_ca")?;
        options.cache = path(get("http_cache"), "http_cache")?;
        options.cache_size =
            number("http_cache_size", CACHE_SIZE_MIN..=1 << 50)?.unwrap_or(CACHE_SIZE);
        options.timeout =
            Duration::from_secs(number("http_timeout", 1..=3600)?.unwrap_or(TIMEOUT_S));
        options.plain = plain;
        options.etag = get("http_etag");
        Ok(options)
    }

    /// Returns the parameters, as names and values, from which [`Self::read`] makes these options
    /// again.
    #[must_use]
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let mut found = vec![("url", self.url.clone())];
        let mut say = |name, value: Option<String>| found.extend(value.map(|value| (name, value)));
        say("http_ca", path(&self.ca));
        say("http_cache", path(&self.cache));
        say("http_cache_size", Some(self.cache_size.to_string()));
        say("http_timeout", Some(self.timeout.as_secs().to_string()));
        say("http_plain", self.plain.then(|| "1".to_owned()));
        say("http_etag", self.etag.clone());
        found
    }

    /// Parses and checks the address and the expected ETag. SR-2240 if one is not valid, or the
    /// address holds a user's name; SR-2253 for http:// to another host, unless `plain` allows it.
    pub(crate) fn address(&self) -> Result<Address, Error> {
        if self.url.len() > URL_MAX || self.url.contains('#') {
            return Err(refused("the address is too long, or has a fragment"));
        }
        let uri: Uri = self
            .url
            .parse()
            .map_err(|_| refused("it is no address (percent-encode it within a URI)"))?;
        let (Some(authority), Some(host)) = (uri.authority(), uri.host()) else {
            return Err(refused("the address names no host"));
        };
        if authority.as_str().contains('@') {
            return Err(refused("the address holds a user's name"));
        }
        let shown = format!(
            "{}://{authority}{}",
            uri.scheme_str().unwrap_or_default(),
            uri.path()
        );
        match uri.scheme_str() {
            Some("https") => {}
            Some("http") if self.plain || is_this_host(host) => {}
            Some("http") => return Err(Error::new(&code::REMOTE_CLEAR, shown)),
            _ => {
                return Err(refused(
                    "the address begins neither with https:// nor with http://",
                ));
            }
        }
        if let Some(etag) = &self.etag
            && !etag_is_strong(etag)
        {
            return Err(refused("http_etag is a strong ETag, its quotes included"));
        }
        Ok(Address { uri, shown })
    }
}

/// The address of a remote database.
pub(crate) struct Address {
    pub(crate) uri: Uri,
    /// The address without its query, which may hold an access token.
    pub(crate) shown: String,
}

/// Makes the error SR-2240, for parameters that cannot be used.
fn refused(why: &str) -> Error {
    Error::new(&code::REMOTE_URL, why)
}

/// Converts a parameter to a path. SR-2240, with the parameter's name, unless it is absolute.
fn path(text: Option<String>, name: &str) -> Result<Option<PathBuf>, Error> {
    let path = text.map(PathBuf::from);
    if path.as_ref().is_some_and(|path| !path.is_absolute()) {
        return Err(refused(&format!("{name} is an absolute path")));
    }
    Ok(path)
}

/// Whether requests to `host` stay on this machine: it is `localhost` or a loopback address. The
/// name is not resolved.
fn is_this_host(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || bare
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_of(url: &str) -> u16 {
        match Options::new(url).address() {
            Ok(_) => 0,
            Err(error) => error.code().number,
        }
    }

    #[test]
    fn addresses_are_plain_or_refused() {
        for url in [
            "https://cdn.example/x.db",
            "https://cdn.example:8443/a/b%20c?token=1",
            "https://[::1]/x",
            "http://127.0.0.1:80/x",
            "http://[::1]/x",
            "http://localhost/x",
        ] {
            assert_eq!(code_of(url), 0, "{url}");
        }
        for url in [
            "",
            "x.db",
            "/x.db",
            "https://",
            "https:///x.db",
            "ftp://cdn.example/x",
            "file:///etc/passwd",
            "https://user:pass@cdn.example/x",
            "https://user@cdn.example/x",
            "https://cdn.example/x#y",
            "https://cdn.example/a b",
            "https://cdn.example/a\r\nX: y",
        ] {
            assert_eq!(code_of(url), 2240, "{url}");
        }
        for url in [
            "http://cdn.example/x",
            "http://128.0.0.1/x",
            "http://localhost.example/x",
        ] {
            assert_eq!(code_of(url), 2253, "{url}");
            let mut options = Options::new(url);
            options.plain = true;
            assert!(options.address().is_ok());
        }
        let shown = Options::new("https://a/x?secret=1")
            .address()
            .unwrap()
            .shown;
        assert_eq!(shown, "https://a/x");
    }

    #[test]
    fn parameters_are_read_back() {
        let mut options = Options::new("https://a/x?y=1&z=2");
        options.ca = Some("/ca".into());
        options.cache = Some("/cache".into());
        options.cache_size = 5 << 20;
        options.timeout = Duration::from_secs(7);
        options.plain = true;
        options.etag = Some("\"v\"".to_owned());
        let said = options.parameters();
        let get = |name: &str| {
            let found = said.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.clone())
        };
        let again = Options::read(&get).unwrap();
        assert_eq!(format!("{again:?}"), format!("{options:?}"));
        for (name, value) in [
            ("http_timeout", "0"),
            ("http_timeout", "1.5"),
            ("http_cache_size", "5"),
            ("http_plain", "yes"),
            ("http_ca", "relative"),
            ("http_cache", ""),
        ] {
            let get = |asked: &str| match asked {
                "url" => Some("https://a/x".to_owned()),
                _ => (asked == name).then(|| value.to_owned()),
            };
            assert!(Options::read(&get).is_err(), "{name}={value}");
        }
    }
}
