//! RSA private keys, and RSAES-OAEP (RFC 8017, section 7.1) with SHA-256 and MGF1 with SHA-256, by
//! libcrypto.
//!
//! Invariants:
//! - Whatever libcrypto allocates while it works with a private key lies in the locked arena, and
//!   the key stays there (C1 to C3, C11).
//! - libcrypto's randomness is the kernel's (C6): key generation and padding ask `getrandom`, its
//!   own generator is not used.
//! - A key that is not RSA of 2048 to 4096 bits with an odd exponent from 65537 to 2^256 is refused
//!   wherever one is read.
//! - Every ciphertext that does not open looks the same ([`OpenError`]).
//!
//! Must not: read a file, or know what a certificate is.
#![expect(unsafe_code, reason = "gives libcrypto the kernel's random generator")]

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use openssl::bn::BigNum;
use openssl::error::ErrorStack;
use openssl::md::Md;
use openssl::pkey::{HasPublic, Id, PKey, PKeyRef, Private};
use openssl::pkey_ctx::PkeyCtx;
use openssl::rsa::Padding;
use zeroize::Zeroize;

use crate::error::{CertificateError, CryptoError, OpenError};
use crate::harden::wipe_stack;
use crate::libcrypto::{InArena, ciphers, forget_errors};
use crate::mac::sha256;
use crate::random::fill_random;
use crate::secret::{SecretBytes, SecretKey};

/// Smallest and largest modulus that may be used, in bits.
const BITS: std::ops::RangeInclusive<u32> = 2048..=4096;
/// Smallest and longest exponent: 2^16 + 1, and what fits into 256 bits (FIPS 186-5, section 5.1
/// (a)).
const EXPONENT_MIN: u32 = 65_537;
const EXPONENT_BITS_MAX: i32 = 256;

/// An RSA private key, in locked memory.
pub struct PrivateKey {
    key: PKey<Private>,
    id: [u8; 32],
}

impl PrivateKey {
    /// Makes a key pair of `bits` bits, 3072 or 4096, with the exponent 65537. Takes a few seconds.
    ///
    /// # Errors
    /// [`CertificateError::Weak`] for another size; [`CertificateError::Crypto`] when libcrypto
    /// fails, or without memory for keys.
    pub fn generate(bits: u32) -> Result<Self, CertificateError> {
        if bits != 3072 && bits != 4096 {
            return Err(CertificateError::Weak);
        }
        let key = with_private(|| {
            let mut context = PkeyCtx::new_id(Id::RSA)?;
            context.keygen_init()?;
            context.set_rsa_keygen_bits(bits)?;
            context.keygen()
        })?;
        Self::of(key.map_err(|_| CryptoError::Library)?)
    }

    /// Reads a private key in DER, into locked memory: PKCS #8 (RFC 5958) or PKCS #1.
    ///
    /// # Errors
    /// [`CertificateError::Malformed`] when it is none; [`CertificateError::Weak`] unless it is RSA
    /// of 2048 to 4096 bits with a sound exponent; [`CertificateError::Crypto`] when libcrypto
    /// fails, or without memory for keys.
    pub fn from_der(der: &[u8]) -> Result<Self, CertificateError> {
        let key = with_private(|| PKey::private_key_from_der(der))?;
        Self::of(key.map_err(|_| CertificateError::Malformed)?)
    }

    /// Returns the key as PKCS #8, in DER, in locked memory.
    ///
    /// # Errors
    /// [`CertificateError::Crypto`] if libcrypto fails, or there is no memory for keys.
    pub fn to_pkcs8(&self) -> Result<SecretBytes, CertificateError> {
        let encoded = with_private(|| self.key.private_key_to_pkcs8())?;
        let mut bytes = encoded.map_err(|_| CryptoError::Library)?;
        // `take` wipes what it was given; the vector was made with exactly this length.
        Ok(SecretBytes::take(&mut bytes)?)
    }

    /// Returns the SHA-256 of the `SubjectPublicKeyInfo`: the same for every certificate of this
    /// key.
    #[must_use]
    pub fn id(&self) -> [u8; 32] {
        self.id
    }

    /// Returns the length of the modulus, in bits.
    #[must_use]
    pub fn bits(&self) -> u32 {
        self.key.bits()
    }

