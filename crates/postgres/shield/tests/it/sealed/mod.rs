//! Files with a header of their own, open through the core, for tests: keys, descriptors, a plain
//! model, a weak disk.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::allow_attributes,
    reason = "each test binary uses some of this"
)]
#![expect(
    unsafe_code,
    reason = "a disk that fills up or dies is made of C functions"
)]

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::AtomicU64;

use strongroom_crypto::SecretKey;
use strongroom_format::header::{Cipher, HEADER_LEN, ObjectKind};
use strongroom_keyring::{NewObject, Object, Opener};
use strongroom_postgres_shield::file_io;
use strongroom_postgres_shield::instance::Instance;
use strongroom_postgres_shield::keys::Keys;
use strongroom_postgres_shield::layout::{BlockKey, FileLayout};
use strongroom_postgres_shield::real::{Errno, Real, Symbols};
use strongroom_postgres_shield::sealed_file::{FileCache, SealedFile};

fn opener() -> Opener {
    Opener::raw(SecretKey::take(&mut [7; 32]).unwrap())
}

/// An instance with keys of its own.
pub(crate) fn instance() -> Instance {
    let object = Object::create(
        &NewObject::instance(Cipher::Aes128Xts),
        &opener().recipient().unwrap(),
    )
    .unwrap();
    of(&object)
}

fn of(object: &Object) -> Instance {
    Instance::of_keys(Keys::open(object, object.epoch()).unwrap())
}

/// Puts a new instance's header into `directory`, for [`instance_of`] in this process or another.
pub(crate) fn found(directory: &Path) {
    let object = Object::create(
        &NewObject::instance(Cipher::Aes256Xts),
        &opener().recipient().unwrap(),
    )
    .unwrap();
    put(&directory.join("header"), &object.initial_bytes());
}

/// The instance whose header is in `directory`.
pub(crate) fn instance_of(directory: &Path) -> Instance {
    let header = std::fs::read(directory.join("header")).unwrap();
    of(&Object::open(&header, ObjectKind::Postgres, &opener()).unwrap())
}

/// The header of an instance of the known-answer vectors, and what opens it. An instance's anchors,
/// which the vectors leave out at the end of the header, are zeros here.
pub(crate) fn vector(name: &str) -> (Vec<u8>, Opener) {
    let directory = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../testing/vectors/header"
    );
    let text = std::fs::read_to_string(format!("{directory}/{name}.json")).unwrap();
    let field = |name: &str| -> Vec<u8> {
        let (_, rest) = text.split_once(&format!("\"{name}\": \"")).unwrap();
        let (digits, _) = rest.split_once('"').unwrap();
        let pairs = digits.as_bytes().chunks(2);
        pairs
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    };
    let key = SecretKey::take(&mut field("key").try_into().unwrap()).unwrap();
    let mut header = field("header");
    header.resize(HEADER_LEN, 0);
    (header, Opener::raw(key))
}

/// The instance of this known-answer vector.
pub(crate) fn of_vector(name: &str) -> Instance {
    let (header, opener) = vector(name);
    of(&Object::open(&header, ObjectKind::Postgres, &opener).unwrap())
}

/// A directory for one test; in memory where there is such a place: the tests make files again and
/// again, and nothing here is about what a power cut leaves.
pub(crate) fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// Writes a whole file.
pub(crate) fn put(path: &Path, bytes: &[u8]) {
    std::fs::File::create(path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, bytes))
        .unwrap();
}

/// An open file.
pub(crate) struct Handle<'a> {
    real: Real,
    pub(crate) fd: RawFd,
    layout: FileLayout,
    instance: &'a Instance,
    /// Of a container: what stands for its name.
    pub(crate) name: [u8; 16],
    cache: FileCache,
}

impl<'a> Handle<'a> {
    pub(crate) fn open(
        instance: &'a Instance,
        layout: FileLayout,
        path: &Path,
        flags: c_int,
    ) -> Self {
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        let real = weak();
        let fd = real.open(&name, flags | libc::O_CLOEXEC, 0o600).unwrap();
        Handle {
            real,
            fd,
            layout,
            instance,
            name: [0; 16],
            // The last word: what is wrong with the file has been told. Tests damage thousands of
            // files.
            cache: [0, 0, 0, 1].map(AtomicU64::new),
        }
    }

    /// For reading and writing; made if need be.
    pub(crate) fn create(instance: &'a Instance, layout: FileLayout, path: &Path) -> Self {
        Self::open(instance, layout, path, libc::O_RDWR | libc::O_CREAT)
    }

