//! Clients and grants: listing clients, revoking them, granting keys to nodes.

use serde::Serialize;
use strongroom_format::code;
use strongroom_keyring::Error;

use super::checks::check_name;
use super::expiry::{ClientExpiry, ExpiryCache};
use super::identify::delete_identities;
use super::operation::Plan;
use super::peer::Peer;
use super::state::Service;
use crate::now;
use crate::paths::{GRANTS, IDENTITIES, NODES, grant_path, identity_path, key_path, node_path};
use crate::records::{Grant, Guarded, Identity, Key, Node, Role};
use crate::store::Change;

/// A client, as viewers and administrators see it.
#[derive(Clone, Debug, Serialize)]
pub struct NodeInfo {
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Whether it may create keys.
    pub may_create: bool,
    /// Whether it may destroy the keys that it creates.
    pub may_destroy: bool,
    /// When it was enrolled, in seconds since the Unix epoch.
    pub enrolled: u64,
    /// When its certificate expires, in seconds since the Unix epoch.
    pub expires: u64,
    /// SHA-256 of its public key, in hexadecimal digits.
    pub spki: String,
}

/// A grant, as viewers and administrators see it.
#[derive(Clone, Debug, Serialize)]
pub struct GrantInfo {
    /// The node.
    pub node: String,
    /// The key.
    pub key: String,
    /// When it was granted, in seconds since the Unix epoch.
    pub granted: u64,
    /// Whether the node may destroy the key.
    pub may_destroy: bool,
}

impl Service {
    /// Returns at most `limit` clients with names greater than `after`, in order.
    ///
    /// # Errors
    /// SR-8422 unless the client is a viewer or an administrator; as for every request SR-8420
    /// without a certificate, SR-8421 for one that is not enrolled, SR-8435 when the store fails.
    pub fn nodes(&self, peer: &Peer, after: &str, limit: usize) -> Result<Vec<NodeInfo>, Error> {
        self.run(peer, "nodes", "", |client| {
            client.must_be(&[Role::Admin, Role::Viewer])?;
            let mut infos = Vec::new();
            for (name, node) in self.list::<Node>(NODES, after, limit)? {
                let found: Guarded<Identity> = self.read(&identity_path(&node.spki))?;
                infos.extend(found.record.map(|identity| NodeInfo {
                    name,
                    role: identity.role,
                    may_create: identity.may_create,
                    may_destroy: identity.may_destroy,
                    enrolled: identity.enrolled,
                    expires: identity.expires,
                    spki: node.spki,
                }));
            }
            Ok(Plan::read(infos))
        })
    }

    /// Returns how many clients' certificates have expired or expire soon. They are counted at most
    /// once a minute; certificates that were not used yet are left out.
    ///
    /// # Errors
    /// What the store reports: SR-8435 when it does not answer, or a record is damaged.
    pub fn client_expiry(&self) -> Result<ClientExpiry, Error> {
        let mut cached = self.expiry.lock();
        if let Some(expiry) = ExpiryCache::recent(*cached, now()) {
            return Ok(expiry);
        }
        let mut expiry = ClientExpiry::default();
        self.for_each::<Identity>(IDENTITIES, usize::MAX, |_, identity| {
            if !identity.unused {
                expiry.count(identity.expires.saturating_sub(now()));
            }
        })?;
        *cached = Some((now(), expiry));
        Ok(expiry)
    }

    /// Revokes a client: its certificates end at once, its unused tokens are removed with them, and
    /// then its grants. The audit log gets a row.
    ///
    /// # Errors
    /// SR-8422 unless the client is an administrator; SR-8455 when there is no such client; SR-8439
    /// when a client revokes itself, so that the last administrator stays; SR-8429 for an invalid
    /// name; as for every request SR-8420 without a certificate, SR-8421 for one that is not
    /// enrolled, SR-8435 when the store fails, SR-8442 when others keep changing the record.
    pub fn revoke(&self, peer: &Peer, name: &str) -> Result<(), Error> {
        check_name(name)?;
        self.run(peer, "revoke", name, |client| {
            client.must_be(&[Role::Admin])?;
            if client.identity.name == name {
                return Err(Error::new(
                    &code::SERVER_STATE,
                    "an administrator cannot revoke itself",
                ));
            }
            let (node, guard) = self
                .read::<Node>(&node_path(name))?
                .require_or(&code::SERVER_NO_CLIENT, name)?;
            let mut changes = delete_identities(&node);
            changes.push(Change::Delete {
                path: node_path(name),
            });
            // Without this, it could enrol again with a token that it has not used yet.
            changes.extend(self.delete_tokens_of(name)?);
            let events = vec![client.event("revoke", name)];
            Ok(Plan {
                value: (),
                guards: vec![guard],
                changes,
                events,
            })
        })?;
        self.remove_grants_of(name)
    }

