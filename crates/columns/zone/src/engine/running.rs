//! The programs that a ring has sent, and the groups of their rows so far.
//!
//! Must not: carry one out.

use std::collections::BTreeMap;

use strongroom_columns_ring::Fault;
use strongroom_columns_ring::program::{Program, Sort};

use super::groups::Groups;
use crate::arena::ScopeId;

/// A program of a statement, and the groups of the rows that it has had.
pub(super) struct Running {
    pub(super) program: Program,
    /// Of all registers, inputs first.
    pub(super) sorts: Vec<Sort>,
    pub(super) groups: Groups,
    /// Of each aggregate, the keys that its values were made from. `None` without a value.
    pub(super) scopes: Vec<Option<ScopeId>>,
    /// Of each key that is computed, likewise.
    pub(super) key_scopes: Vec<Option<ScopeId>>,
}

/// The most programs of one statement.
const PROGRAMS_MAX: usize = 1 << 16;
/// The most bytes of the groups of all programs of one statement, about as many as its values may
/// have. The last batch of rows may have made them more.
const GROUP_BYTES_MAX: usize = 4 << 30;

/// The programs of a ring's statement, by their identifiers.
#[derive(Default)]
pub(super) struct Programs {
    programs: BTreeMap<u64, Box<Running>>,
    /// Bytes of the groups of those that are here.
    group_bytes: usize,
}

impl Programs {
    /// Adds a program.
    ///
    /// # Errors
    /// [`Fault::ArenaFull`] above 65536 programs; [`Fault::BadRequest`] for an identifier that has
    /// one.
    pub(super) fn add(&mut self, id: u64, running: Running) -> Result<(), Fault> {
        if self.programs.len() >= PROGRAMS_MAX {
            return Err(Fault::ArenaFull);
        }
        if self.programs.contains_key(&id) {
            return Err(Fault::BadRequest);
        }
        self.put_back(id, Box::new(running));
        Ok(())
    }

    /// Removes a program and returns it: for good, or to be changed while the zone is changed, too,
    /// and then put back by [`Self::put_back`].
    ///
    /// # Errors
    /// [`Fault::ForgedFid`] for an unknown identifier.
    pub(super) fn take(&mut self, id: u64) -> Result<Box<Running>, Fault> {
        let running = self.programs.remove(&id).ok_or(Fault::ForgedFid)?;
        self.group_bytes = self.group_bytes.saturating_sub(running.groups.size());
        Ok(running)
    }

    /// Puts a program back that was taken out.
    pub(super) fn put_back(&mut self, id: u64, running: Box<Running>) {
        self.group_bytes = self.group_bytes.saturating_add(running.groups.size());
        self.programs.insert(id, running);
    }

    /// Checks that a program that was taken out may have more groups.
    ///
    /// # Errors
    /// [`Fault::ArenaFull`] if the groups of all programs have too many bytes.
    pub(super) fn check_room(&self, running: &Running) -> Result<(), Fault> {
        let bytes = self.group_bytes.saturating_add(running.groups.size());
        if bytes > GROUP_BYTES_MAX {
            return Err(Fault::ArenaFull);
        }
        Ok(())
    }

    /// Drops all programs.
    pub(super) fn clear(&mut self) {
        self.programs.clear();
        self.group_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use strongroom_columns_ring::program::{Fold, Step};

    use super::*;
    use crate::engine::groups::GroupState;

    /// An aggregation that counts rows by a bigint, with so many groups.
    fn counting(groups: i64) -> Running {
        let kind = strongroom_format::columns::Kind::Int8;
        let count = Step {
            fold: Fold::Count,
            of: None,
            filter: None,
        };
        let program = Program {
            inputs: vec![Sort::Value(kind)],
            keys: vec![0],
            aggregates: vec![count],
            ..Program::default()
        };
        let sorts = program.sorts().unwrap();
        let mut all = Groups::new(&program, &sorts).unwrap();
        for key in 0..groups {
            let value = strongroom_columns_values::Value::of_int8(key);
            all.begin_row();
            all.append_key(Sort::Value(kind), Some(value)).unwrap();
            let count = || Ok(vec![GroupState::Count(1)].into_boxed_slice());
            all.find(Box::default, count).unwrap();
        }
        Running {
            groups: all,
            scopes: vec![None],
            key_scopes: vec![None],
            sorts,
            program,
        }
    }

    #[test]
    fn the_groups_of_all_programs_have_a_limit_together() {
        let mut programs = Programs::default();
        programs.add(1, counting(1000)).unwrap();
        programs.add(2, counting(10)).unwrap();
        assert_eq!(programs.add(2, counting(0)), Err(Fault::BadRequest));
        let bytes = programs.group_bytes;
        assert!(bytes > 1000 * 32, "{bytes}");
        // What a program has lost or won while it was out counts when it is back.
        let other = programs.take(2).unwrap();
        programs.put_back(2, Box::new(counting(20)));
        assert!(programs.group_bytes > bytes);
        drop(other);
        let running = programs.take(1).unwrap();
        assert_eq!(programs.check_room(&running), Ok(()));
        programs.group_bytes = GROUP_BYTES_MAX;
        assert_eq!(programs.check_room(&running), Err(Fault::ArenaFull));
        programs.clear();
        assert_eq!(programs.take(2).err(), Some(Fault::ForgedFid));
        assert_eq!(programs.check_room(&running), Ok(()));
    }
}
