//! Sealed databases read from a web server, a part at a time.
//!
//! [`register`] gives the VFS (`strongroom-sqlite-vfs`) a client. The client delivers ciphertext,
//! as a file of the VFS below would, and the VFS authenticates each page together with its
//! position. So the server, the network and the cache need not be trusted with the content. They
//! could still deliver a mix of two versions whose pages are all authentic; this crate prevents
//! that.
//!
//! Invariants (docs/internals/sqlite-vfs.md):
//! E1. One version is read from open to close: a strong ETag and a length, which the first response
//!     sets. Every later request is conditional on that ETag, and every response must show it, with
//!     exactly the range that was requested (`client`).
//! E2. Every read ends within the configured timeout, retries included (`client`).
//! E3. At most 1 MiB of the last long response, and 128 KiB of a short one or of the cache, are in
//!     memory (`reader`).
//! E4. The cache holds what was fetched, which is ciphertext. A digest binds each block to address,
//!     version and position; a block that is incomplete or does not match its digest counts as
//!     absent (`cache`).
//!
//! Must not: hold a key, see a page in clear, follow a redirection, or write anything but the
//! cache.

mod cache;
mod client;
mod etag;
mod options;
mod read_ahead;
mod reader;
mod sizes;

pub use options::Options;
pub use sizes::{BLOCK, FIRST, RUN_MAX};
use strongroom_keyring::Error;
use strongroom_sqlite_vfs::{RemoteFile, set_client};

/// Registers the HTTP client, so that the VFS can open remote databases. Idempotent.
pub fn register() {
    set_client(open_remote);
}

/// Opens a remote file with the parameters that `get` returns for each name. Sends a request. Fails
/// with SR-2240 to SR-2253, or SR-3001 for an empty file.
fn open_remote(get: &dyn Fn(&str) -> Option<String>) -> Result<Box<dyn RemoteFile>, Error> {
    let options = Options::read(get)?;
    Ok(Box::new(reader::Reader::open(&options)?))
}
