//! Puts a volume's header and key slots back from a backup.
//!
//! Invariants: V23, a backup is read and checked whole, by `strongroom-luks2` and by libcryptsetup,
//! in memory, and opened there with the given secret, before a byte of the device changes; one of a
//! re-encryption under way is refused, for data may have moved since. V24, the device is looked at
//! first: another volume's header, one under another volume key, and anything else with a known
//! signature are overwritten only when the user has named them. V7 holds for the writing.
//!
//! Must not: ask for anything; put back what was not checked.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_luks2::{
    BINARY_LEN, Found, HEADER_SIZES, Header, LuksError, Metadata, NAMES_LEN, StrongroomToken,
    Token, check_not_active, open_locked, read, uuid_of_remains,
};

use crate::contents::{check_unused, contents, other_than_luks};
use crate::create::MemoryFile;
use crate::device::Volume;
use crate::error::io;
use crate::escrow;
use crate::header::check_cipher;
use crate::keys::Keys;
use crate::secret::slot_secret;

/// Longest backup: two headers of 4 MiB and 128 MiB of key slots.
const BACKUP_MAX: u64 = 136 << 20;

/// A backup that was checked.
pub struct Backup {
    bytes: Vec<u8>,
    header: Header,
    mended: Option<String>,
}

/// What on the device may be overwritten.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allowed<'a> {
    /// The volume with this UUID, whose header is on the device.
    pub volume: Option<&'a str>,
    /// Anything with a signature other than LUKS.
    pub anything_else: bool,
}

/// The result of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The volume's UUID.
    pub uuid: String,
    /// Bytes that were written, from the beginning.
    pub bytes: u64,
    /// The slot that the given secret opened, in memory; `None` when none was given.
    pub slot: Option<u32>,
}

impl Backup {
    /// Reads a header backup from the file at `path`, which `strongroom volume backup --out` or
    /// cryptsetup wrote, and checks it as [`Backup::check`]. `device` is the device that it is for.
    ///
    /// # Errors
    /// SR-1006 when there is no such file, SR-5001 when the system reports an error; as
    /// [`Backup::check`].
    pub fn load(path: &Path, device: &Path) -> Result<Self, Error> {
        use std::io::Read as _;
        let file = File::open(path).map_err(|error| Error::opening(path, error))?;
        let mut bytes = Vec::new();
        let read = file.take(BACKUP_MAX + 1).read_to_end(&mut bytes);
        read.map_err(|error| io(path, error))?;
        Self::check(bytes, &path.display().to_string(), device)
    }

    /// Fetches the header backup from the key server, opens it with the version of the key that
    /// sealed it, and checks it. Returns it with the passphrase of the slots of that key.
    ///
    /// # Errors
    /// What the key server reports, such as SR-8402 when none answers; as [`escrow::open`] and
    /// [`Backup::check`].
    pub fn at_server(
        keys: &mut dyn Keys,
        object_id: &[u8; 16],
        key_id: &str,
        device: &Path,
    ) -> Result<(Self, SecretBytes), Error> {
        let sealed = keys.escrowed(object_id)?;
        let version = escrow::key_version(&sealed)?;
        let material = keys.fetch(key_id, Some(version))?;
        let bytes = escrow::open(&sealed, object_id, &material)?;
        let backup = Self::check(bytes, "the key server's backup", device)?;
        Ok((backup, slot_secret(&material.key, object_id)?))
    }

    /// Returns its Strongroom token. `None` when it has none that can be read.
    #[must_use]
    pub fn token(&self) -> Option<&StrongroomToken> {
        token_of(&self.header.metadata)
    }

    /// Checks a backup in memory, where a damaged copy of the header is repaired from the other
    /// one. `what` names it in errors; `device` is the device that it is for, and is not changed.
    ///
    /// # Errors
    /// SR-8354 when it is damaged, cut short, too long, or of a re-encryption under way; SR-8340
    /// when it does not encrypt its data; SR-5001 when the system reports an error.
    pub fn check(bytes: Vec<u8>, what: &str, device: &Path) -> Result<Self, Error> {
        let bad = |why: String| Error::new(&code::VOLUME_BACKUP, format!("{what}: {why}"));
        let damaged = |error: LuksError| bad(error.to_string());
        if bytes.len() as u64 > BACKUP_MAX {
            return Err(bad("too long".to_owned()));
        }
        let mended = read(bytes.as_slice()).map_err(damaged)?.warning();
        // libcryptsetup repairs a damaged copy of the header from the other one, here in memory.
        let memory = in_memory(&bytes)?;
        let loaded = Volume::detached(&memory.path, device);
        let mut loaded = loaded.map_err(|error| match error.code() {
            there if there == &code::VOLUME_NOT_LUKS || there == &code::VOLUME_LIBRARY => {
                bad(error.detail().to_owned())
            }
            _ => error,
        })?;
        check_cipher(&loaded.metadata()?)?;
        drop(loaded);
        let mut whole = bytes;
        let again = memory.file.read_exact_at(&mut whole, 0);
        again.map_err(|error| Error::io("memory for a header", error))?;
        let found = read(whole.as_slice()).map_err(damaged)?;
        if let Some(warning) = found.warning() {
            return Err(bad(warning));
        }
        let metadata = &found.header.metadata;
        if let Some(name) = metadata.config.requirements.first() {
            return Err(bad(format!("it asks for {name:?}")));
        }
        let areas = areas_end(&found.header);
        let data = data_offset(metadata);
        let len = whole.len() as u64;
        // A shorter file was cut off; a longer one has data, or is no header backup.
        if len < areas || data == 0 || len > data {
            let why = format!("{len} bytes, with key slots up to {areas} and data from {data}");
            return Err(bad(why));
        }
        Ok(Self {
            bytes: whole,
            header: found.header,
            mended,
        })
    }

