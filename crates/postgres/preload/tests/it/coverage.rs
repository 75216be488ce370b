//! Goal: no PostgreSQL binary calls a file function of the C library that nobody has thought about.
//!
//! Method: what every installed binary and library of PostgreSQL imports from the C library is
//! looked up in three lists: what the shield exports, what it leaves alone for a stated reason, and
//! what has nothing to do with files. A name on none of them fails the test: that is how a new
//! version's new call is found. Most faults ever found in libraries like this one were calls that
//! nobody had covered.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{binary, check, library};

/// Names that `nm` prints for a file, without versions.
fn names(option: &str, file: &Path) -> BTreeSet<String> {
    let listed = Command::new("nm")
        .args(["-D", option])
        .arg(file)
        .output()
        .unwrap();
    if !listed.status.success() {
        // Scripts and bitcode lie beside the programs.
        return BTreeSet::new();
    }
    let text = check(listed);
    let last = |line: &str| line.split_whitespace().last().map(str::to_owned);
    text.lines().filter_map(last).collect()
}

/// What a file takes from the C library: names with a version of glibc's.
fn imported(file: &Path) -> BTreeSet<String> {
    names("--undefined-only", file)
        .iter()
        .filter_map(|name| name.split_once("@GLIBC_"))
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// What glibc does not have under a name of its own: variants that exist only for a setting of the
/// compiler, so that nothing installed here need call them.
const ALIASES: &[&str] = &[
    "open64",
    "openat64",
    "creat64",
    "__open_2",
    "__open64_2",
    "__openat_2",
    "__openat64_2",
    "pread64",
    "pwrite64",
    "preadv64",
    "pwritev64",
    "preadv64v2",
    "pwritev64v2",
    "lseek64",
    "ftruncate64",
    "truncate64",
    "posix_fallocate64",
    "fallocate64",
    "mmap64",
    "sendfile64",
    "readdir64",
    "stat64",
    "lstat64",
    "fstat64",
    "fstatat64",
    "__xstat",
    "__lxstat",
    "__fxstat",
    "__xstat64",
    "__lxstat64",
    "__fxstat64",
    "fopen64",
    "freopen64",
    "fcntl64",
    "__read_chk",
    "__pread_chk",
    "__pread64_chk",
    "statx",
    "readv",
    "writev",
    "preadv",
    "pwritev",
    "copy_file_range",
    "splice",
    "sendfile",
    "io_uring_queue_init",
    "io_uring_queue_init_params",
    "io_uring_queue_init_mem",
    "close_range",
    "closefrom",
    "dup3",
    "renameat2",
    "fork",
];

#[test]
fn every_function_that_postgresql_imports_has_been_thought_about() {
    let exported = names("--defined-only", library());
    for name in ALIASES {
        assert!(exported.contains(*name), "{name} is not exported");
    }
    let passed = BTreeMap::from_iter(
        include_str!("coverage/passed.txt")
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split_once(": ").expect("name: reason")),
    );
    let other: BTreeSet<&str> = include_str!("coverage/other.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(str::split_whitespace)
        .collect();
    let known = |name: &str| {
        exported.contains(name)
            || passed.contains_key(name)
            || other.contains(name)
            // The C++ library's, in the JIT compiler's module.
            || name.starts_with("_Z")
    };
    for name in passed.keys() {
        assert!(
            !exported.contains(*name),
            "{name} is on the list and interposed"
        );
    }
    let bin = binary("postgres").parent().unwrap().to_owned();
    let mut files: Vec<PathBuf> = Vec::new();
    // PostgreSQL's modules lie in lib/postgresql where lib holds other projects' libraries too.
    let lib = bin.with_file_name("lib");
    let modules = Some(lib.join("postgresql"))
        .filter(|own| own.is_dir())
        .unwrap_or(lib);
    for directory in [bin, modules] {
        files.extend(
            fs::read_dir(directory)
                .unwrap()
                .map(|entry| entry.unwrap().path()),
        );
    }
    // An extension of this project, where one is installed, is not PostgreSQL's.
    let own = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with("strongroom")
    };
    files.retain(|path| !own(path));
    let mut unknown: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for file in files {
        for name in imported(&file) {
            if !known(&name) {
                unknown.entry(name.clone()).or_default().push(file.clone());
            }
            seen.insert(name);
        }
    }
    assert!(
        seen.contains("pwrite") && seen.contains("fopen") && seen.len() > 200,
        "{seen:?}"
    );
    assert!(unknown.is_empty(), "not on any list: {unknown:#?}");
}

#[test]
fn the_library_exports_nothing_but_functions_of_the_c_library() {
    let exported = names("--defined-only", library());
    // Of OpenSSL, which is built in: the server has one of its own.
    for start in [
        "EVP_",
        "CRYPTO_",
        "OPENSSL_",
        "SSL_",
        "AES_",
        "rust_",
        "strongroom",
    ] {
        let found: Vec<&String> = exported
            .iter()
            .filter(|name| name.starts_with(start))
            .collect();
        assert!(found.is_empty(), "{found:?}");
    }
    let libc = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    if libc.exists() {
        let there: BTreeSet<String> = names("--defined-only", libc)
            .iter()
            .map(|name| name.split('@').next().unwrap_or(name).to_owned())
            .collect();
        let ours: Vec<&String> = exported
            .iter()
            .filter(|name| !there.contains(*name) && !name.starts_with("io_uring_"))
            .collect();
        assert!(ours.is_empty(), "not the C library's: {ours:?}");
    }
}
