//! Volumes of cryptsetup opened here, and written here and read by cryptsetup.
//!
//! Method: every key derivation, hash, key and sector size that cryptsetup writes; contents
//! compared with a second implementation: cryptsetup's own encryption and decryption of files.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use common::{PASS, Place, json_of, secret, with_json};
use serde_json::json;
use strongroom_crypto::SecretBytes;
use strongroom_luks2::{
    LuksError, Slots, Volume, VolumeKey, key_of_slot, open_locked, read, unlock,
};

fn opened(path: &Path, read_only: bool) -> Result<Volume, LuksError> {
    let file = open_locked(path, read_only)?;
    let found = read(&file)?;
    let key = unlock(&file, &found.header, &secret(PASS), &Slots::default())?;
    Volume::open(file, &found, &key, read_only)
}

fn key_by(path: &Path, pass: &SecretBytes, slots: &Slots) -> Result<VolumeKey, LuksError> {
    let file = open_locked(path, true)?;
    let found = read(&file)?;
    unlock(&file, &found.header, pass, slots)
}

/// Bytes that are not the same anywhere.
fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    strongroom_crypto::fill_random(&mut bytes).unwrap();
    bytes
}

#[test]
fn every_key_derivation_hash_and_length_opens() {
    let place = Place::new();
    let argon2 = [
        "--pbkdf-memory",
        "64",
        "--pbkdf-force-iterations",
        "4",
        "--pbkdf-parallel",
        "2",
    ];
    let ways: [&[&str]; 7] = [
        &[],
        &["--hash", "sha512"],
        &["--key-size", "256"],
        &["--key-size", "256", "--hash", "sha512"],
        &[
            "--pbkdf", "argon2id", argon2[0], argon2[1], argon2[2], argon2[3], argon2[4], argon2[5],
        ],
        &[
            "--pbkdf", "argon2i", argon2[0], argon2[1], argon2[2], argon2[3], argon2[4], argon2[5],
        ],
        &[
            "--luks2-metadata-size",
            "64k",
            "--luks2-keyslots-size",
            "512k",
        ],
    ];
    for (number, options) in ways.iter().enumerate() {
        let path = place.image(&format!("v{number}"), 18, options);
        let key = key_by(&path, &secret(PASS), &Slots::default()).unwrap();
        let bits = if options.contains(&"256") { 32 } else { 64 };
        assert_eq!(key.key.len(), bits, "{options:?}");
        for wrong in [
            "",
            "x",
            "correct horse battery stapl",
            "correct horse battery staple\n",
        ] {
            let outcome = key_by(&path, &secret(wrong), &Slots::default());
            assert!(
                matches!(outcome, Err(LuksError::WrongKey(_))),
                "{options:?} {wrong}"
            );
        }
        assert!(opened(&path, true).unwrap().size() > 0);
    }
}

/// A volume of the old format after its conversion: less room before the data, a digest of 20
/// bytes.
#[test]
fn a_converted_luks1_volume_opens() {
    let place = Place::new();
    let path = place.path("v");
    File::create(&path).unwrap().set_len(6 << 20).unwrap();
    let words = [
        "luksFormat",
        "-q",
        "--type",
        "luks1",
        "--hash",
        "sha256",
        "--key-size",
        "512",
    ];
    let cheap = ["--pbkdf-force-iterations", "1000"];
    place.cryptsetup(&[&words[..], &cheap[..]].concat(), &path);
    place.cryptsetup(&["convert", "-q", "--type", "luks2"], &path);
    let volume = opened(&path, false).unwrap();
    assert_eq!((volume.size(), volume.sector_size()), (4 << 20, 512));
}

