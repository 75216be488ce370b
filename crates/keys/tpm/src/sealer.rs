//! A TPM that seals secrets to the state of its machine and unseals them.
//!
//! Each task opens the TPM, and flushes what it created there before it returns.
//!
//! Must not: take the TPM's address from where the sealed object is kept.

use std::net::SocketAddr;

use strongroom_crypto::{SecretBytes, SecretKey};

use crate::clock;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::registers::Registers;
use crate::sealed_object::{Conditions, seal, unseal};
use crate::time_limit::TimeLimit;

/// The kernel's resource manager for the machine's TPM.
pub const DEFAULT_ADDRESS: &str = "/dev/tpmrm0";

/// A TPM that seals and unseals, within a time.
pub struct Sealer {
    address: String,
    limit: TimeLimit,
    clock_before: Option<u64>,
}

impl Sealer {
    /// Makes a sealer for the TPM at an address: the path of a device or of a simulator's socket,
    /// or `HOST:PORT` of a simulator. Opens nothing yet.
    #[must_use]
    pub fn new(address: &str, limit: TimeLimit) -> Self {
        Self {
            address: address.to_owned(),
            limit,
            clock_before: None,
        }
    }

    /// Makes a sealer for the TPM at an address as users write it: a path, as such or as
    /// `device:PATH`; a simulator as `ADDRESS:PORT` or, as tpm2-tools write it,
    /// `swtpm:host=ADDRESS,port=PORT`. A host's name is refused, because its resolution could take
    /// any time. Opens nothing yet.
    ///
    /// # Errors
    /// A text that says what is accepted.
    pub fn parse(text: &str, limit: TimeLimit) -> Result<Self, &'static str> {
        let address = parse_address(text).ok_or(
            "the TPM's place is a path, device:PATH, ADDRESS:PORT or swtpm:host=ADDRESS,port=PORT",
        )?;
        Ok(Self::new(&address, limit))
    }

    /// Adds a condition for all that is sealed and unsealed from now on: the TPM's clock is before
    /// `end`, in milliseconds. What is sealed with it has to be unsealed with it.
    #[must_use]
    pub fn before(self, end: u64) -> Self {
        Self {
            clock_before: Some(end),
            ..self
        }
    }

    /// Reads the TPM's clock, in milliseconds. It does not run while the TPM is without power.
    ///
    /// # Errors
    /// [`Failure::NotAuthentic`] when the answer was changed on the way; [`Failure::System`] or
    /// [`Failure::TimedOut`] when the TPM does not answer; [`Failure::Refused`] by the TPM.
    pub fn clock(&self) -> Result<u64, Failure> {
        self.with_connection(clock::read)
    }

    /// Seals a secret to the present values of these registers and, where there is one, to an
    /// authorization, and returns the sealed object. Unseals it again before it returns: what was
    /// sealed to values that the TPM no longer has, or that it cannot unseal, would be of no use.
    ///
    /// # Errors
    /// [`Failure::System`] or [`Failure::TimedOut`] when the TPM does not answer;
    /// [`Failure::NoRegisterBank`]; [`Failure::Refused`] by the TPM; [`Failure::Malformed`] when it
    /// unseals something else.
    pub fn seal(
        &self,
        registers: Registers,
        authorization: Option<&SecretBytes>,
        secret: &SecretKey,
    ) -> Result<Vec<u8>, Failure> {
        let conditions = self.conditions(authorization);
        let blob = self.with_connection(|tpm| seal(tpm, registers, conditions, secret))?;
        let unsealed = self.unseal(authorization, &blob)?;
        match unsealed.ct_eq(secret) {
            true => Ok(blob),
            false => Err(Failure::Malformed),
        }
    }

    /// Has the TPM unseal the secret of a sealed object.
    ///
    /// # Errors
    /// [`Failure::NotSealedObject`] for bytes that are none; [`Failure::OtherTpm`] when another TPM
    /// sealed it; [`Failure::Refused`] when the registers, the clock or the authorization are not
    /// right; [`Failure::System`] or [`Failure::TimedOut`] when the TPM does not answer.
    pub fn unseal(
        &self,
        authorization: Option<&SecretBytes>,
        blob: &[u8],
    ) -> Result<SecretKey, Failure> {
        let conditions = self.conditions(authorization);
        self.with_connection(|tpm| unseal(tpm, conditions, blob))
    }

    /// Returns the conditions of this sealer: the time, if any, and this authorization.
    fn conditions<'a>(&self, authorization: Option<&'a SecretBytes>) -> Conditions<'a> {
        Conditions {
            clock_before: self.clock_before,
            authorization,
        }
    }

    /// Opens the TPM, does the task, and flushes what it left in the TPM, also after a failure.
    /// Errors: those of opening ([`Failure::System`], [`Failure::TimedOut`]) and of the task.
    fn with_connection<T>(
        &self,
        task: impl FnOnce(&mut Connection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut connection = Connection::open(&self.address, self.limit.begin_task())?;
        let done = task(&mut connection);
        connection.flush();
        done
    }
}

/// Reads an address in one of the forms of [`Sealer::parse`], and returns it as
/// [`Connection::open`] takes it. `None` for anything else, such as a host's name.
fn parse_address(text: &str) -> Option<String> {
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
    fn addresses_are_paths_or_numeric_and_no_names() {
        let good = [
            ("/dev/tpm0", "/dev/tpm0"),
            ("device:/dev/tpmrm0", "/dev/tpmrm0"),
            ("127.0.0.1:2321", "127.0.0.1:2321"),
            ("[::1]:2321", "[::1]:2321"),
            ("swtpm:host=127.0.0.1,port=2321", "127.0.0.1:2321"),
        ];
        for (text, address) in good {
            assert_eq!(parse_address(text).as_deref(), Some(address), "{text}");
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
            assert_eq!(parse_address(text), None, "{text}");
        }
    }
}
