//! Entry points for fuzzing: the code that reads logs and rollback journals, over files that a
//! fuzzer chooses.
//!
//! Nothing that a fuzzer makes up authenticates, so it would reach only the first check. Here the
//! fuzzer chooses what is sealed: marks, links, lengths, chunks and frames in any combination,
//! under the right key; and then which bytes of the result change. For any choice there must be no
//! panic, and a changed byte must never be returned.
//!
//! Must not: be part of a product. Compiled for tests and fuzzers only.

mod journal;
mod memory;
mod wal;

use std::sync::Arc;

use strongroom_crypto::SecretKey;
use strongroom_format::header::{Cipher, ObjectKind};
use strongroom_format::sqlite::PAGE_RESERVE;
use strongroom_keyring::{NewObject, Object, Opener};

use crate::sealed::SealedDatabase;

pub use journal::journal;
pub use wal::wal;

/// Page size of the fuzzed databases, in bytes.
const PAGE: usize = 512;
/// Where they would be: nothing is there, so no redo copy is found.
const PATH: &str = "/nonexistent/fuzz.db";

/// What the fuzzer chose, byte by byte; zeros when it has no more to say.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    /// Takes the next byte of the fuzzer's input; 0 when there is no more.
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// Takes two bytes of the fuzzer's input as a little-endian number. A missing byte counts as 0.
    fn word(&mut self) -> u64 {
        u64::from(self.byte()) | u64::from(self.byte()) << 8
    }

    /// Takes a number of the fuzzer's input: mostly below 253, sometimes of any size. A missing
    /// byte counts as 0.
    fn number(&mut self) -> u64 {
        match self.byte() {
            255 => u64::from_le_bytes([0; 8].map(|_: u8| self.byte())),
            254 => self.word() << 9,
            253 => self.word(),
            small => u64::from(small),
        }
    }

    /// Takes a number below `limit` of the fuzzer's input; 0 if `limit` is 0.
    fn below(&mut self, limit: usize) -> usize {
        let word = usize::try_from(self.word()).unwrap_or(0);
        word % limit.max(1)
    }
}

/// Returns a database's header and its opened object; the same for every run of a thread, for the
/// key costs more than the rest.
fn database() -> (Vec<u8>, Arc<SealedDatabase>) {
    thread_local! {
        static MADE: (Vec<u8>, Arc<SealedDatabase>) = made().expect("a database");
    }
    MADE.with(|(header, sealed)| (header.clone(), Arc::clone(sealed)))
}

/// Makes the header and opened object of a database with a fixed raw key. `None` if the
/// cryptography fails.
fn made() -> Option<(Vec<u8>, Arc<SealedDatabase>)> {
    let new = NewObject {
        kind: ObjectKind::Sqlite,
        cipher: Cipher::Aes256Gcm,
        unit_size: u32::try_from(PAGE).ok()?,
        unit_reserve: PAGE_RESERVE,
    };
    let opener = Opener::raw(SecretKey::take(&mut [7; 32]).ok()?);
    let object = Object::create(&new, &opener.recipient().ok()?).ok()?;
    let header = object.initial_bytes();
    // A path for each thread: what is shared by path would be another thread's.
    let path = format!("{PATH}.{:?}", std::thread::current().id());
    Some((header, SealedDatabase::share(&path, object).ok()?))
}

/// Changes up to three bytes of `file`, and sometimes cuts it short, as the fuzzer chooses. Returns
/// the offsets of the changed and lost bytes.
fn damage(choices: &mut Choices<'_>, file: &mut Vec<u8>) -> Vec<usize> {
    let mut changed = Vec::new();
    for _ in 0..choices.byte() % 4 {
        let at = choices.below(file.len());
        let by = choices.byte();
        if let Some(byte) = file.get_mut(at).filter(|_| by != 0) {
            *byte ^= by;
            changed.push(at);
        }
    }
    if choices.byte() & 7 == 1 {
        let len = choices.below(file.len() + 1);
        changed.extend(len..file.len());
        file.truncate(len);
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The corpus of the fuzz targets and what is near to it, and inputs of nothing but chance.
    fn all(name: &str, target: fn(&[u8])) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus/");
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut inputs: Vec<Vec<u8>> = Vec::new();
        for entry in std::fs::read_dir(format!("{folder}{name}")).unwrap() {
            inputs.push(std::fs::read(entry.unwrap().path()).unwrap());
        }
        assert!(!inputs.is_empty());
        let seeds = inputs.len();
        for _ in 0..4000 {
            let len = random() % 160;
            // Small numbers are where the cases are.
            let mask = [0xff, 0x0f, 0x03][usize::try_from(random() % 3).unwrap()];
            inputs.push((0..len).map(|_| random().to_le_bytes()[3] & mask).collect());
        }
        for round in 0..4000_usize {
            let mut input = inputs[round % seeds].clone();
            for _ in 0..=random() % 3 {
                let at = usize::try_from(random()).unwrap() % input.len().max(1);
                if let Some(byte) = input.get_mut(at) {
                    *byte = random().to_le_bytes()[2];
                }
            }
            inputs.push(input);
        }
        inputs.iter().for_each(|input| target(input));
    }

    #[test]
    fn journals_of_any_form() {
        all("journal", journal);
    }

    #[test]
    fn logs_of_any_form() {
        all("wal", wal);
    }
}
