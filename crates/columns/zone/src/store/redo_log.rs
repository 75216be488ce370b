//! Redo records on their way out: the entries of each ring are collected and sealed, and the host
//! puts the records into its log.
//!
//! Invariants: L2 (a record names the record that the ring's host inserted before it, since its
//! shared memory was made), L3 (its nonce is random and of its content, its key serves few
//! records). Whatever frees a slot or a number for another value waits until its record is in the
//! host's log. Must not: keep an entry in clear outside locked memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use strongroom_columns_ring::Fault;
use strongroom_crypto::{CryptoError, GcmKey, random16};
use strongroom_format::columns::Fid;
use strongroom_format::columns::manifest::ChainEntry;
use strongroom_format::columns::redo::{
    ColumnBinding, Entry, Link, PartitionChange, REDO_MAX, REDO_VERSION, RedoHead, redo_layout,
    redo_link_layout,
};

use super::faults::{Failure, crypto_error};
use super::memory::{Buffer, Memory, NoMemory};
use super::seal::{Keys, Nonces};

/// A sealed redo record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The number by which the host confirms that it has inserted the record.
    pub number: u64,
    /// The bytes that the host puts into its log.
    pub bytes: Vec<u8>,
}

/// The redo records of this incarnation.
pub(super) struct RedoLog {
    /// The random number of this start of the zone.
    incarnation: [u8; 16],
    /// Number and key of the current run of records.
    key: (u64, GcmKey),
    nonces: Nonces,
    /// Number of the last record.
    last_number: u64,
    /// Number of the last record that was sealed before the host's shared memory was made anew. The
    /// host's log may have lost this record and every earlier one.
    last_of_earlier_memory: u64,
    rings: BTreeMap<u32, Ring>,
}

struct Ring {
    /// The sealed part of the next record, in clear; empty when there are no entries.
    pending: Buffer,
    /// The bindings that are in the next record.
    bound: Vec<ColumnBinding>,
    follow_up: FollowUp,
    issued: VecDeque<Issued>,
    /// Number and tag of the last record that the host has inserted.
    inserted: (u64, [u8; 16]),
    /// Number and tag of the record that the next one names: the last one that was inserted since
    /// the host's shared memory was made; zero if there is none.
    previous: (u64, [u8; 16]),
    attached: bool,
}

impl Ring {
    /// Forgets the entries of the next record, and all notes of them.
    fn forget_next(&mut self) {
        self.pending.clear();
        self.bound.clear();
        self.follow_up = FollowUp::default();
    }
}

/// A record that was sealed, and may or may not get into the log.
struct Issued {
    number: u64,
    tag: [u8; 16],
    follow_up: FollowUp,
}

/// The actions that are allowed once a record is in the log.
#[derive(Default)]
pub(super) struct FollowUp {
    /// Slots to give out again: column and FID bits with the next generation.
    pub(super) freed: Vec<(u16, u64)>,
    /// Partitions whose opening is in the record, with the stamp that it has there.
    pub(super) opened: Vec<(u16, u64)>,
    /// Partitions whose drop is in the record.
    pub(super) dropped: Vec<u16>,
}

/// How much a ring's next record had at some point.
#[derive(Clone, Copy)]
pub(super) struct Savepoint {
    pending: usize,
    opened: usize,
    bound: usize,
}

/// The most records of a ring that wait for the host's confirmation; older ones are given up.
const ISSUED_MAX: usize = 4096;

impl RedoLog {
    /// The log of a new incarnation, whose number is drawn at random, without rings. Fails without
    /// random numbers, or locked memory for the key.
    pub(super) fn new(keys: &Keys) -> Result<Self, CryptoError> {
        let incarnation = random16()?;
        Ok(Self {
            incarnation,
            key: (0, keys.redo_key(incarnation, 0)?),
            nonces: keys.redo_nonces(incarnation)?,
            last_number: 0,
            last_of_earlier_memory: 0,
            rings: BTreeMap::new(),
        })
    }

    /// The random number of this start of the zone.
    pub(super) const fn incarnation(&self) -> [u8; 16] {
        self.incarnation
    }

    /// The number of a new ring. It continues the chain of a ring that has ended, if there is one.
    pub(super) fn attach(&mut self, memory: &Arc<Memory>) -> u32 {
        let free = self.rings.iter_mut().find(|(_, ring)| !ring.attached);
        if let Some((number, ring)) = free {
            ring.attached = true;
            return *number;
        }
        let last = self.rings.last_key_value();
        let number = last.map_or(1, |(last, _)| last + 1);
        let ring = Ring {
            pending: Buffer::new(memory),
            bound: Vec::new(),
            follow_up: FollowUp::default(),
            issued: VecDeque::new(),
            inserted: (0, [0; 16]),
            previous: (0, [0; 16]),
            attached: true,
        };
        self.rings.insert(number, ring);
        number
    }

