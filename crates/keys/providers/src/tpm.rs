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

/// The TPM at the address that a user wrote (see [`Sealer::parse`]), or the machine's where there
/// is none. All its tasks together may take `time`, counted from now; without it, each task may
/// take as long as a provider may.
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
    fn sealer(&self) -> Result<Sealer, Error> {
        Ok(Sealer::new(
            &self.address,
            TimeLimit::EachTask(usual_limit()?),
        ))
    }

    /// The authorization that the PIN stands for: its SHA-256 without zeros at the end, which a TPM
    /// ignores too. `None` without a PIN.
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
        let authorization = self.authorization()?;
        let secret = self
            .sealer()?
            .unseal(authorization.as_ref(), wrapped.blob())?;
        wrapped.root(&secret)
    }

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
