//! PostgreSQL's configuration files: `name = value` and includes.
//!
//! Invariants: as in the server, the last line of a name counts. A file that cannot be read is
//! recorded, and not taken for an empty one.
//!
//! Must not: judge a value; write.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use strongroom_keyring::{Link, open_regular};

/// Name of PostgreSQL's main configuration file.
pub const CONFIGURATION: &str = "postgresql.conf";
/// The depth to which includes are followed, as in the server.
pub(crate) const DEPTH_MAX: usize = 10;
/// Longest configuration file, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// One setting.
pub struct Setting {
    /// In lower case.
    pub name: String,
    /// Bytes, because a path may be in any encoding.
    pub value: Vec<u8>,
    /// The file that the setting is in.
    pub origin: PathBuf,
}

impl Setting {
    /// Returns the value as text; bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.value)
    }

    /// Returns the value as a path.
    #[must_use]
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.value))
    }
}

/// All settings of some files, in order.
#[derive(Default)]
pub struct Settings {
    pub(crate) all: Vec<Setting>,
    /// Files that are named and could not be read.
    pub unread: Vec<PathBuf>,
    /// Files that were read, in order.
    pub files: Vec<PathBuf>,
    /// The directories that `include_dir` names, in order.
    pub include_directories: Vec<PathBuf>,
    /// Files that are read as if they had these bytes.
    pub(crate) planned: Vec<(PathBuf, Vec<u8>)>,
}

impl Settings {
    /// Reads the settings of one file and of what it includes. A file that cannot be read is noted
    /// as unread.
    #[must_use]
    pub fn of_file(path: &Path) -> Self {
        let mut settings = Self::default();
        settings.read(path, DEPTH_MAX);
        settings
    }

    /// Returns the setting that is in effect: the last one of this name. `None` if there is none.
    #[must_use]
    pub fn last(&self, name: &str) -> Option<&Setting> {
        self.all.iter().rev().find(|setting| setting.name == name)
    }

    /// Returns the value in effect as text, or `default` when none is set.
    #[must_use]
    pub fn value<'a>(&'a self, name: &str, default: &'a str) -> Cow<'a, str> {
        self.last(name)
            .map_or(Cow::Borrowed(default), Setting::text)
    }

    /// Adds the settings of a file and of those that it includes, to this depth. A file that cannot
    /// be read, or is included too deeply, is noted as unread.
    pub(crate) fn read(&mut self, path: &Path, depth: usize) {
        let planned = self.planned.iter().find(|(planned, _)| planned == path);
        let planned = planned.map(|(_, bytes)| bytes.clone());
        let read = || planned.or_else(|| contents(path));
        let bytes = (depth > 0).then(read).flatten();
        let Some(bytes) = bytes else {
            self.unread.push(path.to_path_buf());
            return;
        };
        self.files.push(path.to_path_buf());
        let parent = path.parent().unwrap_or_else(|| Path::new("/"));
        for line in bytes.split(|&byte| byte == b'\n') {
            let Some((name, value)) = parse_line(line) else {
                continue;
            };
            let included = || parent.join(OsStr::from_bytes(&value));
            let below = depth.saturating_sub(1);
            match name.as_str() {
                "include" => self.read(&included(), below),
                "include_if_exists" if !included().exists() => {}
                "include_if_exists" => self.read(&included(), below),
                "include_dir" => {
                    self.include_directories.push(included());
                    self.read_directory(&included(), below);
                }
                _ => self.all.push(Setting {
                    name,
                    value,
                    origin: path.to_path_buf(),
                }),
            }
        }
    }

    /// Adds the settings of the files of a directory whose names end in `.conf` and do not begin
    /// with a dot, in order of their names. A directory that cannot be read is noted as unread.
    fn read_directory(&mut self, directory: &Path, depth: usize) {
        let Ok(entries) = std::fs::read_dir(directory) else {
            self.unread.push(directory.to_path_buf());
            return;
        };
        let is_configuration = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().as_bytes();
            name.ends_with(b".conf") && !name.starts_with(b".")
        };
        let paths = entries.flatten().map(|entry| entry.path());
        let planned = self.planned.iter().map(|(path, _)| path.clone());
        let planned = planned.filter(|path| path.parent() == Some(directory));
        let mut paths: Vec<PathBuf> = paths.chain(planned).filter(is_configuration).collect();
        paths.sort();
        paths.dedup();
        for path in paths {
            self.read(&path, depth);
        }
    }
}

