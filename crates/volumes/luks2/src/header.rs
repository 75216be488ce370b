//! Both copies of the header: read, checked, and one of them chosen.
//!
//! A change of a header writes the primary copy first, then the secondary one; so after a crash at
//! any moment one copy is whole, and the newer one is the primary. Any other state is damage or an
//! attack, and the volume is then opened for reading only, if at all.
//!
//! Must not: repair anything; choose a copy that was not checked whole.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use strongroom_keyring::Locked;

use crate::binary::{BINARY_LEN, Binary, HEADER_SIZES, Magic, Which, magic};
use crate::check::check;
use crate::error::LuksError;
use crate::metadata::Metadata;

/// Where headers and key slot areas are read from.
pub trait Source {
    /// Fills `buffer` with the bytes from `offset` on.
    ///
    /// # Errors
    /// The system's; `UnexpectedEof` when `buffer` reaches beyond the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

impl Source for File {
    /// Fills `buffer` from `offset` on; `UnexpectedEof` when the file ends before.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }
}

impl Source for Locked {
    /// Fills `buffer` from `offset` on; `UnexpectedEof` when the file ends before.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        Source::read_at(&**self, buffer, offset)
    }
}

impl Source for [u8] {
    /// Fills `buffer` from `offset` on; `UnexpectedEof` when the bytes end before.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).ok();
        let end = start.and_then(|start| start.checked_add(buffer.len()));
        let bytes = start.zip(end).and_then(|(start, end)| self.get(start..end));
        let bytes = bytes.ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }
}

/// A whole header: fields, checksum, JSON and references were checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its binary part.
    pub binary: Binary,
    /// Its JSON area.
    pub metadata: Metadata,
}

/// The state of one copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyState {
    /// Whole, with this sequence id.
    Good(u64),
    /// Damaged; the field.
    Damaged(String),
    /// There is none.
    Absent,
}

/// The header that was chosen, and the state of both copies.
#[derive(Clone, Debug)]
pub struct Found {
    /// The chosen copy.
    pub header: Header,
    /// Which copy it is.
    pub from: Which,
    /// The primary copy.
    pub primary: CopyState,
    /// The secondary copy.
    pub secondary: CopyState,
}

impl Found {
    /// Returns whether the volume may be written to: only when the primary copy was chosen.
    #[must_use]
    pub fn may_write(&self) -> bool {
        self.from == Which::Primary
    }

    /// Says in words what is wrong with the two copies. `None` when both are whole and have the
    /// same sequence id.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        match (&self.primary, &self.secondary) {
            (CopyState::Good(one), CopyState::Good(other)) if one == other => None,
            (CopyState::Good(one), CopyState::Good(other)) => Some(format!(
                "the primary copy has sequence id {one}, the secondary one {other}; a change was interrupted"
            )),
            (CopyState::Good(_), CopyState::Damaged(field)) => {
                Some(format!("the secondary copy is damaged: field {field}"))
            }
            (CopyState::Good(_), CopyState::Absent) => {
                Some("there is no secondary copy".to_owned())
            }
            (CopyState::Damaged(field), _) => {
                Some(format!("the primary copy is damaged: field {field}"))
            }
            (CopyState::Absent, _) => Some("there is no primary copy".to_owned()),
        }
    }
}

