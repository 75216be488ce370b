//! `strongroom duckdb key NAME`: writes the text that represents a key of the keyring in DuckDB.
//!
//! Must not: write it to a terminal.

use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;

use clap::Args;
use strongroom_duckdb::KeyText;
use strongroom_format::code;

use super::keys;
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Write the text that DuckDB is to get as `ENCRYPTION_KEY` for a key of the keyring, into a pipe.
///
/// It is Base64 of 32 bytes derived from the key: what --key-id and --new-key-id stand for. It is
/// not written to a terminal.
#[derive(Args)]
#[command(after_help = tail!("  strongroom duckdb key app | python3 load.py"))]
pub(super) struct KeyArgs {
    /// The key's name
    #[arg(value_name = "NAME")]
    name: String,
    /// This version of it, not the newest
    #[arg(long, value_name = "N")]
    key_version: Option<u32>,
}

impl KeyArgs {
    /// Writes the secret text that DuckDB takes for this key of the keyring, and a line end, to
    /// standard output, without buffers that are not wiped. SR-1001 if standard output is a
    /// terminal, SR-2003 if there is no such key or version, SR-2012 if it is retired and no
    /// version is named; the errors of the keyring.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let out = std::io::stdout();
        if out.is_terminal() {
            let detail = "a key is not written to a terminal; use a pipe";
            return Err(Failure::new(&code::USAGE, detail));
        }
        let key = keys::keyring(context)?.key(&self.name, self.key_version)?;
        let text = KeyText::text_of_keyring_key(&key)?;
        // Not through standard output's buffers, which are not wiped.
        let unbuffered = out.as_fd().try_clone_to_owned().map(File::from);
        let written = unbuffered.and_then(|mut pipe| {
            pipe.write_all(text.as_slice())?;
            pipe.write_all(b"\n")
        });
        written.map_err(|error| Failure::output(&error))
    }
}
