//! Tests of the replication client.
//!
//! They are one binary, which links once and runs the tests of all files side by side.

mod access;
mod backup;
mod hostile;
mod log;
mod script;
mod strangers;
