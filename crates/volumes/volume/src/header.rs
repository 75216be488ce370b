//! What must hold of a LUKS2 header before a secret is tried on it (V17). A header is not
//! authenticated: its ciphers, and the costs of its key derivations, can be the work of whoever
//! wrote to the disk.
//!
//! Must not: read a disk.

use serde_json::Value;
use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_luks2::{ITERATIONS_MAX, Kdf, KeyslotKind, Metadata, Segment, SegmentKind};

/// Most memory that Argon2 fills for one secret, over all slots and passes, in KiB: 128 GiB.
/// cryptsetup makes slots of at most 1 GiB unless it is told otherwise, with four passes or
/// somewhat more.
const FILLED_KIB_MAX: u64 = 128 << 20;
/// Most memory of one slot, in KiB: cryptsetup's own bound.
const MEMORY_KIB_MAX: u64 = 4 << 20;

/// Reads the JSON that libcryptsetup shows of a header.
///
/// # Errors
/// SR-8324 when a member is missing or has another type.
pub fn read(json: &Value) -> Result<Metadata, Error> {
    let read = Metadata::from_library(json);
    read.map_err(|error| {
        let detail = format!("the header: {}", error.detail());
        Error::new(&code::VOLUME_LIBRARY, detail)
    })
}

/// Returns the first segment without flags, which holds data; when every segment has flags, as
/// while the volume is re-encrypted, the first of all.
///
/// # Errors
/// SR-8324 when there is no segment.
pub fn first_segment(metadata: &Metadata) -> Result<&Segment, Error> {
    let mut segments = metadata.segments.values();
    let first = segments.find(|segment| segment.flags.is_empty());
    first
        .or_else(|| metadata.segments.values().next())
        .ok_or_else(|| Error::new(&code::VOLUME_LIBRARY, "the header has no segment"))
}

/// Checks that every segment is encrypted under a known cipher. Otherwise the right key might open
/// a disk that is in clear from then on.
///
/// # Errors
/// SR-8340 when one is not.
pub fn check_cipher(metadata: &Metadata) -> Result<(), Error> {
    for segment in metadata.segments.values() {
        let cipher = segment.cipher().unwrap_or_default();
        if !encrypts(cipher) {
            let kind = match &segment.kind {
                SegmentKind::Crypt { .. } => "crypt",
                SegmentKind::Linear => "linear",
                SegmentKind::Unknown(kind) => kind,
            };
            let detail = format!("{kind} {cipher}");
            return Err(Error::new(&code::VOLUME_CIPHER, detail));
        }
    }
    Ok(())
}

/// Checks that a secret may be tried on `slots`: known ciphers, and bounded memory and time.
///
/// # Errors
/// SR-8340 for a cipher; SR-8307 for the cost.
pub fn check_before_trying(metadata: &Metadata, slots: &[u32]) -> Result<(), Error> {
    check_cipher(metadata)?;
    check_costs(metadata, slots, memory_kib())
}

/// Checks the costs over all `slots` together: a secret may be tried on each. `memory_kib` is the
/// memory of this machine. SR-8307 when they are too high.
fn check_costs(metadata: &Metadata, slots: &[u32], memory_kib: u64) -> Result<(), Error> {
    let refused = |what: String| Err(Error::new(&code::LUKS_COST, what));
    let digests = metadata.digests.values();
    let of_digest = digests.map(|digest| digest.iterations.get()).max();
    let of_digest = u64::from(of_digest.unwrap_or_default());
    let (mut iterations, mut filled) = (0_u64, 0_u64);
    for number in slots {
        let Some(slot) = metadata.keyslots.get(number) else {
            continue;
        };
        let KeyslotKind::Luks2(slot) = &slot.kind else {
            continue;
        };
        let Some((more, kib)) = cost(&slot.kdf, memory_kib) else {
            let (kind, kib) = kind_and_memory(&slot.kdf);
            return refused(format!("slot {number}: {kind} with {kib} KiB"));
        };
        iterations = iterations.saturating_add(more).saturating_add(of_digest);
        filled = filled.saturating_add(kib);
    }
    if iterations > u64::from(ITERATIONS_MAX) || filled > FILLED_KIB_MAX {
        return refused(format!(
            "{iterations} iterations of PBKDF2, {filled} KiB filled by Argon2"
        ));
    }
    Ok(())
}

