//! Puts a volume's header and key slots back from a backup.
//!
//! Invariants: V23, a backup is read and checked whole, by `strongroom-luks2` and by libcryptsetup,
//! in memory, and opened there with what is given to open it, before a byte of the device changes;
//! one of a re-encryption under way is never put back, for data may have moved on since. V24, what
//! is on the device is looked at first: the header of another volume, one under another volume key,
//! or anything else that is known goes only when it was named. V7 holds for the writing.
//!
//! Must not: ask for anything; put back what was not checked.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_luks2::{
    BINARY_LEN, Found, HEADER_SIZES, Header, LuksError, Metadata, check_not_active, open_locked,
    read,
};

use crate::create::Memory;
use crate::device::Volume;
use crate::look::{check_unused, io, look, other_than_luks};

/// Longest backup: two headers of 4 MiB and 128 MiB of key slots.
const BACKUP_MAX: u64 = 136 << 20;
/// Where both versions of LUKS have the UUID, in every copy of a header.
const UUID_AT: usize = 168;
const UUID_LEN: usize = 36;

/// A backup that was checked.
pub struct Backup {
    bytes: Vec<u8>,
    header: Header,
    mended: Option<String>,
}

/// What may be given up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allowed<'a> {
    /// The volume with this UUID, whose header is on the device.
    pub volume: Option<&'a str>,
    /// Whatever else the device holds.
    pub anything_else: bool,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The volume's UUID.
    pub uuid: String,
    /// Bytes that were written, from the beginning.
    pub bytes: u64,
    /// The slot that was opened with what was given, in memory.
    pub slot: Option<u32>,
}

impl Backup {
    /// Reads what `strongroom volume backup --out`, or cryptsetup, wrote. `device` is what it is
    /// for.
    ///
    /// # Errors
    /// SR-1006, SR-5001, SR-8354.
    pub fn load(path: &Path, device: &Path) -> Result<Self, Error> {
        use std::io::Read as _;
        let file = File::open(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Error::new(&code::NOT_FOUND, path.display().to_string())
            }
            _ => io(path, error),
        })?;
        let mut bytes = Vec::new();
        let read = file.take(BACKUP_MAX + 1).read_to_end(&mut bytes);
        read.map_err(|error| io(path, error))?;
        Self::of(bytes, &path.display().to_string(), device)
    }

    /// Checks a backup. `what` is it, for errors; `device` is what it is for.
    ///
    /// # Errors
    /// SR-8354, SR-8340, SR-5001.
    pub fn of(bytes: Vec<u8>, what: &str, device: &Path) -> Result<Self, Error> {
        let bad = |why: String| Error::new(&code::VOLUME_BACKUP, format!("{what}: {why}"));
        let damaged = |error: LuksError| bad(error.to_string());
        if bytes.len() as u64 > BACKUP_MAX {
            return Err(bad("too long".to_owned()));
        }
        let mended = read(bytes.as_slice()).map_err(damaged)?.warning();
        // libcryptsetup makes a copy good by the other, here in memory.
        let memory = in_memory(&bytes)?;
        let loaded = Volume::detached(&memory.path, device);
        let mut loaded = loaded.map_err(|error| match error.code() {
            there if there == &code::VOLUME_NOT_LUKS || there == &code::VOLUME_LIBRARY => {
                bad(error.detail().to_owned())
            }
            _ => error,
        })?;
        loaded.metadata()?.check_cipher()?;
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
        // Less: cut off. More: data, or not a header backup.
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

    /// The volume's UUID.
    #[must_use]
    pub fn uuid(&self) -> &str {
        &self.header.binary.uuid
    }

    /// What its header says.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.header.metadata
    }

    /// What was wrong with one of its two copies, and was made good by the other; in words.
    #[must_use]
    pub fn mended(&self) -> Option<&str> {
        self.mended.as_deref()
    }

    /// The slot that `secret` opens, tried in memory.
    ///
    /// # Errors
    /// SR-2002, SR-8340.
    pub fn test(&self, device: &Path, secret: &SecretBytes) -> Result<u32, Error> {
        let memory = in_memory(&self.bytes)?;
        Volume::detached(&memory.path, device)?.test(None, secret)
    }
}

