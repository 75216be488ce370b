//! PostgreSQL's own manifest of a base backup, compared with what was received.
//!
//! The format is described in the PostgreSQL documentation, "Backup Manifest Format".
//!
//! Must not: accept a file that the manifest does not name, except for the log, which it never
//! names.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use strongroom_crypto::sha256;
use strongroom_format::{code, hex};

use crate::{Error, Result};

/// Size and SHA-256 of every file that was received, by its path in the data directory.
pub(super) type Received = BTreeMap<Vec<u8>, (u64, [u8; 32])>;

#[derive(Deserialize)]
struct Manifest {
    #[serde(rename = "Files")]
    files: Vec<File>,
    #[serde(rename = "Manifest-Checksum")]
    checksum: String,
}

#[derive(Deserialize)]
struct File {
    #[serde(rename = "Path")]
    path: Option<String>,
    #[serde(rename = "Encoded-Path")]
    encoded_path: Option<String>,
    #[serde(rename = "Size")]
    size: u64,
    #[serde(rename = "Checksum-Algorithm")]
    algorithm: Option<String>,
    #[serde(rename = "Checksum")]
    checksum: Option<String>,
}

/// Checks that `received` has exactly the files of `manifest`, with the same content. SR-7116
/// otherwise. Files of the log are not compared: the manifest never names them.
pub(super) fn check(manifest: &[u8], received: &Received) -> Result<()> {
    let wrong = |what: String| Error::new(&code::BACKUP_MANIFEST, what);
    let parsed: Manifest = serde_json::from_slice(manifest)
        .map_err(|error| wrong(format!("the manifest cannot be read: {error}")))?;
    // Its own checksum covers all lines but the last.
    let body = manifest.trim_ascii_end();
    let last_line = body.iter().rposition(|byte| *byte == b'\n');
    let covered = last_line
        .and_then(|at| manifest.get(..=at))
        .unwrap_or_default();
    if parsed.checksum != hex::hex(&sha256(&[covered])) {
        return Err(wrong(String::from("the manifest's own checksum")));
    }
    let mut named = BTreeSet::new();
    for file in &parsed.files {
        let path = match (&file.path, &file.encoded_path) {
            (Some(path), None) => path.clone().into_bytes(),
            (None, Some(encoded)) => hex::from_hex(encoded)
                .ok_or_else(|| wrong(format!("the manifest's path {encoded}")))?,
            _ => return Err(wrong(String::from("a file without a path"))),
        };
        let shown = String::from_utf8_lossy(&path).into_owned();
        let (size, digest) = received
            .get(&path)
            .ok_or_else(|| wrong(format!("{shown} is missing")))?;
        let stated = file.checksum.as_deref().map(str::to_ascii_lowercase);
        let is_sha256 = file.algorithm.as_deref() == Some("SHA256");
        if *size != file.size || !is_sha256 || stated != Some(hex::hex(digest)) {
            return Err(wrong(format!("{shown} is another one")));
        }
        named.insert(path);
    }
    let is_log = |path: &Vec<u8>| path.starts_with(b"pg_wal/");
    let other = received
        .keys()
        .find(|path| !named.contains(*path) && !is_log(path));
    match other {
        None => Ok(()),
        Some(path) => {
            let shown = String::from_utf8_lossy(path);
            Err(wrong(format!("the manifest does not name {shown}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received() -> Received {
        BTreeMap::from([
            (b"PG_VERSION".to_vec(), (3, sha256(&[b"15\n"]))),
            (b"odd\xff".to_vec(), (1, sha256(&[b"x"]))),
            (b"pg_wal/000000010000000000000002".to_vec(), (5, [7; 32])),
        ])
    }

    fn manifest(files: &str) -> Vec<u8> {
        let body = format!(
            "{{ \"PostgreSQL-Backup-Manifest-Version\": 1,\n\"Files\": [\n{files}],\n\"WAL-Ranges\": [\n],\n"
        );
        let checksum = hex::hex(&sha256(&[body.as_bytes()]));
        format!("{body}\"Manifest-Checksum\": \"{checksum}\"}}\n").into_bytes()
    }

    fn entry(path: &str, size: u64, content: &[u8]) -> String {
        let checksum = hex::hex(&sha256(&[content]));
        format!(
            "{{ {path}, \"Size\": {size}, \"Last-Modified\": \"2026-01-01 00:00:00 GMT\", \"Checksum-Algorithm\": \"SHA256\", \"Checksum\": \"{checksum}\" }}"
        )
    }

    #[test]
    fn only_what_the_manifest_says_passes() {
        let version = entry("\"Path\": \"PG_VERSION\"", 3, b"15\n");
        let odd = entry("\"Encoded-Path\": \"6f6464ff\"", 1, b"x");
        let both = format!("{version},\n{odd}\n");
        check(&manifest(&both), &received()).unwrap();
        let refused = |files: &str| {
            let error = check(&manifest(files), &received()).unwrap_err();
            assert_eq!(error.code(), &code::BACKUP_MANIFEST);
        };
        refused(&version);
        refused(&format!(
            "{version},\n{odd},\n{}",
            entry("\"Path\": \"base/1\"", 1, b"x")
        ));
        refused(&format!(
            "{version},\n{}",
            entry("\"Encoded-Path\": \"6f6464ff\"", 1, b"y")
        ));
        refused(&format!(
            "{version},\n{}",
            entry("\"Encoded-Path\": \"6f6464ff\"", 2, b"x")
        ));
        refused(&both.replace("SHA256", "CRC32C"));
        let whole = manifest(&both);
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x04;
            assert!(
                check(&changed, &received()).is_err()
                    || changed.trim_ascii_end() == whole.trim_ascii_end(),
                "byte {at}"
            );
        }
    }
}
