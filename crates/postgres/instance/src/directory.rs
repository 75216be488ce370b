//! A data directory: its version, whether it is sealed, being converted or in use, and whose it is.
//!
//! Must not: need a key; change anything.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use strongroom_format::code;
use strongroom_format::postgres::{CONFIG_FILE, CONVERT_FILE, HEADER_FILE};
use strongroom_postgres_shield::data_directory::{is_own, major_version, running_server};
use strongroom_postgres_shield::instance;

use crate::failure::Failure;

/// `-D`, as PostgreSQL's own programs have it.
#[derive(Args)]
pub(super) struct DirectoryOption {
    /// The data directory [default: PGDATA]
    #[arg(short = 'D', long = "pgdata", value_name = "DIR")]
    directory: Option<PathBuf>,
}

/// A data directory.
pub(super) struct Directory {
    /// Absolute, with links resolved: programs may be started in another working directory.
    pub(super) path: PathBuf,
    /// As it was named, for messages.
    named: PathBuf,
}

impl DirectoryOption {
    /// A directory that holds an instance.
    pub(super) fn existing(&self) -> Result<Directory, Failure> {
        let directory = Directory::at(&self.named()?)?;
        if directory.major().is_none() && !directory.is_sealed() {
            return Err(directory.failure(&code::PG_NOT_INSTANCE, "no PG_VERSION in it"));
        }
        Ok(directory)
    }

    /// As [`Self::existing`], and sealed.
    pub(super) fn sealed(&self) -> Result<Directory, Failure> {
        let directory = self.existing()?;
        directory.check_sealed()?;
        Ok(directory)
    }

    /// As it was given, for an instance that is to be made.
    pub(super) fn named(&self) -> Result<PathBuf, Failure> {
        let variable = || std::env::var_os("PGDATA").filter(|value| !value.is_empty());
        let named = self
            .directory
            .clone()
            .or_else(|| variable().map(PathBuf::from));
        named.ok_or_else(|| Failure::new(&code::USAGE, "-D DIR is missing, and PGDATA is not set"))
    }
}

impl Directory {
    /// The directory at `path`, whatever it holds.
    pub(super) fn at(path: &Path) -> Result<Self, Failure> {
        let resolved = path.canonicalize().map_err(|e| Failure::open(path, &e))?;
        if !resolved.is_dir() {
            let detail = format!("{}: not a directory", path.display());
            return Err(Failure::new(&code::PG_NOT_INSTANCE, detail));
        }
        Ok(Self {
            path: resolved,
            named: path.to_path_buf(),
        })
    }

    /// `code` about this directory.
    pub(super) fn failure(&self, code: &'static code::Code, detail: &str) -> Failure {
        Failure::new(code, format!("{}: {detail}", self.named.display()))
    }

    /// Whether there is a header. Nothing says yet that it is a good one.
    pub(super) fn is_sealed(&self) -> bool {
        instance::is_sealed(&self.path)
    }

    /// An error unless [`Self::is_sealed`].
    pub(super) fn check_sealed(&self) -> Result<(), Failure> {
        if self.is_sealed() {
            return Ok(());
        }
        // The first thing that sealing makes, and the last that opening removes: the header is not
        // there yet, or no more.
        if self.is_converting() {
            return Err(self.failure(&code::PG_CONVERTING, "strongroom.convert is there"));
        }
        let detail = if self.path.join(CONFIG_FILE).exists() {
            format!(
                "{CONFIG_FILE} is there, {HEADER_FILE} is not: run `strongroom pg encrypt` again if it was interrupted, else restore the header from a backup"
            )
        } else {
            format!("no {HEADER_FILE} in it")
        };
        Err(self.failure(&code::PG_NOT_SEALED, &detail))
    }

    /// Whether a conversion was begun and not finished.
    pub(super) fn is_converting(&self) -> bool {
        self.path.join(CONVERT_FILE).symlink_metadata().is_ok()
    }

    /// PostgreSQL's major version, from `PG_VERSION`.
    pub(super) fn major(&self) -> Option<u32> {
        major_version(&self.path)
    }

    /// The process id of the server that runs on it.
    pub(super) fn server(&self) -> Option<u32> {
        running_server(&self.path)
    }

    /// Whether the data directory belongs to the user of this process.
    pub(super) fn is_own(&self) -> bool {
        is_own(&self.path)
    }

    /// Refuses root and everybody but the directory's owner, as PostgreSQL does.
    pub(super) fn check_user(&self) -> Result<(), Failure> {
        refuse_root()?;
        let about = std::fs::metadata(&self.path).map_err(|e| Failure::io(&self.path, &e))?;
        let me = rustix::process::geteuid().as_raw();
        if about.uid() == me {
            return Ok(());
        }
        let detail = format!("it belongs to user {}, this is user {me}", about.uid());
        Err(self.failure(&code::IO, &detail))
    }

    /// Path for messages.
    pub(super) fn shown(&self) -> String {
        self.named.display().to_string()
    }
}

/// PostgreSQL's programs refuse root; say so before anything is done.
pub(super) fn refuse_root() -> Result<(), Failure> {
    if rustix::process::geteuid().is_root() {
        return Err(Failure::new(&code::PG_ROOT, ""));
    }
    Ok(())
}
