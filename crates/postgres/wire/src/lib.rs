//! PostgreSQL's frontend/backend protocol, version 3: the one implementation that replication, the
//! proxy of confidential columns and the benchmarks share.
//!
//! - Messages: [`Message`], read whole from any reader; [`Fields`] parses a body, [`Builder`]
//!   writes a message of either side.
//! - [`client`], a feature: a blocking connection to a server.
//!
//! docs/internals/postgres-wire.md describes both.
#![forbid(unsafe_code)]

mod builder;
#[cfg(feature = "client")]
pub mod client;
mod fields;
mod message;
mod response;

pub use builder::{Builder, append};
pub use fields::Fields;
pub use message::{MESSAGE_MAX, Message, body_length, invalid, read, read_startup};
pub use response::{error_field, error_fields, text_row, without_field};
