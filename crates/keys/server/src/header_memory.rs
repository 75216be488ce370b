//! Limits how many headers are in memory: a few in all, and one of each client, so that no client
//! keeps the others waiting.
//!
//! Invariant: a permit lives as long as the bytes of its header.
//!
//! Must not: let a request wait that has bytes in memory already.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most headers in memory, of all clients. Each takes up to 32 MiB and a sealed copy of one
/// piece.
pub const HEADERS_MAX: usize = 4;

/// The permits for headers in memory.
pub struct HeaderMemory {
    all: Arc<Semaphore>,
    clients: Arc<Mutex<BTreeMap<String, Arc<Semaphore>>>>,
}

/// The permission for a client to have one header in memory, until this is dropped.
pub struct HeaderPermit {
    client: String,
    clients: Arc<Mutex<BTreeMap<String, Arc<Semaphore>>>>,
    own: Option<(Arc<Semaphore>, OwnedSemaphorePermit)>,
    all: Option<OwnedSemaphorePermit>,
}

impl Default for HeaderMemory {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(HEADERS_MAX)),
            clients: Arc::default(),
        }
    }
}

impl HeaderMemory {
    /// Waits, without a limit, until this client may have a header in memory: it has no other one,
    /// and fewer than [`HEADERS_MAX`] are there in all.
    pub async fn acquire(&self, client: &str) -> HeaderPermit {
        let mut permit = HeaderPermit {
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
        // Neither semaphore is ever closed. The client's own one comes first: a request that waits
        // for it does not keep other clients waiting.
        permit.own = match Arc::clone(&own).acquire_owned().await {
            Ok(permit) => Some((own, permit)),
            Err(_) => None,
        };
        permit.all = Arc::clone(&self.all).acquire_owned().await.ok();
        permit
    }
}

impl Drop for HeaderPermit {
    /// Ends the permit, so that another request can have a header in memory, and forgets a client
    /// that no request waits for.
    fn drop(&mut self) {
        drop(self.all.take());
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.own.take());
        // The map has the only reference: no request waits for this semaphore, and none can begin
        // to while the map is locked.
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
    async fn one_of_each_client_and_few_of_all() {
        let memory = HeaderMemory::default();
        let soon = |client: &'static str| {
            tokio::time::timeout(Duration::from_millis(50), memory.acquire(client))
        };
        let first = soon("a").await.unwrap();
        assert!(soon("a").await.is_err(), "two of one client");
        let mut permits = vec![first];
        for client in ["b", "c", "d"] {
            permits.push(soon(client).await.unwrap());
        }
        assert_eq!(permits.len(), HEADERS_MAX);
        assert!(soon("e").await.is_err(), "more than there is memory for");
        drop(permits.remove(0));
        permits.push(soon("e").await.unwrap());
        drop(permits);
        assert!(soon("a").await.is_ok());
        // A request that gave up waiting left no entry.
        assert!(memory.clients.lock().unwrap().is_empty());
    }
}
