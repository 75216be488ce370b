//! Escrow: backups of headers that nodes keep on the server. The bytes are opaque, sealed by the
//! client before it sends them.
//!
//! A header is split into pieces, which a record names. The record is written after the pieces.
//!
//! Invariants:
//! - C1: A header in escrow is complete, even if several servers write and remove it at the same
//!   time. Its pieces have a random name of their own, are written before the record that names
//!   them, and are removed after the last commit that could have named them.
//! - C2: A header replaces only the header that was present when its writing began. A slow writer
//!   never brings back an old header.
//! - C3: For pieces that no escrow record names there is a record that says so, so that they are
//!   found after a server was killed.
//!
//! Must not: interpret the bytes; deliver them to a node that did not store them.

use serde::Serialize;
use strongroom_crypto::{random16, sha256};
use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_keyring::Error;

use super::checks::check_object_id;
use super::identify::Client;
use super::operation::Plan;
use super::peer::Peer;
use super::state::Service;
use crate::now;
use crate::paths::{
    ESCROW_WORK, escrow_path, escrow_pieces_prefix, escrow_work_path, grant_path, object_path,
};
use crate::records::{Escrow, Grant, Guarded, Object, Role, UnnamedPieces, Usage};
use crate::store::{Change, Guard};

/// The longest header, in bytes.
pub const HEADER_MAX: usize = 32 * 1024 * 1024;
/// The length of a piece, in bytes: less than the longest value of a store.
const PIECE_LEN: usize = 512 * 1024;
/// After so many seconds, a header that is still being written is given up.
const WRITING_MAX_S: u64 = 3600;

/// A header in escrow, without its bytes.
#[derive(Clone, Debug, Serialize)]
pub struct StoredHeader {
    /// Length in bytes.
    pub size: u64,
    /// SHA-256 of the bytes.
    pub sha256: String,
    /// When it was stored, in seconds since the Unix epoch.
    pub stored: u64,
}

/// The result of writing the record that names the pieces.
enum Naming {
    /// The record names them, and no longer the pieces with the name in `replaced`.
    Named { replaced: Option<String> },
    /// The same header is in escrow already: the client also sent the request to another server.
    AlreadyStored,
}

/// A header whose pieces are being written, and which no record names yet.
struct PendingHeader<'a> {
    id: &'a str,
    /// The random name of its pieces.
    made: String,
    size: u64,
    sha256: String,
    pieces: u32,
    /// Guard on the header that was in escrow when the writing began (C2).
    before: Guard,
    /// Guard on the record that says that no record names these pieces (C3).
    work: Guard,
}

/// Describes a header in escrow by its record.
fn stored_header(record: &Escrow) -> StoredHeader {
    StoredHeader {
        size: record.size,
        sha256: record.sha256.clone(),
        stored: record.stored,
    }
}

impl Service {
    /// Stores a header of at most 32 MiB, in place of the former one, in pieces, and counts it for
    /// the node that owns it. The audit log gets a row. Pieces that are no longer named are
    /// removed, now or by the next sweep.
    ///
    /// # Errors
    /// SR-8422 for a viewer; SR-8423 when another node stored a header of that id, and for a node
    /// that neither reported the object nor is granted its key; SR-8429 for an invalid id or no
    /// bytes; SR-8430 for more than 32 MiB; SR-8442 when another header was stored or removed in
    /// the meantime, or writing took over an hour; SR-8443 above a quota; as for every request
    /// SR-8420 without a certificate, SR-8421 for one that is not enrolled, SR-8435 when the store
    /// fails.
    pub fn store_header(&self, peer: &Peer, id: &str, bytes: &[u8]) -> Result<StoredHeader, Error> {
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
        // Before any piece is written, the client must be allowed to store the header.
        let before = self.run(peer, "escrow-put", id, |client| {
            let found = self.read_own_header(client, id)?;
            self.plan_storage(client, id, &found, size)?;
            Ok(Plan::read(found.guard))
        })?;
        let made = hex(&random16()?);
        let work = self.begin_writing(id, &made)?;
        let pending = PendingHeader {
            id,
            made,
            size,
            sha256: hex(&sha256(&[bytes])),
            pieces: u32::try_from(bytes.len().div_ceil(PIECE_LEN)).unwrap_or(u32::MAX),
            before,
            work,
        };
        let named = self
            .write_pieces(&pending, bytes)
            .and_then(|()| self.name_pieces(peer, &pending));
        match named {
            // Pieces that cannot be removed now are removed by the next sweep.
            Ok((stored, Naming::Named { replaced })) => {
                if let Some(replaced) = replaced {
                    drop(self.remove_pieces(id, &replaced));
                }
                Ok(stored)
            }
            Ok((stored, Naming::AlreadyStored)) => {
                drop(self.give_up(id, &pending.made, pending.work));
                Ok(stored)
            }
            Err(error) => {
                drop(self.give_up(id, &pending.made, pending.work));
                Err(error)
            }
        }
    }

