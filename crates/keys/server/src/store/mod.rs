//! The store of the key server: sealed records and the audit log, in one SQLite file or in etcd.
//!
//! [`Store`] is the interface and states the invariants that both implementations keep.

mod etcd;
mod etcd_client;
mod interface;
mod sqlite;

use std::path::Path;
use std::sync::Arc;

use strongroom_crypto::SecretKey;
use strongroom_format::code;
use strongroom_keyring::Error;

use crate::config::Config;
use crate::keys::Keys;

pub use etcd::EtcdStore;
pub use interface::{
    Append, COMMIT_MAX, Change, Guard, Outcome, Store, StoreSpace, Stored, VALUE_MAX, prefix_end,
};
pub use sqlite::SqliteStore;

/// Opens the store that the configuration names, SQLite or etcd. With `create`, creates the SQLite
/// database if it is missing; etcd needs no creation.
///
/// # Errors
/// SR-8434 for an unknown kind of store or an invalid server id; what [`SqliteStore::open`] or
/// [`EtcdStore::open`] reports.
pub fn open(config: &Config, root: &SecretKey, create: bool) -> Result<Arc<dyn Store>, Error> {
    let Some((kind, location)) = config.store.split_once(':') else {
        return Err(Error::new(
            &code::SERVER_CONFIG,
            "store: sqlite:FILE, or etcd:URL,URL...",
        ));
    };
    match kind {
        "sqlite" => {
            let key = Keys::derive_store_key(root, &config.server_id()?)?;
            Ok(Arc::new(SqliteStore::open(
                &config.path(Path::new(location)),
                &key,
                create,
            )?))
        }
        "etcd" => Ok(Arc::new(EtcdStore::open(config, location)?)),
        _ => Err(Error::new(
            &code::SERVER_CONFIG,
            format!("store: no kind `{kind}`"),
        )),
    }
}
