//! Sets a zone up as its operator has configured it: the TPM, the evidence, the anchor, the sealed
//! store and the records.
//!
//! Invariant: the TPM and the anchor are opened before a store is made. A new store that found no
//! anchor would look like one that was put back.
//!
//! Must not: serve; print; show a key or a value.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use strongroom_keyring::{Error, KeySource, SourceContext};
use strongroom_keys_tpm::Tpm;

use crate::engine::Zone;
use crate::sandbox::Sandbox;
use crate::session::ColumnKeys;
use crate::session::attest::{Attester, Hardware, ProcessAttester, TpmAttester, TsmAttester};
use crate::store::{self, Anchor, FileAnchor, Options, Store, TpmAnchor};

/// Where the freshness anchor of the store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnchorPlace {
    /// A counter in this file.
    File(PathBuf),
    /// The TPM's counter of this index.
    Tpm(u32),
}

/// What the zone shows to be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// What it says itself, which proves nothing.
    Process,
    /// A quote of the TPM.
    Tpm {
        /// The handle of the key that signs it.
        key: u32,
        /// The registers, bit n for register n.
        pcrs: u32,
    },
    /// A report of the confidential virtual machine that the zone runs in.
    Report(Hardware),
}

/// How a zone is set up.
pub struct ZoneSetup {
    /// The directory of the sealed store.
    pub state: PathBuf,
    /// The socket that backends connect to.
    pub socket: PathBuf,
    /// The ids of the users whose processes may connect.
    pub users: Vec<u32>,
    /// Bytes of values that may be in memory.
    pub memory_limit: u64,
    /// The freshness anchor; `None`: a file in the state directory.
    pub anchor: Option<AnchorPlace>,
    /// What the zone shows to be believed.
    pub evidence: Evidence,
    /// Where the TPM is.
    pub tpm: String,
    /// The entry of `configfs-tsm` that gives reports of a confidential virtual machine.
    pub tsm: PathBuf,
    /// Whether a store that is older than its anchor is opened: a restore on purpose.
    pub accept_restored: bool,
    /// Whether memory that cannot be locked is an error.
    pub insist_on_locks: bool,
    /// The file with the key of the records of sessions; `None`: no records.
    pub record_key: Option<PathBuf>,
    /// The keyring, for the keys; `None`: the default one.
    pub keyring: Option<PathBuf>,
}

impl ZoneSetup {
    /// Opens the store with `key`, or makes it, and returns the zone, which does not serve yet.
    /// `made` is called after a new store was made, whose values are lost with its key.
    ///
    /// # Errors
    /// SR-5001 when the TPM or the program's own file cannot be used; SR-8010 when the store is
    /// older than its anchor, SR-8025 when another process has it open; as [`store::create`] and
    /// [`store::open`]; those of the keys; SR-5001.
    pub fn zone(&self, key: &KeySource, made: impl FnOnce()) -> Result<Zone, Error> {
        let tpm = self.open_tpm()?;
        let attester = self.attester(tpm.as_ref())?;
        let anchor = self.anchor(tpm.as_ref())?;
        let store = self.store(key, anchor, made)?;
        let zone = Zone::new(store, ColumnKeys::default(), attester, self.users.clone());
        self.recording(zone)
    }

    /// Returns the sandbox that leaves the state accessible, the directories of the anchor's file
    /// and of the socket, and the entry that gives reports if the evidence is one.
    #[must_use]
    pub fn sandbox(&self) -> Sandbox {
        let parent = |path: &Path| {
            path.parent()
                .map_or_else(|| PathBuf::from("."), Path::to_path_buf)
        };
        let mut directories = vec![
            self.state.clone(),
            parent(&self.anchor_file()),
            parent(&self.socket),
        ];
        if matches!(self.evidence, Evidence::Report(_)) {
            directories.push(self.tsm.clone());
        }
        Sandbox {
            directories,
            insist_on_locks: self.insist_on_locks,
            all_threads: true,
        }
    }

    /// Opens the TPM if the anchor or the evidence needs it, before the sandbox closes, after which
    /// nothing can be opened. `None` if nothing needs it; SR-5001 if it cannot be opened.
    fn open_tpm(&self) -> Result<Option<Arc<Tpm>>, Error> {
        let is_anchored = matches!(self.anchor, Some(AnchorPlace::Tpm(_)));
        let is_quoted = matches!(self.evidence, Evidence::Tpm { .. });
        if !is_anchored && !is_quoted {
            return Ok(None);
        }
        let tpm = Tpm::open(&self.tpm);
        tpm.map(Some)
            .map_err(|failure| self.tpm_error(failure.into()))
    }

