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

/// Crates that have more than one binary of integration tests, and how many. Each is another link,
/// and waits for the longest test of the one before. May only go down.
const MORE_TEST_BINARIES: [(&str, usize); 11] = [
    // Limits, allocators, forks and memory of the process that runs the test.
    ("crates/core/crypto", 7),
    // An allocator that counts, and the process's list of instances.
    ("crates/postgres/shield", 3),
    // A variable of the process, while it has one thread.
    ("crates/postgres/preload", 2),
    // The number of files that the process may have open.
    ("crates/backup", 2),
    // Features and memory of their own, and runs by hand.
    ("testing", 7),
    ("testing/vm", 7),
    ("crates/sqlite/library", 5),
    ("crates/core/format", 3),
    ("crates/keys/providers", 2),
    ("crates/columns/values", 2),
    ("crates/columns/zone", 2),
];
/// Packages of others in Cargo.lock. May only go down, or up with a reason in
/// docs/internals/house.md.
const FOREIGN_PACKAGES_MAX: usize = 458;

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

/// Scripts, makefiles, units of systemd, TOML and Python: files whose comments begin with `#`.
fn scripts_and_settings() -> Vec<(PathBuf, String)> {
    let by_name = ["py", "service", "sh", "timer", "toml"];
    let mut found = Vec::new();
    for path in files(&root(), "").unwrap() {
        let known = match path.extension() {
            Some(ending) => by_name.iter().any(|name| ending == *name),
            None => true,
        };
        // Without an ending: what is no text is no script.
        if let (true, Ok(text)) = (known, std::fs::read_to_string(&path))
            && (path.extension().is_some() || text.starts_with("#!") || path.ends_with("Makefile"))
        {
            found.push((path, text));
        }
    }
    found
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
                "benches/tour",
            ],
        ),
        // PostgreSQL's wire protocol is spoken in one place.
        (
            "postgres-protocol",
            &["crates/postgres/wire", "crates/postgres/replication"],
        ),
        // Fetched for its C source, which the comparison compiles; never built by cargo.
        ("libsqlite3-sys", &["benches/sqlite/peers"]),
        ("rand", &[]),
        ("openssl", &["crates/core/crypto"]),
        ("foreign-types", &["crates/core/crypto"]),
        ("openssl-sys", &["crates/core/crypto"]),
        (
            // Whoever speaks to a TPM does so through this crate; the proxy's tests run a zone.
            "strongroom-keys-tpm",
            &[
                "",
                "crates/keys/providers",
                "crates/columns/zone",
                "crates/columns/proxy",
                "crates/cli",
            ],
        ),
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

/// `core` uses nothing above it; `keys` uses `core` and, for the key server's store, sealed SQLite.
#[test]
fn lower_layers_do_not_use_higher_ones() {
    let packages = |below: &str| -> BTreeSet<String> {
        let manifests = files(&root().join(below), "Cargo.toml").unwrap();
        manifests.iter().map(|path| package(path)).collect()
    };
    let core = packages("crates/core");
    let mut keys = packages("crates/keys");
    keys.extend(core.iter().cloned());
    keys.insert(String::from("strongroom-sqlite"));
    for (below, allowed) in [("crates/core", &core), ("crates/keys", &keys)] {
        for manifest in files(&root().join(below), "Cargo.toml").unwrap() {
            let text = std::fs::read_to_string(&manifest).unwrap();
            let (dependencies, _) = text.split_once("[dev-dependencies]").unwrap_or((&text, ""));
            for line in dependencies.lines() {
                let name = line.split(['=', '.']).next().unwrap_or_default().trim();
                assert!(
                    !name.starts_with("strongroom-") || allowed.contains(name),
                    "{}: must not use {name}",
                    manifest.display()
                );
            }
        }
    }
}

