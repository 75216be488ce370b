//! What a LUKS2 header says, as libcryptsetup read and checked it.
//!
//! Must not: read a disk. Numbers that LUKS2 keeps as text stay text until they are needed.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use strongroom_format::code;
use strongroom_keyring::Error;

use crate::token::{self, Token};

/// The requirement that stands in the header while the volume is re-encrypted.
const REENCRYPTING: &str = "online-reencrypt";
/// Most iterations of PBKDF2 that are computed for one secret, over all slots that it is tried on:
/// a minute or two. cryptsetup makes some ten millions for a slot when it measures two seconds.
const ITERATIONS_MAX: u64 = 1 << 28;
/// Most memory that Argon2 fills for one secret, over all slots and passes, in KiB: 128 GiB.
/// cryptsetup makes slots of at most 1 GiB unless it is told otherwise, with four passes or
/// somewhat more.
const FILLED_KIB_MAX: u64 = 128 << 20;
/// Most memory of one slot, in KiB: cryptsetup's own bound.
const MEMORY_KIB_MAX: u64 = 4 << 20;

/// A header's metadata.
#[derive(Deserialize)]
pub struct Metadata {
    /// Key slots by number.
    pub keyslots: BTreeMap<u32, Keyslot>,
    /// Tokens by number, ours and those of others.
    #[serde(default)]
    pub tokens: BTreeMap<u32, Value>,
    /// Where data is, and under which cipher.
    pub segments: BTreeMap<u32, Segment>,
    /// Which volume key is the right one, and which slots hold it.
    pub digests: BTreeMap<u32, Digest>,
    /// Sizes and requirements.
    pub config: Config,
}

/// One key slot.
#[derive(Deserialize)]
pub struct Keyslot {
    /// `luks2`, or `reencrypt` for the one that remembers how far a re-encryption is.
    #[serde(rename = "type")]
    pub kind: String,
    /// Length of its key in bytes.
    pub key_size: u32,
    /// How its passphrase is stretched. None in a slot of kind `reencrypt`.
    #[serde(default)]
    pub kdf: Option<Kdf>,
}

/// How a passphrase is stretched.
#[derive(Deserialize, Clone)]
pub struct Kdf {
    /// `pbkdf2`, `argon2i` or `argon2id`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Of PBKDF2.
    #[serde(default)]
    pub iterations: Option<u32>,
    /// Of Argon2, in KiB.
    #[serde(default)]
    pub memory: Option<u32>,
    /// Of Argon2.
    #[serde(default)]
    pub time: Option<u32>,
}

impl Kdf {
    /// Iterations, and KiB that are filled. `None` when it is not known or asks for more memory
    /// than there is.
    fn cost(&self, memory_kib: u64) -> Option<(u64, u64)> {
        if self.kind == "pbkdf2" {
            return Some((self.iterations?.into(), 0));
        }
        let memory = u64::from(self.memory?);
        let known = ["argon2i", "argon2id"].contains(&self.kind.as_str());
        let there_is = memory <= memory_kib.min(MEMORY_KIB_MAX);
        (known && there_is).then_some((0, memory.saturating_mul(self.time?.into())))
    }
}

/// One segment of the data.
#[derive(Deserialize)]
pub struct Segment {
    /// `crypt`, or `linear` where it is plain.
    #[serde(rename = "type")]
    pub kind: String,
    /// First byte on the device.
    pub offset: String,
    /// Bytes, or `dynamic`.
    #[serde(default)]
    pub size: String,
    /// As `aes-xts-plain64`.
    #[serde(default)]
    pub encryption: String,
    /// Bytes of a unit of encryption.
    #[serde(default)]
    pub sector_size: u32,
    /// Authentication, when there is any.
    #[serde(default)]
    pub integrity: Option<Integrity>,
    /// As `backup-final` while the volume is re-encrypted.
    #[serde(default)]
    pub flags: Vec<String>,
}

/// Authentication of a segment.
#[derive(Deserialize)]
pub struct Integrity {
    /// As `hmac(sha256)`.
    #[serde(rename = "type")]
    pub kind: String,
}

/// One digest: a volume key by its digest.
#[derive(Deserialize)]
pub struct Digest {
    /// Slots that hold the key.
    pub keyslots: Vec<String>,
    /// Segments that are under it.
    pub segments: Vec<String>,
    /// Iterations of its PBKDF2, which are computed for every key that is tried.
    #[serde(default)]
    pub iterations: u32,
}

