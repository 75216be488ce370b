//! A wrapped root key in a provider's argument, after the text that locates the device.
//!
//! A device that wraps keys, and does not hand out its own, wraps 32 random bytes - the secret - to
//! a blob that only it can unwrap. Blob and a random id are in the argument as `LOCATOR;blob=HEX`
//! (docs/spec/keyring.md, "Wrapped root keys"). The root key is derived from the secret, the id and
//! the provider's number, so that a blob of another keyring, another provider or another purpose
//! gives another key whatever the device checks; a device that can, checks too:
//! [`Wrapped::context`].
//!
//! Must not: call a device.

use strongroom_crypto::{SecretKey, hkdf, random16};
use strongroom_format::code;
use strongroom_format::hex::{from_hex, hex};
use strongroom_format::keyring::PROVIDER_ARGUMENT_MAX;

use super::kind::Created;
use crate::error::Error;
use crate::opener::Opener;
use crate::purpose::Label;

/// What stands between the locator and the blob.
const MARK: &str = ";blob=";
/// The first byte of every blob.
const VERSION: u8 = 1;
const ID_LEN: usize = 16;

/// Returns the argument without the wrapped root key, for display.
#[must_use]
pub fn locator(argument: &str) -> &str {
    argument
        .rsplit_once(MARK)
        .map_or(argument, |(locator, _)| locator)
}

/// A wrapped root key: its id, and the blob that the device unwraps.
pub struct Wrapped {
    number: u16,
    id: [u8; ID_LEN],
    blob: Vec<u8>,
}

impl Wrapped {
    /// Makes a new root key for the provider of this number at `locator`: `wrap` gets a secret of
    /// 32 random bytes and the context to bind it to, and returns the device's blob.
    ///
    /// # Errors
    /// Those of `wrap`; SR-2020 when the blob is too long to be kept in a keyring; SR-5001 when the
    /// system reports an error.
    pub fn create(
        number: u16,
        locator: &str,
        wrap: impl FnOnce(&SecretKey, &[u8]) -> Result<Vec<u8>, Error>,
    ) -> Result<Created, Error> {
        let secret = SecretKey::generate()?;
        let mut wrapped = Self {
            number,
            id: random16()?,
            blob: Vec::new(),
        };
        wrapped.blob = wrap(&secret, &wrapped.context())?;
        let bytes = [&[VERSION][..], &wrapped.id, &wrapped.blob].concat();
        let argument = format!("{locator}{MARK}{}", hex(&bytes));
        if argument.len() > PROVIDER_ARGUMENT_MAX {
            let detail = "the device's wrapped key is too long to be kept in a keyring";
            return Err(Error::new(&code::PROVIDER, detail));
        }
        let opener = wrapped.root(&secret)?;
        Ok(Created { opener, argument })
    }

    /// Parses the wrapped root key in the argument of a keyring. Calls no device.
    ///
    /// # Errors
    /// SR-2020 when there is none, or it is malformed.
    pub fn of(number: u16, argument: &str) -> Result<Self, Error> {
        let refused = |why: &str| Error::new(&code::PROVIDER, why);
        let (_, text) = argument
            .rsplit_once(MARK)
            .ok_or_else(|| refused("the keyring holds no wrapped root key"))?;
        let bytes = from_hex(text);
        let parts = bytes.as_deref().and_then(|bytes| {
            let rest = bytes.strip_prefix(&[VERSION])?;
            rest.split_first_chunk::<ID_LEN>()
        });
        match parts {
            Some((id, blob)) if !blob.is_empty() => Ok(Self {
                number,
                id: *id,
                blob: blob.to_vec(),
            }),
            _ => Err(refused("the wrapped root key is malformed")),
        }
    }

    /// Returns the device's blob.
    #[must_use]
    pub fn blob(&self) -> &[u8] {
        &self.blob
    }

    /// Returns the context for a device that can bind a secret to one: label, number, id; 45 bytes.
    #[must_use]
    pub fn context(&self) -> Vec<u8> {
        [&self.info()[..], &self.id].concat()
    }

    /// Returns the id as 32 hexadecimal digits, for devices that take the context as text.
    #[must_use]
    pub fn id_hex(&self) -> String {
        hex(&self.id)
    }

    /// Derives the root key from the secret that the device has unwrapped.
    ///
    /// # Errors
    /// SR-5001 when there is no memory for keys.
    pub fn root(&self, secret: &SecretKey) -> Result<Opener, Error> {
        Ok(Opener::raw(hkdf(secret, &self.id, &self.info())?))
    }

    /// Returns the `info` of HKDF: the label and the provider's number.
    fn info(&self) -> Vec<u8> {
        [Label::ProviderRoot.info(), &self.number.to_le_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8) -> SecretKey {
        SecretKey::take(&mut [byte; 32]).unwrap()
    }

    fn same(one: &Opener, other: &Opener) -> bool {
        let object =
            crate::Object::create(&crate::keyring::NEW_KEYRING, &one.recipient().unwrap()).unwrap();
        let header = object.header();
        other
            .open(&header.slots, header.epoch, header.object_id)
            .is_ok()
    }

    #[test]
    fn what_was_created_is_found_again() {
        let mut kept = None;
        let made = Wrapped::create(6, "a;b?c=d", |secret, context| {
            kept = Some((secret.try_clone()?, context.to_vec()));
            Ok(vec![7; 48])
        })
        .unwrap();
        let (secret, context) = kept.unwrap();
        assert_eq!(locator(&made.argument), "a;b?c=d");
        let found = Wrapped::of(6, &made.argument).unwrap();
        assert_eq!(
            (found.blob(), found.context()),
            (&[7_u8; 48][..], context.clone())
        );
        assert_eq!(context.len(), 45);
        assert!(same(&found.root(&secret).unwrap(), &made.opener));
    }

    #[test]
    fn number_id_and_secret_all_make_the_key() {
        let of = |number, id| Wrapped {
            number,
            id: [id; 16],
            blob: vec![1],
        };
        let key = of(6, 1).root(&secret(1)).unwrap();
        assert!(same(&of(6, 1).root(&secret(1)).unwrap(), &key));
        assert!(!same(&of(7, 1).root(&secret(1)).unwrap(), &key));
        assert!(!same(&of(6, 2).root(&secret(1)).unwrap(), &key));
        assert!(!same(&of(6, 1).root(&secret(2)).unwrap(), &key));
    }

    #[test]
    fn other_forms_are_refused() {
        let id = "00112233445566778899aabbccddeeff";
        assert!(Wrapped::of(6, &format!("x;blob=01{id}ab")).is_ok());
        for text in [
            "x".to_owned(),
            "x;blob=".to_owned(),
            format!("x;blob=01{id}"),
            format!("x;blob=02{id}ab"),
            format!("x;blob=01{id}a"),
            format!("x;blob=01{id}AB"),
            format!("x;blob=01{id}ab "),
        ] {
            let error = Wrapped::of(6, &text).err().map(|error| error.code().number);
            assert_eq!(error, Some(2020), "{text}");
        }
        let long = Wrapped::create(6, "x", |_, _| Ok(vec![0; 2048]));
        assert_eq!(long.err().unwrap().code().number, 2020);
    }
}