/// Returns the iterations of PBKDF2, and the KiB that Argon2 fills over all passes. `None` when the
/// key derivation is not known, or asks for more memory than the machine has or a slot may need.
fn cost(kdf: &Kdf, memory_kib: u64) -> Option<(u64, u64)> {
    match kdf {
        Kdf::Pbkdf2 { iterations, .. } => Some((iterations.get().into(), 0)),
        Kdf::Argon2 {
            time,
            memory_kib: kib,
            ..
        } => {
            let kib = u64::from(*kib);
            let fits = kib <= memory_kib.min(MEMORY_KIB_MAX);
            fits.then(|| (0, kib.saturating_mul(u64::from(*time))))
        }
        Kdf::Unknown(_) => None,
    }
}

/// Returns the key derivation's name, and its memory in KiB, 0 for all but Argon2.
fn kind_and_memory(kdf: &Kdf) -> (&str, u32) {
    match kdf {
        Kdf::Argon2 { memory_kib, .. } => (kdf.name(), *memory_kib),
        _ => (kdf.name(), 0),
    }
}

/// Returns whether a cipher of dm-crypt's, as `aes-xts-plain64`, is one of those known to keep
/// sectors secret and apart.
fn encrypts(name: &str) -> bool {
    let Some((cipher, mode)) = name.split_once('-') else {
        return false;
    };
    ["aes", "serpent", "twofish", "camellia"].contains(&cipher)
        && ["xts-plain64", "xts-plain", "xts-random", "cbc-essiv:sha256"].contains(&mode)
}

