//! The traits by which a restore seals the files of a PostgreSQL cluster as they are written.
//!
//! The library does not know sealed instances (B24): the command implements these traits with the
//! shield.
//!
//! Must not: know the layout of a sealed file.

use std::fmt::Debug;
use std::fs::File;

use crate::Result;

/// What is done with a file of the cluster.
pub enum Becomes {
    /// It is written as the set has it: the instance keeps it in clear.
    InClear,
    /// It is not written: the server would remove it, or it describes contents of other files.
    LeftOut,
    /// It is sealed in this way.
    Sealed(Box<dyn SealedFile>),
}

/// The sealed instance that a cluster is restored to.
pub trait Sealing: Debug + Send + Sync {
    /// Decides what becomes of the file at `path`, which is relative to the data directory.
    ///
    /// # Errors
    /// SR-7002 for a file that cannot be sealed.
    fn becomes(&self, path: &[u8]) -> Result<Becomes>;

    /// Checks that an instance can be made of the cluster with this control file.
    ///
    /// # Errors
    /// SR-7011 when it is not the control file of a supported version; SR-7010 when the cluster's
    /// blocks or segments have another size.
    fn check_control(&self, content: &[u8]) -> Result<()>;

    /// The files of the sealed instance that the cluster does not have, with their contents.
    fn own_files(&self) -> Vec<(&'static str, Vec<u8>)>;
}

/// How one file is sealed, for as long as it is open. Offsets and lengths are those of the
/// plaintext.
pub trait SealedFile {
    /// Seals all of `bytes` at `offset`.
    ///
    /// # Errors
    /// Those of the file system.
    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> std::io::Result<()>;

    /// Makes the file this long. What is added reads as zeros.
    ///
    /// # Errors
    /// Those of the file system.
    fn set_length(&self, file: &File, length: u64) -> std::io::Result<()>;

    /// Whether a file of this length can be sealed in this way.
    fn fits(&self, length: u64) -> bool;
}
