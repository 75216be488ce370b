//! A data directory, and talking to its server.
//!
//! Must not: give a data directory a setting that its peers do not get (B3).

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::{Account, Tools, failed};
use crate::Failure;

/// Options of `initdb` for every data directory.
const INITDB: [&str; 5] = [
    "--username=postgres",
    "--auth=trust",
    "--no-locale",
    "--encoding=UTF8",
    "--no-sync",
];
/// Options of `psql` for a script: it prints values alone, and ends at the first statement that
/// fails.
pub const PSQL: [&str; 6] = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"];
/// The number in the socket's name; nothing listens on a network.
const PORT: &str = "5432";

/// The programs, who runs them, and where the sockets are: a directory with a short path, as
/// sockets' must be.
pub struct Place {
    /// The programs.
    pub tools: Tools,
    /// Who runs them.
    pub account: Account,
    sockets: TempDir,
}

impl Place {
    /// With copies of the command and the shield in `directory`/bin.
    ///
    /// # Errors
    /// A program is missing, or `directory` is out of the account's reach.
    pub fn make(tools: &Tools, account: Account, directory: &Path) -> Result<Self, Failure> {
        account.own(directory)?;
        if !account.reaches(directory) {
            let text = "PostgreSQL's user cannot enter it; choose another directory";
            return Err(format!("{}: {text}", directory.display()).into());
        }
        let sockets = tempfile::Builder::new().prefix("sr-sockets-").tempdir()?;
        account.own(sockets.path())?;
        Ok(Self {
            tools: tools.install(&directory.join("bin"))?,
            account,
            sockets,
        })
    }
}

/// A data directory.
pub struct Cluster<'place> {
    place: &'place Place,
    data: PathBuf,
    sockets: PathBuf,
    sealed: bool,
}

impl<'place> Cluster<'place> {
    /// Makes `data`, with further `options` of initdb and with `settings` at the end of
    /// postgresql.conf. `seal`: options of `strongroom pg initdb`, without which it is a plain one
    /// by PostgreSQL's own.
    ///
    /// # Errors
    /// What the program said.
    pub fn initdb(
        place: &'place Place,
        data: &Path,
        seal: Option<&[&str]>,
        options: &[&str],
        settings: &[(&str, &str)],
    ) -> Result<Self, Failure> {
        let name = data.file_name().ok_or("a data directory has a name")?;
        let sockets = place.sockets.path().join(name);
        std::fs::create_dir(&sockets)?;
        place.account.own(&sockets)?;
        let cluster = Self {
            place,
            data: data.to_path_buf(),
            sockets,
            sealed: seal.is_some(),
        };
        let mut command = if let Some(seal) = seal {
            let mut command = cluster.strongroom(&["pg", "initdb", "-D"]);
            command.arg(data).args(seal).arg("--");
            command
        } else {
            let mut command = cluster.program("initdb");
            command.arg("-D").arg(data);
            command
        };
        let output = command.args(INITDB).args(options).output()?;
        if !output.status.success() {
            return Err(failed("initdb", &output));
        }
        cluster.configure(settings)?;
        Ok(cluster)
    }

    fn configure(&self, settings: &[(&str, &str)]) -> Result<(), Failure> {
        let sockets = self.sockets.display().to_string();
        let mut text = String::from("\n# For one run.\nlisten_addresses = ''\n");
        let directories = [
            ("unix_socket_directories", sockets.as_str()),
            ("port", PORT),
        ];
        for (name, value) in directories.iter().chain(settings) {
            writeln!(text, "{name} = '{value}'")?;
        }
        let path = self.data.join("postgresql.conf");
        let mut file = std::fs::OpenOptions::new().append(true).open(path)?;
        Ok(file.write_all(text.as_bytes())?)
    }

    /// The data directory.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Whether its server runs under the shield.
    #[must_use]
    pub fn sealed(&self) -> bool {
        self.sealed
    }

    /// The same, after its instance was sealed or unsealed.
    #[must_use]
    pub fn now_sealed(mut self, sealed: bool) -> Self {
        self.sealed = sealed;
        self
    }

    /// Where the server's messages go, beside the data directory.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.data.with_extension("log")
    }

    /// A program of PostgreSQL's, without the shield, that finds this server.
    #[must_use]
    pub fn program(&self, name: &str) -> Command {
        self.other_program(&self.place.tools.bin.join(name))
    }

    /// A program of PostgreSQL's as this data directory needs it: under the shield if it is sealed.
    #[must_use]
    pub fn own_program(&self, name: &str) -> Command {
        let mut command = self.program(name);
        self.shield(&mut command);
        command
    }

    /// Puts the shield into a program's environment, if the data directory is sealed.
    pub fn shield(&self, command: &mut Command) {
        if self.sealed {
            command.env("LD_PRELOAD", &self.place.tools.shield);
        }
    }

    /// The `strongroom` command, as the account.
    #[must_use]
    pub fn strongroom(&self, arguments: &[&str]) -> Command {
        let mut command = self.other_program(&self.place.tools.strongroom);
        command.args(arguments);
        command.env("PG_BINDIR", &self.place.tools.bin);
        command.env("STRONGROOM_SHIELD_LIB", &self.place.tools.shield);
        command
    }

    /// Any program that finds this server.
    #[must_use]
    pub fn other_program(&self, program: &Path) -> Command {
        let above = self.data.parent().unwrap_or_else(|| Path::new("/"));
        let mut command = self.place.account.command(program, above);
        command.env("PGHOST", &self.sockets).env("PGPORT", PORT);
        command.env("PGUSER", "postgres");
        command
    }

    /// Runs `script` in psql; what it printed.
    ///
    /// # Errors
    /// The first statement that failed ends it.
    pub fn psql(&self, database: &str, script: &str) -> Result<String, Failure> {
        let mut command = self.program("psql");
        let output = feed(command.args(PSQL).args(["-d", database]), script)?;
        if output.status.success() {
            Ok(String::from_utf8(output.stdout)?.trim().to_owned())
        } else {
            Err(failed("psql", &output))
        }
    }

    /// How long the server took for one statement, as psql saw it: neither its start nor the
    /// connection counts.
    ///
    /// # Errors
    /// As of [`Self::psql`].
    pub fn time(&self, database: &str, before: &str, sql: &str) -> Result<Duration, Failure> {
        let script = format!("{before}\n\\o /dev/null\n\\timing on\n{sql};\n");
        let said = self.psql(database, &script)?;
        let milliseconds = said
            .lines()
            .filter_map(|line| line.strip_prefix("Time: ")?.split(' ').next()?.parse().ok())
            .next_back();
        let milliseconds: f64 = milliseconds.ok_or("psql showed no time")?;
        Ok(Duration::from_secs_f64(milliseconds / 1000.0))
    }
}

/// Runs a program with `input` as its standard input.
///
/// # Errors
/// It cannot be started.
pub fn feed(command: &mut Command, input: &str) -> Result<Output, Failure> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut standard_input = child.stdin.take().ok_or("no standard input")?;
    // A program that ended early has said why.
    let written = standard_input.write_all(input.as_bytes());
    drop(written);
    drop(standard_input);
    Ok(child.wait_with_output()?)
}
