//! Key derivation: HKDF-SHA-256 from keys, Argon2id from passphrases.
//!
//! Standards: RFC 5869; RFC 9106, version 0x13, without the optional secret and associated data.
//!
//! Invariants: the derived key is written straight into locked memory; the Argon2 matrix is wiped
//! after use; parameters read from a file are checked against bounds before they cost anything
//! (C10), so a forged header cannot make an opener allocate without limit.
//!
//! Must not: choose labels. The owner of the key hierarchy defines `info`.

use argon2::{Algorithm, Argon2, Params, Version};
use ring::hkdf::{self, HKDF_SHA256, KeyType};
use zeroize::Zeroize;

use crate::error::CryptoError;
use crate::harden::wipe_stack;
use crate::matrix::Matrix;
use crate::secret::{Locked, SecretBytes, SecretKey};

/// The shortest salt that Argon2 allows, in bytes (RFC 9106, section 3.1, recommends 16).
const SALT_LEN_MIN: usize = 8;

/// Derives a 32-byte key from another key: HKDF-SHA-256, extract and expand (RFC 5869).
///
/// `salt` may be empty. `info` names the use: keys with different `info` say nothing about each
/// other.
///
/// # Errors
/// [`CryptoError::OutOfLockedMemory`] if no memory for keys can be mapped.
pub fn hkdf(ikm: &SecretKey, salt: &[u8], info: &[u8]) -> Result<SecretKey, CryptoError> {
    SecretKey::filled_by(|out| hkdf_into(ikm.expose(), salt, info, out))
}

/// Derives a key of `len` bytes, at most 8160 (RFC 5869, section 2.3), from another key with
/// HKDF-SHA-256, in locked memory.
///
/// A shorter output with the same `info` is the beginning of a longer one: use each `info` with one
/// length only.
///
/// # Errors
/// [`CryptoError::TooLong`] for more than 8160 bytes; [`CryptoError::OutOfLockedMemory`] without
/// memory for keys.
pub fn hkdf_bytes(
    ikm: &SecretKey,
    salt: &[u8],
    info: &[u8],
    len: usize,
) -> Result<SecretBytes, CryptoError> {
    let mut out = SecretBytes::with_capacity(len)?;
    hkdf_into(ikm.expose(), salt, info, out.as_mut_slice())?;
    Ok(out)
}

/// Writes HKDF-SHA-256 of an input of any length into `out`; then wipes the stack. Errors:
/// [`CryptoError::TooLong`] for an output above 8160 bytes, [`CryptoError::OutOfLockedMemory`]
/// without memory for keys.
pub(crate) fn hkdf_into(
    ikm: &[u8],
    salt: &[u8],
    info: &[u8],
    out: &mut [u8],
) -> Result<(), CryptoError> {
    let done = extract_and_expand(ikm, salt, info, out);
    wipe_stack();
    done
}

/// The cost of turning a passphrase into a key. Not secret; stored beside the salt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argon2Params {
    /// Memory in KiB.
    pub m_kib: u32,
    /// Passes over the memory.
    pub t: u32,
    /// Lanes. Computed one after the other here; an attacker may compute them side by side.
    pub p: u32,
}

impl Argon2Params {
    /// 64 MiB, 3 passes, 4 lanes: RFC 9106, section 4, second recommended option.
    pub const RECOMMENDED: Self = Self {
        m_kib: 64 * 1024,
        t: 3,
        p: 4,
    };

    /// Most memory accepted, in KiB: 4 GiB.
    const M_KIB_MAX: u32 = 4 * 1024 * 1024;
    /// Least memory per lane, in KiB (RFC 9106, section 3.1).
    const M_KIB_PER_LANE_MIN: u32 = 8;
    const T_MAX: u32 = 64;
    const P_MAX: u32 = 64;

    /// Checks that the parameters lie within the bounds that Strongroom accepts: memory 8 KiB per
    /// lane to 4 GiB, 1 to 64 passes, 1 to 64 lanes.
    ///
    /// # Errors
    /// [`CryptoError::KdfParameters`] when they do not.
    pub fn check(&self) -> Result<(), CryptoError> {
        let lanes_ok = (1..=Self::P_MAX).contains(&self.p);
        let passes_ok = (1..=Self::T_MAX).contains(&self.t);
        // Cannot overflow once the lanes are known to be few; evaluated only then.
        let memory_ok =
            lanes_ok && (Self::M_KIB_PER_LANE_MIN * self.p..=Self::M_KIB_MAX).contains(&self.m_kib);
        if passes_ok && memory_ok {
            Ok(())
        } else {
            Err(CryptoError::KdfParameters)
        }
    }

    /// The most work that the key slots of one object may ask for together, in KiB that are filled:
    /// 64 passes over 4 GiB, which is what one slot may ask for alone.
    pub const WORK_MAX: u64 = Self::T_MAX as u64 * Self::M_KIB_MAX as u64;

