//! Bytes of confidential columns: identifiers, kinds of values, envelopes, the channel.
//!
//! Specified in docs/spec/columns.md. Must not: seal anything, hold a value in clear longer than a
//! caller's buffer.

pub mod block;
pub mod channel;
pub mod envelope;
pub mod fid;
pub mod kind;
pub mod lineage;
pub mod log;
pub mod manifest;
pub mod record;
pub mod redo;
pub mod sev_snp;
pub mod tdx;
pub mod tpm;

pub use envelope::{EnvelopeHeader, Sealer};
pub use fid::Fid;
pub use kind::Kind;
pub use lineage::{Class, Lineage};
