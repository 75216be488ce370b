//! The key source that is used for an instance, how programs get it, and how it is stored for
//! unattended starts.
//!
//! The order is that of the preload library: a key option; the environment (`STRONGROOM_PG_KEY_*`,
//! then `PGENCRYPTIONKEY`); `strongroom.conf` in the data directory.
//!
//! Invariants:
//! 1. A key is typed once, kept in locked memory, and passed on through an inherited descriptor
//!    only.
//! 2. The configuration is replaced whole. It names a source and never holds a key.
//!
//! Must not: print a command line or a key.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use strongroom_format::code;
use strongroom_format::header::ObjectKind;
use strongroom_format::postgres::CONFIG_FILE;
use strongroom_keyring::provider::COMMAND_VARIABLE;
use strongroom_keyring::{Error, KeySource, Keyring, Object, Opener, SourceContext, durable};
use strongroom_launch::secret::{inheritable_secret, path_text, with_absolute_path};
use strongroom_postgres_shield::instance::{self, Instance};
use strongroom_postgres_shield::source;

use crate::directory::Directory;

/// What the user named by options.
#[derive(Default)]
pub struct GivenKey {
    /// Where the key comes from.
    pub key: Option<KeySource>,
    /// The keyring; `None` for the default one.
    pub keyring: Option<PathBuf>,
}

/// A key source, and where it was named.
pub struct ChosenKey {
    key: KeySource,
    context: SourceContext,
    origin: Origin,
}

/// Who named the source.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Option,
    Environment,
    Configuration,
}

/// What a program needs in its environment to find the key. The descriptor must stay open until it
/// has started.
pub(crate) struct KeyHandover {
    pub(crate) variables: Vec<(String, String)>,
    _descriptor: Option<OwnedFd>,
}

impl ChosenKey {
    /// Returns the key source for an existing instance: a key option, the environment, or the
    /// instance's configuration. `None` when nothing names one. A passphrase of an option is asked
    /// for here, at the terminal.
    ///
    /// # Errors
    /// SR-7007, SR-2019 and SR-6022 for a configuration that is not valid; SR-1004 without a
    /// terminal to ask for a passphrase, SR-2001 if the person cancels; SR-5001 when the system
    /// reports an error.
    pub fn find(given: GivenKey, directory: &Directory) -> Result<Option<Self>, Error> {
        if let Some(chosen) = Self::named(given, &directory.shown(), false)? {
            return Ok(Some(chosen));
        }
        let own = source::from_configuration(&directory.path)
            .map_err(|error| error.with_prefix(&format!("{}: ", directory.shown())))?;
        Ok(own.map(|own| Self {
            key: own.key,
            context: own.context,
            origin: Origin::Configuration,
        }))
    }

    /// Returns the key source that a key option, the environment or the instance's configuration
    /// names. A passphrase of an option is asked for here.
    ///
    /// # Errors
    /// SR-2001 when nothing names one; as [`Self::find`].
    pub fn required(given: GivenKey, directory: &Directory) -> Result<Self, Error> {
        let missing = || directory.failure(&code::NO_KEY, "nor does its configuration name one");
        Self::find(given, directory)?.ok_or_else(missing)
    }

    /// Returns the key source for an instance that is to be made: a key option or the environment.
    /// A passphrase is asked for here, twice.
    ///
    /// # Errors
    /// SR-2041 when nothing names one; SR-1004 without a terminal to ask for a passphrase, SR-2001
    /// if the person cancels, SR-2011 if the two entries differ; SR-5001 when the system reports an
    /// error.
    pub fn for_new(given: GivenKey, directory: &Directory) -> Result<Self, Error> {
        Self::named(given, &directory.shown(), true)?.ok_or_else(|| {
            let detail = "a new instance needs one; the variable PGENCRYPTIONKEY can hold it too";
            Error::new(&code::KEY_NONE, detail)
        })
    }

    /// Returns the key source for an instance that a restore makes at `shown`: an option or the
    /// environment. A passphrase is asked for here, twice.
    ///
    /// # Errors
    /// SR-2041 when nothing names one; SR-1004 without a terminal; SR-2001 if the passphrase was
    /// not typed; SR-2011 if the two entries differ.
    pub fn for_restored(given: GivenKey, shown: &str) -> Result<Self, Error> {
        Self::named(given, shown, true)?.ok_or_else(|| {
            let detail = "--sealed needs one of --instance-key-id, --instance-key-env, --instance-key-file, \
                          --instance-key-command, --instance-ask, or PGENCRYPTIONKEY";
            Error::new(&code::KEY_NONE, detail)
        })
    }

    /// Returns the key source that is to open the instance from now on; `None` when the options
    /// name none. A new passphrase is asked for here, twice.
    ///
    /// # Errors
    /// SR-1004 without a terminal; SR-2001 if the passphrase was not typed; SR-2011 if the two
    /// entries differ.
    pub fn for_rotation(given: GivenKey, directory: &Directory) -> Result<Option<Self>, Error> {
        let prompt = format!("New passphrase of {}", directory.shown());
        Self::of_options(given, prompt, true)
    }

