//! Goal: after a database has been opened, the key that the user gave is nowhere in the process;
//! what was derived from it is in locked memory only, which no core dump contains.
//!
//! Method: a child opens a sealed database and works with it; this process, its parent, searches
//! the child's memory and its core. The key given is searched for as bytes and as text. What was
//! derived is not known here, so it is taken from the child's locked memory and searched for
//! everywhere else. That each search can find something is shown by a child that keeps a copy on
//! purpose.
//!
//! Not covered, because it cannot be: an environment variable stays in the block that the kernel
//! gave the process (`/proc/PID/environ`), and the text of `PRAGMA key` in SQLite's memory. The
//! pages in SQLite's cache are in a core.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![expect(
    clippy::print_stdout,
    reason = "seeds and counts are for whoever runs it"
)]

use std::path::PathBuf;
use std::process::Command;

use strongroom_testing::driver::Worker;
use strongroom_testing::memory::{environment, find, mappings, pieces_in, secrets};
use strongroom_testing::random::{Random, seed};
use strongroom_testing::setup::{Room, extension, python, raw_key};

const WORK: &[&str] = &[
    "PRAGMA journal_mode=wal",
    "CREATE TABLE IF NOT EXISTS t(a INTEGER PRIMARY KEY, b TEXT)",
    "INSERT INTO t(b) SELECT hex(randomblob(300)) FROM (WITH RECURSIVE n(x) AS \
     (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<500) SELECT x FROM n)",
    "PRAGMA wal_checkpoint(TRUNCATE)",
    "PRAGMA journal_mode=delete",
    "UPDATE t SET b=b||'x'",
    "SELECT b FROM t ORDER BY b",
];

fn worker(room: &Room, stock: bool, environment: Option<&str>) -> Worker {
    let mut command = if stock {
        let mut command = Command::new(python());
        command
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/drivers/worker.py"))
            .arg(extension());
        command
    } else {
        let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
        command.arg("session");
        command
    };
    if let Some(value) = environment {
        command.env("STRONGROOM_TEST_KEY", value);
    }
    Worker::start(command, room.path()).unwrap()
}

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

/// The key in every form: half of it is enough, for that is what a register holds.
fn forms(secret: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let text = String::from_utf8_lossy(secret).into_owned();
    let mut forms = Vec::new();
    for half in secret.chunks(secret.len().div_ceil(2)) {
        forms.push(("as given", half.to_vec()));
    }
    if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let bytes = bytes_of(&text);
        forms.push(("bytes", bytes[..16].to_vec()));
        forms.push(("bytes", bytes[16..].to_vec()));
    }
    forms
}

/// Where the key is in the child's memory, except in the environment that the kernel gave it.
fn copies(worker: &Worker, secret: &[u8]) -> Vec<String> {
    let kernels = environment(worker.id()).unwrap();
    let mut found = Vec::new();
    for (form, needle) in forms(secret) {
        for (at, place) in find(worker.id(), &needle).unwrap() {
            if !kernels.contains(&at) {
                found.push(format!("{form} at {at:x} in {place}"));
            }
        }
    }
    found
}

fn assert_locked(worker: &Worker) {
    let mappings = mappings(worker.id()).unwrap();
    let vaults: Vec<_> = mappings
        .iter()
        .filter(|mapping| mapping.is_vault())
        .collect();
    assert!(!vaults.is_empty(), "no locked mapping outside core dumps");
    let locked_only: Vec<_> = mappings
        .iter()
        .filter(|mapping| mapping.locked_kb > 0 && !mapping.is_vault())
        .collect();
    assert!(locked_only.is_empty(), "locked but dumped: {locked_only:?}");
}

/// What was derived is nowhere but in locked memory.
fn assert_derived_stays(worker: &Worker, label: &str) {
    let pieces = secrets(worker.id()).unwrap();
    assert!(
        pieces.len() >= 4,
        "{label}: {} pieces in locked memory",
        pieces.len()
    );
    let all = mappings(worker.id()).unwrap();
    for mapping in all
        .iter()
        .filter(|mapping| mapping.permissions.starts_with("rw") && !mapping.is_vault())
    {
        let bytes = strongroom_testing::memory::contents(worker.id(), mapping);
        let leaked = pieces_in(&pieces, &bytes);
        assert!(
            leaked.is_empty(),
            "{label}: {} of {} pieces in {mapping:?}",
            leaked.len(),
            pieces.len()
        );
    }
    println!(
        "{label}: {} pieces of locked memory, none elsewhere",
        pieces.len()
    );
}

struct Way {
    label: &'static str,
    /// The bytes in the key file or variable.
    secret: Vec<u8>,
    stock: bool,
    by_environment: bool,
    /// Through the Rust library's own `open` instead of a URI.
    library: bool,
}