    /// Returns the work of a derivation: memory in KiB times the number of passes.
    #[must_use]
    pub fn work(&self) -> u64 {
        u64::from(self.t) * u64::from(self.m_kib)
    }

    /// Checks the parameters as [`Argon2Params::check`] does, but allows more passes over less
    /// memory: it bounds the product, at 64 passes over 4 GiB. For parameters of LUKS2 headers,
    /// where cryptsetup chooses the passes by time.
    ///
    /// # Errors
    /// [`CryptoError::KdfParameters`] when they are out of bounds.
    pub fn check_work(&self) -> Result<(), CryptoError> {
        Self { t: 1, ..*self }.check()?;
        if self.t > 0 && self.work() <= Self::WORK_MAX {
            Ok(())
        } else {
            Err(CryptoError::KdfParameters)
        }
    }
}

/// Derives a 32-byte key from a passphrase: Argon2id (RFC 9106).
///
/// Takes the time and memory `params` ask for: about 0.1 s and 64 MiB as recommended.
///
/// # Errors
/// [`CryptoError::KdfParameters`] for parameters out of bounds or a salt shorter than 8 bytes,
/// [`CryptoError::OutOfMemory`] if the system refuses the memory,
/// [`CryptoError::OutOfLockedMemory`] without memory for keys.
pub fn argon2id(
    pass: &SecretBytes,
    salt: &[u8],
    params: Argon2Params,
) -> Result<SecretKey, CryptoError> {
    SecretKey::filled_by(|out| argon2id_into(pass.as_slice(), salt, params, out))
}

/// Checks the parameters, and writes Argon2id of a passphrase into `out`, of any length. Errors:
/// [`CryptoError::KdfParameters`] for parameters out of bounds or a salt shorter than 8 bytes;
/// [`CryptoError::OutOfMemory`].
pub(crate) fn argon2id_into(
    pass: &[u8],
    salt: &[u8],
    params: Argon2Params,
    out: &mut [u8],
) -> Result<(), CryptoError> {
    params.check()?;
    argon2_into(Algorithm::Argon2id, pass, salt, params, out)
}

/// Writes Argon2 of either kind into `out`, of any length; then wipes the stack. The caller has
/// checked the bounds of the parameters. Errors: [`CryptoError::KdfParameters`] for a salt shorter
/// than 8 bytes; [`CryptoError::OutOfMemory`]. When the computation itself fails, `out` is zeros.
pub(crate) fn argon2_into(
    algorithm: Algorithm,
    pass: &[u8],
    salt: &[u8],
    params: Argon2Params,
    out: &mut [u8],
) -> Result<(), CryptoError> {
    if salt.len() < SALT_LEN_MIN {
        return Err(CryptoError::KdfParameters);
    }
    let params = Params::new(params.m_kib, params.t, params.p, Some(out.len()))
        .map_err(|_| CryptoError::KdfParameters)?;
    let mut matrix = Matrix::new(params.block_count())?;
    let argon2 = Argon2::new(algorithm, Version::V0x13, params);
    let done = fill_and_hash(&argon2, pass, salt, &mut matrix, out);
    wipe_stack();
    if done.is_err() {
        out.zeroize();
    }
    done
}

/// Writes HKDF, extract and expand, into `out`. Not inlined, so that [`wipe_stack`] reaches the
/// copies of the key in its frames; the caller wipes. Errors: [`CryptoError::TooLong`] for an
/// output above 8160 bytes; [`CryptoError::OutOfLockedMemory`] without memory for keys.
#[inline(never)]
pub(crate) fn extract_and_expand(
    ikm: &[u8],
    salt: &[u8],
    info: &[u8],
    out: &mut [u8],
) -> Result<(), CryptoError> {
    let prk = Locked::new(hkdf::Salt::new(HKDF_SHA256, salt).extract(ikm))?;
    // Both refusals mean more than 255 blocks of output (RFC 5869, section 2.3).
    prk.expand(&[info], OutputLen(out.len()))
        .and_then(|okm| okm.fill(out))
        .map_err(|_| CryptoError::TooLong)
}

/// The length of HKDF's output, in bytes, as ring wants it.
struct OutputLen(usize);

impl KeyType for OutputLen {
    /// Returns the length of the output in bytes.
    fn len(&self) -> usize {
        self.0
    }
}