/// Returns whether a file or device begins with the primary header of a LUKS volume of any version.
/// False for one of fewer than 8 bytes.
///
/// # Errors
/// The system's, when the file cannot be opened or read.
pub fn begins_as_luks(path: &Path) -> io::Result<bool> {
    let mut first = [0; 8];
    match File::open(path)?.read_exact_at(&mut first, 0) {
        Ok(()) => Ok(magic(&first) != Magic::Other),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads and checks both copies of the header, and chooses the one with the higher sequence id, or
/// the only usable one. Writes and repairs nothing.
///
/// # Errors
/// [`LuksError::Luks1`] for a header of version 1; [`LuksError::NotLuks`] when there is no copy;
/// [`LuksError::Damaged`] when no copy can be used, or both have the same sequence id and differ;
/// [`LuksError::Forged`] when the primary copy describes half a re-encryption, even if the
/// secondary one is good; [`LuksError::Io`] when reading fails.
pub fn read(source: &(impl Source + ?Sized)) -> Result<Found, LuksError> {
    let mut head = [0; 8];
    let at_start = match source.read_at(&mut head, 0) {
        Ok(()) => magic(&head),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Magic::Other,
        Err(error) => return Err(failed(error)),
    };
    if at_start == Magic::Luks(1) {
        return Err(LuksError::Luks1);
    }
    let primary = copy(source, Which::Primary, 0);
    let secondary = match &primary {
        Ok((header, _)) => {
            let size = header.binary.size;
            copy(source, Which::Secondary, size)
        }
        Err(LuksError::Io(..)) => return Err(primary.err().unwrap_or(LuksError::NotLuks)),
        Err(_) => search(source),
    };
    if let Err(error @ LuksError::Io(..)) = secondary {
        return Err(error);
    }
    choose(primary, secondary, at_start)
}

type Copied = Result<(Header, Vec<u8>), LuksError>;

/// Chooses between the two copies as [`read`] does: the higher sequence id, the primary one at
/// equal ids, or the only good one. `at_start` decides which error is reported when neither is
/// good.
fn choose(primary: Copied, secondary: Copied, at_start: Magic) -> Result<Found, LuksError> {
    let (first, second) = (state(&primary), state(&secondary));
    let found = |header, from| Found {
        header,
        from,
        primary: first.clone(),
        secondary: second.clone(),
    };
    match (primary, secondary) {
        (Ok((one, json)), Ok((other, other_json))) => {
            let (a, b) = (one.binary.sequence, other.binary.sequence);
            let names = |header: &Header| {
                let binary = &header.binary;
                [&binary.uuid, &binary.label, &binary.subsystem].map(String::clone)
            };
            if a == b && (json != other_json || names(&one) != names(&other)) {
                return Err(LuksError::damaged(
                    "seqid (both copies have it, and they differ)",
                ));
            }
            Ok(match b > a {
                true => found(other, Which::Secondary),
                false => found(one, Which::Primary),
            })
        }
        (Ok((one, _)), Err(_)) => Ok(found(one, Which::Primary)),
        // An older secondary copy does not stand in for a forged primary one.
        (Err(error @ LuksError::Forged(_)), _) => Err(error),
        (Err(_), Ok((other, _))) => Ok(found(other, Which::Secondary)),
        (Err(error), Err(other)) => Err(match (at_start, other) {
            (Magic::Luks(_), _) => error,
            (Magic::Other, LuksError::NotLuks) => LuksError::NotLuks,
            (Magic::Other, other) => other,
        }),
    }
}

/// Returns the state of one copy as [`Found`] shows it; any error but an absent copy counts as
/// damage.
fn state(copy: &Copied) -> CopyState {
    match copy {
        Ok((header, _)) => CopyState::Good(header.binary.sequence),
        Err(LuksError::Damaged(field)) => CopyState::Damaged(field.clone()),
        Err(LuksError::NotLuks) => CopyState::Absent,
        Err(error) => CopyState::Damaged(error.detail()),
    }
}

/// Searches for the secondary copy at every place where one can be, when the primary copy does not
/// say its size. Returns the first that is good, or else the error of the last damaged one.
///
/// # Errors
/// [`LuksError::NotLuks`] when there is none; [`LuksError::Io`] at once when reading fails.
fn search(source: &(impl Source + ?Sized)) -> Copied {
    let mut outcome = Err(LuksError::NotLuks);
    for offset in HEADER_SIZES {
        match copy(source, Which::Secondary, offset) {
            found @ (Ok(_) | Err(LuksError::Io(..))) => return found,
            Err(LuksError::NotLuks) => {}
            Err(error) => outcome = Err(error),
        }
    }
    outcome
}

/// Reads and checks one copy. Returns the header and the bytes of its JSON area.
///
/// # Errors
/// [`LuksError::NotLuks`] where there is none; [`LuksError::Damaged`] or [`LuksError::Forged`] when
/// it breaks a rule, or a primary copy is cut short; [`LuksError::Io`] when reading fails.
fn copy(source: &(impl Source + ?Sized), which: Which, offset: u64) -> Copied {
    let mut bytes = [0; BINARY_LEN];
    let binary = match source.read_at(&mut bytes, offset) {
        Ok(()) => Binary::parse(&bytes, which, offset),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(if which == Which::Primary {
                LuksError::damaged("length")
            } else {
                LuksError::NotLuks
            });
        }
        Err(error) => return Err(failed(error)),
    };
    let binary = match binary {
        Err(LuksError::Damaged(field)) if field == "magic" => return Err(LuksError::NotLuks),
        other => other?,
    };
    // At most 4 MiB: `parse` has checked the size.
    let len = usize::try_from(binary.json_size()).map_err(|_| LuksError::damaged("hdr_size"))?;
    let mut json = vec![0; len];
    match source.read_at(&mut json, offset + BINARY_LEN as u64) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(LuksError::damaged("length"));
        }
        Err(error) => return Err(failed(error)),
    }
    binary.verify(&bytes, &json)?;
    let metadata = Metadata::parse(&json)?;
    check(&metadata, binary.size)?;
    Ok((Header { binary, metadata }, json))
}

/// Returns [`LuksError::Io`] for a failed read of the header.
fn failed(error: io::Error) -> LuksError {
    LuksError::Io("reading the header".to_owned(), error)
}

/// For fuzzing: reads `bytes` as a header twice, and then as a JSON area alone, including the
/// checks of references and of re-encryption metadata. Results are dropped.
///
/// # Panics
/// When one reading succeeds and the other fails, and where a check has a defect.
pub fn fuzz(bytes: &[u8]) {
    let one = read(bytes).map(|found| found.header);
    let other = read(bytes).map(|found| found.header);
    assert_eq!(
        one.is_ok(),
        other.is_ok(),
        "two readings of the same bytes differ"
    );
    // The JSON alone, without a checksum in the way, as in a header of the smallest size.
    let mut area = bytes.to_vec();
    area.push(0);
    if let Ok(metadata) = Metadata::parse(&area) {
        let size = metadata.config.json_size.saturating_add(BINARY_LEN as u64);
        drop(check(&metadata, size));
        drop(crate::reencrypt::verify(
            &metadata,
            &std::collections::BTreeMap::new(),
        ));
    }
}
