//! Opens key slots: from a passphrase to a volume key by key derivation, decryption of the area,
//! merge of the stripes, and the digest.
//!
//! Invariants:
//! - L5 What is derived and merged is in locked memory only; the decrypted stripes one sector at a
//!   time.
//! - L6 Nothing is derived whose cost is out of bounds: the header says the cost, and anyone may
//!   have written it.
//! - L7 A key counts only when its digest says so, and when no unverified re-encryption stands in
//!   the header.
//!
//! Must not: claim to tell a wrong passphrase from a damaged key slot area: they cannot be told
//! apart.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use strongroom_crypto::{
    AfMerge, Argon2Kind, Argon2Params, CryptoError, LuksHash, SecretBytes, XtsKey, argon2, pbkdf2,
    pbkdf2_matches,
};

use crate::error::LuksError;
use crate::header::{Header, Source};
use crate::metadata::{Digest, Kdf, Keyslot, KeyslotKind, Luks2Slot};
use crate::reencrypt;
use crate::segment::{CIPHER, data_segment};

/// Most iterations of PBKDF2 that are computed: a minute or two.
pub const ITERATIONS_MAX: u32 = 1 << 28;
/// Unit of encryption of key slot areas.
const AREA_SECTOR: usize = 512;

/// A volume key, and the slot that held it.
pub struct VolumeKey {
    /// The key.
    pub key: SecretBytes,
    /// The digest that proves it.
    pub digest: u32,
    /// The key slot that held it.
    pub slot: u32,
}

/// Which key slots are tried.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    /// Only these, also those of priority 0; `None` for all of a higher priority.
    pub only: Option<Vec<u32>>,
}

