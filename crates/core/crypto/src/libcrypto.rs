//! OpenSSL's libcrypto: its set-up, for all of this crate, and its cipher contexts for XTS,
//! AES-192-GCM, AES-256-GCM with long nonces and Triple DES, which hold key schedules and are used
//! without allocating.
//!
//! Invariants:
//! - Whatever libcrypto allocates while a key is set up lies in the locked arena (C1 to C3);
//!   everything else it allocates comes from the C library. A thread-local switch selects one
//!   of the two; when memory is freed, its address tells where it came from.
//! - Nothing of libcrypto is called before [`ciphers`] has set it up: it refuses other memory
//!   functions afterwards.
//! - No configuration file is read, no module is loaded, no handler is left for the end of the
//!   process: this runs inside programs that know nothing of it.
//!
//! Must not: be used for an operation that ring or a Rust crate offers here.
#![expect(unsafe_code, reason = "libcrypto is a C library")]

use std::cell::Cell as Flag;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use openssl_sys as ffi;

use crate::arena::Cell;
use crate::error::CryptoError;

/// `OPENSSL_INIT_NO_LOAD_CONFIG` | `OPENSSL_INIT_NO_ATEXIT` (openssl/crypto.h).
const INIT_QUIETLY: u64 = 0x0000_0080 | 0x0008_0000;

type Malloc = unsafe extern "C" fn(usize, *const c_char, c_int) -> *mut c_void;
type Realloc = unsafe extern "C" fn(*mut c_void, usize, *const c_char, c_int) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void, *const c_char, c_int);

// In openssl/crypto.h, but not in openssl-sys.
unsafe extern "C" {
    /// Makes libcrypto allocate by these functions. Returns 1, or 0 once it has allocated anything.
    fn CRYPTO_set_mem_functions(malloc: Malloc, realloc: Realloc, free: Free) -> c_int;
    /// Initialises libcrypto with these options; null means no settings. Returns 1 on success.
    fn OPENSSL_init_crypto(options: u64, settings: *const c_void) -> c_int;
}

/// The ciphers, fetched once. Their methods are shared and never freed.
pub(crate) struct Ciphers {
    aes_128_xts: NonNull<ffi::EVP_CIPHER>,
    aes_256_xts: NonNull<ffi::EVP_CIPHER>,
    aes_192_gcm: NonNull<ffi::EVP_CIPHER>,
    aes_256_gcm: NonNull<ffi::EVP_CIPHER>,
    /// `None` when libcrypto no longer has it; everything else works without.
    des_ede3_cbc: Option<NonNull<ffi::EVP_CIPHER>>,
}

// SAFETY: a fetched cipher is immutable and reference-counted; contexts only read it.
unsafe impl Send for Ciphers {}
// SAFETY: as above.
unsafe impl Sync for Ciphers {}

/// Which way a context works. XTS decrypts with another key schedule than it encrypts with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Encrypt,
    Decrypt,
}

/// A cipher context with its key, all of it in locked memory.
pub(crate) struct Context(NonNull<ffi::EVP_CIPHER_CTX>);

// SAFETY: a context belongs to no thread; one at a time may use it, which `&mut self` ensures.
unsafe impl Send for Context {}
// SAFETY: a shared context can only be copied, which reads it and counts a reference to its cipher
// atomically.
unsafe impl Sync for Context {}

impl Context {
    /// Expands an XTS key into a context: 32 bytes for AES-128, 64 for AES-256, both halves
    /// together. Errors: [`CryptoError::Key`] for another length; [`CryptoError::Library`] without
    /// libcrypto; [`CryptoError::OutOfLockedMemory`] without memory for keys.
    pub(crate) fn xts(key: &[u8], direction: Direction) -> Result<Self, CryptoError> {
        let ciphers = ciphers()?;
        let cipher = match key.len() {
            32 => ciphers.aes_128_xts,
            64 => ciphers.aes_256_xts,
            _ => return Err(CryptoError::Key),
        };
        // SAFETY: the key has the cipher's length; there is no tweak yet.
        unsafe { Self::keyed(cipher, key, None, direction) }
    }

