//! `strongroom pg initdb -D DIR`: a new instance, sealed from its first byte.
//!
//! Invariants:
//! 1. The header and its configuration are durable before initdb writes anything.
//! 2. After a failure the directory is as it was: empty, or absent. Only what this command made is
//!    removed.
//! 3. Before the command reports success, it reads the new control file without the key: it must
//!    not be readable.
//!
//! Must not: touch a directory that holds anything.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use strongroom_format::code;
use strongroom_format::header::Cipher;
use strongroom_format::postgres::{BLOCK, CONFIG_FILE, HEADER_FILE, OWN_PREFIX, SEGMENT_BLOCKS};
use strongroom_keyring::{NewObject, Object, durable};
use strongroom_postgres_shield::instance;

use super::chosen::{ChosenKey, configure};
use super::contents::looks_like_control;
use super::controldata::Control;
use super::directory::{Directory, DirectoryOption, refuse_root};
use super::facts::Facts;
use super::programs::{self, BindirOption};
use super::shielded::Shielded;
use crate::context::Context;
use crate::failure::{Failure, note, warn};
use crate::help::tail;
use crate::key_options::KeyOptions;
use crate::signals;

/// Make a sealed instance: PostgreSQL's initdb under the shield.
///
/// Writes strongroom.header (the wrapped data key) and strongroom.conf (where the key comes from)
/// into the data directory, then runs initdb. The key must be given: by a key option or by
/// PGENCRYPTIONKEY. Options of initdb itself follow `--`.
#[derive(Args)]
#[command(after_help = tail!("  strongroom pg initdb -D /srv/pg/data --key-command 'cat /run/keys/pg' -- --data-checksums"))]
pub(super) struct InitdbArgs {
    #[command(flatten)]
    directory: DirectoryOption,
    #[command(flatten)]
    key: KeyOptions,
    /// aes-128-xts or aes-256-xts
    #[arg(long, value_name = "CIPHER", default_value = "aes-256-xts", value_parser = cipher)]
    cipher: Cipher,
    /// Take over the data key of another instance, as `pg_upgrade` --link needs it
    #[arg(long, value_name = "DIR", conflicts_with = "cipher")]
    copy_key_from: Option<PathBuf>,
    /// Make header and configuration only: for `pg_basebackup`, which fills the directory itself
    #[arg(long)]
    header_only: bool,
    #[command(flatten)]
    bindir: BindirOption,
    /// Options of initdb
    #[arg(last = true, value_name = "INITDB OPTION")]
    options: Vec<OsString>,
}

