//! The state of replay: how far the store is with the host's log, and where the chains of its
//! records end.
//!
//! Must not: change a value.

use std::collections::BTreeMap;
use std::sync::Arc;

use strongroom_crypto::GcmKey;
use strongroom_format::code;
use strongroom_format::columns::manifest::ChainEntry;
use strongroom_format::columns::redo::{Link, REDO_VERSION, RedoHead};
use strongroom_keyring::Error;

use super::faults::crypto_error;
use super::memory::{Buffer, Memory};
use super::seal::Keys;

/// The most keys of incarnations that are kept in memory.
const KEYS_MAX: usize = 16;

/// The phase of replay, which decides what the store may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The log is being replayed: no value may be used.
    Replaying,
    /// The log goes on, and another server writes it: values are read, and none is given out.
    Following,
    /// The log is replayed to its end.
    Serving,
}

/// The state of replay.
pub(super) struct Replay {
    pub(super) phase: Phase,
    /// By incarnation and ring, number and tag of the last record that was replayed.
    chains: BTreeMap<([u8; 16], u32), (u64, [u8; 16])>,
    /// Keys by incarnation and run.
    keys: Vec<(([u8; 16], u64), GcmKey)>,
    /// Highest first extent of a partition that a record has opened.
    pub(super) floor: u32,
    /// Records of an earlier version than this one are refused.
    pub(super) redo_from: u32,
    /// The record that is being replayed.
    pub(super) record: Buffer,
}

impl Replay {
    /// The state at a start: the log is to be replayed, and no chain is known.
    pub(super) fn new(memory: &Arc<Memory>) -> Self {
        Self {
            phase: Phase::Replaying,
            chains: BTreeMap::new(),
            keys: Vec::new(),
            floor: 0,
            redo_from: 0,
            record: Buffer::new(memory),
        }
    }

    /// The least version of the records that may follow the position of a manifest that is made
    /// now. As long as the log is read, that does not change: the host may be of an earlier
    /// version. Once the log was read to its end this program alone has written what follows.
    pub(super) fn redo_from_of_manifest(&self) -> u32 {
        match self.phase {
            Phase::Replaying | Phase::Following => self.redo_from,
            Phase::Serving => u32::from(REDO_VERSION),
        }
    }

    /// Notes the end of a chain, as a manifest names it.
    pub(super) fn load(&mut self, chain: ChainEntry) {
        let end = (chain.number, chain.tag);
        self.chains.insert((chain.incarnation, chain.ring), end);
    }

    /// Whether the record's chain has the record that the link names. False if one is missing.
    pub(super) fn is_sound(&self, head: &RedoHead, link: &Link) -> bool {
        let end = self.chains.get(&(head.incarnation, link.ring));
        let (number, tag) = end.copied().unwrap_or_default();
        // The link names an earlier record when the record before was inserted but its host ended
        // before it could say so, when the host's shared memory was made anew, or when the
        // checkpoint is further than the log.
        link.previous < number || (link.previous == number && link.previous_tag == tag)
    }

    /// Moves the end of the record's chain to this record, unless it is further already. To be
    /// called when all of the record was applied: one that was refused must be missed.
    pub(super) fn follow(&mut self, head: &RedoHead, link: &Link) {
        let chain = self.chains.entry((head.incarnation, link.ring));
        let end = chain.or_insert((0, [0; 16]));
        if head.number > end.0 {
            *end = (head.number, head.tag);
        }
    }

    /// The key of a run of an incarnation's records, derived if it is not among the last 16.
    /// SR-5001 without locked memory.
    pub(super) fn key(&mut self, keys: &Keys, run: ([u8; 16], u64)) -> Result<&GcmKey, Error> {
        let known = self.keys.iter().position(|(known, _)| *known == run);
        let at = match known {
            Some(at) => at,
            None => {
                let key = keys.redo_key(run.0, run.1).map_err(crypto_error)?;
                if self.keys.len() >= KEYS_MAX {
                    self.keys.remove(0);
                }
                self.keys.push((run, key));
                self.keys.len() - 1
            }
        };
        let found = self.keys.get(at).map(|(_, key)| key);
        found.ok_or_else(|| Error::new(&code::BUG, "a key that was just made"))
    }

    /// The ends of all chains but those of the incarnation `own`, for a manifest.
    pub(super) fn chains_before(&self, own: [u8; 16]) -> impl Iterator<Item = ChainEntry> + '_ {
        let earlier = self
            .chains
            .iter()
            .filter(move |((incarnation, _), (number, _))| *incarnation != own && *number != 0);
        earlier.map(|((incarnation, ring), (number, tag))| ChainEntry {
            incarnation: *incarnation,
            ring: *ring,
            number: *number,
            tag: *tag,
        })
    }

    /// Forgets chains and keys of earlier incarnations if recovery is over: the log has no record
    /// of theirs after its end. To be called after a checkpoint.
    pub(super) fn forget_old_chains(&mut self) {
        if self.phase == Phase::Serving {
            self.chains.clear();
            self.keys.clear();
        }
    }
}
