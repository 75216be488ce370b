//! Who is compared, and the commands of each: to prepare, to back up, to restore.
//!
//! Every one ends when what it wrote is durable: pipes and restic's restore, which do not see to
//! that, are followed by `sync`.
//!
//! Must not: give a tool a setting that makes it slower than its documentation advises.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Tool {
    /// `strongroom backup`, from the server.
    Server,
    /// `strongroom backup`, from the directory of the tables' files.
    Directory,
    /// pgBackRest, from the server and its directory.
    PgBackRest,
    /// `pg_basebackup | zstd | age`; without age where nothing is encrypted.
    Pipe,
    /// restic, from the directory of the tables' files. It always encrypts.
    Restic,
    /// `zstd` alone, from one file to another: a floor.
    Zstd,
}

/// One row of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Peer {
    pub(crate) tool: Tool,
    /// Level of zstd; `None`: not compressed.
    pub(crate) level: Option<u8>,
    /// Whether it is encrypted.
    pub(crate) sealed: bool,
    /// Threads or processes that it may use for compression.
    pub(crate) threads: u8,
}

/// Where things are in one run.
pub(crate) struct Lab {
    /// The `strongroom` command.
    pub(crate) strongroom: PathBuf,
    /// PostgreSQL's programs.
    pub(crate) bin: PathBuf,
    /// The server's sockets.
    pub(crate) sockets: PathBuf,
    /// Its data directory.
    pub(crate) data: PathBuf,
    /// A key of 32 bytes in hexadecimal digits, which is also restic's and pgBackRest's passphrase.
    pub(crate) key: PathBuf,
    /// age's private key, and the public one.
    pub(crate) identity: PathBuf,
    pub(crate) recipient: String,
    /// A plain archive of the cluster, for `zstd` alone.
    pub(crate) archive: PathBuf,
}

/// A program with arguments and environment.
#[derive(Default)]
pub(crate) struct Step {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Vec<(&'static str, OsString)>,
}

impl Step {
    fn new(program: impl Into<PathBuf>, arguments: &[&str]) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.iter().map(OsString::from).collect(),
            environment: Vec::new(),
        }
    }

    /// A line of bash that fails when any part of a pipe does.
    fn shell(line: &str) -> Self {
        Self::new("bash", &["-e", "-o", "pipefail", "-c", line])
    }

    fn path(mut self, option: &str, path: &Path) -> Self {
        if !option.is_empty() {
            self.arguments.push(option.into());
        }
        self.arguments.push(path.into());
        self
    }
}

/// All of them.
pub(crate) fn all() -> Vec<Peer> {
    let mut all = Vec::new();
    let mut add = |tool, level, threads, both: &[bool]| {
        for &sealed in both {
            all.push(Peer {
                tool,
                level,
                sealed,
                threads,
            });
        }
    };
    let both = [false, true];
    for (level, threads) in [
        (None, 1),
        (None, 2),
        (Some(1), 2),
        (Some(3), 1),
        (Some(3), 2),
        (Some(6), 2),
    ] {
        add(Tool::Server, level, threads, &both);
    }
    for (level, threads) in [(None, 2), (Some(3), 1), (Some(3), 2)] {
        add(Tool::PgBackRest, level, threads, &both);
    }
    for threads in [1, 2] {
        add(Tool::Pipe, Some(3), threads, &both);
    }
    for (level, threads) in [(None, 2), (Some(3), 1), (Some(3), 2)] {
        add(Tool::Directory, level, threads, &both);
        add(Tool::Restic, level, threads, &[true]);
    }
    for level in [1, 3, 6] {
        add(Tool::Zstd, Some(level), 1, &[false]);
    }
    all
}

impl Peer {
    /// For people.
    pub(crate) fn name(&self) -> String {
        let mut name = String::from(match (self.tool, self.sealed) {
            (Tool::Server, _) => "strongroom, server",
            (Tool::Directory, _) => "strongroom, directory",
            (Tool::PgBackRest, _) => "pgBackRest",
            (Tool::Pipe, true) => "pg_basebackup, zstd, age",
            (Tool::Pipe, false) => "pg_basebackup, zstd",
            (Tool::Restic, _) => "restic, directory",
            (Tool::Zstd, _) => "zstd alone",
        });
        // Writing to a String cannot fail.
        let written = write!(name, ", {}, {}", self.compression(), self.protection());
        assert!(written.is_ok(), "formatting into a string");
        name
    }

