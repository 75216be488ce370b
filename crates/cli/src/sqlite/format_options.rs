//! Values of the options that say how a new database is sealed: cipher and page size.
//!
//! Must not: accept a value that the SQLite extension refuses.

use strongroom_format::header::Cipher;

/// Parses `gcm` or `ctr`. The error is the text that clap shows.
pub(super) fn cipher(name: &str) -> Result<Cipher, String> {
    Cipher::for_database(name).ok_or_else(|| "use gcm or ctr".to_owned())
}

/// Parses a page size in bytes: a power of two from 512 to 65536. The error is the text that clap
/// shows.
pub(super) fn page_size(text: &str) -> Result<u32, String> {
    let size: Option<u32> = text.parse().ok();
    size.filter(|size| size.is_power_of_two() && (512..=65536).contains(size))
        .ok_or_else(|| "use a power of two from 512 to 65536".to_owned())
}
