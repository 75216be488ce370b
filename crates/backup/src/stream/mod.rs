//! The stream inside a set: members and their bytes, as items (docs/spec/backup.md, "The stream").
//!
//! Must not: know how the stream is cut, sealed or stored.

pub(crate) mod reader;
#[cfg(test)]
mod tests;
pub(crate) mod writer;
