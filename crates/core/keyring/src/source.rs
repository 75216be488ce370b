//! Where key material comes from: the key options that every command, the VFS and the shield have.
//!
//! Invariants: K1, what a source delivers goes straight into locked memory and is wiped when it has
//! become an opener; K2, nothing here shows a value, only the name of its source.
//!
//! Must not: take a secret from argv; know an object.

use std::path::PathBuf;

use strongroom_crypto::SecretBytes;
use strongroom_format::code;

use crate::command;
use crate::error::Error;
use crate::key_input::{from_env, opener_from_env, opener_from_file};
use crate::keyring::Keyring;
use crate::material::{interpret, without_newline};
use crate::opener::Opener;
use crate::terminal;

pub use crate::key_input::{key_file, take_open_files};

/// Where key material comes from.
pub enum KeySource {
    /// A key of the keyring.
    KeyId {
        /// The key's name.
        id: String,
    },
    /// The value of an environment variable.
    Env(String),
    /// The contents of a file.
    File(PathBuf),
    /// What a shell command prints on standard output.
    Command(String),
    /// A passphrase typed at the terminal; twice when something is created with it.
    Ask,
    /// Bytes that the application gave, as a bound parameter or by `PRAGMA`.
    Given(SecretBytes),
}

/// The circumstances under which a source is asked.
#[derive(Clone, Debug, Default)]
pub struct SourceContext {
    /// The keyring; `None` means [`Keyring::default_path`].
    pub keyring: Option<PathBuf>,
    /// Whether something is created with the key: a passphrase is then asked for twice, and a
    /// retired key is refused.
    pub creating: bool,
    /// The prompt for a passphrase, without the colon; empty means "Passphrase".
    pub prompt: String,
}

/// Forbids questions: from now on every source and provider of this process that would ask at a
/// terminal fails with SR-1004 instead. For unattended work, because a question has no time limit.
pub fn ask_nobody() {
    terminal::ask_nobody();
}

impl KeySource {
    /// Fetches the material from the source, and makes an opener of it. Depending on the source
    /// this reads a variable or a file, runs a command, asks at the terminal, or opens the keyring,
    /// which asks its provider.
    ///
    /// # Errors
    /// SR-2011 for material that is empty, too long or malformed, from any source. Key of the
    /// keyring: as [`Keyring::open`] and [`Keyring::opener`], such as SR-2004 without a keyring,
    /// SR-2003 without such a key, SR-2012 for a retired one. SR-2008 for a variable that is not
    /// set; SR-2007 for a file that cannot be read. Command: SR-2009 when it fails, SR-2010 when it
    /// takes too long, SR-2043 for a time limit that is not valid. SR-1004 without a terminal to
    /// ask at, SR-2001 if the person cancels. SR-5001 when the system reports an error.
    pub fn opener(&self, context: &SourceContext) -> Result<Opener, Error> {
        match self {
            Self::KeyId { id } => {
                let path = context
                    .keyring
                    .clone()
                    .unwrap_or_else(Keyring::default_path);
                Keyring::open(&path)?.opener(id, context.creating)
            }
            Self::Env(variable) => opener_from_env(variable),
            Self::File(path) => opener_from_file(path),
            Self::Command(line) => interpret(&command::output(line)?),
            Self::Ask => interpret(&terminal::ask(&context.prompt, context.creating)?),
            Self::Given(bytes) => interpret(bytes),
        }
    }

    /// Fetches a passphrase for a file of another format, as text. Drops one trailing line end;
    /// does not apply the rule of `material.rs`, so hexadecimal digits stay text.
    ///
    /// # Errors
    /// SR-2019 for a key of the keyring; SR-2042 when the text is empty or longer than 1 KiB, is
    /// not UTF-8, or holds a zero byte; what the source reports, as for [`Self::opener`]; SR-5001
    /// when the system reports an error.
    pub fn passphrase(&self, context: &SourceContext) -> Result<SecretBytes, Error> {
        let given = match self {
            Self::KeyId { .. } => {
                let detail = "a passphrase is needed, not a key of the keyring";
                return Err(Error::new(&code::KEY_OPTION, detail));
            }
            Self::Env(variable) => from_env(variable)?,
            Self::File(path) => key_file(path)?,
            Self::Command(line) => command::output(line)?,
            Self::Ask => terminal::ask(&context.prompt, context.creating)?,
            Self::Given(bytes) => return as_text(bytes),
        };
        as_text(&given).map_err(|error| match self {
            // Which of several sources delivered nonsense.
            Self::Env(_) | Self::File(_) => error.about(self.describe()),
            _ => error,
        })
    }

    /// Asks at the terminal now if this is [`KeySource::Ask`], and returns [`KeySource::Given`]
    /// with what was typed, which can be used more than once and handed to other processes. Returns
    /// any other source unchanged, and fetches nothing.
    ///
    /// # Errors
    /// For [`KeySource::Ask`] only: SR-1004 without a terminal, SR-2001 (cancelled), SR-2011 (the
    /// two entries differ), SR-5001 when the system reports an error.
    pub fn settled(self, context: &SourceContext) -> Result<Self, Error> {
        match self {
            Self::Ask => terminal::ask(&context.prompt, context.creating).map(Self::Given),
            other => Ok(other),
        }
    }

    /// Names the source for output, such as `env:NAME`, `file:PATH`, `key-id:NAME`, `command`,
    /// `ask` or `given`. Shows no secret, and therefore no command line.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::KeyId { id } => format!("key-id:{id}"),
            Self::Env(variable) => format!("env:{variable}"),
            Self::File(path) => format!("file:{}", path.display()),
            Self::Command(_) => String::from("command"),
            Self::Ask => String::from("ask"),
            Self::Given(_) => String::from("given"),
        }
    }
}

/// Longest passphrase of a PKCS #12 or PEM file, in bytes: other programs read no longer one.
const TEXT_MAX: usize = 1024;

/// Checks a passphrase that has to be text, and copies it into locked memory without one trailing
/// line end. Errors: SR-2042 when it is empty, longer than 1024 bytes, not UTF-8, or contains a
/// zero byte; SR-5001 when the system reports an error.
fn as_text(given: &SecretBytes) -> Result<SecretBytes, Error> {
    let text = without_newline(given.as_slice());
    let wrong = match text {
        [] => Some("it is empty"),
        text if text.len() > TEXT_MAX => Some("it is longer than 1024 bytes"),
        text if text.contains(&0) => Some("there is a zero byte in it"),
        text => std::str::from_utf8(text).err().map(|_| "it is not UTF-8"),
    };
    if let Some(wrong) = wrong {
        return Err(Error::new(&code::PASSPHRASE_TEXT, wrong));
    }
    let mut copy = SecretBytes::with_capacity(text.len())?;
    copy.as_mut_slice().copy_from_slice(text);
    Ok(copy)
}
