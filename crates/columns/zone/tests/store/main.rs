//! The mapping store against a model, under crashes, tampering and kills; stores of released
//! versions.
#![expect(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::panic,
    reason = "a test that panics has failed, which is what it is for"
)]

mod bindings;
mod checkpoints;
mod disk;
mod followed;
mod forks;
mod golden;
mod host;
mod killed;
mod ledgers;
mod model;
mod redo;
mod rules;
mod tamper;
mod tpm;