    /// Makes a context with an expanded key, in locked memory. Errors: [`CryptoError::Key`] when
    /// libcrypto refuses the key; [`CryptoError::OutOfLockedMemory`] without memory for keys.
    ///
    /// # Safety
    ///
    /// `key`, and `iv` if there is one, are as long as the cipher's.
    unsafe fn keyed(
        cipher: NonNull<ffi::EVP_CIPHER>,
        key: &[u8],
        iv: Option<&[u8]>,
        direction: Direction,
    ) -> Result<Self, CryptoError> {
        let _locked = InArena::enter();
        let context = Self::empty()?;
        // SAFETY: context and cipher are valid; the lengths are the caller's promise; no engine.
        let done = unsafe {
            ffi::EVP_CipherInit_ex(
                context.0.as_ptr(),
                cipher.as_ptr(),
                ptr::null_mut(),
                key.as_ptr(),
                iv.map_or(ptr::null(), <[u8]>::as_ptr),
                c_int::from(direction == Direction::Encrypt),
            )
        };
        if done != 1 {
            forget_errors();
            return Err(CryptoError::Key);
        }
        Ok(context)
    }

    /// Copies the context with all its state (key, direction, and nonce and progress of a message
    /// that has begun) into locked memory. Errors: [`CryptoError::OutOfLockedMemory`], whatever the
    /// reason.
    pub(crate) fn try_clone(&self) -> Result<Self, CryptoError> {
        let _locked = InArena::enter();
        let copy = Self::empty()?;
        // SAFETY: both are valid contexts; nobody writes to `self`, which is borrowed.
        let done = unsafe { ffi::EVP_CIPHER_CTX_copy(copy.0.as_ptr(), self.0.as_ptr()) };
        if done != 1 {
            forget_errors();
            return Err(CryptoError::OutOfLockedMemory);
        }
        Ok(copy)
    }

    /// Encrypts or decrypts one data unit of XTS. `from` and `to` are of equal length, a multiple
    /// of 16 that is not zero. Allocates nothing. Errors: [`CryptoError::Length`] for unequal
    /// lengths; [`CryptoError::TooLong`] above 2 GiB; [`CryptoError::Library`] when the library
    /// fails.
    pub(crate) fn apply_xts(
        &mut self,
        tweak: &[u8; 16],
        from: &[u8],
        to: &mut [u8],
    ) -> Result<(), CryptoError> {
        let len = c_int::try_from(from.len()).map_err(|_| CryptoError::TooLong)?;
        if from.len() != to.len() {
            return Err(CryptoError::Length);
        }
        // SAFETY: the context has cipher and key; the tweak has 16 bytes. -1 keeps the direction.
        let begun = unsafe {
            ffi::EVP_CipherInit_ex(
                self.0.as_ptr(),
                ptr::null(),
                ptr::null_mut(),
                ptr::null(),
                tweak.as_ptr(),
                -1,
            )
        };
        let mut written = 0;
        // SAFETY: `from` is readable and `to` writable for `len` bytes; XTS writes as much as it
        // reads.
        let done = begun == 1
            && unsafe {
                ffi::EVP_CipherUpdate(
                    self.0.as_ptr(),
                    to.as_mut_ptr(),
                    &raw mut written,
                    from.as_ptr(),
                    len,
                )
            } == 1;
        if done && written == len {
            return Ok(());
        }
        forget_errors();
        Err(CryptoError::Library)
    }

    /// Expands an AES-192 key of 24 bytes for one message of GCM with a 96-bit nonce. Errors:
    /// [`CryptoError::Key`] for another length; [`CryptoError::Library`] without libcrypto;
    /// [`CryptoError::OutOfLockedMemory`] without memory for keys.
    pub(crate) fn gcm_192(
        key: &[u8],
        nonce: &[u8; 12],
        direction: Direction,
    ) -> Result<Self, CryptoError> {
        if key.len() != 24 {
            return Err(CryptoError::Key);
        }
        let cipher = ciphers()?.aes_192_gcm;
        // SAFETY: key and nonce have the cipher's lengths.
        unsafe { Self::keyed(cipher, key, Some(nonce), direction) }
    }

    /// Expands an AES-256 key for messages of GCM with nonces of 128 bits; each begins with
    /// [`Context::begin`]. Errors: [`CryptoError::Library`] when the library fails;
    /// [`CryptoError::OutOfLockedMemory`] without memory for keys.
    pub(crate) fn gcm_256_iv16(key: &[u8; 32], direction: Direction) -> Result<Self, CryptoError> {
        let cipher = ciphers()?.aes_256_gcm;
        let _locked = InArena::enter();
        // SAFETY: the key has the cipher's length; there is no nonce yet.
        let context = unsafe { Self::keyed(cipher, key, None, direction) }?;
        // SAFETY: a valid context, whose cipher is GCM; the command takes a length and no pointer.
        let done = unsafe {
            ffi::EVP_CIPHER_CTX_ctrl(
                context.0.as_ptr(),
                ffi::EVP_CTRL_GCM_SET_IVLEN,
                16,
                ptr::null_mut(),
            )
        };
        succeeded(done).map(|()| context)
    }

