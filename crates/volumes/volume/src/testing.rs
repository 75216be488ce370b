//! For tests: volumes in files, and headers as somebody without a key can change them.

use std::os::unix::fs::FileExt as _;
use std::path::Path;

use strongroom_crypto::{SecretBytes, SecretKey};
use strongroom_keyring::Error;

use crate::create::{DATA_OFFSET, New, Openers, create};
use crate::repair::{BINARY_LEN, write_copy};
use crate::secret::slot_secret;
use crate::token::{Provider, Token};

/// Material of the key of all volumes here, and their object id.
pub(crate) const KEY: [u8; 32] = [3; 32];
pub(crate) const OBJECT: [u8; 16] = [1; 16];

/// The passphrase of slot 0.
pub(crate) fn secret() -> SecretBytes {
    slot_secret(&SecretKey::take(&mut { KEY }).unwrap(), &OBJECT).unwrap()
}

/// A volume with one MiB of data.
pub(crate) fn new(path: &Path) -> New<'_> {
    New {
        path,
        size: Some(DATA_OFFSET + (1 << 20)),
        cipher: "aes-xts-plain64",
        key_len: 64,
        integrity: false,
        label: None,
        sector_size: None,
        overwrite: false,
        wipe: false,
    }
}

/// Makes it: its token names slot 0, a recovery key opens slot 1. Returns its UUID.
pub(crate) fn made_as(
    new: &New<'_>,
    recovery: Option<&SecretBytes>,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<String, Error> {
    let token = Token {
        slots: vec![],
        object_id: OBJECT,
        key_id: "k".to_owned(),
        key_version: 1,
        provider: Provider::Keyring,
        servers: vec![],
    };
    let openers = Openers {
        token: &token,
        secret: &secret(),
        recovery,
    };
    create(new, &openers, progress)
}

/// A volume in a new file. Returns its UUID.
pub(crate) fn made(path: &Path, recovery: Option<&SecretBytes>) -> String {
    made_as(&new(path), recovery, &mut |_, _| true).unwrap()
}

/// Changes both copies of the header: the checksums are right.
pub(crate) fn forge(path: &Path, from: &str, to: &str) {
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).open(path).unwrap();
    for at in [0, 16 << 10] {
        let mut copy = vec![0; 16 << 10];
        file.read_exact_at(&mut copy, at).unwrap();
        let area = &copy[BINARY_LEN..];
        let end = area.iter().position(|byte| *byte == 0).unwrap();
        let json = std::str::from_utf8(&area[..end]).unwrap().to_owned();
        assert!(json.contains(from), "{from} not in {json}");
        let sequence = u64::from(copy[23]);
        write_copy(&mut copy, json.replace(from, to).as_bytes(), sequence).unwrap();
        file.write_all_at(&copy, at).unwrap();
    }
}
