//! What tests and benchmarks of several crates share: real servers as processes of their own, and
//! the ports that they listen at; the product as it was built; programs run to their end; a
//! simulated TPM, a small file system, and one source of random numbers.
//!
//! Invariant: whatever is started ends with the value that stands for it, by its process id.
//!
//! Must not: be used by the product; stand for a component that can be installed.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::unwrap_in_result,
    clippy::missing_errors_doc,
    clippy::must_use_candidate,
    clippy::new_without_default,
    missing_docs,
    reason = "what a test cannot set up, it cannot test; names say what a helper of tests does"
)]

pub mod account;
pub mod disk;
pub mod etcd;
pub mod key;
pub mod keyserver;
pub mod machine;
pub mod port;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod process;
pub mod product;
pub mod programs;
pub mod random;
pub mod s3;
pub mod swtpm;
