//! The interface of a client that reads over the network, and the registered client.
//!
//! Must not: know HTTP.

use std::sync::OnceLock;

use strongroom_format::code;
use strongroom_keyring::Error;

use crate::report::{report, report_error};
use crate::sqlite_code::SqliteResult;

/// One version of a file that is read over the network.
pub trait RemoteFile: Send {
    /// Returns address and version of the file, for messages. Holds no secret.
    fn name(&self) -> &str;

    /// Returns the file's length in bytes, fixed at the open.
    fn size(&self) -> u64;

    /// Reads `out.len()` bytes at `at`, from the server or from a cache. The caller stays below
    /// [`Self::size`].
    ///
    /// # Errors
    /// SR-2241 to SR-2247, if the server cannot be reached or does not deliver the bytes of the
    /// version that was opened.
    fn read(&mut self, out: &mut [u8], at: u64) -> Result<(), Error>;

    /// Fetches the `len` bytes at `at` again, past every cache, because what was read of them is
    /// not authentic. The next [`Self::read`] gives them.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn distrust(&mut self, at: u64, len: usize) -> Result<(), Error>;
}

/// Opens a remote file. The argument returns the value of a parameter: `url`, `http_ca` and so on.
pub type RemoteClient = fn(&dyn Fn(&str) -> Option<String>) -> Result<Box<dyn RemoteFile>, Error>;

static CLIENT: OnceLock<RemoteClient> = OnceLock::new();

/// Registers the client that opens remote files, for the whole process. A second call has no
/// effect.
pub fn set_client(client: RemoteClient) {
    CLIENT.get_or_init(|| client);
}

/// Opens a remote file with the registered client; `get` gives the parameters. Reports SR-2252 when
/// no client is registered, and otherwise the client's error.
pub(super) fn connect(get: &dyn Fn(&str) -> Option<String>) -> SqliteResult<Box<dyn RemoteFile>> {
    let client = CLIENT
        .get()
        .ok_or_else(|| report(&code::REMOTE_NO_CLIENT, ""))?;
    client(get).map_err(|error| report_error(&error))
}
