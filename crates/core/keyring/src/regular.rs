//! Regular files, opened without waiting for anything else.
//!
//! Opening a named pipe for reading waits until somebody writes to it. Whoever may put one in the
//! place of a file could make a program wait for ever, so a file whose place others control is
//! opened here.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// What to do when the last part of a path is a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The file that it leads to is opened.
    Followed,
    /// It is refused.
    Refused,
}

/// Something else than a regular file is at the path.
#[derive(Debug)]
struct NotRegular;

impl std::fmt::Display for NotRegular {
    /// Writes "not a regular file".
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("not a regular file")
    }
}

impl std::error::Error for NotRegular {}

/// Opens the regular file at `path` for reading, and returns it with its metadata, which are those
/// of the open file. Never waits, whatever is at `path`. `link` says what happens when the last
/// part of `path` is a symbolic link.
///
/// # Errors
/// When a directory, a named pipe, a socket or a device is at `path`, an error for which
/// [`is_not_regular`] returns true. Any other is the system's: `ELOOP` for a link that is refused.
pub fn open_regular(path: &Path, link: Link) -> io::Result<(File, Metadata)> {
    let mut flags = OFlags::NONBLOCK;
    if link == Link::Refused {
        flags |= OFlags::NOFOLLOW;
    }
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits().cast_signed());
    let file = options.open(path).map_err(|error| {
        // A socket cannot be opened at all.
        match rustix::io::Errno::from_io_error(&error) {
            Some(rustix::io::Errno::NXIO) => not_regular(),
            _ => error,
        }
    })?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(not_regular());
    }
    Ok((file, about))
}

/// Reads the regular file at `path` as text of at most `limit` bytes. Follows a symbolic link;
/// never waits.
///
/// # Errors
/// One for which [`is_not_regular`] returns true when something else is there; of kind
/// `FileTooLarge` when it is longer; of kind `InvalidData` when it is not UTF-8; any other is the
/// system's.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    text_of(open_regular(path, Link::Followed)?.0, limit)
}

/// Reads the rest of `file` as text of at most `limit` bytes.
///
/// # Errors
/// Of kind `FileTooLarge` when it is longer; of kind `InvalidData` when it is not UTF-8; any other
/// is the system's.
pub fn text_of(file: File, limit: u64) -> io::Result<String> {
    // As bytes: a text that is cut may end within a character, and is too long all the same.
    let mut bytes = Vec::new();
    let read = file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    match read as u64 > limit {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => String::from_utf8(bytes)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
    }
}

/// Whether an error of [`open_regular`] or [`read_text`] means that something else than a regular
/// file is at the path.
#[must_use]
pub fn is_not_regular(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(|inner| inner.is::<NotRegular>())
}

/// Makes the error for which [`is_not_regular`] returns true.
fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, NotRegular)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_regular_file_is_opened_and_nothing_is_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        crate::durable::replace(&at("file"), b"text", 0o600).unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        std::fs::create_dir(at("directory")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        for name in ["file", "link"] {
            let (_, about) = open_regular(&at(name), Link::Followed).unwrap();
            assert_eq!(about.len(), 4);
            assert_eq!(read_text(&at(name), 4).unwrap(), "text");
            let cut = read_text(&at(name), 3).unwrap_err();
            assert_eq!(cut.kind(), io::ErrorKind::FileTooLarge);
        }
        // The limit is in bytes, and may fall within a character.
        crate::durable::replace(&at("umlauts"), "\u{e4}\u{e4}\u{e4}".as_bytes(), 0o600).unwrap();
        for limit in 0..6 {
            let cut = read_text(&at("umlauts"), limit).unwrap_err();
            assert_eq!(cut.kind(), io::ErrorKind::FileTooLarge, "{limit}");
        }
        assert_eq!(read_text(&at("umlauts"), 6).unwrap().chars().count(), 3);
        crate::durable::replace(&at("bytes"), &[0xff], 0o600).unwrap();
        let other = read_text(&at("bytes"), 6).unwrap_err();
        assert_eq!(other.kind(), io::ErrorKind::InvalidData);
        for name in ["directory", "socket", "pipe"] {
            let error = open_regular(&at(name), Link::Followed).unwrap_err();
            assert!(is_not_regular(&error), "{name}: {error}");
        }
        let refused = open_regular(&at("link"), Link::Refused).unwrap_err();
        assert!(!is_not_regular(&refused), "{refused}");
        let absent = open_regular(&at("absent"), Link::Followed).unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
    }
}
