//! Which connections are open, and which one makes way when a place is needed.
//!
//! Invariants: P1, a new connection is let in whenever there is one of a stranger, or a second one of
//! an enrolled client, that can make way; P2, a connection of an enrolled client never makes way
//! while there is one of a stranger; P3, no more are open than the limits say.
//!
//! A stranger is everybody whose certificate the service has not found to be enrolled: before and
//! during the handshake, without a certificate, and with one that was revoked.
//!
//! Must not: decide who is enrolled (the service does); wait.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::limits::network;
use crate::server::Server;
use crate::service::IsEnrolled;

/// The open connections of every face of a server, by age.
#[derive(Default)]
pub struct Connections {
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    by_age: BTreeMap<u64, One>,
    by_network: BTreeMap<[u8; 8], usize>,
}

struct One {
    network: [u8; 8],
    enrolled: IsEnrolled,
    /// The public key of the certificate that was shown.
    key: Option<String>,
    end: Arc<Notify>,
}

/// A connection's place among those that are open. The place is free when this is dropped, or when
/// another connection was given it.
pub struct Place {
    server: Arc<Server>,
    age: u64,
    enrolled: IsEnrolled,
    end: Arc<Notify>,
}

impl Place {
    /// A place for a connection from this address; `None` when nobody can make way for it.
    #[must_use]
    pub fn taken(server: &Arc<Server>, address: IpAddr) -> Option<Self> {
        let network = network(address);
        let config = server.config();
        let limits = &config.limits;
        let mut open = server.connections.lock();
        let beside = open.by_network.get(&network).copied().unwrap_or(0);
        if beside >= limits.connections_per_address {
            open.make_way(server, Some(network))?;
        }
        if open.by_age.len() >= limits.connections {
            open.make_way(server, None)?;
        }
        let (enrolled, end) = (IsEnrolled::default(), Arc::new(Notify::new()));
        let age = open.next;
        open.next = age.saturating_add(1);
        let count = open.by_network.entry(network).or_insert(0);
        *count = count.saturating_add(1);
        open.by_age.insert(
            age,
            One {
                network,
                enrolled: enrolled.clone(),
                key: None,
                end: Arc::clone(&end),
            },
        );
        server.metrics.connections.fetch_add(1, Relaxed);
        drop(open);
        Some(Self {
            server: Arc::clone(server),
            age,
            enrolled,
            end,
        })
    }

    /// The handshake was done with a certificate for this public key.
    pub fn shown(&self, key: &str) {
        if let Some(one) = self.server.connections.lock().by_age.get_mut(&self.age) {
            one.key = Some(key.to_owned());
        }
    }

    /// What the service says of the client's certificate.
    #[must_use]
    pub fn enrolled(&self) -> IsEnrolled {
        self.enrolled.clone()
    }

    /// Ends when another connection was given this place.
    pub async fn lost(&self) {
        self.end.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.server.connections.lock().remove(self.age).is_some() {
            self.server.metrics.connections.fetch_sub(1, Relaxed);
        }
    }
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Ends one connection, of this network if one is given.
    fn make_way(&mut self, server: &Server, network: Option<[u8; 8]>) -> Option<()> {
        let among = || {
            let of_it = move |one: &One| network.is_none_or(|network| one.network == network);
            self.by_age.iter().filter(move |(_, one)| of_it(one))
        };
        let strangers = among().filter(|(_, one)| !one.enrolled.is());
        let stranger = oldest_of_most(strangers.map(|(age, one)| (*age, one.network)));
        let age = match stranger {
            Some((age, _)) => age,
            None => {
                let clients = among().filter_map(|(age, one)| Some((*age, one.key.as_deref()?)));
                oldest_of_most(clients).filter(|(_, count)| *count > 1)?.0
            }
        };
        let one = self.remove(age)?;
        one.end.notify_one();
        server.metrics.connections.fetch_sub(1, Relaxed);
        server.metrics.displaced.fetch_add(1, Relaxed);
        Some(())
    }

    fn remove(&mut self, age: u64) -> Option<One> {
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

/// The oldest connection of the party that has most of them, and how many that party has.
/// Connections come by age. So a crowd from one address does not displace those of another.
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
    fn the_oldest_of_the_party_that_has_most_makes_way() {
        let none: [(u64, u8); 0] = [];
        assert_eq!(oldest_of_most(none.into_iter()), None);
        let of = |connections: &[(u64, u8)]| oldest_of_most(connections.iter().copied());
        assert_eq!(of(&[(1, 7), (2, 8), (5, 8), (9, 7), (11, 8)]), Some((2, 3)));
        // Of as many each, the oldest.
        assert_eq!(of(&[(3, 9), (4, 8), (5, 7)]), Some((3, 1)));
    }
}
