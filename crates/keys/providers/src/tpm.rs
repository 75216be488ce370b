//! Provider `tpm:...`: the root key is sealed by a TPM 2.0, and comes out only while chosen
//! registers (PCRs) are as they were.
//!
//! Options: `pcrs=7,11` (7 unless said otherwise) of the SHA-256 bank;
//! `pin=ask|env:VAR|file:/PATH|command:CMD`, a PIN that the TPM checks and counts; `device=`, the
//! path of a device or socket, or a simulator's `HOST:PORT` (`/dev/tpmrm0` unless said otherwise).
//! The blob is a sealed object of `strongroom_keys_tpm`.
//!
//! Must not: speak to the TPM itself.

use std::time::Duration;

use strongroom_crypto::{SecretBytes, sha256};
use strongroom_format::code;
use strongroom_keyring::provider::{Created, Made, Registered, Wrapped, locator};
use strongroom_keyring::{Error, KeySource, Opener, RootProvider, SourceContext};
use strongroom_keys_tpm::{DEFAULT_ADDRESS, Deadline, Registers, Sealer, TimeLimit};

use crate::deadline::usual_limit;
use crate::options::{Options, secret_source};

pub(crate) const REGISTERED: Registered = Registered {
    name: NAME,
    number: NUMBER,
    acts: true,
    make,
};

const NAME: &str = "tpm";
const NUMBER: u16 = 7;

struct Tpm {
    argument: String,
    address: String,
    registers: Registers,
    pin: Option<KeySource>,
}

/// Makes a provider of the argument. The error says what is not valid. Opens no device.
fn make(argument: &str) -> Made {
    let options = Options::read(locator(argument), &["device", "pcrs", "pin"])?;
    let address = options.get("device").unwrap_or(DEFAULT_ADDRESS);
    if !address.starts_with('/') && !address.contains(':') {
        return Err("device is an absolute path, or HOST:PORT of a simulator");
    }
    let registers = options.get("pcrs").map(Registers::parse).transpose()?;
    let pin = options.get("pin").map(secret_source).transpose()?;
    Ok(Box::new(Tpm {
        address: address.to_owned(),
        registers: registers.unwrap_or_default(),
        pin,
        argument: argument.to_owned(),
    }))
}

/// Returns a sealer for the TPM at the address that a user wrote (see [`Sealer::parse`]), or for
/// the machine's where there is none. Opens nothing yet. All its tasks together may take `time`,
/// counted from now; without it, each task may take as long as a provider may.
///
/// # Errors
/// SR-2019 for an address that is not one; SR-2043 for a wrong limit in the environment.
pub fn sealer(address: Option<&str>, time: Option<Duration>) -> Result<Sealer, Error> {
    let limit = match time {
        Some(time) => TimeLimit::Until(Deadline::after(time)),
        None => TimeLimit::EachTask(usual_limit()?),
    };
    Sealer::parse(address.unwrap_or(DEFAULT_ADDRESS), limit)
        .map_err(|why| Error::new(&code::KEY_OPTION, why))
}

impl Tpm {
    /// Returns a sealer for the argument's TPM. Opens nothing yet; each task may take the usual
    /// limit (30 seconds unless the environment says otherwise). Errors: SR-2043 for a wrong limit
    /// in the environment.
    fn sealer(&self) -> Result<Sealer, Error> {
        Ok(Sealer::new(
            &self.address,
            TimeLimit::EachTask(usual_limit()?),
        ))
    }

    /// Fetches the PIN from its source, and returns the authorization made of it: its SHA-256
    /// without zeros at the end, which a TPM ignores too. `None` where the argument has no PIN.
    /// Errors: what the source reports; SR-5001 when the system reports an error.
    fn authorization(&self) -> Result<Option<SecretBytes>, Error> {
        let Some(source) = &self.pin else {
            return Ok(None);
        };
        let context = SourceContext {
            prompt: String::from("PIN for the TPM"),
            ..SourceContext::default()
        };
        let pin = source.passphrase(&context)?;
        let mut digest = sha256(&[pin.as_slice()]);
        let len = digest
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |at| at + 1);
        let mut authorization = SecretBytes::take(&mut digest)?;
        authorization.truncate(len);
        Ok(Some(authorization))
    }
}

impl RootProvider for Tpm {
    /// Returns `tpm`.
    fn name(&self) -> &'static str {
        NAME
    }

    /// Returns 7.
    fn number(&self) -> u16 {
        NUMBER
    }

    /// Returns the argument as the keyring stores it, with the wrapped root key if there is one.
    fn argument(&self) -> &str {
        &self.argument
    }

    /// Fetches the PIN, if any, has the TPM unseal the secret, and derives the root key. Errors:
    /// SR-2020 no wrapped root key; SR-2106 when the registers have changed; SR-2102 for a wrong
    /// PIN; SR-2103 when another TPM sealed it; SR-2101 when the TPM does not answer; SR-2104 when
    /// its owner hierarchy is switched off; SR-2105 when the sealed object is damaged; what the
    /// PIN's source reports.
    fn fetch(&self, _creating: bool) -> Result<Opener, Error> {
        let wrapped = Wrapped::of(NUMBER, &self.argument)?;
        let authorization = self.authorization()?;
        let secret = self
            .sealer()?
            .unseal(authorization.as_ref(), wrapped.blob())?;
        wrapped.root(&secret)
    }

    /// Fetches the PIN, if any, makes a new root key, and has the TPM seal its secret to the
    /// present values of the registers, and unseal it again. Errors: SR-2101 when the TPM does not
    /// answer; SR-2102 after too many wrong PINs; SR-2104 when its owner hierarchy is switched off;
    /// SR-2105 when it unseals something else; SR-2106 without a bank of registers; SR-2020 when
    /// the argument becomes too long; what the PIN's source reports.
    fn create(&self) -> Result<Created, Error> {
        let authorization = self.authorization()?;
        Wrapped::create(NUMBER, locator(&self.argument), |secret, _| {
            let sealer = self.sealer()?;
            Ok(sealer.seal(self.registers, authorization.as_ref(), secret)?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_choose_registers_and_place() {
        for text in [
            "",
            "pcrs=0,23",
            "device=/dev/tpm0;pcrs=7,11;pin=ask",
            "device=localhost:2321",
        ] {
            assert!(make(text).is_ok(), "{text}");
        }
        for text in [
            "pcrs=24",
            "pcrs=",
            "pcrs=7,",
            "pin=1234",
            "device=tpm0",
            "bank=sha1",
        ] {
            let refused = make(text).err();
            assert!(refused.is_some_and(|why| !why.contains("1234")), "{text}");
        }
    }

    #[test]
    fn an_address_that_is_not_one_is_an_option_that_cannot_be_used() {
        assert!(sealer(Some("device:/dev/tpmrm0"), None).is_ok());
        for text in ["", "tpm0", "keys.example.org:2321"] {
            let error = sealer(Some(text), None).err().unwrap();
            assert_eq!(error.code(), &code::KEY_OPTION, "{text}");
        }
    }
}
