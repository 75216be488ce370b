//! The fault that a ring gets for an error, and errors that several parts of the store report.
//!
//! Must not: know the store.

use strongroom_columns_ring::Fault;
use strongroom_crypto::CryptoError;
use strongroom_format::code::{self, Code};
use strongroom_keyring::Error;

use super::memory::NoMemory;

/// Why a part of the store could not do something.
pub(super) enum Failure {
    /// The fault says all there is to say.
    Fault(Fault),
    /// The zone's own log needs the error; the ring gets the [`fault_of`] its code.
    Error(Error),
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// The fault that a ring gets for an error of this code; [`Fault::StoreIo`] for codes that have
/// none of their own.
#[must_use]
pub fn fault_of(code: &Code) -> Fault {
    match code.number {
        8010 | 8011 | 8024 => Fault::StoreDamaged,
        8012 => Fault::LogGap,
        8013 => Fault::Recovering,
        8014 | 5001 => Fault::OutOfMemory,
        8015 => Fault::DiskFull,
        8016 => Fault::BadRecord,
        8017 => Fault::PartitionUnknown,
        8018 | 8028 => Fault::PartitionsExhausted,
        8019 => Fault::BadRequest,
        8030 => Fault::OtherHistory,
        3002 => Fault::NewerFormat,
        _ => Fault::StoreIo,
    }
}

/// The error SR-8014: the store has no memory for values.
pub(super) fn no_memory(_: NoMemory) -> Error {
    Error::new(&code::ZONE_MEMORY, "")
}

/// The error for a failed cryptographic operation.
pub(super) fn crypto_error(error: CryptoError) -> Error {
    error.into()
}

/// SR-8012: the record that opened a partition is missing before the one at `position`.
pub(super) fn not_opened(number: u16, position: u64) -> Error {
    let what = format!("at position {position}: partition {number} was not opened");
    Error::new(&code::LOG_GAP, what)
}
