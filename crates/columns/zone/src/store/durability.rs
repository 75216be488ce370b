//! The state of the last checkpoint.
//!
//! Must not: write one.

use strongroom_keyring::Error;

use super::block_address::BlockAddress;

/// The last checkpoint, and whether another one can follow it.
#[derive(Default)]
pub(super) struct Durability {
    /// The manifest counter, which the freshness anchor agrees with.
    pub(super) counter: u64,
    /// Position of the host's log that the checkpoint has made durable.
    pub(super) position: u64,
    /// Timeline of the host's log that `position` is of; 0 when that is not known.
    pub(super) timeline: u32,
    /// Timeline that the host's log is on now.
    pub(super) host_timeline: u32,
    /// How far the host's log had got with what the store holds, as the host has said.
    pub(super) reached: Reached,
    /// A manifest may be in place that the anchor was not advanced for.
    pub(super) manifest_unanchored: bool,
    /// A sync has failed: the contents of the disk are unknown.
    pub(super) poisoned: bool,
    /// The manifest that is being published.
    pub(super) publication: Option<Published>,
    /// A checkpoint that is made while the engine goes on.
    pub(super) request: Option<Request>,
}

/// The highest position of the host's log at which a record ends that the store holds.
///
/// A checkpoint's position may be a much earlier one: the host says it only now and then, and a
/// checkpoint that the store needs for itself has everything until then.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(super) struct Reached {
    /// 0 when the host has said none.
    pub(super) position: u64,
    /// Timeline of the host's log that `position` is of; 0 when that is not known.
    pub(super) timeline: u32,
}

/// What is so when a manifest that is being published is durable.
#[derive(Clone, Copy)]
pub(super) struct Published {
    pub(super) counter: u64,
    pub(super) position: u64,
    pub(super) timeline: u32,
    /// Whether former manifests cannot be taken for the newest then: the parts of the block file
    /// that only they name are free.
    pub(super) is_last: bool,
    /// Whether the log was replayed to its end when the manifest was made.
    pub(super) serving: bool,
}

/// A checkpoint that is made while the engine goes on.
pub(super) struct Request {
    /// The position of the host's log that it is to reach, if its manifest is not made yet.
    pub(super) position: u64,
    /// Whether the host has asked for it and waits for its end.
    pub(super) is_awaited: bool,
    pub(super) stage: Stage,
}

/// How far a requested checkpoint is.
pub(super) enum Stage {
    /// Changed blocks are being written.
    Writing {
        /// Changed blocks that are still to be written.
        blocks: Vec<BlockAddress>,
        /// How often changed blocks were looked for.
        rounds: u32,
    },
    /// Its manifest is being published.
    Publishing,
    /// It has ended, and its result was not asked for yet.
    Ended(Result<(), Error>),
}

impl Durability {
    /// Notes that the host's log has a record of the store's that ends at `position` on its present
    /// timeline. A lower position than before changes nothing on the same timeline: the end of the
    /// log that a crash of the host takes stays in the store.
    pub(super) fn note_reached(&mut self, position: u64) {
        let timeline = self.host_timeline;
        let known = self.reached;
        if position != 0 && (known.timeline != timeline || known.position < position) {
            self.reached = Reached { position, timeline };
        }
    }

    /// The position and timeline that a checkpoint reaches when the host asks for `position`: never
    /// before the last checkpoint's.
    pub(super) fn target(&self, position: u64) -> (u64, u32) {
        // A position that does not move keeps its timeline: the log's next timeline may begin
        // after it (L8).
        let timeline = if position > self.position {
            self.host_timeline
        } else {
            self.timeline
        };
        (position.max(self.position), timeline)
    }
}
