//! Strongroom's keys: where they come from, which objects they open, and the keyring that keeps
//! them.
//!
//! The way of a key: a [`KeySource`] (variable, file, command, terminal, keyring) yields an
//! [`Opener`]; an opener opens a key slot of an [`Object`] header; the object hands out sub-keys by
//! [`Purpose`]. A slot is sealed for a [`Recipient`]: the holder of an opener, or a certificate. A
//! [`Keyring`] is itself such an object, opened by a root key that a [`Provider`] delivers.
//!
//! Invariants K1 to K16 are listed in `docs/internals/keyring.md`; the comments cite them by
//! number. In short: secrets live in locked memory only (K1); a header is believed only after its
//! MAC (K3); files are replaced whole or not at all (K9); a keyring changes only under its lock
//! (K11).
//!
//! This crate must not name a cryptographic primitive, seal user data, print, or keep a secret in
//! an error.
#![forbid(unsafe_code)]
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]
#![cfg_attr(
    test,
    expect(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "a test that panics has failed, which is what it is for"
    )
)]

mod certificate_info;
mod certificate_slot;
mod certificates;
mod command;
pub mod durable;
mod entries;
mod error;
mod fresh;
mod freshness;
mod identity_file;
mod key_input;
pub mod keyring;
mod locked;
mod material;
mod material_buffer;
mod newest;
pub mod object;
mod opener;
pub mod pair;
pub mod paths;
mod private_key;
pub mod provider;
mod purpose;
mod recipient;
pub mod redo;
mod regular;
mod rekey;
mod secret_hex;
mod slot;
pub mod source;
pub mod storage;
mod store;
mod symmetric_key;
mod terminal;
mod transfer;
mod wrap;

#[cfg(test)]
mod vectors;

pub use certificate_info::CertificateInfo;
pub use certificates::{NewCertificate, Restored};
pub use entries::KeyInfo;
pub use error::{Error, Fault};
pub use identity_file::read_identity;
pub use keyring::{Keyring, Status};
pub use locked::Locked;
pub use newest::take_older_keyring_warning;
pub use object::{NewObject, Object, inspect_checksum};
pub use opener::{Opener, take_text_as_raw_key_warning};
pub use provider::{Provider, RootProvider};
pub use purpose::Purpose;
pub use recipient::Recipient;
pub use regular::{Link, is_not_regular, open_regular, read_text, text_of};
pub use secret_hex::secret_hex;
pub use slot::passphrase_cost;
pub use source::{KeySource, SourceContext};
pub use strongroom_crypto::{Argon2Params, Certificate, Identity};
pub use transfer::ImportReport;

/// Fails to compile for a type that is not `Send + Sync`: programs share these between threads.
/// Does nothing.
const fn shareable<T: Send + Sync>() {}
const _: () = {
    shareable::<Error>();
    shareable::<KeySource>();
    shareable::<Keyring>();
    shareable::<Object>();
    shareable::<Opener>();
    shareable::<Provider>();
    shareable::<Recipient>();
};
