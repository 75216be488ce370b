//! The other end of a connection: its certificate, its address, and whether it is enrolled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::authority::ClientCertificate;

/// The other end of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// The client's certificate; `None` when it sent none.
    pub certificate: Option<ClientCertificate>,
    /// The address that it connects from.
    pub address: String,
    /// Whether the service has found the certificate to be enrolled.
    pub enrolled: EnrolmentFlag,
}

/// Whether a connection's certificate was enrolled when the service looked it up last. All clones
/// share one value.
#[derive(Clone, Debug, Default)]
pub struct EnrolmentFlag(Arc<AtomicBool>);

impl EnrolmentFlag {
    /// Whether the certificate was enrolled when it was looked up last; false before.
    #[must_use]
    pub fn get(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Sets the flag for all clones.
    pub(super) fn set(&self, is_enrolled: bool) {
        self.0.store(is_enrolled, Relaxed);
    }
}