impl InitdbArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        refuse_root()?;
        let named = self.directory.named()?;
        let program = self.program()?;
        programs::library()?;
        check_empty(&named)?;
        stop_on_signal()?;
        // Named before it is there: a question at the terminal, and messages, name it.
        let mut made = NewFiles::directory(&named)?;
        let directory = Directory::at(&named)?;
        let (chosen, header) = self.header(context, &directory)?;
        made.remove_unless_kept(&directory.path);
        write_own(&directory, &chosen, &header)?;
        let mut has_checksums = true;
        if let Some(program) = &program {
            self.initdb(program, &directory, &chosen)?;
            has_checksums = check_made(program, &directory, &chosen)?;
        }
        let object = chosen.open(&directory)?;
        if was_stopped() {
            return Err(directory.failure(&code::IO, "stopped by a signal"));
        }
        made.keep();
        report(
            context,
            &named,
            &Facts::of(object.header()),
            &chosen,
            program.is_none(),
        )?;
        if !has_checksums {
            warn(&code::PG_NO_CHECKSUMS, &directory.shown());
        }
        Ok(())
    }

    /// The program, or `None` when only the header is wanted.
    fn program(&self) -> Result<Option<PathBuf>, Failure> {
        if self.header_only {
            return match self.options.first() {
                None => Ok(None),
                Some(_) => Err(Failure::usage(
                    "--header-only runs no initdb: it takes no initdb options",
                )),
            };
        }
        let names_directory = |option: &OsString| {
            let text = option.to_string_lossy();
            text.starts_with("-D") || text.starts_with("--pgd")
        };
        if self.options.iter().any(names_directory) {
            return Err(Failure::usage("the data directory is named before `--`"));
        }
        let bindir = self.bindir.find(None)?;
        Ok(Some(bindir.join("initdb")))
    }

    /// The key source and the header, tried out.
    fn header(
        &self,
        context: &Context,
        directory: &Directory,
    ) -> Result<(ChosenKey, Vec<u8>), Failure> {
        let key = self.key.clone();
        if let Some(from) = &self.copy_key_from {
            let other = Directory::at(from)?;
            other.check_sealed()?;
            let chosen = ChosenKey::required(key, context, &other)?;
            chosen.open(&other)?;
            return Ok((chosen, instance::header(&other.path)?));
        }
        let chosen = ChosenKey::for_new(key, context, directory)?;
        // What cannot be written there is refused before a key is fetched.
        chosen.configuration()?;
        let recipient = chosen.opener()?.recipient()?;
        let object = Object::create(&NewObject::instance(self.cipher), &recipient)?;
        let bytes = object.initial_bytes();
        Ok((chosen, bytes))
    }

    fn initdb(
        &self,
        program: &Path,
        directory: &Directory,
        chosen: &ChosenKey,
    ) -> Result<(), Failure> {
        let mut shielded = Shielded::new(program.to_path_buf(), &[directory], Some(chosen))?;
        shielded
            .command()
            .arg("-D")
            .arg(&directory.path)
            .arg("--no-instructions")
            .args(&self.options);
        shielded.run()
    }
}

pub(super) fn cipher(name: &str) -> Result<Cipher, String> {
    Cipher::for_instance(name).ok_or_else(|| String::from("use aes-128-xts or aes-256-xts"))
}

/// Not there, or an empty directory.
fn check_empty(path: &Path) -> Result<(), Failure> {
    if path.join(HEADER_FILE).symlink_metadata().is_ok() {
        return Err(Failure::new(
            &code::PG_ALREADY_SEALED,
            path.display().to_string(),
        ));
    }
    let mut entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Failure::io(path, &error)),
    };
    if entries.next().is_some() {
        let detail = format!("{}: not empty", path.display());
        return Err(Failure::new(&code::EXISTS, detail));
    }
    Ok(())
}

/// Header and configuration, durable.
fn write_own(directory: &Directory, chosen: &ChosenKey, header: &[u8]) -> Result<(), Failure> {
    let text = chosen.configuration()?;
    let path = directory.path.join(HEADER_FILE);
    durable::create_new(&path, header, 0o600).map_err(|e| Failure::io(&path, &e))?;
    configure(&directory.path, &text)
}

/// The instance as the shield shows it has the geometry that its tweaks count on; without the
/// shield it cannot be read. Returns whether its pages have checksums.
fn check_made(initdb: &Path, directory: &Directory, chosen: &ChosenKey) -> Result<bool, Failure> {
    let path = directory.path.join("global/pg_control");
    let raw = std::fs::read(&path).map_err(|e| Failure::io(&path, &e))?;
    if looks_like_control(&raw) {
        return Err(directory.failure(&code::PG_NOT_SHIELDED, "its control file is plain"));
    }
    let bindir = initdb.parent().unwrap_or_else(|| Path::new(""));
    let control = Control::read(bindir, directory, Some(chosen))?;
    let geometry = [
        ("Database block size", BLOCK),
        ("Blocks per segment of large relation", SEGMENT_BLOCKS),
    ];
    for (name, wanted) in geometry {
        let found = control.value(name).unwrap_or("not told");
        if found != wanted.to_string() {
            let detail = format!("{name}: {found} instead of {wanted}");
            return Err(directory.failure(&code::PG_GEOMETRY, &detail));
        }
    }
    let checksums = "Data page checksum version";
    let Some(version) = control.value(checksums) else {
        return Err(directory.failure(&code::PG_GEOMETRY, &format!("{checksums}: not told")));
    };
    open_to_group(directory)?;
    Ok(version != "0")
}

