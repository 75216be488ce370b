//! The file of a passphrase that is kept for some hours, for a start while no key server answers.
//!
//! Form: `docs/spec/volume.md`, "A kept passphrase". Invariants V25 to V28: a passphrase is kept
//! only where the table asks for it; sealed to this machine's TPM, in its present state, for a
//! time; used only when no server could be had; removed by any decision of a server, and by any
//! change of the volume's openers.
//!
//! Must not: keep key material, from which the passphrases of other volumes could be made; be used
//! without the TPM.

use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use strongroom_crypto::{GcmKey, SecretBytes, SecretKey, nonce12};
use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_keyring::{Error, Link, durable, open_regular};

use crate::error::io;
use crate::secret::{SLOT_SECRET_LEN, kept_key};
use crate::tpm::as_volume_error;
use strongroom_luks2::StrongroomToken;

/// The directory of the files, unless the variable names another.
const DIRECTORY: &str = "/var/lib/strongroom/cache";
/// The variable that names another directory.
pub const VARIABLE: &str = "STRONGROOM_CACHE";
/// First bytes.
const MAGIC: &[u8; 8] = b"SRVOLKEY";
/// Version of the form.
const VERSION: u32 = 1;
/// Length of the head before the TPM's part, the most of that part, and the length of the tag.
const HEAD_LEN: usize = 72;
const TPM_MAX: usize = 2048;
const TAG_LEN: usize = 16;
const WHOLE_MAX: usize = HEAD_LEN + TPM_MAX + SLOT_SECRET_LEN + TAG_LEN;

/// For how long a passphrase is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// The end by the TPM's clock, in milliseconds.
    pub clock: u64,
    /// The beginning, in seconds since the Unix epoch.
    pub from: u64,
    /// The end by the calendar, in seconds since the Unix epoch.
    pub until: u64,
}

/// Has the TPM unseal an object, which it does until its clock has reached this time, in
/// milliseconds.
pub type Unseal<'a> = &'a dyn Fn(&[u8], u64) -> Result<SecretKey, Error>;

/// A kept passphrase, as it is in its file.
#[derive(Debug)]
pub struct KeptPassphrase {
    bytes: Vec<u8>,
    /// For how long it is kept.
    pub term: Term,
}

impl Term {
    /// Returns the term of the next `hours`. `clock` is the present time of the TPM's clock, in
    /// milliseconds.
    #[must_use]
    pub fn from_now(hours: u64, clock: u64) -> Self {
        let from = now();
        Self {
            clock: clock.saturating_add(hours.saturating_mul(3_600_000)),
            from,
            until: from.saturating_add(hours.saturating_mul(3600)),
        }
    }

    /// Returns whether the term is over at this time of the calendar, in seconds since the Unix
    /// epoch; true also before its beginning, when the host's clock was set back.
    fn is_over(self, at: u64) -> bool {
        !(self.from..self.until).contains(&at)
    }
}

/// Seals the passphrase of the token's slots, and writes it durably into the volume's file, over an
/// older one. `seal` seals a key to the TPM, in its present state, until the end of the term.
///
/// # Errors
/// What `seal` reports: SR-8350 for the TPM's state, SR-8351 when it gives an answer of no use,
/// SR-8352 when it does not answer or refuses; SR-5001 when the file cannot be written.
pub fn keep(
    token: &StrongroomToken,
    secret: &SecretBytes,
    term: Term,
    seal: impl FnOnce(&SecretKey) -> Result<Vec<u8>, Error>,
) -> Result<(), Error> {
    let key = SecretKey::generate()?;
    let tpm = seal(&key).map_err(as_volume_error)?;
    let bytes = sealed(token, secret, term, &tpm, &key)?;
    let path = path(&token.object_id);
    let directory = path.parent().unwrap_or(&path);
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder
        .create(directory)
        .map_err(|error| io(directory, error))?;
    durable::replace(&path, &bytes, 0o600).map_err(|error| io(&path, error))
}

/// Returns the bytes of the file: the head, `tpm`, and the passphrase sealed under a key that is
/// derived from `key`, which the TPM has sealed in `tpm`.
///
/// # Errors
/// SR-9001 when a length is out of bounds; SR-5001 when there is no memory, or the system has no
/// random bytes.
fn sealed(
    token: &StrongroomToken,
    secret: &SecretBytes,
    term: Term,
    tpm: &[u8],
    key: &SecretKey,
) -> Result<Vec<u8>, Error> {
    let len = u32::try_from(tpm.len()).unwrap_or(u32::MAX);
    if tpm.len() > TPM_MAX || secret.len() != SLOT_SECRET_LEN {
        let detail = format!("{len} bytes of a TPM, {} of a passphrase", secret.len());
        return Err(Error::new(&code::BUG, detail));
    }
    let nonce = nonce12()?;
    let mut bytes = Vec::with_capacity(WHOLE_MAX);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&token.key_version.to_le_bytes());
    bytes.extend_from_slice(&token.object_id);
    for number in [term.clock, term.from, term.until] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&nonce);
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(tpm);
    let head = bytes.clone();
    bytes.resize(head.len() + SLOT_SECRET_LEN, 0);
    let body = bytes.get_mut(head.len()..).unwrap_or_default();
    body.copy_from_slice(secret.as_slice());
    let tag = GcmKey::new(&kept_key(key, &token.object_id)?)?.seal(&nonce, &head, body)?;
    bytes.extend_from_slice(&tag);
    Ok(bytes)
}

