//! Arguments of the form `name=value;name=value`, and where a PIN or passphrase comes from.
//!
//! Must not: repeat an argument in an error: it may be a secret in the wrong place.

use strongroom_keyring::KeySource;

/// The options of an argument, in order.
pub(crate) struct Options<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Options<'a> {
    /// Parses an argument in which only the `known` names may be, each once and with a value. The
    /// error says what is wrong, and does not repeat the argument.
    pub(crate) fn read(argument: &'a str, known: &[&str]) -> Result<Self, &'static str> {
        let mut read: Vec<(&str, &str)> = Vec::new();
        for part in argument.split(';').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or("write name=value;name=value")?;
            if !known.contains(&name) {
                return Err("it has an option that this provider does not know");
            }
            if value.is_empty() || read.iter().any(|(other, _)| *other == name) {
                return Err("it has an option twice, or one without a value");
            }
            read.push((name, value));
        }
        Ok(Self(read))
    }

    /// Returns the value of an option; `None` when it is not given.
    pub(crate) fn get(&self, name: &str) -> Option<&'a str> {
        let found = self.0.iter().find(|(other, _)| *other == name);
        found.map(|(_, value)| *value)
    }
}

/// Parses where a PIN or passphrase comes from: `ask`, `env:VAR`, `file:/PATH` or `command:CMD`.
/// Fetches nothing. The error says what the form is.
pub(crate) fn secret_source(text: &str) -> Result<KeySource, &'static str> {
    match text.split_once(':') {
        None if text == "ask" => Ok(KeySource::Ask),
        Some(("env", name)) if !name.is_empty() => Ok(KeySource::Env(name.to_owned())),
        Some(("command", line)) if !line.is_empty() => Ok(KeySource::Command(line.to_owned())),
        Some(("file", path)) if path.starts_with('/') => Ok(KeySource::File(path.into())),
        _ => Err(
            "a PIN or passphrase comes from ask, env:VAR, file:/PATH or command:CMD, and never from the argument",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_known_and_stand_once() {
        let read = Options::read("a=1;b=2=3", &["a", "b"]).unwrap();
        assert_eq!((read.get("a"), read.get("b")), (Some("1"), Some("2=3")));
        for text in ["c=1", "a", "a=", "a=1;a=1", "hunter2"] {
            let refused = Options::read(text, &["a", "b"]).err().unwrap();
            assert!(!refused.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn a_secret_is_never_its_own_source() {
        for text in ["1234", "", "env:", "file:relative", "pin:1234"] {
            assert!(secret_source(text).is_err(), "{text}");
        }
        for text in ["ask", "env:PIN", "file:/run/pin", "command:cat /run/pin"] {
            assert!(secret_source(text).is_ok(), "{text}");
        }
    }
}
