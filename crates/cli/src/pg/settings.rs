//! PostgreSQL's configuration files as they lie: `name = value`, includes, and what the server was last started with.
//!
//! Invariants: as in the server the last line of a name counts, `postgresql.auto.conf` comes after `postgresql.conf`,
//! and the command line after both. A file that cannot be read is remembered, never taken for an empty one.
//!
//! Must not: judge a value; write.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::clusters;
use crate::paths::open_to_read;

/// As deep as the server follows includes.
const DEPTH_MAX: usize = 10;
/// Longest configuration file, in bytes.
const FILE_MAX: u64 = 1 << 20;
/// The command line of the last start.
const OPTIONS_FILE: &str = "postmaster.opts";

/// The one option that is kept beside the settings.
const DIRECTORY_OPTION: &str = "-D";

/// One setting.
pub(super) struct Setting {
    /// In lower case.
    pub(super) name: String,
    pub(super) value: String,
    /// The file that it stands in.
    pub(super) origin: PathBuf,
}

/// All settings of some files, in order.
#[derive(Default)]
pub(super) struct Settings {
    all: Vec<Setting>,
    /// Files that are named and could not be read.
    pub(super) unread: Vec<PathBuf>,
}

impl Settings {
    /// Of one file and what it includes.
    pub(super) fn of_file(path: &Path) -> Self {
        let mut settings = Self::default();
        settings.read(path, DEPTH_MAX);
        settings
    }

    /// Of a data directory, as its server would read them: also where Debian keeps them elsewhere, which the last start
    /// tells, or the cluster that has this directory.
    pub(super) fn of_instance(directory: &Path) -> Self {
        let given = last_start(directory);
        let named = |name: &str| given.iter().rev().find(|it| it.name == name);
        let mut main = directory.join(clusters::CONFIGURATION);
        if let Some(file) = named("config_file") {
            main = directory.join(&file.value);
        } else if let Some(other) = named(DIRECTORY_OPTION) {
            // -D may name where the configuration is, and that where the data is.
            let other = directory.join(&other.value).join(clusters::CONFIGURATION);
            main = if other.exists() { other } else { main };
        }
        if !main.exists() {
            let cluster = clusters::of(directory).into_iter().next();
            main = cluster.map_or(main, |cluster| {
                cluster.configuration.join(clusters::CONFIGURATION)
            });
        }
        let mut settings = Self::of_file(&main);
        let automatic = directory.join("postgresql.auto.conf");
        if automatic.exists() {
            settings.read(&automatic, DEPTH_MAX);
        }
        settings.all.extend(given);
        settings
    }

    /// The setting that counts.
    pub(super) fn last(&self, name: &str) -> Option<&Setting> {
        self.all.iter().rev().find(|setting| setting.name == name)
    }

    /// The value that counts, or what the server takes where none is set.
    pub(super) fn value<'a>(&'a self, name: &str, default: &'a str) -> &'a str {
        self.last(name)
            .map_or(default, |setting| setting.value.as_str())
    }

    fn read(&mut self, path: &Path, depth: usize) {
        // Comments may be in any encoding.
        let bytes = (depth > 0).then(|| contents(path)).flatten();
        let Some(bytes) = bytes else {
            self.unread.push(path.to_path_buf());
            return;
        };
        let parent = path.parent().unwrap_or_else(|| Path::new("/"));
        let beside = |value: &str| parent.join(value);
        for line in String::from_utf8_lossy(&bytes).lines() {
            let Some((name, value)) = parse(line) else {
                continue;
            };
            let included = beside(&value);
            match name.as_str() {
                "include" => self.read(&included, depth.saturating_sub(1)),
                "include_if_exists" if !included.exists() => {}
                "include_if_exists" => self.read(&included, depth.saturating_sub(1)),
                "include_dir" => self.read_directory(&included, depth.saturating_sub(1)),
                _ => self.all.push(Setting {
                    name,
                    value,
                    origin: path.to_path_buf(),
                }),
            }
        }
    }

    /// Files that end in `.conf` and do not begin with a dot, in order of their names.
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
        let mut paths: Vec<PathBuf> = paths.filter(is_configuration).collect();
        paths.sort();
        for path in paths {
            self.read(&path, depth);
        }
    }
}

/// The bytes of a configuration file, if it is a regular file of at most `FILE_MAX` bytes. Its
/// owner chooses what it includes: a device could be read without end, a pipe waited for.
fn contents(path: &Path) -> Option<Vec<u8>> {
    let (file, len) = open_to_read(path)
        .ok()
        .filter(|(_, len)| *len <= FILE_MAX)?;
    let mut bytes = Vec::new();
    // The file may grow while it is read.
    file.take(len).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// `name = value # comment`; the `=` may be missing.
fn parse(line: &str) -> Option<(String, String)> {
    let line = line.trim_start();
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '$');
    let end = line.find(|c| !is_name(c)).unwrap_or(line.len());
    let (name, rest) = line.split_at_checked(end).filter(|_| end > 0)?;
    let rest = rest.trim_start();
    let rest = rest.strip_prefix('=').unwrap_or(rest).trim_start();
    let value = match rest.strip_prefix('\'') {
        Some(quoted) => unquoted(quoted),
        None => {
            let bare = rest.split([' ', '\t', '#', '\r']).next();
            String::from(bare.unwrap_or_default())
        }
    };
    Some((name.to_ascii_lowercase(), value))
}

