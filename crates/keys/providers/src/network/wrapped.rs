//! A secret that a server has sealed, with a check value; and the provider made of a server that
//! seals.
//!
//! The provider's blob (docs/spec/keyring.md, "Blobs of servers") is a check value of 32 bytes and
//! what the server made of the secret.
//!
//! Invariant R4: the check value is made with the secret itself, over the context and everything
//! else in the blob. A server, or whoever stands in its place, that gives back another secret is
//! found out before it becomes a key.
//!
//! Must not: hold a secret longer than a call; believe a blob before its secret has confirmed it.

use std::time::Duration;

use strongroom_crypto::{MacKey, SecretKey, hkdf};
use strongroom_format::code;
use strongroom_keyring::provider::{Created, RootProvider, Wrapped, locator};
use strongroom_keyring::{Error, Opener};

use super::deadline::Deadline;
use super::error;
use crate::limit::limit;

/// Bytes of the check value.
const CHECK_LEN: usize = 32;
/// Most bytes of what a server makes of a secret.
const SEALED_MAX: usize = 1536;
/// What follows the context in the label of the check value's key.
const CHECK: &[u8] = b"check";
/// Bytes of a context's end that are the id.
const ID_LEN: usize = 16;

/// Seals and opens a secret where the key for that is.
pub(crate) trait Remote: Send + Sync {
    /// Has the secret sealed, bound to `context`.
    fn seal(
        &self,
        secret: &SecretKey,
        context: &[u8],
        deadline: Deadline,
    ) -> Result<Vec<u8>, Error>;
    /// Has it opened.
    fn open(&self, sealed: &[u8], context: &[u8], deadline: Deadline) -> Result<SecretKey, Error>;
}

/// A provider whose server seals.
pub(crate) struct Sealing<R> {
    pub(crate) name: &'static str,
    pub(crate) number: u16,
    /// As the keyring has it: locator, and what was wrapped if something was.
    pub(crate) argument: String,
    /// How long an opening or a sealing may take, if the argument says.
    pub(crate) timeout: Option<Duration>,
    pub(crate) remote: R,
}

impl<R> Sealing<R> {
    /// The argument to be kept: the locator in its settled form, and what was wrapped as it was
    /// given.
    pub(crate) fn argument_of(settled: &str, given: &str) -> String {
        let behind = given.get(locator(given).len()..).unwrap_or_default();
        format!("{settled}{behind}")
    }

    fn deadline(&self) -> Result<Deadline, Error> {
        Ok(Deadline::after(self.timeout.map_or_else(limit, Ok)?))
    }
}

impl<R: Remote> RootProvider for Sealing<R> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn number(&self) -> u16 {
        self.number
    }

    fn argument(&self) -> &str {
        &self.argument
    }

    fn fetch(&self, _creating: bool) -> Result<Opener, Error> {
        let wrapped = Wrapped::of(self.number, &self.argument)?;
        let deadline = self.deadline()?;
        let secret = open(&self.remote, wrapped.blob(), &wrapped.context(), deadline)?;
        wrapped.root(&secret)
    }

    fn create(&self) -> Result<Created, Error> {
        let place = locator(&self.argument);
        Wrapped::create(self.number, place, |secret, context| {
            let deadline = self.deadline()?;
            seal(&self.remote, secret, context, deadline)
        })
    }
}

/// Has a secret sealed, and opened again: what may be sealed and not opened is found out before
/// anything depends on it.
fn seal(
    remote: &dyn Remote,
    secret: &SecretKey,
    context: &[u8],
    deadline: Deadline,
) -> Result<Vec<u8>, Error> {
    let sealed = remote.seal(secret, context, deadline)?;
    if sealed.len() > SEALED_MAX {
        return Err(error(&code::PROVIDER_ANSWER, "what was sealed is too long"));
    }
    let check = check_key(secret, context)?.mac(&[context, &sealed]);
    let blob = [&check, sealed.as_slice()].concat();
    open(remote, &blob, context, deadline)?;
    Ok(blob)
}

/// The secret of a blob.
fn open(
    remote: &dyn Remote,
    blob: &[u8],
    context: &[u8],
    deadline: Deadline,
) -> Result<SecretKey, Error> {
    let parts = blob.split_first_chunk::<CHECK_LEN>();
    let parts = parts.filter(|(_, sealed)| sealed.len() <= SEALED_MAX);
    let Some((check, sealed)) = parts else {
        return Err(error(&code::PROVIDER_ANSWER, ""));
    };
    let secret = remote.open(sealed, context, deadline)?;
    match check_key(&secret, context)?.verify(&[context, sealed], check) {
        true => Ok(secret),
        false => Err(error(&code::PROVIDER_ANSWER, "it is not what was sealed")),
    }
}

fn check_key(secret: &SecretKey, context: &[u8]) -> Result<MacKey, Error> {
    Ok(MacKey::new(&hkdf(
        secret,
        &[],
        &[context, CHECK].concat(),
    )?)?)
}

/// The id at a context's end, in words.
pub(crate) fn id_of(context: &[u8]) -> String {
    let at = context.len().saturating_sub(ID_LEN);
    strongroom_format::hex::hex(context.get(at..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server in this process that binds nothing and opens everything.
    struct Fake;

    impl Remote for Fake {
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
        assert_eq!(id_of(&context), "05".repeat(16));
        assert_eq!(id_of(&[1]), "01");
    }
}
