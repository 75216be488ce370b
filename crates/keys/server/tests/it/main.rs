//! Tests of the key server by its interfaces.
//!
//! They are one binary, which links once and runs the tests of all files side by side.

mod api;
mod archive;
mod bounds;
mod common;
mod crowd;
mod etcd;
mod foreign;
mod foreign_browser;
mod full_disk;
mod guarded;
mod hostile;
mod openapi;
mod page;
mod page_browser;
mod page_http;
mod page_state;
mod races;
mod renewal;
mod schemathesis;
mod seal;
mod store;
mod two_administrators;
