//! Sealing and opening here, with a key that a KMIP server hands out: for servers that cannot
//! encrypt.
//!
//! Invariants: a key that is not active is not fetched; the fetched key is only ever the input of a
//! derivation.
//!
//! Must not: keep the fetched key.

use strongroom_crypto::{GcmKey, SecretBytes, SecretKey, hkdf, nonce12};
use strongroom_format::code;
use strongroom_keyring::Error;

use super::blob::{Blob, Method};
use super::key_state::state;
use super::message::{Operation, secret_key};
use super::session::Session;
use super::tag;

/// What follows the context in the label of the key that is derived from the fetched one.
const LABEL: &[u8] = b"kmip";

/// Fetches the key of this id from the server, and encrypts the secret here under a key derived
/// from it and the context. Errors: SR-2103 (no such key), SR-2104 (key not active) or SR-2121 (key
/// destroyed) for the key; SR-2101 (not reached, or too late), SR-2102 (client refused), SR-2105
/// (malformed response), SR-2120 (server not trusted) or SR-2122 (server busy, sealed or failing)
/// for the server; SR-5001 when the system reports an error.
pub(super) fn seal(
    session: &mut Session,
    id: &str,
    secret: &SecretKey,
    context: &[u8],
) -> Result<Blob, Error> {
    let key = sealing_key(&fetch_key(session, id)?, context)?;
    let iv = nonce12()?;
    let mut sealed = SecretBytes::with_capacity(32)?;
    sealed.as_mut_slice().copy_from_slice(secret.expose());
    let mac = key.seal(&iv, context, sealed.as_mut_slice())?;
    Ok(Blob {
        method: Method::Fetched,
        version: session.version,
        id: id.to_owned(),
        iv: iv.to_vec(),
        tag: mac.to_vec(),
        ciphertext: sealed.as_slice().to_vec(),
    })
}

/// Fetches the blob's key from the server, and decrypts the secret here. Errors: SR-2103 (no such
/// key), SR-2104 (key not active) or SR-2121 (key destroyed) for the key; SR-2101 (not reached, or
/// too late), SR-2102 (client refused), SR-2120 (server not trusted) or SR-2122 (server busy,
/// sealed or failing) for the server; SR-2105 when the blob's parts have wrong lengths, or it does
/// not decrypt; SR-5001 when the system reports an error.
pub(super) fn open(session: &mut Session, blob: &Blob, context: &[u8]) -> Result<SecretKey, Error> {
    let key = sealing_key(&fetch_key(session, &blob.id)?, context)?;
    let iv: Result<[u8; 12], _> = blob.iv.as_slice().try_into();
    let mac: Result<[u8; 16], _> = blob.tag.as_slice().try_into();
    let wrong = |what: &str| Error::new(&code::PROVIDER_ANSWER, what);
    let (Ok(iv), Ok(mac), 32) = (iv, mac, blob.ciphertext.len()) else {
        return Err(wrong("the response is not a secret of 32 bytes"));
    };
    let mut opened = SecretBytes::with_capacity(32)?;
    opened.as_mut_slice().copy_from_slice(&blob.ciphertext);
    key.open(&iv, context, opened.as_mut_slice(), &mac)
        .map_err(|_| wrong("it does not open with the server's key"))?;
    secret_key(opened.as_slice())
}

/// Asks for the key's state, and fetches the key itself if it is active. Errors: SR-2104 or SR-2121
/// when it is not active; SR-2105 unless it is a key of 256 bits in clear; when the server refuses,
/// SR-2102 (denied), SR-2103 (no such key), SR-2104 (key not active), SR-2105 (malformed response)
/// or SR-2122 (any other reason); for the connection SR-2101 (not reached, or too late), SR-2102
/// (client refused), SR-2105 (malformed response) or SR-2120 (server not trusted).
fn fetch_key(session: &mut Session, id: &str) -> Result<SecretKey, Error> {
    match state(session, id)? {
        Ok(state) => state.error().map_or(Ok(()), Err)?,
        Err(reason) => return Err(reason.into_error(Operation::Get)),
    }
    let key = session.request(
        Operation::Get,
        |to| {
            to.text(tag::UNIQUE_IDENTIFIER, id);
            // Raw.
            to.choice(tag::KEY_FORMAT, 1);
        },
        |payload| {
            let block = payload.find(tag::SYMMETRIC_KEY);
            let block = block.and_then(|key| key.find(tag::KEY_BLOCK));
            let value = block.and_then(|block| block.find(tag::KEY_VALUE));
            let material = value.and_then(|value| value.bytes(tag::KEY_MATERIAL));
            let material = material.unwrap_or_default();
            let mut key: [u8; 32] = material.try_into().map_err(|_| {
                let detail = "it is not a symmetric key of 256 bits in clear";
                Error::new(&code::PROVIDER_ANSWER, detail)
            })?;
            Ok(SecretKey::take(&mut key)?)
        },
    )?;
    key.map_err(|reason| reason.into_error(Operation::Get))
}

/// Derives the key that encrypts here from the fetched one and the context. Errors: SR-5001 when
/// there is no memory for keys.
fn sealing_key(fetched: &SecretKey, context: &[u8]) -> Result<GcmKey, Error> {
    let key = hkdf(fetched, &[], &[context, LABEL].concat())?;
    Ok(GcmKey::new(&key)?)
}
