//! Enrolment: a client redeems a token and gets a certificate for its own key.
//!
//! Invariants:
//! - E1: A token is used once. The commit that enrols the client removes it.
//! - E3: A client that is enrolled anew or revoked loses its former certificates in the same
//!   commit.
//! - E4: A client that was not enrolled begins with the grants of its token alone, even if a
//!   revocation of the same name was interrupted and left grants behind.
//! - E7: A public key is only ever certified for one name.

use serde::Serialize;
use strongroom_crypto::random16;
use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_keyring::Error;

use super::identify::{delete_identities, delete_identity};
use super::peer::Peer;
use super::state::{Service, TRIES};
use crate::audit::Event;
use crate::authority;
use crate::now;
use crate::paths::{
    AUTHORITY, GRANTS, certified_path, grant_path, identity_path, node_path, token_path,
};
use crate::records::{Authority, Certified, Grant, Guarded, Identity, Node, Role, Token};
use crate::store::{Change, Guard};

/// Grants that are removed in one commit.
const GRANTS_AT_ONCE: usize = 64;

/// The response to an enrolment or a renewal.
#[derive(Clone, Debug, Serialize)]
pub struct Enrolled {
    /// The client's name.
    pub node: String,
    /// Its role.
    pub role: Role,
    /// Its certificate, in PEM.
    pub certificate: String,
    /// The authority's certificate, in PEM.
    pub authority: String,
}

/// A certificate that was issued, with what has to be committed before it is valid.
pub(super) struct Certification {
    /// The response to the client.
    pub(super) enrolled: Enrolled,
    /// SHA-256 of the certificate's public key, in hexadecimal digits.
    pub(super) spki: String,
    /// Guards on the records by which the public key was accepted.
    pub(super) guards: Vec<Guard>,
    /// The changes that write the identity and the owner of the public key.
    pub(super) changes: Vec<Change>,
}

impl Service {
    /// Enrols a client: issues a certificate, grants it the token's keys, and writes a row of the
    /// audit log. The token and the client's former certificates end in the same commit. `request`:
    /// PKCS #10 in PEM. `address` is for the audit log.
    ///
    /// # Errors
    /// SR-8431 for a token that is unknown, used or expired, which is recorded as a denial;
    /// SR-8429 for a malformed request, or a public key of another client; SR-8442 when the records
    /// keep changing; what the store reports.
    pub fn enroll(&self, address: &str, token: &str, request: &str) -> Result<Enrolled, Error> {
        for _ in 0..TRIES {
            let found: Guarded<Token> = self.read(&token_path(token))?;
            let valid = found.record.filter(|token| token.expires > now());
            let Some(record) = valid else {
                let peer = Peer {
                    address: address.to_owned(),
                    ..Peer::default()
                };
                let error = Error::new(&code::SERVER_TOKEN, "");
                self.record_denial(None, &peer, "enroll", "", &error);
                return Err(error);
            };
            let mut guards = vec![found.guard.clone()];
            let mut changes = vec![Change::Delete {
                path: found.guard.path,
            }];
            for key in &record.keys {
                let grant = Grant {
                    granted: now(),
                    may_destroy: record.may_destroy,
                };
                changes.push(self.put(&grant_path(&record.node, key), &grant)?);
            }
            let former: Guarded<Node> = self.read(&node_path(&record.node))?;
            guards.push(former.guard);
            if former.record.is_none() {
                // A revocation that was interrupted may have left grants (E4). None can be added in
                // the meantime, because a grant needs a client that is enrolled.
                self.remove_grants_of(&record.node)?;
            }
            let (may_create, may_destroy) = self.rights_with(&record, former.record.as_ref())?;
            let identity = Identity {
                name: record.node.clone(),
                role: record.role,
                may_create,
                may_destroy,
                enrolled: now(),
                expires: 0,
                enrolment: Some(hex(&random16()?)),
                unused: false,
                certificate: None,
            };
            let certification = self.certify(request, identity)?;
            let spki = certification.spki;
            let node = Node {
                spki: spki.clone(),
                next: None,
            };
            changes.push(self.put(&node_path(&record.node), &node)?);
            guards.extend(certification.guards);
            // A commit may change a record only once.
            let ended = former.record.iter().flat_map(delete_identities);
            changes.extend(ended.filter(|change| *change != delete_identity(&spki)));
            changes.extend(certification.changes);
            let event = Event {
                actor: record.node.clone(),
                address: address.to_owned(),
                action: "enroll".to_owned(),
                subject: record.node.clone(),
                version: 0,
                detail: format!("{} {spki}", record.role.name()),
            };
            if self.commit(guards, changes, vec![event])? {
                return Ok(certification.enrolled);
            }
        }
        Err(Error::new(&code::SERVER_BUSY, "enrolment"))
    }