/// Puts a header back onto `path`. `proof` is tried on it first.
///
/// # Errors
/// SR-8320, SR-8326, SR-8353; SR-2002 when `proof` opens nothing; SR-5001.
pub fn restore(
    path: &Path,
    backup: &Backup,
    proof: Option<&SecretBytes>,
    allowed: Allowed<'_>,
) -> Result<Restored, Error> {
    check_unused(path)?;
    let len = look(path)?.len;
    if len <= data_offset(&backup.header.metadata) {
        let detail = format!("{}: {len} bytes", path.display());
        return Err(Error::new(&code::VOLUME_SIZE, detail));
    }
    // From here on, until it is closed, nobody else has it.
    let device = open_locked(path, false).map_err(|error| of_luks(&error))?;
    let present = Present::of(&device, other_than_luks(path)?).map_err(|error| io(path, error))?;
    present.check(path, backup, proof.is_some(), allowed)?;
    for uuid in present.uuid.as_deref().into_iter().chain([backup.uuid()]) {
        check_not_active(uuid).map_err(|error| of_luks(&error))?;
    }
    let slot = proof.map(|secret| backup.test(path, secret)).transpose()?;
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

/// What is where the header is to go.
struct Present {
    /// A header that is whole.
    header: Option<Header>,
    /// Its UUID, or that of what is left of one.
    uuid: Option<String>,
    /// Something else, in words.
    other: Option<String>,
}

impl Present {
    fn of(device: &File, other: Option<String>) -> std::io::Result<Self> {
        let header = match read(device) {
            Ok(Found { header, .. }) => Some(header),
            Err(LuksError::Io(_, error)) => return Err(error),
            Err(_) => None,
        };
        let uuid = match &header {
            Some(header) => Some(header.binary.uuid.clone()),
            None => left_of_one(device)?,
        };
        Ok(Self {
            header,
            uuid,
            other,
        })
    }

    /// V24.
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
        // Openers that are newer than the backup would go, and those of the backup may open nothing
        // any more.
        if !is_proven {
            return refused(format!(
                "volume {uuid}, whose header is whole, and nothing was given to open the backup with"
            ));
        }
        Ok(())
    }
}

/// The UUID in what is left of a header.
fn left_of_one(device: &File) -> std::io::Result<Option<String>> {
    for at in [0].into_iter().chain(HEADER_SIZES) {
        let mut copy = [0; UUID_AT + UUID_LEN];
        match device.read_exact_at(&mut copy, at) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        }
        if let Some(uuid) = uuid_in(&copy) {
            return Ok(Some(uuid));
        }
    }
    Ok(None)
}

/// Whether data are under the same volume key, by its digest.
fn same_key(one: &Metadata, other: &Metadata) -> bool {
    let digest = |metadata: &Metadata| {
        let mut digests = metadata.digests.values();
        let digest = digests.find(|digest| !digest.segments.is_empty())?;
        Some((digest.salt.clone(), digest.digest.clone()))
    };
    digest(one).is_some() && digest(one) == digest(other)
}

/// V7: nothing of what was there looks like a header while it is written over, and the beginning
/// comes last.
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

/// The UUID of a copy of a header, whatever else of it holds.
fn uuid_in(copy: &[u8]) -> Option<String> {
    if !copy.starts_with(b"LUKS\xba\xbe") && !copy.starts_with(b"SKUL\xba\xbe") {
        return None;
    }
    let text = std::str::from_utf8(copy.get(UUID_AT..UUID_AT + UUID_LEN)?).ok()?;
    let fine = |c: char| c.is_ascii_hexdigit() || c == '-';
    text.chars().all(fine).then(|| text.to_owned())
}

fn areas_end(header: &Header) -> u64 {
    2 * header.binary.size + header.metadata.config.keyslots_size
}

/// Where data begin; 0 when they lie apart from the header.
fn data_offset(metadata: &Metadata) -> u64 {
    let offsets = metadata.segments.values().map(|segment| segment.offset);
    offsets.min().unwrap_or_default()
}

fn in_memory(bytes: &[u8]) -> Result<Memory, Error> {
    let memory = Memory::of(bytes.len() as u64)?;
    let written = memory.file.write_all_at(bytes, 0);
    written.map_err(|error| Error::io("memory for a header", error))?;
    Ok(memory)
}

fn of_luks(error: &LuksError) -> Error {
    let code = match error {
        LuksError::InUse(_) => &code::VOLUME_IN_USE,
        _ => error.code(),
    };
    Error::new(code, error.detail())
}
