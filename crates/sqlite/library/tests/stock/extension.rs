//! The loadable extension for tests that put it into a stock SQLite: `STRONGROOM_EXT`, or one that
//! is built beside the test.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The extension's path.
pub(crate) fn extension() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| match std::env::var_os("STRONGROOM_EXT") {
        Some(path) => PathBuf::from(path),
        None => build(),
    })
}

/// Builds the extension with the profile and in the target directory of this test. Always: an old
/// one would be tested.
fn build() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["build", "-p", "strongroom-sqlite-extension"])
        .env("CARGO_TARGET_DIR", profile.parent().unwrap());
    if profile.ends_with("release") {
        command.arg("--release");
    }
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let library = profile.join("libstrongroom_sqlite.so");
    assert!(library.exists(), "{} was not built", library.display());
    library
}
