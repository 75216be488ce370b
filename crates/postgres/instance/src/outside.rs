//! Settings by which the server itself writes outside of its data directory, and so in clear.
//!
//! The shield seals the data directory only. Programs that the server starts (`archive_command`)
//! are not examined.
//!
//! Must not: claim that nothing is written elsewhere. SQL can do so (`COPY ... TO`, `lo_export`),
//! and so can clients.

use std::path::Path;

use serde::Serialize;
use strongroom_postgres_shield::server_settings::{leads_out, settings_of_instance};
use strongroom_postgres_shield::settings::Setting;

use crate::clusters;

/// A setting by which something leaves in clear. Field names are a stable contract:
/// docs/reference/exit-codes.md.
#[derive(Serialize)]
pub struct OutsideWrite {
    /// The setting's name.
    pub setting: String,
    /// What it is set to.
    pub value: String,
    /// The configuration file that sets it.
    pub file: String,
    /// What leaves by it.
    pub reason: &'static str,
}

/// Returns the settings by which the server writes outside of its data directory, and so in clear,
/// in the order of this function. A configuration file that cannot be read is listed as the setting
/// `include`.
#[must_use]
pub fn find(directory: &Path) -> Vec<OutsideWrite> {
    let settings = settings_of_instance(directory, &clusters::root());
    let mut found = Vec::new();
    let mut add = |name: &str, reason| {
        if let Some(setting) = settings.last(name) {
            found.push(OutsideWrite::of(setting, reason));
        }
    };
    let mode = settings.value("archive_mode", "off");
    let archives = is_on(&mode) || mode.eq_ignore_ascii_case("always");
    let library = settings.value("archive_library", "");
    let target = settings.value("basic_archive.archive_directory", "");
    if archives && library == "basic_archive" {
        if leads_out(directory, &target) {
            add(
                "basic_archive.archive_directory",
                "the server archives segments of the log here, in clear",
            );
        }
    } else if archives && !library.is_empty() {
        add(
            "archive_library",
            "a library in the server archives segments of the log, in clear unless it encrypts them",
        );
    }
    let collects = is_on(&settings.value("logging_collector", "off"));
    if collects && leads_out(directory, &settings.value("log_directory", "log")) {
        add(
            "log_directory",
            "the server log: messages, and statements with their values where they are logged",
        );
    }
    let to_syslog = |part: &str| part.trim().eq_ignore_ascii_case("syslog");
    if settings
        .value("log_destination", "stderr")
        .split(',')
        .any(to_syslog)
    {
        add("log_destination", "the server log goes to syslog");
    }
    for path in &settings.unread {
        found.push(OutsideWrite {
            setting: String::from("include"),
            value: path.display().to_string(),
            file: path.display().to_string(),
            reason: "cannot be read: settings in it are missing here",
        });
    }
    found
}

/// Returns whether a switch of the configuration is on: `on`, `true`, `yes` or `1`, in any case of
/// letters.
fn is_on(value: &str) -> bool {
    ["on", "true", "yes", "1"]
        .iter()
        .any(|word| value.eq_ignore_ascii_case(word))
}

impl OutsideWrite {
    /// Describes what leaves by this setting.
    fn of(setting: &Setting, reason: &'static str) -> Self {
        Self {
            setting: setting.name.clone(),
            value: setting.text().into_owned(),
            file: setting.origin.display().to_string(),
            reason,
        }
    }
}
