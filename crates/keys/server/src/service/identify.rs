//! The client behind a certificate (V1), and the first use of a renewed certificate.
//!
//! Must not: decide what a client may do.

use strongroom_format::code;
use strongroom_keyring::Error;

use super::peer::Peer;
use super::state::{Service, TRIES};
use crate::audit::Event;
use crate::now;
use crate::paths::{identity_path, node_path};
use crate::records::{Guarded, Identity, Node, Role};
use crate::store::{Change, Guard};

/// A client that the store knows.
pub struct Client {
    /// Its record.
    pub identity: Identity,
    pub(super) address: String,
    pub(super) guard: Guard,
}

impl Client {
    /// Makes an event of the audit log that this client causes, without version and detail.
    pub(super) fn event(&self, action: &str, subject: &str) -> Event {
        Event {
            actor: self.identity.name.clone(),
            address: self.address.clone(),
            action: action.to_owned(),
            subject: subject.to_owned(),
            ..Event::default()
        }
    }

    /// Checks that the client has one of these roles.
    ///
    /// # Errors
    /// SR-8422 when it has none of them.
    pub(super) fn must_be(&self, roles: &[Role]) -> Result<(), Error> {
        match roles.contains(&self.identity.role) {
            true => Ok(()),
            false => Err(Error::new(&code::SERVER_ROLE, self.identity.role.name())),
        }
    }

    /// Whether the client is an administrator.
    pub(super) fn is_admin(&self) -> bool {
        self.identity.role == Role::Admin
    }
}

/// Returns the changes that end every certificate of a client: the current one, and a renewed one
/// that was not used yet.
pub(super) fn delete_identities(node: &Node) -> Vec<Change> {
    let all = std::iter::once(&node.spki).chain(&node.next);
    all.map(|spki| delete_identity(spki)).collect()
}

/// Returns the change that ends the certificate with this public key, given by its SHA-256.
pub(super) fn delete_identity(spki: &str) -> Change {
    Change::Delete {
        path: identity_path(spki),
    }
}

impl Service {
    /// Looks up the client that the certificate of a connection belongs to, and notes in `peer`
    /// whether it is enrolled. The first use of a renewed certificate ends the former one, with a
    /// row of the audit log.
    ///
    /// # Errors
    /// SR-8420 without a certificate; SR-8421 when the certificate is not that of an enrolled
    /// client, or has expired; SR-8442 when others keep changing the record; what the store
    /// reports.
    pub fn identify(&self, peer: &Peer) -> Result<Client, Error> {
        let found = self.find_client(peer);
        match &found {
            Ok(_) => peer.enrolled.set(true),
            // Any other error, such as one of the store, says nothing about the certificate.
            Err(error) if error.code().number == code::SERVER_NOT_ENROLLED.number => {
                peer.enrolled.set(false);
            }
            Err(_) => {}
        }
        found
    }

    /// Looks up the enrolled client that the certificate of a connection belongs to. The first use
    /// of a renewed certificate ends the former one, with a row of the audit log. SR-8420 without a
    /// certificate; SR-8421 when it is not that of an enrolled client, or has expired; SR-8442 when
    /// others keep changing the record; what the store reports.
    fn find_client(&self, peer: &Peer) -> Result<Client, Error> {
        let needed = || Error::new(&code::SERVER_CERTIFICATE_NEEDED, "");
        let certificate = peer.certificate.as_ref().ok_or_else(needed)?;
        let found: Guarded<Identity> = self.read(&identity_path(&certificate.spki))?;
        let guard = found.guard.clone();
        let unknown = || Error::new(&code::SERVER_NOT_ENROLLED, "");
        let identity = found.record.ok_or_else(unknown)?;
        // The public key alone proves nothing: several certificates can have it, and some of them
        // may have ended.
        let current = identity.certificate.as_deref();
        let is_current = current.is_none_or(|current| current == certificate.fingerprint);
        if identity.name != certificate.name || !is_current {
            return Err(unknown());
        }
        // TLS checked the dates when the connection began, which may be long ago.
        if identity.expires <= now() {
            return Err(unknown());
        }
        let (identity, guard) = match identity.unused {
            true => self
                .accept_first_use(peer, &certificate.spki)?
                .ok_or_else(unknown)?,
            false => (identity, guard),
        };
        Ok(Client {
            identity,
            address: peer.address.clone(),
            guard,
        })
    }

    /// Commits the first use of a renewed certificate: the former certificate ends (E5), and the
    /// audit log gets a row. Returns the identity and its guard, also when another request has
    /// committed the first use. `None` when the certificate is no longer enrolled. SR-8442 when the
    /// records keep changing.
    fn accept_first_use(
        &self,
        peer: &Peer,
        spki: &str,
    ) -> Result<Option<(Identity, Guard)>, Error> {
        for _ in 0..TRIES {
            let found: Guarded<Identity> = self.read(&identity_path(spki))?;
            let Some(mut identity) = found.record else {
                return Ok(None);
            };
            if !identity.unused {
                return Ok(Some((identity, found.guard)));
            }
            let path = node_path(&identity.name);
            let node: Guarded<Node> = self.read(&path)?;
            let former = match node.record {
                Some(node) if node.next.as_deref() == Some(spki) => node,
                // Another request committed the first use between the two reads.
                Some(node) if node.spki == spki => continue,
                _ => return Ok(None),
            };
            identity.unused = false;
            let renewed = Node {
                spki: spki.to_owned(),
                next: None,
            };
            let changes = vec![
                delete_identity(&former.spki),
                self.put(&identity_path(spki), &identity)?,
                self.put(&path, &renewed)?,
            ];
            let event = Event {
                actor: identity.name.clone(),
                address: peer.address.clone(),
                action: "renewed".to_owned(),
                subject: identity.name,
                version: 0,
                detail: format!("{} ends", former.spki),
            };
            // Whether this commit took effect or not, the record is read again: the request is
            // guarded by its present revision.
            self.commit(vec![found.guard, node.guard], changes, vec![event])?;
        }
        Err(Error::new(
            &code::SERVER_BUSY,
            "the first use of a certificate",
        ))
    }
}