/// Tries `pass` on the key slots, in the order of priority and then of number, until one gives the
/// key of the volume's data. Only reads.
///
/// # Errors
/// [`LuksError::WrongKey`] when no slot opens; [`LuksError::Cost`] and [`LuksError::Unsupported`]
/// when no slot could be tried at all; [`LuksError::Unsupported`] also for requirements and
/// segments that this crate does not have; [`LuksError::Reencrypting`], [`LuksError::Forged`] or
/// [`LuksError::WrongKey`] for a volume with a re-encryption under way, which is never opened;
/// [`LuksError::Damaged`] when the data have no digest; [`LuksError::Io`].
pub fn unlock(
    source: &(impl Source + ?Sized),
    header: &Header,
    pass: &SecretBytes,
    slots: &Slots,
) -> Result<VolumeKey, LuksError> {
    check_requirements(header)?;
    let metadata = &header.metadata;
    if !reencrypt::keys_needed(metadata).is_empty() || requires_reencryption(header) {
        return Err(refuse_reencryption(source, header, pass, slots));
    }
    // Before any key is derived: a segment that cannot be read here needs no key.
    let (data, _) = data_segment(metadata)?;
    let Some((wanted, _)) = metadata.digest_of_segment(data) else {
        return Err(LuksError::damaged(format!("segments.{data} (no digest)")));
    };
    let mut refusals = Vec::new();
    let (mut tried, mut first) = (0, None);
    for (number, slot) in candidates(header, slots) {
        let Some((digest, proof)) = metadata
            .digest_of_keyslot(number)
            .filter(|(d, _)| *d == wanted)
        else {
            continue;
        };
        match open_slot(source, slot, proof, pass) {
            Ok(Some(key)) => {
                return Ok(VolumeKey {
                    key,
                    digest,
                    slot: number,
                });
            }
            Ok(None) => tried += 1,
            Err(error @ (LuksError::Cost(_) | LuksError::Unsupported(_))) => {
                refusals.push(format!("slot {number} was not tried: {}", error.detail()));
                first.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    match first {
        Some(error) if tried == 0 => Err(error),
        _ => Err(LuksError::WrongKey(refusals.join("; "))),
    }
}

/// Opens one key slot with `pass`, whatever the state of the volume, and returns its key.
///
/// # Errors
/// [`LuksError::WrongKey`] when there is no such slot with a digest, or `pass` does not open it;
/// [`LuksError::Cost`] when it asks for too much work; [`LuksError::Unsupported`] for other types,
/// ciphers and hashes; [`LuksError::Io`].
pub fn key_of_slot(
    source: &(impl Source + ?Sized),
    header: &Header,
    number: u32,
    pass: &SecretBytes,
) -> Result<VolumeKey, LuksError> {
    let slot = header.metadata.keyslots.get(&number);
    let proof = header.metadata.digest_of_keyslot(number);
    let (Some(slot), Some((digest, proof))) = (slot, proof) else {
        return Err(LuksError::WrongKey(format!(
            "there is no slot {number} with a digest"
        )));
    };
    open_slot(source, slot, proof, pass)?.map_or_else(
        || Err(LuksError::WrongKey(format!("slot {number}"))),
        |key| {
            Ok(VolumeKey {
                key,
                digest,
                slot: number,
            })
        },
    )
}

/// Refuses requirements other than those of a re-encryption: this crate cannot open such volumes.
///
/// # Errors
/// [`LuksError::Unsupported`] with the first of them.
fn check_requirements(header: &Header) -> Result<(), LuksError> {
    let mut required = header.metadata.config.requirements.iter();
    let unknown = required.find(|name| {
        reencrypt::online_version(name).is_none() && name.as_str() != "offline-reencrypt"
    });
    unknown.map_or(Ok(()), |name| {
        Err(LuksError::Unsupported(format!("requirement {name}")))
    })
}

/// Returns whether the header has a requirement. Call it after [`check_requirements`], when only
/// those of a re-encryption are left.
fn requires_reencryption(header: &Header) -> bool {
    !header.metadata.config.requirements.is_empty()
}

/// Returns the error for a volume under re-encryption, which is never opened. The passphrase only
/// serves to verify its metadata: [`LuksError::WrongKey`] when it opens no slot of it,
/// [`LuksError::Forged`] when the metadata do not match their digest, otherwise
/// [`LuksError::Reencrypting`].
fn refuse_reencryption(
    source: &(impl Source + ?Sized),
    header: &Header,
    pass: &SecretBytes,
    slots: &Slots,
) -> LuksError {
    let needed = reencrypt::keys_needed(&header.metadata);
    let mut keys = BTreeMap::new();
    for (number, slot) in candidates(header, slots) {
        let Some((digest, proof)) = header.metadata.digest_of_keyslot(number) else {
            continue;
        };
        if !needed.contains(&digest) || keys.contains_key(&digest) {
            continue;
        }
        match open_slot(source, slot, proof, pass) {
            Ok(Some(key)) => drop(keys.insert(digest, key)),
            Ok(None) | Err(LuksError::Cost(_) | LuksError::Unsupported(_)) => {}
            Err(error) => return error,
        }
    }
    if keys.is_empty() {
        return LuksError::WrongKey("a re-encryption of the volume is under way".to_owned());
    }
    match reencrypt::verify(&header.metadata, &keys) {
        Ok(()) => LuksError::Reencrypting("its metadata was verified"),
        Err(error) => error,
    }
}

/// Returns the key slots to try, in order of priority, highest first, then of number. Those of
/// priority 0 only when they are named.
fn candidates<'a>(header: &'a Header, slots: &Slots) -> Vec<(u32, &'a Keyslot)> {
    let wanted = |number: u32, slot: &Keyslot| match &slots.only {
        Some(only) => only.contains(&number),
        None => slot.priority > 0,
    };
    let all = header.metadata.keyslots.iter();
    let mut chosen: Vec<(u32, &Keyslot)> = all
        .map(|(&number, slot)| (number, slot))
        .filter(|(number, slot)| wanted(*number, slot))
        .filter(|(_, slot)| matches!(slot.kind, KeyslotKind::Luks2(_)))
        .collect();
    chosen.sort_by_key(|(_, slot)| std::cmp::Reverse(slot.priority));
    chosen
}

/// Opens a key slot, and returns its key. `None` when the digest does not match the key: the
/// passphrase is wrong, or the area is damaged.
///
/// # Errors
/// [`LuksError::Cost`] and [`LuksError::Unsupported`] before anything is derived;
/// [`LuksError::Io`].
fn open_slot(
    source: &(impl Source + ?Sized),
    slot: &Keyslot,
    proof: &Digest,
    pass: &SecretBytes,
) -> Result<Option<SecretBytes>, LuksError> {
    let KeyslotKind::Luks2(luks2) = &slot.kind else {
        return Err(LuksError::Unsupported(
            "a key slot of another type".to_owned(),
        ));
    };
    let hash = hash_named(&luks2.af_hash, "of the stripes")?;
    let proof_hash = hash_named(&proof.hash, "of the digest")?;
    bounded(proof.iterations)?;
    if luks2.encryption != CIPHER || !matches!(luks2.area_key_size, 32 | 64) {
        let text = format!("cipher {} of a key slot", luks2.encryption);
        return Err(LuksError::Unsupported(text));
    }
    let area = Area {
        key: area_key(luks2, pass)?,
        offset: slot.offset,
    };
    let key_size = usize::try_from(slot.key_size).unwrap_or(usize::MAX);
    let mut merge = AfMerge::new(hash, key_size, luks2.stripes)?;
    area.stripes(source, &mut merge, key_size)?;
    let key = merge.finish()?;
    let known = pbkdf2_matches(
        proof_hash,
        &key,
        &proof.salt,
        proof.iterations,
        &proof.digest,
    );
    Ok(known.then_some(key))
}

/// Derives the key of a slot's area from the passphrase.
///
/// # Errors
/// [`LuksError::Cost`] when that asks for too much memory or time; [`LuksError::Unsupported`] for
/// an unknown hash or key derivation.
fn area_key(slot: &Luks2Slot, pass: &SecretBytes) -> Result<XtsKey, LuksError> {
    let len = usize::try_from(slot.area_key_size).unwrap_or(usize::MAX);
    let key = match &slot.kdf {
        Kdf::Pbkdf2 { hash, iterations } => {
            bounded(*iterations)?;
            let hash = hash_named(hash, "of the key derivation")?;
            pbkdf2(hash, pass, &slot.salt, *iterations, len)?
        }
        Kdf::Argon2 {
            id,
            time,
            memory_kib,
            cpus,
        } => {
            let params = Argon2Params {
                m_kib: *memory_kib,
                t: *time,
                p: *cpus,
            };
            params.check_work().map_err(|_| {
                LuksError::Cost(format!(
                    "Argon2 with {memory_kib} KiB, {time} passes and {cpus} lanes"
                ))
            })?;
            let kind = if *id { Argon2Kind::Id } else { Argon2Kind::I };
            argon2(kind, pass, &slot.salt, params, len)?
        }
        Kdf::Unknown(kind) => {
            let text = format!("key derivation {kind} of a key slot");
            return Err(LuksError::Unsupported(text));
        }
    };
    Ok(XtsKey::new(&key)?)
}

struct Area {
    key: XtsKey,
    offset: u64,
}

impl Area {
    /// Reads and decrypts the area sector by sector, and adds each stripe of `len` bytes to `merge`
    /// when it is complete, until `merge` has all.
    ///
    /// # Errors
    /// [`LuksError::Io`]; [`LuksError::Crypto`].
    fn stripes(
        &self,
        source: &(impl Source + ?Sized),
        merge: &mut AfMerge,
        len: usize,
    ) -> Result<(), LuksError> {
        let (mut sealed, mut tweak) = ([0; AREA_SECTOR], [0; 16]);
        let mut sector = SecretBytes::with_capacity(AREA_SECTOR)?;
        let mut stripe = SecretBytes::with_capacity(len)?;
        let mut filled = 0;
        for number in 0_u64.. {
            let at = self
                .offset
                .saturating_add(number.saturating_mul(AREA_SECTOR as u64));
            source
                .read_at(&mut sealed, at)
                .map_err(|error| LuksError::Io("reading a key slot".to_owned(), error))?;
            tweak[..8].copy_from_slice(&number.to_le_bytes());
            self.key.decrypt(&tweak, &sealed, sector.as_mut_slice())?;
            for &byte in sector.as_slice() {
                if merge.left() == 0 {
                    return Ok(());
                }
                if let Some(place) = stripe.as_mut_slice().get_mut(filled) {
                    *place = byte;
                }
                filled += 1;
                if filled == len {
                    merge.add(stripe.as_slice())?;
                    filled = 0;
                }
            }
        }
        Err(LuksError::Crypto(CryptoError::Length))
    }
}

/// Checks that PBKDF2 has at most [`ITERATIONS_MAX`] iterations. [`LuksError::Cost`] if it has
/// more.
fn bounded(iterations: NonZeroU32) -> Result<(), LuksError> {
    if iterations.get() <= ITERATIONS_MAX {
        return Ok(());
    }
    Err(LuksError::Cost(format!(
        "PBKDF2 with {iterations} iterations"
    )))
}

/// Returns the hash of this name. [`LuksError::Unsupported`] when there is none; `whose` says in
/// the message what needs it.
fn hash_named(name: &str, whose: &str) -> Result<LuksHash, LuksError> {
    LuksHash::named(name).ok_or_else(|| LuksError::Unsupported(format!("hash {name} {whose}")))
}
