//! A PostgreSQL cluster that becomes a sealed instance while a backup of it is restored.
//!
//! Invariant: every byte of a file that an instance seals is sealed by the shield's own code before
//! it is written.
//!
//! Must not: write `backup_manifest`, whose digests are those of the plaintext.

use std::fmt;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use strongroom_backup::{Becomes, SealedFile, Sealing};
use strongroom_format::header::Cipher;
use strongroom_format::postgres::{CONFIG_FILE, HEADER_FILE};
use strongroom_keyring::Error;
use strongroom_postgres_shield::convert::{self, FileAction};
use strongroom_postgres_shield::instance::Instance;
use strongroom_postgres_shield::layout::FileLayout;
use strongroom_postgres_shield::real::{Errno, Real};
use strongroom_postgres_shield::resolve::Seal;
use strongroom_postgres_shield::sealed_file::{self, FileCache};
use strongroom_postgres_shield::{file_io, scratch};

use crate::chosen::{ChosenKey, GivenKey};

/// What the server's own manifest of a backup is called. It has a digest of every file in clear: of
/// a small one the content can be guessed by it.
const MANIFEST: &[u8] = b"backup_manifest";

/// The instance that a restore makes.
pub struct NewInstance {
    instance: Arc<Instance>,
    header: Vec<u8>,
    configuration: String,
    unattended: bool,
}

impl NewInstance {
    /// Makes keys and header of a new instance, for the key that `given` or the environment names.
    /// `to` is where it is restored to, for messages. Writes nothing.
    ///
    /// # Errors
    /// SR-2041 when nothing names a key; SR-2019 when the configuration cannot name its source;
    /// those of the key's source.
    pub fn new(given: GivenKey, cipher: Cipher, to: &Path) -> Result<Self, Error> {
        let chosen = ChosenKey::for_restored(given, &to.display().to_string())?;
        let configuration = chosen.configuration()?;
        let (header, instance) = convert::new_instance(cipher, &chosen.opener()?.recipient()?)?;
        Ok(Self {
            instance: Arc::new(instance),
            header,
            configuration,
            unattended: chosen.is_unattended(),
        })
    }

    /// Returns whether a server finds the key by itself.
    #[must_use]
    pub const fn is_unattended(&self) -> bool {
        self.unattended
    }
}

impl fmt::Debug for NewInstance {
    /// Writes the type's name only: the value has keys.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("NewInstance")
    }
}

impl Sealing for NewInstance {
    /// Decides what becomes of a file of the cluster: it is sealed, stays in clear, or is left out,
    /// as the server's manifest is. SR-7002 for a file that cannot be sealed.
    fn becomes(&self, path: &[u8]) -> Result<Becomes, Error> {
        if path == MANIFEST {
            return Ok(Becomes::LeftOut);
        }
        Ok(match convert::file_action(path)? {
            FileAction::Remove => Becomes::LeftOut,
            FileAction::KeepPlain => Becomes::InClear,
            FileAction::Seal(seal) => Becomes::Sealed(Box::new(SealedWriter {
                instance: Arc::clone(&self.instance),
                seal,
                // The last value: the caller reports what is wrong, nothing goes to standard error.
                cache: [0, 0, 0, 1].map(AtomicU64::new),
                real: Real::linked(),
            })),
        })
    }

    /// Checks that an instance can be made of the cluster with this control file, in clear: SR-7010
    /// for another geometry, SR-7011 for another version.
    fn check_control(&self, content: &[u8]) -> Result<(), Error> {
        convert::check_control(content)
    }

    /// Returns names and contents of the instance's configuration and header.
    fn own_files(&self) -> Vec<(&'static str, Vec<u8>)> {
        vec![
            (CONFIG_FILE, self.configuration.clone().into_bytes()),
            (HEADER_FILE, self.header.clone()),
        ]
    }
}

/// A file of the instance that is written.
struct SealedWriter {
    instance: Arc<Instance>,
    seal: Seal,
    cache: FileCache,
    real: Real,
}

impl SealedWriter {
    /// Returns the file in the form that the shield's code takes.
    fn state(&self) -> sealed_file::SealedFile<'_> {
        sealed_file::SealedFile {
            instance: &self.instance,
            layout: self.seal.layout,
            key: self.seal.key,
            tweak: self.seal.tweak,
            cache: &self.cache,
        }
    }
}

impl SealedFile for SealedWriter {
    /// Seals all of `bytes` and writes them at `offset`, both of the plaintext. `WriteZero` when
    /// the system takes none; its other errors, and EIO when what is stored there is damaged.
    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        let (state, mut at) = (self.state(), offset);
        let mut left = bytes;
        while !left.is_empty() {
            let part = left.get(..scratch::LEN).unwrap_or(left);
            let wrote = file_io::write_at(&self.real, file.as_raw_fd(), &state, part, at)?;
            if wrote == 0 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            at = at.saturating_add(wrote as u64);
            left = left.get(wrote..).unwrap_or_default();
        }
        Ok(())
    }

    /// Makes the file this long, in plaintext. What is added reads as zeros. The system's errors;
    /// EIO when the file is damaged.
    fn set_length(&self, file: &File, length: u64) -> std::io::Result<()> {
        let set: Result<(), Errno> =
            file_io::truncate(&self.real, file.as_raw_fd(), &self.state(), length);
        Ok(set?)
    }

    /// Returns whether a file of this length can be sealed in this way: some files of blocks must
    /// be a multiple of 16 bytes.
    fn fits(&self, length: u64) -> bool {
        self.seal.layout != FileLayout::Block
            || self.seal.key.has_tails()
            || length.is_multiple_of(16)
    }
}
