//! A small file system of a test's own, for what happens when it is full: a tmpfs over a directory. It takes the right to mount.
//!
//! Must not: stay mounted.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A mounted file system; it goes when this goes out of scope, whoever still has files of it open.
pub struct SmallDisk {
    at: PathBuf,
}

/// File that takes what room there is.
const FILLER: &str = "filler";

impl SmallDisk {
    /// Mounts one of so many KiB over `at`, which is made. `None` for who may not mount: only root may.
    ///
    /// # Panics
    ///
    /// When root may not either.
    #[must_use]
    pub fn mount(at: &Path, kib: u32) -> Option<Self> {
        let root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
        if !root {
            return None;
        }
        std::fs::create_dir_all(at).expect("a directory of our own");
        run(
            "mount",
            &[
                "-t",
                "tmpfs",
                "-o",
                &format!("size={kib}k,mode=0700"),
                "strongroom-test",
            ],
            at,
        );
        Some(Self { at: at.to_owned() })
    }

    /// Gives it another size.
    ///
    /// # Panics
    ///
    /// When that cannot be.
    pub fn resize(&self, kib: u32) {
        run("mount", &["-o", &format!("remount,size={kib}k")], &self.at);
    }

    /// Takes all the room that is left, to the last byte.
    ///
    /// # Panics
    ///
    /// When the disk has another error than being full.
    pub fn fill(&self) {
        let file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.at.join(FILLER));
        let mut file = file.expect("a file of our own");
        let mut piece = vec![0_u8; 1 << 16];
        while !piece.is_empty() {
            if let Err(error) = std::io::Write::write_all(&mut file, &piece) {
                assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
                piece.truncate(piece.len() / 2);
            }
        }
    }

    /// Gives the room back.
    ///
    /// # Panics
    ///
    /// When nothing was taken.
    pub fn empty(&self) {
        std::fs::remove_file(self.at.join(FILLER)).expect("a file of our own");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let done = Command::new("umount")
            .arg("--lazy")
            .arg(&self.at)
            .stderr(Stdio::null())
            .status();
        drop(done);
    }
}

fn run(program: &str, arguments: &[&str], at: &Path) {
    let done = Command::new(program).args(arguments).arg(at).status();
    assert!(
        done.is_ok_and(|status| status.success()),
        "{program} {arguments:?}"
    );
}
