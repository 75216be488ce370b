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
    /// Returns where a recovery key will be shown: in the file that was named, otherwise on the
    /// terminal. SR-1002 if the file exists, SR-1006 without its directory, SR-8357 without a
    /// terminal. Nothing is written.
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
    /// Makes a recovery key, writes it to the file or the terminal, and returns it. Call it before
    /// the volume has the key, so that no volume has a recovery key that nobody saw. `of` is the
    /// volume's path. SR-1002 if the file exists; SR-5001.
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

    /// Removes the file with a key that no volume has, so that its name is free again; errors are
    /// ignored. Does nothing if the key was shown on the terminal.
    pub(super) fn take_back(&self) {
        if let Self::File(path) = self {
            // The failure that led here is the one to report.
            drop(std::fs::remove_file(path));
        }
    }
}

/// Writes the recovery key to the terminal, as text and as a QR code. `of` is the volume's path.
/// SR-5001 if the terminal cannot be written.
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
