//! Known-answer tests: every file under `testing/vectors/{cavp,rfc,wycheproof}`.
//!
//! Method: the files are discovered, not listed. Each must be in [`EXPECTED`] with the exact number
//! of cases that run and the number that ask for something this crate does not offer, so that a
//! file nobody runs, a truncated file, and a parser that skips cases all fail. Cases that must be
//! refused are run and must be refused.
//!
//! The tests sit inside the crate because the RFCs' examples use key and output lengths the public
//! functions do not take; they run the code the public functions are made of.

mod json;
mod records;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What became of the cases of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    /// Cases with a known answer, all of which agreed.
    accepted: usize,
    /// Cases that had to be refused, all of which were.
    refused: usize,
    /// Cases for sizes or inputs this crate does not offer.
    not_offered: usize,
}

impl Tally {
    /// Returns the number of all cases.
    fn total(self) -> usize {
        self.accepted + self.refused + self.not_offered
    }
}

/// File, cases in it, and of these: accepted, refused, not offered.
const EXPECTED: [(&str, usize, [usize; 3]); 18] = [
    ("cavp/SHA256LongMsg.rsp", 64, [64, 0, 0]),
    ("cavp/SHA256ShortMsg.rsp", 65, [65, 0, 0]),
    // Not offered: data units of 130 and 200 bits, which need ciphertext stealing.
    ("cavp/XTSGenAES128.rsp", 1000, [600, 0, 400]),
    ("cavp/XTSGenAES256.rsp", 1000, [600, 0, 400]),
    ("cavp/gcmDecrypt256.rsp", 375, [184, 191, 0]),
    ("cavp/gcmEncryptExtIV256.rsp", 375, [375, 0, 0]),
    ("rfc/argon2id-reference.txt", 16, [16, 0, 0]),
    ("rfc/rfc-3686-aes-256-ctr.txt", 3, [3, 0, 0]),
    ("rfc/rfc-4231-sha256.txt", 6, [6, 0, 0]),
    ("rfc/rfc-5869-HKDF-SHA256.txt", 3, [3, 0, 0]),
    // Not offered: the one with a secret and associated data.
    ("rfc/rfc-9106-argon2id.txt", 6, [5, 0, 1]),
    ("rfc/sp800-38a-ctr-aes256.txt", 2, [2, 0, 0]),
    // Not offered: keys of 128 and 192 bits, nonces other than 96 and 128 bits.
    ("wycheproof/aes_gcm_test.json", 316, [58, 27, 231]),
    ("wycheproof/hkdf_sha256_test.json", 86, [83, 3, 0]),
    // Not offered: tags truncated to 128 bits.
    ("wycheproof/hmac_sha256_test.json", 174, [33, 54, 87]),
    (
        "wycheproof/rsa_oaep_2048_sha256_mgf1sha256_test.json",
        37,
        [18, 19, 0],
    ),
    (
        "wycheproof/rsa_oaep_3072_sha256_mgf1sha256_test.json",
        37,
        [18, 19, 0],
    ),
    (
        "wycheproof/rsa_oaep_4096_sha256_mgf1sha256_test.json",
        37,
        [18, 19, 0],
    ),
];

/// Tests every file of the three folders, and that each has as many cases of each sort as expected.
#[test]
fn every_vector_file_is_known_and_every_case_runs() {
    let expected: BTreeMap<&str, (usize, [usize; 3])> = EXPECTED
        .iter()
        .map(|(name, cases, split)| (*name, (*cases, *split)))
        .collect();
    let mut seen = 0;
    for (name, path) in discovered() {
        let (cases, [accepted, refused, not_offered]) = *expected
            .get(name.as_str())
            .unwrap_or_else(|| panic!("{name}: no test runs this file; add it to EXPECTED"));
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.len() <= 1 << 20,
            "{name}: larger than 1 MiB, filter it"
        );
        let tally = run(&name, &text);
        assert_eq!(
            tally,
            Tally {
                accepted,
                refused,
                not_offered
            },
            "{name}"
        );
        assert_eq!(tally.total(), cases, "{name}");
        assert!(tally.accepted + tally.refused > 0, "{name}: nothing ran");
        seen += 1;
    }
    assert_eq!(seen, EXPECTED.len(), "a file in EXPECTED is missing");
}

