//! A client's certificate before it ends: the new one is made, and the former one ends when the new
//! one is used.
//!
//! Invariants: E5, a client that got no answer, or lost it, still has a certificate that counts:
//! the former one ends in the commit that takes the first request with the new one, and not before;
//! E6, at most one certificate waits for that, and it ends with the other one when the client is
//! enrolled anew or revoked.
//!
//! Must not: let both be used for longer than that.

use strongroom_format::code;
use strongroom_keyring::Error;

use super::clients::{Enrolled, ends, node_path};
use super::{Peer, Plan, Service, identity_path};
use crate::audit::Event;
use crate::now;
use crate::records::{Found, Identity, Node};
use crate::store::Guard;

impl Service {
    /// A client's certificate before it ends, for a new key of its own. The one that is shown
    /// counts until the new one is used.
    ///
    /// # Errors
    /// SR-8420, SR-8421; SR-8429 for a request that is not one, or for a public key that has a
    /// certificate already.
    pub fn renew(&self, peer: &Peer, request: &str) -> Result<Enrolled, Error> {
        self.run(peer, "renew", "", |client| {
            let mut identity = client.identity.clone();
            identity.enrolled = now();
            identity.unused = true;
            let name = identity.name.clone();
            let unknown = || Error::new(&code::SERVER_NOT_ENROLLED, "");
            let found: Found<Node> = self.read(&node_path(&name))?;
            let guard = found.guard;
            let mut node = found.record.ok_or_else(unknown)?;
            let (value, spki, mut guards, more) = self.certified(request, identity)?;
            let taken: Found<Identity> = self.read(&identity_path(&spki))?;
            // The same public key twice would end the certificate that is to stay until the other
            // one works.
            if taken.record.is_some() && node.next.as_ref() != Some(&spki) {
                return Err(Error::new(
                    &code::SERVER_REQUEST,
                    "the public key has a certificate already: a renewal is for a new one",
                ));
            }
            guards.extend([guard, taken.guard]);
            let lost = node.next.replace(spki.clone());
            let mut changes: Vec<_> = lost
                .filter(|lost| *lost != spki)
                .iter()
                .map(|lost| ends(lost))
                .collect();
            changes.extend(more);
            changes.push(self.put(&node_path(&name), &node)?);
            let mut event = client.event("renew", &name);
            event.detail = spki;
            Ok(Plan {
                value,
                guards,
                changes,
                events: vec![event],
            })
        })
    }

    /// The first request with a renewed certificate: the former one ends. `None` when the
    /// certificate no longer waits for that.
    pub(super) fn first_use(
        &self,
        peer: &Peer,
        spki: &str,
    ) -> Result<Option<(Identity, Guard)>, Error> {
        for _ in 0..super::TRIES {
            let found: Found<Identity> = self.read(&identity_path(spki))?;
            let Some(mut identity) = found.record else {
                return Ok(None);
            };
            if !identity.unused {
                return Ok(Some((identity, found.guard)));
            }
            let path = node_path(&identity.name);
            let node: Found<Node> = self.read(&path)?;
            let Some(former) = node
                .record
                .filter(|node| node.next.as_deref() == Some(spki))
            else {
                return Ok(None);
            };
            identity.unused = false;
            let fresh = Node {
                spki: spki.to_owned(),
                next: None,
            };
            let changes = vec![
                ends(&former.spki),
                self.put(&identity_path(spki), &identity)?,
                self.put(&path, &fresh)?,
            ];
            let event = Event {
                actor: identity.name.clone(),
                address: peer.address.clone(),
                action: "renewed".to_owned(),
                subject: identity.name,
                version: 0,
                detail: format!("{} ends", former.spki),
            };
            // Done or not, what there is now is read again: its revision is what the request is
            // guarded by.
            self.commit(None, vec![found.guard, node.guard], changes, vec![event])?;
        }
        Err(Error::new(
            &code::SERVER_BUSY,
            "the first use of a certificate",
        ))
    }
}
