//! Sealing on this side, with a key that a KMIP server hands out: for servers that cannot encrypt.
//!
//! Invariants: a key that is not active is not fetched; the fetched key is only ever input to a
//! derivation.
//!
//! Must not: keep the fetched key.

use strongroom_crypto::{GcmKey, SecretBytes, SecretKey, hkdf, nonce12};
use strongroom_format::code;
use strongroom_keyring::Error;

use super::message::{Operation, Reason, tag};
use super::session::Session;
use super::{Kept, Method, no_secret, state, state_error};
use crate::network::error;

/// What follows the context in the label of the key made of one that the server hands out.
const FETCHED: &[u8] = b"kmip";

/// The key itself, of a server that hands it out, if it is active.
pub(super) fn fetched(session: &mut Session, id: &str) -> Result<SecretKey, Error> {
    match state(session, id)? {
        Ok(state) => state_error(state).map_or(Ok(()), Err)?,
        Err(reason) => return Err(reason.error(Operation::Get)),
    }
    let key = session.ask(
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
                error(&code::PROVIDER_ANSWER, detail)
            })?;
            Ok(SecretKey::take(&mut key)?)
        },
    )?;
    key.map_err(|reason| reason.error(Operation::Get))
}

/// The key that seals here, made of one that the server handed out.
fn here(key: &SecretKey, context: &[u8]) -> Result<GcmKey, Error> {
    Ok(GcmKey::new(&hkdf(key, &[], &[context, FETCHED].concat())?)?)
}

/// The secret under a key that the server hands out.
pub(super) fn wrapped_here(
    session: &mut Session,
    id: &str,
    secret: &SecretKey,
    context: &[u8],
) -> Result<Result<Kept, Reason>, Error> {
    let key = here(&fetched(session, id)?, context)?;
    let iv = nonce12()?;
    let mut sealed = SecretBytes::with_capacity(32)?;
    sealed.as_mut_slice().copy_from_slice(secret.expose());
    let mac = key.seal(&iv, context, sealed.as_mut_slice())?;
    Ok(Ok(Kept {
        method: Method::Fetched,
        version: session.version,
        id: id.to_owned(),
        iv: iv.to_vec(),
        tag: mac.to_vec(),
        ciphertext: sealed.as_slice().to_vec(),
    }))
}

/// The secret again.
pub(super) fn unwrapped_here(
    key: &SecretKey,
    kept: &Kept,
    context: &[u8],
) -> Result<SecretKey, Error> {
    let iv: Result<[u8; 12], _> = kept.iv.as_slice().try_into();
    let mac: Result<[u8; 16], _> = kept.tag.as_slice().try_into();
    let data: Result<[u8; 32], _> = kept.ciphertext.as_slice().try_into();
    let (Ok(iv), Ok(mac), Ok(data)) = (iv, mac, data) else {
        return Err(no_secret());
    };
    let mut held = SecretBytes::with_capacity(32)?;
    held.as_mut_slice().copy_from_slice(&data);
    let opened = here(key, context)?.open(&iv, context, held.as_mut_slice(), &mac);
    opened.map_err(|_| {
        error(
            &code::PROVIDER_ANSWER,
            "it does not open with the server's key",
        )
    })?;
    let mut key: [u8; 32] = held.as_slice().try_into().map_err(|_| no_secret())?;
    Ok(SecretKey::take(&mut key)?)
}
