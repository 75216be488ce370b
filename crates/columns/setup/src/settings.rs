//! The server's settings: where they go, and whether they take effect there.
//!
//! The configuration belongs to the server's user, who may have put anything into it, links and
//! includes too: all of it is read and written with that user's rights.
//!
//! Invariants: what is written is tried before, by reading the configuration as if it were there
//! already, so that a later line that would win over it is found. A library that the server loads
//! stays in its list.
//!
//! Must not: write `postgresql.auto.conf`, which is the server's own.

use std::fs::metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use strongroom_columns_proxy::server::constant;
use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_launch::owner::acting_as;
use strongroom_launch::owner::held::{ExistingFile, HeldDirectory};
use strongroom_postgres_shield::server_settings::{AUTOMATIC, settings_with};
use strongroom_postgres_shield::settings::Settings;

use crate::files::{above, in_the_way};
use crate::libraries::{has_library, includes, joined, names};
use crate::places::SOCKET;
use crate::report::Found;
use crate::server::Server;

/// Name of the file with the settings.
const FILE: &str = "strongroom_columns.conf";
/// The list of libraries that the server loads at its start.
const LIBRARIES: &str = "shared_preload_libraries";
/// The path of the zone's socket.
const ZONE: &str = "strongroom.zone";
/// Mark of the line that is added to the main configuration file.
const MARK: &str = "# Added by strongroom columns setup.";

/// The settings, and the files that they go into.
pub(crate) struct SettingsFile {
    path: PathBuf,
    lines: Vec<String>,
    /// Whether the main configuration file has to include the settings file by a new line.
    is_included_anew: bool,
    found: bool,
}

impl SettingsFile {
    /// Reads the server's configuration, decides what to write where, and checks that it takes
    /// effect. SR-8126 when it does not, when another zone is set, when a part of the
    /// configuration cannot be read, and when the files are not the server's user's own; SR-6021,
    /// SR-5001.
    pub(crate) fn plan(server: &Server) -> Result<Self, Error> {
        let main = &server.configuration;
        acting_as(server.owner, main, || Self::plan_as_owner(server))?
    }

    /// Returns whether the settings are in effect, or will be after a restart.
    pub(crate) const fn found(&self) -> Found {
        match self.found {
            true => Found::There,
            false => Found::Missing,
        }
    }

    /// Returns the text for the report.
    pub(crate) fn shown(&self) -> String {
        if self.found {
            return format!("settings {LIBRARIES} and {ZONE} of the server");
        }
        let named = match self.is_included_anew {
            true => ", which the main configuration file now includes",
            false => "",
        };
        let lines = self.lines.join("; ");
        format!("settings {}{named}: {lines}", self.path.display())
    }

    /// Writes the settings file whole, then the line that includes it, as the server's user.
    /// SR-6021 when root cannot act as that user, SR-5001 when the system reports an error.
    pub(crate) fn write(&self, server: &Server) -> Result<(), Error> {
        let text = self.text();
        let main = &server.configuration;
        acting_as(server.owner, main, || {
            replace(&self.path, &text)?;
            if !self.is_included_anew {
                return Ok(());
            }
            // The file as it is now: it may have been changed since it was looked at.
            let main = resolved(main)?;
            replace(&main, &self.including(&main)?)
        })?
    }

    /// As [`Self::plan`], with the rights of the server's user.
    fn plan_as_owner(server: &Server) -> Result<Self, Error> {
        let (data, main) = (&server.data, &server.configuration);
        let now = settings_with(data, main, Vec::new());
        if let Some(unread) = now.unread.first() {
            return Err(in_the_way(
                unread,
                "is named by the configuration and cannot be read",
            ));
        }
        if let Some(zone) = now.last(ZONE).filter(|zone| zone.text() != SOCKET) {
            let why = format!(
                "sets {ZONE} to {:?}, another zone than {SOCKET}",
                zone.text()
            );
            return Err(in_the_way(&zone.origin, &why));
        }
        let directory = now.include_directories.iter().rev();
        let directory = directory.into_iter().find(|directory| directory.is_dir());
        let path = match directory {
            Some(directory) => directory.join(FILE),
            None => main.with_file_name(FILE),
        };
        // Without the settings file: what the administrator wants the server to load.
        let others = settings_with(data, main, vec![(path.clone(), Vec::new())]);
        let (list, others) = (now.value(LIBRARIES, ""), others.value(LIBRARIES, ""));
        let mut settings = Self {
            found: is_set(&now, &others),
            lines: vec![format!("{ZONE} = '{SOCKET}'")],
            is_included_anew: false,
            path,
        };
        if settings.found {
            return Ok(settings);
        }
        if !(has_library(&others) && includes(&others, &list)) {
            let wanted = joined(&list, &others);
            settings
                .lines
                .insert(0, format!("{LIBRARIES} = {}", quoted(&wanted)));
        }
        settings.check_owner(server)?;
        former(&settings.path)?;
        let mut planned = vec![(settings.path.clone(), settings.text().into_bytes())];
        settings.is_included_anew = directory.is_none() && !now.files.contains(&settings.path);
        if settings.is_included_anew {
            let text = settings.including(&resolved(main)?)?;
            planned.push((main.clone(), text.into_bytes()));
        }
        settings.check_effect(&settings_with(data, main, planned), &others)?;
        Ok(settings)
    }