    /// Returns the volume's UUID.
    #[must_use]
    pub fn uuid(&self) -> &str {
        &self.header.binary.uuid
    }

    /// Returns the metadata of its header.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.header.metadata
    }

    /// Returns in words what was wrong with one of its two copies before it was repaired from the
    /// other. `None` when nothing was.
    #[must_use]
    pub fn mended(&self) -> Option<&str> {
        self.mended.as_deref()
    }

    /// Tries `secret` on the backup, in memory. Returns the slot that it opens.
    ///
    /// # Errors
    /// SR-2002 when it opens none; SR-8340 for a cipher that is not known to be safe, SR-8307 when
    /// trying a slot would cost too much; SR-5001 when the system reports an error.
    pub fn try_secret(&self, device: &Path, secret: &SecretBytes) -> Result<u32, Error> {
        let memory = in_memory(&self.bytes)?;
        Volume::detached(&memory.path, device)?.try_secret(None, secret)
    }
}

/// Returns the Strongroom token in what can be read of the header on `path`. Only reads.
///
/// # Errors
/// SR-1006 when there is no such file, SR-5001 when the system reports an error; SR-8360 when there
/// is none.
pub fn token_on(path: &Path) -> Result<StrongroomToken, Error> {
    let file = File::open(path).map_err(|error| Error::opening(path, error))?;
    // Not read by libcryptsetup, which would write to a header with one damaged copy.
    let found = read(&file).ok();
    let token = found.and_then(|found| token_of(&found.header.metadata).cloned());
    token.ok_or_else(|| Error::new(&code::VOLUME_WHICH, path.display().to_string()))
}

/// Returns the first Strongroom token that can be read. `None` when there is none.
pub(crate) fn token_of(metadata: &Metadata) -> Option<&StrongroomToken> {
    let mut tokens = metadata.tokens.values();
    tokens.find_map(Token::strongroom)
}

/// Writes the backup over the header on `path`, and reads it back. `proof` is tried on the backup
/// first, in memory. `allowed` says what on the device may be overwritten.
///
/// # Errors
/// SR-8320 when the device or either volume is in use; SR-8326 when the device is too short;
/// SR-8353 when it holds something that was not allowed; SR-2002 when `proof` opens nothing;
/// SR-1006 when there is no such file; SR-5001, also when it differs when it is read back.
pub fn restore(
    path: &Path,
    backup: &Backup,
    proof: Option<&SecretBytes>,
    allowed: Allowed<'_>,
) -> Result<Restored, Error> {
    check_unused(path)?;
    let len = contents(path)?.len;
    if len <= data_offset(&backup.header.metadata) {
        let detail = format!("{}: {len} bytes", path.display());
        return Err(Error::new(&code::VOLUME_SIZE, detail));
    }
    // While this file is open, no other process has the volume.
    let device = open_locked(path, false).map_err(|error| from_luks(&error))?;
    let present =
        OnDevice::read(&device, other_than_luks(path)?).map_err(|error| io(path, error))?;
    present.check(path, backup, proof.is_some(), allowed)?;
    for uuid in present.uuid.as_deref().into_iter().chain([backup.uuid()]) {
        check_not_active(uuid).map_err(|error| from_luks(&error))?;
    }
    let slot = proof
        .map(|secret| backup.try_secret(path, secret))
        .transpose()?;
    write(&device, backup).map_err(|error| io(path, error))?;
    let mut back = vec![0; backup.bytes.len()];
    let again = device.read_exact_at(&mut back, 0);
    again.map_err(|error| io(path, error))?;
    drop(device);
    if back != backup.bytes || Volume::open(path)?.uuid()? != backup.uuid() {
        let detail = format!("{}: it differs when it is read back", path.display());
        return Err(Error::new(&code::IO, detail));
    }
    Ok(Restored {
        uuid: backup.uuid().to_owned(),
        bytes: backup.bytes.len() as u64,
        slot,
    })
}

/// What is on the device before the restore.
struct OnDevice {
    /// A whole header.
    header: Option<Header>,
    /// Its UUID, or that in the remains of a header.
    uuid: Option<String>,
    /// The signature of something else, in words.
    other: Option<String>,
}