/// With initdb --allow-group-access the group may read everything: backups need the header too.
fn open_to_group(directory: &Directory) -> Result<(), Failure> {
    use std::os::unix::fs::PermissionsExt as _;
    let io = |e: std::io::Error| Failure::io(&directory.path, &e);
    let mode = std::fs::metadata(&directory.path)
        .map_err(io)?
        .permissions()
        .mode();
    if mode & 0o040 != 0 {
        for name in [HEADER_FILE, CONFIG_FILE] {
            let permissions = std::fs::Permissions::from_mode(0o640);
            std::fs::set_permissions(directory.path.join(name), permissions).map_err(io)?;
        }
    }
    Ok(())
}

fn report(
    context: &mut Context,
    named: &Path,
    facts: &Facts,
    chosen: &ChosenKey,
    header_only: bool,
) -> Result<(), Failure> {
    let shown = named.display();
    let what = if header_only {
        "header in"
    } else {
        "sealed instance"
    };
    context.output.line(&format!(
        "{what} {shown}: {}, {}, fingerprint {}",
        facts.cipher,
        facts.openers_text(),
        facts.fingerprint
    ))?;
    context.output.flush()?;
    warn(&code::PG_KEEP_KEY, &named.display().to_string());
    if !chosen.is_unattended() {
        warn(&code::PG_NO_SOURCE, &named.display().to_string());
    } else if header_only {
        note(&format!(
            "fill it with: strongroom pg run -D {shown} -- pg_basebackup -D {shown} ..."
        ));
    } else {
        note(&format!("start it with: strongroom pg start -D {shown}"));
    }
    Ok(())
}

static STOPPED: AtomicBool = AtomicBool::new(false);

fn was_stopped() -> bool {
    STOPPED.load(Ordering::Relaxed)
}

/// A signal ends initdb, which then cleans up, and afterwards this command does.
fn stop_on_signal() -> Result<(), Failure> {
    signals::stop_on_signals(&STOPPED)
}

/// What was made and is removed again unless it is kept.
struct NewFiles {
    /// Directories made, outermost first.
    directories: Vec<PathBuf>,
    /// The data directory, once there may be something in it.
    filled: Option<PathBuf>,
}

impl NewFiles {
    /// Makes the directory, and those above it, where they are missing.
    fn directory(path: &Path) -> Result<Self, Failure> {
        use std::os::unix::fs::DirBuilderExt as _;
        let missing = path
            .ancestors()
            .take_while(|above| !above.as_os_str().is_empty() && above.symlink_metadata().is_err());
        let mut missing: Vec<PathBuf> = missing.map(Path::to_path_buf).collect();
        missing.reverse();
        let mut made = Self {
            directories: Vec::new(),
            filled: None,
        };
        for path in missing {
            let built = std::fs::DirBuilder::new().mode(0o700).create(&path);
            built.map_err(|e| Failure::io(&path, &e))?;
            made.directories.push(path);
        }
        Ok(made)
    }

    fn remove_unless_kept(&mut self, path: &Path) {
        self.filled = Some(path.to_path_buf());
    }

    fn keep(mut self) {
        self.directories.clear();
        self.filled = None;
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        // The failure that led here is the one to report. The directory was empty before: all in it
        // was made here.
        if let Some(filled) = &self.filled {
            let entries = std::fs::read_dir(filled).into_iter().flatten().flatten();
            let (own, others): (Vec<_>, Vec<_>) = entries
                .map(|entry| entry.path())
                .partition(|path| is_own(path));
            // Own files last: as long as anything sealed is there, so is its header.
            for path in others.iter().chain(&own) {
                let is_directory = path.symlink_metadata().is_ok_and(|about| about.is_dir());
                drop(if is_directory {
                    std::fs::remove_dir_all(path)
                } else {
                    std::fs::remove_file(path)
                });
            }
        }
        for path in self.directories.iter().rev() {
            drop(std::fs::remove_dir(path));
        }
    }
}

fn is_own(path: &Path) -> bool {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    name.is_some_and(|name| name.starts_with(OWN_PREFIX))
}
