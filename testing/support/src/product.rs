//! The command and the libraries under test: the file that a variable names, or one that is built
//! now, beside the running test and with its profile.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use tempfile::TempDir;

/// The `strongroom` command, or what `STRONGROOM_COMMAND` names.
pub fn command() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| found(&["STRONGROOM_COMMAND"], "strongroom-cli", "strongroom"))
}

/// `libstrongroom_shield.so`, or what `STRONGROOM_SHIELD_LIB` names.
pub fn shield() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    let package = "strongroom-postgres-preload";
    FOUND.get_or_init(|| found(&["STRONGROOM_SHIELD_LIB"], package, SHIELD))
}

/// `libstrongroom_sqlite.so`, or what `STRONGROOM_EXTENSION` or `STRONGROOM_EXT` names.
pub fn sqlite_extension() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    let variables = ["STRONGROOM_EXTENSION", "STRONGROOM_EXT"];
    let package = "strongroom-sqlite-extension";
    FOUND.get_or_init(|| found(&variables, package, "libstrongroom_sqlite.so"))
}

/// Copies of the command in this file, as `strongroom`, and of the preload library, side by side
/// and readable by everybody; there as long as somebody has them. Copies, because what was built
/// may be built anew while servers have it open, and may be where PostgreSQL's user sees nothing.
pub fn side_by_side(command: &Path) -> Arc<TempDir> {
    static MADE: Mutex<Weak<TempDir>> = Mutex::new(Weak::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(there) = made.upgrade() {
        return there;
    }
    let directory = tempfile::Builder::new()
        .prefix("sr-product-")
        .tempdir()
        .unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for (from, name) in [(command, "strongroom"), (shield(), SHIELD)] {
        let to = directory.path().join(name);
        fs::copy(from, &to).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let directory = Arc::new(directory);
    *made = Arc::downgrade(&directory);
    directory
}

/// The file's name of the preload library.
pub const SHIELD: &str = "libstrongroom_shield.so";

fn found(variables: &[&str], package: &str, file: &str) -> PathBuf {
    let named = variables.iter().find_map(std::env::var_os);
    named.map_or_else(|| built(&[package], file), PathBuf::from)
}

/// Builds packages with the profile of the running test, and names one of the files that come of
/// it. Always: an old one would be tested. Together: cargo would build what they have in common
/// anew for each, with other features.
pub fn built(packages: &[&str], file: &str) -> PathBuf {
    built_in(&profile(), packages, file)
}

/// `libstrongroom_shield.so` with the profile for development: what `STRONGROOM_SHIELD_LIB` names,
/// if that was built so beside the running test, else one that is built now. Cargo builds much of
/// it anew for one package alone, with other features, which takes minutes.
pub fn shield_for_development() -> PathBuf {
    let profile = target().join("debug");
    match std::env::var_os("STRONGROOM_SHIELD_LIB") {
        Some(named) if Path::new(&named).starts_with(&profile) => named.into(),
        _ => built_in(&profile, &["strongroom-postgres-preload"], SHIELD),
    }
}

fn built_in(profile: &Path, packages: &[&str], file: &str) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build
        .args(["build", "--quiet", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"))
        .args(packages.iter().flat_map(|package| ["-p", package]))
        .env("CARGO_TARGET_DIR", target());
    if profile.ends_with("release") {
        build.arg("--release");
    }
    crate::process::checked(&mut build);
    let file = profile.join(file);
    assert!(file.exists(), "{} was not built", file.display());
    file
}

/// Where the running test was built: `<target>/<profile>`.
pub fn profile() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let inside = program.parent().unwrap();
    // Tests are in `deps` below it; other programs are not.
    match inside.ends_with("deps") {
        true => inside.parent().unwrap().to_owned(),
        false => inside.to_owned(),
    }
}

/// The target directory of the running test.
pub fn target() -> PathBuf {
    profile().parent().unwrap().to_owned()
}
