//! Goal: the house rules that a machine can check stay kept. Method: reads the tree's own files.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use strongroom_tidy::circles::circles;
use strongroom_tidy::source::{declared_modules, files};

/// Longest source file, in lines. May only go down.
const LINES_MAX: usize = 620;
/// Longest comment, in columns.
const COLUMNS_MAX: usize = 100;
/// Most modules of a crate that use each other.
const CIRCLE_MAX: usize = 3;
/// Crates that still have a larger circle, and how large. May only shrink.
const LARGER_CIRCLES: [(&str, usize); 3] = [
    ("crates/core/keyring", 13),
    ("crates/keys/providers", 8),
    ("crates/volumes/volume", 4),
];
/// Files that a crate takes from another one by `#[path]`. May only go down: shared support belongs
/// into a crate of its own.
const BORROWED_MAX: usize = 1;
/// Words that were given up, in lower case: what is said instead is in docs/glossary.md.
const RETIRED: [&str; 8] = [
    concat!("guard", " 1"),
    concat!("guard", " 2"),
    concat!("guard", " 3"),
    concat!("guard", " 4"),
    concat!("guard", " 5"),
    concat!("sqlite", " guard"),
    concat!("medi", "ums"),
    concat!("ber", "th"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn sources() -> Vec<(PathBuf, String)> {
    let found = files(&root(), ".rs").unwrap();
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
                "crates/sqlite/shell",
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
    let manifests = files(&root(), "Cargo.toml").unwrap();
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

#[test]
fn comments_fit_the_page() {
    let mut long = Vec::new();
    for (path, text) in sources() {
        for (number, line) in (1..).zip(text.lines()) {
            let is_comment = line.trim_start().starts_with("//");
            // An address cannot be broken.
            if is_comment && line.chars().count() > COLUMNS_MAX && !line.contains("://") {
                long.push(format!("{}:{number}", path.display()));
            }
        }
    }
    assert!(
        long.is_empty(),
        "comments over {COLUMNS_MAX} columns: {long:#?}"
    );
}

#[test]
fn few_modules_use_each_other() {
    let large: Vec<String> = circles(&root())
        .unwrap()
        .into_iter()
        .filter(|circle| {
            let known = LARGER_CIRCLES
                .iter()
                .find(|(folder, _)| circle.folder == root().join(folder));
            circle.modules.len() > known.map_or(CIRCLE_MAX, |(_, most)| *most)
        })
        .map(|circle| format!("{}: {}", circle.folder.display(), circle.modules.join(" ")))
        .collect();
    assert!(
        large.is_empty(),
        "`cargo run -p strongroom-tidy -- DIRECTORY edges` says which names tie them: {large:#?}"
    );
}

#[test]
fn retired_words_stay_away() {
    let mut texts = sources();
    for page in files(&root(), ".md").unwrap() {
        let name = page.strip_prefix(root()).unwrap().display().to_string();
        // What was decided and released is told in the words of its time.
        let is_history = name == "CHANGELOG.md" || name.starts_with("docs/decisions");
        if !is_history && name != "docs/glossary.md" {
            texts.push((page.clone(), std::fs::read_to_string(page).unwrap()));
        }
    }
    for (path, text) in texts {
        let text = text.to_lowercase();
        for word in RETIRED {
            let is_there = text.match_indices(word).any(|(at, _)| {
                let is_letter = |each: Option<char>| each.is_some_and(char::is_alphanumeric);
                let before = text[..at].chars().next_back();
                let after = text[at + word.len()..].chars().next();
                !is_letter(before) && !is_letter(after)
            });
            assert!(!is_there, "{}: {word}", path.display());
        }
    }
}

#[test]
fn crates_borrow_few_files() {
    let mut borrowed = Vec::new();
    for (path, text) in sources() {
        for line in text.lines().map(str::trim_start) {
            let Some(target) = line.strip_prefix("#[path = \"") else {
                continue;
            };
            let target = target.split('"').next().unwrap_or_default();
            let target = path.parent().unwrap().join(target).canonicalize().unwrap();
            if crate_of(&path) != crate_of(&target) {
                borrowed.push(format!("{}: {}", path.display(), target.display()));
            }
        }
    }
    assert!(borrowed.len() <= BORROWED_MAX, "{borrowed:#?}");
}

fn crate_of(path: &Path) -> PathBuf {
    let folder = path
        .ancestors()
        .skip(1)
        .find(|at| at.join("Cargo.toml").exists());
    folder.unwrap().to_path_buf()
}

#[test]
fn every_source_is_a_module_of_something() {
    let mut named = BTreeSet::new();
    for (path, text) in sources() {
        let folder = path.parent().unwrap();
        let own = match path.file_name().unwrap().to_str() {
            Some("mod.rs" | "lib.rs" | "main.rs") => folder.to_path_buf(),
            _ => path.with_extension(""),
        };
        for name in declared_modules(&text) {
            // Within the file's own folder, and for the first file of a test beside it.
            for folder in [own.as_path(), folder] {
                named.insert(folder.join(format!("{name}.rs")));
                named.insert(folder.join(&name).join("mod.rs"));
            }
        }
        for line in text.lines().map(str::trim) {
            let quoted = line.split('"').nth(1);
            if let Some(other) =
                quoted.filter(|_| line.contains("path = ") || line.contains("include"))
            {
                named.extend(folder.join(other).canonicalize());
            }
        }
    }
    for manifest in files(&root(), "Cargo.toml").unwrap() {
        let folder = manifest.parent().unwrap();
        for line in std::fs::read_to_string(&manifest).unwrap().lines() {
            if let Some(path) = line.strip_prefix("path = ") {
                named.insert(folder.join(path.trim_matches('"')));
            }
        }
        for known in ["build.rs", "src/lib.rs", "src/main.rs"] {
            named.insert(folder.join(known));
        }
        for below in ["src/bin", "tests", "benches", "examples"] {
            let Ok(entries) = std::fs::read_dir(folder.join(below)) else {
                continue;
            };
            for entry in entries {
                let path = entry.unwrap().path();
                named.insert(if path.is_dir() {
                    path.join("main.rs")
                } else {
                    path
                });
            }
        }
    }
    let lost: Vec<PathBuf> = sources()
        .into_iter()
        .map(|(path, _)| path)
        .filter(|path| !named.contains(path))
        .collect();
    assert!(lost.is_empty(), "no module is made of {lost:#?}");
}

/// A page that no other page names is one that nobody finds.
#[test]
fn every_page_is_linked() {
    let pages = files(&root(), ".md").unwrap();
    let mut linked = BTreeSet::new();
    for page in &pages {
        let text = std::fs::read_to_string(page).unwrap();
        for target in text.split("](").skip(1) {
            let target = target.split([')', '#', ' ']).next().unwrap_or_default();
            linked.extend(page.parent().unwrap().join(target).canonicalize());
        }
    }
    let lost: Vec<&PathBuf> = pages
        .iter()
        .filter(|page| page.starts_with(root().join("docs")) && !linked.contains(*page))
        .collect();
    assert!(lost.is_empty(), "no page leads to {lost:#?}");
}
