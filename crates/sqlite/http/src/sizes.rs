//! The sizes in which a remote file is requested and cached.
//!
//! Must not: differ between programs that share a cache directory.

/// Bytes of a block: the smallest request, and the unit of the cache.
pub const BLOCK: u64 = 16 * 1024;
/// Most blocks in one request: 1 MiB.
pub const RUN_MAX: u64 = 64;
/// Bytes that the first request of a file asks for.
pub const FIRST: u64 = 4 * BLOCK;
