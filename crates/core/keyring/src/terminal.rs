//! Asks for a passphrase at the terminal, without echo.
//!
//! The terminal's settings are always restored, after control-C too: while the passphrase is read,
//! control-C and control-backslash end the line instead of the process, and cancel the question.
//!
//! Must not: read standard input, which belongs to data; keep what was typed outside locked memory.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::OFlags;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use strongroom_crypto::SecretBytes;
use strongroom_format::code;

use crate::error::Error;
use crate::material::{is_raw, without_newline};
use crate::material_buffer::MaterialBuffer;

const TERMINAL: &str = "/dev/tty";
/// Whether questions are forbidden, although there may be a terminal.
static NOBODY: AtomicBool = AtomicBool::new(false);

/// Makes every later question of this process fail with SR-1004.
pub(crate) fn ask_nobody() {
    NOBODY.store(true, Ordering::Relaxed);
}

/// How many pairs of entries that differ are accepted before the question fails.
const TRIES: usize = 3;
/// Control-C and control-backslash, as they arrive when they raise no signal.
const INTERRUPTS: [u8; 2] = [0x03, 0x1c];

/// Asks for a passphrase at the controlling terminal, without echo; twice when `creating`, up to
/// three times until both entries are the same. Errors: SR-1004 without a terminal, or after
/// [`ask_nobody`]; SR-2001 (cancelled); SR-2011 (the entries differ, or 32 bytes that are not
/// UTF-8); SR-5001 when the system reports an error.
pub(crate) fn ask(prompt: &str, creating: bool) -> Result<SecretBytes, Error> {
    if NOBODY.load(Ordering::Relaxed) {
        return Err(Error::new(&code::NO_TERMINAL, "prompts are switched off"));
    }
    ask_at(Path::new(TERMINAL), prompt, creating)
}

/// Asks for a passphrase at a given terminal, as [`ask`]; twice when `creating`. Errors: SR-1004
/// when the terminal cannot be opened or set; SR-2001 (cancelled); SR-2011 (the entries differ
/// three times, or 32 bytes that are not UTF-8); SR-5001 when the system reports an error.
fn ask_at(terminal: &Path, prompt: &str, creating: bool) -> Result<SecretBytes, Error> {
    let flags = i32::try_from(OFlags::NOCTTY.bits()).unwrap_or_default();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(terminal);
    let file = file.map_err(|error| Error::caused(&code::NO_TERMINAL, TERMINAL, error))?;
    let prompt = match prompt {
        "" => String::from("Passphrase"),
        // A file name in the prompt must not send control sequences to the terminal.
        text => text
            .chars()
            .map(|c| if c.is_control() { '?' } else { c })
            .collect(),
    };
    for _ in 0..TRIES {
        let first = read_line(&file, &format!("{prompt}: "))?;
        if !creating {
            return Ok(first);
        }
        let again = read_line(&file, &format!("{prompt} (again): "))?;
        if first.as_slice() == again.as_slice() {
            // The terminal is not set to UTF-8: letters must not become a raw key, for which
            // Argon2id is not used.
            if is_raw(without_newline(first.as_slice())) {
                let detail = "a typed passphrase of 32 bytes must be UTF-8";
                return Err(Error::new(&code::KEY_MALFORMED, detail));
            }
            return Ok(first);
        }
        print(&file, "The two entries differ.\n")?;
    }
    Err(Error::new(&code::KEY_MALFORMED, "the two entries differ"))
}

/// Prompts, and reads one line without echo. Restores the terminal's settings. Errors: SR-2001
/// after control-C or control-backslash; SR-1004 when the terminal cannot be set; SR-5001 when the
/// system reports an error.
fn read_line(terminal: &File, prompt: &str) -> Result<SecretBytes, Error> {
    let echo_off = EchoOff::on(terminal)?;
    print(terminal, prompt)?;
    let mut buffer = MaterialBuffer::new()?;
    let failed = |error| Error::io("reading the passphrase", error);
    // The terminal hands over whole lines: one read, unless a signal interrupted it.
    while buffer.read_from(terminal).map_err(failed)? && buffer.is_empty() {}
    drop(echo_off);
    let line = buffer.finish()?;
    match line.as_slice().last() {
        Some(last) if INTERRUPTS.contains(last) => {
            print(terminal, "\n")?;
            Err(Error::new(&code::NO_KEY, "cancelled"))
        }
        _ => Ok(line),
    }
}

/// Writes text to the terminal. Errors: SR-5001 when that fails.
fn print(mut terminal: &File, text: &str) -> Result<(), Error> {
    let written = terminal.write_all(text.as_bytes());
    written.map_err(|error| Error::io("writing to the terminal", error))
}

/// Switches echo off until it is dropped.
struct EchoOff<'a> {
    terminal: &'a File,
    before: Termios,
}

