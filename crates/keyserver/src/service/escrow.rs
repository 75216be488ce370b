//! Header backups that nodes keep here: opaque bytes, sealed by the client before they come.
//!
//! Invariant: a header that is there is whole: its pieces are written first, under a random name, and the record that names them last.
//!
//! Must not: look into the bytes; give them to a node that did not put them here.

use std::sync::PoisonError;

use serde::Serialize;
use strongroom_crypto::{random16, sha256};
use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_keyring::Error;

use super::{Client, Peer, Plan, Service, check_object_id};
use crate::now;
use crate::records::{ESCROW, ESCROW_DATA, Escrow, Found, Role};
use crate::store::{Change, Guard};

/// Longest header.
pub const HEADER_MAX: usize = 32 * 1024 * 1024;
/// Length of a piece: what any store takes.
const PIECE: usize = 512 * 1024;

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

fn path(id: &str) -> String {
    format!("{ESCROW}{id}")
}

fn pieces_of(id: &str, made: &str) -> String {
    format!("{ESCROW_DATA}{id}/{made}/")
}

impl Service {
    /// Keeps a header, in the place of the one before it.
    ///
    /// # Errors
    /// SR-8423 when another node keeps one of that id; SR-8429; SR-8430.
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
        // Who may not put it here does not get to write pieces.
        self.run(peer, "escrow-put", id, |client| {
            self.own_header(client, id)?;
            Ok(Plan::read(()))
        })?;
        let _turn = self.escrow.lock().unwrap_or_else(PoisonError::into_inner);
        let made = hex(&random16()?);
        let mut pieces = 0_u32;
        for piece in bytes.chunks(PIECE) {
            let path = format!("{}{pieces:05}", pieces_of(id, &made));
            let value = self.keys.seal(&path, piece)?;
            self.commit(
                None,
                Vec::new(),
                vec![Change::Put { path, value }],
                Vec::new(),
            )?;
            pieces = pieces.saturating_add(1);
        }
        let kept = self.run(peer, "escrow-put", id, |client| {
            let found = self.own_header(client, id)?;
            let record = Escrow {
                node: client.identity.name.clone(),
                size: bytes.len() as u64,
                sha256: hex(&sha256(&[bytes])),
                made: made.clone(),
                pieces,
                stored: now(),
            };
            let changes = vec![self.put(&path(id), &record)?];
            let mut event = client.event("escrow-put", id);
            event.detail.clone_from(&record.sha256);
            let value = Kept {
                size: record.size,
                sha256: record.sha256,
                stored: record.stored,
            };
            Ok(Plan {
                value,
                guards: vec![found.guard],
                changes,
                events: vec![event],
            })
        })?;
        self.forget_pieces(id, Some(&made))?;
        Ok(kept)
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
        self.run(peer, "escrow-delete", id, |client| {
            let (_, guard) = self.own_header(client, id)?.there(id)?;
            let changes = vec![Change::Delete { path: path(id) }];
            let events = vec![client.event("escrow-delete", id)];
            Ok(Plan {
                value: (),
                guards: vec![guard],
                changes,
                events,
            })
        })?;
        self.forget_pieces(id, None)
    }

    /// Removes pieces that no record names: replaced ones, and those of a server that was killed while it wrote.
    fn forget_pieces(&self, id: &str, but: Option<&str>) -> Result<(), Error> {
        let prefix = format!("{ESCROW_DATA}{id}/");
        let kept = but.map(|made| pieces_of(id, made));
        let mut after = String::new();
        // One at a time: a piece is large, and its bytes are not wanted.
        while let Some((path, _)) = self.store.list(&prefix, &after, 1)?.pop() {
            after.clone_from(&path);
            if kept.as_ref().is_some_and(|kept| path.starts_with(kept)) {
                continue;
            }
            self.commit(None, Vec::new(), vec![Change::Delete { path }], Vec::new())?;
        }
        self.store.scrub()
    }
}