    pub(crate) fn file(&self) -> SealedFile<'_> {
        SealedFile {
            instance: self.instance,
            layout: self.layout,
            key: BlockKey::Temporary,
            tweak: self.name,
            cache: &self.cache,
        }
    }

    pub(crate) fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        file_io::read_at(&self.real, self.fd, &self.file(), into, offset)
    }

    pub(crate) fn write_at(&self, from: &[u8], offset: u64) -> Result<usize, Errno> {
        file_io::write_at(&self.real, self.fd, &self.file(), from, offset)
    }

    pub(crate) fn append(&self, from: &[u8]) -> Result<(u64, usize), Errno> {
        file_io::append(&self.real, self.fd, &self.file(), from)
    }

    pub(crate) fn truncate(&self, size: u64) -> Result<(), Errno> {
        file_io::truncate(&self.real, self.fd, &self.file(), size)
    }

    pub(crate) fn size(&self) -> u64 {
        file_io::size(&self.real, self.fd, &self.file()).unwrap()
    }

    /// Everything from `offset` on, as a program reads: until nothing comes.
    pub(crate) fn read_from(&self, offset: u64, piece: usize) -> Result<Vec<u8>, Errno> {
        let mut all = Vec::new();
        loop {
            let mut buffer = vec![0xee; piece];
            let at = offset.saturating_add(u64::try_from(all.len()).unwrap_or(u64::MAX));
            match self.read_at(&mut buffer, at)? {
                0 => return Ok(all),
                count => all.extend_from_slice(&buffer[..count]),
            }
        }
    }

    pub(crate) fn read_all(&self) -> Result<Vec<u8>, Errno> {
        self.read_from(0, 65_536)
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        self.real.close(self.fd).unwrap();
    }
}

/// A small generator of test data: the same numbers for the same seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self) -> u64 {
        // xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators".
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.roll() % u64::try_from(limit).unwrap()).unwrap()
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.roll().to_le_bytes()[3]).collect()
    }
}

/// What a plain file would hold after a write.
pub(crate) fn model_write(model: &mut Vec<u8>, from: &[u8], offset: usize) {
    let end = offset + from.len();
    if model.len() < end {
        model.resize(end, 0);
    }
    model[offset..end].copy_from_slice(from);
}

// A disk that takes only so many bytes more, on this thread. After that it is full, or dead:
// nothing succeeds.

thread_local! {
    static ROOM: Cell<Option<usize>> = const { Cell::new(None) };
    static DIES: Cell<bool> = const { Cell::new(false) };
}

/// The disk takes `room` bytes more and is full then.
pub(crate) fn fill_up_after(room: usize) {
    ROOM.set(Some(room));
    DIES.set(false);
}

/// The process is as good as killed once `room` more bytes are written.
pub(crate) fn die_after(room: usize) {
    ROOM.set(Some(room));
    DIES.set(true);
}

pub(crate) fn heal() {
    ROOM.set(None);
    DIES.set(false);
}

fn is_dead() -> bool {
    DIES.get() && ROOM.get() == Some(0)
}

fn fail(errno: c_int) {
    // SAFETY: the C library's own location, valid for this thread.
    unsafe { *libc::__errno_location() = errno };
}

unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { libc::open(path, flags, mode) }
}

unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { libc::fcntl(fd, command, argument) }
}

unsafe extern "C" fn pwrite(fd: c_int, from: *const c_void, len: usize, at: i64) -> isize {
    let size = {
        // SAFETY: zero is a valid `struct stat`.
        let mut about: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the caller's descriptor, a buffer of the right type.
        unsafe { libc::fstat(fd, &raw mut about) };
        about.st_size
    };
    let Some(room) = ROOM.get() else {
        // SAFETY: the caller's arguments.
        return unsafe { libc::pwrite(fd, from, len, at) };
    };
    // A full disk still takes what overwrites, a dead process writes nothing.
    let free = if DIES.get() {
        0
    } else {
        usize::try_from((size - at).max(0)).unwrap()
    };
    let taken = len.min(room + free);
    if taken == 0 {
        fail(if DIES.get() { libc::EIO } else { libc::ENOSPC });
        return -1;
    }
    ROOM.set(Some(room - taken.saturating_sub(free).min(room)));
    // SAFETY: the caller's arguments, and fewer bytes.
    unsafe { libc::pwrite(fd, from, taken, at) }
}

unsafe extern "C" fn ftruncate(fd: c_int, size: i64) -> c_int {
    if is_dead() {
        fail(libc::EIO);
        return -1;
    }
    // SAFETY: the caller's arguments.
    unsafe { libc::ftruncate(fd, size) }
}

fn weak() -> Real {
    let symbols = Symbols {
        open,
        close: libc::close,
        pread: libc::pread,
        pwrite,
        lseek: libc::lseek,
        fstat: libc::fstat,
        ftruncate,
        fsync: libc::fsync,
        fcntl,
    };
    // SAFETY: each is the C library's function of that name, or fails as it may.
    unsafe { Real::new(symbols) }
}

/// Starts this test binary again to run the one test `name`, with `STRONGROOM_TEST_PART` set to
/// `part`.
pub(crate) fn part(name: &str, directory: &Path, part: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env("STRONGROOM_TEST_PART", part.to_string())
        .env("STRONGROOM_TEST_DIRECTORY", directory)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

/// Which part this process is, when [`part`] started it.
pub(crate) fn this_part() -> Option<(usize, std::path::PathBuf)> {
    let part = std::env::var("STRONGROOM_TEST_PART").ok()?;
    let directory = std::env::var_os("STRONGROOM_TEST_DIRECTORY")?;
    Some((part.parse().unwrap(), directory.into()))
}

/// Waits for parts and asserts that each succeeded.
pub(crate) fn all_succeed(parts: Vec<Child>) {
    for mut child in parts {
        assert!(child.wait().unwrap().success());
    }
}