    /// Decrypts a key of 32 bytes that was encrypted for this key pair with this label
    /// (RSAES-OAEP).
    ///
    /// # Errors
    /// [`OpenError`] for another key pair, another label, changed bytes, or a plaintext that is not
    /// 32 bytes long.
    pub fn unwrap(&self, wrapped: &[u8], label: &[u8]) -> Result<SecretKey, OpenError> {
        let opened = self.open(wrapped, label)?;
        let bytes: &[u8; 32] = opened.as_slice().try_into().map_err(|_| OpenError)?;
        let filled = SecretKey::filled_by(|cell| {
            cell.copy_from_slice(bytes);
            Ok(())
        });
        filled.map_err(|_| OpenError)
    }

    /// Decrypts with RSAES-OAEP and this label, into locked memory. A plaintext has at most as many
    /// bytes as the modulus less 66. Errors: [`OpenError`] for anything that does not open.
    pub(crate) fn open(&self, sealed: &[u8], label: &[u8]) -> Result<SecretBytes, OpenError> {
        // libcrypto wants room for a whole modulus.
        let room = self.key.size();
        if sealed.len() != room {
            return Err(OpenError);
        }
        let mut out = SecretBytes::with_capacity(room).map_err(|_| OpenError)?;
        let opened = with_private(|| {
            let mut context = PkeyCtx::new(&self.key)?;
            context.decrypt_init()?;
            set_oaep(&mut context, label)?;
            context.decrypt(sealed, Some(out.as_mut_slice()))
        });
        let len = opened.map_err(|_| OpenError)?.map_err(|_| OpenError)?;
        out.truncate(len);
        Ok(out)
    }

    /// Returns libcrypto's key.
    pub(crate) fn inner(&self) -> &PKeyRef<Private> {
        &self.key
    }

    /// Checks a key and computes its id. Errors: [`CertificateError::Weak`] unless it is RSA of
    /// 2048 to 4096 bits with a sound exponent; [`CertificateError::Crypto`] when libcrypto fails,
    /// or without memory for keys.
    pub(crate) fn of(key: PKey<Private>) -> Result<Self, CertificateError> {
        let id = with_private(|| checked_id(&key))??;
        Ok(Self { key, id })
    }
}

/// Encrypts a key with RSAES-OAEP and this label for the owner of `public`. The ciphertext is as
/// long as the modulus. Errors: [`CryptoError::Library`] when the library fails;
/// [`CryptoError::OutOfLockedMemory`] without memory for keys.
pub(crate) fn encrypt_for<T: HasPublic>(
    public: &PKeyRef<T>,
    key: &SecretKey,
    label: &[u8],
) -> Result<Vec<u8>, CryptoError> {
    let mut out = vec![0; public.size()];
    let written = with_private(|| {
        let mut context = PkeyCtx::new(public)?;
        context.encrypt_init()?;
        set_oaep(&mut context, label)?;
        context.encrypt(key.expose(), Some(&mut out))
    })?;
    match written {
        Ok(len) if len == out.len() => Ok(out),
        _ => Err(CryptoError::Library),
    }
}

/// Checks a key, and returns the SHA-256 of its `SubjectPublicKeyInfo`. Errors:
/// [`CertificateError::Weak`] unless the key is RSA of 2048 to 4096 bits, in steps of 64, with an
/// odd exponent from 65537 to 2^256; [`CertificateError::Crypto`] when libcrypto fails, or without
/// memory for keys.
pub(crate) fn checked_id<T: HasPublic>(key: &PKeyRef<T>) -> Result<[u8; 32], CertificateError> {
    if key.id() != Id::RSA || !BITS.contains(&key.bits()) || !key.bits().is_multiple_of(64) {
        return Err(CertificateError::Weak);
    }
    let library = |_: ErrorStack| CertificateError::Crypto(CryptoError::Library);
    let rsa = key.rsa().map_err(library)?;
    let least = BigNum::from_u32(EXPONENT_MIN).map_err(library)?;
    let exponent = rsa.e();
    let sound = exponent.ucmp(&least).is_ge()
        && exponent.num_bits() <= EXPONENT_BITS_MAX
        && exponent.is_bit_set(0);
    if !sound {
        return Err(CertificateError::Weak);
    }
    Ok(sha256(&[&key.public_key_to_der().map_err(library)?]))
}