impl OnDevice {
    /// Reads what is on the device; `other` is the signature of something else, which the caller
    /// has found. A damaged header is no error; the system's errors are.
    fn read(device: &File, other: Option<String>) -> std::io::Result<Self> {
        let header = match read(device) {
            Ok(Found { header, .. }) => Some(header),
            Err(LuksError::Io(_, error)) => return Err(error),
            Err(_) => None,
        };
        let uuid = match &header {
            Some(header) => Some(header.binary.uuid.clone()),
            None => uuid_of_damaged_header(device)?,
        };
        Ok(Self {
            header,
            uuid,
            other,
        })
    }

    /// Refuses to overwrite what was not allowed: SR-8353. The same volume under the same volume
    /// key needs no permission when the backup's passphrase is there (`is_proven`).
    fn check(
        &self,
        path: &Path,
        backup: &Backup,
        is_proven: bool,
        allowed: Allowed<'_>,
    ) -> Result<(), Error> {
        let refused = |why: String| {
            let detail = format!("{}: {why}", path.display());
            Err(Error::new(&code::VOLUME_RESTORE, detail))
        };
        if let Some(what) = self.other.as_ref().filter(|_| !allowed.anything_else) {
            return refused(format!("{what}; --overwrite gives it up"));
        }
        let Some(uuid) = self.uuid.as_deref() else {
            return Ok(());
        };
        if allowed
            .volume
            .is_some_and(|named| named.eq_ignore_ascii_case(uuid))
        {
            return Ok(());
        }
        let theirs = backup.uuid();
        if !uuid.eq_ignore_ascii_case(theirs) {
            return refused(format!("volume {uuid}, and the backup is of {theirs}"));
        }
        let Some(header) = &self.header else {
            return Ok(());
        };
        if !header.metadata.config.requirements.is_empty() {
            return refused(format!("volume {uuid}, which is being re-encrypted"));
        }
        if !same_key(&header.metadata, &backup.header.metadata) {
            return refused(format!(
                "volume {uuid}, whose volume key was changed after the backup: its data would be lost"
            ));
        }
        // Openers that are newer than the backup would be lost, and those in the backup may open
        // nothing any more.
        if !is_proven {
            return refused(format!(
                "volume {uuid}, whose header is whole, and nothing was given to open the backup with"
            ));
        }
        Ok(())
    }
}

/// Returns the UUID in the remains of a header, wherever a copy may be. `None` when there is none.
fn uuid_of_damaged_header(device: &File) -> std::io::Result<Option<String>> {
    for at in [0].into_iter().chain(HEADER_SIZES) {
        let mut copy = [0; NAMES_LEN];
        match device.read_exact_at(&mut copy, at) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        }
        if let Some(uuid) = uuid_of_remains(&copy) {
            return Ok(Some(uuid));
        }
    }
    Ok(None)
}

/// Returns whether both headers have the same volume key for their data, by its digest. False when
/// either has none.
fn same_key(one: &Metadata, other: &Metadata) -> bool {
    let digest = |metadata: &Metadata| {
        let mut digests = metadata.digests.values();
        let digest = digests.find(|digest| !digest.segments.is_empty())?;
        Some((digest.salt.clone(), digest.digest.clone()))
    };
    digest(one).is_some() && digest(one) == digest(other)
}

/// First writes zeros over every place of a header, so that the former contents do not look like
/// one; then the backup, its beginning last, each part synced before the next. The system's errors;
/// the device may then have no header.
fn write(device: &File, backup: &Backup) -> std::io::Result<()> {
    let len = backup.bytes.len() as u64;
    let size = usize::try_from(backup.header.binary.size).unwrap_or(usize::MAX);
    let zeros = [0; BINARY_LEN];
    for at in [0].into_iter().chain(HEADER_SIZES) {
        if at + BINARY_LEN as u64 <= len {
            device.write_all_at(&zeros, at)?;
        }
    }
    device.sync_all()?;
    let (first, rest) = backup.bytes.split_at(size.min(backup.bytes.len()));
    let (second, slots) = rest.split_at(size.min(rest.len()));
    for (bytes, at) in [(slots, 2 * size), (second, size), (first, 0)] {
        device.write_all_at(bytes, at as u64)?;
        device.sync_all()?;
    }
    Ok(())
}

/// Returns where the key slot areas end, in bytes.
fn areas_end(header: &Header) -> u64 {
    2 * header.binary.size + header.metadata.config.keyslots_size
}

/// Returns the offset of the data in bytes; 0 when they lie apart from the header.
fn data_offset(metadata: &Metadata) -> u64 {
    let offsets = metadata.segments.values().map(|segment| segment.offset);
    offsets.min().unwrap_or_default()
}

/// Copies the bytes into a file in memory. SR-5001 when the system reports an error.
fn in_memory(bytes: &[u8]) -> Result<MemoryFile, Error> {
    let memory = MemoryFile::with_len(bytes.len() as u64)?;
    let written = memory.file.write_all_at(bytes, 0);
    written.map_err(|error| Error::io("memory for a header", error))?;
    Ok(memory)
}

/// Returns the error under its own code, but SR-8320 for a volume that is in use.
fn from_luks(error: &LuksError) -> Error {
    let code = match error {
        LuksError::InUse(_) => &code::VOLUME_IN_USE,
        _ => error.code(),
    };
    Error::new(code, error.detail())
}