/// docs/internals/clients.md: what all TLS and HTTP clients share is stated once.
#[test]
fn clients_are_built_in_one_place() {
    for (path, text) in sources() {
        let path = path.strip_prefix(root()).unwrap().display().to_string();
        let is_product = path.starts_with("crates/") && !path.contains("/tests/");
        let is_allowed = path.starts_with("crates/core/tls/");
        for builder in [
            concat!("ClientConfig::", "builder"),
            concat!("Agent::", "config_builder"),
            concat!("Agent::", "new_with"),
        ] {
            assert!(
                !is_product || is_allowed || !text.contains(builder),
                "{path}: {builder} belongs into crates/core/tls"
            );
        }
    }
}

/// The name of the package of a manifest.
fn package(manifest: &Path) -> String {
    let text = std::fs::read_to_string(manifest).unwrap();
    let name = text.lines().find_map(|line| line.strip_prefix("name = "));
    name.unwrap().trim_matches('"').to_owned()
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
    let rust = sources().into_iter().map(|source| (source, "//"));
    let others = scripts_and_settings();
    assert!(others.len() > 50, "scripts are where they are looked for");
    for ((path, text), mark) in rust.chain(others.into_iter().map(|other| (other, "#"))) {
        for (number, line) in (1..).zip(text.lines()) {
            let is_comment = line.trim_start().starts_with(mark);
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
        .filter(|circle| circle.modules.len() > CIRCLE_MAX)
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

/// A binary of tests is a `.rs` file in `tests`, or a folder there with a `main.rs`.
#[test]
fn integration_tests_are_one_binary() {
    let mut binaries = std::collections::BTreeMap::<PathBuf, usize>::new();
    for (path, _) in sources() {
        let folder = path.parent().unwrap();
        let tests = match path.file_name().unwrap().to_str() {
            Some("main.rs") => folder.parent().unwrap(),
            _ => folder,
        };
        if tests.file_name().is_some_and(|name| name == "tests")
            && crate_of(&path) == crate_of(tests)
        {
            let crate_folder = tests.parent().unwrap();
            if crate_folder.join("Cargo.toml").exists() {
                *binaries.entry(crate_folder.to_path_buf()).or_default() += 1;
            }
        }
    }
    assert!(
        binaries.len() > 10,
        "the tests are where they are looked for"
    );
    for (folder, count) in binaries {
        let folder = folder.strip_prefix(root()).unwrap().display().to_string();
        let allowed = MORE_TEST_BINARIES
            .iter()
            .find(|(name, _)| *name == folder)
            .map_or(1, |(_, count)| *count);
        assert!(
            count <= allowed,
            "{folder} has {count} binaries of tests, at most {allowed}"
        );
    }
}

/// Cargo has no inheritance from another workspace, so the extension's manifest repeats the lints
/// and the profile. It is built of FFI, so `unsafe_code` is not among its lints.
#[test]
fn both_workspaces_have_the_same_lints_and_profile() {
    let tables = |manifest: &str| -> std::collections::BTreeMap<String, Vec<String>> {
        let text = std::fs::read_to_string(root().join(manifest)).unwrap();
        let mut tables = std::collections::BTreeMap::<String, Vec<String>>::new();
        let mut table = String::new();
        for line in text.lines().map(str::trim) {
            if line.starts_with('[') {
                table = line.to_owned();
            } else if table.starts_with("[workspace.lints")
                && !line.is_empty()
                && !line.starts_with("unsafe_code")
            {
                tables
                    .entry(table.clone())
                    .or_default()
                    .push(line.to_owned());
            }
        }
        tables
    };
    let ours = tables("Cargo.toml");
    assert!(ours.len() == 3, "{ours:?}");
    assert_eq!(ours, tables("crates/columns/extension/Cargo.toml"));
}

#[test]
fn dependencies_do_not_grow() {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let sources: Vec<&str> = lock
        .lines()
        .filter_map(|line| line.strip_prefix("source = "))
        .collect();
    assert!(
        sources.len() <= FOREIGN_PACKAGES_MAX,
        "{} packages of others, at most {FOREIGN_PACKAGES_MAX}",
        sources.len()
    );
    for source in sources {
        assert_eq!(
            source,
            "\"registry+https://github.com/rust-lang/crates.io-index\""
        );
    }
}
