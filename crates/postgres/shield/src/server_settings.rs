//! The settings of a data directory, as its server would read them.
//!
//! Invariant: `postgresql.auto.conf` comes after `postgresql.conf`, and the command line of the
//! last start after both.
//!
//! Must not: judge a value; write.
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::expect_used
)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::clusters::clusters_of;
use crate::settings::{CONFIGURATION, DEPTH_MAX, Setting, Settings, contents};

/// What `ALTER SYSTEM` writes.
pub const AUTOMATIC: &str = "postgresql.auto.conf";
/// The command line of the last start.
const OPTIONS_FILE: &str = "postmaster.opts";
/// The one option that is kept beside the settings.
const DIRECTORY_OPTION: &str = "-D";

/// Reads the settings of a data directory, in the order in which the server would. If its
/// configuration is elsewhere, as on Debian, it is found by the command line of the last start, or
/// by the cluster below `clusters` that has this data directory. Files that cannot be read are
/// listed as unread.
#[must_use]
pub fn settings_of_instance(directory: &Path, clusters: &Path) -> Settings {
    let given = last_start(directory);
    let named = |name: &str| given.iter().rev().find(|it| it.name == name);
    let mut main = directory.join(CONFIGURATION);
    if let Some(file) = named("config_file") {
        main = directory.join(file.path());
    } else if let Some(other) = named(DIRECTORY_OPTION) {
        // -D may name the directory of the configuration, which then names the data directory.
        let other = directory.join(other.path()).join(CONFIGURATION);
        main = if other.exists() { other } else { main };
    }
    if !main.exists() {
        let cluster = clusters_of(directory, clusters).into_iter().next();
        main = cluster.map_or(main, |cluster| cluster.configuration.join(CONFIGURATION));
    }
    in_order(directory, &main, given, Vec::new())
}

/// Reads the settings of a server whose main configuration file is `main`, as it would at its next
/// start with the command line of the last one, if the files in `planned` had those bytes. Nothing
/// is written.
#[must_use]
pub fn settings_with(directory: &Path, main: &Path, planned: Vec<(PathBuf, Vec<u8>)>) -> Settings {
    in_order(directory, main, last_start(directory), planned)
}

/// Reads the configuration file and what it includes, then `postgresql.auto.conf`, and adds the
/// settings that were given at the start.
fn in_order(
    directory: &Path,
    main: &Path,
    given: Vec<Setting>,
    planned: Vec<(PathBuf, Vec<u8>)>,
) -> Settings {
    let mut settings = Settings {
        planned,
        ..Settings::default()
    };
    settings.read(main, DEPTH_MAX);
    let automatic = directory.join(AUTOMATIC);
    if automatic.exists() {
        settings.read(&automatic, DEPTH_MAX);
    }
    settings.all.extend(given);
    settings
}

/// Whether the last start of the server set `name` by its command line.
#[must_use]
pub fn started_with(directory: &Path, name: &str) -> bool {
    last_start(directory)
        .iter()
        .any(|setting| setting.name == name)
}

/// Whether a path in a setting, which the server takes relative to the data directory, is outside
/// of it. Symbolic links are followed. `directory` is canonical.
#[must_use]
pub fn leads_out(directory: &Path, value: &str) -> bool {
    let path = directory.join(OsStr::new(value));
    // Links are followed as far as the path exists.
    let resolved = path
        .ancestors()
        .find_map(|part| part.canonicalize().ok())
        .unwrap_or(path);
    !resolved.starts_with(directory)
}

/// Reads the settings of the command line of the last start; none if there was none.
fn last_start(directory: &Path) -> Vec<Setting> {
    let options = directory.join(OPTIONS_FILE);
    from_options(&contents(&options).unwrap_or_default(), &options)
}

/// Parses `postmaster.opts`: a program, and its arguments between double quotes. Returns the
/// settings among them, and `-D` as one.
fn from_options(bytes: &[u8], origin: &Path) -> Vec<Setting> {
    let text = String::from_utf8_lossy(bytes);
    let arguments = text.trim_end().split_once(" \"").map_or("", |(_, all)| all);
    let mut words = arguments.trim_end_matches('"').split("\" \"");
    let mut found = Vec::new();
    let mut add = |name: String, value: &str| {
        found.push(Setting {
            name,
            value: value.as_bytes().to_vec(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_read_from_the_options_file() {
        let line = b"/usr/lib/postgresql/15/bin/postgres \"-D\" \"/d d\" \"-c\" \"config_file=/e/p.conf\" \
            \"--log-directory=/l\" \"-cx.y=z=1\"\n";
        let found = from_options(line, Path::new("/d/postmaster.opts"));
        let found: Vec<(String, String)> = found
            .iter()
            .map(|it| (it.name.clone(), it.text().into_owned()))
            .collect();
        let wanted = [
            ("-D", "/d d"),
            ("config_file", "/e/p.conf"),
            ("log_directory", "/l"),
            ("x.y", "z=1"),
        ]
        .map(|(name, value)| (String::from(name), String::from(value)));
        assert_eq!(found, wanted);
        assert!(from_options(b"postgres\n", Path::new("/")).is_empty());
    }

    #[test]
    fn a_planned_file_counts_at_its_place() {
        let room = tempfile::tempdir().unwrap();
        let at = |name: &str| room.path().join(name);
        let write = |name: &str, text: &str| {
            strongroom_keyring::durable::replace(&at(name), text.as_bytes(), 0o600).unwrap();
        };
        std::fs::create_dir(at("conf.d")).unwrap();
        write("conf.d/a.conf", "port = 1\n");
        write("conf.d/z.conf", "work_mem = '1MB'\n");
        write("main.conf", "include_dir 'conf.d'\nlog_directory = 'x'\n");
        let planned = |name: &str, text: &str| vec![(at(name), text.as_bytes().to_vec())];
        let text = "port = 2\nwork_mem = '2MB'\nlog_directory = 'y'\n";
        let with = planned("conf.d/m.conf", text);
        let settings = settings_with(room.path(), &at("main.conf"), with);
        for (name, value) in [("port", "2"), ("work_mem", "1MB"), ("log_directory", "x")] {
            assert_eq!(settings.value(name, ""), value, "{name}");
        }
        assert_eq!(settings.include_directories, [at("conf.d")]);
        // A file that is there is read as if it had the other text.
        let with = planned("main.conf", "port = 3\n");
        let settings = settings_with(room.path(), &at("main.conf"), with);
        assert_eq!(
            (settings.value("port", "").as_ref(), settings.all.len()),
            ("3", 1)
        );
        write("postgresql.auto.conf", "port = 4\n");
        let settings = settings_with(room.path(), &at("main.conf"), Vec::new());
        assert_eq!(settings.last("port").unwrap().origin, at(AUTOMATIC));
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
        large.set_len((1 << 20) + 1).unwrap();
        write("postgresql.auto.conf", "log_directory = '/var/log/x'\n");
        let settings = settings_of_instance(room.path(), room.path());
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
