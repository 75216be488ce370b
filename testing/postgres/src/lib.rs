//! What the tests on real PostgreSQL servers share: instances that a test makes, runs, kills and
//! removes, sealed and plain by the same steps; sessions; a search of everything they leave on
//! disk; a trace of their system calls.
//!
//! docs/internals/testing-postgres.md says what each test shows and how to run it longer.
//!
//! Invariants: servers listen on Unix sockets below a test's own directory only, are ended by
//! process number, and are gone when the test is, whether it passed or not. A sealed and a plain
//! instance differ in nothing but the shield.
//!
//! Must not: be used by a product crate.

pub mod crash;
pub mod instance;
pub mod packages;
pub mod programs;
pub mod room;
pub mod scan;
pub mod session;
pub mod surfaces;
pub mod trace;
