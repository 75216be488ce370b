//! Goal: there is one place to which command and libraries are installed, and the guides, the units
//! and the hook name no other. Method: `make install` of this repository into a directory, and a
//! search of the texts.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use crate::common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::Place;

const FILES: [(&str, &str); 4] = [
    ("strongroom", "usr/bin/strongroom"),
    (
        "libstrongroom_shield.so",
        "usr/lib/strongroom/libstrongroom_shield.so",
    ),
    (
        "libstrongroom_sqlite.so",
        "usr/lib/strongroom/libstrongroom_sqlite.so",
    ),
    (
        "libstrongroom_sqlite_run.so",
        "usr/lib/strongroom/libstrongroom_sqlite_run.so",
    ),
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every text below a directory.
fn texts(directory: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts(&path, found);
        } else if let Ok(text) = fs::read_to_string(&path) {
            found.push((path, text));
        }
    }
}

#[test]
fn make_installs_to_the_places_that_pages_and_units_name() {
    let place = Place::new();
    fs::create_dir_all(place.path("built/release")).unwrap();
    let install = || {
        let mut make = Command::new("make");
        let variable = |name: &str, path: &str| format!("{name}={}", place.path(path).display());
        make.arg("-C").arg(repository()).args([
            "install",
            &variable("CARGO_TARGET_DIR", "built"),
            &variable("DESTDIR", "root"),
        ]);
        make.output().unwrap()
    };
    let refused = install();
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && told.contains("make build"),
        "{told}"
    );
    for (name, _) in FILES {
        place.write(&format!("built/release/{name}"), name);
    }
    let done = install();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    for (name, path) in FILES {
        let path = place.path("root").join(path);
        assert_eq!(fs::read_to_string(&path).unwrap(), name);
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&path).unwrap());
        assert_eq!(mode & 0o7777, 0o755, "{}", path.display());
    }

    let mut all = vec![(
        PathBuf::from("README.md"),
        fs::read_to_string(repository().join("README.md")).unwrap(),
    )];
    for directory in [
        "docs/start",
        "docs/guides",
        "packaging/systemd",
        "packaging/initramfs-tools",
    ] {
        texts(&repository().join(directory), &mut all);
    }
    let mut named = 0;
    for (path, text) in all {
        let words = text.split(|c: char| c.is_whitespace() || "'\"`=:,;()".contains(c));
        for word in words.filter(|word| word.starts_with('/')) {
            let is_ours = FILES
                .iter()
                .any(|(name, _)| word.ends_with(&format!("/{name}")));
            // Directories of the same name: a keyring's, the socket's.
            let program = word.contains("/bin/") || word.ends_with(".so");
            if !is_ours || !program {
                continue;
            }
            let known = FILES.iter().any(|(_, place)| word == format!("/{place}"));
            assert!(known, "{}: {word}", path.display());
            named += 1;
        }
    }
    assert!(named > 10, "only {named} are named");
}
