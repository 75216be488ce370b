//! Root key providers that need a client of their own, registered with the keyring by the command.
//!
//! A kind is one module here and one line in [`KINDS`]. Kinds that deliver a key implement `fetch`.
//! Kinds whose device wraps a key store the wrapped key in the argument
//! (`strongroom_keyring::provider::Wrapped`) and implement `create` too.
//!
//! Must not: keep a root key; wait without a limit; take a secret from an argument.

mod aws_kms;
mod certificate;
pub mod child;
mod credential;
mod deadline;
mod keyserver;
mod kmip;
mod network;
mod options;
mod percent;
#[cfg(feature = "pkcs11")]
mod pkcs11;
mod tang;
pub mod tpm;
mod vault;

use strongroom_keyring::provider::{self, Registered};

/// For the fuzzers: any bytes are taken or refused.
pub mod fuzz {
    pub use crate::kmip::ttlv::fuzz as kmip;
}

/// Every kind of this crate, in order of number.
const KINDS: &[Registered] = &[
    keyserver::REGISTERED,
    #[cfg(feature = "pkcs11")]
    pkcs11::REGISTERED,
    tpm::REGISTERED,
    credential::REGISTERED,
    certificate::REGISTERED,
    tang::REGISTERED,
    kmip::REGISTERED,
    vault::REGISTERED,
    aws_kms::REGISTERED,
];

/// What a child process does: it calls the library of a module's maker.
#[cfg(feature = "pkcs11")]
const OPERATION: child::Operation = pkcs11::operate;
#[cfg(not(feature = "pkcs11"))]
const OPERATION: child::Operation = |_| {
    let code = &strongroom_format::code::PROVIDER_ELSEWHERE;
    Err(strongroom_keyring::Error::new(code, "pkcs11"))
};

/// Does the work of the child process of [`child`]: serves one request on standard input. False
/// when there was no valid request, or nobody read the response.
#[must_use]
pub fn serve_child() -> bool {
    child::serve(OPERATION).is_ok()
}

/// Makes the kinds of this crate known to the keyring. Call it once, when a program starts.
pub fn register() {
    provider::register(KINDS);
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongroom_keyring::Provider;

    #[test]
    fn kinds_are_in_order_and_have_the_numbers_of_the_format() {
        // Before they are registered the keyring knows the names by its own table.
        for kind in KINDS {
            assert_eq!(Provider::name_of(kind.number), kind.name);
        }
        assert!(KINDS.is_sorted_by(|a, b| a.number < b.number));
    }
}
