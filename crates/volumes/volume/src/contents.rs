//! What a device or file holds, and whether it is in use: looked at before anything is written to
//! it.
//!
//! Invariants: V4, a device that is mounted, mapped, or a swap area is never written to; V5, one
//! with a known signature is written to only when the caller asked for that.
//!
//! Must not: change anything.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::OFlags;
use strongroom_format::{code, header};
use strongroom_keyring::Error;
use strongroom_luks2::{MAGIC_PRIMARY, MAGIC_SECONDARY, loop_device_of};

use crate::error::{in_use, io};
use crate::locked::{Purpose, check_not_locked};

/// Bytes at the beginning that are searched: up to the end of the last signature in the table.
const FIRST_LEN: usize = 128 * 1024;
/// Bytes at the end that are searched: partition tables and RAID have their second header there.
const LAST_LEN: usize = 128 * 1024;
/// How many samples of a device are read, and the length of each.
const SAMPLES: u64 = 1024;
const SAMPLE_LEN: usize = 16 * 1024;

/// Signatures: offset, bytes, and what they are the signature of.
const SIGNATURES: &[(usize, &[u8], &str)] = &[
    (0, &MAGIC_PRIMARY, "a LUKS volume"),
    (0x4000, &MAGIC_SECONDARY, SECOND_HEADER),
    (0x8000, &MAGIC_SECONDARY, SECOND_HEADER),
    (1080, &[0x53, 0xef], "a file system of the kind ext"),
    (0, b"XFSB", "an XFS file system"),
    (0x1_0040, b"_BHRfS_M", "a Btrfs file system"),
    (1024, &[0x10, 0x20, 0xf5, 0xf2], "an F2FS file system"),
    (0, b"hsqs", "a SquashFS image"),
    (1024, &[0xe2, 0xe1, 0xf5, 0xe0], "an EROFS image"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (54, b"FAT1", "a FAT file system"),
    (82, b"FAT32", "a FAT file system"),
    (0x8001, b"CD001", "an ISO 9660 image"),
    (4086, b"SWAPSPACE2", SWAP),
    (4086, b"SWAP-SPACE", SWAP),
    (4086, b"S1SUSPEND", "a hibernated system"),
    (4086, b"S2SUSPEND", "a hibernated system"),
    (4086, b"ULSUSPEND", "a hibernated system"),
    (4086, b"LINHIB0001", "a hibernated system"),
    (536, b"LVM2 001", "an LVM physical volume"),
    (24, b"LVM2 001", "an LVM physical volume"),
    (512, b"EFI PART", "a partition table (GPT)"),
    (4096, b"EFI PART", "a partition table (GPT)"),
    (4096, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of a RAID"),
    (0, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of a RAID"),
    (4096, b"BlueFS\0", "a Ceph device"),
    (0, b"bluestore block device", "a Ceph device"),
    (
        4120,
        &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca],
        "a bcache device",
    ),
    (510, &[0x55, 0xaa], "a partition table or a boot sector"),
    (0, b"integrt\0", "a dm-integrity device"),
    (0, b"verity\0\0", "a dm-verity device"),
    (0, b"SQLite format 3\0", "an SQLite database"),
    (0, b"-FVE-FS-", "a BitLocker volume"),
];
/// The secondary copy of a LUKS2 header, in words.
const SECOND_HEADER: &str = "a LUKS2 volume (its second header)";
/// A swap area, in words.
const SWAP: &str = "a swap area";

/// What a device or file holds.
#[derive(Debug, PartialEq, Eq)]
pub struct Contents {
    /// In words; `None` when no signature was found.
    pub holds: Option<String>,
    /// Length in bytes.
    pub len: u64,
    /// Whether it is a block device.
    pub is_device: bool,
}

impl Contents {
    /// Returns whether all that it holds is a swap area.
    #[must_use]
    pub fn is_swap(&self) -> bool {
        self.holds.as_deref() == Some(SWAP)
    }
}

/// Searches a device or file for signatures at its beginning and end, with blkid(8) where no own
/// one matches. Only reads.
///
/// # Errors
/// SR-1006 when there is no such file, SR-5001 when the system reports an error; SR-8322 when it is
/// neither a block device nor a regular file.
pub fn contents(path: &Path) -> Result<Contents, Error> {
    let about = std::fs::metadata(path).map_err(|error| Error::opening(path, error))?;
    let kind = about.file_type();
    if !kind.is_block_device() && !kind.is_file() {
        let detail = format!("{}: neither a block device nor a file", path.display());
        return Err(Error::new(&code::VOLUME_NOT_LUKS, detail));
    }
    let mut file = File::open(path).map_err(|error| io(path, error))?;
    let len = file
        .seek(SeekFrom::End(0))
        .map_err(|error| io(path, error))?;
    let first = read_piece(&mut file, 0, FIRST_LEN).map_err(|error| io(path, error))?;
    let at = len.saturating_sub(LAST_LEN as u64);
    let last = read_piece(&mut file, at, LAST_LEN).map_err(|error| io(path, error))?;
    let mut holds = signature(&first)
        .or_else(|| signature_at_end(&last))
        .map(str::to_owned);
    if holds.is_none() {
        holds = probe_with_blkid(path);
    }
    Ok(Contents {
        holds,
        len,
        is_device: kind.is_block_device(),
    })
}

/// Returns the first signature on a device that is neither of a LUKS header nor of the remains of
/// one, in words. `None` when there is none.
///
/// # Errors
/// SR-1006 when there is no such file, SR-5001 when the system reports an error; SR-8322 when it is
/// neither a block device nor a regular file.
pub(crate) fn other_than_luks(path: &Path) -> Result<Option<String>, Error> {
    let found = contents(path)?.holds;
    if !found.as_deref().is_some_and(|what| what.contains("LUKS")) {
        return Ok(found);
    }
    // The secondary header stays when something else is written over the primary one.
    let mut file = File::open(path).map_err(|error| io(path, error))?;
    let first = read_piece(&mut file, 0, FIRST_LEN).map_err(|error| io(path, error))?;
    let others = signatures(&first).find(|what| !what.contains("LUKS"));
    Ok(others.map(str::to_owned))
}

/// Reads [`SAMPLES`] pieces over the whole device or file, and returns whether any of them is not
/// all zeros. A disk that was in use has such pieces.
///
/// # Errors
/// SR-1006 when there is no such file, SR-5001 when the system reports an error.
pub fn has_old_data(path: &Path) -> Result<bool, Error> {
    let mut file = File::open(path).map_err(|error| Error::opening(path, error))?;
    let failed = |error| io(path, error);
    let len = file.seek(SeekFrom::End(0)).map_err(failed)?;
    for sample in 0..SAMPLES {
        let at = len / SAMPLES * sample;
        let bytes = read_piece(&mut file, at, SAMPLE_LEN).map_err(failed)?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Refuses a block device that the kernel uses (mounted, mapped, swap), and a file that a loop
/// device is on or that another process has locked; waits some seconds for such a lock.
///
/// # Errors
/// SR-8320 when it is in use; SR-1006 when there is no such file, SR-5001 when the system reports
/// an error.
pub fn check_unused(path: &Path) -> Result<(), Error> {
    let about = std::fs::metadata(path).map_err(|error| Error::opening(path, error))?;
    if about.file_type().is_block_device() {
        return open_exclusively(path, false).map(drop);
    }
    match loop_device_of(&about) {
        Some(device) => Err(in_use(path, &format!("it is behind {}", device.display()))),
        // A volume that is attached through FUSE is locked.
        None => check_not_locked(path, Purpose::Change),
    }
}

/// Opens a block device for sole use: while it is open, nobody can mount or map it. A regular file
/// is opened without a lock. For reading, and with `writing` also for writing.
///
/// # Errors
/// SR-8320 when the device is in use; SR-1006 when there is no such file, SR-5001 when the system
/// reports an error.
pub fn open_exclusively(path: &Path, writing: bool) -> Result<File, Error> {
    let about = std::fs::metadata(path).map_err(|error| Error::opening(path, error))?;
    let mut options = OpenOptions::new();
    options.read(true).write(writing);
    if about.file_type().is_block_device() {
        // O_EXCL on a block device asks the kernel for its sole use: a mounted one is busy.
        let flags = i32::try_from(OFlags::EXCL.bits()).unwrap_or_default();
        options.custom_flags(flags);
    }
    options.open(path).map_err(|error| {
        if error.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()) {
            in_use(path, "the kernel says that it is busy")
        } else {
            io(path, error)
        }
    })
}

/// Returns in words what the first bytes of a device are the signature of: the first match in the
/// table, but a swap area only when nothing else matches. `None` when nothing does.
fn signature(first: &[u8]) -> Option<&'static str> {
    if header::is_sealed(first) {
        return Some("an object sealed by Strongroom");
    }
    let all: Vec<&str> = signatures(first).collect();
    // An old swap area's signature may still be there below another one, which then counts.
    let other = all.iter().find(|what| **what != SWAP);
    other.or_else(|| all.first()).copied()
}

/// Iterates over all signatures of the table that match the first bytes of a device.
fn signatures(first: &[u8]) -> impl Iterator<Item = &'static str> {
    let known = |(at, bytes, _): &&(usize, &[u8], &str)| {
        first
            .get(*at..)
            .is_some_and(|there| there.starts_with(bytes))
    };
    SIGNATURES.iter().filter(known).map(|(_, _, what)| *what)
}

/// Returns in words that the last bytes of a device hold the second copy of a GPT, in one of the
/// last 16 sectors. `None` when they do not.
fn signature_at_end(last: &[u8]) -> Option<&'static str> {
    let sectors = last.rchunks(512).take(16);
    let mut sectors = sectors.filter(|sector| sector.len() == 512);
    let gpt = |sector: &[u8]| sector.starts_with(b"EFI PART");
    sectors
        .any(gpt)
        .then_some("a partition table (GPT, its second copy)")
}

