//! KMIP's requests and responses for the operations that are needed: one operation per message.
//!
//! Invariants R2 and R3: a response is accepted only if it is of the operation that was requested;
//! the server's own text is not read, only its status and reason.
//!
//! Must not: touch the network.

use strongroom_crypto::{SecretBytes, SecretKey};
use strongroom_format::code::{self, Code};
use strongroom_keyring::Error;

use super::tag;
use super::ttlv::{Encoder, Item};

/// The longest request, in bytes.
const REQUEST_MAX: usize = 4096;

/// The protocol version: 1 and this minor number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Minor(pub(super) u8);

/// The lowest version that has encryption.
pub(super) const V1_2: Minor = Minor(2);
/// The lowest version that has authenticated encryption.
pub(super) const V1_4: Minor = Minor(4);

/// What a server is requested to do (KMIP 1.4, section 9.1.3.2.27).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Locate = 0x08,
    Get = 0x0a,
    GetAttributes = 0x0b,
    DiscoverVersions = 0x1e,
    Encrypt = 0x1f,
    Decrypt = 0x20,
}

/// How a server encrypts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cipher {
    /// AES-GCM with a tag of 16 bytes.
    Gcm,
    /// AES-CBC with PKCS #5 padding.
    Cbc,
}

/// Encodes a request of one operation in locked memory; `fill` writes its payload.
///
/// # Errors
/// SR-2020 when it is longer than 4 KiB, SR-5001 when the system reports an error.
pub(super) fn request(
    version: Minor,
    operation: Operation,
    fill: impl FnOnce(&mut Encoder),
) -> Result<SecretBytes, Error> {
    let mut encoder = Encoder::new(REQUEST_MAX)?;
    encoder.structure(tag::REQUEST, |to| {
        to.structure(tag::REQUEST_HEADER, |to| {
            protocol_version(to, version);
            to.integer(tag::BATCH_COUNT, 1);
        });
        to.structure(tag::BATCH_ITEM, |to| {
            to.choice(tag::OPERATION, operation as u32);
            to.structure(tag::REQUEST_PAYLOAD, fill);
        });
    });
    let too_long = || Error::new(&code::PROVIDER, "the key's name is too long");
    encoder.finish().ok_or_else(too_long)
}

/// Writes the protocol version, 1 and this minor number, as an item of the header.
fn protocol_version(to: &mut Encoder, version: Minor) {
    to.structure(tag::PROTOCOL_VERSION, |to| {
        to.integer(tag::MAJOR, 1);
        to.integer(tag::MINOR, i32::from(version.0));
    });
}

/// Writes the attributes that select symmetric keys by name.
pub(super) fn keys_named(to: &mut Encoder, name: &str) {
    to.structure(tag::ATTRIBUTE, |to| {
        to.text(tag::ATTRIBUTE_NAME, "Name");
        to.structure(tag::ATTRIBUTE_VALUE, |to| {
            to.text(tag::NAME_VALUE, name);
            // Uninterpreted text.
            to.choice(tag::NAME_TYPE, 1);
        });
    });
    to.structure(tag::ATTRIBUTE, |to| {
        to.text(tag::ATTRIBUTE_NAME, "Object Type");
        to.choice(tag::ATTRIBUTE_VALUE, 2);
    });
}

/// Writes the cryptographic parameters of an encryption or decryption with AES in this mode.
pub(super) fn cipher_parameters(to: &mut Encoder, cipher: Cipher) {
    to.structure(tag::CRYPTOGRAPHIC_PARAMETERS, |to| match cipher {
        Cipher::Gcm => {
            to.choice(tag::BLOCK_CIPHER_MODE, 9);
            to.choice(tag::CRYPTOGRAPHIC_ALGORITHM, 3);
            to.integer(tag::TAG_LENGTH, 16);
        }
        Cipher::Cbc => {
            to.choice(tag::BLOCK_CIPHER_MODE, 1);
            // PKCS #5.
            to.choice(tag::PADDING_METHOD, 3);
            to.choice(tag::CRYPTOGRAPHIC_ALGORITHM, 3);
        }
    });
}

/// Why a server did not do what it was asked (section 9.1.3.2.29).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    NotFound,
    NotAuthenticated,
    BadMessage,
    NotSupported,
    Denied,
    /// A cryptographic failure: the ciphertext is not one that the key has made.
    Cryptographic,
    Archived,
    Other,
}

impl Reason {
    /// Returns the reason for this number of KMIP; [`Self::Other`] for an unknown one or none.
    fn from_number(number: Option<u32>) -> Self {
        match number {
            Some(1) => Self::NotFound,
            Some(3) => Self::NotAuthenticated,
            Some(4) => Self::BadMessage,
            // Not supported as an operation, as a feature, or in a field.
            Some(5 | 7 | 8) => Self::NotSupported,
            Some(0x0a) => Self::Cryptographic,
            Some(0x0b | 0x0c) => Self::Denied,
            Some(0x0d) => Self::Archived,
            _ => Self::Other,
        }
    }

    /// Makes the error that the reason means when nothing else is known: SR-2103 not found; SR-2102
    /// not authenticated, denied or not supported; SR-2105 malformed or cryptographic failure;
    /// SR-2104 archived; SR-2122 any other. The detail names the operation.
    pub(super) fn into_error(self, operation: Operation) -> Error {
        let (code, what): (&'static Code, _) = match self {
            Self::NotFound => (&code::PROVIDER_NO_KEY, "item not found"),
            Self::NotAuthenticated => (&code::PROVIDER_DENIED, "not authenticated"),
            Self::Denied => (&code::PROVIDER_DENIED, "permission denied"),
            Self::BadMessage => (
                &code::PROVIDER_ANSWER,
                "the server rejects the request as malformed",
            ),
            Self::NotSupported => (&code::PROVIDER_DENIED, "not supported by the server"),
            Self::Cryptographic => (&code::PROVIDER_ANSWER, "it does not open"),
            Self::Archived => (&code::PROVIDER_DISABLED, "the key is archived"),
            Self::Other => (&code::PROVIDER_BUSY, "general failure"),
        };
        Error::new(code, format!("{operation:?}: {what}"))
    }
}