fn ways(random: &mut Random) -> Vec<Way> {
    let way = |label, secret, stock, by_environment, library| Way {
        label,
        secret,
        stock,
        by_environment,
        library,
    };
    let passphrase = || b"quite a long passphrase: ".to_vec();
    let pass = |random: &mut Random| [passphrase(), random.text(20).into_bytes()].concat();
    let hex = |random: &mut Random| raw_key(random).into_bytes();
    vec![
        way(
            "raw key as text, file, URI",
            hex(random),
            false,
            false,
            false,
        ),
        way(
            "raw key as bytes, file, URI",
            bytes_of(&raw_key(random)),
            false,
            false,
            false,
        ),
        way("raw key, file, library", hex(random), false, false, true),
        way("raw key, variable, URI", hex(random), false, true, false),
        way("passphrase, file, URI", pass(random), false, false, false),
        way(
            "passphrase, variable, URI",
            pass(random),
            false,
            true,
            false,
        ),
        way(
            "raw key as text, file, extension",
            hex(random),
            true,
            false,
            false,
        ),
        way(
            "passphrase, file, extension",
            pass(random),
            true,
            false,
            false,
        ),
    ]
}

fn opened(room: &Room, way: &Way) -> Worker {
    let text = String::from_utf8_lossy(&way.secret).into_owned();
    let mut worker = worker(room, way.stock, way.by_environment.then_some(text.as_str()));
    room.put("keys/given", &way.secret).unwrap();
    let (path, key): (PathBuf, PathBuf) = (room.at("a.db"), room.at("keys/given"));
    let request = if way.library {
        format!("library {} {}", path.display(), key.display())
    } else if way.by_environment {
        format!("open file:{}?key_env=STRONGROOM_TEST_KEY", path.display())
    } else {
        format!("open file:{}?key_file={}", path.display(), key.display())
    };
    // Twice: the first creates the database, the second opens it.
    for _ in 0..2 {
        worker.ask(&request).unwrap();
        for statement in WORK {
            worker.ask(&format!("sql {statement}")).unwrap();
        }
    }
    worker
}

#[test]
fn the_key_given_is_gone_and_what_was_derived_is_locked() {
    let seed = seed();
    println!("STRONGROOM_SEED={seed}");
    let mut random = Random::new(seed);
    for way in ways(&mut random) {
        let room = Room::new(&mut random).unwrap();
        let worker = opened(&room, &way);
        let found = copies(&worker, &way.secret);
        assert!(found.is_empty(), "{}: {found:?}", way.label);
        assert_locked(&worker);
        assert_derived_stays(&worker, way.label);
    }
}

#[test]
fn the_search_finds_a_copy() {
    let mut random = Random::new(seed());
    let room = Room::new(&mut random).unwrap();
    let mut worker = worker(&room, false, None);
    let secret = raw_key(&mut random).into_bytes();
    room.put("keys/given", &secret).unwrap();
    assert!(copies(&worker, &secret).is_empty());
    worker
        .ask(&format!("hold {}", room.at("keys/given").display()))
        .unwrap();
    assert!(
        !copies(&worker, &secret).is_empty(),
        "a copy was made on purpose"
    );
}

/// The core of a process with an open database, written by the kernel. `None`: this machine writes
/// none.
fn core_of(room: &Room, worker: &mut Worker) -> Option<Vec<u8>> {
    let pid = worker.id();
    let limit = Command::new("prlimit")
        .args(["--core=unlimited:unlimited", "--pid", &pid.to_string()])
        .status();
    let by_kernel = limit.is_ok_and(|status| status.success())
        && std::fs::read_to_string("/proc/sys/kernel/core_pattern")
            .is_ok_and(|pattern| pattern.trim() == "core");
    if by_kernel {
        worker.abort().unwrap();
    } else {
        let prefix = room.at("core");
        let gcore = Command::new("gcore")
            .arg("-o")
            .arg(&prefix)
            .arg(pid.to_string())
            .output()
            .ok()?;
        assert!(gcore.status.success(), "gcore: {gcore:?}");
    }
    ["core".to_owned(), format!("core.{pid}")]
        .into_iter()
        .find_map(|name| std::fs::read(room.at(&name)).ok())
}

#[test]
fn a_core_contains_no_key() {
    let mut random = Random::new(seed());
    let marker = format!("marker{}", random.text(24));
    for way in ways(&mut random) {
        // The kernel's copy of the environment is in the core, and with it a key that came that
        // way.
        if way.by_environment {
            continue;
        }
        let room = Room::new(&mut random).unwrap();
        let mut worker = opened(&room, &way);
        worker
            .ask(&format!("sql UPDATE t SET b='{marker}' WHERE a=1"))
            .unwrap();
        let pieces = secrets(worker.id()).unwrap();
        assert!(pieces.len() >= 4);
        let Some(core) = core_of(&room, &mut worker) else {
            println!(
                "no core is written on this machine, and there is no gcore: nothing was searched"
            );
            return;
        };
        assert!(
            memchr::memmem::find(&core, marker.as_bytes()).is_some(),
            "SQLite's page cache is in a core"
        );
        for (form, needle) in forms(&way.secret) {
            assert!(
                memchr::memmem::find(&core, &needle).is_none(),
                "{}: the key {form}",
                way.label
            );
        }
        let leaked = pieces_in(&pieces, &core);
        assert!(
            leaked.is_empty(),
            "{}: {} of {} pieces",
            way.label,
            leaked.len(),
            pieces.len()
        );
        println!(
            "{}: core of {} bytes, none of {} pieces",
            way.label,
            core.len(),
            pieces.len()
        );
    }
}