    /// Records that pieces of this name will exist, which no escrow record names (C3). Returns the
    /// guard on that record. Errors are those of the store, such as SR-8435 when it does not
    /// answer.
    fn begin_writing(&self, id: &str, made: &str) -> Result<Guard, Error> {
        let path = escrow_work_path(id, made);
        let changes = vec![self.put(&path, &UnnamedPieces { since: now() })?];
        self.commit(Vec::new(), changes, Vec::new())?;
        Ok(self.read::<UnnamedPieces>(&path)?.require(id)?.1)
    }

    /// Seals the bytes in pieces and writes each in a commit of its own. SR-8442 when the header
    /// was given up in the meantime.
    fn write_pieces(&self, pending: &PendingHeader<'_>, bytes: &[u8]) -> Result<(), Error> {
        let prefix = escrow_pieces_prefix(pending.id, &pending.made);
        for (piece, number) in bytes.chunks(PIECE_LEN).zip(0_u32..) {
            let path = format!("{prefix}{number:05}");
            let value = self.keys.seal(&path, piece)?;
            let guards = vec![pending.work.clone()];
            if !self.commit(guards, vec![Change::Put { path, value }], Vec::new())? {
                return Err(Error::new(&code::SERVER_BUSY, "it took too long"));
            }
        }
        Ok(())
    }

    /// Writes the record that names the pieces, with the new counts and a row of the audit log. If
    /// the header in escrow has changed since `pending.before`, writes nothing and returns
    /// [`Naming::AlreadyStored`] if it has the same bytes. SR-8442 if it has others; otherwise
    /// errors as [`Service::store_header`].
    fn name_pieces(
        &self,
        peer: &Peer,
        pending: &PendingHeader<'_>,
    ) -> Result<(StoredHeader, Naming), Error> {
        let id = pending.id;
        self.run(peer, "escrow-put", id, |client| {
            let found = self.read_own_header(client, id)?;
            if found.guard != pending.before {
                let same = |record: &&Escrow| record.sha256 == pending.sha256;
                return match found.record.as_ref().filter(same) {
                    Some(record) => Ok(Plan::read((stored_header(record), Naming::AlreadyStored))),
                    None => Err(Error::new(&code::SERVER_BUSY, id)),
                };
            }
            let storage = self.plan_storage(client, id, &found, pending.size)?;
            let record = Escrow {
                node: storage.owner,
                size: pending.size,
                sha256: pending.sha256.clone(),
                made: pending.made.clone(),
                pieces: pending.pieces,
                stored: now(),
            };
            let mut changes = vec![
                self.put(&escrow_path(id), &record)?,
                Change::Delete {
                    path: pending.work.path.clone(),
                },
                storage.usage,
            ];
            let replaced = found.record.map(|before| before.made);
            if let Some(made) = &replaced {
                changes.push(self.put(&escrow_work_path(id, made), &UnnamedPieces { since: 0 })?);
            }
            let mut guards = vec![found.guard, pending.work.clone()];
            guards.extend(storage.guards);
            let mut event = client.event("escrow-put", id);
            event.detail.clone_from(&record.sha256);
            Ok(Plan {
                value: (stored_header(&record), Naming::Named { replaced }),
                guards,
                changes,
                events: vec![event],
            })
        })
    }

