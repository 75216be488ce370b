//! Shows a new recovery key once: on the terminal with a QR code, or in a file that only its owner
//! can read.
//!
//! Must not: write it to standard output or standard error, which may go into a log.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use qrcode::QrCode;
use qrcode::render::unicode::Dense1x2;
use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::paths;
use strongroom_volume::secret::new_recovery_key;
use zeroize::Zeroizing;

use crate::failure::Failure;

const TERMINAL: &str = "/dev/tty";

/// Where the recovery key goes.
#[derive(Args, Clone, Default)]
pub(super) struct RecoveryOptions {
    /// Write the recovery key into this new file (mode 0600) instead of showing it on the terminal
    #[arg(long, value_name = "FILE")]
    pub(super) recovery_out: Option<PathBuf>,
}

/// A place for a recovery key, which was checked before there is a key.
pub(super) enum Shown {
    Terminal,
    File(PathBuf),
}

impl RecoveryOptions {
    /// Finds the terminal or the file; fails early without one.
    pub(super) fn place(&self) -> Result<Shown, Failure> {
        if let Some(path) = &self.recovery_out {
            paths::check_new(path)?;
            return Ok(Shown::File(path.clone()));
        }
        let terminal = OpenOptions::new().read(true).write(true).open(TERMINAL);
        terminal
            .map(|_| Shown::Terminal)
            .map_err(|error| Failure::new(&code::VOLUME_UNSEEN, format!("{TERMINAL}: {error}")))
    }
}

impl Shown {
    /// Makes a key and shows it, before a volume has it: so no volume has a recovery key that
    /// nobody saw.
    pub(super) fn new_key(&self, of: &Path) -> Result<SecretBytes, Failure> {
        let key = new_recovery_key()?;
        match self {
            Self::File(path) => {
                // Without an end of line: `cryptsetup --key-file` would take it for a part of the
                // key.
                paths::create_private(path, key.as_slice())?;
            }
            Self::Terminal => on_terminal(&key, of)?,
        }
        Ok(key)
    }

    /// Removes the file of a key that no volume has: the next attempt may use the file's name.
    pub(super) fn take_back(&self) {
        if let Self::File(path) = self {
            // The failure that led here is the one to report.
            drop(std::fs::remove_file(path));
        }
    }
}

fn on_terminal(key: &SecretBytes, of: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::io(Path::new(TERMINAL), &error);
    let mut terminal = OpenOptions::new()
        .write(true)
        .open(TERMINAL)
        .map_err(failed)?;
    let of = strongroom_format::text::printable(&of.display().to_string());
    let head = format!(
        "\nRecovery key of {of}. It is shown this once; it opens the volume when every other key is lost:\n\n    "
    );
    terminal.write_all(head.as_bytes()).map_err(failed)?;
    terminal.write_all(key.as_slice()).map_err(failed)?;
    let code =
        QrCode::new(key.as_slice()).map_err(|error| Failure::new(&code::BUG, error.to_string()))?;
    let picture = code.render::<Dense1x2>().quiet_zone(true).build();
    let picture = Zeroizing::new(format!("\n\n{picture}\n\n"));
    terminal.write_all(picture.as_bytes()).map_err(failed)
}
