//! The state of a conversion under way: which files of a stopped instance have been converted
//! already.
//!
//! Text, so that an operator can read it. Lines are appended, each made durable before its file is
//! put in place; a last line without its end is ignored: its
//! file was not put in place yet. Specified in
//! docs/spec/postgres.md. Must not: do I/O.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::hex::{from_hex, hex};

/// First words of the first line, before action and object id. The number is the version of the
/// state's format.
pub const CONVERT_TITLE: &str = "strongroom-convert 1";

/// What is being done to the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// From plain to sealed.
    Encrypt,
    /// From sealed to plain.
    Decrypt,
    /// From the previous key epoch to the current one.
    Rotate,
}

impl Action {
    const ALL: [Self; 3] = [Self::Encrypt, Self::Decrypt, Self::Rotate];

    /// Returns `encrypt`, `decrypt` or `rotate`: the word in the state file's first line, and the
    /// name of the command.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Encrypt => "encrypt",
            Self::Decrypt => "decrypt",
            Self::Rotate => "rotate",
        }
    }
}

/// A file that has been converted, or is about to be put in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Inode number of the converted file: the file at `path` is the converted one exactly when it
    /// has this number.
    pub inode: u64,
    /// Path relative to the data directory; any bytes but zero.
    pub path: Vec<u8>,
}

/// Everything that the state says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// What is being done.
    pub action: Action,
    /// Object id of the instance's header.
    pub object_id: [u8; 16],
    /// The files that have been converted, in the order in which they were written.
    pub done: Vec<Done>,
}

/// Returns the first line of a conversion's state file: title, action and object id, with its line
/// end.
#[must_use]
pub fn title_line(action: Action, object_id: &[u8; 16]) -> String {
    format!("{CONVERT_TITLE} {} {}\n", action.name(), hex(object_id))
}

/// Returns the line of the state file for one converted file: its inode number, and its path in
/// hexadecimal, with the line end.
#[must_use]
pub fn done_line(done: &Done) -> String {
    format!("{} {}\n", done.inode, hex(&done.path))
}

impl State {
    /// Reads the state file of a conversion. `None` when its first line is not one that this
    /// version writes, or another line is not exactly as [`done_line`] writes it. A last line
    /// without its end, which a crash may leave, is ignored.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let whole = bytes.iter().rposition(|&byte| byte == b'\n')?;
        let text = core::str::from_utf8(bytes.get(..whole)?).ok()?;
        let mut lines = text.split('\n');
        let rest = lines
            .next()?
            .strip_prefix(CONVERT_TITLE)?
            .strip_prefix(' ')?;
        let (action, id) = rest.split_once(' ')?;
        Some(Self {
            action: Action::ALL
                .into_iter()
                .find(|known| known.name() == action)?,
            object_id: from_hex(id)?.try_into().ok()?,
            done: lines.map(parse_done).collect::<Option<_>>()?,
        })
    }

    /// The lines, as they would be written: the first line, then one for each converted file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = title_line(self.action, &self.object_id);
        for done in &self.done {
            out.push_str(&done_line(done));
        }
        out
    }
}

/// Parses a line for one converted file. `None` when it is not exactly as [`done_line`] writes it.
fn parse_done(line: &str) -> Option<Done> {
    let (number, path) = line.split_once(' ')?;
    let inode: u64 = number.parse().ok()?;
    // One spelling of each number: no sign, no leading zero.
    if inode.to_string() != number {
        return None;
    }
    let path = from_hex(path)?;
    (!path.is_empty() && !path.contains(&0)).then_some(Done { inode, path })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn state() -> State {
        State {
            action: Action::Rotate,
            object_id: [0xa5; 16],
            done: vec![
                Done {
                    inode: 7,
                    path: b"base/1/1259".to_vec(),
                },
                Done {
                    inode: u64::MAX,
                    path: vec![0xff, b'\n', b' '],
                },
            ],
        }
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let text = state().to_text();
        assert_eq!(State::parse(text.as_bytes()), Some(state()));
        assert!(text.starts_with("strongroom-convert 1 rotate a5a5"));
    }

    #[test]
    fn a_torn_last_line_is_ignored_wherever_it_is_torn() {
        let text = state().to_text();
        let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
        for cut in 0..text.len() {
            let whole = ends.iter().filter(|&&end| end <= cut).count();
            let parsed = State::parse(&text.as_bytes()[..cut]);
            assert_eq!(
                parsed.map(|state| state.done.len()),
                whole.checked_sub(1),
                "{cut}"
            );
        }
    }

    #[test]
    fn what_this_version_does_not_write_is_refused() {
        let title = title_line(Action::Encrypt, &[0; 16]);
        for line in [
            "7 6", "7 6G", "7 6A", "07 61", "+7 61", "7  61", " 7 61", "7 ", "7 00", "7", "",
        ] {
            let text = format!("{title}{line}\n");
            assert_eq!(State::parse(text.as_bytes()), None, "{line:?}");
        }
        for title in [
            "strongroom-convert 2 encrypt 00000000000000000000000000000000\n",
            "strongroom-convert 1 seal 00000000000000000000000000000000\n",
            "strongroom-convert 1 encrypt 0000000000000000000000000000000\n",
            "strongroom-convert 1 encrypt\n",
            "\n",
        ] {
            assert_eq!(State::parse(title.as_bytes()), None, "{title:?}");
        }
    }
}