    /// Issues a certificate for a client, for the public key of `request` (PKCS #10 in PEM), and
    /// puts its expiry and fingerprint into the identity. It is valid once the caller has committed
    /// the changes with the guards.
    ///
    /// # Errors
    /// SR-8429 for a malformed request, or a public key of another client; what the store reports.
    pub(super) fn certify(
        &self,
        request: &str,
        mut identity: Identity,
    ) -> Result<Certification, Error> {
        let (authority, _) = self.read::<Authority>(AUTHORITY)?.require("authority")?;
        let days = self.rules().certificate_days;
        let issued = authority::sign_request(&authority, request, &identity.name, days)?;
        let guards = self.check_key_owner(&issued.spki, &identity.name)?;
        identity.expires = issued.expires;
        identity.certificate = Some(issued.fingerprint);
        let owner = Certified {
            name: identity.name.clone(),
        };
        let changes = vec![
            self.put(&identity_path(&issued.spki), &identity)?,
            self.put(&certified_path(&issued.spki), &owner)?,
        ];
        let enrolled = Enrolled {
            node: identity.name,
            role: identity.role,
            certificate: issued.certificate,
            authority: authority.certificate,
        };
        Ok(Certification {
            enrolled,
            spki: issued.spki,
            guards,
            changes,
        })
    }

    /// Checks that a public key was never certified for another name (E7): the holder of its
    /// private key could act as both clients. Returns the guards on the records that say so.
    /// SR-8429 if it was.
    fn check_key_owner(&self, spki: &str, name: &str) -> Result<Vec<Guard>, Error> {
        let owner: Guarded<Certified> = self.read(&certified_path(spki))?;
        // Older builds recorded only the current owner.
        let holder: Guarded<Identity> = self.read(&identity_path(spki))?;
        let names = [
            owner.record.map(|owner| owner.name),
            holder.record.map(|holder| holder.name),
        ];
        if names.iter().flatten().any(|other| other != name) {
            let detail = "the public key is another client's";
            return Err(Error::new(&code::SERVER_REQUEST, detail));
        }
        Ok(vec![owner.guard, holder.guard])
    }

    /// Returns the rights of a client that is enrolled with this token: to create keys, and to
    /// destroy them. A token that leaves the rights open does not change those of a node that is
    /// enrolled already with the same role. Errors are those of the store, such as SR-8435 when it
    /// does not answer.
    fn rights_with(&self, token: &Token, former: Option<&Node>) -> Result<(bool, bool), Error> {
        let of_token = (token.may_create, token.may_destroy);
        let Some(former) = former.filter(|_| token.keeps_rights) else {
            return Ok(of_token);
        };
        let found: Guarded<Identity> = self.read(&identity_path(&former.spki))?;
        let same = found.record.filter(|was| was.role == token.role);
        Ok(same.map_or(of_token, |was| (was.may_create, was.may_destroy)))
    }

    /// Removes the grants of a client that is no longer enrolled (E4), in several commits without
    /// rows of the audit log. Does nothing while a client of this name is enrolled. Errors are
    /// those of the store, such as SR-8435 when it does not answer.
    pub(super) fn remove_grants_of(&self, name: &str) -> Result<(), Error> {
        let prefix = format!("{GRANTS}{name}/");
        loop {
            let found: Guarded<Node> = self.read(&node_path(name))?;
            let page = self.list::<Grant>(&prefix, "", GRANTS_AT_ONCE)?;
            // If the client was enrolled anew in the meantime, the grants are its own.
            if found.record.is_some() || page.is_empty() {
                return Ok(());
            }
            let deleted = |(key, _)| Change::Delete {
                path: grant_path(name, key),
            };
            let changes = page
                .iter()
                .map(|(key, grant)| deleted((key.as_str(), grant)))
                .collect();
            self.commit(vec![found.guard], changes, Vec::new())?;
        }
    }
}
