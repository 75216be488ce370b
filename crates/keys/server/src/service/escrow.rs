//! Header backups that nodes keep here: opaque bytes, sealed by the client before they come.
//!
//! Invariants: C1, a header that is there is whole, whichever servers write and remove it at the same time: pieces have a random name of
//! their own, are written before the record that names them, and are removed after the last commit that could have named them; C2, a
//! header takes the place of the one that was there when its writing began, and of no other: a slow writer never brings an old one
//! back; C3, pieces that no record names have a record that says so, by which they are found after a server was killed.
//!
//! Must not: look into the bytes; give them to a node that did not put them here.

use serde::Serialize;
use strongroom_crypto::{random16, sha256};
use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_keyring::Error;

use super::keys::grant_path;
use super::{Client, Peer, Plan, Service, check_object_id};
use crate::now;
use crate::records::{
    ESCROW, ESCROW_DATA, ESCROW_WORK, Escrow, Found, Grant, OBJECTS, Object, Role, Unnamed, Usage,
};
use crate::store::{Change, Guard};

/// Longest header.
pub const HEADER_MAX: usize = 32 * 1024 * 1024;
/// Length of a piece: what any store takes.
const PIECE: usize = 512 * 1024;
/// A header whose writing takes longer is not going to be finished.
const WRITING_MAX_S: u64 = 3600;

/// What was kept.
#[derive(Clone, Debug, Serialize)]
pub struct Kept {
    /// Length in bytes.
    pub size: u64,
    /// SHA-256 of the bytes.
    pub sha256: String,
    /// When, in seconds since the Unix epoch.
    pub stored: u64,
}

/// What came of naming pieces.
enum Named {
    /// The record names them now, and no longer those of this name.
    Now { replaced: Option<String> },
    /// The same header is there already: another server was asked for the same thing.
    Before,
}

/// A header whose pieces are written, and which is not named yet.
struct Written<'a> {
    id: &'a str,
    made: String,
    size: u64,
    sha256: String,
    pieces: u32,
    /// What was there when its writing began.
    before: Guard,
    /// That nobody has given these pieces up.
    work: Guard,
}

fn path(id: &str) -> String {
    format!("{ESCROW}{id}")
}

fn pieces_of(id: &str, made: &str) -> String {
    format!("{ESCROW_DATA}{id}/{made}/")
}

fn work_path(id: &str, made: &str) -> String {
    format!("{ESCROW_WORK}{id}/{made}")
}

fn kept(record: &Escrow) -> Kept {
    Kept {
        size: record.size,
        sha256: record.sha256.clone(),
        stored: record.stored,
    }
}

impl Service {
    /// Keeps a header, in the place of the one before it.
    ///
    /// # Errors
    /// SR-8423 when another node keeps one of that id, and for a node that did not report the object, nor is granted its key; SR-8429;
    /// SR-8430; SR-8442 when another header was put or removed meanwhile; SR-8443.
    pub fn keep_header(&self, peer: &Peer, id: &str, bytes: &[u8]) -> Result<Kept, Error> {
        check_object_id(id)?;
        if bytes.is_empty() {
            return Err(Error::new(&code::SERVER_REQUEST, "it is empty"));
        }
        if bytes.len() > HEADER_MAX {
            return Err(Error::new(
                &code::SERVER_TOO_LARGE,
                "a header is at most 32 MiB",
            ));
        }
        let size = bytes.len() as u64;
        // Who may not put it here does not get to write pieces.
        let before = self.run(peer, "escrow-put", id, |client| {
            let found = self.own_header(client, id)?;
            self.place_of(client, id, &found, size)?;
            Ok(Plan::read(found.guard))
        })?;
        let made = hex(&random16()?);
        let work = self.begin(id, &made)?;
        let written = Written {
            id,
            made,
            size,
            sha256: hex(&sha256(&[bytes])),
            pieces: u32::try_from(bytes.len().div_ceil(PIECE)).unwrap_or(u32::MAX),
            before,
            work,
        };
        let named = self
            .write_pieces(&written, bytes)
            .and_then(|()| self.name_pieces(peer, &written));
        match named {
            Ok((kept, Named::Now { replaced })) => {
                if let Some(replaced) = replaced {
                    // It is kept, whatever comes of this.
                    drop(self.clear(id, &replaced));
                }
                Ok(kept)
            }
            // What is not cleared now is, when it is swept up.
            Ok((kept, Named::Before)) => {
                drop(self.give_up(id, &written.made, written.work));
                Ok(kept)
            }
            Err(error) => {
                drop(self.give_up(id, &written.made, written.work));
                Err(error)
            }
        }
    }

