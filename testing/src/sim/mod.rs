//! A simulated disk under the VFS: every call can fail, and the power can be cut at every call,
//! with any part of what was not synced surviving. docs/internals/testing.md, "Simulated disks".
//!
//! `disk` is the model of the medium; `machine` counts the calls and decides which one fails; `vfs`
//! and `file` are the VFS that the VFS, or SQLite alone, stands on; `model` and `session` are
//! workload and comparison; `run` has the cases, `sweep` runs many.
//!
//! Must not: know how the VFS works. What is asked of it is what SQLite promises without it.

pub mod config;
pub mod disk;
mod file;
mod lock;
pub mod machine;
pub mod model;
mod mount;
pub mod run;
pub mod session;
mod shared;
pub mod sweep;
pub mod vfs;
