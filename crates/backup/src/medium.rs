//! The medium: its head, the sets on it, who may add to it, and what is left to be cleared away.
//!
//! Invariants: B9, a set exists if and only if its head does, and the head is created last and never replaces another;
//! every set of a medium has the medium's protection.
//!
//! Must not: believe the medium's head where something is restored, but to refuse it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use strongroom_crypto::random16;
use strongroom_format::backup::{DESCRIPTION_MAX, set_layout};
use strongroom_format::code::{self, Class};
use strongroom_format::header::{HEADER_LEN, Header};
use strongroom_format::hex;

use crate::head::{Description, Unopened};
use crate::removal;
use crate::store::{Store, Version, is_misfit};
use crate::{Error, Result};

pub(crate) const HEAD: &str = "medium.json";
/// The last position that a set can have; eight digits.
const POSITION_MAX: u32 = 99_999_999;
const FORMAT: &str = "strongroom medium";
const VERSION: u32 = 1;
const HEAD_MAX: u64 = 64 * 1024;
/// Bytes of the longest head of a set.
pub(crate) const SET_HEAD_MAX: u64 =
    HEADER_LEN as u64 + set_layout::SIZE as u64 + DESCRIPTION_MAX as u64;

/// Whether a medium's sets are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protection {
    /// Every set has a key.
    Sealed,
    /// No set has.
    Plain,
}

impl Protection {
    /// The word in output.
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
    /// Of every set.
    pub protection: Protection,
    /// Families of every set.
    pub stripes: u16,
    /// Seconds since the Unix epoch.
    pub created_unix_s: u64,
}

impl MediumHead {
    /// A head for a new medium.
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

    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::new(&code::BUG, error.to_string()))?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// The medium's head; `None` when there is none.
    ///
    /// # Errors
    /// SR-7102, SR-3002, SR-5001.
    pub(crate) fn read(store: &dyn Store) -> Result<Option<Self>> {
        Ok(Self::read_version(store)?.map(|(head, _)| head))
    }

    /// As [`Self::read`], with what it takes to replace it.
    ///
    /// # Errors
    /// SR-7102, SR-3002, SR-5001.
    pub(crate) fn read_version(store: &dyn Store) -> Result<Option<(Self, Version)>> {
        let shown = || format!("{}/{HEAD}", store.shown());
        let read = store.read_version(HEAD, HEAD_MAX);
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

/// A set that a medium holds. Nothing of it is authenticated.
#[derive(Clone, Debug)]
pub struct ListedSet {
    /// From 1; grows with every set.
    pub position: u32,
    /// What is known without a key.
    pub description: Description,
    /// The object header of a sealed set: who can open it.
    pub header: Option<Header>,
}

/// A head that cannot be read.
#[derive(Debug)]
pub struct Unreadable {
    /// Its position.
    pub position: u32,
    /// Why not.
    pub error: Error,
}

/// Everything on a medium.
#[derive(Debug)]
pub struct Listing {
    /// `None` when it is missing or damaged.
    pub head: Option<MediumHead>,
    /// In order of position.
    pub sets: Vec<ListedSet>,
    /// In order of position.
    pub unreadable: Vec<Unreadable>,
}

/// What a medium holds, without a key.
///
/// # Errors
/// SR-7101 when there is no medium; SR-5001.
pub fn list(store: &dyn Store) -> Result<Listing> {
    let head = MediumHead::read(store);
    let head = match head {
        Err(error) if error.code().class == Class::Io => return Err(error),
        // What is on it can be told all the same.
        other => other.ok().flatten(),
    };
    let mut listing = Listing {
        head,
        sets: Vec::new(),
        unreadable: Vec::new(),
    };
    for position in positions(store)? {
        let read = read_head(store, position).and_then(|found| {
            let header = found.header()?;
            Ok((found.description, header))
        });
        match read {
            Ok((description, _)) if is_foreign(listing.head.as_ref(), &description) => {}
            Ok((description, header)) => listing.sets.push(ListedSet {
                position,
                description,
                header,
            }),
            Err(error) => listing.unreadable.push(Unreadable { position, error }),
        }
    }
    let nothing = listing.sets.is_empty() && listing.unreadable.is_empty();
    if listing.head.is_none() && nothing {
        return Err(Error::new(&code::MEDIUM_ABSENT, store.shown()));
    }
    Ok(listing)
}

/// The set at `position`, as a listing has it.
///
/// # Errors
/// SR-7107; SR-7106 and others when its head cannot be read.
pub fn listed(store: &dyn Store, position: u32) -> Result<ListedSet> {
    let found = read_head(store, position)?;
    let header = found.header()?;
    Ok(ListedSet {
        position,
        description: found.description,
        header,
    })
}

/// Whether a set was made on another medium, or on this one before it was begun anew.
pub(crate) fn is_foreign(head: Option<&MediumHead>, description: &Description) -> bool {
    head.is_some_and(|head| head.medium_id != description.medium_id)
}

/// Positions of all heads, in order.
pub(crate) fn positions(store: &dyn Store) -> Result<Vec<u32>> {
    let found = store.list("sets");
    let found = found.map_err(|error| Error::io(store.shown(), error))?;
    Ok(found
        .iter()
        .filter_map(|(name, _)| position_of(name))
        .collect())
}

pub(crate) fn position_of(name: &str) -> Option<u32> {
    let position: u32 = name.parse().ok()?;
    // One spelling of each position.
    (position > 0 && name == format!("{position:08}")).then_some(position)
}

pub(crate) fn head_name(position: u32) -> String {
    format!("sets/{position:08}")
}

pub(crate) fn family_name(set_id: &str, family: u16) -> String {
    format!("data/{set_id}.{family}")
}

/// The head of the set at `position`.
pub(crate) fn read_head(store: &dyn Store, position: u32) -> Result<Unopened> {
    let name = head_name(position);
    let shown = || format!("{}/{name}", store.shown());
    let bytes = match store.read(&name, SET_HEAD_MAX) {
        Err(error) if is_misfit(&error) => {
            let detail = format!("{}: {error}", shown());
            return Err(Error::new(&code::SET_HEAD, detail));
        }
        Err(error) => return Err(Error::io(shown(), error)),
        Ok(bytes) => bytes.ok_or_else(|| {
            Error::new(
                &code::SET_ABSENT,
                format!("{}: set {position}", store.shown()),
            )
        })?,
    };
    let head = Unopened::parse(bytes)
        .map_err(|error| Error::new(error.code(), format!("{}: {}", shown(), error.detail())))?;
    if head.is_alone() {
        Ok(head)
    } else {
        Err(Error::new(
            &code::SET_HEAD,
            format!("{}: bytes after it", shown()),
        ))
    }
}

/// The first position that no head has or had.
///
/// # Errors
/// SR-7103 when there is none; SR-5001.
pub(crate) fn next_position(store: &dyn Store) -> Result<u32> {
    after(store, removal::last_position(store)?)
}

fn after(store: &dyn Store, position: u32) -> Result<u32> {
    match position.checked_add(1) {
        Some(next) if next <= POSITION_MAX => Ok(next),
        _ => {
            let name = head_name(position);
            let detail = format!(
                "{}/{name} has the last position that there is: if it is no set, remove it",
                store.shown()
            );
            Err(Error::new(&code::MEDIUM_FOREIGN, detail))
        }
    }
}

/// Publishes a head at the first free position; returns it. `head_at` makes the head, which names
/// its position.
pub(crate) fn publish(
    store: &dyn Store,
    mut head_at: impl FnMut(u32) -> Result<Vec<u8>>,
) -> Result<u32> {
    let mut position = removal::last_position(store)?;
    // Another writer may take a position at any time; each turn means that one succeeded.
    loop {
        position = after(store, position)?;
        let name = head_name(position);
        let created = store.create_new(&name, &head_at(position)?);
        if created.map_err(|error| Error::io(format!("{}/{name}", store.shown()), error))? {
            return Ok(position);
        }
    }
}

/// A head that is to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superseded {
    pub(crate) position: u32,
    /// `None` when the head cannot be read.
    pub(crate) set_id: Option<String>,
}