    /// Makes the error SR-5001 about the TPM.
    fn tpm_error(&self, error: std::io::Error) -> Error {
        Error::on_path(Path::new(&self.tpm), error)
    }

    /// Returns what attests the zone: the TPM's quotes, reports of the virtual machine, or the
    /// process itself. SR-5001 if the TPM, the entry for reports or the program's own file cannot
    /// be used.
    fn attester(&self, tpm: Option<&Arc<Tpm>>) -> Result<Box<dyn Attester>, Error> {
        match (self.evidence, tpm) {
            (Evidence::Tpm { key, pcrs }, Some(tpm)) => {
                let attester = TpmAttester::new(Arc::clone(tpm), key, pcrs);
                Ok(Box::new(attester.map_err(|error| self.tpm_error(error))?))
            }
            (Evidence::Report(hardware), _) => {
                let attester = TsmAttester::new(self.tsm.clone(), hardware);
                let failed = |error| Error::on_path(&self.tsm, error);
                Ok(Box::new(attester.map_err(failed)?))
            }
            _ => {
                let attester = ProcessAttester::new();
                let program = Path::new("/proc/self/exe");
                Ok(Box::new(
                    attester.map_err(|error| Error::on_path(program, error))?,
                ))
            }
        }
    }

    /// Returns the freshness anchor of the store: a counter of the TPM, or a file. SR-5001 if the
    /// TPM's counter cannot be used.
    fn anchor(&self, tpm: Option<&Arc<Tpm>>) -> Result<Box<dyn Anchor>, Error> {
        match (&self.anchor, tpm) {
            (Some(AnchorPlace::Tpm(index)), Some(tpm)) => {
                let counter = tpm.counter(*index);
                let counter = counter.map_err(|failure| self.tpm_error(failure.into()))?;
                Ok(Box::new(TpmAnchor::new(counter)))
            }
            _ => Ok(Box::new(FileAnchor::at(self.anchor_file()))),
        }
    }

    /// Returns the path of the anchor's file: the one that was named, otherwise one in the state
    /// directory, also if the anchor is in the TPM.
    fn anchor_file(&self) -> PathBuf {
        match &self.anchor {
            Some(AnchorPlace::File(path)) => path.clone(),
            _ => self.state.join(store::ANCHOR_NAME),
        }
    }

    /// Opens the sealed store with the key. If there is none, makes its directory and the store
    /// first, and calls `made`. Errors: those of the key; as [`store::create`] and [`store::open`];
    /// SR-5001.
    fn store(
        &self,
        key: &KeySource,
        anchor: Box<dyn Anchor>,
        made: impl FnOnce(),
    ) -> Result<Store, Error> {
        let is_there = self.state.join(store::HEADER_NAME).exists();
        let opener = key.opener(&SourceContext {
            keyring: self.keyring.clone(),
            creating: !is_there,
            prompt: format!("Passphrase of {}", self.state.display()),
        })?;
        if !is_there {
            std::fs::create_dir_all(&self.state)
                .map_err(|error| Error::on_path(&self.state, error))?;
            store::create(&self.state, &opener.recipient()?)?;
            made();
        }
        let options = Options {
            memory_limit: self.memory_limit,
            insist_on_locks: self.insist_on_locks,
            // A TPM's counter does not begin at zero, and a store that was made just now cannot be
            // an older one.
            accept_restored: self.accept_restored || !is_there,
        };
        store::open(&self.state, &opener, anchor, options)
    }

    /// Returns the zone, which then may write records of sessions, sealed for the key in the file
    /// that was named; unchanged if none was. Makes the directory for them. Errors: those of the
    /// key; SR-5001.
    fn recording(&self, zone: Zone) -> Result<Zone, Error> {
        let Some(file) = &self.record_key else {
            return Ok(zone);
        };
        let opener = KeySource::File(file.clone()).opener(&SourceContext {
            keyring: self.keyring.clone(),
            creating: false,
            prompt: String::new(),
        })?;
        let directory = self.state.join("records");
        std::fs::create_dir_all(&directory).map_err(|error| Error::on_path(&directory, error))?;
        Ok(zone.recording(directory, opener.recipient()?))
    }
}
