//! What a medium is called on the command line: a directory, or a URL of an object store.
//!
//! Must not: repeat a URL that was refused, in which someone may have written a password.

use std::path::Path;

use strongroom_backup::{LocalStore, Store, is_url};

use crate::failure::Failure;

/// How long requests are repeated while an object store cannot be reached.
#[cfg(feature = "object-store")]
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(120);

/// Returns the medium of that name, a directory or a place in an object store. Nothing is read or
/// sent yet. Credentials and endpoint of an object store come from the environment. SR-7140 if the
/// URL is not valid.
pub(super) fn store(medium: &Path) -> Result<Box<dyn Store>, Failure> {
    if is_url(medium) {
        return remote(&medium.to_string_lossy());
    }
    Ok(Box::new(LocalStore::new(medium)))
}

/// Returns the place in an object store that the URL names, without a request. Requests to it are
/// repeated for two minutes while there is no connection. SR-7140 if the URL or a setting is not
/// valid.
#[cfg(feature = "object-store")]
fn remote(url: &str) -> Result<Box<dyn Store>, Failure> {
    // What is not text is no setting of an object store.
    let settings = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        Some((name, value.into_string().ok()?))
    });
    let medium = strongroom_backup::ObjectMedium::open(url, settings, PATIENCE)?;
    Ok(Box::new(medium))
}

/// Always fails with SR-7140, because this build has no object stores.
#[cfg(not(feature = "object-store"))]
fn remote(_url: &str) -> Result<Box<dyn Store>, Failure> {
    let text = "this command was built without object stores";
    Err(Failure::new(&strongroom_format::code::STORE_URL, text))
}