/// Returns the memory of this machine in KiB.
fn memory_kib() -> u64 {
    let about = rustix::system::sysinfo();
    let unit = u64::from(about.mem_unit.max(1));
    about.totalram.saturating_mul(unit) / 1024
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// 32 bytes.
    const SALT: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

    /// A header with these key derivations, one slot each, and a digest with so many iterations.
    fn header(kdfs: &[Value], digest: u32) -> Metadata {
        let numbers: Vec<String> = (0..kdfs.len()).map(|number| number.to_string()).collect();
        let slots = numbers.iter().zip(kdfs).map(|(number, kdf)| {
            let mut kdf = kdf.clone();
            kdf["salt"] = json!(SALT);
            let area = json!({"type": "raw", "offset": "32768", "size": "258048", "encryption": "aes-xts-plain64", "key_size": 64});
            let af = json!({"type": "luks1", "stripes": 4000, "hash": "sha256"});
            let slot = json!({"type": "luks2", "key_size": 64, "af": af, "area": area, "kdf": kdf});
            (number.clone(), slot)
        });
        let slots: serde_json::Map<String, Value> = slots.collect();
        let segment = json!({"type": "crypt", "offset": "16777216", "size": "dynamic", "iv_tweak": "0", "encryption": "aes-xts-plain64", "sector_size": 512});
        let digest = json!({"type": "pbkdf2", "keyslots": numbers, "segments": ["0"], "hash": "sha256", "iterations": digest, "salt": SALT, "digest": SALT});
        let json = json!({
            "keyslots": slots,
            "tokens": {},
            "segments": {"0": segment},
            "digests": {"0": digest},
            "config": {"json_size": "12288", "keyslots_size": "16744448"},
        });
        read(&json).unwrap()
    }

    fn pbkdf2(iterations: u32) -> Value {
        json!({"type": "pbkdf2", "hash": "sha256", "iterations": iterations})
    }

    fn argon2(kib: u32, time: u32) -> Value {
        json!({"type": "argon2id", "time": time, "memory": kib, "cpus": 4})
    }

    /// As for a machine with 8 GiB.
    fn checked(kdfs: &[Value], digest: u32) -> Result<(), Error> {
        let header = header(kdfs, digest);
        check_costs(&header, &header.bound_slots(), 8 << 20)
    }

    #[test]
    fn costs_that_cryptsetup_makes_are_borne() {
        checked(&[pbkdf2(1000), argon2(1 << 20, 4)], 1000).unwrap();
        checked(&[pbkdf2(30_000_000), pbkdf2(30_000_000)], 400_000).unwrap();
        checked(&[argon2(4 << 20, 12), argon2(64 << 10, 4)], 400_000).unwrap();
    }

    #[test]
    fn costs_out_of_bounds_are_refused_for_one_slot_and_for_all_together() {
        let many = vec![pbkdf2(50_000_000); 8];
        for (kdfs, digest) in [
            (vec![pbkdf2(4_000_000_000)], 1000),
            (vec![pbkdf2(1000)], 4_000_000_000),
            (many, 1000),
            (vec![argon2(1 << 20, 1000)], 1000),
            (vec![argon2(u32::MAX, u32::MAX)], 1000),
            (vec![argon2((4 << 20) + 1, 1)], 1000),
            (vec![json!({"type": "scrypt"})], 1000),
            (vec![json!({"type": "pbkdf2"})], 1000),
        ] {
            let error = checked(&kdfs, digest).unwrap_err();
            assert_eq!(error.code(), &code::LUKS_COST, "{kdfs:?} {digest}");
        }
        // More than this machine has.
        let header = header(&[argon2(1 << 20, 4)], 1000);
        assert!(check_costs(&header, &[0], 1 << 19).is_err());
        // A slot that is not tried costs nothing.
        let header = self::header(&[pbkdf2(1000), pbkdf2(4_000_000_000)], 1000);
        check_costs(&header, &[0], 8 << 20).unwrap();
        check_before_trying(&header, &[0, 1]).unwrap_err();
    }

    #[test]
    fn ciphers_that_do_not_encrypt_are_refused() {
        let mut header = header(&[pbkdf2(1000)], 1000);
        check_before_trying(&header, &[0]).unwrap();
        for bad in [
            "cipher_null-ecb",
            "cipher_null-xts-plain64",
            "aes-ecb",
            "aes-cbc-plain",
            "aes",
            "",
        ] {
            let kind = &mut header.segments.get_mut(&0).unwrap().kind;
            let SegmentKind::Crypt { encryption, .. } = kind else {
                panic!("not encrypted");
            };
            *encryption = bad.to_owned();
            let error = check_before_trying(&header, &[0]).unwrap_err();
            assert_eq!(error.code(), &code::VOLUME_CIPHER, "{bad}");
        }
        header.segments.get_mut(&0).unwrap().kind = SegmentKind::Linear;
        assert_eq!(
            check_before_trying(&header, &[0]).unwrap_err().code(),
            &code::VOLUME_CIPHER
        );
    }

    #[test]
    fn what_a_newer_library_accepts_passes_and_what_is_missing_is_refused() {
        let json = |slot: &str, flag: &str| {
            let segment = json!({"type": "crypt", "offset": "16777216", "size": "dynamic", "iv_tweak": "0", "encryption": "aes-xts-plain64", "sector_size": 512, "flags": [flag], "new": 1.5});
            json!({
                "keyslots": {"0": {"type": slot, "key_size": 64, "area": {"type": "raw", "offset": "32768", "size": "4096"}}},
                "tokens": {"0": {"type": "clevis", "keyslots": ["0"], "jwe": {"half": 0.5, "minus": -1}}},
                "segments": {"0": segment}, "digests": {}, "new": {},
                "config": {"json_size": "12288", "keyslots_size": "16744448", "new": true},
            })
        };
        let header = read(&json("new", "new")).unwrap();
        assert_eq!(
            first_segment(&header).unwrap().cipher(),
            Some("aes-xts-plain64")
        );
        let error = read(&json("luks2", "new")).unwrap_err();
        assert_eq!(error.code(), &code::VOLUME_LIBRARY);
        assert!(error.detail().contains("keyslots.0."), "{}", error.detail());
    }
}
