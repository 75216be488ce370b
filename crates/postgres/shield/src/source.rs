//! The key source of an instance: from the environment, or from the configuration beside the
//! header.
//!
//! Invariants: key material is not read here; an unknown line of the configuration is an error, so
//! that a misspelt name does not silently select another key.
//!
//! Must not: read key material.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use std::path::{Path, PathBuf};

use strongroom_format::code;
use strongroom_format::postgres::CONFIG_FILE;
use strongroom_keyring::storage::About;
use strongroom_keyring::{Error, KeySource, Keyring, Link, SourceContext, open_regular, text_of};

/// The variable that holds the key itself; CYBERTEC's patches use it too.
pub const KEY_VARIABLE: &str = "PGENCRYPTIONKEY";
/// The prefix of the shield's key variables; `ID`, `ENV`, `FILE`, `COMMAND` or `FD` follows. The
/// value of the last is the number of an inherited descriptor from which the key is read: a
/// passphrase that was typed must not be in the arguments or the environment of programs.
pub const VARIABLE_PREFIX: &str = "STRONGROOM_PG_KEY_";
/// The keyring of [`VARIABLE_PREFIX`]`ID`.
pub const KEYRING_VARIABLE: &str = "STRONGROOM_PG_KEYRING";

/// Longest configuration that is read, in bytes.
const CONFIGURATION_MAX: u64 = 1 << 20;

/// A key source and its context.
pub struct Source {
    /// Where the material is.
    pub key: KeySource,
    /// The keyring, when it is one of its keys.
    pub context: SourceContext,
}

impl Source {
    /// Returns the environment variables whose values are the key, or open the keyring that holds
    /// it; none for other sources. Asks the keyring for its provider, which needs no key.
    ///
    /// # Errors
    /// SR-2004 when there is no keyring; SR-2005 when it is damaged; SR-3001, SR-3002 or SR-3007
    /// when the file is no keyring, or a newer one; SR-5001 when it cannot be read.
    pub fn variables(&self) -> Result<Vec<String>, Error> {
        match &self.key {
            KeySource::Env(name) => Ok(vec![name.clone()]),
            KeySource::KeyId { .. } => {
                let named = self.context.keyring.clone();
                let status = Keyring::status(&named.unwrap_or_else(Keyring::default_path))?;
                let is_variable = status.provider == "env";
                Ok(is_variable
                    .then_some(status.provider_argument)
                    .into_iter()
                    .collect())
            }
            _ => Ok(Vec::new()),
        }
    }
}

/// Returns the source that the environment names, which `variable` reads: the first of `ID`, `ENV`,
/// `FILE`, `COMMAND` and `FD` after [`VARIABLE_PREFIX`], else [`KEY_VARIABLE`]. `None` if none is
/// set. Reads no key.
#[must_use]
pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Option<Source> {
    let named =
        |kind: &str| variable(&format!("{VARIABLE_PREFIX}{kind}")).filter(|v| !v.is_empty());
    let key = if let Some(id) = named("ID") {
        KeySource::KeyId { id }
    } else if let Some(name) = named("ENV") {
        KeySource::Env(name)
    } else if let Some(path) = named("FILE") {
        KeySource::File(PathBuf::from(path))
    } else if let Some(line) = named("COMMAND") {
        KeySource::Command(line)
    } else if let Some(fd) = named("FD") {
        // This path is opened anew by each reader, which then begins at the start.
        KeySource::File(PathBuf::from(format!("/proc/self/fd/{fd}")))
    } else {
        variable(KEY_VARIABLE)?;
        KeySource::Env(String::from(KEY_VARIABLE))
    };
    let keyring = variable(KEYRING_VARIABLE).map(PathBuf::from);
    Some(Source {
        key,
        context: SourceContext {
            keyring,
            ..SourceContext::default()
        },
    })
}

