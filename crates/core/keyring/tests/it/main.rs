//! Tests of the public API, as guards and the command use it. One binary, so that it links once.

mod certificates;
mod durable;
mod instance;
mod keyring;
mod object;
mod redo;
mod source;
mod transfer;

use std::path::Path;

use strongroom_crypto::{SecretBytes, SecretKey, sha256};
use strongroom_format::header::{Cipher, ObjectKind};
use strongroom_keyring::{Argon2Params, Error, NewObject, Object, Opener, Recipient};

/// A database with 4 KiB pages.
const SQLITE: NewObject = NewObject {
    kind: ObjectKind::Sqlite,
    cipher: Cipher::Aes256Gcm,
    unit_size: 4096,
    unit_reserve: 32,
};

fn raw(byte: u8) -> Opener {
    Opener::raw(SecretKey::take(&mut [byte; 32]).expect("locked memory"))
}

fn passphrase(text: &str) -> Opener {
    let secret = SecretBytes::take(&mut text.as_bytes().to_vec()).expect("locked memory");
    Opener::passphrase(secret)
}

/// The recipient of an opener. Slots for a passphrase get the lowest cost that is accepted, so that
/// tests are quick.
fn recipient(opener: &Opener) -> Recipient {
    let cost = Argon2Params {
        m_kib: 64,
        t: 1,
        p: 1,
    };
    let recipient = opener.recipient().expect("an opener that seals");
    recipient.with_argon2(cost).expect("cost within bounds")
}

fn new_object(opener: &Opener) -> Object {
    Object::create(&SQLITE, &recipient(opener)).expect("a new object")
}

fn open(header: &[u8], opener: &Opener) -> Result<Object, Error> {
    Object::open(header, ObjectKind::Sqlite, opener)
}

/// The number of the code that `outcome` fails with; 0 when it does not fail.
fn code<T>(outcome: Result<T, Error>) -> u16 {
    outcome.err().map_or(0, |error| error.code().number)
}

/// What an attacker without the key can do after changing bytes: make the checksum fit.
fn with_checksum(mut header: Vec<u8>) -> Vec<u8> {
    let sum = sha256(&[&header[..3040]]);
    header[3040..3072].copy_from_slice(&sum);
    header
}

fn files_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let mut names: Vec<String> = entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}
