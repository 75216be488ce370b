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
use strongroom_volume::Error;
use strongroom_volume::recovery_place::RecoveryPlace;
use zeroize::Zeroizing;

const TERMINAL: &str = "/dev/tty";

/// Where the recovery key goes.
#[derive(Args, Clone, Default)]
pub(super) struct RecoveryOptions {
    /// Write the recovery key into this new file (mode 0600) instead of showing it on the terminal
    #[arg(long, value_name = "FILE")]
    recovery_out: Option<PathBuf>,
}

impl RecoveryPlace for RecoveryOptions {
    /// Checks that the file that was named can be made, or that there is a terminal. SR-1002 if the
    /// file exists, SR-1006 without its directory, SR-8357 without a terminal. Nothing is written.
    fn check(&self) -> Result<(), Error> {
        if let Some(path) = &self.recovery_out {
            return paths::check_new(path);
        }
        let terminal = OpenOptions::new().read(true).write(true).open(TERMINAL);
        terminal
            .map(drop)
            .map_err(|error| Error::new(&code::VOLUME_UNSEEN, format!("{TERMINAL}: {error}")))
    }

    /// Writes the key to the file, mode 0600, or to the terminal. `of` is the volume's path.
    /// SR-1002 if the file exists; SR-5001 when the system reports an error.
    fn show(&self, key: &SecretBytes, of: &Path) -> Result<(), Error> {
        match &self.recovery_out {
            // Without an end of line: `cryptsetup --key-file` would take it for a part of the key.
            Some(path) => paths::create_private(path, key.as_slice()),
            None => on_terminal(key, of),
        }
    }

    /// Removes the file, so that its name is free again; errors are ignored. Does nothing if the
    /// key was shown on the terminal.
    fn take_back(&self) {
        if let Some(path) = &self.recovery_out {
            // The failure that led here is the one to report.
            drop(std::fs::remove_file(path));
        }
    }
}

/// Writes the recovery key to the terminal, as text and as a QR code. `of` is the volume's path.
/// SR-5001 if the terminal cannot be written.
fn on_terminal(key: &SecretBytes, of: &Path) -> Result<(), Error> {
    let failed = |error| Error::on_path(Path::new(TERMINAL), error);
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
        QrCode::new(key.as_slice()).map_err(|error| Error::new(&code::BUG, error.to_string()))?;
    let picture = code.render::<Dense1x2>().quiet_zone(true).build();
    let picture = Zeroizing::new(format!("\n\n{picture}\n\n"));
    terminal.write_all(picture.as_bytes()).map_err(failed)
}