    /// Decides who owns a header and how it is counted, and writes nothing. A node may store a new
    /// header only if it reported the object or is granted the object's key, so that no node can
    /// occupy the id of another node's object. SR-8423 if it may not; SR-8443 above a quota.
    fn plan_storage(
        &self,
        client: &Client,
        id: &str,
        found: &Guarded<Escrow>,
        size: u64,
    ) -> Result<Storage, Error> {
        let mut guards = Vec::new();
        let (owner, before) = match &found.record {
            Some(record) => (record.node.clone(), Some(record.size)),
            None => {
                let (owner, report_guards) = self.owner_of_new(client, id)?;
                guards.extend(report_guards);
                (owner, None)
            }
        };
        let (guard, usage_change) = self.update_usage(client, &owner, |usage| {
            subtract_header(usage, before);
            usage.headers = usage.headers.saturating_add(1);
            usage.header_bytes = usage.header_bytes.saturating_add(size);
        })?;
        guards.push(guard);
        Ok(Storage {
            owner,
            guards,
            usage: usage_change,
        })
    }

    /// Returns the node that will own a header that is not in escrow yet, and the guards on what
    /// decided it. SR-8423 for a node that neither reported the object nor is granted its key.
    fn owner_of_new(&self, client: &Client, id: &str) -> Result<(String, Vec<Guard>), Error> {
        let name = &client.identity.name;
        let object: Guarded<Object> = self.read(&object_path(id))?;
        let mut guards = vec![object.guard];
        if client.is_admin() {
            // An administrator stores a header on behalf of the node that reported the object.
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
            let grant: Guarded<Grant> = self.read(&grant_path(name, &object.report.key_id))?;
            grant.record.ok_or_else(refused)?;
            guards.push(grant.guard);
        }
        Ok((name.clone(), guards))
    }

    /// Reads the escrow record of this id, which may be missing. An administrator can read all of
    /// them. SR-8423 when another node owns it; SR-8422 for a viewer.
    fn read_own_header(&self, client: &Client, id: &str) -> Result<Guarded<Escrow>, Error> {
        client.must_be(&[Role::Admin, Role::Node])?;
        let found: Guarded<Escrow> = self.read(&escrow_path(id))?;
        let others = |record: &Escrow| record.node != client.identity.name;
        if !client.is_admin() && found.record.as_ref().is_some_and(others) {
            return Err(Error::new(&code::SERVER_NO_SUCH, id));
        }
        Ok(found)
    }

