//! Encrypted volumes: LUKS2 through libcryptsetup, with keys that a keyring or a key server has.
//!
//! The way of a key: [`keys::Keys`] (a keyring, a key server) delivers 32 bytes of material;
//! [`secret::slot_secret`] makes of it and of the volume's object id the passphrase of one key
//! slot; libcryptsetup opens the slot, and the kernel gets the volume key. What is on the disk
//! beside LUKS2 is one token, which only says which material to ask for.
//!
//! Invariants V1 to V28 are listed in `docs/internals/volumes.md`; the comments cite them by
//! number.
//!
//! Must not: put anything of its own on a disk but a LUKS2 token; keep a key on the disk that it
//! opens; believe what a token says about whom to ask.
#![cfg_attr(not(test), deny(clippy::expect_used))]

pub mod active;
pub mod boot;
pub mod console;
pub mod contents;
pub mod create;
pub mod device;
mod error;
pub mod escrow;
mod ffi;
pub mod header;
pub mod kept;
pub mod keys;
mod locked;
pub mod mapped;
pub mod migrate;
pub mod notices;
pub mod openers;
pub mod outage;
pub mod probe;
pub mod reencrypt;
pub mod repair;
pub mod report;
pub mod restore;
pub mod rotate;
pub mod secret;
pub mod server;
pub mod shred;
pub mod status;
pub mod staying;
pub mod swap;
#[cfg(test)]
mod testing;
pub mod tpm;
pub mod unlock;

pub use device::Volume;
pub use ffi::library_version;
pub use strongroom_keyring::Error;
