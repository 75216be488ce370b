//! `strongroom sqlite run --key-id NAME -- PROGRAM ...`: becomes that program, with the SQLite
//! extension loaded before it opens its first database.
//!
//! Invariants: the program learns where its key is, never the key; a typed key reaches it through
//! an inherited descriptor.
//!
//! Must not: change the program's arguments, streams or exit code; start a program that visibly
//! would write plain databases unnoticed.

use std::ffi::OsString;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use clap::Args;
use strongroom_format::code;
use strongroom_format::header::Cipher;
use strongroom_keyring::provider::COMMAND_VARIABLE;
use strongroom_keyring::{KeySource, Keyring, SourceContext};
use strongroom_launch::library;
use strongroom_launch::secret::{inheritable_secret, path_text, with_absolute_path};
use strongroom_sqlite::defaults::{DEFAULT_VARIABLE, EXISTING_PLAIN, KEY_FD, KEY_FD_NAME};
use strongroom_sqlite::program;

use super::format_options::{cipher, page_size};
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::key_options::KeyOptions;
use crate::keys;

/// The library's file name.
const LIBRARY: &str = "libstrongroom_sqlite_run.so";
/// The variable that names the library.
const LIBRARY_VARIABLE: &str = "STRONGROOM_SQLITE_RUN_LIB";

/// Run a program that uses SQLite: the databases that it opens and makes are sealed.
///
/// For programs that know nothing of Strongroom, and open databases by their paths: the sqlite3
/// shell, Datasette, sqlite-utils, litecli, or anything else that is linked to the system's SQLite,
/// and what such a program starts. A sealed database opens with the key, a new one is sealed for
/// it, and a plain one that exists is refused. What a program writes elsewhere, such as a history
/// of statements, is not sealed. The exit code is the program's.
#[derive(Args)]
#[command(after_help = tail!("  strongroom sqlite run --key-id app -- sqlite3 sealed.db"))]
pub(super) struct RunArgs {
    #[command(flatten)]
    key: KeyOptions,
    /// Open plain databases that exist too, as what they are
    #[arg(long)]
    existing_plain: bool,
    /// Cipher of databases that are made: gcm authenticates every page; ctr does not
    #[arg(long, value_name = "gcm|ctr", value_parser = cipher)]
    cipher: Option<Cipher>,
    /// Page size of databases that are made, in bytes, 512 to 65536 [default: 4096]
    #[arg(long, value_name = "N", value_parser = page_size)]
    page_size: Option<u32>,
    /// Keep a digest over all pages of databases that are made, so that verify finds an older copy
    /// of one
    #[arg(long)]
    freshness: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

impl RunArgs {
    /// Replaces this process by the program, with the SQLite extension preloaded and the key's
    /// source in its environment. The key is tried first, except one of a command, and a passphrase
    /// is asked for here.
    /// Returns only with an error: SR-2041 without a key; the errors of the key; SR-2286 if the
    /// library is not found; SR-2285 if the extension cannot be loaded into the program; SR-1006 or
    /// SR-5001 if it cannot be started.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let surroundings = SourceContext {
            keyring: Some(keys::absolute_keyring_path(context.keyring.clone())?),
            creating: false,
            prompt: String::new(),
        };
        let key = keys::required(self.key.clone(), "run")?;
        let key = with_absolute_path(key)?.settled(&surroundings)?;
        // A wrong name is reported before the program begins. A command is run by the program, and
        // would be run twice.
        if !matches!(key, KeySource::Command(_)) && !needs_terminal(&key, &surroundings)? {
            key.opener(&surroundings)?;
        }
        let preloaded = library::find(LIBRARY, LIBRARY_VARIABLE, &code::RUN_LIBRARY)?;
        let mut words = self.program.iter();
        let word = words.next().map(OsString::as_os_str).unwrap_or_default();
        let program = program::check(word)?;
        let (variable, _descriptor) = self.variable(&key, &surroundings)?;
        let mut command = Command::new(&program);
        command
            .args(words)
            .env("LD_PRELOAD", library::preload(&preloaded))
            .env(DEFAULT_VARIABLE, variable);
        if std::env::var_os(COMMAND_VARIABLE).is_none()
            && let Ok(own) = std::env::current_exe()
        {
            // Of the keyring's provider, for one that only this command has.
            command.env(COMMAND_VARIABLE, own);
        }
        context.output.flush()?;
        let error = command.exec();
        Err(Failure::open(&program, &error))
    }

    /// Returns the text of the environment variable from which the extension in the program learns
    /// its settings, and for a typed key the descriptor that holds it and must stay open until the
    /// program has started. Errors: SR-2019 if a value has several lines or is not UTF-8; SR-9001
    /// for a passphrase that was not asked for yet; SR-5001 when the system reports an error.
    fn variable(
        &self,
        key: &KeySource,
        context: &SourceContext,
    ) -> Result<(String, Option<OwnedFd>), Failure> {
        let mut lines = Vec::new();
        let mut descriptor = None;
        match key {
            KeySource::KeyId { id } => {
                lines.push(("key_id", id.clone()));
                if let Some(path) = &context.keyring {
                    lines.push(("keyring", path_text(path)?));
                }
            }
            KeySource::Env(variable) => lines.push(("key_env", variable.clone())),
            KeySource::File(path) => lines.push(("key_file", path_text(path)?)),
            KeySource::Command(line) => lines.push(("key_command", line.clone())),
            KeySource::Given(bytes) => {
                let inherited = inheritable_secret(KEY_FD_NAME, bytes.as_slice())?;
                lines.push((KEY_FD, inherited.as_raw_fd().to_string()));
                descriptor = Some(inherited);
            }
            KeySource::Ask => {
                return Err(Failure::new(&code::BUG, "a passphrase was not asked for"));
            }
        }
        if let Some(cipher) = self.cipher {
            lines.push(("cipher", cipher.name().to_owned()));
        }
        if let Some(size) = self.page_size {
            lines.push(("page_size", size.to_string()));
        }
        for (name, on) in [
            ("freshness", self.freshness),
            (EXISTING_PLAIN, self.existing_plain),
        ] {
            if on {
                lines.push((name, "1".to_owned()));
            }
        }
        let mut text = String::new();
        for (name, value) in lines {
            if value.contains(['\n', '\r']) {
                let detail = format!("{name}: it has several lines");
                return Err(Failure::new(&code::KEY_OPTION, detail));
            }
            text.push_str(&format!("{name} {value}\n"));
        }
        Ok((text, descriptor))
    }
}

/// Returns whether the keyring's root key is a typed passphrase. The key is then not tried here,
/// because the program would ask for it again. False for a key from elsewhere; SR-2004 if there is
/// no keyring.
fn needs_terminal(key: &KeySource, context: &SourceContext) -> Result<bool, Failure> {
    let (KeySource::KeyId { .. }, Some(path)) = (key, &context.keyring) else {
        return Ok(false);
    };
    Ok(Keyring::status(path)?.provider == "passphrase")
}
