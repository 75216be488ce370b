//! What the whole-product tests share: a worker process that can be paused and killed, and ways to
//! look at what it leaves: its files, its open descriptors, its memory. The tests are in `tests/`;
//! docs/internals/testing.md says what each one shows and how to run it longer.
//!
//! Invariant: everything random comes from one seed, which a test prints (`random`).
//! Must not: be used by a product crate, or replace a part of the product with something that only
//! pretends.

pub mod bank;
pub mod driver;
pub mod intercept;
pub mod ledger;
pub mod memory;
pub use strongroom_testing_support::random;
pub mod scan;
pub mod setup;
pub mod sim;
pub mod stock;
pub mod workload;
