//! A new instance, sealed from its first byte.
//!
//! Invariants:
//! 1. The header and its configuration are durable before initdb writes anything.
//! 2. After a failure the directory is as it was: empty, or absent. Only what was made here is
//!    removed.
//! 3. Before success is reported, [`create`] reads the new control file without the key: it must
//!    not be readable.
//!
//! Must not: touch a directory that holds anything.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use strongroom_format::code;
use strongroom_format::header::Cipher;
use strongroom_format::postgres::{BLOCK, CONFIG_FILE, HEADER_FILE, OWN_PREFIX, SEGMENT_BLOCKS};
use strongroom_keyring::{Error, NewObject, Object, durable};
use strongroom_postgres_shield::instance;

use crate::chosen::{ChosenKey, GivenKey, configure};
use crate::contents::looks_like_control;
use crate::control_data::ControlData;
use crate::directory::Directory;
use crate::facts::Facts;
use crate::programs;
use crate::shielded::Shielded;

/// The instance that is to be made.
pub struct CreationOptions<'a> {
    /// Its data directory, which is empty or not there.
    pub directory: &'a Path,
    /// Where the key comes from.
    pub key: GivenKey,
    /// The cipher of its data key.
    pub cipher: Cipher,
    /// The instance whose data key it gets, instead of a new one.
    pub copy_key_from: Option<&'a Path>,
    /// PostgreSQL's initdb and its options; `None` when only header and configuration are made.
    pub initdb: Option<Initdb<'a>>,
    /// Becomes true when the work has to stop. What was made is then removed.
    pub stop: &'a AtomicBool,
}

/// PostgreSQL's initdb.
pub struct Initdb<'a> {
    /// The program.
    pub program: PathBuf,
    /// Options beside the data directory.
    pub options: &'a [OsString],
}

/// An instance that was made.
pub struct CreatedInstance {
    /// Its header.
    pub facts: Facts,
    /// Whether the server finds the key by itself.
    pub is_unattended: bool,
    /// Whether its pages have checksums. `true` where initdb was not run.
    pub has_checksums: bool,
}

/// Makes the instance: its directory, header and configuration, and what initdb writes. After a
/// failure the directory is as it was.
///
/// # Errors
/// SR-1002 when the directory is not empty, SR-7012 when it is sealed already; SR-7017 without the
/// library; SR-1006 without the program initdb; SR-7018 when it fails; SR-7021 when it wrote in
/// clear; SR-7010 for an instance of another geometry; SR-1001 when the directory's name holds a
/// colon; those of the key; SR-5001, also when `stop` became true.
pub fn create(new: CreationOptions<'_>) -> Result<CreatedInstance, Error> {
    programs::library()?;
    check_empty(new.directory)?;
    // Named before it is there: a question at the terminal, and messages, name it.
    let mut made = NewFiles::directory(new.directory)?;
    let directory = Directory::at(new.directory)?;
    let (chosen, header) = header(new.key, new.cipher, new.copy_key_from, &directory)?;
    made.remove_unless_kept(&directory.path);
    write_own(&directory, &chosen, &header)?;
    let mut has_checksums = true;
    if let Some(initdb) = &new.initdb {
        initdb.run(&directory, &chosen)?;
        has_checksums = check_made(&initdb.program, &directory, &chosen)?;
    }
    let object = chosen.open(&directory)?;
    if new.stop.load(Ordering::Relaxed) {
        return Err(directory.failure(&code::IO, "stopped by a signal"));
    }
    made.keep();
    Ok(CreatedInstance {
        facts: Facts::of(object.header()),
        is_unattended: chosen.is_unattended(),
        has_checksums,
    })
}

/// Returns the key source and the bytes of the header, after the key was fetched. With
/// `copy_key_from` they are those of that instance, which the key must open. Writes nothing.
///
/// # Errors
/// SR-7003 or SR-7004 when that instance is not sealed; SR-2041 when nothing names a key, SR-2001
/// with `copy_key_from`; SR-2019 when the configuration cannot name its source; those of the key.
fn header(
    key: GivenKey,
    cipher: Cipher,
    copy_key_from: Option<&Path>,
    directory: &Directory,
) -> Result<(ChosenKey, Vec<u8>), Error> {
    if let Some(from) = copy_key_from {
        let other = Directory::at(from)?;
        other.check_sealed()?;
        let chosen = ChosenKey::required(key, &other)?;
        chosen.open(&other)?;
        return Ok((chosen, instance::header(&other.path)?));
    }
    let chosen = ChosenKey::for_new(key, directory)?;
    // What cannot be written there is refused before a key is fetched.
    chosen.configuration()?;
    let recipient = chosen.opener()?.recipient()?;
    let object = Object::create(&NewObject::instance(cipher), &recipient)?;
    let bytes = object.initial_bytes();
    Ok((chosen, bytes))
}