#[test]
fn slots_are_tried_by_priority_and_only_where_they_belong() {
    let place = Place::new();
    let path = place.image("v", 18, &[]);
    let other = place.file("other", b"other secret");
    let words = [
        "luksAddKey",
        "-q",
        "--pbkdf",
        "pbkdf2",
        "--pbkdf-force-iterations",
        "1000",
        "--new-key-slot",
        "5",
    ];
    let add = |words: &[&str]| {
        let key = place.file("pass", PASS.as_bytes());
        let mut command = Command::new("cryptsetup");
        command
            .args(words)
            .arg("--key-file")
            .arg(key)
            .arg(&path)
            .arg(&other);
        assert!(command.stdin(Stdio::null()).status().unwrap().success());
    };
    add(&words);
    let by = |pass: &str, only: Option<Vec<u32>>| {
        key_by(&path, &secret(pass), &Slots { only }).map(|key| key.slot)
    };
    assert_eq!(by(PASS, None).unwrap(), 0);
    assert_eq!(by("other secret", None).unwrap(), 5);
    assert_eq!(by("other secret", Some(vec![5])).unwrap(), 5);
    assert!(matches!(
        by("other secret", Some(vec![0])),
        Err(LuksError::WrongKey(_))
    ));
    assert!(matches!(
        by(PASS, Some(vec![7])),
        Err(LuksError::WrongKey(_))
    ));
    let file = File::open(&path).unwrap();
    let header = read(&file).unwrap().header;
    assert_eq!(
        key_of_slot(&file, &header, 5, &secret("other secret"))
            .unwrap()
            .slot,
        5
    );
    assert!(key_of_slot(&file, &header, 0, &secret("other secret")).is_err());
    assert!(key_of_slot(&file, &header, 9, &secret(PASS)).is_err());

    // A slot of another key (cryptsetup calls it unbound) opens no data.
    let words = [
        &words[..6],
        &["--unbound", "--key-size", "512", "--new-key-slot", "7"],
    ]
    .concat();
    add(&words);
    let outcome = key_by(
        &path,
        &secret("other secret"),
        &Slots {
            only: Some(vec![7]),
        },
    );
    assert!(matches!(outcome, Err(LuksError::WrongKey(_))));
}

#[test]
fn a_slot_of_priority_0_is_tried_only_when_it_is_named() {
    let place = Place::new();
    let path = place.image("v", 18, &[]);
    let image = std::fs::read(&path).unwrap();
    let mut json = json_of(&image);
    json["keyslots"]["0"]["priority"] = json!(0);
    let image = with_json(&image, &json.to_string());
    let found = read(image.as_slice()).unwrap();
    let by = |only| {
        unlock(
            image.as_slice(),
            &found.header,
            &secret(PASS),
            &Slots { only },
        )
    };
    assert!(by(None).is_err());
    assert_eq!(by(Some(vec![0])).unwrap().slot, 0);
}

#[test]
fn a_damaged_slot_area_opens_nothing() {
    let place = Place::new();
    let path = place.image("v", 18, &[]);
    let good = std::fs::read(&path).unwrap();
    for at in [32_768, 32_768 + 100_000, 32_768 + 255_999] {
        let mut image = good.clone();
        image[at] ^= 1;
        let found = read(image.as_slice()).unwrap();
        let outcome = unlock(
            image.as_slice(),
            &found.header,
            &secret(PASS),
            &Slots::default(),
        );
        assert!(matches!(outcome, Err(LuksError::WrongKey(_))), "byte {at}");
    }
    let found = read(good.as_slice()).unwrap();
    let cut = &good[..40_000];
    let outcome = unlock(cut, &found.header, &secret(PASS), &Slots::default());
    assert!(matches!(outcome, Err(LuksError::Io(..))));
}

