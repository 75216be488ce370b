//! What reads over the network: the interface, and the implementation that was registered for it.
//!
//! Must not: know HTTP.

use std::sync::OnceLock;

use strongroom_format::code;
use strongroom_keyring::Error;

use crate::report::{report, report_error};
use crate::sqlite_code::SqliteResult;

/// A file that is read over the network: one version of it, from open to close.
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

    /// What was read of these bytes is not authentic: they are fetched again, past every cache.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn distrust(&mut self, at: u64, len: usize) -> Result<(), Error>;
}

/// Opens a remote file by its parameters: the function answers with the value of `url`, `http_ca` and so on.
pub type RemoteClient = fn(&dyn Fn(&str) -> Option<String>) -> Result<Box<dyn RemoteFile>, Error>;

static CLIENT: OnceLock<RemoteClient> = OnceLock::new();

/// Registers what reads over the network. The first one stays.
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
