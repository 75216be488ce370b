//! Renewing a client's certificate before it expires.
//!
//! Invariants:
//! - E5: A client whose response was lost still has a valid certificate. The former certificate
//!   ends in the commit of the first request that uses the new one (`identify.rs`), and not before.
//! - E6: At most one certificate waits for its first use. It ends together with the current one
//!   when the client is enrolled anew or revoked.
//!
//! Must not: leave both certificates valid after the first use of the new one.

use strongroom_format::code;
use strongroom_keyring::Error;

use super::enrolment::Enrolled;
use super::identify::delete_identity;
use super::operation::Plan;
use super::peer::Peer;
use super::state::Service;
use crate::now;
use crate::paths::{identity_path, node_path};
use crate::records::{Guarded, Identity, Node};

impl Service {
    /// Issues another certificate to a client, for a new key of its own, with a row of the audit
    /// log. The present certificate is valid until the new one is used; an earlier renewal that was
    /// not used ends. `request`: PKCS #10 in PEM.
    ///
    /// # Errors
    /// SR-8420 without a certificate; SR-8421 for one that is not enrolled; SR-8429 for a malformed
    /// request, or a public key that has a certificate already; SR-8442 when others keep changing
    /// the record; what the store reports.
    pub fn renew(&self, peer: &Peer, request: &str) -> Result<Enrolled, Error> {
        self.run(peer, "renew", "", |client| {
            let mut identity = client.identity.clone();
            identity.enrolled = now();
            identity.unused = true;
            let name = identity.name.clone();
            let unknown = || Error::new(&code::SERVER_NOT_ENROLLED, "");
            let found: Guarded<Node> = self.read(&node_path(&name))?;
            let guard = found.guard;
            let mut node = found.record.ok_or_else(unknown)?;
            let certification = self.certify(request, identity)?;
            let (spki, mut guards) = (certification.spki, certification.guards);
            let taken: Guarded<Identity> = self.read(&identity_path(&spki))?;
            // The first use of the new certificate would otherwise end the only one that is valid.
            if taken.record.is_some() && node.next.as_ref() != Some(&spki) {
                return Err(Error::new(
                    &code::SERVER_REQUEST,
                    "the public key has a certificate already: a renewal is for a new one",
                ));
            }
            guards.extend([guard, taken.guard]);
            // A renewal whose response was lost is replaced by this one.
            let replaced = node.next.replace(spki.clone());
            let mut changes: Vec<_> = replaced
                .filter(|replaced| *replaced != spki)
                .iter()
                .map(|replaced| delete_identity(replaced))
                .collect();
            changes.extend(certification.changes);
            changes.push(self.put(&node_path(&name), &node)?);
            let mut event = client.event("renew", &name);
            event.detail = spki;
            Ok(Plan {
                value: certification.enrolled,
                guards,
                changes,
                events: vec![event],
            })
        })
    }
}
