//! Locks of volumes, and where they are attached: while one process writes to a volume, no other
//! uses it.
//!
//! Invariants:
//! - L14 A volume that is written to is locked exclusively for as long as it is attached, one that
//!   is read is locked shared (flock on the file, which cryptsetup takes too when it changes a
//!   header).
//! - L15 A volume that the kernel uses (a loop device, device-mapper, a mount) is refused.
//!
//! Must not: break a lock, or detach anything that is not Strongroom's.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::mount::{UnmountFlags, unmount};
use strongroom_keyring::Locked;

use crate::error::LuksError;
use crate::fuse::SOURCE;

/// Opens a volume's file or device, and locks it with `flock`: exclusively, or shared when
/// `read_only`. Does not wait. The lock is held until the result is dropped.
///
/// # Errors
/// [`LuksError::InUse`] when another process has the lock, the kernel uses the device, or a loop
/// device is on the file; [`LuksError::Io`], also for anything but a file or block device.
pub fn open_locked(path: &Path, read_only: bool) -> Result<Locked, LuksError> {
    let failed = |error| LuksError::Io(path.display().to_string(), error);
    let about = std::fs::metadata(path).map_err(failed)?;
    let device = about.file_type().is_block_device();
    if !device && !about.is_file() {
        let error = io::Error::other("neither a file nor a block device");
        return Err(failed(error));
    }
    let mut options = OpenOptions::new();
    options.read(true).write(!read_only);
    if device {
        // O_EXCL on a block device fails with EBUSY when it is mounted, or mapped by device-mapper.
        options.custom_flags(rustix::fs::OFlags::EXCL.bits().cast_signed());
    }
    let file = options.open(path).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => LuksError::InUse("the kernel uses the device".to_owned()),
        _ => failed(error),
    })?;
    // The metadata of the opened file: the name may lead elsewhere by now.
    let opened = file.metadata().map_err(failed)?;
    let how = match read_only {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    flock(&file, how).map_err(|error| match error {
        rustix::io::Errno::WOULDBLOCK => LuksError::InUse(lock_holder(&opened)),
        _ => failed(error.into()),
    })?;
    let locked = Locked::from(file);
    if let Some(loop_device) = loop_device_of(&opened) {
        let text = format!("it is behind {}", loop_device.display());
        return Err(LuksError::InUse(text));
    }
    Ok(locked)
}

/// Checks that device-mapper does not have the LUKS2 volume with this UUID open, on whatever
/// device. Succeeds where `/sys/block` cannot be read.
///
/// # Errors
/// [`LuksError::InUse`] with the name of the mapping's device.
pub fn check_not_active(uuid: &str) -> Result<(), LuksError> {
    let prefix = format!("CRYPT-LUKS2-{}-", uuid.replace('-', ""));
    let Ok(devices) = std::fs::read_dir("/sys/block") else {
        return Ok(());
    };
    for device in devices.flatten() {
        let known = std::fs::read_to_string(device.path().join("dm/uuid")).unwrap_or_default();
        if known.starts_with(&prefix) {
            let name = device.file_name().to_string_lossy().into_owned();
            return Err(LuksError::InUse(format!(
                "device-mapper has it open as {name}"
            )));
        }
    }
    Ok(())
}

/// Says in words which process holds a lock (`flock`) on the file that `about` describes, by
/// `/proc/locks` (`proc_locks(5)`), and where the volume is attached, if it is. The process is
/// "another process" when it cannot be found.
#[must_use]
pub fn lock_holder(about: &std::fs::Metadata) -> String {
    let table = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let (major, minor) = (
        rustix::fs::major(about.dev()),
        rustix::fs::minor(about.dev()),
    );
    let wanted = format!("{major:02x}:{minor:02x}:{}", about.ino());
    let found = table.lines().find_map(|line| {
        let mut fields = line
            .split_whitespace()
            .skip(1)
            .filter(|field| *field != "->");
        let kind = fields.next()?;
        let pid = fields.nth(2)?;
        (kind == "FLOCK" && fields.next() == Some(wanted.as_str())).then(|| pid.to_owned())
    });
    let who = match found {
        Some(pid) => {
            let command = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("process {pid} ({})", command.trim())
        }
        None => "another process".to_owned(),
    };
    match mountpoint_of(about) {
        Some(at) => {
            let at = at.display();
            format!(
                "{who} has it attached at {at}; `strongroom volume detach {at}` ends that, and `strongroom inspect` shows the header meanwhile"
            )
        }
        None => format!("{who} has it open"),
    }
}

/// Returns where the volume in the file that `about` describes is attached through FUSE. `None`
/// when it is not, and when that cannot be read here.
fn mountpoint_of(about: &std::fs::Metadata) -> Option<PathBuf> {
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    let mut lines = mounts.split(|&byte| byte == b'\n').rev();
    lines.find_map(|line| {
        let (at, kind, source) = mount(line)?;
        let source = source.strip_prefix(SOURCE.as_bytes())?;
        let volume = kind
            .starts_with(b"fuse")
            .then(|| std::fs::metadata(path_of(source)).ok())??;
        ((volume.dev(), volume.ino()) == (about.dev(), about.ino())).then_some(at)
    })
}

