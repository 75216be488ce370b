//! Rate limits for each client and each address: token buckets.
//!
//! Invariant: the memory is bounded. When there are too many buckets, full ones are removed first,
//! which has no effect on any client.
//!
//! Must not: block.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::config::Limits;

/// The most buckets of clients, and of addresses.
const BUCKETS_MAX: usize = 65_536;

/// The token buckets of clients and of addresses.
pub struct Limiter {
    clients: Mutex<Buckets<String>>,
    addresses: Mutex<Buckets<[u8; 8]>>,
}

struct Buckets<K> {
    per_second: f64,
    burst: f64,
    buckets: BTreeMap<K, Bucket>,
}

#[derive(Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Limiter {
    /// Makes a limiter with these rates, in which all buckets are full.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self {
            clients: Mutex::new(Buckets::new(limits.client_per_second, limits.client_burst)),
            addresses: Mutex::new(Buckets::new(
                limits.address_per_second,
                limits.address_burst,
            )),
        }
    }

    /// Applies other limits. All buckets are full afterwards.
    pub fn set_limits(&self, limits: &Limits) {
        let clients = Buckets::new(limits.client_per_second, limits.client_burst);
        let addresses = Buckets::new(limits.address_per_second, limits.address_burst);
        *self.clients.lock().unwrap_or_else(PoisonError::into_inner) = clients;
        *self
            .addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    /// Counts a request of a client, without waiting. `spki`: SHA-256 of the public key of its
    /// certificate.
    ///
    /// # Errors
    /// How long the client has to wait; the request does not count then.
    pub fn take_for_client(&self, spki: &str) -> Result<(), Duration> {
        let mut buckets = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.take(spki.to_owned(), Instant::now())
    }

    /// Counts a request without a certificate, without waiting. Addresses of one network share a
    /// limit ([`network_of`]).
    ///
    /// # Errors
    /// How long the client has to wait; the request does not count then.
    pub fn take_for_address(&self, address: IpAddr) -> Result<(), Duration> {
        let mut buckets = self
            .addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        buckets.take(network_of(address), Instant::now())
    }
}

/// Returns the network that counts as one address: an IPv4 address, or the first 64 bits of an IPv6
/// address, because one host can use all addresses of such a network.
#[must_use]
pub fn network_of(address: IpAddr) -> [u8; 8] {
    let mut out = [0; 8];
    match address.to_canonical() {
        IpAddr::V4(v4) => out[..4].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => out.copy_from_slice(&v6.octets()[..8]),
    }
    out
}

impl<K: Ord + Clone> Buckets<K> {
    /// Makes an empty table. Each bucket begins with `burst` tokens and gets `per_second` more a
    /// second.
    fn new(per_second: u32, burst: u32) -> Self {
        Self {
            per_second: per_second.into(),
            burst: burst.into(),
            buckets: BTreeMap::new(),
        }
    }

    /// Takes one token from a bucket, which is made if it is missing. Without a token, takes none,
    /// and returns as the error how long it takes until there is one.
    fn take(&mut self, key: K, now: Instant) -> Result<(), Duration> {
        if self.buckets.len() >= BUCKETS_MAX && !self.buckets.contains_key(&key) {
            self.remove_full(now);
        }
        let (burst, per_second) = (self.burst, self.per_second);
        let bucket = self.buckets.entry(key).or_insert(Bucket {
            tokens: burst,
            at: now,
        });
        bucket.tokens = tokens_at(*bucket, now, per_second, burst);
        bucket.at = now;
        if bucket.tokens >= 1.0 {
            bucket.tokens -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - bucket.tokens) / per_second))
    }

    /// Removes the full buckets, which changes nothing for their clients. If too many remain,
    /// removes all.
    fn remove_full(&mut self, now: Instant) {
        let (burst, per_second) = (self.burst, self.per_second);
        self.buckets
            .retain(|_, bucket| tokens_at(*bucket, now, per_second, burst) < burst);
        if self.buckets.len() >= BUCKETS_MAX {
            // Very many clients exceed their limits. Their buckets are reset.
            self.buckets.clear();
        }
    }
}

/// Returns how many tokens a bucket has at `now`, at most `burst`. Changes nothing.
fn tokens_at(bucket: Bucket, now: Instant, per_second: f64, burst: f64) -> f64 {
    let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
    (bucket.tokens + passed * per_second).min(burst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_empties_and_fills_again() {
        let mut buckets = Buckets::new(10, 3);
        let start = Instant::now();
        for _ in 0..3 {
            assert!(buckets.take("a", start).is_ok());
        }
        let wait = buckets.take("a", start).err().unwrap();
        assert!(wait > Duration::from_millis(90) && wait <= Duration::from_millis(100));
        assert!(buckets.take("b", start).is_ok(), "others are not held up");
        let later = start + Duration::from_millis(101);
        assert!(buckets.take("a", later).is_ok());
        assert!(buckets.take("a", later).is_err());
        // Never more than the burst, however long it rests.
        let much_later = start + Duration::from_secs(1000);
        for _ in 0..3 {
            assert!(buckets.take("a", much_later).is_ok());
        }
        assert!(buckets.take("a", much_later).is_err());
    }

    #[test]
    fn buckets_are_bounded() {
        let mut buckets = Buckets::new(1, 1);
        let now = Instant::now();
        for key in 0..=BUCKETS_MAX {
            let _wait = buckets.take(key, now);
        }
        assert!(buckets.buckets.len() <= BUCKETS_MAX);
    }

    #[test]
    fn addresses_of_one_network_share_a_bucket() {
        let of = |text: &str| network_of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
