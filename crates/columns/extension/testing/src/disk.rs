//! A small file system (tmpfs) for a test of a full disk. Only root can mount it.
//!
//! Must not: leave it mounted.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A mounted file system. It is unmounted when this goes out of scope, even if files of it are
/// open.
pub struct SmallDisk {
    at: PathBuf,
}

/// Name of the file that fills the disk.
const FILLER: &str = "filler";

impl SmallDisk {
    /// Makes the directory `at`, and mounts a file system of `kib` KiB over it. `None` when this
    /// process is not root.
    ///
    /// # Panics
    ///
    /// When mounting fails.
    #[must_use]
    pub fn mount(at: &Path, kib: u32) -> Option<Self> {
        let root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
        if !root {
            return None;
        }
        std::fs::create_dir_all(at).expect("a new directory");
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

    /// Changes the size to `kib` KiB.
    ///
    /// # Panics
    ///
    /// When that fails.
    pub fn resize(&self, kib: u32) {
        run("mount", &["-o", &format!("remount,size={kib}k")], &self.at);
    }

    /// Fills the disk to the last byte.
    ///
    /// # Panics
    ///
    /// At any error other than a full disk.
    pub fn fill(&self) {
        let file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.at.join(FILLER));
        let mut file = file.expect("a new file");
        let mut piece = vec![0_u8; 1 << 16];
        while !piece.is_empty() {
            if let Err(error) = std::io::Write::write_all(&mut file, &piece) {
                assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
                piece.truncate(piece.len() / 2);
            }
        }
    }

    /// Frees the space that [`Self::fill`] took.
    ///
    /// # Panics
    ///
    /// When the disk was not filled.
    pub fn empty(&self) {
        std::fs::remove_file(self.at.join(FILLER)).expect("a new file");
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

/// Runs a program that must succeed, with `at` as its last argument.
fn run(program: &str, arguments: &[&str], at: &Path) {
    let done = Command::new(program).args(arguments).arg(at).status();
    assert!(
        done.is_ok_and(|status| status.success()),
        "{program} {arguments:?}"
    );
}