    /// Returns the key source that an option names, or else the one that the environment names;
    /// `None` when neither does. For `--ask` the passphrase is asked for at the terminal here, with
    /// `shown` (the instance's path) in the prompt, and twice if `creating`, for a new instance.
    /// Nothing else is fetched. SR-1004 without a terminal; SR-2001 if cancelled; SR-2011 if the
    /// two entries differ; SR-5001 when the system reports an error.
    fn named(given: GivenKey, shown: &str, creating: bool) -> Result<Option<Self>, Error> {
        let prompt = format!("Passphrase of {shown}");
        if let Some(chosen) = Self::of_options(given, prompt, creating)? {
            return Ok(Some(chosen));
        }
        let variable = |name: &str| std::env::var(name).ok();
        Ok(source::from_environment(variable).map(|found| Self {
            key: found.key,
            context: SourceContext {
                creating,
                ..found.context
            },
            origin: Origin::Environment,
        }))
    }

    /// Returns the key source that an option names, `None` when none does. A passphrase is asked
    /// for here, with `prompt`, and twice when `creating`. SR-1004 without a terminal; SR-2001 if
    /// cancelled; SR-2011 if the two entries differ; SR-5001 without a working directory.
    fn of_options(given: GivenKey, prompt: String, creating: bool) -> Result<Option<Self>, Error> {
        let Some(key) = given.key else {
            return Ok(None);
        };
        let surroundings = SourceContext {
            keyring: Some(absolute_keyring_path(given.keyring)?),
            creating,
            prompt,
        };
        Ok(Some(Self {
            key: with_absolute_path(key)?.settled(&surroundings)?,
            context: surroundings,
            origin: Origin::Option,
        }))
    }

    /// Fetches the key from its source: reads a variable or a file, runs a command, or opens the
    /// keyring, which asks its provider.
    ///
    /// # Errors
    /// Those of the source ([`KeySource::opener`]), such as SR-2008 for a variable that is not set,
    /// SR-2007 for a file that cannot be read, SR-2009 for a command that fails.
    pub fn opener(&self) -> Result<Opener, Error> {
        self.key.opener(&self.context)
    }

    /// Fetches the key and opens the instance with it, so that its files can be read.
    ///
    /// # Errors
    /// SR-2002 when the key does not open the header; SR-7003 while a conversion is unfinished;
    /// SR-3001 to SR-3007 for a header that is not valid; those of the key's source
    /// ([`Self::opener`]).
    pub fn instance(&self, directory: &Directory) -> Result<Instance, Error> {
        let about = |error: Error| error.with_prefix(&format!("{}: ", directory.shown()));
        // The header first: its faults are reported without a key.
        instance::header(&directory.path).map_err(about)?;
        Instance::open(&directory.path, &[], &self.opener()?).map_err(about)
    }

    /// Fetches the key and opens the instance's header with it.
    ///
    /// # Errors
    /// SR-2002 when the key does not open it; SR-3001 to SR-3007 for a header that is not valid;
    /// those of the key's source ([`Self::opener`]).
    pub fn open(&self, directory: &Directory) -> Result<Object, Error> {
        let about = |error: Error| error.with_prefix(&format!("{}: ", directory.shown()));
        let header = instance::header(&directory.path).map_err(about)?;
        let opener = self.opener()?;
        Object::open(&header, ObjectKind::Postgres, &opener).map_err(about)
    }

