//! Which envelopes a connection takes as values of the server's answers.
//!
//! Invariant: with a session, an envelope is taken once, in the order in which the zone has sealed
//! the session's results, and only if it is one of them (docs/spec/columns.md, "Envelopes"). So
//! nothing that was sealed for another question, or at another time, is shown. Must not: open an
//! envelope.

use std::sync::atomic::{AtomicU64, Ordering};

use strongroom_columns_envelope::{EnvelopeError, SessionId};
use strongroom_format::columns::{EnvelopeHeader, Sealer};

use crate::sql::Origins;
use crate::sql::catalog::Catalog;

/// The envelopes that count as values of answers.
#[derive(Debug, Default)]
pub(crate) struct Results {
    accepted: Accepted,
    /// The number of the last result that was taken.
    last: AtomicU64,
}

/// What a zone has to have sealed an envelope for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Accepted {
    /// No envelope is taken: there is no session yet.
    #[default]
    Nothing,
    /// For nobody in particular: the proxy opens no sessions.
    Anybody,
    /// For this session.
    Session(SessionId),
}

impl Results {
    /// Takes what a zone has sealed for nobody in particular, as in dumps.
    pub(crate) const fn of_anybody() -> Self {
        Self {
            accepted: Accepted::Anybody,
            last: AtomicU64::new(0),
        }
    }

    /// Takes the results of this session, of which none was taken yet.
    pub(crate) const fn of_session(session: SessionId) -> Self {
        Self {
            accepted: Accepted::Session(session),
            last: AtomicU64::new(0),
        }
    }

    /// Returns the session whose results open. `None` if there is none.
    pub(crate) const fn session(&self) -> Option<&SessionId> {
        match &self.accepted {
            Accepted::Session(session) => Some(session),
            Accepted::Nothing | Accepted::Anybody => None,
        }
    }

    /// Takes an envelope that has been opened. Its header is authentic. `expected` is what its
    /// value is to be a value of, if that is known, with the catalog by which it is.
    ///
    /// # Errors
    /// [`EnvelopeError::NotAuthentic`] for an envelope of another sealer than is expected, and for
    /// a result that was sealed before one that was taken already; [`EnvelopeError::OtherColumn`]
    /// for a value of something else than is expected.
    pub(crate) fn take(
        &self,
        header: &EnvelopeHeader,
        expected: Option<(&Origins, &Catalog)>,
    ) -> Result<(), EnvelopeError> {
        let sealer = match self.accepted {
            Accepted::Nothing => None,
            Accepted::Anybody => Some(Sealer::Zone),
            Accepted::Session(_) => Some(Sealer::Session),
        };
        // A constant or a parameter that the server sends back, among others.
        if sealer != Some(header.sealer) {
            return Err(EnvelopeError::NotAuthentic);
        }
        if self.session().is_some() {
            // One thread takes results: the one that reads from the server.
            if header.serial <= self.last.load(Ordering::Relaxed) {
                return Err(EnvelopeError::NotAuthentic);
            }
            self.last.store(header.serial, Ordering::Relaxed);
        }
        let fits = match expected {
            None | Some((Origins::Any, _)) => true,
            Some((Origins::Of { made, .. }, _)) if !header.lineage.is_column() => *made,
            Some((Origins::Of { columns, .. }, catalog)) => {
                catalog.may_be_of(columns, header.lineage)
            }
        };
        if fits {
            Ok(())
        } else {
            Err(EnvelopeError::OtherColumn)
        }
    }
}
