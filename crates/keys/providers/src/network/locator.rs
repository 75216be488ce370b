//! The argument of a provider with a server: `TARGET?option=value&option=value`.
//!
//! It is stored in the keyring, readable without the root key. So an option that would hold a
//! secret is refused, and no error repeats a value, because it may be a secret in the wrong place.
//!
//! Must not: touch a file or the network.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::percent;

/// The longest time that an argument may ask for.
const TIMEOUT_MAX_S: u64 = 600;

/// The parts of an argument.
#[derive(Debug)]
pub(crate) struct Locator {
    /// What stands before the `?`: a server's address or a key's name.
    pub(crate) target: String,
    options: BTreeMap<String, String>,
}

impl Locator {
    /// Parses an argument in which only the `known` options may be, each once. The wrapped root key
    /// after `;blob=` is skipped.
    ///
    /// # Errors
    /// A text that says why it is not valid, and does not repeat it.
    pub(crate) fn parse(text: &str, known: &[&str]) -> Result<Self, &'static str> {
        let text = strongroom_keyring::provider::locator(text);
        let (target, rest) = text.split_once('?').unwrap_or((text, ""));
        let mut options = BTreeMap::new();
        for part in rest.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            if !known.contains(&name) {
                return Err("it has an option that this kind does not have");
            }
            let value = decode(value).filter(|value| !value.is_empty());
            let value = value.filter(|value| !value.contains(char::is_control));
            let value = value.ok_or("the value of an option is empty or not in its form")?;
            if options.insert(name.to_owned(), value).is_some() {
                return Err("an option is given twice");
            }
        }
        let target = decode(target).ok_or("the part before `?` is not in its form")?;
        if target.contains(char::is_control) {
            return Err("the part before `?` is not in its form");
        }
        Ok(Self { target, options })
    }

    /// Returns the argument as the keyring stores it, without the wrapped root key: options in
    /// order of name, and other characters encoded as `%XX`.
    pub(crate) fn text(&self) -> String {
        let mut text = percent::encode(&self.target);
        for (at, (name, value)) in self.options.iter().enumerate() {
            text.push(if at == 0 { '?' } else { '&' });
            text.push_str(name);
            text.push('=');
            text.push_str(&percent::encode(value));
        }
        text
    }

    /// Returns an option's value; `None` where the argument does not have it.
    pub(crate) fn option(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    /// Returns the value of an option that must be there.
    ///
    /// # Errors
    /// A text that says that one is missing.
    pub(crate) fn required(&self, name: &str) -> Result<&str, &'static str> {
        self.option(name)
            .ok_or("an option that it needs is missing")
    }

    /// Makes the values of these options absolute paths, where they are given: the keyring is used
    /// from other directories later.
    ///
    /// # Errors
    /// A text that says that one is not a path.
    pub(crate) fn make_absolute(&mut self, names: &[&str]) -> Result<(), &'static str> {
        for name in names {
            if let Some(value) = self.options.get_mut(*name) {
                let path = std::path::absolute(&*value).ok();
                let path = path.and_then(|path| path.to_str().map(str::to_owned));
                *value = path.ok_or("an option is not a path")?;
            }
        }
        Ok(())
    }

    /// Returns an option's value as a path; `None` where the argument does not have it.
    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        self.option(name).map(PathBuf::from)
    }

    /// Returns how long an opening or a sealing may take: the option `timeout`, in seconds. `None`
    /// where the argument does not have it.
    ///
    /// # Errors
    /// A text that says that it is not a number from 1 to 600.
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

/// Decodes `%XX`. `None` for a `%` without two digits, or for bytes that are not UTF-8.
fn decode(text: &str) -> Option<String> {
    String::from_utf8(percent::decode(text)?).ok()
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
        assert_eq!(parsed.target, "kms.example:5696");
        assert_eq!(parsed.option("name"), Some("a&b \u{e9}"));
        assert_eq!(parsed.timeout().unwrap(), Some(Duration::from_secs(9)));
        parsed.make_absolute(&["ca", "name-of-none"]).unwrap();
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
