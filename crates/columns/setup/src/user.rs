//! The user as whom the zone runs.
//!
//! Must not: change a user that is there.

use std::process::{Command, Stdio};

use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_launch::owner::user_and_group;

use crate::files::UserAndGroup;
use crate::places::{STATE, USER};
use crate::server::Server;

/// Returns the text for the report.
pub(crate) fn shown() -> String {
    format!("user {USER}")
}

/// Looks the zone's user up. `None` when there is none. SR-8126 when it is root or the server's
/// user: that one must not be able to read what the zone keeps.
pub(crate) fn look(server: &Server) -> Result<Option<UserAndGroup>, Error> {
    let Some(user) = user_and_group(USER) else {
        return Ok(None);
    };
    if user.0 == 0 || user.0 == server.owner {
        let detail = format!(
            "user {USER} has the number {}, which is root's or that of the server's user",
            user.0
        );
        return Err(Error::new(&code::COLUMN_SETUP, detail));
    }
    Ok(Some(user))
}

/// Makes the user, with a group of its own and without a shell, and returns its numbers. SR-5001
/// when that fails.
pub(crate) fn make() -> Result<UserAndGroup, Error> {
    let failed = |error: std::io::Error| Error::io("useradd", error);
    let done = Command::new("useradd")
        .args(["--system", "--user-group", "--no-create-home"])
        .args(["--home-dir", STATE, "--shell", "/usr/sbin/nologin"])
        .args(["--comment", "Zone of confidential columns", USER])
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .output()
        .map_err(failed)?;
    let made = user_and_group(USER).filter(|_| done.status.success());
    made.ok_or_else(|| {
        let said = String::from_utf8_lossy(&done.stderr);
        failed(std::io::Error::other(said.trim().to_owned()))
    })
}