/// Sizes and requirements.
#[derive(Deserialize)]
pub struct Config {
    /// What a program must know to use the volume.
    #[serde(default)]
    pub requirements: Option<Requirements>,
}

/// What a program must know to use the volume.
#[derive(Deserialize)]
pub struct Requirements {
    /// Names.
    #[serde(default)]
    pub mandatory: Vec<String>,
}

/// What opens a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Material of a key server or keyring: named in our token.
    Strongroom,
    /// A recovery key, ours or systemd's.
    Recovery,
    /// What this machine's TPM sealed.
    Tpm,
    /// Another program's token names it.
    Foreign,
    /// A passphrase: no token names it.
    Passphrase,
    /// Not a key: it remembers how far a re-encryption is.
    Reencrypt,
}

impl Kind {
    /// In a word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Strongroom => "strongroom",
            Self::Recovery => "recovery",
            Self::Tpm => "tpm",
            Self::Foreign => "foreign",
            Self::Passphrase => "passphrase",
            Self::Reencrypt => "reencrypt",
        }
    }
}

impl Metadata {
    /// Reads what libcryptsetup shows of a header.
    ///
    /// # Errors
    /// SR-8324.
    pub fn read(json: Value) -> Result<Self, Error> {
        serde_json::from_value(json)
            .map_err(|error| Error::new(&code::VOLUME_LIBRARY, format!("the header: {error}")))
    }

    /// Our token and its number. `None` when there is none.
    ///
    /// # Errors
    /// SR-8323, SR-3002 for one that is not in form; SR-8323 too when there are several, for none
    /// says which is right.
    pub fn token(&self) -> Result<Option<(u32, Token)>, Error> {
        let mut ours = self
            .tokens
            .iter()
            .filter(|(_, token)| kind_of(token) == token::TYPE);
        match (ours.next(), ours.next()) {
            (None, _) => Ok(None),
            (Some((number, token)), None) => Ok(Some((*number, Token::read(token)?))),
            (Some(_), Some(_)) => Err(Error::new(&code::VOLUME_TOKEN, "there are several")),
        }
    }

    /// The number of the token of recovery keys, and the slots that it names.
    #[must_use]
    pub fn recovery_token(&self) -> Option<(u32, Vec<u32>)> {
        let (number, token) = self
            .tokens
            .iter()
            .find(|(_, token)| kind_of(token) == token::RECOVERY_TYPE)?;
        Some((*number, slots_of(token)))
    }

    /// What opens this slot.
    #[must_use]
    pub fn kind(&self, slot: u32) -> Kind {
        if self
            .keyslots
            .get(&slot)
            .is_some_and(|slot| slot.kind == "reencrypt")
        {
            return Kind::Reencrypt;
        }
        let named = self
            .tokens
            .values()
            .filter(|token| slots_of(token).contains(&slot));
        let kinds = named.map(|token| match kind_of(token) {
            token::TYPE => Kind::Strongroom,
            token::RECOVERY_TYPE => Kind::Recovery,
            crate::tpm::TYPE => Kind::Tpm,
            _ => Kind::Foreign,
        });
        kinds.min().unwrap_or(Kind::Passphrase)
    }

    /// Slots that hold a key, in order.
    #[must_use]
    pub fn key_slots(&self) -> Vec<u32> {
        let keys = self
            .keyslots
            .iter()
            .filter(|(_, slot)| slot.kind == "luks2");
        keys.map(|(number, _)| *number).collect()
    }

    /// Slots with a passphrase that a machine made: stretched no more than LUKS2 asks for.
    #[must_use]
    pub fn machine_slots(&self) -> Vec<u32> {
        let keys = self.keyslots.iter().filter(|(_, slot)| {
            slot.kdf.as_ref().is_some_and(|kdf| {
                kdf.kind == "pbkdf2" && kdf.iterations.is_some_and(|count| count <= 1000)
            })
        });
        keys.map(|(number, _)| *number).collect()
    }