/// Returns a loop device on the regular file that `about` describes. `None` when there is none, and
/// for anything but a regular file.
#[must_use]
pub fn loop_device_of(about: &std::fs::Metadata) -> Option<PathBuf> {
    let ours = Some(about).filter(|about| about.is_file())?;
    let devices = std::fs::read_dir("/sys/block").ok()?;
    devices.flatten().find_map(|device| {
        let backing = std::fs::read(device.path().join("loop/backing_file")).ok()?;
        let backing = backing.strip_suffix(b"\n").unwrap_or(&backing);
        let other = std::fs::metadata(std::ffi::OsStr::from_bytes(backing)).ok()?;
        let same = (ours.dev(), ours.ino()) == (other.dev(), other.ino());
        same.then(|| Path::new("/dev").join(device.file_name()))
    })
}

/// Checks that a volume can be attached at `path`: an empty directory where none is attached.
///
/// # Errors
/// [`LuksError::Mountpoint`] when it is not.
pub fn check_mountpoint(path: &Path) -> Result<(), LuksError> {
    let wrong = |text: String| Err(LuksError::Mountpoint(format!("{}: {text}", path.display())));
    if attached_at(path).is_some() {
        return wrong("a volume is attached there".to_owned());
    }
    let mut entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => return wrong(error.to_string()),
    };
    match entries.next() {
        None => Ok(()),
        Some(_) => wrong("not empty".to_owned()),
    }
}

/// Returns the path of the volume that is attached at `mountpoint` through FUSE. `None` when none
/// is, or another file system is mounted over it.
#[must_use]
pub fn attached_at(mountpoint: &Path) -> Option<PathBuf> {
    // The directory may not answer when its process has died; the one above it does.
    let parent = mountpoint
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent
        .unwrap_or_else(|| Path::new("."))
        .canonicalize()
        .ok()?;
    let path = match mountpoint.file_name() {
        Some(name) => parent.join(name),
        None => mountpoint.canonicalize().ok()?,
    };
    let resolved = path.canonicalize().unwrap_or(path);
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    let lines = mounts.split(|&byte| byte == b'\n').rev();
    // The last line is for the topmost mount.
    let (_, kind, source) = lines.filter_map(mount).find(|(at, ..)| *at == resolved)?;
    let source = source.strip_prefix(SOURCE.as_bytes())?;
    kind.starts_with(b"fuse").then(|| path_of(source))
}

/// Returns mount point, type and source from a line of mountinfo (proc(5)). `None` for a line that
/// is cut short.
fn mount(line: &[u8]) -> Option<(PathBuf, Vec<u8>, Vec<u8>)> {
    let mut words = line.split(|&byte| byte == b' ');
    let at = words.nth(4)?;
    let mut rest = words.skip_while(|word| *word != b"-").skip(1);
    let (kind, source) = (rest.next()?, rest.next()?);
    Some((path_of(&unescaped(at)), kind.to_vec(), unescaped(source)))
}

/// Returns the bytes as a path.
fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

/// Decodes the octal escapes of mountinfo, as `\040`. A backslash without three octal digits stays.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| byte == b'\\');
        let value = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match value {
            Some(value) => {
                out.push(value);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                out.push(byte);
                rest = after;
            }
        }
    }
    out
}

/// Unmounts the volume at `mountpoint`, and waits at most `patience` until its process has released
/// the lock for writing. Returns the path of the volume's file or device. Also works when that
/// process has died.
///
/// # Errors
/// [`LuksError::Mountpoint`] when no volume is attached there; [`LuksError::InUse`] when a program
/// uses it, and when it is unmounted but still locked after `patience`; [`LuksError::Fuse`] when
/// unmounting fails otherwise.
pub fn detach(mountpoint: &Path, patience: Duration) -> Result<PathBuf, LuksError> {
    let Some(volume) = attached_at(mountpoint) else {
        let text = format!("{}: no volume is attached there", mountpoint.display());
        return Err(LuksError::Mountpoint(text));
    };
    let failed = |error: rustix::io::Errno| match error {
        rustix::io::Errno::BUSY => LuksError::InUse(format!(
            "a program or a loop device uses {}",
            mountpoint.join(crate::fuse::FILE_NAME).display()
        )),
        _ => LuksError::Fuse(mountpoint.display().to_string(), error.into()),
    };
    unmount(mountpoint, UnmountFlags::empty()).map_err(failed)?;
    let begun = Instant::now();
    while is_locked(&volume) {
        if begun.elapsed() > patience {
            let text = "it was detached, but its process still writes to it";
            return Err(LuksError::InUse(text.to_owned()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(volume)
}

/// Returns whether another process holds the exclusive lock of a volume. False when the volume
/// cannot be opened. Keeps no lock.
fn is_locked(volume: &Path) -> bool {
    File::open(volume).is_ok_and(|file| {
        let locked = flock(&file, FlockOperation::NonBlockingLockShared);
        drop(Locked::from(file));
        locked == Err(rustix::io::Errno::WOULDBLOCK)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mountinfo_are_read() {
        let line =
            b"36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - fuse strongroom:/srv/a\\134b rw";
        let (at, kind, source) = mount(line).unwrap();
        assert_eq!(at, Path::new("/mnt 2"));
        assert_eq!(kind, b"fuse");
        assert_eq!(source, b"strongroom:/srv/a\\b");
        assert!(mount(b"").is_none());
        assert!(mount(b"36 35 98:0 / /mnt rw").is_none());
        assert_eq!(unescaped(b"a\\04"), b"a\\04");
        assert_eq!(unescaped(b"\\999"), b"\\999");
    }
}
