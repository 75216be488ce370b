//! Loaded libraries: which one contains an address, and what a library and its dependencies export.
//!
//! Must not: load a library other than the extension.
#![expect(unsafe_code, reason = "dladdr, dlopen and dlsym")]

use std::ffi::{CStr, CString, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Returns the file of the program or library that holds `address`, by the name under which it was
/// loaded. `None` for an address in no file.
pub(crate) fn file_of(address: *const c_void) -> Option<CString> {
    about(address).map(|about| {
        // SAFETY: the name of a loaded library, which ends with a zero byte, valid while it is
        // loaded.
        unsafe { CStr::from_ptr(about.dli_fname) }.to_owned()
    })
}

/// Returns the address at which the program or library that holds `address` begins in memory.
/// `None` for an address in no file.
pub(crate) fn base_of(address: *const c_void) -> Option<usize> {
    about(address).map(|about| about.dli_fbase as usize)
}

/// Asks the loader about the program or library that holds `address`. `None` for an address in no
/// file.
fn about(address: *const c_void) -> Option<libc::Dl_info> {
    let mut about = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked for; one structure to be filled.
    let found = unsafe { libc::dladdr(address, about.as_mut_ptr()) };
    // SAFETY: zeroed, or filled by the C library.
    let about = unsafe { about.assume_init() };
    (found != 0 && !about.dli_fname.is_null()).then_some(about)
}

/// Returns the directory of this library's file. `None` if the loader does not know it.
pub(crate) fn own_directory() -> Option<PathBuf> {
    let name = file_of(own_address())?;
    let path = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
    path.parent().map(Path::to_path_buf)
}

/// Returns an address in this library.
pub(crate) fn own_address() -> *const c_void {
    static OWN: u8 = 0;
    (&raw const OWN).cast()
}

/// A handle of a library, which is released on drop.
pub(crate) struct Library(*mut c_void);

impl Library {
    /// Returns a handle of the library of this name if it is loaded already; `None` otherwise.
    /// Loads nothing. Not to be given the program itself: with it `dlsym` would find this library's
    /// own symbols.
    pub(crate) fn loaded(name: &CStr) -> Option<Self> {
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
        // SAFETY: a name that ends with a zero byte.
        let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
        (!handle.is_null()).then(|| Self(handle))
    }

    /// Loads the library; it stays loaded until the process ends. `None` if the loader refuses.
    pub(crate) fn load(path: &Path) -> Option<Self> {
        let name = CString::new(path.as_os_str().as_bytes()).ok()?;
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE;
        // SAFETY: as above; the library's constructors are its own.
        let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
        (!handle.is_null()).then(|| Self(handle))
    }

    /// Returns the handle for all libraries after this one in the order in which symbols are looked
    /// up.
    pub(crate) const fn next() -> Self {
        Self(libc::RTLD_NEXT)
    }

    /// Returns the address of a symbol in this library or one that it needs. `None` if there is
    /// none, or it is this preloaded library's own.
    pub(crate) fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: a handle of the C library, and a name that ends with a zero byte.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        let own = base_of(own_address());
        (!found.is_null() && base_of(found) != own).then_some(found)
    }
}

impl Drop for Library {
    /// Releases the handle.
    fn drop(&mut self) {
        if self.0 != libc::RTLD_NEXT {
            // SAFETY: opened by this structure, once.
            unsafe { libc::dlclose(self.0) };
        }
    }
}

/// Keeps the library that holds `address` loaded until the process ends. Does nothing for an
/// address in no file.
pub(crate) fn keep(address: *const c_void) {
    if let Some(name) = file_of(address) {
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
        // SAFETY: a name that ends with a zero byte. The handle is not given back, on purpose.
        unsafe { libc::dlopen(name.as_ptr(), flags) };
    }
}