/// What is written here is what cryptsetup decrypts. It moves the data to the beginning of the
/// device.
#[test]
fn cryptsetup_decrypts_what_was_written_here() {
    for (sector, key) in [
        ("512", "256"),
        ("512", "512"),
        ("4096", "256"),
        ("4096", "512"),
    ] {
        let place = Place::new();
        let path = place.image("v", 20, &["--sector-size", sector, "--key-size", key]);
        let volume = opened(&path, false).unwrap();
        let len = usize::try_from(volume.size()).unwrap();
        assert_eq!(len, 4 << 20);
        let mut expected = noise(len);
        volume.write(&expected, 0).unwrap();
        // And in places and lengths that fit nothing.
        let mut random = 1_u64;
        for _ in 0..300 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let at = usize::try_from(random >> 33).unwrap() % (len - 20_000);
            let piece = noise(usize::try_from(random >> 20 & 0x3fff).unwrap() + 1);
            volume.write(&piece, at as u64).unwrap();
            expected[at..at + piece.len()].copy_from_slice(&piece);
        }
        volume.sync().unwrap();
        let mut whole = vec![0; len + 100];
        assert_eq!(volume.read(&mut whole, 0).unwrap(), len);
        assert!(whole[..len] == expected, "read back here");
        drop(volume);
        let header = place.path("header");
        let words = [
            "reencrypt",
            "-q",
            "--decrypt",
            "--force-offline-reencrypt",
            "--header",
            header.to_str().unwrap(),
        ];
        place.cryptsetup(&words, &path);
        let plain = std::fs::read(&path).unwrap();
        assert!(plain[..len] == expected, "sector {sector}, key {key}");
    }
}

/// What cryptsetup encrypts is what is read here.
#[test]
fn what_cryptsetup_encrypted_is_read_here() {
    for sector in ["512", "4096"] {
        let place = Place::new();
        let contents = noise(8 << 20);
        let path = place.file("plain", &contents);
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(40 << 20)
            .unwrap();
        let words = [
            "reencrypt",
            "-q",
            "--encrypt",
            "--type",
            "luks2",
            "--reduce-device-size",
            "32M",
            "--sector-size",
            sector,
            "--pbkdf",
            "pbkdf2",
            "--pbkdf-force-iterations",
            "1000",
        ];
        place.cryptsetup(&words, &path);
        let volume = opened(&path, true).unwrap();
        let mut read = vec![0; contents.len()];
        assert_eq!(volume.read(&mut read, 0).unwrap(), contents.len());
        assert!(read == contents, "sector {sector}");
    }
}

#[test]
fn bounds_and_read_only_are_kept() {
    let place = Place::new();
    let path = place.image("v", 17, &[]);
    let volume = opened(&path, false).unwrap();
    let size = volume.size();
    assert_eq!(size, 1 << 20);
    let mut buffer = [0; 10];
    assert_eq!(volume.read(&mut buffer, size).unwrap(), 0);
    assert_eq!(volume.read(&mut buffer, u64::MAX).unwrap(), 0);
    assert_eq!(volume.read(&mut buffer, size - 3).unwrap(), 3);
    volume.write(b"abc", size - 3).unwrap();
    for at in [size - 2, size, u64::MAX - 1] {
        assert!(volume.write(b"abc", at).is_err());
    }
    volume.write(b"", 5).unwrap();
    volume.sync().unwrap();
    drop(volume);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 17 << 20);
    let volume = opened(&path, true).unwrap();
    assert!(volume.is_read_only() && volume.write(b"abc", 0).is_err());
    assert_eq!(volume.read(&mut buffer, size - 3).unwrap(), 3);
    assert_eq!(&buffer[..3], b"abc");
}

#[test]
fn a_damaged_primary_copy_allows_reading_only() {
    let place = Place::new();
    let path = place.image("v", 17, &[]);
    opened(&path, false).unwrap().write(b"kept", 1000).unwrap();
    let mut image = std::fs::read(&path).unwrap();
    image[5000] ^= 1;
    let path = place.file("damaged", &image);
    let volume = opened(&path, false).unwrap();
    assert!(volume.is_read_only());
    let mut buffer = [0; 4];
    volume.read(&mut buffer, 1000).unwrap();
    assert_eq!(&buffer, b"kept");
    assert!(volume.write(b"more", 0).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), image);
}