/// Runs `work` and returns its result. Whatever libcrypto allocates in this thread meanwhile is in
/// locked memory; afterwards its queue of errors is emptied and the stack wiped. Errors:
/// [`CryptoError::Library`] when libcrypto cannot be set up; `work` is then not run.
#[inline(never)]
pub(crate) fn with_private<T>(work: impl FnOnce() -> T) -> Result<T, CryptoError> {
    set_up()?;
    let locked = InArena::enter();
    let done = work();
    drop(locked);
    forget_errors();
    wipe_stack();
    Ok(done)
}

/// Chooses OAEP with SHA-256, MGF1 with SHA-256 and this label. Errors: libcrypto's.
fn set_oaep<T>(context: &mut PkeyCtx<T>, label: &[u8]) -> Result<(), ErrorStack> {
    context.set_rsa_padding(Padding::PKCS1_OAEP)?;
    context.set_rsa_oaep_md(Md::sha256())?;
    context.set_rsa_mgf1_md(Md::sha256())?;
    // No label and an empty one are the same; libcrypto takes no empty one.
    match label {
        [] => Ok(()),
        label => context.set_rsa_oaep_label(label),
    }
}

/// `RAND_METHOD` (openssl/rand.h).
#[repr(C)]
struct RandMethod {
    seed: Option<unsafe extern "C" fn(*const c_void, c_int) -> c_int>,
    bytes: Option<unsafe extern "C" fn(*mut u8, c_int) -> c_int>,
    cleanup: Option<unsafe extern "C" fn()>,
    add: Option<unsafe extern "C" fn(*const c_void, c_int, f64) -> c_int>,
    pseudorand: Option<unsafe extern "C" fn(*mut u8, c_int) -> c_int>,
    status: Option<unsafe extern "C" fn() -> c_int>,
}

// In openssl/rand.h, but not in openssl-sys.
unsafe extern "C" {
    /// Makes libcrypto take its random bytes from this method, in the whole process. Returns 1 on
    /// success.
    fn RAND_set_rand_method(method: *const RandMethod) -> c_int;
}

static KERNEL: RandMethod = RandMethod {
    seed: None,
    bytes: Some(from_kernel),
    cleanup: None,
    add: None,
    pseudorand: Some(from_kernel),
    status: Some(always_ready),
};

/// Writes random bytes of the kernel for libcrypto. Returns 1 when they were written, 0 when there
/// are none.
unsafe extern "C" fn from_kernel(out: *mut u8, len: c_int) -> c_int {
    let Ok(len) = usize::try_from(len) else {
        return 0;
    };
    if len == 0 {
        return 1;
    }
    // SAFETY: libcrypto gives `len` writable bytes (RAND_bytes(3)).
    let out = unsafe { std::slice::from_raw_parts_mut(out, len) };
    if fill_random(out).is_ok() {
        return 1;
    }
    out.zeroize();
    0
}

/// Tells libcrypto that there is randomness: returns 1.
unsafe extern "C" fn always_ready() -> c_int {
    1
}