/// Reads the bytes of a configuration file. `None` if it cannot be read, is not a regular file, or
/// is longer than 1 MiB. The owner of a configuration chooses what it includes: a device could be
/// read without end, and a pipe could block.
pub(crate) fn contents(path: &Path) -> Option<Vec<u8>> {
    let (file, about) = open_regular(path, Link::Followed).ok()?;
    let len = about.len();
    if len > FILE_MAX {
        return None;
    }
    let mut bytes = Vec::new();
    // The file may grow while it is read.
    file.take(len).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Parses a line `name = value # comment`; the `=` may be missing. The name is returned in lower
/// case. `None` for a line that sets nothing, and for one whose quotation does not end, with which
/// no server starts.
fn parse_line(line: &[u8]) -> Option<(String, Vec<u8>)> {
    let line = line.trim_ascii_start();
    let is_name = |byte: &u8| {
        byte.is_ascii_alphanumeric() || !byte.is_ascii() || matches!(byte, b'_' | b'.' | b'$')
    };
    let end = line.iter().position(|byte| !is_name(byte));
    let end = end.unwrap_or(line.len());
    let (name, rest) = line.split_at_checked(end).filter(|_| end > 0)?;
    let rest = rest.trim_ascii_start();
    let rest = rest.strip_prefix(b"=").unwrap_or(rest).trim_ascii_start();
    let value = match rest.strip_prefix(b"'") {
        Some(quoted) => unquote(quoted)?,
        None => {
            let ends = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'#';
            let end = rest.iter().position(ends).unwrap_or(rest.len());
            rest.get(..end)?.to_vec()
        }
    };
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    Some((name, value))
}

/// Returns the text before the closing quote, as the server reads it (`DeescapeQuotedString`,
/// guc-file.l): a quote is doubled or follows a backslash, which also begins C's letters and octal
/// numbers. `None` if there is no closing quote.
fn unquote(text: &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    let mut rest = text;
    loop {
        rest = match rest {
            [b'\'', b'\'', rest @ ..] => {
                value.push(b'\'');
                rest
            }
            [b'\'', ..] => return Some(value),
            [b'\\', b'0'..=b'7', ..] => {
                let is_digit = |byte: &&u8| matches!(byte, b'0'..=b'7');
                let digits = rest.iter().skip(1).take(3).take_while(is_digit);
                let (mut number, mut count) = (0_u8, 0_usize);
                for digit in digits {
                    number = number.wrapping_shl(3) | (digit & 7);
                    count = count.saturating_add(1);
                }
                value.push(number);
                rest.get(count.saturating_add(1)..)?
            }
            [b'\\', byte, rest @ ..] => {
                value.push(match byte {
                    b'b' => 8,
                    b'f' => 12,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    other => *other,
                });
                rest
            }
            [byte, rest @ ..] => {
                value.push(*byte);
                rest
            }
            [] => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::parse_line;

    fn pair(name: &str, value: &str) -> Option<(String, Vec<u8>)> {
        Some((String::from(name), value.as_bytes().to_vec()))
    }

    #[test]
    fn lines_are_read_as_the_server_reads_them() {
        let parse = |line: &str| parse_line(line.as_bytes());
        assert_eq!(parse("Port = 5433 # why"), pair("port", "5433"));
        assert_eq!(
            parse("  a.b 'it''s \\'x\\' #1' # no"),
            pair("a.b", "it's 'x' #1")
        );
        assert_eq!(parse("archive_library=''"), pair("archive_library", ""));
        assert_eq!(parse("a = '\\101\\n\\7z'\r"), pair("a", "A\n\u{7}z"));
        assert_eq!(
            parse_line(b"a = '\xff'"),
            Some((String::from("a"), vec![255]))
        );
        assert_eq!(parse("a = 'no end"), None);
        assert_eq!(parse("# port = 1"), None);
        assert_eq!(parse("   "), None);
    }
}
