//! The zone's systemd unit, and the same command by hand.
//!
//! Must not: replace a unit that is there.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use strongroom_keyring::{Error, Link, durable, open_regular, text_of};
use strongroom_launch::owner::check_is_roots;

use crate::files::{about, above, in_the_way, make_directories};
use crate::places::{KEY, RUNTIME, SERVICE, SOCKET, STATE, UNIT, USER};
use crate::report::Found;
use crate::server::Server;
use crate::shell::shell_line;

/// Longest unit that is read, in bytes.
const UNIT_MAX: u64 = 1 << 16;
/// The permission to enter a directory or execute a file, for everybody.
const EXECUTE: u32 = 0o001;
/// The lines of the unit that do not depend on the server or the machine. Who connects is known by
/// the number of the user, so there must be no `PrivateUsers=`.
const SANDBOX: &str = "\
# Values and keys are in locked memory; no core is to hold them.
LimitMEMLOCK=infinity
LimitCORE=0
UMask=0077
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
PrivateNetwork=yes
PrivateMounts=yes
ProtectClock=yes
ProtectHostname=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectProc=invisible
ProcSubset=pid
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=~@clock @cpu-emulation @debug @module @mount @obsolete @raw-io @reboot @swap
SystemCallErrorNumber=EPERM
";

/// The unit of the zone of one server.
pub(crate) struct Unit {
    text: String,
    /// The lines by which a unit is known to be of this server, whatever else is in it.
    known_by: [String; 2],
    command: Vec<String>,
    pub(crate) found: Found,
}

impl Unit {
    /// Makes the text of the unit, and looks whether it is there. SR-8126 when one is there that
    /// starts something else or is of another server, or when a path cannot be written into it;
    /// SR-6020 when others could exchange the unit or this command; SR-5001.
    pub(crate) fn of(server: &Server) -> Result<Self, Error> {
        let command = command(server)?;
        let words = command.iter().map(|word| unit_word(word));
        let start = format!(
            "ExecStart={}",
            words.collect::<Result<Vec<_>, _>>()?.join(" ")
        );
        let data = server.data.display().to_string();
        if data.contains(|c: char| c.is_control() || c == '\\') {
            return Err(in_the_way(&server.data, "cannot be written into a unit"));
        }
        let server_line = format!("# Zone of the PostgreSQL server in {data}");
        let text = format!(
            "{server_line}\n\
             # Written by strongroom columns setup.\n\
             # Changes belong into a drop-in: systemctl edit {SERVICE}\n\
             [Unit]\n\
             Description=Zone of confidential columns\n\
             Before=postgresql.service\n\
             \n\
             [Service]\n\
             Type=exec\n\
             User={USER}\n\
             RuntimeDirectory={}\n\
             RuntimeDirectoryMode=0755\n\
             ReadWritePaths={STATE}\n\
             {start}\n\
             Restart=on-failure\n\
             {SANDBOX}\n\
             [Install]\n\
             WantedBy=multi-user.target\n",
            RUNTIME.trim_start_matches("/run/"),
        );
        let known_by = [server_line, start];
        let found = look(&known_by)?;
        Ok(Self {
            text,
            known_by,
            command,
            found,
        })
    }

    /// Returns the text for the report.
    pub(crate) fn shown(&self) -> String {
        format!("unit {UNIT}")
    }

    /// Writes the unit, durably. SR-8126 when another one is there meanwhile; SR-5001.
    pub(crate) fn make(&self) -> Result<(), Error> {
        let path = Path::new(UNIT);
        if matches!(look(&self.known_by)?, Found::There) {
            return Ok(());
        }
        make_directories(above(path))?;
        let made = durable::create_new(path, self.text.as_bytes(), 0o644);
        made.map_err(|error| Error::on_path(path, error))
    }

    /// Returns the command lines that start the zone without systemd.
    pub(crate) fn by_hand(&self) -> Vec<String> {
        let mut words = vec!["runuser", "-u", USER, "--"];
        words.extend(self.command.iter().map(String::as_str));
        vec![
            shell_line(&["install", "-d", "-o", USER, "-m", "755", RUNTIME]),
            shell_line(&words),
        ]
    }
}

/// Returns the command line of the zone, with the absolute path of this program. SR-8126 when the
/// program's file is gone, SR-6020 when others could exchange it: whoever can do that gets every
/// value; SR-5001.
fn command(server: &Server) -> Result<Vec<String>, Error> {
    let program = std::env::current_exe().map_err(|error| Error::io("this program", error))?;
    if !program.is_file() {
        return Err(in_the_way(
            &program,
            "is no longer there, and the unit has to name it",
        ));
    }
    check_is_roots(&program)?;
    check_reachable(&program)?;
    let program = program.to_str().map(str::to_owned);
    let program = program.ok_or_else(|| {
        let path = PathBuf::from(UNIT);
        in_the_way(&path, "cannot name this program, whose path is no text")
    })?;
    let options = [
        "--state",
        STATE,
        "--socket",
        SOCKET,
        "--user",
        &server.owner_name,
    ];
    let mut words = vec![program, String::from("columns"), String::from("zone")];
    words.extend(options.iter().map(|&word| word.to_owned()));
    words.extend(["--key-file", KEY].map(str::to_owned));
    Ok(words)
}

/// Checks that the zone's user may execute the program, in the unit too, which shows it no homes
/// and no `/tmp` of others. SR-8126 otherwise; SR-5001.
fn check_reachable(program: &Path) -> Result<(), Error> {
    let hidden = ["/home", "/root", "/run/user", "/tmp", "/var/tmp"];
    let is_hidden = hidden.iter().any(|hidden| program.starts_with(hidden));
    let mut is_closed = false;
    for part in program.ancestors() {
        let about = std::fs::metadata(part).map_err(|error| Error::on_path(part, error))?;
        is_closed |= about.mode() & EXECUTE == 0;
    }
    if is_hidden || is_closed {
        let why = "is where the zone's user cannot execute it: install the command first, with \
            `make install` (docs/start/README.md)";
        return Err(in_the_way(program, why));
    }
    Ok(())
}

/// Returns a word of `ExecStart=`. SR-8126 for characters that have a meaning there.
fn unit_word(word: &str) -> Result<String, Error> {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./+@,".contains(c);
    if word.chars().all(is_plain) {
        return Ok(word.to_owned());
    }
    Err(in_the_way(Path::new(word), "cannot be written into a unit"))
}

/// Looks whether the unit is there, with these lines. SR-8126 when it is another one; SR-6020 when
/// others could exchange it; SR-5001.
fn look(known_by: &[String]) -> Result<Found, Error> {
    let path = Path::new(UNIT);
    check_is_roots(path)?;
    if about(path)?.is_none() {
        return Ok(Found::Missing);
    }
    let failed = |error: std::io::Error| Error::on_path(path, error);
    let (file, _) = open_regular(path, Link::Refused).map_err(failed)?;
    let text = text_of(file, UNIT_MAX).map_err(failed)?;
    let missing = |wanted: &&String| !text.lines().any(|line| line == wanted.as_str());
    match known_by.iter().find(missing) {
        None => Ok(Found::There),
        Some(line) => {
            let why = format!(
                "is not the unit of this server: it lacks the line {line:?}. A machine has one zone \
                 by this command; for a second server see docs/reference/columns-setup.md"
            );
            Err(in_the_way(path, &why))
        }
    }
}
