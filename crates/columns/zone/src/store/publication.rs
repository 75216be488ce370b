//! Publications: what makes a checkpoint durable when its blocks are written, and the thread that
//! does it while the engine goes on.
//!
//! Invariants: S3 (the blocks are durable before a manifest names them), S4 (the anchor is advanced
//! after the manifest). Must not: touch the store, or hold anything that is not sealed.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use strongroom_keyring::Error;

use super::anchor::Anchor;

/// Bytes of the thread's stack: it makes a few system calls, or talks to a TPM.
const STACK: usize = 256 * 1024;

/// A sealed manifest that has to become the store's.
pub struct Publication {
    /// The manifest's file, whole.
    pub manifest: Vec<u8>,
    /// Its counter, to which the anchor is advanced.
    pub counter: u64,
    /// The store's freshness anchor.
    pub anchor: Arc<dyn Anchor>,
}

/// Which step of a publication has failed.
#[derive(Debug)]
pub enum Unpublished {
    /// Making the blocks durable. It must not be tried again: whether earlier writes are lost is
    /// unknown.
    Blocks(io::Error),
    /// Replacing the manifest. Either manifest is there.
    Manifest(io::Error),
    /// Advancing the anchor. The new manifest is there.
    Anchor(Error),
}

impl Publication {
    /// Makes the blocks durable by `sync_blocks`, replaces the manifest durably by
    /// `replace_manifest`, and advances the anchor, in this order.
    ///
    /// # Errors
    /// The first step that fails; none is made after it.
    pub fn carry_out(
        &self,
        sync_blocks: impl FnOnce() -> io::Result<()>,
        replace_manifest: impl FnOnce(&[u8]) -> io::Result<()>,
    ) -> Result<(), Unpublished> {
        sync_blocks().map_err(Unpublished::Blocks)?;
        replace_manifest(&self.manifest).map_err(Unpublished::Manifest)?;
        let anchored = self.anchor.advance(self.counter);
        anchored.map_err(Unpublished::Anchor)
    }
}

/// The thread that carries out a publication.
#[derive(Default)]
pub(super) struct Publisher(Option<State>);

enum State {
    Running(JoinHandle<Result<(), Unpublished>>),
    Ended(Result<(), Unpublished>),
}

impl Publisher {
    /// Runs `work` on a thread of its own; on this one, before it returns, if the system gives no
    /// thread.
    pub(super) fn start(
        &mut self,
        work: impl Fn() -> Result<(), Unpublished> + Send + Sync + 'static,
    ) {
        let work = Arc::new(work);
        let aside = Arc::clone(&work);
        let builder = std::thread::Builder::new().name("zone-publish".into());
        let started = builder.stack_size(STACK).spawn(move || aside());
        self.0 = Some(match started {
            Ok(thread) => State::Running(thread),
            Err(_) => State::Ended(work()),
        });
    }

    /// The result of the work, once. `None` if it goes on, or there is none; with `wait`, waits for
    /// its end. A thread that has panicked counts as a failed sync.
    pub(super) fn ended(&mut self, wait: bool) -> Option<Result<(), Unpublished>> {
        match self.0.take()? {
            State::Running(thread) if !wait && !thread.is_finished() => {
                self.0 = Some(State::Running(thread));
                None
            }
            State::Running(thread) => Some(thread.join().unwrap_or_else(|_| {
                let what = io::Error::other("the thread that writes the manifest has panicked");
                Err(Unpublished::Blocks(what))
            })),
            State::Ended(result) => Some(result),
        }
    }
}
