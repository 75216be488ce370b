//! Encrypted swap: a device is mapped under a random key, and the kernel swaps to it.
//!
//! Must not: keep the key anywhere.

use std::path::Path;
use std::process::Command;

use strongroom_format::code;
use strongroom_keyring::Error;

use crate::active;
use crate::mapped::{self, NameUse};
use crate::probe::KernelPaths;

/// Maps the device as `name` under a random key; with `swapon`, also makes the mapping a swap area
/// and has the kernel swap to it. Goes on where an earlier call was stopped after the mapping. When
/// mkswap or swapon fails, the mapping is closed.
///
/// # Errors
/// As [`active::open_swap`]; SR-8337 when the name is that of another mapping; SR-5001 with what
/// mkswap(8) or swapon(8) said.
pub fn activate(path: &Path, name: &str, swapon: bool) -> Result<(), Error> {
    let places = KernelPaths::default();
    match mapped::use_of_swap_name(&places, name, path) {
        NameUse::Free => active::open_swap(path, name)?,
        NameUse::Wanted => {}
        NameUse::Other => return Err(name_taken(name)),
    }
    let mapped = active::path_of(name);
    if !swapon || mapped::is_swap_on(&places, name) {
        return Ok(());
    }
    let done = run("mkswap", &mapped).and_then(|()| run("swapon", &mapped));
    if done.is_err() {
        // Nobody can use the mapping; mkswap's or swapon's failure is the one to report.
        drop(active::close(name));
    }
    done
}

/// Returns the error SR-8337 for a name that another mapping than the wanted one has.
pub(crate) fn name_taken(name: &str) -> Error {
    let detail = format!("{name} is a mapping of something else");
    Error::new(&code::VOLUME_NAME, detail)
}

/// Runs `program` with one argument, and waits for its end. SR-5001 when it cannot be started, or
/// fails, with what it wrote to standard error.
fn run(program: &str, path: &Path) -> Result<(), Error> {
    let output = Command::new(program).arg(path).output();
    let output = output.map_err(|error| Error::new(&code::IO, format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let detail = format!("{program} {}: {}", path.display(), said.trim());
    Err(Error::new(&code::IO, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_says_why() {
        let error = run("cat", Path::new("/nonexistent/x")).unwrap_err();
        assert_eq!(error.code(), &code::IO);
        assert!(
            error.detail().starts_with("cat /nonexistent/x: "),
            "{error}"
        );
        assert!(run("strongroom-no-such-program", Path::new("x")).is_err());
        run("true", Path::new("x")).unwrap();
    }
}