    /// Says that pieces of this name are going to be there, which no record names (C3).
    fn begin(&self, id: &str, made: &str) -> Result<Guard, Error> {
        let path = work_path(id, made);
        let changes = vec![self.put(&path, &Unnamed { since: now() })?];
        self.commit(None, Vec::new(), changes, Vec::new())?;
        Ok(self.read::<Unnamed>(&path)?.there(id)?.1)
    }

    fn write_pieces(&self, written: &Written<'_>, bytes: &[u8]) -> Result<(), Error> {
        let prefix = pieces_of(written.id, &written.made);
        for (piece, number) in bytes.chunks(PIECE).zip(0_u32..) {
            let path = format!("{prefix}{number:05}");
            let value = self.keys.seal(&path, piece)?;
            let guards = vec![written.work.clone()];
            if !self.commit(None, guards, vec![Change::Put { path, value }], Vec::new())? {
                return Err(Error::new(&code::SERVER_BUSY, "it took too long"));
            }
        }
        Ok(())
    }

    /// Writes the record that names the pieces.
    fn name_pieces(&self, peer: &Peer, written: &Written<'_>) -> Result<(Kept, Named), Error> {
        let id = written.id;
        self.run(peer, "escrow-put", id, |client| {
            let found = self.own_header(client, id)?;
            if found.guard != written.before {
                let same = |record: &&Escrow| record.sha256 == written.sha256;
                return match found.record.as_ref().filter(same) {
                    Some(record) => Ok(Plan::read((kept(record), Named::Before))),
                    None => Err(Error::new(&code::SERVER_BUSY, id)),
                };
            }
            let place = self.place_of(client, id, &found, written.size)?;
            let record = Escrow {
                node: place.owner,
                size: written.size,
                sha256: written.sha256.clone(),
                made: written.made.clone(),
                pieces: written.pieces,
                stored: now(),
            };
            let mut changes = vec![
                self.put(&path(id), &record)?,
                Change::Delete {
                    path: written.work.path.clone(),
                },
                place.count,
            ];
            let replaced = found.record.map(|before| before.made);
            if let Some(made) = &replaced {
                changes.push(self.put(&work_path(id, made), &Unnamed { since: 0 })?);
            }
            let mut guards = vec![found.guard, written.work.clone()];
            guards.extend(place.guards);
            let mut event = client.event("escrow-put", id);
            event.detail.clone_from(&record.sha256);
            Ok(Plan {
                value: (kept(&record), Named::Now { replaced }),
                guards,
                changes,
                events: vec![event],
            })
        })
    }

    /// Whose header it will be, what it counts for, and what that is based upon. A new header of a node needs a report of its object, by
    /// the node or with a key that is granted to it: so nobody takes the place of a header that is not its own.
    fn place_of(
        &self,
        client: &Client,
        id: &str,
        found: &Found<Escrow>,
        size: u64,
    ) -> Result<Location, Error> {
        let mut guards = Vec::new();
        let (owner, before) = match &found.record {
            Some(record) => (record.node.clone(), Some(record.size)),
            None => {
                let (owner, based) = self.owner_of_new(client, id)?;
                guards.extend(based);
                (owner, None)
            }
        };
        let (guard, count) = self.counted(client, &owner, |usage| {
            uncount(usage, before);
            usage.headers = usage.headers.saturating_add(1);
            usage.header_bytes = usage.header_bytes.saturating_add(size);
        })?;
        guards.push(guard);
        Ok(Location {
            owner,
            guards,
            count,
        })
    }

    fn owner_of_new(&self, client: &Client, id: &str) -> Result<(String, Vec<Guard>), Error> {
        let name = &client.identity.name;
        let object: Found<Object> = self.read(&format!("{OBJECTS}{id}"))?;
        let mut guards = vec![object.guard];
        if client.is_admin() {
            // A node finds there what an administrator puts there for it.
            let owner = object
                .record
                .map_or_else(|| name.clone(), |object| object.node);
            return Ok((owner, guards));
        }
        let refused = || {
            let detail = format!("{id}: the object is not reported by this node");
            Error::new(&code::SERVER_NO_SUCH, detail)
        };
        let object = object.record.ok_or_else(refused)?;
        if object.node != *name {
            let grant: Found<Grant> = self.read(&grant_path(name, &object.report.key_id))?;
            grant.record.ok_or_else(refused)?;
            guards.push(grant.guard);
        }
        Ok((name.clone(), guards))
    }

    /// The record, unless another node's. An administrator sees all of them.
    fn own_header(&self, client: &Client, id: &str) -> Result<Found<Escrow>, Error> {
        client.must_be(&[Role::Admin, Role::Node])?;
        let found: Found<Escrow> = self.read(&path(id))?;
        let others = |record: &Escrow| record.node != client.identity.name;
        if !client.is_admin() && found.record.as_ref().is_some_and(others) {
            return Err(Error::new(&code::SERVER_NO_SUCH, id));
        }
        Ok(found)
    }

