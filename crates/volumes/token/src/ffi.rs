//! The functions of a plugin that libcryptsetup calls (libcryptsetup.h, "external token"), and the
//! functions of libcryptsetup that they call.
//!
//! Boundary: libcryptsetup passes its own device, a token number that exists, and pointers for the
//! answer that are valid during the call. A passphrase that it gets stays at its address until it
//! gives the address back.
//!
//! Must not: let a panic out (T1); hand out memory that is not locked (T2).
#![expect(unsafe_code, reason = "the C interface of cryptsetup's plugins")]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use strongroom_crypto::SecretBytes;

use crate::{check, description, passphrase, token};

/// libcryptsetup's device.
#[repr(C)]
pub(crate) struct Device {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    /// Gives a token's JSON, which belongs to the device. Returns a negative error number when it
    /// fails.
    fn crypt_token_json_get(device: *mut Device, token: c_int, json: *mut *const c_char) -> c_int;
    /// Gives the header's JSON, which belongs to the device. Returns a negative error number when
    /// it fails.
    fn crypt_dump_json(device: *mut Device, json: *mut *const c_char, flags: u32) -> c_int;
    /// Writes a message to the log of the program that uses libcryptsetup.
    fn crypt_log(device: *mut Device, level: c_int, message: *const c_char);
}

/// `CRYPT_LOG_NORMAL`, `CRYPT_LOG_ERROR`.
const NORMAL: c_int = 0;
const ERROR: c_int = 1;

/// Passphrases that libcryptsetup holds, by their address.
static GIVEN: Mutex<BTreeMap<usize, SecretBytes>> = Mutex::new(BTreeMap::new());

/// Fetches the passphrase for a token from the key server, after the header was checked. Returns 0
/// and writes address and length of the passphrase to `buffer` and `length`; libcryptsetup gives it
/// back with [`cryptsetup_token_buffer_free`]. Returns a negative error number, and writes the
/// reason to libcryptsetup's log, when there is none.
///
/// # Safety
/// Called by libcryptsetup, with its own arguments.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cryptsetup_token_open(
    device: *mut Device,
    token: c_int,
    buffer: *mut *mut c_char,
    length: *mut usize,
    _user: *mut c_void,
) -> c_int {
    without_panic(|| {
        let mut json = std::ptr::null();
        // SAFETY: libcryptsetup's own device and token number; the text belongs to the device and
        // outlives this call.
        let code = unsafe { crypt_token_json_get(device, token, &raw mut json) };
        if code < 0 {
            return code;
        }
        // SAFETY: what libcryptsetup returned is a string with its zero byte, or null.
        let Some(json) = (unsafe { text(json) }) else {
            return -libc::EINVAL;
        };
        let mut header = std::ptr::null();
        // SAFETY: libcryptsetup's own device; the text belongs to the device and outlives this
        // call.
        let code = unsafe { crypt_dump_json(device, &raw mut header, 0) };
        if code < 0 {
            return code;
        }
        // SAFETY: what libcryptsetup returned is a string with its zero byte, or null.
        let Some(header) = (unsafe { text(header) }) else {
            return -libc::EINVAL;
        };
        match check(&header).and_then(|()| passphrase(&json)) {
            Ok(secret) => {
                let (address, count) = keep(secret);
                // SAFETY: places for the answer, valid during the call.
                unsafe { buffer.write(address.as_ptr().cast()) };
                // SAFETY: as above.
                unsafe { length.write(count) };
                0
            }
            Err(refusal) => {
                log(device, ERROR, &format!("strongroom: {}\n", refusal.text));
                refusal.kind.number()
            }
        }
    })
}

/// As [`cryptsetup_token_open`]: Strongroom tokens have no PIN, and the one that is given is
/// ignored.
///
/// # Safety
/// As [`cryptsetup_token_open`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cryptsetup_token_open_pin(
    device: *mut Device,
    token: c_int,
    _pin: *const c_char,
    _pin_length: usize,
    buffer: *mut *mut c_char,
    length: *mut usize,
    user: *mut c_void,
) -> c_int {
    // SAFETY: passed on as they came.
    unsafe { cryptsetup_token_open(device, token, buffer, length, user) }
}

/// Takes a passphrase back by its address, and wipes it. Ignores an address that was never given
/// out.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cryptsetup_token_buffer_free(buffer: *mut c_void, _length: usize) {
    without_panic(|| {
        let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
        drop(given.remove(&buffer.addr()));
        0
    });
}

/// Returns 0 when the token's JSON has the right form, and a negative error number when not.
///
/// # Safety
/// As [`cryptsetup_token_open`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cryptsetup_token_validate(
    _device: *mut Device,
    json: *const c_char,
) -> c_int {
    without_panic(|| {
        // SAFETY: libcryptsetup passes a string with its zero byte.
        let json = unsafe { text(json) };
        json.map_or(-libc::EINVAL, |json| {
            token(&json).map_or_else(|refusal| refusal.kind.number(), |_| 0)
        })
    })
}