    /// Slots whose key is that of some segment: those that open the volume.
    #[must_use]
    pub fn bound_slots(&self) -> Vec<u32> {
        let bound = self
            .digests
            .values()
            .filter(|digest| !digest.segments.is_empty());
        let mut slots: Vec<u32> = bound
            .flat_map(|digest| digest.keyslots.iter().filter_map(|slot| slot.parse().ok()))
            .filter(|slot| {
                self.keyslots
                    .get(slot)
                    .is_some_and(|slot| slot.kind == "luks2")
            })
            .collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Slots with a key that no segment is under: of a re-encryption that is prepared and not
    /// begun.
    #[must_use]
    pub fn unbound_slots(&self) -> Vec<u32> {
        let bound = self.bound_slots();
        let mut slots = self.key_slots();
        slots.retain(|slot| !bound.contains(slot));
        slots
    }

    /// Whether a re-encryption was begun and is not finished.
    #[must_use]
    pub fn is_reencrypting(&self) -> bool {
        self.config
            .requirements
            .as_ref()
            .is_some_and(|requirements| {
                requirements
                    .mandatory
                    .iter()
                    .any(|name| name.starts_with(REENCRYPTING))
            })
    }

    /// Whether what the header says of the data is encryption. A header is not authenticated:
    /// whoever wrote to the disk can have named a cipher that does nothing, and the right key would
    /// open a disk that is plain from then on.
    ///
    /// # Errors
    /// SR-8340.
    pub fn check_cipher(&self) -> Result<(), Error> {
        for segment in self.segments.values() {
            if segment.kind != "crypt" || !encrypts(&segment.encryption) {
                let detail = format!("{} {}", segment.kind, segment.encryption);
                return Err(Error::new(&code::VOLUME_CIPHER, detail));
            }
        }
        Ok(())
    }

    /// V17: whether a secret may be tried on `slots`. Cipher, and costs of key derivation, are what
    /// whoever wrote to the disk said.
    ///
    /// # Errors
    /// SR-8340, SR-8307.
    pub fn check_tried(&self, slots: &[u32]) -> Result<(), Error> {
        self.check_cipher()?;
        self.check_costs(slots, memory_kib())
    }

    /// Costs over all `slots` together: a secret may be tried on each. `memory_kib`: what this
    /// machine has.
    fn check_costs(&self, slots: &[u32], memory_kib: u64) -> Result<(), Error> {
        let refused = |what: String| Err(Error::new(&code::LUKS_COST, what));
        let proofs = self.digests.values().map(|digest| digest.iterations);
        let proof = u64::from(proofs.max().unwrap_or_default());
        let (mut iterations, mut filled) = (0_u64, 0_u64);
        for (number, slot) in slots
            .iter()
            .filter_map(|n| Some((n, self.keyslots.get(n)?)))
        {
            let Some(kdf) = &slot.kdf else { continue };
            let Some((more, kib)) = kdf.cost(memory_kib) else {
                return refused(format!(
                    "slot {number}: {} with {} KiB",
                    kdf.kind,
                    kdf.memory.unwrap_or_default()
                ));
            };
            iterations = iterations.saturating_add(more).saturating_add(proof);
            filled = filled.saturating_add(kib);
        }
        if iterations > ITERATIONS_MAX || filled > FILLED_KIB_MAX {
            return refused(format!(
                "{iterations} iterations of PBKDF2, {filled} KiB filled by Argon2"
            ));
        }
        Ok(())
    }

    /// Slots that open the volume and that our token names: those that its key is tried on.
    ///
    /// # Errors
    /// SR-8323 when there is none.
    pub fn token_slots(&self) -> Result<Vec<u32>, Error> {
        let none = || Error::new(&code::VOLUME_TOKEN, "it names no key slot");
        let (_, token) = self.token()?.ok_or_else(none)?;
        let mut slots = self.bound_slots();
        slots.retain(|slot| token.slots.contains(slot));
        if slots.is_empty() {
            return Err(none());
        }
        Ok(slots)
    }

    /// The first segment with data.
    ///
    /// # Errors
    /// SR-8324 when there is none.
    pub fn segment(&self) -> Result<&Segment, Error> {
        let first = self
            .segments
            .values()
            .find(|segment| segment.flags.is_empty());
        first
            .or_else(|| self.segments.values().next())
            .ok_or_else(|| Error::new(&code::VOLUME_LIBRARY, "the header has no segment"))
    }
}

/// Whether a cipher of dm-crypt's, as `aes-xts-plain64`, keeps sectors secret and apart.
fn encrypts(name: &str) -> bool {
    let Some((cipher, mode)) = name.split_once('-') else {
        return false;
    };
    ["aes", "serpent", "twofish", "camellia"].contains(&cipher)
        && ["xts-plain64", "xts-plain", "xts-random", "cbc-essiv:sha256"].contains(&mode)
}

/// Memory of this machine.
fn memory_kib() -> u64 {
    let about = rustix::system::sysinfo();
    let unit = u64::from(about.mem_unit.max(1));
    about.totalram.saturating_mul(unit) / 1024
}

fn kind_of(token: &Value) -> &str {
    token
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn slots_of(token: &Value) -> Vec<u32> {
    let slots = token.get("keyslots").and_then(Value::as_array);
    let slots = slots.into_iter().flatten().filter_map(Value::as_str);
    slots.filter_map(|slot| slot.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with these key derivations, one slot each, and a digest with so many iterations.
    fn header(kdfs: &[Value], digest: u32) -> Metadata {
        let numbers: Vec<String> = (0..kdfs.len()).map(|number| number.to_string()).collect();
        let slots = numbers.iter().zip(kdfs).map(|(number, kdf)| {
            let slot = serde_json::json!({"type": "luks2", "key_size": 64, "kdf": kdf});
            (number.clone(), slot)
        });
        let slots: serde_json::Map<String, Value> = slots.collect();
        let segment = serde_json::json!({"type": "crypt", "offset": "16777216", "size": "dynamic", "encryption": "aes-xts-plain64", "sector_size": 512});
        Metadata::read(serde_json::json!({
            "keyslots": slots,
            "segments": {"0": segment},
            "digests": {"0": {"keyslots": numbers, "segments": ["0"], "iterations": digest}},
            "config": {},
        }))
        .unwrap()
    }

    fn pbkdf2(iterations: u32) -> Value {
        serde_json::json!({"type": "pbkdf2", "hash": "sha256", "iterations": iterations})
    }

    fn argon2(kib: u32, time: u32) -> Value {
        serde_json::json!({"type": "argon2id", "time": time, "memory": kib, "cpus": 4})
    }

    /// As for a machine with 8 GiB.
    fn cost(kdfs: &[Value], digest: u32) -> Result<(), Error> {
        let header = header(kdfs, digest);
        header.check_costs(&header.bound_slots(), 8 << 20)
    }

    #[test]
    fn costs_that_cryptsetup_makes_are_borne() {
        cost(&[pbkdf2(1000), argon2(1 << 20, 4)], 1000).unwrap();
        cost(&[pbkdf2(30_000_000), pbkdf2(30_000_000)], 400_000).unwrap();
        cost(&[argon2(4 << 20, 12), argon2(64 << 10, 4)], 400_000).unwrap();
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
            (vec![serde_json::json!({"type": "scrypt"})], 1000),
            (vec![serde_json::json!({"type": "pbkdf2"})], 1000),
        ] {
            let error = cost(&kdfs, digest).unwrap_err();
            assert_eq!(error.code(), &code::LUKS_COST, "{kdfs:?} {digest}");
        }
        // More than this machine has.
        let header = header(&[argon2(1 << 20, 4)], 1000);
        assert!(header.check_costs(&[0], 1 << 19).is_err());
        // A slot that is not tried costs nothing.
        let header = self::header(&[pbkdf2(1000), pbkdf2(4_000_000_000)], 1000);
        header.check_costs(&[0], 8 << 20).unwrap();
        header.check_tried(&[0, 1]).unwrap_err();
    }

    #[test]
    fn ciphers_that_do_not_encrypt_are_refused() {
        let mut header = header(&[pbkdf2(1000)], 1000);
        header.check_tried(&[0]).unwrap();
        for bad in [
            "cipher_null-ecb",
            "cipher_null-xts-plain64",
            "aes-ecb",
            "aes-cbc-plain",
            "aes",
            "",
        ] {
            header.segments.get_mut(&0).unwrap().encryption = bad.to_owned();
            let error = header.check_tried(&[0]).unwrap_err();
            assert_eq!(error.code(), &code::VOLUME_CIPHER, "{bad}");
        }
        let segment = header.segments.get_mut(&0).unwrap();
        segment.encryption = "aes-xts-plain64".to_owned();
        segment.kind = "linear".to_owned();
        assert_eq!(
            header.check_tried(&[0]).unwrap_err().code(),
            &code::VOLUME_CIPHER
        );
    }
}
