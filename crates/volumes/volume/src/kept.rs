//! A volume's passphrase of the key server that is kept for some hours, for a start while no server
//! answers.
//!
//! Form: `docs/spec/volume.md`, "A kept passphrase". Invariants V25 to V28: kept only where the
//! table asks for it; sealed to this machine's TPM, in its state, for a time; used only when no
//! server could be had; removed by whatever a server decides, and by whatever changes what opens
//! the volume.
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

use crate::look::io;
use crate::secret::{SLOT_SECRET_LEN, kept_key};
use crate::token::Token;
use crate::tpm::told;

/// Where they are, unless the variable says.
const DIRECTORY: &str = "/var/lib/strongroom/cache";
/// The variable that names another directory.
pub const VARIABLE: &str = "STRONGROOM_CACHE";
/// First bytes.
const MAGIC: &[u8; 8] = b"SRVOLKEY";
/// Version of the form.
const VERSION: u32 = 1;
/// Lengths of what stands before the TPM's part, of that at most, and of the tag.
const HEAD_LEN: usize = 72;
const TPM_MAX: usize = 2048;
const TAG_LEN: usize = 16;
const WHOLE_MAX: usize = HEAD_LEN + TPM_MAX + SLOT_SECRET_LEN + TAG_LEN;

/// How long one is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// The TPM's clock when it ends, in milliseconds.
    pub clock: u64,
    /// From when on, in seconds since the Unix epoch.
    pub from: u64,
    /// Until when, by the calendar.
    pub until: u64,
}

/// Has the TPM unseal what was sealed until this clock.
pub type Unseal<'a> = &'a dyn Fn(&[u8], u64) -> Result<SecretKey, Error>;

/// One that is kept, as it lies in its file.
#[derive(Debug)]
pub struct Kept {
    bytes: Vec<u8>,
    /// How long.
    pub term: Term,
}

impl Term {
    /// So many hours from now on. `clock` is what the TPM's clock says.
    #[must_use]
    pub fn of(hours: u64, clock: u64) -> Self {
        let from = now();
        Self {
            clock: clock.saturating_add(hours.saturating_mul(3_600_000)),
            from,
            until: from.saturating_add(hours.saturating_mul(3600)),
        }
    }

    /// By the calendar, which is worth as much as the host's clock: a time before it was kept is a
    /// clock that was set back.
    fn is_over(self, at: u64) -> bool {
        !(self.from..self.until).contains(&at)
    }
}

/// Keeps the passphrase of the volume's slots. `seal` seals to the TPM, in its present state, until
/// the term's clock.
///
/// # Errors
/// What `seal` reports; SR-4001 when it cannot be written.
pub fn keep(
    token: &Token,
    secret: &SecretBytes,
    term: Term,
    seal: &mut dyn FnMut(&SecretKey) -> Result<Vec<u8>, Error>,
) -> Result<(), Error> {
    let key = SecretKey::generate()?;
    let tpm = seal(&key).map_err(told)?;
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

fn sealed(
    token: &Token,
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

impl Kept {
    /// The one of the volume; `None` when there is none.
    ///
    /// # Errors
    /// SR-4001; SR-8355 when it is not in form, or of another volume or version of the key.
    pub fn find(token: &Token) -> Result<Option<Self>, Error> {
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

    fn read(bytes: Vec<u8>, token: &Token) -> Result<Self, Error> {
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

    /// The passphrase. `unseal` has the TPM unseal what was sealed until this clock.
    ///
    /// # Errors
    /// SR-8355 when its time is over, or it was changed; what `unseal` reports.
    pub fn secret(&self, token: &Token, unseal: Unseal<'_>) -> Result<SecretBytes, Error> {
        self.secret_at(now(), token, unseal)
    }

    fn secret_at(&self, at: u64, token: &Token, unseal: Unseal<'_>) -> Result<SecretBytes, Error> {
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
        let key = unseal(tpm, self.term.clock).map_err(told)?;
        let mut secret = SecretBytes::with_capacity(SLOT_SECRET_LEN)?;
        secret.as_mut_slice().copy_from_slice(body);
        GcmKey::new(&kept_key(&key, &token.object_id)?)?
            .open(&nonce, head, secret.as_mut_slice(), &tag)
            .map_err(|_| changed())?;
        Ok(secret)
    }
}

/// Removes the one of the volume, if there is one. Whether there was.
///
/// # Errors
/// SR-4001.
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

fn path(object_id: &[u8; 16]) -> PathBuf {
    let directory = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let directory = directory.map_or_else(|| PathBuf::from(DIRECTORY), PathBuf::from);
    directory.join(hex(object_id))
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::Provider;

    fn token() -> Token {
        Token {
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

    /// What a TPM does that has this key for this blob until this time.
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
        let kept = Kept::read(bytes.clone(), &token()).unwrap();
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
            let opened = Kept::read(changed, &token())
                .and_then(|kept| kept.secret_at(150, &token(), &unseal));
            assert!(opened.is_err(), "byte {at}");
            assert!(
                Kept::read(bytes[..at].to_vec(), &token()).is_err(),
                "cut at {at}"
            );
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(Kept::read(longer, &token()).is_err());
        let others = [
            Token {
                object_id: [8; 16],
                ..token()
            },
            Token {
                key_version: 3,
                ..token()
            },
        ];
        for other in others {
            let error = Kept::read(bytes.clone(), &other).unwrap_err();
            assert_eq!(error.code(), &code::VOLUME_KEPT);
        }
        let of_another = made(&SecretKey::take(&mut [4; 32]).unwrap());
        let opened = Kept::read(of_another, &token()).unwrap();
        let error = opened.secret_at(150, &token(), &unseal).err().unwrap();
        assert_eq!(error.code(), &code::VOLUME_KEPT);
    }

    #[test]
    fn a_term_is_of_hours_on_both_clocks() {
        let term = Term::of(2, 1000);
        assert_eq!(term.clock, 7_201_000);
        assert_eq!(term.until - term.from, 7200);
        assert!(Term::of(168, u64::MAX).clock == u64::MAX);
    }
}
