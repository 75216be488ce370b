//! A volume shown as a file: reads, writes, refusals; and killed under writes, again and again:
//! what was synced is there.
//!
//! Method: this very program started anew serves the volume, so that it can be killed. What is on
//! the device afterwards is read without FUSE, and checked by e2fsck where a loop device can be
//! had.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, ErrorKind, Lines};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use common::{PASS, Place, secret};
use strongroom_luks2::{
    LuksError, MountOptions, Mounted, Slots, Volume, attached_at, check_mountpoint, detach,
    open_locked, read, unlock,
};

/// Longest wait for what must happen.
const PATIENCE: Duration = Duration::from_secs(120);

fn opened(path: &Path, read_only: bool) -> Volume {
    let file = open_locked(path, read_only).unwrap();
    let found = read(&file).unwrap();
    let key = unlock(&file, &found.header, &secret(PASS), &Slots::default()).unwrap();
    Volume::open(file, &found, &key, read_only).unwrap()
}

/// Not a test: the process that serves a volume, for the tests that kill it.
#[test]
fn child() {
    let (Some(volume), Some(at)) = (std::env::var_os("LUKS_VOLUME"), std::env::var_os("LUKS_AT"))
    else {
        return;
    };
    let read_only = std::env::var_os("LUKS_READ_ONLY").is_some();
    let options = MountOptions {
        source: volume.to_str().unwrap().to_owned(),
        threads: 3,
        allow_other: false,
    };
    let mounted = Mounted::mount(
        opened(Path::new(&volume), read_only),
        Path::new(&at),
        &options,
    )
    .unwrap();
    println!("\nmounted");
    mounted.serve().unwrap();
}

/// A serving process and its mount; both end with it.
struct Serving {
    process: Child,
    /// Kept open: the child has more to say at its end.
    #[expect(dead_code, reason = "held, not used")]
    told: Lines<BufReader<ChildStdout>>,
    volume: PathBuf,
    at: PathBuf,
}

impl Serving {
    fn start(place: &Place, volume: &Path, read_only: bool) -> Self {
        let at = place.path("mnt");
        std::fs::create_dir_all(&at).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "fuse::child", "--nocapture"]);
        command.env("LUKS_VOLUME", volume).env("LUKS_AT", &at);
        if read_only {
            command.env("LUKS_READ_ONLY", "1");
        }
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut told = BufReader::new(process.stdout.take().unwrap()).lines();
        assert!(
            told.any(|line| line.unwrap() == "mounted"),
            "the child has ended"
        );
        let volume = volume.to_owned();
        Self {
            process,
            told,
            volume,
            at,
        }
    }

    fn file(&self) -> PathBuf {
        self.at.join("volume")
    }

    /// As a machine that loses its power does.
    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        assert_eq!(
            attached_at(&self.at).as_deref(),
            Some(self.volume.as_path())
        );
        assert_eq!(detach_when_unused(&self.at), self.volume);
    }

    fn end(mut self) {
        detach_when_unused(&self.at);
        assert!(self.process.wait().unwrap().success());
    }
}

/// Detaches what is attached at `at`. A child that another test's thread has forked keeps the files
/// open that this test has closed, until it runs its program: the file is in use for that long.
fn detach_when_unused(at: &Path) -> PathBuf {
    let begun = Instant::now();
    loop {
        match detach(at, PATIENCE) {
            Err(LuksError::InUse(_)) if begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(20));
            }
            ended => return ended.unwrap(),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if self.process.try_wait().is_ok_and(|ended| ended.is_none()) {
            drop(self.process.kill());
            drop(self.process.wait());
            drop(detach(&self.at, PATIENCE));
        }
    }
}

