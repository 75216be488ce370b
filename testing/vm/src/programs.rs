//! Programs of this host with the libraries that they load: what a guest is put together from.
//!
//! Must not: install anything.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The file of an installed program.
///
/// # Panics
/// When it is not installed: the message says which package has it.
#[must_use]
pub fn installed(name: &str, package: &str) -> PathBuf {
    let places = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    let found = places
        .iter()
        .map(|place| Path::new(place).join(name))
        .find(|path| path.exists());
    found.unwrap_or_else(|| missing(name, package))
}

#[expect(clippy::panic, reason = "a test without its programs has failed")]
fn missing(name: &str, package: &str) -> PathBuf {
    panic!("{name} is not installed: apt-get install {package}")
}

/// The libraries of these programs and modules, as the dynamic linker finds them, and the linker
/// itself.
///
/// # Panics
/// When `ldd` cannot be run.
#[must_use]
pub fn libraries<'a>(programs: impl IntoIterator<Item = &'a Path>) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for program in programs {
        let output = Command::new("ldd").arg(program).output().expect("ldd");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        for line in text.lines() {
            let path = line.split_whitespace().find(|word| word.starts_with('/'));
            found.extend(path.map(PathBuf::from));
        }
    }
    // Loaded when a thread is cancelled; no program names it.
    found.insert(PathBuf::from("/lib/x86_64-linux-gnu/libgcc_s.so.1"));
    found
}