/// Runs Argon2 in the given matrix, which wipes itself when it is dropped, and writes the key into
/// `out`. Copies of the key stay on the stack: the caller calls [`wipe_stack`], which reaches them
/// because this is not inlined, and wipes `out` after an error. [`CryptoError::KdfParameters`] if
/// the matrix is too small, the salt too short, or a length not as the parameters say.
#[inline(never)]
fn fill_and_hash(
    argon2: &Argon2<'_>,
    pass: &[u8],
    salt: &[u8],
    matrix: &mut Matrix,
    out: &mut [u8],
) -> Result<(), CryptoError> {
    argon2
        .hash_password_into_with_memory(pass, salt, out, matrix.blocks())
        .map_err(|_| CryptoError::KdfParameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_labels_salts_and_keys_give_different_keys() {
        let ikm = SecretKey::generate().unwrap();
        let derived = hkdf(&ikm, b"salt", b"pages").unwrap();
        assert!(derived.ct_eq(&hkdf(&ikm, b"salt", b"pages").unwrap()));
        assert!(!derived.ct_eq(&hkdf(&ikm, b"salt", b"journal").unwrap()));
        assert!(!derived.ct_eq(&hkdf(&ikm, b"SALT", b"pages").unwrap()));
        let other = SecretKey::generate().unwrap();
        assert!(!derived.ct_eq(&hkdf(&other, b"salt", b"pages").unwrap()));
    }

    #[test]
    fn hkdf_output_is_limited_as_the_standard_says() {
        assert!(hkdf_into(b"k", b"", b"", &mut vec![0; 255 * 32]).is_ok());
        assert_eq!(
            hkdf_into(b"k", b"", b"", &mut vec![0; 255 * 32 + 1]),
            Err(CryptoError::TooLong)
        );
    }

    #[test]
    fn parameters_are_checked_at_each_bound() {
        let ok = |m_kib, t, p| Argon2Params { m_kib, t, p }.check().is_ok();
        assert!(Argon2Params::RECOMMENDED.check().is_ok());
        assert!(ok(8, 1, 1) && !ok(7, 1, 1));
        assert!(ok(32, 1, 4) && !ok(31, 1, 4));
        assert!(ok(4 * 1024 * 1024, 1, 1) && !ok(4 * 1024 * 1024 + 1, 1, 1));
        assert!(ok(1024, 64, 1) && !ok(1024, 65, 1) && !ok(1024, 0, 1));
        assert!(ok(1024, 1, 64) && !ok(1024, 1, 65) && !ok(1024, 1, 0));
        assert!(!ok(u32::MAX, u32::MAX, u32::MAX) && !ok(0, 0, 0));
    }

    #[test]
    fn more_passes_over_less_memory_are_bounded_by_their_product() {
        let ok = |m_kib, t, p| Argon2Params { m_kib, t, p }.check_work().is_ok();
        let most = 4 * 1024 * 1024;
        assert!(ok(most, 64, 1) && !ok(most, 65, 1) && ok(most / 2, 128, 4));
        assert!(ok(1024, 65, 4) && ok(1024, 64 * 4096, 4) && !ok(1024, 64 * 4096 + 1, 4));
        assert!(!ok(most + 1, 1, 1) && !ok(1024, 0, 1) && !ok(1024, 1, 65) && !ok(7, 1, 1));
        assert!(!ok(u32::MAX, u32::MAX, u32::MAX));
    }

    #[test]
    fn bad_parameters_and_short_salts_are_refused_before_any_work() {
        let pass = SecretBytes::take(&mut *b"passphrase".to_owned().as_mut()).unwrap();
        let small = Argon2Params {
            m_kib: 8,
            t: 1,
            p: 1,
        };
        let huge = Argon2Params {
            m_kib: u32::MAX,
            t: 1,
            p: 1,
        };
        assert_eq!(
            argon2id(&pass, &[0; 16], huge).err(),
            Some(CryptoError::KdfParameters)
        );
        assert_eq!(
            argon2id(&pass, &[0; 7], small).err(),
            Some(CryptoError::KdfParameters)
        );
        assert!(argon2id(&pass, &[0; 8], small).is_ok());
    }

    #[test]
    fn passphrase_salt_and_each_parameter_matter() {
        let pass = |text: &str| SecretBytes::take(&mut text.as_bytes().to_vec()).unwrap();
        let base = Argon2Params {
            m_kib: 64,
            t: 2,
            p: 2,
        };
        let key = argon2id(&pass("a"), &[1; 16], base).unwrap();
        let others = [
            argon2id(&pass("b"), &[1; 16], base),
            argon2id(&pass("a"), &[2; 16], base),
            argon2id(&pass("a"), &[1; 16], Argon2Params { m_kib: 72, ..base }),
            argon2id(&pass("a"), &[1; 16], Argon2Params { t: 3, ..base }),
            argon2id(&pass("a"), &[1; 16], Argon2Params { p: 1, ..base }),
        ];
        assert!(key.ct_eq(&argon2id(&pass("a"), &[1; 16], base).unwrap()));
        for other in others {
            assert!(!key.ct_eq(&other.unwrap()));
        }
    }
}