    /// Checks that the server's user owns the directory of the settings file and the main
    /// configuration file. SR-8126 with the lines to be put in by hand otherwise: root does not
    /// write where only the server's user says that it should.
    fn check_owner(&self, server: &Server) -> Result<(), Error> {
        for path in [above(&self.path), &server.configuration] {
            let about = metadata(path).map_err(|error| Error::on_path(path, error))?;
            if about.uid() != server.owner {
                let why = format!(
                    "belongs to user {}, not to the server's user: put these lines into a file that \
                     the server reads, then run this again: {}",
                    about.uid(),
                    self.lines.join("; ")
                );
                return Err(in_the_way(path, &why));
            }
        }
        Ok(())
    }

    /// Checks that the settings take effect, in a configuration that has them. SR-8126 with the
    /// line that wins over them otherwise.
    fn check_effect(&self, with: &Settings, others: &str) -> Result<(), Error> {
        if is_set(with, others) {
            return Ok(());
        }
        let list = with.last(LIBRARIES);
        let Some(winner) = list
            .filter(|one| !has_library(&one.text()))
            .or_else(|| with.last(ZONE))
        else {
            return Err(in_the_way(&self.path, "would not be read by the server"));
        };
        let wanted = match winner.name == ZONE {
            true => SOCKET.to_owned(),
            false => joined(&winner.text(), others),
        };
        let by = match winner
            .origin
            .file_name()
            .is_some_and(|name| name == AUTOMATIC)
        {
            true => {
                let items = names(&wanted);
                let items: Vec<String> = items.iter().map(|item| constant(item)).collect();
                format!(
                    "in SQL: ALTER SYSTEM SET {} = {}",
                    winner.name,
                    items.join(", ")
                )
            }
            false => format!("write there: {} = {}", winner.name, quoted(&wanted)),
        };
        let why = format!(
            "sets {} later than {} and would win over it; {by}",
            winner.name,
            self.path.display()
        );
        Err(in_the_way(&winner.origin, &why))
    }

    /// Returns the text of the settings file.
    fn text(&self) -> String {
        format!(
            "# Written by strongroom columns setup. A list in this file replaces the one in \
             postgresql.conf:\n# add further libraries here.\n{}\n",
            self.lines.join("\n")
        )
    }

    /// Returns the text of the main configuration file with a line at its end that includes the
    /// settings file. SR-8126 when there is no such file of its own, SR-5001.
    fn including(&self, main: &Path) -> Result<String, Error> {
        let (_, _, former) = former(main)?;
        let former = former.ok_or_else(|| in_the_way(main, "is not there"))?;
        let end = match former.text.is_empty() || former.text.ends_with('\n') {
            true => "",
            false => "\n",
        };
        let path = quoted(&path_text(&self.path)?);
        Ok(format!("{}{end}\n{MARK}\ninclude = {path}\n", former.text))
    }
}

/// Returns whether a configuration has the library, all of `others`, and the zone's socket.
fn is_set(settings: &Settings, others: &str) -> bool {
    let list = settings.value(LIBRARIES, "");
    has_library(&list) && includes(&list, others) && settings.value(ZONE, "") == SOCKET
}

/// Returns a path without links. SR-5001.
fn resolved(path: &Path) -> Result<PathBuf, Error> {
    path.canonicalize()
        .map_err(|error| Error::on_path(path, error))
}

/// Opens the directory of a file and reads the file, if it is there. SR-5001, also for a link, a
/// file with another name elsewhere, and one that is no text or longer than 1 MiB.
fn former(path: &Path) -> Result<(HeldDirectory, &str, Option<ExistingFile>), Error> {
    let (directory, name) = HeldDirectory::of_file(path)?;
    let former = directory
        .read(name)
        .map_err(|error| Error::on_path(path, error))?;
    Ok((directory, name, former))
}

/// Replaces a file whole, or makes it; it keeps owner and mode. SR-5001.
fn replace(path: &Path, text: &str) -> Result<(), Error> {
    let (directory, name, former) = former(path)?;
    let replaced = directory.replace(name, text, former.as_ref());
    replaced.map_err(|error| Error::on_path(path, error))
}

/// Returns a path as text. SR-8126 for one that is not UTF-8.
fn path_text(path: &Path) -> Result<String, Error> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| {
        Error::new(
            &code::COLUMN_SETUP,
            format!("{} is no text", path.display()),
        )
    })
}

/// Returns a value between single quotes, as the server reads it from a configuration file.
fn quoted(value: &str) -> String {
    let escaped = value.replace('\\', "\\\\").replace('\'', "''");
    let escaped = escaped.replace('\n', "\\n").replace('\r', "\\r");
    format!("'{escaped}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_back_as_it_was() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("a.conf");
        for value in ["a, b", "it's \"x,y\"", "back\\slash", "line\nline\r"] {
            let line = format!("{LIBRARIES} = {}\n", quoted(value));
            strongroom_keyring::durable::replace(&file, line.as_bytes(), 0o600).unwrap();
            assert_eq!(Settings::of_file(&file).value(LIBRARIES, ""), value);
        }
    }
}