impl KeptPassphrase {
    /// Reads the file of the token's volume. `None` when there is none.
    ///
    /// # Errors
    /// SR-5001 when the system reports an error; SR-8355 when the file is damaged, or of another
    /// volume or version of the key.
    pub fn find(token: &StrongroomToken) -> Result<Option<Self>, Error> {
        let path = path(&token.object_id);
        let file = match open_regular(&path, Link::Refused) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| io(&path, error))?.0,
        };
        let mut bytes = Vec::new();
        file.take(WHOLE_MAX as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| io(&path, error))?;
        Self::read(bytes, token).map(Some)
    }

    /// Checks the form of a file's bytes, and that it belongs to the token's volume and version of
    /// the key: SR-8355 when not. Nothing is authenticated.
    fn read(bytes: Vec<u8>, token: &StrongroomToken) -> Result<Self, Error> {
        let bad = |what| Error::new(&code::VOLUME_KEPT, what);
        let word = |at: usize| {
            let part = bytes.get(at..at + 4).and_then(|part| part.try_into().ok());
            part.map_or(0, u32::from_le_bytes)
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if !bytes.starts_with(MAGIC) || bytes.len() < HEAD_LEN {
            return Err(bad("it is not a kept passphrase"));
        }
        if word(8) != VERSION {
            return Err(bad("a newer version wrote it"));
        }
        let len = usize::try_from(word(68)).unwrap_or(usize::MAX);
        if len > TPM_MAX || bytes.len() != HEAD_LEN + len + SLOT_SECRET_LEN + TAG_LEN {
            return Err(bad("its length is wrong"));
        }
        if bytes.get(16..32) != Some(&token.object_id[..]) || word(12) != token.key_version {
            return Err(bad(
                "it belongs to another volume, or to another version of the key",
            ));
        }
        let term = Term {
            clock: long(32),
            from: long(40),
            until: long(48),
        };
        Ok(Self { bytes, term })
    }

    /// Returns the passphrase, opened with a key that `unseal` has the TPM unseal. `token` is the
    /// volume's, for which the passphrase was found: it is bound to the volume. Removes nothing.
    ///
    /// # Errors
    /// SR-8355 when its term is over, the clock was set back, or the file was changed or is another
    /// volume's; what `unseal` reports: SR-8350 for a TPM in another state, SR-8351 for another
    /// TPM, SR-8352 when it does not answer or refuses; SR-5001 without memory.
    pub fn secret(
        &self,
        token: &StrongroomToken,
        unseal: Unseal<'_>,
    ) -> Result<SecretBytes, Error> {
        self.secret_at(now(), token, unseal)
    }

    /// Opens the passphrase as [`KeptPassphrase::secret`] does, with `at` as the present time, in
    /// seconds since the Unix epoch.
    fn secret_at(
        &self,
        at: u64,
        token: &StrongroomToken,
        unseal: Unseal<'_>,
    ) -> Result<SecretBytes, Error> {
        let bad = |what| Error::new(&code::VOLUME_KEPT, what);
        if self.term.is_over(at) {
            return Err(bad("its time is over, or the clock was set back"));
        }
        let changed = || bad("it was changed");
        let body_at = self.bytes.len() - SLOT_SECRET_LEN - TAG_LEN;
        let (head, body) = self.bytes.split_at(body_at);
        let (body, tag) = body.split_at(SLOT_SECRET_LEN);
        let (front, tpm) = head.split_at(HEAD_LEN);
        let nonce = front.get(56..68).and_then(|nonce| nonce.try_into().ok());
        let nonce: [u8; 12] = nonce.ok_or_else(changed)?;
        let tag: [u8; TAG_LEN] = tag.try_into().map_err(|_| changed())?;
        let key = unseal(tpm, self.term.clock).map_err(as_volume_error)?;
        let mut secret = SecretBytes::with_capacity(SLOT_SECRET_LEN)?;
        secret.as_mut_slice().copy_from_slice(body);
        GcmKey::new(&kept_key(&key, &token.object_id)?)?
            .open(&nonce, head, secret.as_mut_slice(), &tag)
            .map_err(|_| changed())?;
        Ok(secret)
    }
}

