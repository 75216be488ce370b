//! Finds devices by the UUID or label in their LUKS2 header.
//!
//! Invariant V18: a device that does not answer delays nothing. Each is read in a thread of its own
//! (which ends with the process: a read of a block device can be interrupted by a signal that
//! kills), and the search ends when its time is over.
//!
//! The links in `/dev/disk` are not used: without udev nobody makes them, and with it, a link leads
//! to one of two devices with the same UUID.
//!
//! Must not: choose between devices with the same identity.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_luks2::{label_in, uuid_in};

/// Pause between two rounds over all devices.
const PAUSE: Duration = Duration::from_millis(200);
/// How long to wait for the other devices after one has matched.
const GRACE: Duration = Duration::from_secs(1);

/// Where the kernel shows devices.
#[derive(Clone, Debug)]
pub struct KernelPaths {
    /// `/sys/class/block`.
    pub block: PathBuf,
    /// `/dev`.
    pub dev: PathBuf,
    /// `/proc/swaps`.
    pub swaps: PathBuf,
}

impl Default for KernelPaths {
    /// Returns the paths of a running Linux system.
    fn default() -> Self {
        Self {
            block: PathBuf::from("/sys/class/block"),
            dev: PathBuf::from("/dev"),
            swaps: PathBuf::from("/proc/swaps"),
        }
    }
}

impl KernelPaths {
    /// Returns the text of a file of one line that the kernel has for a device in sysfs, without
    /// the line's end. `None` when there is none.
    pub(crate) fn shown(&self, device: &str, what: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.block.join(device).join(what)).ok()?;
        Some(text.trim_end_matches('\n').to_owned())
    }

    /// Returns the names, sorted, in a directory that the kernel has for a device in sysfs:
    /// `holders`, which are made of it, or `slaves`, which it is made of. Empty when there is no
    /// such directory.
    pub(crate) fn listed(&self, device: &str, what: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.block.join(device).join(what));
        let names = entries.into_iter().flatten().flatten();
        let mut names: Vec<String> = names
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// Returns the names of all block devices that can be read, sorted: not those of size 0, as
    /// drives without a medium and unused loop devices, nor suspended mappings, whose I/O waits.
    pub(crate) fn devices(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.block).into_iter().flatten();
        let names = entries.flatten().map(|entry| entry.file_name());
        let mut names: Vec<String> = names
            .filter_map(|name| name.into_string().ok())
            // Drives without a medium, devices that nothing is attached to, and mappings whose I/O
            // waits.
            .filter(|name| self.shown(name, "size").as_deref() != Some("0"))
            .filter(|name| self.shown(name, "dm/suspended").as_deref() != Some("1"))
            .collect();
        names.sort();
        names
    }
}

/// Returns the paths of all block devices that can be read.
#[must_use]
pub fn block_devices() -> Vec<PathBuf> {
    let places = KernelPaths::default();
    let names = places.devices().into_iter();
    names.map(|name| places.dev.join(name)).collect()
}

/// Returns the path of the device that `UUID=...`, `LABEL=...` or a path means; waits for it for at
/// most `wait`.
///
/// # Errors
/// When `wait` is over: SR-1006 when it has not appeared; SR-8320 when it is part of another
/// device, as of an opened volume; SR-8335 when several devices match.
pub fn find(device: &str, wait: Duration) -> Result<PathBuf, Error> {
    find_in(&KernelPaths::default(), device, wait)
}

/// Returns the path of the device that `UUID=...`, `LABEL=...` or a path means, with the kernel's
/// files at `places`; waits for it for at most `wait`.
///
/// # Errors
/// When `wait` is over: SR-1006 when it has not appeared; SR-8320 when it is part of another
/// device; SR-8335 when several devices match.
pub fn find_in(places: &KernelPaths, device: &str, wait: Duration) -> Result<PathBuf, Error> {
    let began = Instant::now();
    let mut search = Search::new(places, device);
    loop {
        let round = Instant::now();
        let left = wait.saturating_sub(began.elapsed());
        let found = search.round(left);
        if let [one] = found.free.as_slice() {
            return Ok(one.clone());
        }
        let left = wait.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Err(found.why_not(device, wait));
        }
        std::thread::sleep(PAUSE.saturating_sub(round.elapsed()).min(left));
    }
}

