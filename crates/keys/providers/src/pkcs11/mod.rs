//! Provider `pkcs11:URI`: the root key is wrapped by an AES key that stays in a hardware security
//! module.
//!
//! The blob is a byte for the mechanism, and what the module returned. 1 is AES-GCM: 12 bytes of
//! IV, then ciphertext and tag, with the context as associated data. 2 is AES key wrap with padding
//! (RFC 5649), for keys that may wrap but not encrypt. The module is loaded in a child process
//! (`child.rs`), because it may hang or crash, and must not share memory with other keys.
//!
//! Must not: take a PIN from the URI; make, change or export a key of the token.

mod module;
mod request;
mod uri;

use strongroom_crypto::{SecretBytes, SecretKey};
use strongroom_format::code;
use strongroom_keyring::provider::{Created, Made, Registered, Wrapped, locator};
use strongroom_keyring::{Error, Opener, RootProvider, SourceContext};

use crate::child;
use crate::deadline::Deadline;
use request::{Operation, with_fields};
use uri::Uri;

pub(crate) use module::operate;

pub(crate) const REGISTERED: Registered = Registered {
    name: NAME,
    number: NUMBER,
    acts: true,
    make,
};

const NAME: &str = "pkcs11";
const NUMBER: u16 = 6;
/// The longest PIN, in bytes.
const PIN_MAX: usize = 1024;

struct Pkcs11 {
    argument: String,
    uri: Uri,
}

/// Makes a provider of the argument, a PKCS #11 URI. The error says what is not valid. Loads no
/// module.
fn make(argument: &str) -> Made {
    let uri = Uri::read(locator(argument))?;
    let argument = argument.to_owned();
    Ok(Box::new(Pkcs11 { argument, uri }))
}

impl Pkcs11 {
    /// Fetches the PIN from its source; `None` where the token is used without one. Errors: SR-2102
    /// for more than 1024 bytes; what the source reports.
    fn pin(&self) -> Result<Option<SecretBytes>, Error> {
        let asked = SourceContext {
            prompt: String::from("PIN of the token"),
            ..SourceContext::default()
        };
        let pin = self.uri.pin.as_ref();
        let pin = pin.map(|source| source.passphrase(&asked)).transpose()?;
        match pin {
            Some(pin) if pin.len() > PIN_MAX => {
                Err(Error::new(&code::PROVIDER_DENIED, "no PIN is that long"))
            }
            pin => Ok(pin),
        }
    }

    /// Has the module wrap or unwrap `data`, in a child process and within the usual limit (30
    /// seconds unless the environment says otherwise). Errors: SR-2101 (module or token absent, or
    /// too late), SR-2102 (PIN refused), SR-2103 (no such key), SR-2104 (the key may not do it),
    /// SR-2105 (the data does not unwrap); SR-2101 also when the child takes too long; SR-2100 when
    /// this program cannot start one; SR-2043 for a wrong time limit in the environment.
    fn call(
        &self,
        operation: Operation,
        pin: Option<&SecretBytes>,
        context: &[u8],
        data: &[u8],
    ) -> Result<SecretBytes, Error> {
        let deadline = Deadline::usual()?;
        with_fields(operation, &self.uri, pin, context, data, |fields| {
            child::call(fields, deadline)
        })
    }
}

impl RootProvider for Pkcs11 {
    /// Returns `pkcs11`.
    fn name(&self) -> &'static str {
        NAME
    }

    /// Returns 6.
    fn number(&self) -> u16 {
        NUMBER
    }

    /// Returns the argument as the keyring stores it: the URI, and the wrapped root key if there is
    /// one.
    fn argument(&self) -> &str {
        &self.argument
    }

    /// Fetches the PIN, has the token unwrap the secret, and derives the root key. Errors: SR-2020
    /// no wrapped root key; SR-2105 when the secret is not 32 bytes; what the PIN's source reports;
    /// SR-2101 (module or token absent, or too late), SR-2102 (PIN refused), SR-2103 (no such key),
    /// SR-2104 (the key may not do it), SR-2105 (the data does not unwrap).
    fn fetch(&self, _creating: bool) -> Result<Opener, Error> {
        let wrapped = Wrapped::of(NUMBER, &self.argument)?;
        let pin = self.pin()?;
        let secret = self.call(
            Operation::Unwrap,
            pin.as_ref(),
            &wrapped.context(),
            wrapped.blob(),
        )?;
        let mut key = [0; 32];
        if secret.len() != key.len() {
            let detail = "the token unwraps something other than a key of Strongroom";
            return Err(Error::new(&code::PROVIDER_ANSWER, detail));
        }
        key.copy_from_slice(secret.as_slice());
        wrapped.root(&SecretKey::take(&mut key)?)
    }

    /// Fetches the PIN, makes a new root key, has the token wrap its secret, and unwraps that again
    /// before anything is stored. Errors: SR-2105 when it unwraps to something else; SR-2020 when
    /// the argument becomes too long; what the PIN's source reports; SR-2101 (module or token
    /// absent, or too late), SR-2102 (PIN refused), SR-2103 (no such key), SR-2104 (the key may not
    /// do it), SR-2105 (the data does not unwrap).
    fn create(&self) -> Result<Created, Error> {
        let pin = self.pin()?;
        let pin = pin.as_ref();
        Wrapped::create(NUMBER, locator(&self.argument), |secret, context| {
            let blob = self.call(Operation::Wrap, pin, context, secret.expose())?;
            // Unwrapped before anything is stored: with a device that wraps but does not unwrap,
            // the keyring would be lost.
            let back = self.call(Operation::Unwrap, pin, context, blob.as_slice())?;
            match back.as_slice() == secret.expose() {
                true => Ok(blob.as_slice().to_vec()),
                false => {
                    let detail = "the token does not unwrap what it wrapped";
                    Err(Error::new(&code::PROVIDER_ANSWER, detail))
                }
            }
        })
    }
}
