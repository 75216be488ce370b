//! Headers in memory: few at a time, and one of each client, so that no client keeps the others from theirs.
//!
//! Invariant: a turn lasts as long as the bytes that it is for.
//! Must not: let a request wait that has bytes in memory already.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Headers in memory at once, of all clients: each has up to 32 MiB, and a sealed copy of one piece.
pub const AT_ONCE: usize = 4;

/// Who has a header in memory.
pub struct Large {
    all: Arc<Semaphore>,
    clients: Arc<Mutex<BTreeMap<String, Arc<Semaphore>>>>,
}

/// Until it is dropped.
pub struct Turn {
    client: String,
    clients: Arc<Mutex<BTreeMap<String, Arc<Semaphore>>>>,
    own: Option<(Arc<Semaphore>, OwnedSemaphorePermit)>,
    all: Option<OwnedSemaphorePermit>,
}

impl Default for Large {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(AT_ONCE)),
            clients: Arc::default(),
        }
    }
}

impl Large {
    /// Waits until this client may have a header in memory.
    pub async fn turn(&self, client: &str) -> Turn {
        let mut turn = Turn {
            client: client.to_owned(),
            clients: Arc::clone(&self.clients),
            own: None,
            all: None,
        };
        let own = {
            let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
            let own = clients
                .entry(client.to_owned())
                .or_insert_with(|| Arc::new(Semaphore::new(1)));
            Arc::clone(own)
        };
        // Neither is ever closed. First its own: who waits for that one keeps nobody else waiting.
        turn.own = match Arc::clone(&own).acquire_owned().await {
            Ok(permit) => Some((own, permit)),
            Err(_) => None,
        };
        turn.all = Arc::clone(&self.all).acquire_owned().await.ok();
        turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        drop(self.all.take());
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.own.take());
        // The map's own is the last one: nobody waits for it, and nobody can begin to while the map is locked.
        let unused = |own: &Arc<Semaphore>| Arc::strong_count(own) == 1;
        if clients.get(&self.client).is_some_and(unused) {
            clients.remove(&self.client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn one_of_each_and_few_of_all() {
        let large = Large::default();
        let soon = |client: &'static str| {
            tokio::time::timeout(Duration::from_millis(50), large.turn(client))
        };
        let first = soon("a").await.unwrap();
        assert!(soon("a").await.is_err(), "two of one client");
        let mut turns = vec![first];
        for client in ["b", "c", "d"] {
            turns.push(soon(client).await.unwrap());
        }
        assert_eq!(turns.len(), AT_ONCE);
        assert!(soon("e").await.is_err(), "more than there is memory for");
        drop(turns.remove(0));
        turns.push(soon("e").await.unwrap());
        drop(turns);
        assert!(soon("a").await.is_ok());
        // Who gave up waiting left nothing either.
        assert!(large.clients.lock().unwrap().is_empty());
    }
}
