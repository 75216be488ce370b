//! The link to a TPM 2.0: one command out, one response back, over a character device or a
//! simulator's socket.
//!
//! Source: TCG, "Trusted Platform Module Library", parts 1 to 3. [`Sealer`] seals a secret to the
//! state of the machine and unseals it, in sessions that authenticate and encrypt. [`Tpm`] keeps
//! the device open for quotes and counters. What quotes and attestation keys look like for those
//! who verify them is in `strongroom_format::columns::tpm`.
//!
//! Invariants: every wait has an end; no secret goes over the bus in clear; what commands create in
//! the TPM is flushed when the work is done.
//!
//! Must not: read configuration or the environment; ask anybody for a PIN; make persistent keys or
//! counters; extend a register.
#![forbid(unsafe_code)]

mod clock;
mod connection;
mod failure;
mod registers;
mod sealed_object;
mod sealer;
mod session;
mod shared;
mod storage_key;
mod structures;
mod time_limit;

pub use failure::Failure;
pub use registers::Registers;
pub use sealer::{DEFAULT_ADDRESS, Sealer};
pub use shared::{Counter, Tpm};
pub use time_limit::{Deadline, TimeLimit};
