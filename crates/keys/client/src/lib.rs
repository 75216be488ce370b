//! The client of the key server: a node's configuration, its identity, and keys fetched over HTTPS
//! in bounded time.
//!
//! A [`Node`] is what `node.toml` says: servers in order, the one trusted authority, this node's
//! certificate. Its [`Client`] sends requests to the servers, and gives up when the configured time
//! is over. [`enrol()`] gets a node its certificate for a one-time token.
//!
//! Invariants N1 to N9 are listed in `docs/internals/keyclient.md`; the comments cite them by
//! number. In short: only a server whose certificate the configured authority signed is trusted
//! (N1); no call waits without a limit (N2); a decision of a server ends the call (N3); key
//! material is in locked memory or in buffers that are wiped (N5).
//!
//! Must not: keep a key after the call that fetched it; read proxies or trust anchors from the
//! environment; print.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::expect_used)]

mod address;
mod base64;
mod certificate;
mod client;
mod enrol;
mod error;
mod exchange;
mod join;
mod node;
mod object_name;
mod pages;
mod renew;
mod rounds;
mod tls;
mod verdict;
mod watch;
mod wire;

pub use address::key_name_is_valid;
pub use certificate::Validity;
pub use client::{Client, Fetched, Version};
pub use enrol::{Enrolled, Enrolment, enrol};
pub use error::{Error, Kind};
pub use join::{Join, Joined};
pub use node::{DEFAULT_PATH, Files, Node, VARIABLE};
pub use object_name::object_name;
pub use renew::Renewal;
pub use ureq::http::Method;
pub use watch::{Waiting, tell_waiting};
pub use wire::{Ending, KeyRecord, KeyVersion, NeedingObject, Needs, Report, ServerStatus};

/// Does nothing at run time. It compiles only for a type that can be shared between threads.
const fn shareable<T: Send + Sync>() {}
const _: () = {
    shareable::<Client>();
    shareable::<Node>();
    shareable::<Error>();
};
