//! systemd, where it manages the machine's services.
//!
//! Must not: restart the server; be asked where it does not run.

use std::path::Path;
use std::process::{Command, Stdio};

use strongroom_format::code;
use strongroom_keyring::Error;

use crate::places::SERVICE;

/// systemd runs where this directory is (`sd_booted`(3)).
const RUNNING: &str = "/run/systemd/system";

/// Returns whether systemd manages this machine's services.
pub(crate) fn is_managed() -> bool {
    Path::new(RUNNING).is_dir()
}

/// Returns whether systemd starts the zone at each boot.
pub(crate) fn is_enabled() -> bool {
    let mut command = systemctl();
    let asked = command.args(["is-enabled", "--quiet", SERVICE]).output();
    asked.is_ok_and(|asked| asked.status.success())
}

/// Has systemd read its units, and start the zone at each boot, and now unless `serves`: a zone
/// that was started by hand has the store open. SR-8129 when it refuses; SR-5001 when it cannot be
/// asked.
pub(crate) fn start(serves: bool) -> Result<(), Error> {
    let enable: &[&str] = match serves {
        true => &["enable", SERVICE],
        false => &["enable", "--now", SERVICE],
    };
    for words in [&["daemon-reload"], enable] {
        let done = systemctl().args(words).output();
        let done = done.map_err(|error| Error::io("systemctl", error))?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            let detail = format!("systemctl {}: {}", words.join(" "), said.trim());
            return Err(Error::new(&code::COLUMN_ZONE_START, detail));
        }
    }
    Ok(())
}

/// Returns the command that asks systemd.
fn systemctl() -> Command {
    let mut command = Command::new("systemctl");
    command
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null());
    command
}
