//! `cache_hours` of the table of volumes: a secret that the key server delivered is kept for starts
//! during which no server answers.
//!
//! Invariants V25 to V28 of docs/internals/volumes.md.
//!
//! Must not: open a volume with a kept secret when a server has refused it.

use std::time::Duration;

use strongroom_crypto::SecretBytes;
use strongroom_format::code::{self, Code};
use strongroom_keys_providers::tpm::sealer;
use strongroom_keys_tpm::{Registers, Sealer};
use strongroom_volume::boot::Entry;
use strongroom_volume::kept::{self, Kept, Term};
use strongroom_volume::keys::Keys;
use strongroom_volume::token::Token;
use strongroom_volume::{Error, Volume};

use super::secret::of_token;
use crate::failure::{Failure, note, warn};

/// Nobody has decided anything: no server could be had, or all were sealed or overloaded.
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

/// The passphrase of the token's slots: of the server, which is then kept for so many hours, or the
/// one that was kept. And whose it is.
pub(super) fn of_server(
    volume: &mut Volume,
    server: &mut dyn Keys,
    entry: &Entry,
    hours: u64,
) -> Result<(SecretBytes, &'static str), Failure> {
    let token = volume.token()?;
    match of_token(volume, server) {
        Ok(secret) => {
            if volume.opens(&token.slots, &secret)?.is_some() {
                let kept = store_secret(&token, &secret, entry, hours);
                kept.unwrap_or_else(|error| {
                    warn(&code::VOLUME_NOT_KEPT, &entry_error(entry, &error));
                });
            }
            Ok((secret, "keyserver"))
        }
        Err(failure) if AWAY.contains(&failure.code()) => {
            note(&format!("{}: {}", entry.name, failure.summary()));
            match of_kept(volume, &token, entry) {
                Ok(Some(secret)) => Ok((secret, "keyserver, kept")),
                Ok(None) => Err(failure),
                Err(error) => {
                    note(&entry_error(entry, &error));
                    Err(failure)
                }
            }
        }
        Err(failure) => {
            if DECIDED.contains(&failure.code()) {
                forget(&token);
            }
            Err(failure)
        }
    }
}

/// Removes what is kept of a volume, because what opens it changes.
pub(super) fn forget_volume(volume: &mut Volume) {
    if let Ok(Some((_, token))) = volume.metadata().and_then(|metadata| metadata.token()) {
        forget(&token);
    }
}

/// As [`forget_volume`]. A failure to remove the entry is reported: it opens the volume for as long
/// as its slot is there.
pub(super) fn forget(token: &Token) {
    if let Err(error) = kept::forget(&token.object_id) {
        warn(error.code(), error.detail());
    }
}

fn entry_error(entry: &Entry, error: &Error) -> String {
    format!("{}: {error}", entry.name)
}

fn store_secret(
    token: &Token,
    secret: &SecretBytes,
    entry: &Entry,
    hours: u64,
) -> Result<(), Error> {
    let sealer = sealer_of(entry)?;
    let term = Term::of(hours, sealer.clock()?);
    let sealer = sealer.before(term.clock);
    kept::keep(token, secret, term, &mut |key| {
        Ok(sealer.seal(Registers::default(), None, key)?)
    })
}

fn of_kept(
    volume: &mut Volume,
    token: &Token,
    entry: &Entry,
) -> Result<Option<SecretBytes>, Error> {
    let Some(kept) = Kept::find(token)? else {
        return Ok(None);
    };
    let secret = kept.secret(token, &|sealed, clock| {
        Ok(sealer_of(entry)?.before(clock).unseal(None, sealed)?)
    })?;
    match volume.opens(&token.slots, &secret)? {
        Some(_) => Ok(Some(secret)),
        None => Err(Error::new(&code::WRONG_KEY, "the passphrase that was kept")),
    }
}

fn sealer_of(entry: &Entry) -> Result<Sealer, Error> {
    let time = Duration::from_secs(entry.timeout_seconds);
    sealer(entry.tcti.as_deref(), Some(time))
}