    /// The header of this id.
    ///
    /// # Errors
    /// SR-8423 when there is none, or another node's.
    pub fn header(&self, peer: &Peer, id: &str) -> Result<Vec<u8>, Error> {
        check_object_id(id)?;
        self.run(peer, "escrow-get", id, |client| {
            let (record, guard) = self.own_header(client, id)?.there(id)?;
            let mut bytes = Vec::new();
            for number in 0..record.pieces {
                let path = format!("{}{number:05}", pieces_of(id, &record.made));
                let stored = self.store.read(&path)?;
                // Replaced while it was read: what is guarded has changed, and this is done again.
                let piece = stored
                    .map(|stored| self.keys.open(&path, &stored.value))
                    .transpose()?;
                bytes.extend_from_slice(piece.as_deref().map_or(&[], Vec::as_slice));
            }
            if hex(&sha256(&[&bytes])) != record.sha256 && self.is_same(&guard)? {
                return Err(Error::new(
                    &code::SERVER_STORE,
                    format!("pieces of {id} are missing"),
                ));
            }
            let event = client.event("escrow-get", id);
            Ok(Plan {
                value: bytes,
                guards: vec![guard],
                changes: Vec::new(),
                events: vec![event],
            })
        })
    }

    fn is_same(&self, guard: &Guard) -> Result<bool, Error> {
        let stored = self.store.read(&guard.path)?;
        Ok(stored.map_or(0, |stored| stored.revision) == guard.revision)
    }

    /// Removes a header.
    ///
    /// # Errors
    /// SR-8423 when there is none, or another node's.
    pub fn remove_header(&self, peer: &Peer, id: &str) -> Result<(), Error> {
        check_object_id(id)?;
        let made = self.run(peer, "escrow-delete", id, |client| {
            let (record, guard) = self.own_header(client, id)?.there(id)?;
            let (usage, count) = self.counted(client, &record.node, |usage| {
                uncount(usage, Some(record.size));
            })?;
            let unnamed = self.put(&work_path(id, &record.made), &Unnamed { since: 0 })?;
            let changes = vec![Change::Delete { path: path(id) }, unnamed, count];
            let events = vec![client.event("escrow-delete", id)];
            Ok(Plan {
                value: record.made,
                guards: vec![guard, usage],
                changes,
                events,
            })
        })?;
        self.clear(id, &made)
    }

    /// Removes pieces that no record names, unless one does now.
    fn give_up(&self, id: &str, made: &str, work: Guard) -> Result<(), Error> {
        // From here on, who may still be writing them neither writes nor names any more.
        let given_up = self.put(&work.path, &Unnamed { since: 0 })?;
        if self.commit(None, vec![work], vec![given_up], Vec::new())? {
            self.clear(id, made)?;
        }
        Ok(())
    }

    /// Removes pieces that no record will ever name, and the record that says so.
    fn clear(&self, id: &str, made: &str) -> Result<(), Error> {
        let prefix = pieces_of(id, made);
        // One at a time: a piece is large, and its bytes are not wanted.
        while let Some((path, _)) = self.store.list(&prefix, "", 1)?.pop() {
            self.commit(None, Vec::new(), vec![Change::Delete { path }], Vec::new())?;
        }
        let path = work_path(id, made);
        self.commit(None, Vec::new(), vec![Change::Delete { path }], Vec::new())?;
        self.store.scrub()
    }

    /// Removes what servers left that were killed while they wrote or removed a header, or had no store.
    pub(super) fn forget_unnamed(&self) -> Result<(), Error> {
        const PAGE: usize = 500;
        let mut after = String::new();
        loop {
            let page = self.list::<Unnamed>(ESCROW_WORK, &after, PAGE)?;
            for (name, work) in &page {
                let Some((id, made)) = name.split_once('/') else {
                    continue;
                };
                if work.since.saturating_add(WRITING_MAX_S) > now() {
                    continue;
                }
                let found: Found<Unnamed> = self.read(&work_path(id, made))?;
                if found.record.is_some() {
                    self.give_up(id, made, found.guard)?;
                }
            }
            match page.last() {
                Some((name, _)) if page.len() == PAGE => after.clone_from(name),
                _ => return Ok(()),
            }
        }
    }
}

/// Where a header goes.
struct Location {
    owner: String,
    guards: Vec<Guard>,
    count: Change,
}

/// Takes a header of this size, if there was one, out of what is counted.
fn uncount(usage: &mut Usage, size: Option<u64>) {
    if let Some(size) = size {
        usage.headers = usage.headers.saturating_sub(1);
        usage.header_bytes = usage.header_bytes.saturating_sub(size);
    }
}