/// Sets libcrypto up for work with private keys, at the first call: its randomness comes from the
/// kernel. Errors: [`CryptoError::Library`] when something else in the process has used it before,
/// or it lacks a cipher.
pub(crate) fn set_up() -> Result<(), CryptoError> {
    static DONE: OnceLock<bool> = OnceLock::new();
    ciphers()?;
    let done = DONE.get_or_init(|| {
        // SAFETY: libcrypto has been initialised, without configuration file and exit handler;
        // `init` would do it again.
        unsafe { openssl_sys::assume_init() };
        // SAFETY: the method is a constant; its functions keep the contract of RAND_bytes(3).
        unsafe { RAND_set_rand_method(&raw const KERNEL) == 1 }
    });
    done.then_some(()).ok_or(CryptoError::Library)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::vectors::oaep_key;

    #[test]
    fn what_was_wrapped_opens_with_its_key_and_label_only() {
        let private = oaep_key(2048);
        let other = oaep_key(3072);
        let key = SecretKey::generate().unwrap();
        let wrapped = encrypt_for(private.inner(), &key, b"label").unwrap();
        assert_eq!(wrapped.len(), 256);
        assert!(private.unwrap(&wrapped, b"label").unwrap().ct_eq(&key));
        for (label, bytes) in [
            (&b"labem"[..], wrapped.clone()),
            (b"", wrapped.clone()),
            (b"label", wrapped[1..].to_vec()),
            (b"label", [&wrapped[..], &[0]].concat()),
            (b"label", Vec::new()),
            (b"label", vec![0xff; 256]),
        ] {
            assert!(private.unwrap(&bytes, label).is_err());
        }
        assert!(other.unwrap(&wrapped, b"label").is_err());
        for at in (0..wrapped.len()).step_by(17) {
            let mut bad = wrapped.clone();
            bad[at] ^= 1;
            assert!(private.unwrap(&bad, b"label").is_err(), "byte {at}");
        }
        let again = encrypt_for(private.inner(), &key, b"label").unwrap();
        assert_ne!(wrapped, again, "the padding is random");
    }

    #[test]
    fn a_message_that_is_no_key_does_not_open_as_one() {
        let private = oaep_key(2048);
        for len in [0, 31, 33] {
            let mut sealed = vec![0; 256];
            set_up().unwrap();
            let mut context = PkeyCtx::new(private.inner()).unwrap();
            context.encrypt_init().unwrap();
            set_oaep(&mut context, b"l").unwrap();
            context.encrypt(&vec![7; len], Some(&mut sealed)).unwrap();
            assert_eq!(private.open(&sealed, b"l").unwrap().len(), len);
            assert!(private.unwrap(&sealed, b"l").is_err(), "{len} bytes");
        }
    }

    #[test]
    fn a_generated_key_survives_its_encoding() {
        let made = PrivateKey::generate(3072).unwrap();
        assert_eq!(made.bits(), 3072);
        let encoded = made.to_pkcs8().unwrap();
        let read = PrivateKey::from_der(encoded.as_slice()).unwrap();
        assert_eq!(read.id(), made.id());
        let key = SecretKey::generate().unwrap();
        let wrapped = encrypt_for(made.inner(), &key, b"x").unwrap();
        assert!(read.unwrap(&wrapped, b"x").unwrap().ct_eq(&key));
        let second = PrivateKey::generate(3072).unwrap();
        assert_ne!(second.id(), made.id(), "two keys");
    }

    #[test]
    fn weak_keys_are_refused() {
        for bits in [0, 1024, 2048, 3071, 8192] {
            let made = PrivateKey::generate(bits).err();
            assert_eq!(made, Some(CertificateError::Weak), "{bits}");
        }
        set_up().unwrap();
        let short = openssl::rsa::Rsa::generate(1024).unwrap();
        let read = PrivateKey::from_der(&short.private_key_to_der().unwrap()).err();
        assert_eq!(read, Some(CertificateError::Weak), "1024 bits");
        let three = BigNum::from_u32(3).unwrap();
        let three = openssl::rsa::Rsa::generate_with_e(2048, &three).unwrap();
        let read = PrivateKey::from_der(&three.private_key_to_der().unwrap()).err();
        assert_eq!(read, Some(CertificateError::Weak), "the exponent 3");
        let curve = PKey::ec_gen("P-256").unwrap();
        let read = PrivateKey::from_der(&curve.private_key_to_der().unwrap()).err();
        assert_eq!(read, Some(CertificateError::Weak), "not RSA");
        for bytes in [&[][..], &[0x30], &[0x30, 0], b"-----BEGIN PRIVATE KEY-----"] {
            let read = PrivateKey::from_der(bytes).err();
            assert_eq!(read, Some(CertificateError::Malformed));
        }
    }

    #[test]
    fn libcrypto_asks_the_kernel() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        unsafe extern "C" fn counted(out: *mut u8, len: c_int) -> c_int {
            ASKED.fetch_add(1, Ordering::Relaxed);
            // SAFETY: passed on as it came.
            unsafe { from_kernel(out, len) }
        }
        static COUNTED: RandMethod = RandMethod {
            bytes: Some(counted),
            ..KERNEL_AGAIN
        };
        const KERNEL_AGAIN: RandMethod = RandMethod {
            seed: None,
            bytes: Some(from_kernel),
            cleanup: None,
            add: None,
            pseudorand: Some(from_kernel),
            status: Some(always_ready),
        };
        let private = oaep_key(2048);
        // SAFETY: as in `set_up`.
        unsafe { RAND_set_rand_method(&raw const COUNTED) };
        let key = SecretKey::generate().unwrap();
        encrypt_for(private.inner(), &key, b"x").unwrap();
        // SAFETY: as in `set_up`.
        unsafe { RAND_set_rand_method(&raw const KERNEL) };
        assert!(ASKED.load(Ordering::Relaxed) > 0, "the padding's seed");
    }
}
