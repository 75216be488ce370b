//! What tests of several crates share: real servers as processes of their own, a simulated TPM, a
//! small file system, and one source of random numbers.
//!
//! Invariant: whatever is started ends with the value that stands for it, by its process id.
//!
//! Must not: be used outside tests; stand for a component that can be installed.
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

pub mod disk;
pub mod etcd;
pub mod postgres;
pub mod random;
pub mod s3;
pub mod swtpm;
