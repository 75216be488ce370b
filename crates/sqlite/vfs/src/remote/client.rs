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
    /// Address and version, for messages. Holds no secret.
    fn name(&self) -> &str;

    /// Length in bytes, fixed at the open.
    fn size(&self) -> u64;

    /// Reads `out.len()` bytes at `at`; the caller stays below [`Self::size`].
    ///
    /// # Errors
    /// SR-2241 to SR-2247.
    fn read(&mut self, out: &mut [u8], at: u64) -> Result<(), Error>;

    /// Fetches these bytes again, past every cache, because what was read of them is not authentic.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn distrust(&mut self, at: u64, len: usize) -> Result<(), Error>;
}

/// Opens a remote file. The argument returns the value of a parameter: `url`, `http_ca` and so on.
pub type RemoteClient = fn(&dyn Fn(&str) -> Option<String>) -> Result<Box<dyn RemoteFile>, Error>;

static CLIENT: OnceLock<RemoteClient> = OnceLock::new();

/// Registers the client. A second call has no effect.
pub fn set_client(client: RemoteClient) {
    CLIENT.get_or_init(|| client);
}

/// Opens a remote file with the registered client; `get` gives the parameters.
pub(super) fn connect(get: &dyn Fn(&str) -> Option<String>) -> SqliteResult<Box<dyn RemoteFile>> {
    let client = CLIENT
        .get()
        .ok_or_else(|| report(&code::REMOTE_NO_CLIENT, ""))?;
    client(get).map_err(|error| report_error(&error))
}
