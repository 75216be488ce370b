//! The open connections, and which of them is closed when a new one needs a slot.
//!
//! A connection counts as unknown until the service has found its certificate to be enrolled:
//! before and during the handshake, without a certificate, and with one that was revoked.
//!
//! Invariants:
//! - P1: A new connection is accepted whenever there is an unknown connection, or a second
//!   connection of an enrolled client, that can be closed.
//! - P2: A connection of an enrolled client is never closed while there is an unknown one.
//! - P3: No more connections are open than the limits allow.
//!
//! Must not: decide whether a client is enrolled (the service does); wait.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::config::Limits;
use crate::limits::network_of;
use crate::metrics::Metrics;
use crate::service::EnrolmentFlag;

/// The open connections of all listeners of a server, by age.
pub struct Connections {
    open: Mutex<OpenConnections>,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct OpenConnections {
    next: u64,
    by_age: BTreeMap<u64, OpenConnection>,
    by_network: BTreeMap<[u8; 8], usize>,
}

struct OpenConnection {
    network: [u8; 8],
    enrolled: EnrolmentFlag,
    /// SHA-256 of the public key of the client's certificate.
    spki: Option<String>,
    close: Arc<Notify>,
}

/// The slot of one open connection. It is free again when this is dropped, or when the connection
/// is closed for another one.
pub struct ConnectionSlot {
    connections: Arc<Connections>,
    age: u64,
    enrolled: EnrolmentFlag,
    close: Arc<Notify>,
}

impl ConnectionSlot {
    /// Takes a slot for a connection from this address. If its network or the server has too many,
    /// closes another connection: the oldest of the party with the most, unknown ones first. `None`
    /// when no connection can be closed. Counts in the metrics.
    #[must_use]
    pub fn take(connections: &Arc<Connections>, limits: &Limits, address: IpAddr) -> Option<Self> {
        let network = network_of(address);
        let mut open = connections.lock();
        let of_network = open.by_network.get(&network).copied().unwrap_or(0);
        if of_network >= limits.connections_per_address {
            open.close_one(&connections.metrics, Some(network))?;
        }
        if open.by_age.len() >= limits.connections {
            open.close_one(&connections.metrics, None)?;
        }
        let (enrolled, close) = (EnrolmentFlag::default(), Arc::new(Notify::new()));
        let age = open.next;
        open.next = age.saturating_add(1);
        let count = open.by_network.entry(network).or_insert(0);
        *count = count.saturating_add(1);
        open.by_age.insert(
            age,
            OpenConnection {
                network,
                enrolled: enrolled.clone(),
                spki: None,
                close: Arc::clone(&close),
            },
        );
        connections.metrics.connections.fetch_add(1, Relaxed);
        drop(open);
        Some(Self {
            connections: Arc::clone(connections),
            age,
            enrolled,
            close,
        })
    }

    /// Notes the public key, by its SHA-256, of the certificate with which the handshake was done.
    /// Does nothing after the connection lost its slot.
    pub fn set_spki(&self, spki: &str) {
        if let Some(one) = self.connections.lock().by_age.get_mut(&self.age) {
            one.spki = Some(spki.to_owned());
        }
    }

    /// Returns the flag that the service sets when it looks up the client's certificate; all copies
    /// share it.
    #[must_use]
    pub fn enrolled(&self) -> EnrolmentFlag {
        self.enrolled.clone()
    }

    /// Waits until this connection has to be closed, because a new one took its slot.
    pub async fn closed(&self) {
        self.close.notified().await;
    }
}

impl Drop for ConnectionSlot {
    /// Frees the slot and counts one open connection less in the metrics, unless a new connection
    /// has taken the slot.
    fn drop(&mut self) {
        if self.connections.lock().remove(self.age).is_some() {
            let metrics = &self.connections.metrics;
            metrics.connections.fetch_sub(1, Relaxed);
        }
    }
}

impl Connections {
    /// Makes an empty list of connections. `metrics` counts those that are opened and closed.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            open: Mutex::default(),
            metrics,
        }
    }

    /// Locks the list of open connections.
    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnections {
    /// Has one connection closed and frees its slot, of this network if one is given: an unknown
    /// one if there is any, else one of a client that has several; the oldest of the party with the
    /// most. Counts it in the metrics. `None` when none can be closed.
    fn close_one(&mut self, metrics: &Metrics, network: Option<[u8; 8]>) -> Option<()> {
        let candidates = || {
            let fits =
                move |one: &OpenConnection| network.is_none_or(|network| one.network == network);
            self.by_age.iter().filter(move |(_, one)| fits(one))
        };
        let unknown = candidates().filter(|(_, one)| !one.enrolled.get());
        let unknown = oldest_of_most(unknown.map(|(age, one)| (*age, one.network)));
        let age = match unknown {
            Some((age, _)) => age,
            None => {
                let clients =
                    candidates().filter_map(|(age, one)| Some((*age, one.spki.as_deref()?)));
                oldest_of_most(clients).filter(|(_, count)| *count > 1)?.0
            }
        };
        let one = self.remove(age)?;
        one.close.notify_one();
        metrics.connections.fetch_sub(1, Relaxed);
        metrics.displaced.fetch_add(1, Relaxed);
        Some(())
    }

    /// Removes a connection from the list and from the count of its network. `age` is its number in
    /// the order of opening. `None` when it is not there.
    fn remove(&mut self, age: u64) -> Option<OpenConnection> {
        let one = self.by_age.remove(&age)?;
        if let Some(count) = self.by_network.get_mut(&one.network) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.by_network.remove(&one.network);
            }
        }
        Some(one)
    }
}

/// Returns the age of the oldest connection of the party that has the most, and how many that party
/// has. `None` without connections, which come in order of age. A party with many connections can
/// therefore not displace those of others.
fn oldest_of_most<K: Ord>(connections: impl Iterator<Item = (u64, K)>) -> Option<(u64, usize)> {
    let mut parties: BTreeMap<K, (u64, usize)> = BTreeMap::new();
    for (age, party) in connections {
        let (_, count) = parties.entry(party).or_insert((age, 0));
        *count = count.saturating_add(1);
    }
    let most = |(age, count): &(u64, usize)| (*count, std::cmp::Reverse(*age));
    parties.into_values().max_by_key(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_party_with_the_most_is_closed() {
        let none: [(u64, u8); 0] = [];
        assert_eq!(oldest_of_most(none.into_iter()), None);
        let of = |connections: &[(u64, u8)]| oldest_of_most(connections.iter().copied());
        assert_eq!(of(&[(1, 7), (2, 8), (5, 8), (9, 7), (11, 8)]), Some((2, 3)));
        // When several parties have the most, the oldest of all of them.
        assert_eq!(of(&[(3, 9), (4, 8), (5, 7)]), Some((3, 1)));
    }
}