    /// Begins a message under this nonce; only for a context of [`Context::gcm_256_iv16`]. Errors:
    /// [`CryptoError::Library`] when the library fails.
    pub(crate) fn begin(&mut self, nonce: &[u8; 16]) -> Result<(), CryptoError> {
        // SAFETY: the context has cipher and key; the nonce is as long as `gcm_256_iv16` said.
        let begun = unsafe {
            ffi::EVP_CipherInit_ex(
                self.0.as_ptr(),
                ptr::null(),
                ptr::null_mut(),
                ptr::null(),
                nonce.as_ptr(),
                -1,
            )
        };
        succeeded(begun)
    }

    /// Expands three DES keys, 24 bytes together, for one message in CBC mode without padding.
    /// Errors: [`CryptoError::Key`] for another length of keys or `iv`; [`CryptoError::Library`]
    /// when libcrypto does not have the cipher; [`CryptoError::OutOfLockedMemory`] without memory
    /// for keys.
    pub(crate) fn triple_des(
        keys: &[u8],
        iv: &[u8],
        direction: Direction,
    ) -> Result<Self, CryptoError> {
        if keys.len() != 24 || iv.len() != 8 {
            return Err(CryptoError::Key);
        }
        let cipher = ciphers()?.des_ede3_cbc;
        #[cfg(test)]
        let cipher = cipher.filter(|_| !TRIPLE_DES_ABSENT.get());
        let cipher = cipher.ok_or(CryptoError::Library)?;
        let _locked = InArena::enter();
        // SAFETY: keys and vector have the cipher's lengths.
        let context = unsafe { Self::keyed(cipher, keys, Some(iv), direction) }?;
        // SAFETY: a valid context, whose cipher is set. Padding is the caller's.
        let bare = unsafe { ffi::EVP_CIPHER_CTX_set_padding(context.0.as_ptr(), 0) };
        if bare != 1 {
            forget_errors();
            return Err(CryptoError::Key);
        }
        Ok(context)
    }

    /// Adds associated data; call it before the message. Errors: [`CryptoError::TooLong`] above 2
    /// GiB; [`CryptoError::Library`] when the library fails.
    pub(crate) fn add_associated_data(&mut self, aad: &[u8]) -> Result<(), CryptoError> {
        let len = c_int::try_from(aad.len()).map_err(|_| CryptoError::TooLong)?;
        let mut taken = 0;
        // SAFETY: `aad` is readable for `len` bytes; no output means associated data
        // (EVP_EncryptInit(3)).
        let done = unsafe {
            ffi::EVP_CipherUpdate(
                self.0.as_ptr(),
                ptr::null_mut(),
                &raw mut taken,
                aad.as_ptr(),
                len,
            )
        };
        succeeded(done)
    }

    /// Encrypts or decrypts in place: the whole message of GCM, or whole blocks of one in CBC. Does
    /// nothing for an empty one, which libcrypto would take for associated data. Errors:
    /// [`CryptoError::TooLong`] above 2 GiB; [`CryptoError::Library`] when the library fails.
    pub(crate) fn apply_in_place(&mut self, in_out: &mut [u8]) -> Result<(), CryptoError> {
        if in_out.is_empty() {
            return Ok(());
        }
        let len = c_int::try_from(in_out.len()).map_err(|_| CryptoError::TooLong)?;
        let bytes = in_out.as_mut_ptr();
        let mut written = 0;
        // SAFETY: `bytes` is readable and writable for `len` bytes; GCM, and CBC of whole blocks
        // without padding, write as much as they read, and may do so in place (EVP_EncryptInit(3)).
        let done =
            unsafe { ffi::EVP_CipherUpdate(self.0.as_ptr(), bytes, &raw mut written, bytes, len) };
        succeeded(c_int::from(done == 1 && written == len))
    }

    /// Ends the encryption of a message and returns its tag. Errors: [`CryptoError::Library`] when
    /// the library fails.
    pub(crate) fn finish_with_tag(&mut self) -> Result<[u8; 16], CryptoError> {
        self.finish()?;
        let mut tag = [0_u8; 16];
        // SAFETY: the tag is writable for 16 bytes, the length that is named.
        let done = unsafe {
            ffi::EVP_CIPHER_CTX_ctrl(
                self.0.as_ptr(),
                ffi::EVP_CTRL_GCM_GET_TAG,
                16,
                tag.as_mut_ptr().cast(),
            )
        };
        succeeded(done).map(|()| tag)
    }

