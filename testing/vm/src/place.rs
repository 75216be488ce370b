//! Where the virtual machine's parts are kept between runs: `<target>/vm`. And the product's
//! programs, built and without debugging information.
//!
//! Must not: write outside the target directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use strongroom_testing_support::product;

/// `<target>/vm`, made when it is not there.
///
/// # Panics
/// When it cannot be made.
#[must_use]
pub fn cache() -> PathBuf {
    let place = product::target().join("vm");
    fs::create_dir_all(&place).expect("a directory below the target directory");
    place
}

/// Runs `make` while no other test process does, unless `file` is there already.
///
/// # Panics
/// When the lock cannot be had, or the file is not there afterwards.
pub fn once(file: &Path, make: impl FnOnce()) {
    let lock = File::create(cache().join("lock")).expect("a file for the lock");
    lock.lock().expect("a lock");
    if !file.exists() {
        make();
    }
    assert!(file.exists(), "{} was not made", file.display());
}

static COMMAND: OnceLock<PathBuf> = OnceLock::new();

/// The `strongroom` command for the guest: what [`use_command`] or `STRONGROOM_COMMAND` names, or
/// one built now, without debugging information.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn command() -> &'static Path {
    COMMAND.get_or_init(|| {
        let given = std::env::var_os("STRONGROOM_COMMAND").map(PathBuf::from);
        stripped(&given.unwrap_or_else(|| built("strongroom")))
    })
}

/// Names the command, unless it has been used already.
pub fn use_command(program: &Path) {
    COMMAND.get_or_init(|| stripped(program));
}

/// cryptsetup's plugin for our tokens, linked as an installation links it: of the library that
/// `STRONGROOM_VOLUME_TOKEN` names, or of one built now.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn plugin() -> PathBuf {
    let given = std::env::var_os("STRONGROOM_VOLUME_TOKEN").map(PathBuf::from);
    let library = given.unwrap_or_else(|| built("libstrongroom_volume_token.a"));
    let whole = cache().join("plugin.so");
    let link = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/cryptsetup-token/link"
    );
    let status = Command::new(link).arg(library).arg(&whole).status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "linking the plugin"
    );
    stripped(&whole)
}

/// Builds what goes into a guest, as the running test was built, and names one of the files that
/// come of it.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn built(file: &str) -> PathBuf {
    product::built(&["strongroom-cli", "strongroom-volume-token"], file)
}

/// A copy without debugging information: what a guest loads into its memory.
///
/// # Panics
/// When binutils are missing.
#[must_use]
pub fn stripped(program: &Path) -> PathBuf {
    use std::os::unix::fs::MetadataExt as _;
    let about = fs::metadata(program).expect("the program is there");
    let name = program.file_name().expect("a file").to_string_lossy();
    let copy = cache().join(format!("{name}-{}-{}", about.ino(), about.mtime()));
    once(&copy, || {
        let older = fs::read_dir(cache()).expect("the cache").flatten();
        for old in older.filter(|old| {
            old.file_name()
                .to_string_lossy()
                .starts_with(&format!("{name}-"))
        }) {
            drop(fs::remove_file(old.path()));
        }
        let status = Command::new("strip")
            .arg("-o")
            .arg(&copy)
            .arg(program)
            .status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "strip(1) of {name}"
        );
    });
    copy
}
