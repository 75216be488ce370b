//! Runs PostgreSQL's `pg_combinebackup`, stops it with the restore, and reports its messages.
//!
//! Must not: put a program's messages into an error unfiltered.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use strongroom_format::code;

use crate::restore_options::RestoreOptions;
use crate::{Error, Result};

/// How often a running program is polled.
const LOOK: Duration = Duration::from_millis(20);
/// Most characters of a program's messages that stand in an error.
const WORDS_MAX: usize = 2000;
/// Most bytes of its messages that are read.
const SAID_MAX: u64 = 64 * 1024;

/// Runs `command`, which is `program`, to its end; kills it when the restore is to stop, and
/// returns the error of the stop. Its messages go to a new file `said`, which is removed at the
/// end, but stays after a stop or an error of the system.
///
/// # Errors
/// SR-7162 when it cannot be run, or does not end with 0; the error has the beginning of its
/// messages. SR-5001 when the system reports an error.
pub(crate) fn run(
    mut command: Command,
    program: &Path,
    said: &Path,
    options: &RestoreOptions,
) -> Result<()> {
    let shown = program.display();
    let lost = |error: std::io::Error| Error::new(&code::COMBINE, format!("{shown}: {error}"));
    let unwritten = |error| Error::io(said.display().to_string(), error);
    options.check_stop()?;
    let file = File::create_new(said).map_err(unwritten)?;
    command.stdout(Stdio::null()).stderr(file);
    let mut child = command.spawn().map_err(lost)?;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(lost)? {
            break status;
        }
        if let Err(stopped) = options.check_stop() {
            drop(child.kill());
            drop(child.wait());
            return Err(stopped);
        }
        thread::sleep(LOOK);
    };
    let mut text = Vec::new();
    let read = File::open(said).and_then(|file| file.take(SAID_MAX).read_to_end(&mut text));
    read.map_err(unwritten)?;
    fs::remove_file(said).map_err(unwritten)?;
    if status.success() {
        return Ok(());
    }
    let detail = format!("{shown}: {status}: {}", printable(&text));
    Err(Error::new(&code::COMBINE, detail))
}

/// A program's messages in one line, cut after 2000 characters, without control characters.
pub(crate) fn printable(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let text = lines.join("; ");
    let plain = text.chars().filter(|character| !character.is_control());
    plain.take(WORDS_MAX).collect()
}

/// A path as `pg_combinebackup` takes it in a mapping of tablespaces: with a backslash before each
/// `=`, which would otherwise end the path.
pub(crate) fn escape_mapping(path: &Path) -> Vec<u8> {
    let escaped = path.as_os_str().as_bytes().iter().flat_map(|byte| {
        let escape = (*byte == b'=').then_some(b'\\');
        escape.into_iter().chain([*byte])
    });
    escaped.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_mapping_has_one_sign_that_is_not_escaped() {
        let mapping = escape_mapping(Path::new("/a=b/c"));
        assert_eq!(mapping, br"/a\=b/c");
    }

    #[test]
    fn what_a_program_says_is_one_short_line() {
        assert_eq!(
            printable(b"error: a\n\x1b[0mhint: b\n"),
            "error: a; [0mhint: b"
        );
        assert_eq!(printable(&vec![b'x'; 5000]).len(), WORDS_MAX);
    }

    #[test]
    fn a_program_ends_with_the_restore() {
        static STOP: AtomicBool = AtomicBool::new(false);
        let place = tempfile::tempdir().unwrap();
        let options = RestoreOptions {
            to: place.path().join("out"),
            tablespaces: None,
            threads: 1,
            recovery: None,
            kept: crate::Kept::default(),
            sealing: None,
            delta: None,
            stop: Some(&STOP),
        };
        let mut command = Command::new("sleep");
        command.arg("60");
        let begun = Instant::now();
        let ended = thread::scope(|scope| {
            let running = scope.spawn(|| {
                let said = place.path().join("said");
                run(command, Path::new("sleep"), &said, &options)
            });
            thread::sleep(Duration::from_millis(200));
            STOP.store(true, std::sync::atomic::Ordering::Relaxed);
            running.join().unwrap()
        });
        assert_eq!(ended.unwrap_err().code(), &code::IO);
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}
