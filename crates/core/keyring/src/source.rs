//! Where key material comes from: the common key options of every command and of every guard.
//!
//! Invariants: K1, what a source delivers goes straight into locked memory and is wiped when it has
//! become an opener; K2, nothing here tells a value, only the name of its source.
//!
//! Must not: take a secret from argv; know an object.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use zeroize::Zeroize;

use crate::command;
use crate::error::Error;
use crate::keyring::Keyring;
use crate::material::{MATERIAL_MAX, interpret, without_newline};
use crate::opener::Opener;
use crate::storage::About;
use crate::terminal;

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

/// What a source needs to know beside itself.
#[derive(Clone, Debug, Default)]
pub struct SourceContext {
    /// The keyring; `None` means [`Keyring::default_path`].
    pub keyring: Option<PathBuf>,
    /// Whether something is created with the key: asks twice, and refuses a retired key.
    pub creating: bool,
    /// What a passphrase is asked for with, without the colon; empty means "Passphrase".
    pub prompt: String,
}

/// From now on nothing of this process asks at a terminal: every source and provider that would,
/// whatever its default is, fails with SR-1004. For work that nobody attends to; a question has no
/// time limit.
pub fn ask_nobody() {
    terminal::ask_nobody();
}

impl KeySource {
    /// Fetches the material and makes an opener of it.
    ///
    /// # Errors
    /// SR-2003 to SR-2012 by source, SR-1004 without a terminal, SR-5001.
    pub fn opener(&self, context: &SourceContext) -> Result<Opener, Error> {
        match self {
            Self::KeyId { id } => {
                let path = context
                    .keyring
                    .clone()
                    .unwrap_or_else(Keyring::default_path);
                Keyring::open(&path)?.opener(id, context.creating)
            }
            Self::Env(variable) => interpret(&from_env(variable)?),
            Self::File(path) => interpret(&key_file(path)?),
            Self::Command(line) => interpret(&command::output(line)?),
            Self::Ask => interpret(&terminal::ask(&context.prompt, context.creating)?),
            Self::Given(bytes) => interpret(bytes),
        }
        .map_err(|error| match (self, error.code()) {
            // Which of several sources delivered nonsense.
            (Self::Env(_) | Self::File(_), code) if code == &code::KEY_MALFORMED => {
                error.about(self.describe())
            }
            _ => error,
        })
    }

    /// Fetches a passphrase for a file of another format, as text: one trailing line end is
    /// dropped, nothing else is looked for in it.
    ///
    /// # Errors
    /// SR-2019 for a key of the keyring; SR-2042 when it is empty or longer than 1 KiB, is not
    /// UTF-8, or holds a zero byte; what the source reports.
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

    /// Asks now, when asking is the source: what was typed becomes the source, so that it can be
    /// used more than once and handed to other processes. Every other source stays as it is, and is
    /// not looked at.
    ///
    /// # Errors
    /// SR-1004, SR-2001 (cancelled), SR-2011 (the two entries differ).
    pub fn settled(self, context: &SourceContext) -> Result<Self, Error> {
        match self {
            Self::Ask => terminal::ask(&context.prompt, context.creating).map(Self::Given),
            other => Ok(other),
        }
    }

    /// The source in words, without a secret. A command line is not shown: it may hold one.
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

/// Key files that were read and that other users may read.
static OPEN_FILES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// The key files that this process has read since it was asked last, and that other users may read
/// too: worth a warning. Not refused: a server whose key has lain so would not start any more.
#[must_use]
pub fn take_open_files() -> BTreeSet<PathBuf> {
    std::mem::take(&mut *OPEN_FILES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Longest passphrase of a PKCS #12 or PEM file, in bytes: what other programs read.
const TEXT_MAX: usize = 1024;

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

/// The variable's value. The process's own environment block keeps its copy: nobody but the user
/// can change that.
fn from_env(variable: &str) -> Result<SecretBytes, Error> {
    let usable = !variable.is_empty() && !variable.contains(['=', '\0']);
    let value = usable.then(|| std::env::var_os(variable)).flatten();
    let mut bytes = value
        .map(OsString::into_vec)
        .ok_or_else(|| Error::new(&code::KEY_ENV, variable))?;
    SecretBytes::take(&mut bytes).map_err(|_| too_long())
}

/// As [`from_file`], of a key; a file that others may read is remembered.
///
/// # Errors
/// SR-2007 when it cannot be read; SR-2003 when it is longer than 64 KiB.
pub fn key_file(path: &Path) -> Result<SecretBytes, Error> {
    let (key, about) = read_file(path)?;
    // Neither a pipe nor memory without a name, which nobody else can open.
    if about.is_file() && about.nlink() > 0 && About::from(&about).is_readable_by_others() {
        let mut open = OPEN_FILES.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert(path.to_path_buf());
    }
    Ok(key)
}

pub(crate) fn from_file(path: &Path) -> Result<SecretBytes, Error> {
    read_file(path).map(|(bytes, _)| bytes)
}

fn read_file(path: &Path) -> Result<(SecretBytes, Metadata), Error> {
    let failed = |error| Error::caused(&code::KEY_FILE, path.display().to_string(), error);
    let file = File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if about.is_dir() {
        let detail = format!("{} is a directory", path.display());
        return Err(Error::new(&code::KEY_FILE, detail));
    }
    let mut collected = Collected::new()?;
    // `File` does not buffer: the kernel writes into locked memory. Reading ends at the limit at
    // the latest.
    while collected.read_from(&file).map_err(failed)? {
        if collected.is_too_long() {
            return Err(too_long());
        }
    }
    Ok((collected.finish()?, about))
}

pub(crate) fn too_long() -> Error {
    Error::new(&code::KEY_MALFORMED, "longer than 64 KiB")
}

/// Material being read: locked memory for all that is allowed, and one byte more that tells too
/// much.
pub(crate) struct Collected {
    bytes: SecretBytes,
    filled: usize,
    beyond: bool,
}

impl Collected {
    pub(crate) fn new() -> Result<Self, Error> {
        Ok(Self {
            bytes: SecretBytes::with_capacity(MATERIAL_MAX)?,
            filled: 0,
            beyond: false,
        })
    }

    /// Reads once. False at the end of the input.
    pub(crate) fn read_from(&mut self, mut input: impl Read) -> std::io::Result<bool> {
        let mut probe = [0_u8; 1];
        let free = self
            .bytes
            .as_mut_slice()
            .get_mut(self.filled..)
            .unwrap_or_default();
        let full = free.is_empty();
        let outcome = input.read(if full { &mut probe } else { free });
        probe.zeroize();
        match outcome {
            Ok(0) => Ok(false),
            Ok(_) if full => {
                self.beyond = true;
                Ok(true)
            }
            Ok(count) => {
                self.filled = self.filled.saturating_add(count);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.filled == 0
    }

    pub(crate) fn is_too_long(&self) -> bool {
        self.beyond
    }

    /// What was read, in a cell of its own size, so that 64 KiB of locked memory are free again.
    pub(crate) fn finish(mut self) -> Result<SecretBytes, Error> {
        self.bytes.truncate(self.filled);
        let mut exact = SecretBytes::with_capacity(self.filled)?;
        exact.as_mut_slice().copy_from_slice(self.bytes.as_slice());
        Ok(exact)
    }
}