#[test]
fn a_volume_is_a_file_of_its_size_and_nothing_else_can_be_done() {
    let place = Place::new();
    let path = place.image("v", 20, &[]);
    let serving = Serving::start(&place, &path, false);
    let names: Vec<_> = std::fs::read_dir(&serving.at)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["volume"]);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(serving.file())
        .unwrap();
    assert_eq!(file.metadata().unwrap().len(), 4 << 20);
    file.write_all_at(b"here and there", 1_000_001).unwrap();
    file.sync_all().unwrap();
    file.set_modified(std::time::SystemTime::now()).unwrap();
    // Nothing grows, shrinks, appears or goes.
    assert!(file.set_len(1 << 20).is_err());
    assert!(file.write_all_at(b"abc", (4 << 20) - 1).is_err());
    assert!(File::create(serving.at.join("other")).is_err());
    assert!(std::fs::remove_file(serving.file()).is_err());
    let renamed = rustix::fs::rename(serving.file(), serving.at.join("x"));
    assert!(renamed.is_err());
    assert!(
        File::create(serving.file()).is_err(),
        "truncating is refused"
    );
    // No second one, of either kind, and not in the same place.
    assert!(matches!(
        open_locked(&path, false),
        Err(LuksError::InUse(_))
    ));
    assert!(matches!(open_locked(&path, true), Err(LuksError::InUse(_))));
    assert!(matches!(
        check_mountpoint(&serving.at),
        Err(LuksError::Mountpoint(_))
    ));
    // In use: it stays.
    assert!(matches!(
        detach(&serving.at, PATIENCE),
        Err(LuksError::InUse(_))
    ));
    drop(file);
    serving.end();
    let mut there = [0; 14];
    assert_eq!(opened(&path, true).read(&mut there, 1_000_001).unwrap(), 14);
    assert_eq!(&there, b"here and there");
    check_mountpoint(&place.path("mnt")).unwrap();
    assert!(matches!(
        detach(&place.path("mnt"), PATIENCE),
        Err(LuksError::Mountpoint(_))
    ));

    let before = std::fs::read(&path).unwrap();
    let serving = Serving::start(&place, &path, true);
    let refused = OpenOptions::new()
        .write(true)
        .open(serving.file())
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    assert!(std::fs::read(serving.file()).unwrap()[1_000_001..].starts_with(b"here and there"));
    serving.end();
    assert!(
        std::fs::read(&path).unwrap() == before,
        "reading changed the volume"
    );
}

/// Written through the page cache, many at once, and read back by the library.
#[test]
fn what_several_threads_write_is_what_is_there() {
    let place = Place::new();
    let path = place.image("v", 24, &["--sector-size", "4096"]);
    let serving = Serving::start(&place, &path, false);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(serving.file())
        .unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let file = &file;
            scope.spawn(move || {
                let start = u64::from(thread) << 21;
                for piece in 0..400_u64 {
                    let bytes = vec![thread ^ u8::try_from(piece & 0x3f).unwrap(); 5243];
                    file.write_all_at(&bytes[..5000], start + piece * 5243)
                        .unwrap();
                    if piece % 50 == 0 {
                        file.sync_data().unwrap();
                    }
                }
            });
        }
    });
    drop(file);
    serving.end();
    let volume = opened(&path, true);
    for thread in 0..4_u8 {
        for piece in 0..400_u64 {
            let mut bytes = vec![0; 5000];
            volume
                .read(&mut bytes, (u64::from(thread) << 21) + piece * 5243)
                .unwrap();
            let expected = thread ^ u8::try_from(piece & 0x3f).unwrap();
            assert!(
                bytes.iter().all(|byte| *byte == expected),
                "thread {thread}, piece {piece}"
            );
        }
    }
}

/// A log of numbered records, each synced, by a process that is killed at another moment each time.
#[test]
fn what_was_synced_survives_the_death_of_the_process() {
    let place = Place::new();
    for (round, sector) in ["512", "4096", "512", "4096", "512", "4096"]
        .iter()
        .enumerate()
    {
        let path = place.image(&format!("v{round}"), 20, &["--sector-size", sector]);
        let serving = Serving::start(&place, &path, false);
        let file = OpenOptions::new().write(true).open(serving.file()).unwrap();
        let process = serving.process.id();
        let (send, synced) = std::sync::mpsc::channel();
        let writer = std::thread::spawn(move || {
            // Records of an odd length: most of them share sectors with their neighbours.
            for number in 0_u64.. {
                let record = record(number);
                let done = file.write_all_at(&record, number * 1001 % (3 << 20));
                if done.and_then(|()| file.sync_data()).is_err() {
                    return;
                }
                if send.send(number).is_err() {
                    return;
                }
            }
        });
        let enough = 20 + round * 17;
        for _ in 0..enough {
            synced.recv_timeout(PATIENCE).unwrap();
        }
        let killed = rustix::process::Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
        rustix::process::kill_process(killed, rustix::process::Signal::KILL).unwrap();
        let rest = synced.iter().count();
        writer.join().unwrap();
        serving.kill();
        let volume = opened(&path, false);
        for number in 0..u64::try_from(enough + rest).unwrap() {
            let mut there = vec![0; 1001];
            volume.read(&mut there, number * 1001 % (3 << 20)).unwrap();
            assert!(
                there == record(number),
                "round {round}: record {number} of {enough} and {rest} is lost"
            );
        }
    }
}