    /// Ends a ring: forgets its entries, and its records that the host has not confirmed.
    pub(super) fn detach(&mut self, ring: u32) {
        if let Some(state) = self.rings.get_mut(&ring) {
            state.attached = false;
            state.forget_next();
            state.issued.clear();
        }
    }

    /// Adds an entry to the ring's next record, in memory. `Fault::BadRequest` for a ring that is
    /// not attached or a record that would become too long; `Fault::OutOfMemory` if no memory is
    /// left. Then nothing is added.
    pub(super) fn append(&mut self, ring: u32, entry: &Entry<'_>) -> Result<(), Fault> {
        let found = self.rings.get_mut(&ring).filter(|found| found.attached);
        let pending = &mut found.ok_or(Fault::BadRequest)?.pending;
        let before = pending.len();
        let mut done = Ok(());
        if before == 0 {
            done = pending.lengthen(redo_link_layout::SIZE);
        }
        if pending.len() + entry.encoded_len() > REDO_MAX {
            return Err(Fault::BadRequest);
        }
        entry.write(&mut |piece| {
            if done.is_ok() {
                done = pending.extend(piece);
            }
        });
        done.map_err(|NoMemory| {
            pending.truncate(before);
            Fault::OutOfMemory
        })
    }

    /// Adds the opening of a partition to the ring's next record, or a later change of its relation
    /// as one, and notes it for the host's confirmation. Nothing if the record has it already.
    /// Fails as [`Self::append`].
    pub(super) fn append_opening(
        &mut self,
        ring: u32,
        opening: PartitionChange,
    ) -> Result<(), Fault> {
        let note = (opening.partition, opening.stamp);
        let found = self.rings.get(&ring);
        if found.is_some_and(|found| found.follow_up.opened.contains(&note)) {
            return Ok(());
        }
        self.append(ring, &Entry::Opened(opening))?;
        if let Some(found) = self.rings.get_mut(&ring) {
            found.follow_up.opened.push(note);
        }
        Ok(())
    }

    /// Adds the binding of a column to the ring's next record. Nothing if the record has just this
    /// one already: one of another partition of that number, or of another key, is another one.
    /// Fails as [`Self::append`].
    pub(super) fn append_binding(
        &mut self,
        ring: u32,
        binding: ColumnBinding,
    ) -> Result<(), Fault> {
        let found = self.rings.get(&ring);
        // The column's last one is what its next values are of.
        let last = found.and_then(|found| {
            let of_column = |one: &&ColumnBinding| {
                (one.partition, one.column) == (binding.partition, binding.column)
            };
            found.bound.iter().rev().find(of_column)
        });
        if last == Some(&binding) {
            return Ok(());
        }
        self.append(ring, &Entry::Bound(binding))?;
        if let Some(found) = self.rings.get_mut(&ring) {
            found.bound.push(binding);
        }
        Ok(())
    }

    /// Notes that the ring's next record has the drop of a partition.
    pub(super) fn note_drop(&mut self, ring: u32, partition: u16) {
        if let Some(ring) = self.rings.get_mut(&ring) {
            ring.follow_up.dropped.push(partition);
        }
    }

    /// Notes that the ring's next record frees this slot, which may be given out again when the
    /// host has confirmed the record.
    pub(super) fn note_freed(&mut self, ring: u32, column: u16, fid: Fid) {
        if let Some(ring) = self.rings.get_mut(&ring) {
            ring.follow_up.freed.push((column, fid.bits()));
        }
    }

    /// How much the ring's next record has now, for [`RedoLog::roll_back`]. `Fault::BadRequest` for
    /// an unknown ring.
    pub(super) fn savepoint(&self, ring: u32) -> Result<Savepoint, Fault> {
        let ring = self.rings.get(&ring).ok_or(Fault::BadRequest)?;
        Ok(Savepoint {
            pending: ring.pending.len(),
            opened: ring.follow_up.opened.len(),
            bound: ring.bound.len(),
        })
    }

    /// Removes all entries from the ring's next record that came after a savepoint, and the notes
    /// of openings and bindings.
    pub(super) fn roll_back(&mut self, ring: u32, to: Savepoint) {
        if let Some(ring) = self.rings.get_mut(&ring) {
            ring.pending.truncate(to.pending);
            ring.follow_up.opened.truncate(to.opened);
            ring.bound.truncate(to.bound);
        }
    }