    /// Grants a key to a node, with or without the right to destroy it, in place of a former grant.
    /// The audit log gets a row.
    ///
    /// # Errors
    /// SR-8422 unless the client is an administrator; SR-8455 when there is no such node; SR-8454
    /// when there is no such key; SR-8429 for an invalid name; as for every request SR-8420 without
    /// a certificate, SR-8421 for one that is not enrolled, SR-8435 when the store fails, SR-8442
    /// when others keep changing the record.
    pub fn grant(
        &self,
        peer: &Peer,
        node: &str,
        key: &str,
        may_destroy: bool,
    ) -> Result<(), Error> {
        check_name(node)?;
        check_name(key)?;
        self.run(peer, "grant", key, |client| {
            client.must_be(&[Role::Admin])?;
            let (_, node_guard) = self
                .read::<Node>(&node_path(node))?
                .require_or(&code::SERVER_NO_CLIENT, node)?;
            let (_, key_guard) = self
                .read::<Key>(&key_path(key))?
                .require_or(&code::SERVER_NO_KEY, key)?;
            let grant = Grant {
                granted: now(),
                may_destroy,
            };
            let changes = vec![self.put(&grant_path(node, key), &grant)?];
            let mut event = client.event("grant", key);
            event.detail = node.to_owned();
            Ok(Plan {
                value: (),
                guards: vec![node_guard, key_guard],
                changes,
                events: vec![event],
            })
        })
    }

    /// Returns at most `limit` grants after the grant `after`, written `node/key`, in order.
    ///
    /// # Errors
    /// SR-8422 unless the client is a viewer or an administrator; as for every request SR-8420
    /// without a certificate, SR-8421 for one that is not enrolled, SR-8435 when the store fails.
    pub fn grants(&self, peer: &Peer, after: &str, limit: usize) -> Result<Vec<GrantInfo>, Error> {
        self.run(peer, "grants", "", |client| {
            client.must_be(&[Role::Admin, Role::Viewer])?;
            let page = self.list::<Grant>(GRANTS, after, limit)?.into_iter();
            let infos = page.filter_map(|(path, grant)| {
                let (node, key) = path.split_once('/')?;
                Some(GrantInfo {
                    node: node.to_owned(),
                    key: key.to_owned(),
                    granted: grant.granted,
                    may_destroy: grant.may_destroy,
                })
            });
            Ok(Plan::read(infos.collect()))
        })
    }

    /// Removes a grant. The audit log gets a row.
    ///
    /// # Errors
    /// SR-8422 unless the client is an administrator; SR-8444 when there is no such grant; SR-8429
    /// for an invalid name; as for every request SR-8420 without a certificate, SR-8421 for one
    /// that is not enrolled, SR-8435 when the store fails, SR-8442 when others keep changing the
    /// record.
    pub fn ungrant(&self, peer: &Peer, node: &str, key: &str) -> Result<(), Error> {
        check_name(node)?;
        check_name(key)?;
        self.run(peer, "ungrant", key, |client| {
            client.must_be(&[Role::Admin])?;
            let path = grant_path(node, key);
            let detail = format!("{key} to {node}");
            let (_, guard) = self
                .read::<Grant>(&path)?
                .require_or(&code::SERVER_NO_GRANT, &detail)?;
            let mut event = client.event("ungrant", key);
            event.detail = node.to_owned();
            let changes = vec![Change::Delete { path }];
            Ok(Plan {
                value: (),
                guards: vec![guard],
                changes,
                events: vec![event],
            })
        })
    }
}
