//! The file beside a database whose key is being replaced: the plan, and the old bytes of the units
//! that are being overwritten.
//!
//! Invariants: D7, a unit is overwritten only after its old bytes are durable here. D8, an old unit
//! is restored only where a unit opens under neither key, and only if the copy's head names it for
//! that position and it opens itself.
//!
//! Must not: hold a key, or decrypted bytes.

use std::io;

use strongroom_crypto::sha256;
use strongroom_format::code;
use strongroom_format::duckdb::{
    DUCKDB_UNDO_AT, DUCKDB_UNDO_SLOTS_AT, DUCKDB_UNIT_CLEAR, RekeyPlan, UndoHead, UndoKind,
    rekey_plan_layout, rekey_undo_layout,
};
use strongroom_format::layout::is_zero;
use strongroom_keyring::Error;

use crate::disk::{Disk, RekeyStorage};
use crate::seal::Sealer;
use crate::units::{Units, io_error};

/// The file and its plan.
pub(crate) struct Undo {
    disk: Box<dyn Disk>,
    pub(crate) plan: RekeyPlan,
}

impl Undo {
    /// Creates the rekey's file with this plan, whose digest is computed here, durably, in place of
    /// an older file. SR-5001 when the system reports an error.
    pub(crate) fn create(site: &dyn RekeyStorage, plan: RekeyPlan) -> Result<Self, Error> {
        let plan = RekeyPlan {
            digest: digest_of(&plan),
            ..plan
        };
        let write = || -> io::Result<Box<dyn Disk>> {
            let disk = site.create_undo()?;
            disk.write_at(&plan.to_bytes(), 0)?;
            disk.sync()?;
            Ok(disk)
        };
        let disk = write().map_err(io_error("the rekey's file"))?;
        Ok(Self { disk, plan })
    }

    /// Opens the file of an unfinished rekey. `None` when there is no file. SR-2212 when its plan
    /// is not whole; SR-5001 when the system reports an error.
    pub(crate) fn open(site: &dyn RekeyStorage) -> Result<Option<Self>, Error> {
        let failed = io_error("the rekey's file");
        let Some(disk) = site.open_undo().map_err(&failed)? else {
            return Ok(None);
        };
        let len = disk.len().map_err(&failed)?;
        let mut bytes = vec![0; rekey_plan_layout::SIZE];
        if len < bytes.len() as u64 {
            return Err(damaged("it ends before its plan does"));
        }
        disk.read_at(&mut bytes, 0).map_err(&failed)?;
        let plan = RekeyPlan::parse(&bytes).filter(|plan| digest_of(plan) == plan.digest);
        let plan = plan.ok_or_else(|| damaged("its plan is not whole"))?;
        Ok(Some(Self { disk, plan }))
    }

    /// Copies `count` units (blocks or headers) from number `first` on into the rekey's file,
    /// durably, before they are overwritten; the copy replaces the one before. The system's errors.
    pub(crate) fn save(
        &self,
        database: &dyn Disk,
        units: Units,
        first: u64,
        count: usize,
    ) -> io::Result<()> {
        let mut head = UndoHead {
            digest: [0; 32],
            plan: self.mark(),
            kind: units.kind,
            first,
            units: Vec::with_capacity(count),
        };
        let mut unit = vec![0; units.len];
        let mut slot = DUCKDB_UNDO_SLOTS_AT;
        for number in (first..).take(count) {
            database.read_at(&mut unit, units.offset(number))?;
            self.disk.write_at(&unit, slot)?;
            slot = slot.saturating_add(units.len as u64);
            let clear = unit.first_chunk::<DUCKDB_UNIT_CLEAR>();
            head.units.push(*clear.ok_or(io::ErrorKind::InvalidInput)?);
        }
        head.digest = digest_of_head(&head);
        self.disk.write_at(&head.to_bytes(), DUCKDB_UNDO_AT)?;
        self.disk.sync()
    }

    /// Restores, durably, the units (blocks or headers) that a crash left half written: those that
    /// open under none of the keys and whose copy opens. Returns their number. SR-2212 when the
    /// copy names a unit that the database does not have; SR-5001 when the system reports an error.
    pub(crate) fn restore(&self, database: &dyn Disk, keys: &[&Sealer]) -> Result<u64, Error> {
        let failed = io_error("putting units back");
        let Some(head) = self.head().map_err(&failed)? else {
            return Ok(0);
        };
        let units = match head.kind {
            UndoKind::DatabaseHeaders => Units::headers(),
            UndoKind::Blocks => Units::blocks(self.plan.block_size, self.plan.blocks),
        };
        let (mut unit, mut old) = (vec![0; units.len], vec![0; units.len]);
        let mut restored = 0;
        for (index, clear) in (0..).zip(&head.units) {
            let number = head.first.saturating_add(index);
            if number >= units.count {
                return Err(damaged("it names a unit that the database does not have"));
            }
            let offset = units.offset(number);
            database.read_at(&mut unit, offset).map_err(&failed)?;
            if (is_zero(&unit) && is_zero(clear)) || opens(keys, &unit) {
                continue;
            }
            let slot = index.saturating_mul(units.len as u64);
            let slot = DUCKDB_UNDO_SLOTS_AT.saturating_add(slot);
            if self.disk.read_at(&mut old, slot).is_err() {
                continue;
            }
            if old.starts_with(clear) && opens(keys, &old) {
                database.write_at(&old, offset).map_err(&failed)?;
                restored += 1;
            }
        }
        database.sync().map_err(&failed)?;
        Ok(restored)
    }

    /// Returns the head of the copy. `None` when there is none, or it was not finished: then
    /// nothing was overwritten after it.
    fn head(&self) -> io::Result<Option<UndoHead>> {
        let most = DUCKDB_UNDO_SLOTS_AT.saturating_sub(DUCKDB_UNDO_AT);
        let there = self.disk.len()?.saturating_sub(DUCKDB_UNDO_AT).min(most);
        if there < rekey_undo_layout::SIZE as u64 {
            return Ok(None);
        }
        let mut area = vec![0; usize::try_from(there).unwrap_or_default()];
        self.disk.read_at(&mut area, DUCKDB_UNDO_AT)?;
        let head = UndoHead::parse(&area);
        Ok(head.filter(|head| digest_of_head(head) == head.digest && head.plan == self.mark()))
    }

    /// Returns the value that binds a copy to its plan.
    fn mark(&self) -> [u8; 16] {
        let mark = self.plan.digest.first_chunk::<16>();
        mark.copied().unwrap_or_default()
    }
}

/// Computes the digest of a plan: SHA-256 over its bytes before the field for the digest.
fn digest_of(plan: &RekeyPlan) -> [u8; 32] {
    let bytes = plan.to_bytes();
    sha256(&[bytes
        .get(..rekey_plan_layout::DIGEST.offset)
        .unwrap_or_default()])
}

/// Computes the digest of a copy's head: SHA-256 over its bytes after the field for the digest.
fn digest_of_head(head: &UndoHead) -> [u8; 32] {
    let bytes = head.to_bytes();
    sha256(&[bytes
        .get(rekey_undo_layout::DIGEST.len..)
        .unwrap_or_default()])
}

/// Returns whether one of the keys opens the unit. Decrypts a copy; `unit` stays.
pub(crate) fn opens(keys: &[&Sealer], unit: &[u8]) -> bool {
    keys.iter().any(|key| key.open(&mut unit.to_vec()).is_ok())
}

/// Returns the error SR-2212 for a rekey's file that cannot be used.
fn damaged(why: &str) -> Error {
    Error::new(&code::DUCKDB_REKEY_FILE, why)
}
