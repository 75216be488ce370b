//! The store's own log, for a host that has none: redo records in frames, one after the other.
//!
//! Specified in docs/spec/columns.md. Must not: look into a record.

use crate::layout::{array, layout, put, u32_at, u64_at};

/// First bytes of a frame.
pub const LOG_MAGIC: [u8; 4] = *b"SRZL";

layout! {
    /// Layout of a frame's head; LENGTH bytes of a record follow.
    log_frame_layout, 24, {
        MAGIC @ 0, 4;
        LENGTH @ 4, 4;
        POSITION @ 8, 8;
        SYNCED @ 16, 8;
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Length of the record that follows, in bytes.
    pub length: u32,
    /// Position of the frame in the log, counted from the first byte that was ever written to it,
    /// which may have been removed since.
    pub position: u64,
    /// Everything before this position was durable when the frame was written.
    pub synced: u64,
}

impl FrameHead {
    /// Parses a head from the first 24 bytes. `None` when there are fewer, the magic is another, or
    /// `synced` is after `position`.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let head = Self {
            length: u32_at(bytes, log_frame_layout::LENGTH)?,
            position: u64_at(bytes, log_frame_layout::POSITION)?,
            synced: u64_at(bytes, log_frame_layout::SYNCED)?,
        };
        let magic: [u8; 4] = array(bytes, log_frame_layout::MAGIC)?;
        (magic == LOG_MAGIC && head.synced <= head.position).then_some(head)
    }

    /// Returns the head's bytes, as they are written.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; log_frame_layout::SIZE] {
        let mut out = [0; log_frame_layout::SIZE];
        let fields = [
            put(&mut out, log_frame_layout::MAGIC, &LOG_MAGIC),
            put(
                &mut out,
                log_frame_layout::LENGTH,
                &self.length.to_le_bytes(),
            ),
            put(
                &mut out,
                log_frame_layout::POSITION,
                &self.position.to_le_bytes(),
            ),
            put(
                &mut out,
                log_frame_layout::SYNCED,
                &self.synced.to_le_bytes(),
            ),
        ];
        assert!(fields.iter().all(Option::is_some), "log frame layout");
        out
    }
}
