//! Checkpoints that are made while the engine goes on.
//!
//! Changed blocks are written in steps between the operations of the rings, then a manifest is
//! made, and another thread publishes it. The request is asked about until it has ended. Must not:
//! wait for the disk.

use std::time::{Duration, Instant};

use strongroom_keyring::Error;

use super::Store;
use super::block_address::BlockAddress;
use super::durability::{Request, Stage};

/// How long one step writes blocks: no other ring is served meanwhile.
const STEP: Duration = Duration::from_millis(1);
/// So many changed blocks are written together with the manifest.
const FEW_BLOCKS: usize = 16;
/// Blocks are changed again while others are written. After so many rounds all that are left are
/// written together with the manifest.
const ROUNDS_MAX: u32 = 4;

impl Store {
    /// Begins a checkpoint that is made in steps between other operations, or carries out one step
    /// of the one that was begun. `position` is a byte offset that the host's log has reached:
    /// the store has the values of all redo records before it. `None` while the checkpoint is not
    /// durable: the host calls again, with this position or a later one, which the checkpoint
    /// reaches if its manifest is not made yet. Then the position before which the host may remove
    /// its log; it may be an earlier one than that of the last call. The engine calls
    /// [`Self::go_on`] after each other operation, which carries out steps too.
    ///
    /// # Errors
    /// Those of [`Self::checkpoint`]. The checkpoint has ended then, the last one stays, and the
    /// next call begins another.
    pub fn request_checkpoint(&mut self, position: u64) -> Result<Option<u64>, Error> {
        match &mut self.durability.request {
            Some(request) => {
                // What is published for the store itself may have been made before the position
                // was reached.
                request.is_awaited |= matches!(request.stage, Stage::Writing { .. });
                request.position = request.position.max(position);
            }
            None => self.durability.request = Some(self.new_request(position, true)),
        }
        self.go_on();
        let Some(request) = self.durability.request.take() else {
            return Ok(None);
        };
        match request.stage {
            Stage::Ended(result) => result.map(|()| Some(self.durability.position)),
            Stage::Writing { .. } | Stage::Publishing => {
                self.durability.request = Some(request);
                Ok(None)
            }
        }
    }

    /// Has a checkpoint made at the position of the last one, while other operations go on. Does
    /// nothing if one is being made.
    pub(super) fn request_in_place(&mut self) {
        if self.durability.request.is_none() {
            let position = self.durability.position;
            self.durability.request = Some(self.new_request(position, false));
        }
    }

    /// Notes that the requested checkpoint, whose manifest was being published, has failed.
    pub(super) fn end_request(&mut self, error: Error) {
        if let Some(request) = &mut self.durability.request {
            request.stage = Stage::Ended(Err(error));
        }
    }

    /// A request that has all blocks still to write that are changed now.
    fn new_request(&self, position: u64, is_awaited: bool) -> Request {
        let blocks = self.cache.dirty(&self.partitions);
        Request {
            position,
            is_awaited,
            stage: Stage::Writing { blocks, rounds: 1 },
        }
    }

    /// Goes on with a checkpoint that was requested, for a millisecond or so. Does nothing if there
    /// is none. An error is kept for the host, which may ask for another checkpoint.
    #[inline]
    pub fn go_on(&mut self) {
        if let Some(request) = self.durability.request.take() {
            self.take_step(request);
        }
    }

    /// Carries out one step of a request, and keeps it unless nobody waits for its good end.
    fn take_step(&mut self, mut request: Request) {
        let next = match request.stage {
            Stage::Writing { blocks, rounds } => self.write_step(request.position, blocks, rounds),
            Stage::Publishing => self.settle(false).map(|ended| match ended {
                true => Stage::Ended(Ok(())),
                false => Stage::Publishing,
            }),
            Stage::Ended(result) => Ok(Stage::Ended(result)),
        };
        request.stage = next.unwrap_or_else(|error| Stage::Ended(Err(error)));
        if request.is_awaited || !matches!(request.stage, Stage::Ended(Ok(()))) {
            self.durability.request = Some(request);
        }
    }

    /// Writes changed blocks for a millisecond; when few are left, makes a manifest and begins to
    /// publish it. Fails as [`Self::checkpoint`].
    fn write_step(
        &mut self,
        position: u64,
        mut blocks: Vec<BlockAddress>,
        rounds: u32,
    ) -> Result<Stage, Error> {
        let begin = Instant::now();
        while let Some(at) = blocks.pop() {
            self.cache.write(&mut self.partitions, at)?;
            if begin.elapsed() >= STEP {
                break;
            }
        }
        if !blocks.is_empty() {
            return Ok(Stage::Writing { blocks, rounds });
        }
        let blocks = self.cache.dirty(&self.partitions);
        if blocks.len() > FEW_BLOCKS && rounds < ROUNDS_MAX {
            let rounds = rounds + 1;
            return Ok(Stage::Writing { blocks, rounds });
        }
        self.begin_checkpoint(position)?;
        Ok(Stage::Publishing)
    }
}