    /// Ends the decryption of a message and verifies its tag. Errors: [`CryptoError::Library`] when
    /// the tag differs.
    pub(crate) fn finish_and_verify(&mut self, tag: &[u8; 16]) -> Result<(), CryptoError> {
        let mut tag = *tag;
        // SAFETY: the tag is readable for 16 bytes, the length that is named; it is copied.
        let done = unsafe {
            ffi::EVP_CIPHER_CTX_ctrl(
                self.0.as_ptr(),
                ffi::EVP_CTRL_GCM_SET_TAG,
                16,
                tag.as_mut_ptr().cast(),
            )
        };
        succeeded(done)?;
        self.finish()
    }

    /// Ends a message; when it is decrypted with GCM this verifies its tag. Errors:
    /// [`CryptoError::Library`] when the library fails.
    fn finish(&mut self) -> Result<(), CryptoError> {
        let mut rest = [0_u8; 16];
        let mut written = 0;
        // SAFETY: room for a block, more than GCM writes at the end, which is nothing.
        let done =
            unsafe { ffi::EVP_CipherFinal(self.0.as_ptr(), rest.as_mut_ptr(), &raw mut written) };
        succeeded(done)
    }

    /// Makes a context without cipher and key. Errors: [`CryptoError::OutOfLockedMemory`] without
    /// memory for keys.
    fn empty() -> Result<Self, CryptoError> {
        // SAFETY: no arguments; null when there is no memory.
        let context = unsafe { ffi::EVP_CIPHER_CTX_new() };
        NonNull::new(context)
            .map(Self)
            .ok_or(CryptoError::OutOfLockedMemory)
    }
}

impl Drop for Context {
    /// Frees the context; its key is wiped when its memory goes back to the arena.
    fn drop(&mut self) {
        // SAFETY: made by EVP_CIPHER_CTX_new and freed once.
        unsafe { ffi::EVP_CIPHER_CTX_free(self.0.as_ptr()) };
    }
}

/// Turns libcrypto's result into ours: 1 is success. Otherwise drops libcrypto's errors, and
/// returns [`CryptoError::Library`] when the library fails.
fn succeeded(done: c_int) -> Result<(), CryptoError> {
    if done == 1 {
        return Ok(());
    }
    forget_errors();
    Err(CryptoError::Library)
}

/// Sets libcrypto up at the first call, and returns its ciphers. Errors: [`CryptoError::Library`]
/// when another part of the process has used this libcrypto before, or a cipher is missing; a
/// missing Triple DES is none.
pub(crate) fn ciphers() -> Result<&'static Ciphers, CryptoError> {
    static CIPHERS: OnceLock<Option<Ciphers>> = OnceLock::new();
    CIPHERS
        .get_or_init(|| {
            // SAFETY: the three functions keep the contract of malloc, realloc and free. It is
            // refused, with 0, once libcrypto has allocated anything.
            let hooked = unsafe { CRYPTO_set_mem_functions(allocate, reallocate, release) };
            if hooked != 1 {
                return None;
            }
            // SAFETY: known options, no settings.
            if unsafe { OPENSSL_init_crypto(INIT_QUIETLY, ptr::null()) } != 1 {
                return None;
            }
            Some(Ciphers {
                aes_128_xts: fetch_cipher(c"AES-128-XTS")?,
                aes_256_xts: fetch_cipher(c"AES-256-XTS")?,
                aes_192_gcm: fetch_cipher(c"AES-192-GCM")?,
                aes_256_gcm: fetch_cipher(c"AES-256-GCM")?,
                des_ede3_cbc: fetch_cipher(c"DES-EDE3-CBC"),
            })
        })
        .as_ref()
        .ok_or(CryptoError::Library)
}

/// Fetches the cipher of this name, which is never freed; `None` when libcrypto has none.
fn fetch_cipher(name: &std::ffi::CStr) -> Option<NonNull<ffi::EVP_CIPHER>> {
    // SAFETY: the name is a C string; null means the default context and no properties.
    let cipher = unsafe { ffi::EVP_CIPHER_fetch(ptr::null_mut(), name.as_ptr(), ptr::null()) };
    NonNull::new(cipher)
}

#[cfg(test)]
thread_local! {
    static TRIPLE_DES_ABSENT: Flag<bool> = const { Flag::new(false) };
}

/// While it lives this thread's libcrypto has no Triple DES, as one of the future.
#[cfg(test)]
pub(crate) struct WithoutTripleDes;

/// Acts in this thread as if libcrypto had no triple DES, until the result is dropped. For tests.
#[cfg(test)]
pub(crate) fn without_triple_des() -> WithoutTripleDes {
    TRIPLE_DES_ABSENT.set(true);
    WithoutTripleDes
}

