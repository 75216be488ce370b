//! Goal: the house rules that a machine can check stay kept. Method: reads the tree's own files.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::path::{Path, PathBuf};

/// Longest source file, in lines. May only go down.
const LINES_MAX: usize = 620;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../..")
        .canonicalize()
        .unwrap()
}

fn files(below: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(below).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !["target", ".git", "corpus", "artifacts", "demo-out"].contains(&name.as_str()) {
                files(&path, ending, found);
            }
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
}

fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    files(&root(), ".rs", &mut found);
    assert!(
        found.len() > 50,
        "the sources are where they are looked for"
    );
    found
        .into_iter()
        .map(|path| (path.clone(), std::fs::read_to_string(path).unwrap()))
        .collect()
}

#[test]
fn every_source_says_what_it_is_for() {
    for (path, text) in sources() {
        assert!(text.starts_with("//!"), "{} has no header", path.display());
    }
}

#[test]
fn sources_are_small_and_finished() {
    for (path, text) in sources() {
        let lines = text.lines().count();
        assert!(
            lines <= LINES_MAX,
            "{}: {lines} lines; look for the seam",
            path.display()
        );
        for unfinished in [
            concat!("FIX", "ME"),
            concat!("TO", "DO"),
            concat!("XX", "X"),
            concat!("to", "do!("),
        ] {
            assert!(
                !text.contains(unfinished),
                "{}: {unfinished}",
                path.display()
            );
        }
    }
}

/// The arrows of ARCHITECTURE.md: primitives are named in one crate, SQLite is linked in few.
#[test]
fn dependencies_point_one_way() {
    let allowed = [
        ("ring", &["crates/core/crypto"][..]),
        ("aws-lc-sys", &["crates/core/crypto"][..]),
        ("aes", &["crates/core/crypto"]),
        ("ctr", &["crates/core/crypto"]),
        ("argon2", &["crates/core/crypto"]),
        (
            "rusqlite",
            // The store of the key server and the catalogue of backups are sealed SQLite databases.
            &[
                "crates/sqlite/library",
                "crates/keys/server",
                "crates/backup",
                "crates/cli",
                "testing",
                "benches",
            ],
        ),
        // Fetched for its C source, which the comparison compiles; never built by cargo.
        ("libsqlite3-sys", &["benches/sqlite/peers"]),
        ("rand", &[]),
        ("openssl", &["crates/core/crypto"]),
        ("foreign-types", &["crates/core/crypto"]),
        ("openssl-sys", &["crates/core/crypto"]),
    ];
    let mut manifests = Vec::new();
    files(&root(), "Cargo.toml", &mut manifests);
    assert!(manifests.len() >= 7);
    for manifest in manifests {
        let folder = manifest
            .parent()
            .unwrap()
            .strip_prefix(root())
            .unwrap()
            .display()
            .to_string();
        let text = std::fs::read_to_string(&manifest).unwrap();
        for (package, folders) in &allowed {
            let names_it = text.lines().any(|line| {
                line.split(['=', '.'])
                    .next()
                    .is_some_and(|name| name.trim() == *package)
            });
            assert!(
                !names_it || folders.contains(&folder.as_str()),
                "{folder} must not name {package}"
            );
        }
    }
}

#[test]
fn format_and_vfs_do_not_link_to_sqlite() {
    for folder in [
        "crates/core/format",
        "crates/core/crypto",
        "crates/core/keyring",
        "crates/sqlite/vfs",
        "crates/sqlite/extension",
    ] {
        let text = std::fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
        let (dependencies, _) = text.split_once("[dev-dependencies]").unwrap_or((&text, ""));
        assert!(!dependencies.contains("rusqlite"), "{folder}");
    }
}