    /// Returns the bytes of the header of this id, verified by their SHA-256. The audit log gets a
    /// row.
    ///
    /// # Errors
    /// SR-8422 for a viewer; SR-8423 when there is none, or another node owns it; SR-8429 for an
    /// invalid id; SR-8435 when pieces are missing or damaged; as for every request SR-8420 without
    /// a certificate, SR-8421 for one that is not enrolled, SR-8442 when others keep changing the
    /// record.
    pub fn header(&self, peer: &Peer, id: &str) -> Result<Vec<u8>, Error> {
        check_object_id(id)?;
        self.run(peer, "escrow-get", id, |client| {
            let (record, guard) = self.read_own_header(client, id)?.require(id)?;
            let mut bytes = Vec::new();
            for number in 0..record.pieces {
                let path = format!("{}{number:05}", escrow_pieces_prefix(id, &record.made));
                let stored = self.store.read(&path)?;
                // A piece can be missing when the header is being replaced. The guard then fails,
                // and the header is read again.
                let piece = stored
                    .map(|stored| self.keys.open(&path, &stored.value))
                    .transpose()?;
                bytes.extend_from_slice(piece.as_deref().map_or(&[], Vec::as_slice));
            }
            if hex(&sha256(&[&bytes])) != record.sha256 && self.is_unchanged(&guard)? {
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

    /// Whether the record that is guarded still has the revision that was read. Errors are those of
    /// the store, such as SR-8435 when it does not answer.
    fn is_unchanged(&self, guard: &Guard) -> Result<bool, Error> {
        let stored = self.store.read(&guard.path)?;
        Ok(stored.map_or(0, |stored| stored.revision) == guard.revision)
    }

    /// Removes the header of this id and no longer counts it, and then removes its pieces. The
    /// audit log gets a row.
    ///
    /// # Errors
    /// SR-8422 for a viewer; SR-8423 when there is none, or another node owns it; SR-8429 for an
    /// invalid id; as for every request SR-8420 without a certificate, SR-8421 for one that is not
    /// enrolled, SR-8435 when the store fails, SR-8442 when others keep changing the record.
    pub fn remove_header(&self, peer: &Peer, id: &str) -> Result<(), Error> {
        check_object_id(id)?;
        let made = self.run(peer, "escrow-delete", id, |client| {
            let (record, guard) = self.read_own_header(client, id)?.require(id)?;
            let (usage, count) = self.update_usage(client, &record.node, |usage| {
                subtract_header(usage, Some(record.size));
            })?;
            let unnamed = self.put(
                &escrow_work_path(id, &record.made),
                &UnnamedPieces { since: 0 },
            )?;
            let changes = vec![
                Change::Delete {
                    path: escrow_path(id),
                },
                unnamed,
                count,
            ];
            let events = vec![client.event("escrow-delete", id)];
            Ok(Plan {
                value: record.made,
                guards: vec![guard, usage],
                changes,
                events,
            })
        })?;
        self.remove_pieces(id, &made)
    }

    /// Removes pieces that no escrow record names, unless `work`, the guard on the record that says
    /// so, no longer holds: then a record names them, or they are gone. Errors are those of the
    /// store, such as SR-8435 when it does not answer.
    fn give_up(&self, id: &str, made: &str, work: Guard) -> Result<(), Error> {
        // After this commit, a server that is still writing the header can neither write nor name
        // pieces.
        let given_up = self.put(&work.path, &UnnamedPieces { since: 0 })?;
        if self.commit(vec![work], vec![given_up], Vec::new())? {
            self.remove_pieces(id, made)?;
        }
        Ok(())
    }

    /// Removes pieces that no escrow record will ever name, then the record that says so, and has
    /// the store erase them. Errors are those of the store, such as SR-8435 when it does not
    /// answer.
    fn remove_pieces(&self, id: &str, made: &str) -> Result<(), Error> {
        let prefix = escrow_pieces_prefix(id, made);
        // One at a time, because listing also reads the bytes, and pieces are large.
        while let Some((path, _)) = self.store.list(&prefix, "", 1)?.pop() {
            self.commit(Vec::new(), vec![Change::Delete { path }], Vec::new())?;
        }
        let path = escrow_work_path(id, made);
        self.commit(Vec::new(), vec![Change::Delete { path }], Vec::new())?;
        self.store.scrub()
    }

    /// Removes the pieces that remain because a server was killed, or lost its store, while it
    /// wrote or removed a header. Pieces whose writing began within the last hour stay. Errors are
    /// those of the store, such as SR-8435 when it does not answer.
    pub(super) fn remove_unnamed_pieces(&self) -> Result<(), Error> {
        const PAGE: usize = 500;
        let mut after = String::new();
        loop {
            let page = self.list::<UnnamedPieces>(ESCROW_WORK, &after, PAGE)?;
            for (name, work) in &page {
                let Some((id, made)) = name.split_once('/') else {
                    continue;
                };
                if work.since.saturating_add(WRITING_MAX_S) > now() {
                    continue;
                }
                let found: Guarded<UnnamedPieces> = self.read(&escrow_work_path(id, made))?;
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

/// Where a header is counted, and which records decided about it.
struct Storage {
    owner: String,
    guards: Vec<Guard>,
    usage: Change,
}

/// Subtracts a header of this size, if there is one, from the counts.
fn subtract_header(usage: &mut Usage, size: Option<u64>) {
    if let Some(size) = size {
        usage.headers = usage.headers.saturating_sub(1);
        usage.header_bytes = usage.header_bytes.saturating_sub(size);
    }
}
