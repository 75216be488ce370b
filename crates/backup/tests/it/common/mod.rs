//! What the tests of media share: a place, a tree of files, keys, and the calls with their usual
//! options.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]
#![allow(
    dead_code,
    clippy::allow_attributes,
    clippy::print_stdout,
    reason = "each test program uses a part of it"
)]

pub(crate) mod forged;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use strongroom_backup::{
    Cipher, Compression, CreateOptions, Created, DirectorySource, Error, LocalStore, Mode,
    RestoreOptions, Restored, Verified, create, open_set, restore, verify,
};
use strongroom_crypto::{SecretBytes, SecretKey, SigningKey};
use strongroom_keyring::Opener;

pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The medium.
    pub(crate) fn medium(&self) -> LocalStore {
        LocalStore::new(&self.at("medium"))
    }

    /// A tree with everything that a directory can have, and `bytes` of noise in one file.
    pub(crate) fn tree(&self, bytes: usize) -> PathBuf {
        let root = self.at("tree");
        fs::create_dir_all(root.join("sub/deeper")).unwrap();
        fs::create_dir(root.join("empty")).unwrap();
        put(&root.join("noise"), &noise(bytes));
        put(&root.join("zeros"), &vec![0; bytes]);
        put(&root.join("nothing"), b"");
        put(&root.join("sub/deeper/small"), b"CANARY-7c1e small content");
        put(&root.join("sub/name \u{e9}\n"), b"odd name");
        let raw = std::ffi::OsStr::from_bytes(b"not-\xff-utf8");
        put(&root.join(raw), b"bytes");
        std::os::unix::fs::symlink("sub/deeper", root.join("link")).unwrap();
        std::os::unix::fs::symlink("/nowhere/at/all", root.join("sub/dangling")).unwrap();
        mode(&root.join("sub/deeper/small"), 0o640);
        mode(&root.join("sub/deeper"), 0o750);
        mode(&root.join("empty"), 0o555);
        root
    }
}

pub(crate) fn put(path: &Path, bytes: &[u8]) {
    File::create(path).unwrap().write_all(bytes).unwrap();
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut seed = 88_172_645_463_325_252_u64;
    let mut out = Vec::with_capacity(length + 8);
    while out.len() < length {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        out.extend_from_slice(&seed.to_le_bytes());
    }
    out.truncate(length);
    out
}

/// Everything below a directory: what it is, its content or target, mode, owner, and time of
/// modification.
pub(crate) fn picture(root: &Path) -> BTreeMap<PathBuf, (String, Vec<u8>, u32, i64)> {
    let mut out = BTreeMap::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(path) = open.pop() {
        let about = fs::symlink_metadata(&path).unwrap();
        let (sort, content) = if about.is_dir() {
            open.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
            ("directory", Vec::new())
        } else if about.is_symlink() {
            let target = fs::read_link(&path).unwrap();
            ("link", target.as_os_str().as_bytes().to_vec())
        } else {
            ("file", fs::read(&path).unwrap())
        };
        let seconds = about.mtime() * 1_000_000_000 + about.mtime_nsec();
        let below = path.strip_prefix(root).unwrap().to_path_buf();
        out.insert(below, (sort.to_owned(), content, about.mode(), seconds));
    }
    out
}

pub(crate) fn key() -> Opener {
    Opener::raw(SecretKey::generate().unwrap())
}

pub(crate) fn options(opener: Option<&Opener>) -> CreateOptions<'static> {
    CreateOptions {
        recipients: opener
            .into_iter()
            .map(|opener| opener.recipient().unwrap())
            .collect(),
        cipher: Cipher::Aes256,
        compression: Compression::Zstd(1),
        mode: Mode::Append,
        stripes: None,
        threads: 2,
        name: String::from("a set"),
        machine_name: String::from("host"),
        user_name: String::from("user"),
        expires_unix_s: None,
        skip_expiry: false,
        sign_key: None,
    }
}

pub(crate) fn made(
    store: &LocalStore,
    tree: &Path,
    options: &CreateOptions<'_>,
) -> Result<Created, Error> {
    create(store, &mut DirectorySource::new(tree), options, &mut |_| {})
}

pub(crate) fn verified(
    store: &LocalStore,
    set: Option<u32>,
    opener: Option<&Opener>,
) -> Result<Verified, Error> {
    verify(&open_set(store, set, opener)?, 2, &mut |_| {})
}

pub(crate) fn restored(
    store: &LocalStore,
    set: Option<u32>,
    opener: Option<&Opener>,
    to: &Path,
) -> Result<Restored, Error> {
    let options = RestoreOptions {
        to: to.to_path_buf(),
        tablespaces: None,
        threads: 2,
        recovery: None,
        kept: strongroom_backup::Kept::default(),
        sealing: None,
        delta: None,
        stop: None,
    };
    restore(&open_set(store, set, opener)?, &options, &mut |_| {})
}

/// An Ed25519 key as `openssl genpkey` makes it, in the file `path`.
pub(crate) fn signing_key(path: &Path) -> SigningKey {
    let mut openssl = Command::new("openssl");
    openssl.args(["genpkey", "-algorithm", "ed25519", "-out"]);
    assert!(openssl.arg(path).status().unwrap().success());
    SigningKey::from_pem(&SecretBytes::take(&mut fs::read(path).unwrap()).unwrap()).unwrap()
}

/// The variable that names the place to a test program that [`killed_at`] runs.
pub(crate) const PLACE: &str = "STRONGROOM_TEST_PLACE";

/// Runs the ignored test `child` of this test program under strace(1), which kills it at the `at`th
/// of the system calls `calls`; each thread's calls are counted by themselves. False when it
/// succeeded before it came so far.
pub(crate) fn killed_at(child: &str, place: &Place, calls: &str, at: u32) -> bool {
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-qq", "-o", "/dev/null", "-e"])
        .arg(format!("trace={calls}"))
        .arg(format!("--inject={calls}:signal=KILL:when={at}"))
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", child, "--test-threads", "1"])
        .env(PLACE, place.at(""));
    let ended = strace.output().unwrap().status;
    let killed = ended.signal() == Some(9);
    assert!(killed || ended.success(), "{calls} {at}: {ended}");
    killed
}