/// Removes the file of the volume durably. Returns whether there was one.
///
/// # Errors
/// SR-5001 when the system reports an error.
pub fn forget(object_id: &[u8; 16]) -> Result<bool, Error> {
    let path = path(object_id);
    match std::fs::remove_file(&path) {
        Ok(()) => {
            durable::sync_dir_of(&path).map_err(|error| io(&path, error))?;
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(io(&path, error)),
    }
}

/// Returns the path of the volume's file: its object id in hexadecimal, in
/// `/var/lib/strongroom/cache` or the directory that the variable [`VARIABLE`] names.
fn path(object_id: &[u8; 16]) -> PathBuf {
    let directory = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let directory = directory.map_or_else(|| PathBuf::from(DIRECTORY), PathBuf::from);
    directory.join(hex(object_id))
}

/// Returns the time in seconds since the Unix epoch; 0 before it.
fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongroom_luks2::Provider;

    fn token() -> StrongroomToken {
        StrongroomToken {
            slots: vec![0],
            object_id: [7; 16],
            key_id: "k".to_owned(),
            key_version: 2,
            provider: Provider::KeyServer,
            servers: vec![],
        }
    }

    fn secret() -> SecretBytes {
        SecretBytes::take(&mut [5; SLOT_SECRET_LEN]).unwrap()
    }

    const TERM: Term = Term {
        clock: 9000,
        from: 100,
        until: 200,
    };

    fn made(key: &SecretKey) -> Vec<u8> {
        sealed(&token(), &secret(), TERM, b"of a TPM", key).unwrap()
    }

    /// A TPM that holds this key for this object until this time.
    fn unseal(blob: &[u8], clock: u64) -> Result<SecretKey, Error> {
        match (blob, clock) {
            (b"of a TPM", 9000) => Ok(SecretKey::take(&mut [3; 32])?),
            _ => Err(Error::new(&code::PROVIDER_STATE, "")),
        }
    }

    #[test]
    fn as_the_specification_shows_it() {
        let bytes = made(&SecretKey::take(&mut [3; 32]).unwrap());
        let page = include_str!("../../../../docs/spec/volume.md");
        let rows: Vec<&str> = page
            .split("## A kept passphrase")
            .nth(1)
            .unwrap()
            .split("\n## ")
            .next()
            .unwrap()
            .lines()
            .filter(|line| line.starts_with("| ") && line.contains(" | "))
            .collect();
        let n = 8;
        let mut at = 0;
        for (name, len) in [
            ("SRVOLKEY", 8),
            ("version, 1", 4),
            ("version of the key", 4),
            ("object id", 16),
            ("the TPM's clock at the end", 8),
            ("kept since", 8),
            ("kept until", 8),
            ("nonce", 12),
            ("n", 4),
        ] {
            let cell = format!("| {at} | {len} | ");
            let row = rows.iter().find(|row| row.starts_with(&cell));
            assert!(row.is_some_and(|row| row.contains(name)), "{cell}{name}");
            at += len;
        }
        assert_eq!(at, HEAD_LEN);
        assert_eq!(bytes.len(), at + n + SLOT_SECRET_LEN + TAG_LEN);
        for row in ["| 72 | n | ", "| 72 + n | 64 | ", "| 136 + n | 16 | "] {
            assert!(rows.iter().any(|line| line.starts_with(row)), "{row}");
        }
        assert!(page.contains("strongroom/v1/volume-kept"));
    }

    #[test]
    fn it_opens_whole_in_its_time_and_for_its_volume_only() {
        let bytes = made(&SecretKey::take(&mut [3; 32]).unwrap());
        assert!(!bytes.windows(8).any(|part| part == [5; 8]));
        let kept = KeptPassphrase::read(bytes.clone(), &token()).unwrap();
        assert_eq!(kept.term, TERM);
        let opened = kept.secret_at(100, &token(), &unseal).unwrap();
        assert_eq!(opened.as_slice(), secret().as_slice());
        assert!(kept.secret_at(199, &token(), &unseal).is_ok());
        for at in [0, 99, 200, u64::MAX] {
            let asked = |_: &[u8], _| panic!("the TPM is not asked");
            let error = kept.secret_at(at, &token(), &asked).err().unwrap();
            assert_eq!(error.code(), &code::VOLUME_KEPT, "{at}");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let opened = KeptPassphrase::read(changed, &token())
                .and_then(|kept| kept.secret_at(150, &token(), &unseal));
            assert!(opened.is_err(), "byte {at}");
            assert!(
                KeptPassphrase::read(bytes[..at].to_vec(), &token()).is_err(),
                "cut at {at}"
            );
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(KeptPassphrase::read(longer, &token()).is_err());
        let others = [
            StrongroomToken {
                object_id: [8; 16],
                ..token()
            },
            StrongroomToken {
                key_version: 3,
                ..token()
            },
        ];
        for other in others {
            let error = KeptPassphrase::read(bytes.clone(), &other).unwrap_err();
            assert_eq!(error.code(), &code::VOLUME_KEPT);
        }
        let of_another = made(&SecretKey::take(&mut [4; 32]).unwrap());
        let opened = KeptPassphrase::read(of_another, &token()).unwrap();
        let error = opened.secret_at(150, &token(), &unseal).err().unwrap();
        assert_eq!(error.code(), &code::VOLUME_KEPT);
    }

    #[test]
    fn a_term_is_of_hours_on_both_clocks() {
        let term = Term::from_now(2, 1000);
        assert_eq!(term.clock, 7_201_000);
        assert_eq!(term.until - term.from, 7200);
        assert!(Term::from_now(168, u64::MAX).clock == u64::MAX);
    }
}