/// Returns whether the device at `path` is the one that `wanted` means (`UUID=...` or `LABEL=...`).
/// False also when it does not answer within `wait`.
pub(crate) fn has_identity(path: &Path, wanted: &str, wait: Duration) -> bool {
    let (sender, receiver) = channel();
    probe(path, Wanted::parse(wanted), &sender);
    receiver.recv_timeout(wait).is_ok_and(|(_, is_it)| is_it)
}

/// Devices that match.
struct Found {
    free: Vec<PathBuf>,
    /// Devices that are part of others, which are then the device to use: paths of a multipath
    /// device, members of a RAID, a volume that is open.
    held: Vec<(PathBuf, Vec<String>)>,
}

impl Found {
    /// Returns the error for a search that did not end with exactly one free device: SR-1006 when
    /// nothing matched within `wait`; SR-8335 when several free devices match; SR-8320 when every
    /// match is part of another device. `device` is what was searched for, for the message.
    fn why_not(&self, device: &str, wait: Duration) -> Error {
        if self.free.is_empty() {
            return match self.held.first() {
                None => {
                    let detail = format!("{device}, for {} s", wait.as_secs());
                    Error::new(&code::NOT_FOUND, detail)
                }
                Some((path, by)) => {
                    let detail = format!("{}: part of {}", path.display(), by.join(" and "));
                    Error::new(&code::VOLUME_IN_USE, detail)
                }
            };
        }
        // As with a copy of a disk that is plugged in beside it: only one of them is meant, so none
        // is taken.
        let names: Vec<String> = self
            .free
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let detail = format!("{device} is {}", names.join(" and "));
        Error::new(&code::VOLUME_TABLE, detail)
    }
}

/// What identifies the wanted device.
#[derive(Clone)]
enum Wanted {
    /// This UUID in its LUKS2 header.
    Uuid(String),
    /// This label in its LUKS2 header.
    Label(String),
    /// Nothing more: it was named by its path, and only has to be readable.
    Anything,
}

impl Wanted {
    /// Reads `UUID=...` or `LABEL=...`; any other text is a path, and any readable device fits.
    fn parse(device: &str) -> Self {
        match device.split_once('=') {
            Some(("UUID", uuid)) => Self::Uuid(uuid.to_ascii_lowercase()),
            Some(("LABEL", label)) => Self::Label(label.to_owned()),
            _ => Self::Anything,
        }
    }

    /// Reads the first 512 bytes of the device, and returns whether it is the wanted one. Waits for
    /// as long as the device takes. False when it cannot be read.
    fn matches(&self, path: &Path) -> bool {
        let mut first = Vec::new();
        let read = File::open(path).and_then(|file| file.take(512).read_to_end(&mut first));
        let says = match self {
            Self::Anything => true,
            Self::Uuid(uuid) => uuid_in(&first).as_ref() == Some(uuid),
            Self::Label(label) => label_in(&first).as_ref() == Some(label),
        };
        read.is_ok() && says
    }
}

/// A search in rounds: a device that has not answered yet is not read again.
struct Search<'a> {
    places: &'a KernelPaths,
    wanted: Wanted,
    /// The path, when the device was named by one.
    path: Option<PathBuf>,
    waiting: BTreeSet<PathBuf>,
    sender: Sender<(PathBuf, bool)>,
    answers: Receiver<(PathBuf, bool)>,
}

impl<'a> Search<'a> {
    /// Prepares a search; nothing is read yet.
    fn new(places: &'a KernelPaths, device: &str) -> Self {
        let wanted = Wanted::parse(device);
        let (sender, answers) = channel();
        Self {
            places,
            path: matches!(wanted, Wanted::Anything).then(|| PathBuf::from(device)),
            wanted,
            waiting: BTreeSet::new(),
            sender,
            answers,
        }
    }