/// What stands between quotes: a quote is written twice or after a backslash.
fn unquoted(text: &str) -> String {
    let mut value = String::new();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\'' if characters.next_if_eq(&'\'').is_some() => value.push('\''),
            '\'' => break,
            '\\' => match characters.next() {
                Some('n') => value.push('\n'),
                Some('t') => value.push('\t'),
                Some(other) => value.push(other),
                None => break,
            },
            other => value.push(other),
        }
    }
    value
}

/// The settings in `postmaster.opts`: a program, and its arguments between double quotes.
fn from_options(bytes: &[u8], origin: &Path) -> Vec<Setting> {
    let text = String::from_utf8_lossy(bytes);
    let arguments = text.trim_end().split_once(" \"").map_or("", |(_, all)| all);
    let mut words = arguments.trim_end_matches('"').split("\" \"");
    let mut found = Vec::new();
    let mut add = |name: String, value: &str| {
        found.push(Setting {
            name,
            value: String::from(value),
            origin: origin.to_path_buf(),
        });
    };
    while let Some(word) = words.next() {
        if word == DIRECTORY_OPTION {
            add(String::from(word), words.next().unwrap_or_default());
            continue;
        }
        let assigned = match word.strip_prefix("--") {
            Some(long) => Some(long),
            None if word == "-c" => words.next(),
            None => word.strip_prefix("-c"),
        };
        if let Some((name, value)) = assigned.and_then(|text| text.split_once('=')) {
            add(name.replace('-', "_").to_ascii_lowercase(), value);
        }
    }
    found
}

/// Whether the last start of the server set `name` by its command line.
pub(super) fn started_with(directory: &Path, name: &str) -> bool {
    last_start(directory)
        .iter()
        .any(|setting| setting.name == name)
}

/// The settings of the command line of the last start.
fn last_start(directory: &Path) -> Vec<Setting> {
    let options = directory.join(OPTIONS_FILE);
    from_options(&contents(&options).unwrap_or_default(), &options)
}

/// Whether a path that a setting names, relative to the data directory as the server takes it, leads out of it.
pub(super) fn leads_out(directory: &Path, value: &str) -> bool {
    let path = directory.join(OsStr::new(value));
    // What does not exist yet is where it is named; links are followed as far as there is something.
    let resolved = path
        .ancestors()
        .find_map(|part| part.canonicalize().ok())
        .unwrap_or(path);
    !resolved.starts_with(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, value: &str) -> Option<(String, String)> {
        Some((String::from(name), String::from(value)))
    }

    #[test]
    fn lines_are_read_as_the_server_reads_them() {
        assert_eq!(parse("Port = 5433 # why"), pair("port", "5433"));
        assert_eq!(
            parse("  a.b 'it''s \\'x\\' #1' # no"),
            pair("a.b", "it's 'x' #1")
        );
        assert_eq!(parse("archive_library=''"), pair("archive_library", ""));
        assert_eq!(parse("# port = 1"), None);
        assert_eq!(parse("   "), None);
    }

    #[test]
    fn the_command_line_is_read_from_the_options_file() {
        let line = b"/usr/lib/postgresql/15/bin/postgres \"-D\" \"/d d\" \"-c\" \"config_file=/e/p.conf\" \
            \"--log-directory=/l\" \"-cx.y=z=1\"\n";
        let found = from_options(line, Path::new("/d/postmaster.opts"));
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|it| (it.name.as_str(), it.value.as_str()))
            .collect();
        let wanted = [
            ("-D", "/d d"),
            ("config_file", "/e/p.conf"),
            ("log_directory", "/l"),
            ("x.y", "z=1"),
        ];
        assert_eq!(found, wanted);
        assert!(from_options(b"postgres\n", Path::new("/")).is_empty());
    }

    #[test]
    fn includes_are_followed_and_what_cannot_be_read_is_told() {
        let room = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            strongroom_keyring::durable::replace(&room.path().join(name), text.as_bytes(), 0o600)
                .unwrap();
        };
        std::fs::create_dir(room.path().join("conf.d")).unwrap();
        write("conf.d/b.conf", "port = 3\n");
        write("conf.d/a.conf", "port = 2\ninclude 'conf.d/none.conf'\n");
        write("conf.d/ignored.txt", "port = 4\n");
        write("endless.conf", "include 'endless.conf'\n");
        write(
            "postgresql.conf",
            "port = 1\ninclude_dir = 'conf.d'\ninclude_if_exists 'nothing'\ninclude = 'missing'\ninclude 'endless.conf'\ninclude '/dev/zero'\ninclude 'pipe'\ninclude 'large'\n",
        );
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        let pipe = room.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
        let large = std::fs::File::create(room.path().join("large")).unwrap();
        large.set_len(FILE_MAX + 1).unwrap();
        write("postgresql.auto.conf", "log_directory = '/var/log/x'\n");
        let settings = Settings::of_instance(room.path());
        assert_eq!(settings.value("port", ""), "3");
        assert_eq!(settings.value("log_directory", ""), "/var/log/x");
        let unread: Vec<String> = settings
            .unread
            .iter()
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(
            unread,
            [
                "none.conf",
                "missing",
                "endless.conf",
                "zero",
                "pipe",
                "large"
            ]
        );
        let directory = room.path().canonicalize().unwrap();
        assert!(!leads_out(&directory, "log"));
        assert!(leads_out(&directory, "/var/log/x"));
        std::os::unix::fs::symlink("/var", directory.join("link")).unwrap();
        assert!(leads_out(&directory, "link/new"));
    }
}