/// Writes a description of the token to libcryptsetup's log, for `cryptsetup luksDump`.
///
/// # Safety
/// As [`cryptsetup_token_open`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cryptsetup_token_dump(device: *mut Device, json: *const c_char) {
    without_panic(|| {
        // SAFETY: libcryptsetup passes a string with its zero byte.
        if let Some(json) = unsafe { text(json) } {
            log(device, NORMAL, &description(&json));
        }
        0
    });
}

/// Returns the plugin's version as a static string with its zero byte.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cryptsetup_token_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"unknown",
        };
    VERSION.as_ptr()
}

/// Runs `work` and returns its result; a panic becomes `-EIO`.
fn without_panic(work: impl FnOnce() -> c_int) -> c_int {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(-libc::EIO)
}

/// Keeps a passphrase in locked memory until libcryptsetup gives its address back. Returns address
/// and length. Locked memory does not move with its owner.
fn keep(mut secret: SecretBytes) -> (NonNull<u8>, usize) {
    let bytes = secret.as_mut_slice();
    let count = bytes.len();
    let address = NonNull::from(bytes).cast::<u8>();
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    given.insert(address.as_ptr().addr(), secret);
    (address, count)
}

/// Copies a string of C. `None` for a null pointer, and when it is not UTF-8.
///
/// # Safety
/// Null, or a string with its zero byte.
unsafe fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: by this function's own condition.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().ok().map(ToOwned::to_owned)
}

/// Writes a message to libcryptsetup's log, at its level `NORMAL` or `ERROR`. A message with a zero
/// byte is dropped.
fn log(device: *mut Device, level: c_int, message: &str) {
    if let Ok(message) = CString::new(message) {
        // SAFETY: libcryptsetup's own device, and a string that outlives the call.
        unsafe { crypt_log(device, level, message.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_panic_gets_out() {
        assert_eq!(without_panic(|| panic!("on purpose")), -libc::EIO);
    }

    #[test]
    fn a_passphrase_stays_where_it_is_until_it_is_given_back() {
        let secret = SecretBytes::take(&mut b"some passphrase".to_vec()).unwrap();
        let (address, count) = keep(secret);
        assert_eq!(count, 15);
        let kept = || {
            GIVEN
                .lock()
                .unwrap()
                .get(&address.as_ptr().addr())
                .map(|secret| secret.as_slice().to_vec())
        };
        assert_eq!(kept().unwrap(), b"some passphrase");
        cryptsetup_token_buffer_free(address.as_ptr().cast(), count);
        assert!(kept().is_none());
        // An address that was never handed out is ignored.
        cryptsetup_token_buffer_free(std::ptr::null_mut(), 0);
    }

    unsafe extern "C" {
        fn crypt_init(device: *mut *mut Device, path: *const c_char) -> c_int;
        fn crypt_load(device: *mut Device, kind: *const c_char, params: *mut c_void) -> c_int;
        fn crypt_free(device: *mut Device);
    }

    /// What the plugin answers libcryptsetup for the volume at `path`, whose token has number 0.
    fn asked(path: &std::path::Path) -> c_int {
        let path = CString::new(path.to_str().unwrap()).unwrap();
        let mut device = std::ptr::null_mut();
        // SAFETY: a place for the device, and a string.
        let code = unsafe { crypt_init(&raw mut device, path.as_ptr()) };
        assert_eq!(code, 0);
        // SAFETY: the device that was made; LUKS2 takes no parameters here.
        let code = unsafe { crypt_load(device, c"LUKS2".as_ptr(), std::ptr::null_mut()) };
        assert_eq!(code, 0, "libcryptsetup itself takes the header");
        let (mut buffer, mut length) = (std::ptr::null_mut(), 0);
        // SAFETY: as libcryptsetup does it.
        let code = unsafe {
            cryptsetup_token_open(
                device,
                0,
                &raw mut buffer,
                &raw mut length,
                std::ptr::null_mut(),
            )
        };
        // SAFETY: it is not used any more.
        unsafe { crypt_free(device) };
        code
    }

    /// The right key must not open a disk that is in clear from then on, whoever asks for it.
    #[test]
    fn for_a_forged_header_no_key_is_fetched() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("v");
        crate::tests::volume(&path);
        // The header is believed; the token's key is in a keyring.
        assert_eq!(asked(&path), -libc::ENOENT);
        let real = "\"encryption\":\"aes-xts-plain64\",\"sector_size\"";
        let forgeries = [
            (real, "\"encryption\":\"cipher_null-ecb\",\"sector_size\""),
            (real, "\"encryption\":\"aes-ecb\",\"sector_size\""),
            ("\"iterations\":1000,", "\"iterations\":4000000000,"),
        ];
        for (from, to) in forgeries {
            crate::tests::forge(&path, from, to);
            assert_eq!(asked(&path), -libc::EPERM, "{to}");
            crate::tests::forge(&path, to, from);
        }
        assert_eq!(asked(&path), -libc::ENOENT);
    }
}