/// Returns the source that `strongroom.conf` in the data directory names. `None` when there is no
/// such file, or it names none. Reads no key.
///
/// # Errors
/// SR-7007 for a malformed or unknown line; SR-2019 for more than one source; SR-6022 for a command
/// in a file that belongs to another user than this one or root, or that others may write to;
/// SR-5001 when the system reports an error.
pub fn from_configuration(directory: &Path) -> Result<Option<Source>, Error> {
    let path = directory.join(CONFIG_FILE);
    let shown = || path.display().to_string();
    let (text, about) = match read(&path) {
        Ok(read) => read,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(shown(), error)),
    };
    let found = parse(&text)?;
    // The command runs before anything of the instance can be authenticated. A keyring has the
    // same
    // rule (K14).
    let runs = |source: &Source| matches!(source.key, KeySource::Command(_));
    if found.as_ref().is_some_and(runs) && !about.is_private() {
        return Err(Error::new(&code::KEY_COMMAND_FOREIGN, shown()));
    }
    Ok(found)
}

/// Reads the text and the metadata of a regular file. Does not wait for a pipe of that name.
/// Errors: the system's; `FileTooLarge` for more than 1 MiB, of which the end could name a second
/// source.
fn read(path: &Path) -> std::io::Result<(String, About)> {
    let (file, about) = open_regular(path, Link::Followed)?;
    Ok((text_of(file, CONFIGURATION_MAX)?, About::from(&about)))
}

/// Parses a configuration. `None` when it names no source. SR-7007 for a malformed or unknown line,
/// SR-2019 for more than one source.
fn parse(text: &str) -> Result<Option<Source>, Error> {
    let mut keys = Vec::new();
    let mut keyring = None;
    for (number, line) in (1_u32..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let invalid = || Error::new(&code::PG_KEY_OPTION, format!("line {number}"));
        let (name, value) = line.split_once('=').ok_or_else(invalid)?;
        let value = String::from(value.trim());
        match name.trim() {
            "key_id" => keys.push(KeySource::KeyId { id: value }),
            "key_env" => keys.push(KeySource::Env(value)),
            "key_file" => keys.push(KeySource::File(PathBuf::from(value))),
            "key_command" => keys.push(KeySource::Command(value)),
            "keyring" => keyring = Some(PathBuf::from(value)),
            _ => return Err(invalid()),
        }
    }
    if keys.len() > 1 {
        return Err(Error::new(&code::KEY_OPTION, CONFIG_FILE));
    }
    let context = SourceContext {
        keyring,
        ..SourceContext::default()
    };
    Ok(keys.pop().map(|key| Source { key, context }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(text: &str) -> Option<String> {
        parse(text).unwrap().map(|source| source.key.describe())
    }

    #[test]
    fn a_configuration_names_one_source() {
        assert_eq!(described("# nothing\n\n"), None);
        assert_eq!(described("key_file = /k\n").as_deref(), Some("file:/k"));
        assert_eq!(described("key_command=a = b").as_deref(), Some("command"));
        let with_keyring = parse("key_id = main\nkeyring = /r").unwrap().unwrap();
        assert_eq!(with_keyring.context.keyring, Some(PathBuf::from("/r")));
        for bad in ["key_fil = /k", "key_file", "key_file = /k\nkey_env = K"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_configuration_is_read_whole_or_not_at_all() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(CONFIG_FILE);
        let mut text = String::from("key_file = /k\n");
        text.push_str(&"#".repeat(1 << 20));
        text.push_str("\nkey_env = K\n");
        strongroom_keyring::durable::replace(&path, text.as_bytes(), 0o600).unwrap();
        let refused = from_configuration(place.path()).err().unwrap();
        assert_eq!(refused.code(), &code::IO);
    }

    #[test]
    fn the_shields_own_variables_come_before_the_common_one() {
        let both = |name: &str| match name {
            "PGENCRYPTIONKEY" | "STRONGROOM_PG_KEY_FILE" => Some(String::from("/k")),
            _ => None,
        };
        let source = from_environment(both).unwrap();
        assert_eq!(source.key.describe(), "file:/k");
        let common = |name: &str| (name == KEY_VARIABLE).then(|| String::from("00"));
        assert_eq!(
            from_environment(common).unwrap().key.describe(),
            "env:PGENCRYPTIONKEY"
        );
        assert!(from_environment(|_| None).is_none());
    }
}
