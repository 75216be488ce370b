//! A `newc` archive (cpio, kernel documentation `driver-api/early-userspace/buffer-format`): what
//! the kernel unpacks into its first file system.
//!
//! Must not: keep anything of the host's owners, times or permissions.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// An archive that is being put together. Parents of what is added are added too.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    directories: BTreeSet<String>,
}

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

impl Archive {
    /// A directory, unless it is there.
    pub fn directory(&mut self, path: &str) {
        let path = path.trim_matches('/');
        if path.is_empty() || self.directories.contains(path) {
            return;
        }
        self.parent(path);
        self.directories.insert(path.to_owned());
        self.entry(path, DIRECTORY | 0o755, &[]);
    }

    /// A file.
    pub fn file(&mut self, path: &str, mode: u32, contents: &[u8]) {
        let path = path.trim_matches('/');
        self.parent(path);
        self.entry(path, FILE | mode, contents);
    }

    /// A symbolic link.
    pub fn link(&mut self, path: &str, target: &str) {
        let path = path.trim_matches('/');
        self.parent(path);
        self.entry(path, LINK | 0o777, target.as_bytes());
    }

    /// A copy of a program or library of the host.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn copy(&mut self, from: &Path, to: &str) {
        let contents = fs::read(from).unwrap_or_else(|why| unreadable(from, &why));
        self.file(to, 0o755, &contents);
    }

    /// The whole archive, with its end.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn parent(&mut self, path: &str) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
    }

    fn entry(&mut self, name: &str, mode: u32, contents: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(contents.len()).expect("files of less than 4 GiB");
        let name_size = u32::try_from(name.len() + 1).expect("short names");
        // Inode, mode, owner, group, links, time, size, device (2), special device (2), length of
        // the name, checksum.
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            size,
            0,
            0,
            0,
            0,
            name_size,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[expect(clippy::panic, reason = "a test without its programs has failed")]
fn unreadable(path: &Path, why: &std::io::Error) -> Vec<u8> {
    panic!("{}: {why}", path.display())
}
