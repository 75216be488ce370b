//! The machine's TPM for whoever keeps what it sealed elsewhere than in a keyring: volumes keep it
//! in a LUKS2 token.
//!
//! The blob is that of the provider (docs/spec/keyring.md, "Wrapped root keys"), without a PIN.
//!
//! Must not: take the TPM's place from where the blob is kept.

use std::net::SocketAddr;
use std::time::Duration;

use strongroom_crypto::{SecretBytes, SecretKey};
use strongroom_format::code;
use strongroom_keyring::Error;

use super::{DEVICE, REGISTER, Tpm, chosen, clock};
use crate::limit::Deadline;

/// A TPM that seals and unseals, in a time that has its end.
pub struct Sealer(Tpm);

impl Sealer {
    /// The TPM at `place`: a path, as such or as `device:PATH`; a simulator as `ADDRESS:PORT` or,
    /// as tpm2-tools have it, `swtpm:host=ADDRESS,port=PORT`; `/dev/tpmrm0` unless said otherwise.
    /// From now on it has `time` for all that it is asked; else the provider's usual time for each
    /// piece of work.
    ///
    /// # Errors
    /// SR-2019.
    pub fn new(place: Option<&str>, time: Option<Duration>) -> Result<Self, Error> {
        let refused = || {
            let detail = "the TPM's place is a path, device:PATH, ADDRESS:PORT or swtpm:host=ADDRESS,port=PORT";
            Error::new(&code::KEY_OPTION, detail)
        };
        let device = match place {
            None => DEVICE.to_owned(),
            Some(text) => place_of(text).ok_or_else(refused)?,
        };
        Ok(Self(Tpm {
            argument: String::new(),
            device,
            registers: 0,
            pin: None,
            before: None,
            end: time.map(|time| Deadline::within(Some(time))).transpose()?,
        }))
    }

    /// What the TPM's clock says, in milliseconds. It stands still without power.
    ///
    /// # Errors
    /// SR-2101 to SR-2106.
    pub fn clock(&self) -> Result<u64, Error> {
        self.0.with(clock::now)
    }

    /// What is sealed from now on is unsealed only while the TPM's clock is before `end`, in
    /// milliseconds; to unseal it, the same has to be said.
    #[must_use]
    pub fn before(mut self, end: u64) -> Self {
        self.0.before = Some(end);
        self
    }

    /// Seals a secret to the present values of these registers (7 unless said otherwise), and tries
    /// it.
    ///
    /// # Errors
    /// SR-2019; SR-2101 to SR-2106.
    pub fn seal(&mut self, registers: Option<&str>, secret: &SecretKey) -> Result<Vec<u8>, Error> {
        let mask = chosen(registers.unwrap_or(REGISTER));
        self.0.registers = mask.map_err(|why| Error::new(&code::KEY_OPTION, why))?;
        self.0.sealed(&SecretBytes::with_capacity(0)?, secret)
    }

    /// What was sealed.
    ///
    /// # Errors
    /// SR-2101 to SR-2106.
    pub fn unseal(&self, blob: &[u8]) -> Result<SecretKey, Error> {
        let auth = SecretBytes::with_capacity(0)?;
        self.0.with(|link| self.0.unseal(link, &auth, blob))
    }
}

/// A path, or the address of a simulator: never a name, whose resolution could take any time.
fn place_of(text: &str) -> Option<String> {
    let path = text.strip_prefix("device:").unwrap_or(text);
    if path.starts_with('/') {
        return Some(path.to_owned());
    }
    let address: SocketAddr = match text.strip_prefix("swtpm:") {
        Some(options) => {
            let (host, port) = options.strip_prefix("host=")?.split_once(",port=")?;
            SocketAddr::new(host.parse().ok()?, port.parse().ok()?)
        }
        None => text.parse().ok()?,
    };
    Some(address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_paths_and_addresses_and_no_names() {
        let good = [
            ("/dev/tpm0", "/dev/tpm0"),
            ("device:/dev/tpmrm0", "/dev/tpmrm0"),
            ("127.0.0.1:2321", "127.0.0.1:2321"),
            ("[::1]:2321", "[::1]:2321"),
            ("swtpm:host=127.0.0.1,port=2321", "127.0.0.1:2321"),
        ];
        for (text, place) in good {
            assert_eq!(place_of(text).as_deref(), Some(place), "{text}");
            assert!(Sealer::new(Some(text), None).is_ok());
        }
        let bad = [
            "",
            "tpm0",
            "device:tpm0",
            "keys.example.org:2321",
            "127.0.0.1",
            "swtpm:",
            "swtpm:port=1,host=127.0.0.1",
            "swtpm:host=127.0.0.1,port=99999",
            "mssim:host=127.0.0.1,port=1",
        ];
        for text in bad {
            assert_eq!(place_of(text), None, "{text}");
            let error = Sealer::new(Some(text), None).err().unwrap();
            assert_eq!(error.code(), &code::KEY_OPTION, "{text}");
        }
    }
}
