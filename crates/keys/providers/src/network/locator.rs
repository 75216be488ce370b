//! The argument of a provider with a server: `PLACE?option=value&option=value`.
//!
//! It is stored in the keyring, readable without the root key: an option that would hold a secret
//! is refused, and no value is repeated in an error, because it may be a secret in the wrong place.
//!
//! Must not: touch a file or the network.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::deadline::TIMEOUT_MAX_S;

/// What stays as it is in a value; everything else is written `%XX`.
const PLAIN: &[u8] = b"-._~/:@,+=*";

/// The parts of an argument.
#[derive(Debug)]
pub(crate) struct Locator {
    pub(crate) place: String,
    options: BTreeMap<String, String>,
}

impl Locator {
    /// Takes an argument apart. `known`: the options that there are. What was wrapped, behind
    /// `;blob=`, is not looked at.
    ///
    /// # Errors
    /// Why it is not valid.
    pub(crate) fn parse(text: &str, known: &[&str]) -> Result<Self, &'static str> {
        let text = strongroom_keyring::provider::locator(text);
        let (place, rest) = text.split_once('?').unwrap_or((text, ""));
        let mut options = BTreeMap::new();
        for part in rest.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            if !known.contains(&name) {
                return Err("it has an option that this kind does not have");
            }
            let value = decoded(value).filter(|value| !value.is_empty());
            let value = value.filter(|value| !value.contains(char::is_control));
            let value = value.ok_or("the value of an option is empty or not in its form")?;
            if options.insert(name.to_owned(), value).is_some() {
                return Err("an option is given twice");
            }
        }
        let place = decoded(place).ok_or("the part before `?` is not in its form")?;
        if place.contains(char::is_control) {
            return Err("the part before `?` is not in its form");
        }
        Ok(Self { place, options })
    }

    /// The argument as it is stored.
    pub(crate) fn text(&self) -> String {
        let mut text = encoded(&self.place);
        for (at, (name, value)) in self.options.iter().enumerate() {
            text.push(if at == 0 { '?' } else { '&' });
            text.push_str(name);
            text.push('=');
            text.push_str(&encoded(value));
        }
        text
    }

    /// An option's value.
    pub(crate) fn option(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    /// An option that must be there.
    ///
    /// # Errors
    /// Why it is not valid.
    pub(crate) fn needed(&self, name: &str) -> Result<&str, &'static str> {
        self.option(name)
            .ok_or("an option that it needs is missing")
    }

    /// Makes these options absolute paths: the keyring is used from other directories later.
    ///
    /// # Errors
    /// Why it is not valid.
    pub(crate) fn absolute(&mut self, names: &[&str]) -> Result<(), &'static str> {
        for name in names {
            if let Some(value) = self.options.get_mut(*name) {
                let path = std::path::absolute(&*value).ok();
                let path = path.and_then(|path| path.to_str().map(str::to_owned));
                *value = path.ok_or("an option is not a path")?;
            }
        }
        Ok(())
    }

    /// An option that is a path.
    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        self.option(name).map(PathBuf::from)
    }

    /// How long a whole exchange may take: `timeout`, in seconds. `None`: as long as any provider
    /// may.
    ///
    /// # Errors
    /// Why it is not valid.
    pub(crate) fn timeout(&self) -> Result<Option<Duration>, &'static str> {
        let Some(text) = self.option("timeout") else {
            return Ok(None);
        };
        match text.parse() {
            Ok(seconds @ 1..=TIMEOUT_MAX_S) => Ok(Some(Duration::from_secs(seconds))),
            _ => Err("`timeout` is 1 to 600 seconds"),
        }
    }
}

/// Undoes `%XX`. `None`: not valid, or not UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let value = digit()?.checked_mul(16)?.checked_add(digit()?)?;
        bytes.push(u8::try_from(value).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// Writes everything that is not [`PLAIN`], a letter or a digit as `%XX`.
pub(crate) fn encoded(text: &str) -> String {
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

    const KNOWN: &[&str] = &["ca", "name", "timeout"];

    #[test]
    fn what_was_parsed_is_stored_and_parsed_again() {
        let mut parsed = Locator::parse(
            "kms.example:5696?name=a%26b%20%C3%A9&ca=ca.pem&timeout=9",
            KNOWN,
        )
        .unwrap();
        assert_eq!(parsed.place, "kms.example:5696");
        assert_eq!(parsed.option("name"), Some("a&b \u{e9}"));
        assert_eq!(parsed.timeout().unwrap(), Some(Duration::from_secs(9)));
        parsed.absolute(&["ca", "name-of-none"]).unwrap();
        assert!(parsed.path("ca").unwrap().is_absolute());
        let again = Locator::parse(&parsed.text(), KNOWN).unwrap();
        assert_eq!(again.text(), parsed.text());
        assert_eq!(again.option("name"), parsed.option("name"));
        assert!(!again.text().contains(';'), "what may be put behind it");
    }

    #[test]
    fn mistakes_are_refused_without_being_repeated() {
        for text in [
            "h?token=CANARY",
            "h?CANARY",
            "h?name=%zCANARY",
            "h?name=CANARY%0a",
            "h?name=CANARY&name=b",
            "h?name=%ffCANARY",
            "h%00CANARY",
            "h?name=",
        ] {
            let error = Locator::parse(text, KNOWN).err().unwrap();
            assert!(!error.is_empty() && !error.contains("CANARY"), "{text}");
        }
        for timeout in ["0", "601", "-1", "x", "1.5"] {
            let text = format!("h?timeout={timeout}");
            assert!(Locator::parse(&text, KNOWN).unwrap().timeout().is_err());
        }
    }
}
