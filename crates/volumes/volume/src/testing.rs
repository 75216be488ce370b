//! For tests: volumes in files, and headers as somebody without a key can change them.

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use strongroom_crypto::{SecretBytes, SecretKey};
use strongroom_format::code::{self, Code};
use strongroom_keyring::Error;
use strongroom_luks2::{Provider, StrongroomToken, json_of, replace_json};

use crate::create::{DATA_OFFSET, NewVolume, Openers, create};
use crate::notices::Notices;
use crate::secret::slot_secret;
use crate::tpm::Tpm;

/// Keeps what it is told.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    /// Returns everything that was noted, warnings included, in order.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Notices for Told {
    /// Keeps the text.
    fn note(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }

    /// Keeps the code and the detail as one text.
    fn warn(&self, code: &'static Code, detail: &str) {
        self.note(&format!("SR-{:04}: {detail}", code.number));
    }
}

/// Opens the TPM of a machine that has none: always SR-2101.
pub(crate) fn no_tpm(_: Option<&str>, _: Option<Duration>) -> Result<Box<dyn Tpm>, Error> {
    Err(Error::new(&code::PROVIDER_UNREACHABLE, "no TPM"))
}

/// Material of the key of all volumes here, and their object id.
pub(crate) const KEY: [u8; 32] = [3; 32];
pub(crate) const OBJECT: [u8; 16] = [1; 16];

/// Returns the passphrase of slot 0 of the volumes that are made here.
pub(crate) fn secret() -> SecretBytes {
    slot_secret(&SecretKey::take(&mut { KEY }).unwrap(), &OBJECT).unwrap()
}

/// Describes a volume with one MiB of data in a new file at `path`.
pub(crate) fn new(path: &Path) -> NewVolume<'_> {
    NewVolume {
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

/// Makes the volume `new`. Its token names slot 0; `recovery`, if given, opens slot 1. Returns its
/// UUID.
pub(crate) fn made_as(
    new: &NewVolume<'_>,
    recovery: Option<&SecretBytes>,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<String, Error> {
    let token = StrongroomToken {
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

/// Makes a volume in a new file, as [`made_as`]. Returns its UUID.
pub(crate) fn made(path: &Path, recovery: Option<&SecretBytes>) -> String {
    made_as(&new(path), recovery, &mut |_, _| true).unwrap()
}

/// Replaces text in the JSON of both copies of a volume's header, as somebody without a key can:
/// the checksums are right. Panics when `from` is not in it.
pub(crate) fn forge(path: &Path, from: &str, to: &str) {
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).open(path).unwrap();
    for at in [0, 16 << 10] {
        let mut copy = vec![0; 16 << 10];
        file.read_exact_at(&mut copy, at).unwrap();
        let json = std::str::from_utf8(json_of(&copy)).unwrap().to_owned();
        assert!(json.contains(from), "{from} not in {json}");
        let sequence = u64::from(copy[23]);
        replace_json(&mut copy, json.replace(from, to).as_bytes(), sequence).unwrap();
        file.write_all_at(&copy, at).unwrap();
    }
}