    /// Returns the devices to read, and the names of those that are made of each: only the path, if
    /// one was named and exists; otherwise all block devices.
    fn candidates(&self) -> BTreeMap<PathBuf, Vec<String>> {
        match &self.path {
            Some(path) if path.exists() => BTreeMap::from([(path.clone(), Vec::new())]),
            Some(_) => BTreeMap::new(),
            None => {
                let devices = self.places.devices().into_iter();
                let with_holders = devices.map(|name| {
                    let holders = self.places.listed(&name, "holders");
                    (self.places.dev.join(name), holders)
                });
                with_holders.collect()
            }
        }
    }

    /// Has every device read that was not read yet, and returns those that match: of all answers,
    /// or of as many as come in time. Waits for at most a second, and less when `left` is less.
    fn round(&mut self, left: Duration) -> Found {
        let began = Instant::now();
        let candidates = self.candidates();
        for path in candidates.keys() {
            if self.waiting.insert(path.clone()) && !probe(path, self.wanted.clone(), &self.sender)
            {
                self.waiting.remove(path);
            }
        }
        let mut found = Found {
            free: Vec::new(),
            held: Vec::new(),
        };
        // Devices that have gone answer nobody.
        while candidates.keys().any(|path| self.waiting.contains(path)) {
            let patience = if found.free.is_empty() { PAUSE } else { GRACE };
            let wait = patience
                .min(left.max(PAUSE))
                .saturating_sub(began.elapsed());
            let Ok((path, is_it)) = self.answers.recv_timeout(wait) else {
                break;
            };
            self.waiting.remove(&path);
            match candidates.get(&path) {
                Some(holders) if is_it && holders.is_empty() => found.free.push(path),
                Some(holders) if is_it => found.held.push((path, holders.clone())),
                _ => {}
            }
        }
        found.free.sort();
        found.held.sort();
        found
    }
}

