//! Reading the audit log, of which an older part may be in archives.

use strongroom_keyring::Error;

use super::operation::Plan;
use super::peer::Peer;
use super::state::Service;
use crate::audit::{GENESIS, Row};
use crate::ledger::open_row;
use crate::paths::AUDIT_CUT;
use crate::records::{AuditCut, Guarded, Role};
use crate::store::Guard;

impl Service {
    /// Returns at most `limit` rows of the audit log that are in the store, in order and with
    /// numbers greater than `after`, and which rows are in archives.
    ///
    /// # Errors
    /// SR-8422 unless the client is a viewer or an administrator; SR-8436 when a row does not open;
    /// as for every request SR-8420 without a certificate, SR-8421 for one that is not enrolled,
    /// SR-8435 when the store fails.
    pub fn audit(
        &self,
        peer: &Peer,
        after: u64,
        limit: usize,
    ) -> Result<(AuditCut, Vec<Row>), Error> {
        self.run(peer, "audit", "", |client| {
            client.must_be(&[Role::Admin, Role::Viewer])?;
            let (cut, _) = self.audit_cut()?;
            // The store may still hold rows that are archived already.
            let rows = self.store.rows(after.max(cut.through), limit)?.into_iter();
            let rows = rows.map(|(n, sealed)| open_row(&self.keys, n, &sealed));
            Ok(Plan::read((cut, rows.collect::<Result<_, _>>()?)))
        })
    }

    /// Reads which rows are in archives, and the guard on that record. The store's part of the log
    /// begins after them; the number 0 means that no row is archived. Errors are those of the
    /// store, such as SR-8435 when it does not answer.
    pub(super) fn audit_cut(&self) -> Result<(AuditCut, Guard), Error> {
        let found: Guarded<AuditCut> = self.read(AUDIT_CUT)?;
        let cut = found.record.unwrap_or_else(|| AuditCut {
            head: GENESIS.to_owned(),
            ..AuditCut::default()
        });
        Ok((cut, found.guard))
    }
}