/// Runs blkid(8) of util-linux, and returns what it recognises. `None` when that is nothing, and
/// where it is not installed.
fn probe_with_blkid(path: &Path) -> Option<String> {
    let asked = Command::new("blkid")
        .args(["--probe", "--output", "export"])
        .arg(path)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let asked = asked.ok()?;
    // Exit code 8: blkid found several signatures.
    if asked.status.code() == Some(8) {
        return Some("more than one thing (blkid)".to_owned());
    }
    let text = String::from_utf8_lossy(&asked.stdout);
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let kind = value("TYPE=").or_else(|| value("PTTYPE="))?;
    let kind: String = kind.chars().filter(|c| !c.is_control()).take(40).collect();
    Some(format!("{kind} (blkid)"))
}

/// Reads up to `len` bytes from offset `at` on; fewer at the end of the file.
fn read_piece(file: &mut File, at: u64, len: usize) -> std::io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.take(len as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn every_signature_is_found_at_its_place_and_zeros_are_nothing() {
        assert_eq!(signature(&[0; FIRST_LEN]), None);
        for (at, bytes, what) in SIGNATURES {
            let mut first = vec![0; FIRST_LEN];
            first[*at..*at + bytes.len()].copy_from_slice(bytes);
            assert_eq!(signature(&first), Some(*what));
        }
    }

    #[test]
    fn old_data_are_seen_wherever_they_are_and_zeros_are_none() {
        use std::os::unix::fs::FileExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        let file = File::create(&path).unwrap();
        file.set_len(24 << 20).unwrap();
        assert!(!has_old_data(&path).unwrap());
        file.write_all_at(&[1; 4096], (20 << 20) + 4096).unwrap();
        assert!(has_old_data(&path).unwrap());
        assert!(has_old_data(Path::new("absent")).is_err());
    }

    #[test]
    fn real_file_systems_are_recognised() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        for (program, words) in [("mkfs.ext4", "ext"), ("mkswap", "swap")] {
            let file = File::create(&path).unwrap();
            file.set_len(32 << 20).unwrap();
            let made = Command::new(program).arg(&path).output();
            // Every Debian has both programs.
            assert!(made.unwrap().status.success(), "{program}");
            let found = contents(&path).unwrap();
            assert!(found.holds.as_deref().unwrap().contains(words), "{found:?}");
            assert_eq!(found.is_swap(), program == "mkswap");
            assert_eq!((found.len, found.is_device), (32 << 20, false));
        }
        let mut file = File::create(&path).unwrap();
        file.write_all(&[0; 4096]).unwrap();
        assert_eq!(contents(&path).unwrap().holds, None);
        assert_eq!(
            contents(Path::new("/dev/null")).unwrap_err().code(),
            &code::VOLUME_NOT_LUKS
        );
        assert_eq!(
            contents(Path::new("absent")).unwrap_err().code(),
            &code::NOT_FOUND
        );
    }
}