    /// Returns whether this source is the one that the instance's own configuration names.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.origin == Origin::Configuration
    }

    /// Returns whether the key can be had without running a program, asking anybody or opening a
    /// keyring.
    #[must_use]
    pub fn is_at_hand(&self) -> bool {
        matches!(self.key, KeySource::Env(_) | KeySource::File(_))
    }

    /// Returns the variables that programs need in their environment to find the key: none when
    /// they find it by themselves. A typed key is put into a descriptor that they inherit, and that
    /// the result keeps open.
    ///
    /// # Errors
    /// SR-1004 when the keyring's root key is a passphrase, which a server has nobody to ask for;
    /// SR-2019 for a path that is not UTF-8; those of reading the keyring's file, such as SR-2004
    /// without one; SR-5001 when the system reports an error.
    pub(crate) fn for_server(&self) -> Result<KeyHandover, Error> {
        let mut handed = KeyHandover {
            variables: Vec::new(),
            _descriptor: None,
        };
        self.check_keyring()?;
        if matches!(self.key, KeySource::KeyId { .. })
            && std::env::var_os(COMMAND_VARIABLE).is_none()
        {
            // Of the keyring's provider, for one that only this command has.
            if let Ok(command) = std::env::current_exe() {
                let command = (String::from(COMMAND_VARIABLE), path_text(&command)?);
                handed.variables.push(command);
            }
        }
        if self.origin != Origin::Option {
            return Ok(handed);
        }
        let (kind, value) = match &self.key {
            KeySource::KeyId { id } => {
                let keyring = self.context.keyring.as_deref().map(path_text).transpose()?;
                let name = String::from(source::KEYRING_VARIABLE);
                handed.variables.extend(keyring.map(|path| (name, path)));
                ("ID", id.clone())
            }
            KeySource::Env(variable) => ("ENV", variable.clone()),
            KeySource::File(path) => ("FILE", path_text(path)?),
            KeySource::Command(line) => ("COMMAND", line.clone()),
            KeySource::Given(bytes) => {
                let descriptor = inheritable_secret("strongroom", bytes.as_slice())?;
                let number = descriptor.as_raw_fd().to_string();
                handed._descriptor = Some(descriptor);
                ("FD", number)
            }
            KeySource::Ask => {
                return Err(Error::new(&code::BUG, "a passphrase was not asked for"));
            }
        };
        let name = format!("{}{kind}", source::VARIABLE_PREFIX);
        handed.variables.push((name, value));
        Ok(handed)
    }

    /// Refuses with SR-1004 a keyring whose root key is a passphrase, because a server has no
    /// terminal to ask for it at. Also the errors of reading the keyring, such as SR-2004 without
    /// one.
    fn check_keyring(&self) -> Result<(), Error> {
        if !matches!(self.key, KeySource::KeyId { .. }) {
            return Ok(());
        }
        let path = absolute_keyring_path(self.context.keyring.clone())?;
        if Keyring::status(&path)?.provider != "passphrase" {
            return Ok(());
        }
        let detail = format!(
            "{}: the root key of this keyring is a passphrase, and the server has nobody to ask; give it another \
             provider with `strongroom keyring rotate-root`",
            path.display()
        );
        Err(Error::new(&code::NO_TERMINAL, detail))
    }

    /// Returns whether the server can find this source by itself: not a typed key.
    #[must_use]
    pub fn is_unattended(&self) -> bool {
        !matches!(self.key, KeySource::Given(_) | KeySource::Ask)
    }

    /// Returns the text of `strongroom.conf` for this source. A typed key is no error: the text
    /// then names no source, and says only that a passphrase is asked for. Writes nothing.
    ///
    /// # Errors
    /// SR-2019 when the source's name, path or command is empty, has several lines or blanks around
    /// it, or a path is not UTF-8; SR-1004 when the keyring's root key is a passphrase, which a
    /// server has nobody to ask for; those of reading the keyring's file, such as SR-2004 without
    /// one; SR-5001 without a working directory.
    pub fn configuration(&self) -> Result<String, Error> {
        self.check_keyring()?;
        let mut out = String::from(
            "# Where the key of this instance comes from: `name = value`, one of key_id, key_env, key_file, key_command.\n\
             # The key itself must not stand here. Documentation: docs/reference/pg.md.\n",
        );
        let mut line = |name: &str, value: String| {
            // As the reader sees it: trimmed, one line.
            if value.trim() != value || value.is_empty() || value.contains(['\n', '\r']) {
                let detail =
                    format!("{name}: begins or ends with a blank, is empty, or has several lines");
                return Err(Error::new(&code::KEY_OPTION, detail));
            }
            out.push_str(&format!("{name} = {value}\n"));
            Ok(())
        };
        match &self.key {
            KeySource::KeyId { id } => {
                line("key_id", id.clone())?;
                let keyring = self.context.keyring.clone();
                line("keyring", path_text(&absolute_keyring_path(keyring)?)?)?;
            }
            KeySource::Env(variable) => line("key_env", variable.clone())?,
            KeySource::File(path) => line("key_file", path_text(path)?)?,
            KeySource::Command(command) => line("key_command", command.clone())?,
            KeySource::Ask | KeySource::Given(_) => {
                out.push_str("# A passphrase, asked for by `strongroom pg start --ask`.\n");
            }
        }
        Ok(out)
    }
}

/// Returns the path of the keyring, made absolute without resolving links; the default one when
/// none is named. SR-5001 without a working directory.
fn absolute_keyring_path(named: Option<PathBuf>) -> Result<PathBuf, Error> {
    let path = named.unwrap_or_else(Keyring::default_path);
    std::path::absolute(&path).map_err(|e| Error::on_path(&path, e))
}

/// Writes the configuration whole and durably, in place of an older one. It belongs to the data
/// directory's owner, because that is who this process is; the group may read it where it may read
/// the directory.
///
/// # Errors
/// SR-5001 when the system reports an error.
pub fn configure(directory: &Path, text: &str) -> Result<(), Error> {
    let path = directory.join(CONFIG_FILE);
    let io = |error: std::io::Error| Error::on_path(&path, error);
    let about = std::fs::metadata(directory).map_err(io)?;
    let mode = if about.mode() & 0o040 != 0 {
        0o640
    } else {
        0o600
    };
    durable::replace(&path, text.as_bytes(), mode).map_err(io)
}
