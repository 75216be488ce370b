//! Sealed instances under real servers.
//!
//! They are one binary, which links once and runs the tests of all files side by side.

mod archive;
mod backup_delta;
mod backup_drill;
mod backup_incremental;
mod backup_receive;
mod backup_replay;
mod backup_sources;
mod canary;
mod crash;
mod damage;
mod debian;
mod logical;
mod names;
mod newer;
mod outside;
mod queries;
mod recorder;
mod recovery;
mod replication;
mod storage;
mod upgrade;