    /// Seals the ring's next record, which names the last one that the host has confirmed since its
    /// shared memory was made, and returns it. `None` if it has no entries. Keeps its number and
    /// follow-up actions until the host confirms it. `Fault::BadRequest` for a ring that is not
    /// attached; `Fault::OutOfMemory` if there is no memory, key or nonce for it.
    pub(super) fn seal(&mut self, keys: &Keys, ring: u32) -> Result<Option<Record>, Failure> {
        let found = self.rings.get_mut(&ring).filter(|found| found.attached);
        let state = found.ok_or(Fault::BadRequest)?;
        if state.pending.len() == 0 {
            return Ok(None);
        }
        let link = Link {
            ring,
            previous: state.previous.0,
            previous_tag: state.previous.1,
        };
        let body = state.pending.as_mut_slice();
        let (head_of_body, _) = body
            .split_at_mut_checked(redo_link_layout::SIZE)
            .ok_or(Fault::OutOfMemory)?;
        head_of_body.copy_from_slice(&link.to_bytes());
        let number = self.last_number + 1;
        let mut head = RedoHead {
            version: REDO_VERSION,
            length: u32::try_from(body.len()).map_err(|_| Fault::BadRequest)?,
            incarnation: self.incarnation,
            number,
            tag: [0; 16],
            nonce: self.nonces.draw(body).map_err(|_| Fault::OutOfMemory)?,
        };
        if self.key.0 != head.key_number() {
            let key = keys.redo_key(self.incarnation, head.key_number());
            self.key = (head.key_number(), key.map_err(|_| Fault::OutOfMemory)?);
        }
        // Raised before it is used: no two records have one number, whatever fails below (L2).
        self.last_number = number;
        let bound = head.associated_data(keys.object_id(), keys.epoch());
        head.tag = match self.key.1.seal(&head.nonce, &bound, body) {
            Ok(tag) => tag,
            Err(error) => {
                // What is left in the buffer may be half sealed: the entries are lost, and nothing
                // may count on them. Later records say again what they need.
                state.forget_next();
                return Err(crypto_error(error).into());
            }
        };
        let mut bytes = Vec::with_capacity(redo_layout::SIZE + body.len());
        bytes.extend_from_slice(&head.to_bytes());
        bytes.extend_from_slice(body);
        state.pending.clear();
        state.bound.clear();
        let follow_up = std::mem::take(&mut state.follow_up);
        state.issued.push_back(Issued {
            number,
            tag: head.tag,
            follow_up,
        });
        if state.issued.len() > ISSUED_MAX {
            state.issued.pop_front();
        }
        Ok(Some(Record { number, bytes }))
    }

    /// Notes that the host has inserted the record of this number; returns the actions that are
    /// allowed now. `None` if the ring has no such record waiting. Earlier records of the ring that
    /// were not inserted are given up.
    pub(super) fn confirm(&mut self, ring: u32, number: u64) -> Option<FollowUp> {
        let state = self.rings.get_mut(&ring)?;
        let mut done = None;
        while state
            .issued
            .front()
            .is_some_and(|issued| issued.number <= number)
        {
            done = state
                .issued
                .pop_front()
                .filter(|issued| issued.number == number);
        }
        let mut issued = done?;
        state.inserted = (issued.number, issued.tag);
        if issued.number > self.last_of_earlier_memory {
            state.previous = state.inserted;
        } else {
            // Its backend has ended with its server, and the log may have lost the record.
            issued.follow_up.opened.clear();
        }
        Some(issued.follow_up)
    }

    /// Begins the links of all rings anew: the next record of each ring names none before it. The
    /// ends of the chains stay what they are, for manifests. To be called when the host's shared
    /// memory was made anew, after a checkpoint: the log may have lost records that were confirmed,
    /// and a reader of the log that has no manifest of this store would miss them (L2).
    pub(super) fn begin_links_anew(&mut self) {
        self.last_of_earlier_memory = self.last_number;
        for ring in self.rings.values_mut() {
            ring.previous = (0, [0; 16]);
        }
    }

    /// The last record of each ring of this incarnation that has one, for a manifest: the last that
    /// was sealed, whether or not the host has confirmed it. The manifest holds what it says, and
    /// the host may have put it into its log before the manifest's position, without having said so
    /// yet: then the ring's next record names it, and it is not replayed (L2).
    pub(super) fn chains(&self) -> impl Iterator<Item = ChainEntry> + '_ {
        let ends = self.rings.iter().map(|(ring, state)| {
            let issued = state.issued.back();
            let end = issued.map_or(state.inserted, |issued| (issued.number, issued.tag));
            (*ring, end)
        });
        let begun = ends.filter(|(_, (number, _))| *number != 0);
        begun.map(|(ring, (number, tag))| ChainEntry {
            incarnation: self.incarnation,
            ring,
            number,
            tag,
        })
    }
}
