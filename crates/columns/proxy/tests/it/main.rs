//! Tests of the proxy.
//!
//! They are one binary, which links once and runs the tests of all files side by side.

mod answers;
mod blocks;
mod canary;
mod channel;
mod definitions;
mod endings;
mod extension;
mod lies;
mod login;
mod names;
mod plain;
mod relay;
mod skipped;
mod support;
mod time_zone;
mod tls;
mod tpm;
mod under_way;
mod wire;