impl<'a> EchoOff<'a> {
    /// Switches echo and the signals of the keys off, and discards what was typed before. Dropping
    /// the result restores the settings. Errors: SR-1004 when the terminal refuses.
    fn on(terminal: &'a File) -> Result<Self, Error> {
        let refused = |error: rustix::io::Errno| {
            Error::caused(&code::NO_TERMINAL, TERMINAL, std::io::Error::from(error))
        };
        let before = tcgetattr(terminal).map_err(refused)?;
        let mut quiet = before.clone();
        quiet
            .local_modes
            .remove(LocalModes::ECHO | LocalModes::ISIG);
        quiet
            .local_modes
            .insert(LocalModes::ICANON | LocalModes::ECHONL);
        let [interrupt, quit] = INTERRUPTS;
        quiet.special_codes[SpecialCodeIndex::VEOL] = interrupt;
        quiet.special_codes[SpecialCodeIndex::VEOL2] = quit;
        // Flush discards what was typed before the prompt, which was meant for something else.
        tcsetattr(terminal, OptionalActions::Flush, &quiet).map_err(refused)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for EchoOff<'_> {
    /// Restores the terminal's settings. Ignores errors.
    fn drop(&mut self) {
        // A terminal that went away needs no restoring.
        let _ = tcsetattr(self.terminal, OptionalActions::Now, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::ffi::OsStringExt;
    use std::path::PathBuf;

    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

    use super::*;

    /// Plays a user at a pseudo-terminal: types each entry after its prompt. Returns the outcome,
    /// everything that the terminal showed, and whether its settings are as before.
    fn dialogue(creating: bool, entries: &[&str]) -> (Result<SecretBytes, Error>, String, bool) {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_bytes();
        let path = PathBuf::from(std::ffi::OsString::from_vec(name));
        // Held open, so that the settings last and the master sees no hang-up.
        let held = File::options().read(true).write(true).open(&path).unwrap();
        let before = tcgetattr(&held).unwrap().local_modes;
        let asking = std::thread::spawn(move || ask_at(&path, "Key of \x1b[2Jx", creating));
        let mut master = File::from(master);
        let mut shown = String::new();
        for entry in entries {
            while !shown.ends_with(": ") {
                let mut byte = [0];
                master.read_exact(&mut byte).unwrap();
                shown.push(char::from(byte[0]));
            }
            shown.push('|');
            master.write_all(entry.as_bytes()).unwrap();
        }
        let outcome = asking.join().unwrap();
        let restored = tcgetattr(&held).unwrap().local_modes == before;
        print(&held, "END").unwrap();
        while !shown.ends_with("END") {
            let mut byte = [0];
            master.read_exact(&mut byte).unwrap();
            shown.push(char::from(byte[0]));
        }
        (outcome, shown, restored)
    }

    #[test]
    fn one_entry_without_echo() {
        let (outcome, shown, restored) = dialogue(false, &["secret\n"]);
        assert_eq!(outcome.ok().unwrap().as_slice(), b"secret\n");
        assert_eq!(
            shown, "Key of ?[2Jx: |\r\nEND",
            "no echo, no control sequence"
        );
        assert!(restored);
    }

    #[test]
    fn creating_asks_twice_and_again_when_they_differ() {
        let (outcome, shown, restored) = dialogue(true, &["one\n", "two\n", "three\n", "three\n"]);
        assert_eq!(outcome.ok().unwrap().as_slice(), b"three\n");
        assert!(shown.contains("The two entries differ.") && !shown.contains("three") && restored);
        let entries = ["a\n", "b\n", "a\n", "b\n", "a\n", "b\n"];
        let (outcome, _, restored) = dialogue(true, &entries);
        assert!(outcome.err().unwrap().code().number == 2011 && restored);
    }

    #[test]
    fn control_c_cancels_and_restores() {
        for key in ["abc\x03", "\x1c"] {
            let (outcome, shown, restored) = dialogue(false, &[key]);
            assert_eq!(outcome.err().unwrap().code().number, 2001);
            assert!(!shown.contains("abc") && restored);
        }
    }

    #[test]
    fn when_nobody_is_to_be_asked_nothing_waits() {
        ask_nobody();
        let error = ask("", false).err().unwrap();
        assert_eq!(error.code().number, 1004);
        assert_eq!(error.detail(), "prompts are switched off");
    }

    #[test]
    fn no_terminal_is_said_so() {
        let error = ask_at(Path::new("/nonexistent/tty"), "", false)
            .err()
            .unwrap();
        assert_eq!(error.code().number, 1004);
        let error = ask_at(Path::new("/dev/null"), "", false).err().unwrap();
        assert_eq!(error.code().number, 1004, "not a terminal");
    }
}
