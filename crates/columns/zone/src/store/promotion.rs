//! Redo records on their way out: what the store does is collected ring by ring and sealed; the host puts it into its log.
//!
//! Invariants: L1 (a promotion's record says all of its values), L2 (a record names the one that the ring's host inserted before it), L3
//! (its nonce is random and of its content, its key serves few records). Whatever frees a slot or a number for another value waits until its record is in the
//! host's log. Must not: keep an entry in clear outside locked memory.

use std::collections::{BTreeMap, VecDeque};

use strongroom_columns_ring::Fault;
use strongroom_columns_values::Value;
use strongroom_format::columns::manifest::ChainEntry;
use strongroom_format::columns::redo::{
    Entry, Link, PartitionChange, REDO_MAX, RedoHead, redo_layout, redo_link_layout,
};
use strongroom_format::columns::{Fid, Kind};

use super::memory::{Buffer, NoMemory};
use super::{Held, Store, of_crypto};

/// A sealed redo record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What [`Store::inserted`] calls it by.
    pub number: u64,
    /// What the host puts into its log.
    pub bytes: Vec<u8>,
}

/// A value that is to become permanent.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// An ephemeral's value.
    Value(Value<'a>),
    /// A value of the store. One of the target's partition and column stays what it is.
    Stored(Fid),
}

/// One value of a promotion.
#[derive(Clone, Copy)]
pub struct Promotion<'a> {
    /// The value.
    pub source: Source<'a>,
    /// Column of the target (`attnum`).
    pub column: u16,
    /// Kind of that column.
    pub kind: Kind,
}

/// The rings of this incarnation.
#[derive(Default)]
pub(super) struct Rings {
    by_number: BTreeMap<u32, Ring>,
}

struct Ring {
    /// The sealed part of the next record, in clear; empty when there is nothing.
    pending: Buffer,
    follow_up: FollowUp,
    issued: VecDeque<Issued>,
    /// The last record that the host has inserted.
    inserted: (u64, [u8; 16]),
    attached: bool,
}

/// A record that was sealed, and may or may not get into the log.
struct Issued {
    number: u64,
    tag: [u8; 16],
    follow_up: FollowUp,
}

/// What may be done once a record is in the log.
#[derive(Default)]
struct FollowUp {
    /// Slots to give out again: column and FID bits with the next generation.
    freed: Vec<(u16, u64)>,
    /// Partitions whose opening the record says.
    announced: Vec<u16>,
    /// Partitions and columns whose binding it says.
    bound: Vec<(u16, u16)>,
    dropped: Vec<u16>,
}

/// Records of a ring that wait for the host's word; what is older has been given up.
const ISSUED_MAX: usize = 4096;

impl Rings {
    pub(super) fn announces(&mut self, ring: u32, number: u16) {
        if let Some(ring) = self.by_number.get_mut(&ring) {
            ring.follow_up.announced.push(number);
        }
    }

    /// Whether the ring's next record says this already; from now on it does.
    pub(super) fn binds(&mut self, ring: u32, partition: u16, column: u16) -> bool {
        let Some(ring) = self.by_number.get_mut(&ring) else {
            return true;
        };
        let known = ring.follow_up.bound.contains(&(partition, column));
        if !known {
            ring.follow_up.bound.push((partition, column));
        }
        known
    }

    pub(super) fn drops(&mut self, ring: u32, number: u16) {
        if let Some(ring) = self.by_number.get_mut(&ring) {
            ring.follow_up.dropped.push(number);
        }
    }

    pub(super) fn frees(&mut self, ring: u32, column: u16, fid: Fid) {
        if let Some(ring) = self.by_number.get_mut(&ring) {
            ring.follow_up.freed.push((column, fid.bits()));
        }
    }

    /// The ends of the chains.
    pub(super) fn chains(&self, incarnation: [u8; 16]) -> impl Iterator<Item = ChainEntry> + '_ {
        let begun = self
            .by_number
            .iter()
            .filter(|(_, ring)| ring.inserted.0 != 0);
        begun.map(move |(number, ring)| ChainEntry {
            incarnation,
            ring: *number,
            number: ring.inserted.0,
            tag: ring.inserted.1,
        })
    }
}