/// Reads the device in a thread, which sends the path, and whether it is the wanted device. False
/// when no thread can be started.
fn probe(path: &Path, wanted: Wanted, answers: &Sender<(PathBuf, bool)>) -> bool {
    let (path, answers) = (path.to_owned(), answers.clone());
    let thread = std::thread::Builder::new().name("probe".to_owned());
    let asked = thread.spawn(move || {
        let is_it = wanted.matches(&path);
        // After the end of the search nobody receives the answer.
        drop(answers.send((path, is_it)));
    });
    asked.is_ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const UUID: &str = "9d1a0c1e-0000-4000-8000-000000000000";

    /// Made-up directories like those of the kernel.
    pub(crate) struct MadeUp {
        pub(crate) room: tempfile::TempDir,
        pub(crate) places: KernelPaths,
    }

    #[expect(clippy::disallowed_methods, reason = "files of a test")]
    impl MadeUp {
        /// Makes empty directories.
        pub(crate) fn new() -> Self {
            let room = tempfile::tempdir().unwrap();
            let places = KernelPaths {
                block: room.path().join("block"),
                dev: room.path().join("dev"),
                swaps: room.path().join("swaps"),
            };
            std::fs::create_dir(&places.block).unwrap();
            std::fs::create_dir(&places.dev).unwrap();
            Self { room, places }
        }

        /// Makes a device with this label and UUID in a LUKS2 header, as a file and in the made-up
        /// sysfs.
        pub(crate) fn device(&self, name: &str, label: &str, uuid: &str) {
            let mut head = vec![0; 4096];
            head[..8].copy_from_slice(b"LUKS\xba\xbe\x00\x02");
            head[24..24 + label.len()].copy_from_slice(label.as_bytes());
            head[168..168 + uuid.len()].copy_from_slice(uuid.as_bytes());
            std::fs::create_dir_all(self.places.block.join(name)).unwrap();
            std::fs::write(self.places.dev.join(name), head).unwrap();
        }

        /// Writes a line into a file of a device in the made-up sysfs.
        pub(crate) fn show(&self, device: &str, what: &str, text: &str) {
            let path = self.places.block.join(device).join(what);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{text}\n")).unwrap();
        }

        /// Shows in the made-up sysfs that `above` is made of `below`.
        pub(crate) fn stack(&self, above: &str, below: &str) {
            self.show(below, &format!("holders/{above}"), "");
            self.show(above, &format!("slaves/{below}"), "");
        }
    }

    /// As [`find_in`], with made-up directories and a time in milliseconds.
    fn find(made: &MadeUp, device: &str, wait_ms: u64) -> Result<PathBuf, Error> {
        find_in(&made.places, device, Duration::from_millis(wait_ms))
    }

    #[test]
    fn devices_are_found_by_uuid_by_label_and_by_path() {
        let made = MadeUp::new();
        made.device("sda", "one", "00000000-0000-4000-8000-000000000001");
        made.device("sdb", "two", UUID);
        let sdb = made.places.dev.join("sdb");
        for device in [
            format!("UUID={UUID}"),
            format!("UUID={}", UUID.to_uppercase()),
            "LABEL=two".to_owned(),
            sdb.display().to_string(),
        ] {
            assert_eq!(find(&made, &device, 2000).unwrap(), sdb, "{device}");
        }
        for absent in ["LABEL=tw", "LABEL=two ", "/dev/absent", "UUID="] {
            let error = find(&made, absent, 1).unwrap_err();
            assert_eq!(error.code(), &code::NOT_FOUND, "{absent}");
        }
    }

    /// A suspended mapping, or a path to storage that is gone, never answers a read.
    #[test]
    fn a_device_that_never_answers_holds_nobody_up() {
        let made = MadeUp::new();
        made.device("sdb", "two", UUID);
        std::fs::create_dir(made.places.block.join("sda")).unwrap();
        let silent = made.places.dev.join("sda");
        // Opening a pipe waits for a writer for ever.
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &silent,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let began = Instant::now();
        let found = find(&made, "LABEL=two", 20_000).unwrap();
        assert_eq!(found, made.places.dev.join("sdb"));
        for absent in ["LABEL=three", &silent.display().to_string()] {
            let error = find(&made, absent, 500).unwrap_err();
            assert_eq!(error.code(), &code::NOT_FOUND, "{absent}");
        }
        assert!(!has_identity(
            &silent,
            "LABEL=two",
            Duration::from_millis(100)
        ));
        assert!(began.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn members_of_something_else_are_no_candidates() {
        let made = MadeUp::new();
        for name in ["sda1", "sdb1", "md0"] {
            made.device(name, "raid", UUID);
        }
        // Not assembled yet: three that are alike.
        let error = find(&made, "LABEL=raid", 1).unwrap_err();
        assert_eq!(error.code(), &code::VOLUME_TABLE);
        made.stack("md0", "sda1");
        made.stack("md0", "sdb1");
        let found = find(&made, "LABEL=raid", 2000).unwrap();
        assert_eq!(found, made.places.dev.join("md0"));
        // What is open already has a holder too.
        made.stack("dm-0", "md0");
        let error = find(&made, "LABEL=raid", 1).unwrap_err();
        assert_eq!(error.code(), &code::VOLUME_IN_USE);
        assert!(
            error.detail().contains("part of dm-0"),
            "{}",
            error.detail()
        );
    }

    #[test]
    fn devices_without_a_medium_and_suspended_ones_are_not_asked() {
        let made = MadeUp::new();
        for name in ["loop0", "dm-1", "sdb"] {
            made.device(name, "two", UUID);
        }
        made.show("loop0", "size", "0");
        made.show("dm-1", "dm/suspended", "1");
        made.show("sdb", "size", "49152");
        assert_eq!(made.places.devices(), ["sdb"]);
        let found = find(&made, "LABEL=two", 2000).unwrap();
        assert_eq!(found, made.places.dev.join("sdb"));
    }
}
