//! A test's own directory, and how programs run in it: as the user `postgres` when the test runs as
//! root, because PostgreSQL refuses root.
//!
//! Must not: put a key on a command line.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use strongroom_testing::random::Random;
use strongroom_testing::setup::raw_key;

/// A directory that is removed with it.
#[derive(Debug)]
pub struct Room {
    directory: tempfile::TempDir,
    library: PathBuf,
    command: PathBuf,
}

impl Room {
    /// A new, empty room.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let directory = tempfile::Builder::new()
            .prefix(&format!("sr-{name}-"))
            .tempdir();
        let directory = directory.expect("a temporary directory");
        // Copies: the library may be built anew while servers have it open.
        let bin = directory.path().join("bin");
        fs::create_dir(&bin).expect("a new directory");
        let room = Self {
            library: bin.join("libstrongroom_shield.so"),
            command: bin.join("strongroom"),
            directory,
        };
        fs::copy(built_library(), &room.library).expect("the library can be copied");
        fs::copy(built_command(), &room.command).expect("the command can be copied");
        for path in [room.path(), &bin, &room.library, &room.command] {
            room.give(path, 0o755);
        }
        room
    }

    /// The room itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The file `name` in it.
    #[must_use]
    pub fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// The preload library.
    #[must_use]
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// Takes a library without optimisation, in which a call that is passed on leaves a frame on
    /// the stack, and without what only a debugger needs: strace would read it for each process.
    ///
    /// # Panics
    /// When it cannot be built.
    pub fn trace_library(&self) {
        let plain = built_in(
            "strongroom-postgres-preload",
            "libstrongroom_shield.so",
            false,
        );
        fs::copy(plain, &self.library).expect("the library can be copied");
        // Without strip(1) it is only slower.
        drop(Command::new("strip").arg(&self.library).status());
    }

    /// A new directory of PostgreSQL's user.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.at(name);
        fs::create_dir(&path).expect("a new directory");
        self.give(&path, 0o700);
        path
    }

    /// A new file of PostgreSQL's user.
    ///
    /// # Panics
    /// When it cannot be written.
    #[expect(
        clippy::disallowed_methods,
        reason = "a test's file, which nothing depends on after a crash"
    )]
    pub fn put(&self, path: &Path, bytes: &[u8]) {
        fs::write(path, bytes).expect("a file can be written");
        self.give(path, 0o600);
    }

    /// A file with a new raw key.
    #[must_use]
    pub fn key(&self, name: &str, random: &mut Random) -> PathBuf {
        let path = self.at(&format!("{name}.key"));
        self.put(&path, raw_key(random).as_bytes());
        path
    }

    /// Gives a file to PostgreSQL's user.
    ///
    /// # Panics
    /// When the file system refuses.
    pub fn give(&self, path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions");
        if let Some((user, group)) = other_user() {
            chown(path, Some(user), Some(group)).expect("an owner");
        }
    }

    /// `strongroom pg`, as PostgreSQL's user.
    #[must_use]
    pub fn strongroom(&self) -> Command {
        let mut command = self.command(&self.command);
        command
            .env("STRONGROOM_SHIELD_LIB", &self.library)
            .arg("pg");
        command
    }

    /// `strongroom backup`, as PostgreSQL's user, with a keyring in the room.
    #[must_use]
    pub fn backup(&self) -> Command {
        let mut command = self.command(&self.command);
        command.env("STRONGROOM_KEYRING", self.at("keyring"));
        // Names PostgreSQL's programs to the command where a test does not.
        command.env_remove("PG_BINDIR").arg("backup");
        command
    }

    /// A program that runs in the room as PostgreSQL's user, with nothing of the test's environment
    /// that concerns PostgreSQL or the shield.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.path()).stdin(Stdio::null());
        command.env("HOME", self.path()).env("PGUSER", "postgres");
        command
            .env("PGOPTIONS", "")
            .env("LC_ALL", "C")
            .env_remove("PGDATA");
        if let Some((user, group)) = other_user() {
            command.uid(user).gid(group);
        }
        command
    }
}

/// PostgreSQL's user, when the test is root.
#[must_use]
pub fn other_user() -> Option<(u32, u32)> {
    use std::os::unix::fs::MetadataExt as _;
    static USER: OnceLock<Option<(u32, u32)>> = OnceLock::new();
    *USER.get_or_init(|| {
        let me = fs::metadata("/proc/self").map_or(0, |about| about.uid());
        (me == 0).then(|| {
            let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
            let line = users.lines().find(|line| line.starts_with("postgres:"));
            let fields: Vec<&str> = line.expect("a user postgres").split(':').collect();
            let number = |at: usize| fields.get(at).and_then(|field| field.parse().ok());
            number(2).zip(number(3)).expect("numbers of user and group")
        })
    })
}

/// What a program printed; with its errors in the panic when it failed.
///
/// # Panics
/// When it failed.
pub fn checked(command: &mut Command) -> String {
    let output = command.output().expect("the program can be started");
    let text = words(&output);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}",
        output.status
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What a program that has to fail printed.
///
/// # Panics
/// When it succeeded.
pub fn refused(command: &mut Command) -> String {
    let output = command.output().expect("the program can be started");
    let text = words(&output);
    assert!(!output.status.success(), "{command:?} succeeded\n{text}");
    text
}

fn words(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

/// `libstrongroom_shield.so`: the file that `STRONGROOM_SHIELD_LIB` names, or one built now beside
/// the running test.
///
/// # Panics
/// When it cannot be built.
pub fn built_library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        built(
            "STRONGROOM_SHIELD_LIB",
            "strongroom-postgres-preload",
            "libstrongroom_shield.so",
        )
    })
}

/// The `strongroom` command: the file that `STRONGROOM_COMMAND` names, or one built now beside the
/// running test.
///
/// # Panics
/// When it cannot be built.
pub fn built_command() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| built("STRONGROOM_COMMAND", "strongroom-cli", "strongroom"))
}

fn built(variable: &str, package: &str, file: &str) -> PathBuf {
    if let Some(given) = std::env::var_os(variable) {
        return PathBuf::from(given);
    }
    let test = std::env::current_exe().expect("a running program has a path");
    let release = test.components().any(|part| part.as_os_str() == "release");
    built_in(package, file, release)
}

/// Builds in the release profile or in the one for development.
fn built_in(package: &str, file: &str, release: bool) -> PathBuf {
    // <target>/<profile>/deps/<test>
    let test = std::env::current_exe().expect("a running program has a path");
    let profile = test
        .ancestors()
        .nth(2)
        .expect("tests run in <target>/<profile>/deps");
    let target = profile
        .parent()
        .expect("a profile lies in a target directory");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let status = Command::new(cargo)
        .args([
            "build",
            "--quiet",
            "-p",
            package,
            "--manifest-path",
            manifest,
        ])
        .args(release.then_some("--release"))
        .env("CARGO_TARGET_DIR", target)
        .status()
        .expect("cargo can be started");
    assert!(status.success(), "building {package}");
    target
        .join(if release { "release" } else { "debug" })
        .join(file)
}
