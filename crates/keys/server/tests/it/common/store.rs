//! A store with a hook before its writes: a test can run code before a certain write, or let all
//! writes fail from that write on, as if the server had been killed.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_keys_server::store::{Append, Change, Guard, Outcome, Store, StoreSpace, Stored};

type Act = Box<dyn FnOnce() + Send>;

/// The prefix with which [`Hooked::before`] names the removal of rows of the audit log.
pub(crate) const REMOVAL_OF_ROWS: &str = "rows are removed";

/// A store with a hook before its writes.
pub(crate) struct Hooked {
    pub(crate) store: Arc<dyn Store>,
    before: Mutex<Option<(&'static str, Act)>>,
    before_read: Mutex<Option<(&'static str, Act)>>,
    dead: AtomicBool,
}

impl Hooked {
    pub(crate) fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            store,
            before: Mutex::default(),
            before_read: Mutex::default(),
            dead: AtomicBool::new(false),
        })
    }

    /// Calls `act` once, before the next commit that changes a path with this prefix.
    pub(crate) fn before(&self, prefix: &'static str, act: impl FnOnce() + Send + 'static) {
        *self.before.lock().unwrap() = Some((prefix, Box::new(act)));
    }

    /// Calls `act` once, before the next read of a path with this prefix.
    pub(crate) fn before_read(&self, prefix: &'static str, act: impl FnOnce() + Send + 'static) {
        *self.before_read.lock().unwrap() = Some((prefix, Box::new(act)));
    }

    /// Lets every write fail from that commit on, until [`Self::revive`].
    pub(crate) fn dies_before(self: &Arc<Self>, prefix: &'static str) {
        let own = Arc::clone(self);
        self.before(prefix, move || own.dead.store(true, SeqCst));
    }

    pub(crate) fn revive(&self) {
        self.dead.store(false, SeqCst);
    }

    /// Runs the hook before a write to these paths.
    fn before_write(&self, paths: &[&str]) -> Result<(), Error> {
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let act = before.take_if(|(prefix, _)| paths.iter().any(|path| path.starts_with(*prefix)));
        drop(before);
        if let Some((_, act)) = act {
            act();
        }
        match self.dead.load(SeqCst) {
            true => Err(Error::new(&code::SERVER_STORE, "killed")),
            false => Ok(()),
        }
    }
}

fn path_of(change: &Change) -> &str {
    match change {
        Change::Put { path, .. } | Change::Delete { path } => path,
    }
}

impl Store for Hooked {
    fn read(&self, path: &str) -> Result<Option<Stored>, Error> {
        let mut before = self
            .before_read
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let act = before.take_if(|(prefix, _)| path.starts_with(*prefix));
        drop(before);
        if let Some((_, act)) = act {
            act();
        }
        self.store.read(path)
    }

    fn list(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, Stored)>, Error> {
        self.store.list(prefix, after, limit)
    }

    fn commit(
        &self,
        guards: &[Guard],
        changes: &[Change],
        append: &Append,
    ) -> Result<Outcome, Error> {
        self.before_write(&changes.iter().map(path_of).collect::<Vec<_>>())?;
        self.store.commit(guards, changes, append)
    }

    fn last_row(&self) -> Result<Option<(u64, Vec<u8>)>, Error> {
        self.store.last_row()
    }

    fn rows(&self, after: u64, limit: usize) -> Result<Vec<(u64, Vec<u8>)>, Error> {
        self.store.rows(after, limit)
    }

    fn forget_rows(&self, through: u64, limit: u64) -> Result<u64, Error> {
        self.before_write(&[REMOVAL_OF_ROWS])?;
        self.store.forget_rows(through, limit)
    }

    fn space(&self) -> Result<StoreSpace, Error> {
        self.store.space()
    }
}
