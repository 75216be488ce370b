//! Sealing and opening by the server, with a key that does not leave it.
//!
//! Must not: fetch the key.

use strongroom_crypto::{SecretKey, fill_random};
use strongroom_format::code;
use strongroom_keyring::Error;

use super::blob::{Blob, Method};
use super::message::{Cipher, Operation, Reason, cipher_parameters, secret_key};
use super::session::Session;
use super::tag;

/// Has the server encrypt the secret with its key of this id; with AES-GCM the context is
/// associated data, with AES-CBC it is not used. The inner error is the reason for which the server
/// refused. Errors: SR-2105 when the ciphertext or the tag has a wrong length; SR-2101 (not
/// reached, or too late), SR-2102 (client refused), SR-2105 (malformed response) or SR-2120 (server
/// not trusted) for the connection; SR-5001 when the system reports an error.
pub(super) fn seal(
    session: &mut Session,
    id: &str,
    cipher: Cipher,
    secret: &SecretKey,
    context: &[u8],
) -> Result<Result<Blob, Reason>, Error> {
    let method = match cipher {
        Cipher::Gcm => Method::Gcm,
        Cipher::Cbc => Method::Cbc,
    };
    let (iv_length, tag_length) = method.lengths();
    let mut iv = vec![0; iv_length];
    fill_random(&mut iv)?;
    let version = session.version;
    session.request(
        Operation::Encrypt,
        |to| {
            to.text(tag::UNIQUE_IDENTIFIER, id);
            cipher_parameters(to, cipher);
            to.bytes(tag::DATA, secret.expose());
            to.bytes(tag::IV, &iv);
            if cipher == Cipher::Gcm {
                to.bytes(tag::AUTHENTICATED_DATA, context);
            }
        },
        |payload| {
            let ciphertext = payload.bytes(tag::DATA).unwrap_or_default();
            let mac = payload.bytes(tag::AUTHENTICATION_TAG).unwrap_or_default();
            // 32 bytes, and a block of padding with CBC.
            let expected = if cipher == Cipher::Gcm { 32 } else { 48 };
            if ciphertext.len() != expected || mac.len() != tag_length {
                let detail = "the wrapped key in the response has the wrong length";
                return Err(Error::new(&code::PROVIDER_ANSWER, detail));
            }
            Ok(Blob {
                method,
                version,
                id: id.to_owned(),
                iv: iv.clone(),
                tag: mac.to_vec(),
                ciphertext: ciphertext.to_vec(),
            })
        },
    )
}

/// Has the server decrypt a blob, and returns the secret. The inner error is the reason for which
/// the server refused. Errors: SR-2105 unless it is 32 bytes; SR-2101 (not reached, or too late),
/// SR-2102 (client refused), SR-2105 (malformed response) or SR-2120 (server not trusted) for the
/// connection.
pub(super) fn open(
    session: &mut Session,
    cipher: Cipher,
    blob: &Blob,
    context: &[u8],
) -> Result<Result<SecretKey, Reason>, Error> {
    session.request(
        Operation::Decrypt,
        |to| {
            to.text(tag::UNIQUE_IDENTIFIER, &blob.id);
            cipher_parameters(to, cipher);
            to.bytes(tag::DATA, &blob.ciphertext);
            to.bytes(tag::IV, &blob.iv);
            if cipher == Cipher::Gcm {
                to.bytes(tag::AUTHENTICATED_DATA, context);
                to.bytes(tag::AUTHENTICATION_TAG, &blob.tag);
            }
        },
        |payload| secret_key(payload.bytes(tag::DATA).unwrap_or_default()),
    )
}
