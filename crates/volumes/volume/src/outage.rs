//! `cache_hours` of the table of volumes: a passphrase that the key server's key made is kept for
//! starts during which no server answers.
//!
//! Invariants V25 to V28 of docs/internals/volumes.md. The form of what is kept is in [`kept`].
//!
//! Must not: open a volume with a kept passphrase when a server has refused it.

use strongroom_crypto::SecretBytes;
use strongroom_format::code::{self, Code};
use strongroom_keyring::Error;
use strongroom_luks2::StrongroomToken;

use crate::device::Volume;
use crate::kept::{self, KeptPassphrase, Term};
use crate::keys::{Keys, secret_of_token};
use crate::notices::{Notices, summary};
use crate::tpm::Tpm;

/// No server has decided anything: none could be reached, or all were sealed or overloaded.
const AWAY: [&Code; 6] = [
    &code::KEYSERVER_UNREACHABLE,
    &code::SERVER_SEALED,
    &code::SERVER_TOO_MANY,
    &code::SERVER_STORE,
    &code::SERVER_TIMEOUT,
    &code::SERVER_BUSY,
];
/// A server that is trusted has decided.
const DECIDED: [&Code; 8] = [
    &code::KEYSERVER_REFUSED,
    &code::KEYSERVER_NOT_ACCEPTED,
    &code::SERVER_CERTIFICATE_NEEDED,
    &code::SERVER_NOT_ENROLLED,
    &code::SERVER_ROLE,
    &code::SERVER_NO_SUCH,
    &code::SERVER_DESTROYED,
    &code::SERVER_DISABLED,
];

/// How the passphrase of one volume is kept.
pub struct Keeping<'a> {
    /// The volume's name in the table, for messages.
    pub name: &'a str,
    /// For how many hours it is kept.
    pub hours: u64,
    /// Opens this machine's TPM.
    pub tpm: &'a dyn Fn() -> Result<Box<dyn Tpm>, Error>,
    /// Is told what does not end the work.
    pub notices: &'a dyn Notices,
}

impl Keeping<'_> {
    /// Returns the passphrase of the token's slots, and where it is from: `keyserver`, made of the
    /// server's key, which need not open the volume; or `keyserver, kept`, the one that was kept,
    /// when no server could be reached or serve.
    ///
    /// A passphrase of the server's key that opens the volume is kept anew; that this fails is a
    /// warning, SR-8356. A refusal by a trusted server removes the one that is kept.
    ///
    /// # Errors
    /// SR-8323 without a token; what the key server reports, such as SR-8402 when none answers,
    /// also when the kept one cannot be used, which is a note.
    pub fn secret(
        &self,
        volume: &mut Volume,
        server: &mut dyn Keys,
    ) -> Result<(SecretBytes, &'static str), Error> {
        let token = volume.token()?;
        match secret_of_token(server, &token) {
            Ok(secret) => {
                if volume.opens(&token.slots, &secret)?.is_some()
                    && let Err(error) = self.store(&token, &secret)
                {
                    self.notices
                        .warn(&code::VOLUME_NOT_KEPT, &self.about(&error));
                }
                Ok((secret, "keyserver"))
            }
            Err(away) if AWAY.contains(&away.code()) => {
                self.notices
                    .note(&format!("{}: {}", self.name, summary(&away)));
                match self.kept(volume, &token) {
                    Ok(Some(secret)) => Ok((secret, "keyserver, kept")),
                    Ok(None) => Err(away),
                    Err(error) => {
                        self.notices.note(&self.about(&error));
                        Err(away)
                    }
                }
            }
            Err(error) => {
                if DECIDED.contains(&error.code()) {
                    forget(&token, self.notices);
                }
                Err(error)
            }
        }
    }

    /// Returns the error's text with the volume's name before it.
    fn about(&self, error: &Error) -> String {
        format!("{}: {error}", self.name)
    }

    /// Seals the passphrase to the TPM and writes it to its file, for the next `hours`.
    ///
    /// # Errors
    /// SR-8350 when the TPM cannot seal in its present state, SR-8351 or SR-8352 when it fails or
    /// does not answer; SR-5001 when the file cannot be written.
    fn store(&self, token: &StrongroomToken, secret: &SecretBytes) -> Result<(), Error> {
        let tpm = (self.tpm)()?;
        let term = Term::from_now(self.hours, tpm.clock_ms()?);
        kept::keep(token, secret, term, |key| tpm.seal_until(key, term.clock))
    }

    /// Returns the passphrase that is kept, after it was tried on the volume. `None` when there is
    /// none.
    ///
    /// # Errors
    /// SR-8355 when its time is over or its file is damaged; SR-8350 for a TPM in another state,
    /// SR-8351 for another TPM, SR-8352 for one that does not answer; SR-2002 when it does not open
    /// the volume.
    fn kept(
        &self,
        volume: &mut Volume,
        token: &StrongroomToken,
    ) -> Result<Option<SecretBytes>, Error> {
        let Some(kept) = KeptPassphrase::find(token)? else {
            return Ok(None);
        };
        let unseal = |sealed: &[u8], end_ms: u64| (self.tpm)()?.unseal_until(sealed, end_ms);
        let secret = kept.secret(token, &unseal)?;
        match volume.opens(&token.slots, &secret)? {
            Some(_) => Ok(Some(secret)),
            None => Err(Error::new(&code::WRONG_KEY, "the passphrase that was kept")),
        }
    }
}

/// Removes the passphrase that is kept of a volume, because its openers change. Does nothing when
/// the volume has no token, and so none is kept. A failure is a warning.
pub fn forget_volume(volume: &mut Volume, notices: &dyn Notices) {
    if let Ok(token) = volume.token() {
        forget(&token, notices);
    }
}

/// Removes the passphrase that is kept for a token's volume. A failure is a warning: what is kept
/// opens the volume for as long as its slot is there.
pub fn forget(token: &StrongroomToken, notices: &dyn Notices) {
    if let Err(error) = kept::forget(&token.object_id) {
        notices.warn(error.code(), error.detail());
    }
}
