//! Functions that libcryptsetup calls with its messages and with the progress of long work; its
//! version, which it writes into a message only.
//!
//! Invariants: a call from C never unwinds; messages go into a short list, never to the terminal,
//! where libcryptsetup would write them by itself.
//!
//! Must not: keep a pointer beyond the call that brought it.
#![expect(
    unsafe_code,
    reason = "functions that libcryptsetup calls, with pointers"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::sync::{Mutex, Once, PoisonError};

use libcryptsetup_rs::consts::vals::{CryptDebugLevel, CryptLogLevel, EncryptionFormat};
use libcryptsetup_rs::{CryptInit, set_debug_level, set_log_callback};

/// How many messages are kept: the last ones.
const MESSAGES_MAX: usize = 8;
/// Bytes of one message that are kept.
const MESSAGE_MAX: usize = 300;
/// Text before the version in the message that has it.
const VERSION_PREFIX: &str = "initialized in cryptsetup library version ";

struct Messages {
    errors: Vec<String>,
    version: Option<(u32, u32, u32)>,
}

static MESSAGES: Mutex<Messages> = Mutex::new(Messages {
    errors: Vec::new(),
    version: None,
});

/// Takes over libcryptsetup's messages, once in a process; every use of the library begins with
/// this. The first call also makes the library write its version, as a debug message, for
/// [`library_version`].
pub(crate) fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_log_callback::<()>(Some(on_message), None);
        set_debug_level(CryptDebugLevel::All);
        // The first use of its cryptography writes the version, whatever the result: this file
        // holds no volume.
        if let Ok(mut device) = CryptInit::init(Path::new("/proc/self/exe")) {
            let loaded = device
                .context_handle()
                .load::<()>(Some(EncryptionFormat::Luks2), None);
            drop(loaded);
        }
        set_debug_level(CryptDebugLevel::None);
        drop(take_messages());
    });
}

/// Returns libcryptsetup's last error messages since the last call, joined to one line, and forgets
/// them.
pub(crate) fn take_messages() -> String {
    let mut said = MESSAGES.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut said.errors).join("; ")
}

/// Returns the version of the libcryptsetup that is loaded, which may be newer than the one that
/// this was built with. `None` when its message has another form than is known.
#[must_use]
pub fn library_version() -> Option<(u32, u32, u32)> {
    prepare();
    MESSAGES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .version
}

/// Called by libcryptsetup with each message: keeps errors, and the version.
unsafe extern "C" fn on_message(level: c_int, message: *const c_char, _: *mut c_void) {
    if message.is_null() {
        return;
    }
    // SAFETY: not null; libcryptsetup passes a string with its zero byte, alive during this call.
    let text = unsafe { CStr::from_ptr(message) }.to_string_lossy();
    let text: String = text.trim().chars().take(MESSAGE_MAX).collect();
    let mut said = MESSAGES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, version)) = text.split_once(VERSION_PREFIX) {
        said.version = version_of(version);
    }
    if level == CryptLogLevel::Error as c_int && !text.is_empty() {
        if said.errors.len() == MESSAGES_MAX {
            said.errors.remove(0);
        }
        said.errors.push(text);
    }
}

/// Reads a version, as `2.6.1`, from the beginning of a text; without a patch number it ends in 0.
/// `None` for anything else.
fn version_of(text: &str) -> Option<(u32, u32, u32)> {
    let digits: String = text
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    let mut parts = digits.split('.').filter(|part| !part.is_empty());
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?.parse().ok()?;
    let patch = parts.next().map_or(Some(0), |patch| patch.parse().ok())?;
    Some((major, minor, patch))
}

/// A function that is told of the progress of long work: size and offset in bytes. `false` ends the
/// work.
pub(crate) struct Progress<'a>(pub(crate) &'a mut dyn FnMut(u64, u64) -> bool);

/// Called by libcryptsetup during long work, with `who` pointing to a [`Progress`], which is
/// called. A result other than zero ends the work; a panic in it does, too.
pub(crate) unsafe extern "C" fn on_progress(size: u64, offset: u64, who: *mut c_void) -> c_int {
    // SAFETY: the pointer is the `Progress` that was given with this function, and nobody else uses
    // it during the work.
    let progress = unsafe { who.cast::<Progress<'_>>().as_mut() };
    let Some(progress) = progress else { return 0 };
    let told =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (progress.0)(size, offset)));
    c_int::from(!told.unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_the_library_writes_them() {
        assert_eq!(version_of("2.6.1."), Some((2, 6, 1)));
        assert_eq!(version_of("2.8.0"), Some((2, 8, 0)));
        assert_eq!(version_of("2.7.0-rc1."), Some((2, 7, 0)));
        assert_eq!(version_of("2.8"), Some((2, 8, 0)));
        assert_eq!(version_of("x"), None);
    }

    #[test]
    fn the_library_tells_its_version() {
        let version = library_version().unwrap();
        assert!(version >= (2, 4, 3), "{version:?}");
    }
}
