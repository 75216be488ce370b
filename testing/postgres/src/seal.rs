//! Makes an empty data directory a sealed one.

use std::path::Path;

use strongroom_format::header::Cipher;
use strongroom_keyring::{KeySource, NewObject, Object, SourceContext};

use crate::room::Room;

/// Writes header and configuration.
///
/// # Panics
/// When the key cannot be used.
pub fn seal(room: &Room, data: &Path, key: &Path, cipher: &str) {
    let context = SourceContext {
        creating: true,
        ..SourceContext::default()
    };
    let opener = KeySource::File(key.to_owned())
        .opener(&context)
        .expect("the key can be used");
    let cipher = match cipher {
        "aes-128-xts" => Cipher::Aes128Xts,
        _ => Cipher::Aes256Xts,
    };
    let object = Object::create(&NewObject::instance(cipher), &opener).expect("a header");
    room.put(&data.join("strongroom.header"), &object.initial_bytes());
    let configuration = format!("key_file = {}\n", key.display());
    room.put(&data.join("strongroom.conf"), configuration.as_bytes());
}
