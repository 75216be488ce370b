//! The provider that is made of a server which seals a secret and opens it again.
//!
//! The provider's blob (docs/spec/keyring.md, "Blobs of servers") is a check value of 32 bytes and
//! what the server returned for the secret.
//!
//! Invariant R4: the check value is a MAC under a key derived from the secret itself, over the
//! context and the rest of the blob. A server, or an attacker in its place, that returns another
//! secret is detected before the secret becomes a key.
//!
//! Must not: hold a secret longer than a call; accept a secret that the check value does not
//! confirm.

use std::time::Duration;

use strongroom_crypto::{MacKey, SecretKey, hkdf};
use strongroom_format::code;
use strongroom_keyring::provider::{Created, RootProvider, Wrapped, locator};
use strongroom_keyring::{Error, Opener};

use super::locator::Locator;
use crate::deadline::{Deadline, usual_limit};

/// Bytes of the check value.
const CHECK_LEN: usize = 32;
/// The longest sealed secret, in bytes.
const SEALED_MAX: usize = 1536;
/// What follows the context in the label of the check value's key.
const CHECK: &[u8] = b"check";
/// Bytes at the end of a context that are the keyring's id.
const ID_LEN: usize = 16;

/// A server that seals a secret and opens it again.
pub(crate) trait SealingServer: Send + Sync {
    /// Has the server seal the secret, bound to `context` where the server can do that, and returns
    /// the bytes that [`Self::open`] takes. Errors, by kind of server: SR-2101 to SR-2105 for the
    /// connection, the credentials, the key and the response, and SR-2120 to SR-2124 for TLS, a
    /// destroyed key, a busy server and files.
    fn seal(
        &self,
        secret: &SecretKey,
        context: &[u8],
        deadline: Deadline,
    ) -> Result<Vec<u8>, Error>;
    /// Has the server open what [`Self::seal`] returned. May return another secret than the sealed
    /// one: the caller checks it. Errors, by kind of server: SR-2101 to SR-2105 for the connection,
    /// the credentials, the key and the response, and SR-2120 to SR-2124 for TLS, a destroyed key,
    /// a busy server and files.
    fn open(&self, sealed: &[u8], context: &[u8], deadline: Deadline) -> Result<SecretKey, Error>;
}

/// A provider of root keys by means of a [`SealingServer`].
pub(crate) struct SealingProvider<S> {
    pub(crate) name: &'static str,
    pub(crate) number: u16,
    /// As the keyring stores it: the locator and, once a root key was wrapped, the blob.
    pub(crate) argument: String,
    /// How long an opening or a sealing may take, if the argument says.
    pub(crate) timeout: Option<Duration>,
    pub(crate) server: S,
}

impl<S> SealingProvider<S> {
    /// Returns the deadline of an opening or sealing that begins now: the time of the argument, or
    /// else the usual limit (30 seconds unless the environment says otherwise). Errors: SR-2043
    /// when the variable for that limit is not valid.
    fn deadline(&self) -> Result<Deadline, Error> {
        Ok(Deadline::after(self.timeout.map_or_else(usual_limit, Ok)?))
    }
}

impl<S: SealingServer> RootProvider for SealingProvider<S> {
    /// Returns the provider's word before the colon.
    fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the number that stands for this kind of provider in a keyring.
    fn number(&self) -> u16 {
        self.number
    }

    /// Returns the argument as the keyring stores it: the locator and, once a root key was wrapped,
    /// the blob.
    fn argument(&self) -> &str {
        &self.argument
    }

    /// Has the server open the wrapped secret, checks that it is the one that was sealed, and
    /// derives the root key. Errors: SR-2020 when no wrapped root key is in the argument; SR-2105
    /// when the secret is another one; SR-2043 for a wrong time limit in the environment; those of
    /// the server.
    fn fetch(&self, _creating: bool) -> Result<Opener, Error> {
        let wrapped = Wrapped::of(self.number, &self.argument)?;
        let deadline = self.deadline()?;
        let secret = open(&self.server, wrapped.blob(), &wrapped.context(), deadline)?;
        wrapped.root(&secret)
    }

    /// Makes a new root key, has the server seal its secret, and has it opened again as a check.
    /// Errors: SR-2105 when the server does not return the same secret, or the sealed one is too
    /// long; SR-2020 when the argument becomes too long; SR-2043 for a wrong time limit in the
    /// environment; those of the server.
    fn create(&self) -> Result<Created, Error> {
        let place = locator(&self.argument);
        Wrapped::create(self.number, place, |secret, context| {
            let deadline = self.deadline()?;
            seal(&self.server, secret, context, deadline)
        })
    }
}

