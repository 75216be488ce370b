//! The settings of `server.toml` that decide about operations, in the units that the service uses.

/// The settings that decide about operations.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// How long clients' certificates are valid, in days.
    pub certificate_days: u32,
    /// How many seconds after a request a key is destroyed, unless the request names another time.
    pub destroy_after_s: u64,
    /// The least such time, also for administrators: an attacker with an administrator's
    /// certificate cannot erase a key before somebody notices.
    pub destroy_least_s: u64,
    /// Whether a second administrator has to agree to a destruction.
    pub needs_two_administrators: bool,
    /// How much one node may store.
    pub quotas: Quotas,
}

/// How much one node may store.
#[derive(Clone, Copy, Debug)]
pub struct Quotas {
    /// Headers in escrow.
    pub headers: u64,
    /// Bytes of all headers in escrow.
    pub header_bytes: u64,
    /// Objects that it reports.
    pub objects: u64,
    /// Keys that it creates.
    pub keys: u64,
    /// Versions of one key in a day, counting all nodes; beyond them, no node may rotate the key.
    pub rotations_per_day: u32,
}