/// A server's response: the payload, or why the operation failed.
pub(super) enum Response<'item, 'bytes> {
    Done(&'item Item<'bytes>),
    Failed(Reason),
}

/// Finds the result in a message: the payload, or the reason for which the operation failed.
///
/// # Errors
/// SR-2105 unless it is the one response to this operation.
pub(super) fn parse_response<'item, 'bytes>(
    message: &'item Item<'bytes>,
    operation: Operation,
) -> Result<Response<'item, 'bytes>, Error> {
    let wrong = |what: &str| Error::new(&code::PROVIDER_ANSWER, what);
    if message.tag != tag::RESPONSE {
        return Err(wrong("it is no response of KMIP"));
    }
    let mut items = message.all(tag::BATCH_ITEM);
    let (Some(item), None) = (items.next(), items.next()) else {
        return Err(wrong("it has not one result"));
    };
    match item.choice(tag::RESULT_STATUS) {
        Some(0) => {
            let payload = item.find(tag::RESPONSE_PAYLOAD);
            let asked = item.choice(tag::OPERATION) == Some(operation as u32);
            let payload = payload.filter(|_| asked);
            let payload = payload.ok_or_else(|| wrong("it is of another operation"))?;
            Ok(Response::Done(payload))
        }
        Some(1..=3) => {
            let reason = Reason::from_number(item.choice(tag::RESULT_REASON));
            Ok(Response::Failed(reason))
        }
        _ => Err(wrong("it has no result")),
    }
}

/// Copies 32 bytes that a server sent into locked memory, as a key.
///
/// # Errors
/// SR-2105 for another length; SR-5001 when the system reports an error.
pub(super) fn secret_key(bytes: &[u8]) -> Result<SecretKey, Error> {
    let mut key: [u8; 32] = bytes.try_into().map_err(|_| {
        let detail = "the response is not a secret of 32 bytes";
        Error::new(&code::PROVIDER_ANSWER, detail)
    })?;
    Ok(SecretKey::take(&mut key)?)
}

#[cfg(test)]
mod tests {
    use super::super::ttlv::decode;
    use super::*;

    fn response_bytes(operation: u32, status: u32, reason: Option<u32>, results: usize) -> Vec<u8> {
        let mut encoder = Encoder::new(4096).unwrap();
        encoder.structure(tag::RESPONSE, |to| {
            for _ in 0..results {
                to.structure(tag::BATCH_ITEM, |to| {
                    to.choice(tag::OPERATION, operation);
                    to.choice(tag::RESULT_STATUS, status);
                    if let Some(reason) = reason {
                        to.choice(tag::RESULT_REASON, reason);
                    }
                    to.structure(tag::RESPONSE_PAYLOAD, |to| to.bytes(tag::DATA, b"x"));
                });
            }
        });
        encoder.finish().unwrap().as_slice().to_vec()
    }

    fn outcome(bytes: &[u8]) -> Result<Option<Reason>, u16> {
        let item = decode(bytes).ok().unwrap();
        match parse_response(&item, Operation::Decrypt) {
            Ok(Response::Done(payload)) => {
                assert_eq!(payload.bytes(tag::DATA), Some(b"x".as_slice()));
                Ok(None)
            }
            Ok(Response::Failed(reason)) => Ok(Some(reason)),
            Err(error) => Err(error.code().number),
        }
    }

    #[test]
    fn only_the_one_result_that_was_asked_for_counts() {
        let wrong = code::PROVIDER_ANSWER.number;
        assert_eq!(outcome(&response_bytes(0x20, 0, None, 1)), Ok(None));
        assert_eq!(outcome(&response_bytes(0x1f, 0, None, 1)), Err(wrong));
        assert_eq!(outcome(&response_bytes(0x20, 0, None, 2)), Err(wrong));
        assert_eq!(outcome(&response_bytes(0x20, 0, None, 0)), Err(wrong));
        assert_eq!(outcome(&response_bytes(0x20, 9, None, 1)), Err(wrong));
        let failed = |reason| outcome(&response_bytes(0x20, 1, reason, 1));
        assert_eq!(failed(Some(1)), Ok(Some(Reason::NotFound)));
        assert_eq!(failed(Some(0x0c)), Ok(Some(Reason::Denied)));
        assert_eq!(failed(None), Ok(Some(Reason::Other)));
    }

    #[test]
    fn a_request_is_what_the_standard_says() {
        let bytes = request(V1_4, Operation::Decrypt, |to| {
            to.text(tag::UNIQUE_IDENTIFIER, "1");
        });
        let bytes = bytes.unwrap();
        let item = decode(bytes.as_slice()).ok().unwrap();
        assert_eq!(item.tag, tag::REQUEST);
        let header = item.find(tag::REQUEST_HEADER).unwrap();
        let version = header.find(tag::PROTOCOL_VERSION).unwrap();
        assert_eq!(
            (version.integer(tag::MAJOR), version.integer(tag::MINOR)),
            (Some(1), Some(4))
        );
        assert_eq!(
            item.find(tag::BATCH_ITEM).unwrap().choice(tag::OPERATION),
            Some(0x20)
        );
        let long = "n".repeat(REQUEST_MAX);
        let refused = request(V1_2, Operation::Locate, |to| keys_named(to, &long));
        assert_eq!(refused.err().unwrap().code().number, 2020);
    }
}