/// Has the server seal the secret, and returns the blob: check value and sealed secret. Has the
/// secret opened again before it returns, so that a server which seals but does not open is
/// detected before anything depends on it. Errors: SR-2105 when the sealed secret is too long, or
/// opening returns another one; those of the server.
fn seal(
    server: &dyn SealingServer,
    secret: &SecretKey,
    context: &[u8],
    deadline: Deadline,
) -> Result<Vec<u8>, Error> {
    let sealed = server.seal(secret, context, deadline)?;
    if sealed.len() > SEALED_MAX {
        return Err(Error::new(
            &code::PROVIDER_ANSWER,
            "what was sealed is too long",
        ));
    }
    let check = check_key(secret, context)?.mac(&[context, &sealed]);
    let blob = [&check, sealed.as_slice()].concat();
    open(server, &blob, context, deadline)?;
    Ok(blob)
}

/// Returns the argument that the keyring stores: the locator in its canonical form, then `;blob=`
/// and the wrapped root key exactly as the whole argument `given` ends with them, if it does.
pub(crate) fn stored_argument(canonical: &Locator, given: &str) -> String {
    let blob = given.get(locator(given).len()..).unwrap_or_default();
    format!("{}{blob}", canonical.text())
}

/// Has the server open the secret of a blob, and checks it against the blob's check value. Errors:
/// SR-2105 when the blob is malformed, or the secret is another one; those of the server.
fn open(
    server: &dyn SealingServer,
    blob: &[u8],
    context: &[u8],
    deadline: Deadline,
) -> Result<SecretKey, Error> {
    let parts = blob.split_first_chunk::<CHECK_LEN>();
    let parts = parts.filter(|(_, sealed)| sealed.len() <= SEALED_MAX);
    let Some((check, sealed)) = parts else {
        return Err(Error::new(&code::PROVIDER_ANSWER, ""));
    };
    let secret = server.open(sealed, context, deadline)?;
    match check_key(&secret, context)?.verify(&[context, sealed], check) {
        true => Ok(secret),
        false => Err(Error::new(
            &code::PROVIDER_ANSWER,
            "it is not what was sealed",
        )),
    }
}

/// Derives the key of the check value from the secret and the context. Errors: SR-5001 when there
/// is no memory for keys.
fn check_key(secret: &SecretKey, context: &[u8]) -> Result<MacKey, Error> {
    Ok(MacKey::new(&hkdf(
        secret,
        &[],
        &[context, CHECK].concat(),
    )?)?)
}

/// Returns the keyring's id at the end of a context, as hexadecimal digits.
pub(crate) fn context_id(context: &[u8]) -> String {
    let at = context.len().saturating_sub(ID_LEN);
    strongroom_format::hex::hex(context.get(at..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server in this process that binds nothing and opens everything.
    struct Fake;

    impl SealingServer for Fake {
        fn seal(&self, secret: &SecretKey, _: &[u8], _: Deadline) -> Result<Vec<u8>, Error> {
            Ok([secret.expose().as_slice(), b"more"].concat())
        }

        fn open(&self, sealed: &[u8], _: &[u8], _: Deadline) -> Result<SecretKey, Error> {
            let mut key = [0; 32];
            key.copy_from_slice(&sealed[..32]);
            Ok(SecretKey::take(&mut key)?)
        }
    }

    #[test]
    fn a_blob_opens_in_its_context_and_no_changed_one_does() {
        let deadline = Deadline::after(Duration::from_secs(600));
        let (secret, context) = (SecretKey::generate().unwrap(), [5; 45]);
        let blob = seal(&Fake, &secret, &context, deadline).unwrap();
        let opened = open(&Fake, &blob, &context, deadline).unwrap();
        assert!(opened.ct_eq(&secret));
        let refused = |blob: &[u8], context: &[u8]| {
            let error = open(&Fake, blob, context, deadline).err().unwrap();
            error.code().number
        };
        for at in 0..blob.len() {
            let mut changed = blob.clone();
            changed[at] ^= 1;
            let number = code::PROVIDER_ANSWER.number;
            assert_eq!(refused(&changed, &context), number, "byte {at}");
        }
        assert_eq!(refused(&blob, &[6; 45]), code::PROVIDER_ANSWER.number);
        for length in 0..CHECK_LEN {
            assert_eq!(
                refused(&blob[..length], &context),
                code::PROVIDER_ANSWER.number
            );
        }
        let long = [blob, vec![0; SEALED_MAX]].concat();
        assert_eq!(refused(&long, &context), code::PROVIDER_ANSWER.number);
        assert_eq!(context_id(&context), "05".repeat(16));
        assert_eq!(context_id(&[1]), "01");
    }
}