#[cfg(test)]
impl Drop for WithoutTripleDes {
    /// Gives this thread's libcrypto its Triple DES back.
    fn drop(&mut self) {
        TRIPLE_DES_ABSENT.set(false);
    }
}

/// Empties this thread's queue of libcrypto's errors: it must not grow, nor tell a later caller of
/// something that was ours.
pub(crate) fn forget_errors() {
    // SAFETY: touches the calling thread's queue only.
    unsafe { ffi::ERR_clear_error() };
}

thread_local! {
    /// Whether allocations of this thread hold keys.
    static SETTING_UP_A_KEY: Flag<bool> = const { Flag::new(false) };
}

/// While it lives, this thread's allocations in libcrypto go to the arena. Holds what was before:
/// it can be nested.
pub(crate) struct InArena(bool);

impl InArena {
    /// Directs what libcrypto allocates in this thread to locked memory, until the result is
    /// dropped. Can be nested.
    pub(crate) fn enter() -> Self {
        Self(SETTING_UP_A_KEY.replace(true))
    }
}

impl Drop for InArena {
    /// Restores where this thread's allocations went before.
    fn drop(&mut self) {
        SETTING_UP_A_KEY.set(self.0);
    }
}

/// Cells that libcrypto owns. A cell's address is what libcrypto holds.
static OWNED: Mutex<Vec<Owned>> = Mutex::new(Vec::new());
/// Lowest and highest address ever handed out from the arena: `release` is called for every
/// allocation of libcrypto, and almost none of them is one of ours.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

struct Owned {
    cell: Cell,
    len: usize,
}

/// Takes the mutex of the list of allocations in locked memory.
fn owned() -> MutexGuard<'static, Vec<Owned>> {
    OWNED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Allocates locked memory for libcrypto, and enters it in the list. Null when none is left.
fn allocate_locked(len: usize) -> *mut c_void {
    let Ok(cell) = Cell::new(len) else {
        return ptr::null_mut();
    };
    let base = cell.base();
    let address = base.addr().get();
    LOWEST.fetch_min(address, Ordering::Relaxed);
    HIGHEST.fetch_max(address, Ordering::Relaxed);
    let mut owned = owned();
    if owned.try_reserve(1).is_err() {
        return ptr::null_mut();
    }
    owned.push(Owned { cell, len });
    base.as_ptr().cast()
}

/// Removes the cell at `address` from the list and returns it; `None` when the memory is not from
/// the arena.
fn taken(address: *mut c_void) -> Option<Owned> {
    let number = address.addr();
    let possible = LOWEST.load(Ordering::Relaxed)..=HIGHEST.load(Ordering::Relaxed);
    if !possible.contains(&number) {
        return None;
    }
    let mut owned = owned();
    let index = owned
        .iter()
        .position(|one| one.cell.base().addr().get() == number)?;
    Some(owned.swap_remove(index))
}

/// Allocates for libcrypto, as `malloc`: locked memory while a key is set up in this thread, else
/// the C library's. Null when none is left. Never called with 0.
unsafe extern "C" fn allocate(len: usize, _: *const c_char, _: c_int) -> *mut c_void {
    if SETTING_UP_A_KEY.get() {
        return allocate_locked(len);
    }
    // SAFETY: any length is allowed.
    unsafe { libc::malloc(len) }
}

/// Resizes memory for libcrypto, as `realloc`. What is locked remains locked, and its former cell
/// is wiped. Null, with the old memory unchanged, when none is left.
unsafe extern "C" fn reallocate(
    old: *mut c_void,
    len: usize,
    file: *const c_char,
    line: c_int,
) -> *mut c_void {
    let Some(before) = taken(old) else {
        if old.is_null() {
            // SAFETY: as `malloc`, which realloc of null is.
            return unsafe { allocate(len, file, line) };
        }
        // SAFETY: `old` is from `libc::malloc`: there is no third source.
        return unsafe { libc::realloc(old, len) };
    };
    // What was worth locking stays locked, whatever the switch says now.
    let new = allocate_locked(len);
    if new.is_null() {
        // realloc that fails leaves the old memory alone.
        owned().push(before);
        return new;
    }
    let kept = before.len.min(len);
    // SAFETY: both cells are at least `kept` bytes long, and distinct.
    unsafe { ptr::copy_nonoverlapping(before.cell.base().as_ptr(), new.cast::<u8>(), kept) };
    new
}

/// Frees memory for libcrypto, as `free`. Locked memory is wiped.
unsafe extern "C" fn release(address: *mut c_void, _: *const c_char, _: c_int) {
    if taken(address).is_none() {
        // SAFETY: null, or from `libc::malloc`: there is no third source.
        unsafe { libc::free(address) };
    }
}
