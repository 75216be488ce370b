//! Key files made for one run.
//!
//! Must not: be used for a key that protects anything but demonstration data.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use strongroom_format::hex::hex;

use crate::Failure;

/// Writes 64 random hexadecimal digits to a new file that only its owner can read.
///
/// # Errors
/// The file exists, or the operating system refuses.
pub fn new_key_file(path: &Path) -> Result<(), Failure> {
    let key = strongroom_crypto::random32().map_err(|error| error.to_string())?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    writeln!(file, "{}", hex(&key))?;
    Ok(())
}
