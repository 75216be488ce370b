//! Images made by cryptsetup, and headers changed and summed anew.
//!
//! Must not: use code under test to make what is tested.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]
#![expect(clippy::big_endian_bytes, reason = "LUKS is big-endian")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use strongroom_crypto::{SecretBytes, sha256};

pub(crate) const PASS: &str = "correct horse battery staple";
/// Bytes of one copy of cryptsetup's usual header.
pub(crate) const COPY: usize = 16 << 10;
pub(crate) const BINARY: usize = 4096;

/// A directory that is removed with what is in it.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        #[expect(clippy::disallowed_methods, reason = "a file of a test need not last")]
        fs::write(&path, bytes).unwrap();
        path
    }

    /// A volume of `mib` MiB with `PASS` as its passphrase, cheap to open unless the options say
    /// otherwise.
    pub(crate) fn image(&self, name: &str, mib: u64, options: &[&str]) -> PathBuf {
        let path = self.path(name);
        let file = fs::File::create(&path).unwrap();
        file.set_len(mib << 20).unwrap();
        let mut words = vec!["luksFormat", "-q", "--type", "luks2"];
        if !options.contains(&"--pbkdf") {
            words.extend(["--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000"]);
        }
        words.extend(options);
        self.cryptsetup(&words, &path);
        path
    }

    /// Runs cryptsetup on `path` with `PASS` as key file.
    pub(crate) fn cryptsetup(&self, words: &[&str], path: &Path) {
        let key = self.file("pass", PASS.as_bytes());
        let done = Command::new("cryptsetup")
            .args(words)
            .arg("--key-file")
            .arg(&key)
            .arg(path)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "cryptsetup {words:?}: {told}");
    }
}

pub(crate) fn secret(text: &str) -> SecretBytes {
    SecretBytes::take(&mut text.as_bytes().to_vec()).unwrap()
}

/// Both copies of the header, and nothing else.
pub(crate) fn header_of(path: &Path) -> Vec<u8> {
    let mut bytes = fs::read(path).unwrap();
    bytes.truncate(2 * COPY);
    bytes
}

pub(crate) fn json_of(header: &[u8]) -> Value {
    let area = &header[BINARY..COPY];
    let end = area.iter().position(|&byte| byte == 0).unwrap();
    serde_json::from_slice(&area[..end]).unwrap()
}

/// Puts the JSON into both copies and sums them anew.
pub(crate) fn with_json(header: &[u8], json: &str) -> Vec<u8> {
    let mut header = header.to_vec();
    for start in [0, COPY] {
        let area = &mut header[start + BINARY..start + COPY];
        area.fill(0);
        area[..json.len()].copy_from_slice(json.as_bytes());
        summed(&mut header, start);
    }
    header
}

/// Computes the checksum of the copy at `start`.
pub(crate) fn summed(header: &mut [u8], start: usize) {
    header[start + 448..start + 512].fill(0);
    let sum = sha256(&[&header[start..start + COPY]]);
    header[start + 448..start + 480].copy_from_slice(&sum);
}

pub(crate) fn set_sequence(header: &mut [u8], start: usize, sequence: u64) {
    header[start + 16..start + 24].copy_from_slice(&sequence.to_be_bytes());
    summed(header, start);
}
