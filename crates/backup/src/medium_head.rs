//! The head of a medium: `medium.json`.
//!
//! Must not: be trusted in a restore, except to refuse one.

use serde::{Deserialize, Serialize};
use strongroom_crypto::random16;
use strongroom_format::{code, hex};

use crate::store::{Store, Version, is_misfit};
use crate::{Error, Result};

/// The object's name.
pub(crate) const MEDIUM_FILE: &str = "medium.json";
const FORMAT: &str = "strongroom medium";
const VERSION: u32 = 1;
const HEAD_MAX: u64 = 64 * 1024;

/// Whether a medium's sets are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protection {
    /// Every set has a key.
    Sealed,
    /// No set has a key.
    Plain,
}

impl Protection {
    /// Returns the word for it in output: `sealed` or `plain`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sealed => "sealed",
            Self::Plain => "plain",
        }
    }
}

/// The head of a medium. Not authenticated: it says what writers intend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediumHead {
    format: String,
    version: u32,
    /// 32 hexadecimal digits.
    pub medium_id: String,
    /// Whether the medium's sets are sealed.
    pub protection: Protection,
    /// Families of every set.
    pub stripes: u16,
    /// Seconds since the Unix epoch.
    pub created_unix_s: u64,
}

impl MediumHead {
    /// A head for a new medium, with a random id. Nothing is written. An error only when the system
    /// has no random bytes.
    pub(crate) fn new(protection: Protection, stripes: u16, now_unix_s: u64) -> Result<Self> {
        Ok(Self {
            format: String::from(FORMAT),
            version: VERSION,
            medium_id: hex::hex(&random16()?),
            protection,
            stripes,
            created_unix_s: now_unix_s,
        })
    }

    /// The content of `medium.json`, as JSON with a line end. SR-9001 when it cannot be serialised,
    /// which does not happen.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::new(&code::BUG, error.to_string()))?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Reads the medium's head; `None` when there is none. It is not authenticated.
    ///
    /// # Errors
    /// SR-7102 when it is damaged, too long or no regular file; SR-3002 when it is newer; SR-5001,
    /// or SR-7141 to SR-7143 for an object store, when the store fails.
    pub(crate) fn read(store: &dyn Store) -> Result<Option<Self>> {
        Ok(Self::read_version(store)?.map(|(head, _)| head))
    }

    /// Reads the medium's head as [`Self::read`] does, and returns with it the version of the
    /// object that replacing it requires; `None` when there is no head.
    ///
    /// # Errors
    /// SR-7102 when it is damaged, too long or no regular file; SR-3002 when it is newer; SR-5001,
    /// or SR-7141 to SR-7143 for an object store, when the store fails.
    pub(crate) fn read_version(store: &dyn Store) -> Result<Option<(Self, Version)>> {
        let shown = || format!("{}/{MEDIUM_FILE}", store.shown());
        let read = store.read_version(MEDIUM_FILE, HEAD_MAX);
        let damaged = || Error::new(&code::MEDIUM_DAMAGED, shown());
        let read = read.map_err(|error| match is_misfit(&error) {
            true => Error::new(&code::MEDIUM_DAMAGED, format!("{}: {error}", shown())),
            false => Error::io(shown(), error),
        })?;
        let Some((bytes, version)) = read else {
            return Ok(None);
        };
        let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(|_| damaged())?;
        if value.get("format").and_then(|format| format.as_str()) != Some(FORMAT) {
            return Err(damaged());
        }
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(format) if format == u64::from(VERSION) => {}
            Some(format) if format > u64::from(VERSION) => {
                let detail = format!("{}: version {format}", shown());
                return Err(Error::new(&code::NEWER_FORMAT, detail));
            }
            _ => return Err(damaged()),
        }
        let head: Self = serde_json::from_value(value).map_err(|_| damaged())?;
        let stripes_ok = (1..=strongroom_format::backup::FAMILIES_MAX).contains(&head.stripes);
        let id_ok = hex::from_hex(&head.medium_id).is_some_and(|id| id.len() == 16);
        if stripes_ok && id_ok {
            Ok(Some((head, version)))
        } else {
            Err(damaged())
        }
    }
}
