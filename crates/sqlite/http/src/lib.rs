//! Sealed databases read from a web server, a part at a time.
//!
//! [`register`] hands the guard (`strongroom-sqlite-vfs`) a client. It delivers ciphertext, as a file below the guard would,
//! and the guard verifies each page with its place, so neither server, network nor cache is believed in what they deliver.
//! What they could still do is deliver a mix of two versions, both authentic; that is what is watched here.
//!
//! Invariants (docs/internals/sqlite-vfs.md):
//! E1. From open to close, one version: a strong ETag and a length, pinned by the first answer; every later request is
//!     conditional on that ETag, and every answer must show it, with exactly the range that was asked for (`client`).
//! E2. Every read ends within the time that was set, tries included (`client`).
//! E3. Memory: 1 MiB of the last long answer, and 128 KiB of a short one or of the cache (`reader`).
//! E4. What is cached is what was fetched, sealed; each block is bound by a digest to address, version and place, and a
//!     block that is not whole and right is as good as absent (`cache`).
//!
//! Must not: hold a key, see a page in clear, follow a redirection, or write anything but the cache.

mod cache;
mod client;
mod heads;
mod options;
mod reader;

pub use options::Options;
use strongroom_keyring::Error;
use strongroom_sqlite_vfs::{RemoteFile, set_client};

/// Bytes of a block: what is fetched at least, and what is cached as one.
pub const BLOCK: u64 = 16 * 1024;
/// Most blocks of one request: 1 MiB.
pub const RUN_MAX: u64 = 64;
/// Bytes that the first request asks for.
pub const FIRST: u64 = 4 * BLOCK;

/// Makes the guard able to open remote databases. Idempotent.
pub fn register() {
    set_client(open);
}

fn open(get: &dyn Fn(&str) -> Option<String>) -> Result<Box<dyn RemoteFile>, Error> {
    let options = Options::read(get)?;
    Ok(Box::new(reader::Remote::open(&options)?))
}
