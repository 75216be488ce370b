//! Provider `pkcs11:URI`: the root key is wrapped by an AES key that stays in a hardware security
//! module.
//!
//! The blob is a byte that says how, and what the module made: 1, AES-GCM: 12 bytes of IV, then
//! ciphertext and tag, with the context as associated data; 2, AES key wrap with padding (RFC
//! 5649), for keys that may wrap but not encrypt. The module is loaded in a process of its own
//! (`child.rs`): it may hang or crash, and has no business near other keys.
//!
//! Must not: take a PIN from the URI; make, change or export a key of the token.

mod module;
mod uri;

use strongroom_crypto::SecretBytes;
use strongroom_crypto::SecretKey;
use strongroom_format::code;
use strongroom_keyring::provider::{Created, Made, Registered, Wrapped, locator};
use strongroom_keyring::{Error, Opener, RootProvider, SourceContext};

use crate::child;
use crate::limit::Deadline;
use uri::Uri;

pub(crate) use module::serve;

pub(crate) const REGISTERED: Registered = Registered {
    name: NAME,
    number: NUMBER,
    acts: true,
    make,
};

const NAME: &str = "pkcs11";
const NUMBER: u16 = 6;
/// Most bytes of a PIN.
const PIN_MAX: usize = 1024;
// What the module's process is asked to do.
const WRAP: u8 = 1;
const UNWRAP: u8 = 2;

struct Pkcs11 {
    argument: String,
    uri: Uri,
}

fn make(argument: &str) -> Made {
    let uri = Uri::read(locator(argument))?;
    let argument = argument.to_owned();
    Ok(Box::new(Pkcs11 { argument, uri }))
}

impl Pkcs11 {
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

    fn ask(
        &self,
        operation: u8,
        pin: Option<&SecretBytes>,
        context: &[u8],
        data: &[u8],
    ) -> Result<SecretBytes, Error> {
        let with_pin = u8::from(pin.is_some());
        let pin = pin.map(SecretBytes::as_slice).unwrap_or_default();
        let uri = &self.uri;
        let fields: [&[u8]; 11] = [
            &[operation, with_pin],
            uri.module.as_bytes(),
            pin,
            &uri.token,
            &uri.serial,
            &uri.manufacturer,
            &uri.model,
            &uri.object,
            &uri.id,
            context,
            data,
        ];
        child::ask(&fields, Deadline::begin()?)
    }
}

impl RootProvider for Pkcs11 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn number(&self) -> u16 {
        NUMBER
    }

    fn argument(&self) -> &str {
        &self.argument
    }

    fn fetch(&self, _creating: bool) -> Result<Opener, Error> {
        let wrapped = Wrapped::of(NUMBER, &self.argument)?;
        let pin = self.pin()?;
        let secret = self.ask(UNWRAP, pin.as_ref(), &wrapped.context(), wrapped.blob())?;
        let mut key = [0; 32];
        if secret.len() != key.len() {
            let detail = "the token unwraps something other than a key of Strongroom";
            return Err(Error::new(&code::PROVIDER_ANSWER, detail));
        }
        key.copy_from_slice(secret.as_slice());
        wrapped.root(&SecretKey::take(&mut key)?)
    }

    fn create(&self) -> Result<Created, Error> {
        let pin = self.pin()?;
        let pin = pin.as_ref();
        Wrapped::create(NUMBER, locator(&self.argument), |secret, context| {
            let blob = self.ask(WRAP, pin, context, secret.expose())?;
            // A device that wraps and cannot unwrap would cost the keyring: tried before anything
            // is kept.
            let back = self.ask(UNWRAP, pin, context, blob.as_slice())?;
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
