//! Sealed SQLite as a Rust library on rusqlite: open sealed databases, and encrypt, decrypt, rekey
//! and verify them.
//!
//! ```no_run
//! use strongroom_sqlite::{KeySource, OpenOptions};
//!
//! let key = KeySource::KeyId { id: "accounts".to_owned() };
//! let options = OpenOptions { key: Some(key), create: true, ..OpenOptions::default() };
//! let connection = strongroom_sqlite::open("accounts.db".as_ref(), &options)?;
//! connection
//!     .execute_batch("CREATE TABLE IF NOT EXISTS account(id INTEGER PRIMARY KEY, sum INTEGER)")
//!     .map_err(strongroom_sqlite::explain)?;
//! # Ok::<(), strongroom_sqlite::Error>(())
//! ```
//!
//! Must not: hold a key anywhere but in the keyring crate's types.

pub mod foreign;
mod open;
pub mod ops;
pub mod program;
#[cfg(feature = "http")]
mod remote;

pub use open::{OpenOptions, explain, open, register};
/// The default key of a program that has the extension: what `strongroom sqlite run` writes into
/// its environment.
pub mod defaults {
    pub use strongroom_sqlite_vfs::{DEFAULT_VARIABLE, EXISTING_PLAIN, KEY_FD, KEY_FD_NAME};
}

#[cfg(feature = "http")]
pub use remote::open_remote;
pub use strongroom_format::header::Cipher;
pub use strongroom_keyring::{Error, KeySource};
#[cfg(feature = "http")]
pub use strongroom_sqlite_http::Options as RemoteOptions;
pub use strongroom_sqlite_vfs::{forget_seals_warnings, take_warnings};