#[test]
fn devices_that_end_early_and_other_ciphers_are_refused() {
    let place = Place::new();
    let path = place.image("v", 17, &[]);
    let cut = |len: u64| {
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(len)
            .unwrap();
        opened(&path, false)
    };
    assert_eq!(cut((16 << 20) + 4096 + 100).unwrap().size(), 4096);
    for len in [16 << 20, (16 << 20) + 4095, 1 << 20] {
        assert!(matches!(cut(len), Err(LuksError::Damaged(_))), "{len}");
    }
    let image = std::fs::read(place.image("other", 17, &[])).unwrap();
    let json = json_of(&image);
    for cipher in [
        "aes-cbc-essiv:sha256",
        "aes-xts-plain",
        "serpent-xts-plain64",
        "cipher_null-ecb",
        "aes-xts-plain64be",
    ] {
        let mut json = json.clone();
        json["segments"]["0"]["encryption"] = json!(cipher);
        let path = place.file("changed", &with_json(&image, &json.to_string()));
        assert!(
            matches!(opened(&path, false), Err(LuksError::Unsupported(_))),
            "{cipher}"
        );
    }
    let mut json = json;
    json["segments"]["0"]["integrity"] =
        json!({"type": "hmac(sha256)", "journal_encryption": "none", "journal_integrity": "none"});
    let path = place.file("changed", &with_json(&image, &json.to_string()));
    assert!(matches!(
        opened(&path, false),
        Err(LuksError::Unsupported(_))
    ));
}

#[test]
fn one_writer_or_many_readers() {
    let place = Place::new();
    let path = place.image("v", 17, &[]);
    // A forked child has the open file until it runs its program; the lock ends all the same.
    let first = open_locked(&path, false).unwrap();
    let child = first.try_clone().unwrap();
    drop(first);
    let writer = open_locked(&path, false).unwrap();
    drop(child);
    assert!(matches!(
        open_locked(&path, false),
        Err(LuksError::InUse(_))
    ));
    assert!(matches!(open_locked(&path, true), Err(LuksError::InUse(_))));
    drop(writer);
    let _reader = open_locked(&path, true).unwrap();
    let _another = open_locked(&path, true).unwrap();
    assert!(matches!(
        open_locked(&path, false),
        Err(LuksError::InUse(_))
    ));
    assert!(matches!(
        open_locked(Path::new("/dev/null"), true),
        Err(LuksError::Io(..))
    ));
    assert!(matches!(
        open_locked(&place.path("none"), true),
        Err(LuksError::Io(..))
    ));
}

/// Two threads write halves of one sector again and again, a third one reads it: neither write is
/// ever lost, and nothing is ever seen that was not written.
#[test]
fn writes_of_parts_of_a_sector_are_not_lost_to_each_other() {
    let place = Place::new();
    let path = place.image("v", 17, &["--sector-size", "4096"]);
    let volume = opened(&path, false).unwrap();
    volume.write(&[0; 4096], 8192).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let half = |at: u64| {
            let volume = &volume;
            move || {
                for round in 1..=250_u8 {
                    volume.write(&[round; 2048], at).unwrap();
                    let mut back = [0; 2048];
                    volume.read(&mut back, at).unwrap();
                    assert!(back == [round; 2048], "half at {at}, round {round}");
                }
            }
        };
        let writers = [scope.spawn(half(8192)), scope.spawn(half(8192 + 2048))];
        let (volume, stop) = (&volume, &done);
        scope.spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                let mut sector = [0; 4096];
                volume.read(&mut sector, 8192).unwrap();
                for half in sector.chunks(2048) {
                    assert!(
                        half.iter().all(|byte| *byte == half[0]),
                        "half of a write was seen"
                    );
                }
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::SeqCst);
    });
}

/// A device that is full: the write fails, and so does every sync after it.
#[test]
fn after_a_failed_write_no_sync_succeeds() {
    let place = Place::new();
    let path = place.image("v", 17, &[]);
    let file = open_locked(&path, true).unwrap();
    let found = read(&file).unwrap();
    let key = unlock(&file, &found.header, &secret(PASS), &Slots::default()).unwrap();
    // Opened for reading, used for writing: the system refuses each write.
    let volume = Volume::open(file, &found, &key, false).unwrap();
    volume.sync().unwrap();
    assert!(volume.write(&[1; 4096], 0).is_err());
    assert!(volume.sync().is_err());
    assert!(volume.sync().is_err());
}