impl Initdb<'_> {
    /// Runs initdb under the shield to its end, on the directory, on the streams of this process.
    /// What it wrote stays when it fails: the caller removes it.
    ///
    /// # Errors
    /// SR-7018 when initdb fails, or ends by a signal; SR-1006 when there is no such program;
    /// SR-7017 without the shield's library; SR-1001 when the directory's name holds a colon;
    /// SR-1004 when a server could not open the key's keyring; those of the key's source; SR-5001
    /// when the system reports an error.
    fn run(&self, directory: &Directory, chosen: &ChosenKey) -> Result<(), Error> {
        let program = self.program.clone();
        let mut shielded = Shielded::new(program, &[directory], Some(chosen))?;
        shielded
            .command()
            .arg("-D")
            .arg(&directory.path)
            .arg("--no-instructions")
            .args(self.options);
        shielded.run()
    }
}

/// Checks that nothing is at `path`, or an empty directory. SR-7012 when it has a header, SR-1002
/// when it holds anything else; SR-5001 when the system reports an error.
fn check_empty(path: &Path) -> Result<(), Error> {
    if path.join(HEADER_FILE).symlink_metadata().is_ok() {
        return Err(Error::new(
            &code::PG_ALREADY_SEALED,
            path.display().to_string(),
        ));
    }
    let mut entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::on_path(path, error)),
    };
    if entries.next().is_some() {
        let detail = format!("{}: not empty", path.display());
        return Err(Error::new(&code::EXISTS, detail));
    }
    Ok(())
}

/// Writes header and configuration into the directory, durably. SR-2019 when the configuration
/// cannot name the key's source; SR-5001 when the system reports an error.
fn write_own(directory: &Directory, chosen: &ChosenKey, header: &[u8]) -> Result<(), Error> {
    let text = chosen.configuration()?;
    let path = directory.path.join(HEADER_FILE);
    durable::create_new(&path, header, 0o600).map_err(|e| Error::on_path(&path, e))?;
    configure(&directory.path, &text)
}

/// Checks the new control file: without the shield it cannot be read (SR-7021), and through the
/// shield it shows the geometry that the tweaks of blocks count on (SR-7010). Lets the group read
/// header and configuration where it may read the directory. Returns whether pages have checksums.
fn check_made(initdb: &Path, directory: &Directory, chosen: &ChosenKey) -> Result<bool, Error> {
    let path = directory.path.join("global/pg_control");
    let raw = std::fs::read(&path).map_err(|e| Error::on_path(&path, e))?;
    if looks_like_control(&raw) {
        return Err(directory.failure(&code::PG_NOT_SHIELDED, "its control file is plain"));
    }
    let bindir = initdb.parent().unwrap_or_else(|| Path::new(""));
    let control = ControlData::read(bindir, directory, Some(chosen))?;
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

/// Lets the group read header and configuration when it may read the directory, as after initdb
/// --allow-group-access: backups need the header too. SR-5001 when the system reports an error.
fn open_to_group(directory: &Directory) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt as _;
    let io = |e: std::io::Error| Error::on_path(&directory.path, e);
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

/// What was made and is removed again unless it is kept.
struct NewFiles {
    /// Directories made, outermost first.
    directories: Vec<PathBuf>,
    /// The data directory, once there may be something in it.
    filled: Option<PathBuf>,
}

impl NewFiles {
    /// Makes the directory, and those above it, where they are missing, each for its owner only.
    /// Those that were made are removed again when the result is dropped before `keep`, or when
    /// this fails: SR-5001 when the system reports an error.
    fn directory(path: &Path) -> Result<Self, Error> {
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
            built.map_err(|e| Error::on_path(&path, e))?;
            made.directories.push(path);
        }
        Ok(made)
    }

    /// From now on everything in the directory `path` is removed too, when this is dropped before
    /// `keep`.
    fn remove_unless_kept(&mut self, path: &Path) {
        self.filled = Some(path.to_path_buf());
    }

    /// Keeps what was made: nothing is removed when this is dropped.
    fn keep(mut self) {
        self.directories.clear();
        self.filled = None;
    }
}

impl Drop for NewFiles {
    /// Removes everything in the data directory, header and configuration last, and the directories
    /// that were made, unless they were kept. Errors are dropped.
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

/// Returns whether it is one of Strongroom's own files, by the beginning of its name.
fn is_own(path: &Path) -> bool {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    name.is_some_and(|name| name.starts_with(OWN_PREFIX))
}
