//! A provider that this program does not have is asked through the `strongroom` command, which has
//! it.
//!
//! The preload library of the PostgreSQL shield and the SQLite extension are loaded into other
//! programs and carry no clients of servers and modules. Where [`COMMAND_VARIABLE`] names the
//! command, it is run as a key command is: with the number and the argument, which are no secrets,
//! and the root key on its standard output.
//!
//! Must not: be used in the command itself, which would run itself without end.

use std::path::Path;

use strongroom_format::code;

use super::kind::RootProvider;
use crate::command;
use crate::error::Error;
use crate::material::interpret;
use crate::opener::Opener;

/// The variable that holds the absolute path of the `strongroom` command.
pub use strongroom_format::run::COMMAND_VARIABLE;
/// The first argument of the command for this; number and argument follow.
const FETCH: &str = "--provider-fetch";

struct Elsewhere {
    name: &'static str,
    number: u16,
    argument: String,
    line: String,
}

/// Makes a provider that runs the `strongroom` command, which has the kind. `None` when
/// [`COMMAND_VARIABLE`] is not set or empty. Errors: SR-2019 when it is not an absolute path. Runs
/// nothing yet.
pub(super) fn through_command(
    number: u16,
    name: &'static str,
    argument: &str,
) -> Result<Option<Box<dyn RootProvider>>, Error> {
    let Some(program) = std::env::var_os(COMMAND_VARIABLE).filter(|path| !path.is_empty()) else {
        return Ok(None);
    };
    let program = program
        .to_str()
        .filter(|path| Path::new(path).is_absolute())
        .ok_or_else(|| {
            let detail = format!("{COMMAND_VARIABLE} must be an absolute path");
            Error::new(&code::KEY_OPTION, detail)
        })?;
    let line = format!(
        "exec {} {FETCH} {number} {}",
        quoted(program),
        quoted(argument)
    );
    Ok(Some(Box::new(Elsewhere {
        name,
        number,
        argument: argument.to_owned(),
        line,
    })))
}

/// Quotes a word for the shell, in single quotes.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

impl RootProvider for Elsewhere {
    /// Returns the name of the kind that the command has.
    fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the number of that kind.
    fn number(&self) -> u16 {
        self.number
    }

    /// Returns the argument of that kind, as the keyring has it.
    fn argument(&self) -> &str {
        &self.argument
    }

    /// Runs the `strongroom` command, and makes the root key of what it prints. Errors: SR-2100
    /// with `creating`, because only that command can make the root key; SR-2009 when the command
    /// cannot be run or fails; SR-2010 when it takes too long; SR-2011 when it prints no key;
    /// SR-2043 for an invalid time limit in the environment; SR-5001 when the system reports an
    /// error.
    fn fetch(&self, creating: bool) -> Result<Opener, Error> {
        if creating {
            return Err(Error::new(&code::PROVIDER_ELSEWHERE, self.name));
        }
        interpret(&command::output(&self.line)?)
    }
}

#[cfg(test)]
mod tests {
    use strongroom_crypto::SecretBytes;

    use super::*;

    #[test]
    fn a_word_stays_one_word() {
        for word in ["", "a b", "it's", "$(id)", "';id;'", "a\\b\"c"] {
            let line = format!("printf %s {}", quoted(word));
            let printed = command::output(&line).unwrap();
            assert_eq!(printed.as_slice(), word.as_bytes());
        }
    }

    #[test]
    fn what_is_delivered_is_read_as_the_same_key() {
        let raw = Opener::raw(strongroom_crypto::SecretKey::take(&mut [b'a'; 32]).unwrap());
        let again = interpret(&raw.as_material().unwrap()).unwrap();
        assert_eq!(again.kind_name(), "raw");
        let mut long = [0xff; 31];
        long[30] = b'\n';
        let passphrases: [&[u8]; 9] = [
            b"x",
            b"x\n",
            b"x\r",
            b"x\r\n",
            &long,
            &[0xff; 31],
            &[b'a'; 32],
            &[0xff; 30],
            b"x\n\n",
        ];
        for text in passphrases {
            let given = SecretBytes::take(&mut text.to_vec()).unwrap();
            let material = Opener::passphrase(given).as_material().unwrap();
            let again = interpret(&material).unwrap();
            assert_eq!(again.kind_name(), "passphrase");
            let back = again.as_material().unwrap();
            assert_eq!(back.as_slice(), material.as_slice(), "{text:?}");
            assert!(back.as_slice().starts_with(text));
        }
    }
}