/// Removes the heads of `superseded`, which are in order of position and of which none that a head which stays builds on, then
/// families that no head names, if no other writer is at work. `alone`: the lock, when the caller has it. Then also temporary
/// files of writers that were killed.
///
/// A set of another medium keeps its head and its families: what makes it one is `medium.json`, which nobody has authenticated.
/// Returns the positions of the heads that were removed; the others have become bases meanwhile, or others removed them.
pub(crate) fn clear(
    store: &dyn Store,
    superseded: &[Superseded],
    alone: Option<Box<dyn Send>>,
) -> Result<Vec<u32>> {
    let failed = |error| Error::io(store.shown(), error);
    let mut bases = removal::Bases::default();
    let mut removed = Vec::new();
    // A set goes before the one that it builds on: whatever ends this, the chains that are left are whole.
    for gone in superseded.iter().rev() {
        if removal::remove_head(store, gone, &mut bases)? {
            removed.push(gone.position);
        }
    }
    removed.reverse();
    let alone = match alone {
        Some(alone) => Some(alone),
        None => store.at_work(true).map_err(failed)?,
    };
    if alone.is_some() {
        clear_orphans(store)?;
    }
    Ok(removed)
}

/// The caller has the lock.
fn clear_orphans(store: &dyn Store) -> Result<()> {
    let failed = |error| Error::io(store.shown(), error);
    store.collect().map_err(failed)?;
    removal::sweep(store)?;
    // Before the heads: a family whose head comes later is not among them (B19).
    let families = store.abandoned().map_err(failed)?;
    let mut named = BTreeSet::new();
    for position in positions(store)? {
        match read_head(store, position) {
            Ok(found) => {
                named.insert(found.description.set_id);
            }
            // Whose families these are cannot be told: nothing is removed.
            Err(_) => return Ok(()),
        }
    }
    for name in families {
        let set_id = name.split_once('.').map(|(set_id, _)| set_id);
        if set_id.is_some_and(|set_id| !named.contains(set_id)) {
            store.remove(&format!("data/{name}")).map_err(failed)?;
        }
    }
    Ok(())
}