    /// "none" or "zstd 3".
    pub(crate) fn compression(&self) -> String {
        match (self.level, self.tool) {
            (None, _) => "none".to_owned(),
            (Some(_), Tool::Restic) => "zstd auto".to_owned(),
            (Some(level), _) => format!("zstd {level}"),
        }
    }

    /// "plain" or the cipher.
    pub(crate) fn protection(&self) -> &'static str {
        match (self.sealed, self.tool) {
            (false, _) => "plain",
            (true, Tool::Server | Tool::Directory) => "AES-256-GCM",
            (true, Tool::PgBackRest) => "AES-256-CBC",
            (true, Tool::Pipe) => "ChaCha20-Poly1305",
            (true, _) => "AES-256-CTR, Poly1305",
        }
    }

    /// Before the clock: what a tool needs once for each place.
    pub(crate) fn prepare(&self, lab: &Lab, medium: &Path) -> Option<Step> {
        match self.tool {
            Tool::PgBackRest => Some(self.pgbackrest(lab, medium, &lab.data, "stanza-create")),
            Tool::Restic => Some(self.restic(lab, medium, &["init", "--repository-version", "2"])),
            _ => None,
        }
    }

    /// Backs up to `medium`.
    pub(crate) fn backup(&self, lab: &Lab, medium: &Path) -> Step {
        let level = self.level.unwrap_or(0);
        let threads = self.threads.to_string();
        match self.tool {
            Tool::Server | Tool::Directory => self.create(lab, medium),
            Tool::PgBackRest => {
                let mut step = self.pgbackrest(lab, medium, &lab.data, "backup");
                let kind = if self.level.is_some() { "zst" } else { "none" };
                let mut more = vec![
                    "--type=full".to_owned(),
                    "--start-fast".to_owned(),
                    "--no-archive-check".to_owned(),
                    format!("--process-max={threads}"),
                    format!("--compress-type={kind}"),
                ];
                if self.level.is_some() {
                    more.push(format!("--compress-level={level}"));
                }
                step.arguments.extend(more.into_iter().map(OsString::from));
                step
            }
            Tool::Pipe => {
                let file = medium.join("base");
                let age = if self.sealed {
                    format!("| age -r {} ", lab.recipient)
                } else {
                    String::new()
                };
                Step::shell(&format!(
                    "{}/pg_basebackup -h {} -U postgres -D - -F t -X fetch -c fast | zstd -q -{level} -T{threads} {age}> {file}; sync {file}",
                    lab.bin.display(),
                    lab.sockets.display(),
                    file = file.display(),
                ))
            }
            Tool::Restic => {
                let compression = if self.level.is_some() { "auto" } else { "off" };
                let mut step =
                    self.restic(lab, medium, &["backup", "-q", "--compression", compression]);
                step.arguments.push(lab.tables().into());
                step
            }
            Tool::Zstd => {
                let file = medium.join("base");
                Step::shell(&format!(
                    "zstd -q -{level} -T{threads} {} -o {file}; sync {file}",
                    lab.archive.display(),
                    file = file.display()
                ))
            }
        }
    }

    /// `strongroom backup create`.
    fn create(&self, lab: &Lab, medium: &Path) -> Step {
        let compression = self
            .level
            .map_or_else(|| "none".to_owned(), |level| format!("zstd:{level}"));
        let threads = self.threads.to_string();
        let mut step = Step::new(&lab.strongroom, &["backup", "create"]);
        if self.tool == Tool::Server {
            let sockets = lab.sockets.display();
            let text = format!("host={sockets} user=postgres dbname=postgres");
            step.arguments.push(text.into());
        } else {
            step.arguments.push(lab.tables().into());
        }
        step = step.path("--to", medium);
        let rest = ["--compression", &compression, "--threads", &threads];
        step.arguments.extend(rest.map(OsString::from));
        if self.sealed {
            step.path("--key-file", &lab.key)
        } else {
            step.arguments.push("--no-encryption".into());
            step
        }
    }

    /// Restores from `medium` to `to`, which is not there.
    pub(crate) fn restore(&self, lab: &Lab, medium: &Path, to: &Path) -> Step {
        let threads = self.threads.to_string();
        let file = medium.join("base");
        match self.tool {
            Tool::Server | Tool::Directory => {
                let step = Step::new(&lab.strongroom, &["backup", "restore"]);
                let mut step = step.path("", medium).path("--to", to);
                let rest = ["--threads", &threads];
                step.arguments.extend(rest.map(OsString::from));
                if self.sealed {
                    step.path("--key-file", &lab.key)
                } else {
                    step
                }
            }
            Tool::PgBackRest => {
                let mut step = self.pgbackrest(lab, medium, to, "restore");
                let more = ["--type=none".to_owned(), format!("--process-max={threads}")];
                step.arguments.extend(more.map(OsString::from));
                step
            }
            Tool::Pipe => {
                let age = if self.sealed {
                    format!(
                        "age -d -i {} {} | zstd -dqc",
                        lab.identity.display(),
                        file.display()
                    )
                } else {
                    format!("zstd -dqc {}", file.display())
                };
                Step::shell(&format!(
                    "mkdir {to}; {age} | tar -x -C {to}; sync -f {to}",
                    to = to.display()
                ))
            }
            Tool::Restic => {
                let mut step = self.restic(lab, medium, &["restore", "-q", "latest", "--target"]);
                step.arguments.push(to.into());
                // Its own arguments have no blanks.
                let words = step.arguments.iter().map(|word| word.to_string_lossy());
                let line = words.collect::<Vec<_>>().join(" ");
                let mut shell = Step::shell(&format!("restic {line}; sync -f {}", to.display()));
                shell.environment = step.environment;
                shell
            }
            Tool::Zstd => {
                let to = to.display();
                Step::shell(&format!(
                    "mkdir {to}; zstd -dq {} -o {to}/base; sync -f {to}",
                    file.display()
                ))
            }
        }
    }

    /// What of a restore is compared with what of the source.
    pub(crate) fn compared(&self, lab: &Lab, restored: &Path) -> (PathBuf, PathBuf) {
        let tables = lab.tables();
        match self.tool {
            Tool::Server | Tool::PgBackRest | Tool::Pipe => (tables, restored.join("base")),
            Tool::Directory => (tables, restored.to_path_buf()),
            Tool::Restic => {
                let below = tables.strip_prefix("/").unwrap_or(&tables);
                let below = restored.join(below);
                (tables, below)
            }
            Tool::Zstd => (lab.archive.clone(), restored.join("base")),
        }
    }

    fn pgbackrest(&self, lab: &Lab, medium: &Path, data: &Path, command: &str) -> Step {
        let mut step = Step::new("pgbackrest", &["--stanza=bench", "--config=/dev/null"]);
        let paths = [
            ("repo1-path", medium.to_path_buf()),
            ("pg1-path", data.to_path_buf()),
            ("lock-path", medium.join("lock")),
            ("log-path", medium.join("log")),
        ];
        let mut options: Vec<String> = paths
            .iter()
            .map(|(name, path)| format!("--{name}={}", path.display()))
            .collect();
        options.push("--log-level-file=off".to_owned());
        options.push("--log-level-console=error".to_owned());
        // Its user guide, "File Bundling": small files are stored together, which saves time.
        if command == "backup" {
            options.push("--repo1-bundle".to_owned());
        }
        if command != "restore" {
            options.push(format!("--pg1-socket-path={}", lab.sockets.display()));
            options.push("--pg1-user=postgres".to_owned());
        }
        if self.sealed {
            options.push("--repo1-cipher-type=aes-256-cbc".to_owned());
            let pass = std::fs::read_to_string(&lab.key).unwrap_or_default();
            let pass = pass.trim().to_owned().into();
            step.environment
                .push(("PGBACKREST_REPO1_CIPHER_PASS", pass));
        }
        if command == "stanza-create" {
            options.push("--online".to_owned());
        }
        step.arguments
            .extend(options.into_iter().map(OsString::from));
        step.arguments.push(command.into());
        step
    }

    fn restic(&self, lab: &Lab, medium: &Path, arguments: &[&str]) -> Step {
        let step = Step::new("restic", &["--no-cache"]);
        let mut step = step.path("-r", medium).path("--password-file", &lab.key);
        step.arguments.extend(arguments.iter().map(OsString::from));
        let threads = self.threads.to_string().into();
        step.environment.push(("GOMAXPROCS", threads));
        step
    }
}

impl Lab {
    /// The files of tables and indexes, which do not change.
    pub(crate) fn tables(&self) -> PathBuf {
        self.data.join("base")
    }
}