fn record(number: u64) -> Vec<u8> {
    let mut bytes: Vec<u8> = number.to_le_bytes().repeat(126);
    bytes.truncate(1001);
    bytes
}

/// ext4 on a loop device on the file: killed while files are written and synced, then checked and
/// mounted again.
#[test]
fn a_filesystem_on_a_loop_device_survives_the_death_of_the_process() {
    let place = Place::new();
    let path = place.image("v", 48, &[]);
    let serving = Serving::start(&place, &path, false);
    run("mkfs.ext4", &["-q", "-F"], &serving.file());
    let Some(device) = loop_device(&serving.file()) else {
        eprintln!("not tested: no loop device can be had here");
        return;
    };
    let mounted = place.path("fs");
    std::fs::create_dir(&mounted).unwrap();
    let mount = |device: &str| {
        let done = Command::new("mount")
            .args(["-t", "ext4", device])
            .arg(&mounted)
            .status()
            .unwrap();
        assert!(done.success());
    };
    mount(&device);
    let mut synced = 0;
    for number in 0..60 {
        let file = File::create(mounted.join(number.to_string())).unwrap();
        file.write_all_at(&record(number), 0).unwrap();
        file.sync_all().unwrap();
        synced = number + 1;
    }
    File::open(&mounted).unwrap().sync_all().unwrap();
    for number in 1000..1100 {
        let file = File::create(mounted.join(number.to_string())).unwrap();
        file.write_all_at(&record(number), 0).unwrap();
    }
    let process = serving.process.id();
    let killed = rustix::process::Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
    rustix::process::kill_process(killed, rustix::process::Signal::KILL).unwrap();
    let lazily = Command::new("umount").arg("-l").arg(&mounted).output();
    assert!(lazily.is_ok());
    free_loop_device(&device);
    serving.kill();

    let serving = Serving::start(&place, &path, false);
    let checked = Command::new("e2fsck")
        .args(["-p", "-f"])
        .arg(serving.file())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(matches!(checked.status.code(), Some(0 | 1)), "{told}");
    let device = loop_device(&serving.file()).unwrap();
    mount(&device);
    for number in 0..synced {
        let there = std::fs::read(mounted.join(number.to_string())).unwrap();
        assert!(there == record(number), "file {number}");
    }
    unmount(&mounted);
    free_loop_device(&device);
    serving.end();
}

/// A volume behind a loop device is the kernel's.
#[test]
fn a_volume_behind_a_loop_device_is_refused() {
    let place = Place::new();
    let path = place.image("v", 17, &[]);
    let Some(device) = loop_device(&path) else {
        eprintln!("not tested: no loop device can be had here");
        return;
    };
    let outcome = open_locked(&path, false);
    run("losetup", &["-d"], Path::new(&device));
    assert!(matches!(outcome, Err(LuksError::InUse(text)) if text.contains(&device)));
}

fn loop_device(file: &Path) -> Option<String> {
    let done = Command::new("losetup")
        .args(["-f", "--show"])
        .arg(file)
        .output()
        .ok()?;
    let name = String::from_utf8(done.stdout).ok()?.trim().to_owned();
    (done.status.success() && !name.is_empty()).then_some(name)
}

/// Unmounts a file system. It can be busy although this test has closed its files: another test
/// that starts a program holds copies of all descriptors until the program runs.
fn unmount(mounted: &Path) {
    let begun = Instant::now();
    while !Command::new("umount")
        .arg(mounted)
        .status()
        .unwrap()
        .success()
    {
        assert!(begun.elapsed() < PATIENCE, "{} stays", mounted.display());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Frees the device and waits until it is free: until then it holds the file.
fn free_loop_device(device: &str) {
    run("losetup", &["-d"], Path::new(device));
    let begun = Instant::now();
    while loop_is_there(device) {
        assert!(begun.elapsed() < PATIENCE, "{device} stays");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn loop_is_there(device: &str) -> bool {
    let name = device.rsplit('/').next().unwrap();
    Path::new("/sys/block")
        .join(name)
        .join("loop/backing_file")
        .exists()
}

fn run(program: &str, words: &[&str], path: &Path) {
    let done = Command::new(program)
        .args(words)
        .arg(path)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program}: {told}");
}
