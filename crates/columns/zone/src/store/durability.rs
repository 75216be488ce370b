//! The state of the last checkpoint.
//!
//! Must not: write one.

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
    /// A manifest may be in place that the anchor was not advanced for.
    pub(super) manifest_unanchored: bool,
    /// A sync has failed: the contents of the disk are unknown.
    pub(super) poisoned: bool,
}

impl Durability {
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
