//! Encrypted volumes: LUKS2 through libcryptsetup, with keys from a keyring or a key server.
//!
//! The way of a key: [`keys::Keys`] (a keyring, a key server) delivers 32 bytes of material;
//! [`secret::slot_secret`] derives from it and from the volume's object id the passphrase of one
//! key slot; libcryptsetup opens the slot, and the kernel gets the volume key. On the disk there
//! is, besides LUKS2, one token, which only says which material to ask for.
//!
//! Invariants V1 to V28 are listed in `docs/internals/volumes.md`; the comments cite them by
//! number.
//!
//! Must not: put anything of its own on a disk but LUKS2 tokens; keep a key on the disk that it
//! opens; take the address of a server from a token.
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
pub mod host_keys;
pub mod kept;
pub mod keys;
mod locked;
pub mod make;
pub mod mapped;
pub mod migrate;
pub mod notices;
pub mod openers;
pub mod outage;
pub mod probe;
pub mod recovery_place;
pub mod reencrypt;
pub mod repair;
pub mod report;
pub mod restore;
pub mod rotate;
pub mod rotation;
pub mod secret;
pub mod server;
pub mod shred;
pub mod status;
pub mod staying;
pub mod swap;
#[cfg(test)]
mod testing;
pub mod tpm;
pub mod tpm_place;
pub mod unlock;
pub mod volume_opener;

pub use device::Volume;
pub use ffi::library_version;
pub use strongroom_keyring::Error;