/// Runs the cases of a file, by its name. Panics for a name that no runner has, and when a case
/// fails.
fn run(name: &str, text: &str) -> Tally {
    let file = Path::new(name).file_name().unwrap().to_str().unwrap();
    match file {
        "aes_gcm_test.json" => json::aes_gcm(text),
        "hkdf_sha256_test.json" => json::hkdf_sha256(text),
        "hmac_sha256_test.json" => json::hmac_sha256(text),
        "gcmDecrypt256.rsp" => records::gcm_decrypt(text),
        "gcmEncryptExtIV256.rsp" => records::gcm_encrypt(text),
        _ if file.starts_with("rsa_oaep") => json::rsa_oaep(text),
        _ if file.starts_with("XTSGen") => records::xts(text),
        _ if file.starts_with("SHA256") => records::sha256(text),
        _ if file.contains("ctr") => records::ctr(text),
        _ if file.contains("HKDF") => records::hkdf(text),
        _ if file.contains("rfc-4231") => records::hmac(text),
        _ if file.contains("argon2id") => records::argon2id(text),
        _ => panic!("{name}: no runner"),
    }
}

/// Lists all files in the three folders that this crate answers for, in order, as (`folder/name`,
/// path).
fn discovered() -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testing/vectors");
    let mut found = Vec::new();
    for folder in ["cavp", "rfc", "wycheproof"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            assert!(
                path.is_file(),
                "{}: folders are not searched",
                path.display()
            );
            found.push((
                format!("{folder}/{}", path.file_name().unwrap().display()),
                path,
            ));
        }
    }
    found.sort();
    found
}

/// Reads the private key of the OAEP vectors of this size: a key for tests that costs no making.
pub(crate) fn oaep_key(bits: u32) -> crate::PrivateKey {
    let name =
        format!("../../../testing/vectors/wycheproof/rsa_oaep_{bits}_sha256_mgf1sha256_test.json");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let [key] = json::oaep_keys(&fs::read_to_string(path).unwrap())
        .try_into()
        .ok()
        .unwrap();
    key
}

/// Reads hexadecimal digits as bytes; panics on anything else.
fn from_hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "odd number of hex digits");
    let digits: Vec<u8> = text
        .chars()
        .map(|c| u8::try_from(c.to_digit(16).unwrap()).unwrap())
        .collect();
    digits
        .chunks_exact(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

/// Returns the bytes as an array; panics for another length.
fn fixed<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().unwrap()
}

/// One AES-GCM case in every direction it allows.
struct GcmCase {
    key: Vec<u8>,
    nonce: [u8; 12],
    aad: Vec<u8>,
    /// `None`: the case must be refused.
    plain: Option<Vec<u8>>,
    sealed: Vec<u8>,
    tag: [u8; 16],
}

impl GcmCase {
    /// Opens the case and, unless it must be refused, seals it again, and counts it. Panics when a
    /// result is not the expected one.
    fn check(&self, tally: &mut Tally, id: &str) {
        let secret = crate::SecretKey::take(&mut fixed(&self.key)).unwrap();
        let key = crate::GcmKey::new(&secret).unwrap();
        let mut bytes = self.sealed.clone();
        let opened = key.open(&self.nonce, &self.aad, &mut bytes, &self.tag);
        let Some(plain) = &self.plain else {
            assert_eq!(opened, Err(crate::OpenError), "case {id} must be refused");
            assert!(
                bytes.iter().all(|byte| *byte == 0),
                "case {id}: plaintext left behind"
            );
            tally.refused += 1;
            return;
        };
        assert_eq!(opened, Ok(()), "case {id}");
        assert_eq!(&bytes, plain, "case {id}");
        let tag = key.seal(&self.nonce, &self.aad, &mut bytes).unwrap();
        assert_eq!((bytes, tag), (self.sealed.clone(), self.tag), "case {id}");
        tally.accepted += 1;
    }
}
