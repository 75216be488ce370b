//! Goal: a sealed database on a web server is read as it was published, whole and of one version,
//! or not at all: whatever the server, the network, the cache's disk or a kill does.
//!
//! Method: a real nginx over TLS with a private authority (`nginx`), read by the library, by the
//! distribution's `sqlite3` and Python with the loaded extension; and a server of our own that lies
//! in every way that HTTP has (`liar`). Caches are damaged, exchanged, planted and filled by
//! several processes, of which some are killed. Every row is compared with what was written.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]
#![expect(clippy::print_stdout, reason = "figures for docs/benchmarks.md")]

mod caching;
mod counts;
mod liar;
mod lies;
mod nginx;
mod reading;
mod stock;
mod support;
