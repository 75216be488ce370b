//! A small file system of a test's own: a tmpfs over a directory. It takes the right to mount.
//!
//! Must not: stay mounted.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::account::is_root;
use crate::process::checked;

/// A mounted file system; it goes when this goes out of scope.
pub struct SmallDisk(PathBuf);

/// File that takes what room there is.
const FILLER: &str = ".filler";

impl SmallDisk {
    /// Mounts one of so many KiB over `at`, which is made. `None` for who may not mount, which is
    /// said.
    #[expect(
        clippy::print_stdout,
        reason = "what a test leaves out is for whoever runs it"
    )]
    pub fn mount(at: &Path, kib: u32) -> Option<Self> {
        if !is_root() {
            println!("not tested: only root can mount a small file system");
            return None;
        }
        fs::create_dir_all(at).unwrap();
        let options = format!("size={kib}k,mode=0700");
        checked(
            Command::new("mount")
                .args(["-t", "tmpfs", "-o", &options, "strongroom-test"])
                .arg(at),
        );
        Some(Self(at.to_owned()))
    }

    /// Takes the room that is left, but for so many bytes.
    pub fn fill_but(&self, left: u64) {
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.0.join(FILLER))
            .unwrap();
        let page = [0x5a; 4096];
        loop {
            match file.write_all(&page) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => panic!("{error}"),
            }
        }
        let length = file.metadata().unwrap().len();
        file.set_len(length.saturating_sub(left)).unwrap();
    }

    /// Gives back what was taken.
    pub fn clear(&self) {
        fs::remove_file(self.0.join(FILLER)).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        checked(Command::new("umount").arg("--lazy").arg(&self.0));
    }
}