impl Store {
    /// A number for a new ring. It continues the chain of a ring that has ended, if there is one.
    pub fn attach(&mut self) -> u32 {
        let free = self
            .rings
            .by_number
            .iter_mut()
            .find(|(_, ring)| !ring.attached);
        if let Some((number, ring)) = free {
            ring.attached = true;
            return *number;
        }
        let number = self
            .rings
            .by_number
            .last_key_value()
            .map_or(1, |(last, _)| last + 1);
        let ring = Ring {
            pending: Buffer::new(&self.space.memory),
            follow_up: FollowUp::default(),
            issued: VecDeque::new(),
            inserted: (0, [0; 16]),
            attached: true,
        };
        self.rings.by_number.insert(number, ring);
        number
    }

    /// The ring has ended. What it had not flushed is forgotten: its values are nobody's.
    pub fn detach(&mut self, ring: u32) {
        if let Some(state) = self.rings.by_number.get_mut(&ring) {
            state.attached = false;
            state.pending.clear();
            state.follow_up = FollowUp::default();
            state.issued.clear();
        }
        self.forget_marks(ring);
    }

    /// `FlushLog`: seals what the ring has done since its last record. `None` when that is nothing. The host inserts the record into
    /// its log before anything that refers to its values.
    ///
    /// # Errors
    /// [`Fault::BadRequest`] for a ring that is not attached; [`Fault::OutOfMemory`].
    pub fn flush_log(&mut self, ring: u32) -> Result<Option<Record>, Fault> {
        let found = self
            .rings
            .by_number
            .get_mut(&ring)
            .filter(|found| found.attached);
        let state = found.ok_or(Fault::BadRequest)?;
        if state.pending.len() == 0 {
            return Ok(None);
        }
        let link = Link {
            ring,
            previous: state.inserted.0,
            previous_tag: state.inserted.1,
        };
        let body = state.pending.as_mut_slice();
        let (head_of_body, _) = body
            .split_at_mut_checked(redo_link_layout::SIZE)
            .ok_or(Fault::OutOfMemory)?;
        head_of_body.copy_from_slice(&link.to_bytes());
        let number = self.number + 1;
        let mut head = RedoHead {
            length: u32::try_from(body.len()).map_err(|_| Fault::BadRequest)?,
            incarnation: self.incarnation,
            number,
            tag: [0; 16],
            nonce: self.redo_nonces.of(body).map_err(|_| Fault::OutOfMemory)?,
        };
        if self.redo_key.0 != head.run() {
            let key = self.keys.redo_run(self.incarnation, head.run());
            self.redo_key = (head.run(), key.map_err(|_| Fault::OutOfMemory)?);
        }
        // Raised before it is used: no two records have one number, whatever fails below (L2).
        self.number = number;
        let bound = head.bound(self.keys.object_id(), self.keys.epoch());
        let sealed = self.redo_key.1.seal(&head.nonce, &bound, body);
        head.tag = match sealed {
            Ok(tag) => tag,
            Err(error) => return Err(self.report(of_crypto(error))),
        };
        let mut bytes = Vec::with_capacity(redo_layout::SIZE + body.len());
        bytes.extend_from_slice(&head.to_bytes());
        bytes.extend_from_slice(body);
        state.pending.clear();
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

    /// The host has inserted the record of this number into its log. Records of the ring before it that were not are given up.
    pub fn inserted(&mut self, ring: u32, number: u64) {
        let Some(state) = self.rings.by_number.get_mut(&ring) else {
            return;
        };
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
        let Some(issued) = done else {
            return;
        };
        state.inserted = (issued.number, issued.tag);
        let FollowUp {
            freed,
            announced,
            bound,
            dropped,
        } = issued.follow_up;
        self.bound_for_good(&bound);
        for number in announced {
            if let Some(partition) = self.partition_mut(number) {
                partition.announced = true;
            }
        }
        for number in dropped {
            if let Some(dropped) = self.dropped.get_mut(&number) {
                dropped.known = true;
            }
        }
        for (column, bits) in freed {
            self.give_again(column, bits);
        }
    }

    /// The slot may be given out again, if its partition is still the one that it was freed in.
    fn give_again(&mut self, column: u16, bits: u64) {
        let Some(fid) = Fid::from_bits(bits) else {
            return;
        };
        let Some(partition) = self.partition_mut(fid.partition()) else {
            return;
        };
        let same = partition
            .extent(fid.extent())
            .is_some_and(|extent| extent.own && extent.column == column);
        if let Some(open) = partition.open.get_mut(&column).filter(|_| same) {
            open.again.push(bits);
        }
    }

    /// Promotion: new permanent values in `partition`, and the redo record of them, sealed with whatever else the ring had pending. `fids` gets
    /// one FID for each item; on an error it is empty, and nothing was promoted.
    ///
    /// # Errors
    /// As [`Store::put`] and [`Store::get`]; [`Fault::KindMismatch`] for a stored value of another kind.
    pub fn promote(
        &mut self,
        ring: u32,
        partition: u16,
        items: &[Promotion<'_>],
        fids: &mut Vec<Fid>,
    ) -> Result<Option<Record>, Fault> {
        self.admit_change()?;
        self.make_room()?;
        fids.clear();
        let state = self.rings.by_number.get(&ring).ok_or(Fault::BadRequest)?;
        let follow_up = &state.follow_up;
        let before = (
            state.pending.len(),
            follow_up.announced.len(),
            follow_up.bound.len(),
        );
        let mut made = Vec::new();
        let mut result = Ok(());
        for item in items {
            match self.promote_one(ring, partition, item, &mut made) {
                Ok(fid) => fids.push(fid),
                Err(fault) => {
                    result = Err(fault);
                    break;
                }
            }
        }
        if let Err(fault) = result {
            fids.clear();
            for fid in made {
                self.unput(fid);
            }
            if let Some(ring) = self.rings.by_number.get_mut(&ring) {
                ring.pending.truncate(before.0);
                ring.follow_up.announced.truncate(before.1);
                ring.follow_up.bound.truncate(before.2);
            }
            return Err(fault);
        }
        self.flush_log(ring)
    }

    fn promote_one(
        &mut self,
        ring: u32,
        partition: u16,
        item: &Promotion<'_>,
        made: &mut Vec<Fid>,
    ) -> Result<Fid, Fault> {
        let fid = match item.source {
            Source::Value(value) => {
                self.put_logged(Some(ring), partition, item.column, item.kind, value)?
            }
            Source::Stored(fid) => {
                let held = self.get_in_batch(fid)?;
                if held.kind != item.kind {
                    return Err(Fault::KindMismatch);
                }
                if fid.partition() == partition && held.column == item.column {
                    self.rescue(fid);
                    return Ok(fid);
                }
                self.put_copy(ring, partition, item, fid)?
            }
        };
        made.push(fid);
        Ok(fid)
    }

    /// As [`Store::get`], but evicts nothing: what the batch has brought stays.
    fn get_in_batch(&mut self, fid: Fid) -> Result<Held<'_>, Fault> {
        if self.peek(fid)?.is_none() {
            self.present(
                fid.partition(),
                fid.extent(),
                usize::from(fid.index() >> 10),
            )?;
        }
        self.peek(fid)?.ok_or(Fault::OutOfMemory)
    }

    fn put_copy(
        &mut self,
        ring: u32,
        partition: u16,
        item: &Promotion<'_>,
        fid: Fid,
    ) -> Result<Fid, Fault> {
        let mut copy = Buffer::new(&self.space.memory);
        let word = match self.get_in_batch(fid)?.value {
            Value::Word(word) => Some(word),
            Value::Bytes(bytes) => {
                copy.extend(bytes).map_err(|_| Fault::OutOfMemory)?;
                None
            }
        };
        let value = word.map_or(Value::Bytes(copy.as_slice()), Value::Word);
        self.put_logged(Some(ring), partition, item.column, item.kind, value)
    }

    pub(super) fn log_put(
        &mut self,
        ring: u32,
        fid: Fid,
        column: u16,
        kind: Kind,
        value: Value<'_>,
    ) -> Result<(), Fault> {
        let number = fid.partition();
        let partition = self.partition(number).ok_or(Fault::PartitionUnknown)?;
        if !(partition.announced && partition.durable) {
            // Another ring's record may get into the log before that of the ring that opened the partition.
            let change = PartitionChange {
                partition: number,
                relation: partition.relation,
                first_extent: partition.first_extent,
                stamp: partition.stamp,
            };
            let state = self.rings.by_number.get(&ring).ok_or(Fault::BadRequest)?;
            if !state.follow_up.announced.contains(&number) {
                self.log_entry(ring, &Entry::Opened(change))?;
                self.rings.announces(ring, number);
            }
        }
        self.log_binding(ring, number, column)?;
        let entry = match value {
            Value::Word(word) => Entry::Word {
                fid,
                column,
                kind,
                word: word.to_le_bytes(),
            },
            Value::Bytes(bytes) => Entry::Bytes {
                fid,
                column,
                kind,
                bytes,
            },
        };
        self.log_entry(ring, &entry)
    }

    pub(super) fn log_entry(&mut self, ring: u32, entry: &Entry<'_>) -> Result<(), Fault> {
        let found = self
            .rings
            .by_number
            .get_mut(&ring)
            .filter(|found| found.attached);
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
}
