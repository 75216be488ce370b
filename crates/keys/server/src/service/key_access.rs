//! Reading and changing a key's record on behalf of a client.
//!
//! Invariants: V3; a change of a key carries guards on every record that decided about it.

use strongroom_format::code;
use strongroom_keyring::Error;

use super::checks::check_name;
use super::identify::Client;
use super::key_info::{KeyInfo, effective_state, request_expires};
use super::operation::Plan;
use super::peer::Peer;
use super::state::Service;
use crate::now;
use crate::paths::{grant_path, identity_path, key_path, node_path, pending_path};
use crate::records::{DestroyRequest, Grant, Guarded, Identity, Key, Node, Role, State};
use crate::store::{Change, Guard};

/// What a change of a key adds to its row of the audit log.
#[derive(Default)]
pub(super) struct KeyChange {
    /// The version that was created; 0 when none was.
    pub(super) version: u32,
    /// The row's detail.
    pub(super) detail: String,
}

impl Service {
    /// Reads a key if the client may know of it. Returns the key, the guards with which a commit
    /// fails if what was read has changed since, and the client's grant, which an administrator or
    /// a viewer need not have. Locks nothing.
    ///
    /// # Errors
    /// SR-8423 for a node without a grant, whether the key exists or not, so that it learns nothing
    /// (V3 in `service/mod.rs`); SR-8454 for an administrator or a viewer when the key does not
    /// exist; SR-8429 for an invalid name; what the store reports.
    pub(super) fn read_key(
        &self,
        client: &Client,
        name: &str,
    ) -> Result<(Key, Vec<Guard>, Option<Grant>), Error> {
        check_name(name)?;
        let grant: Guarded<Grant> = self.read(&grant_path(&client.identity.name, name))?;
        let key: Guarded<Key> = self.read(&key_path(name))?;
        if client.identity.role == Role::Node && grant.record.is_none() {
            return Err(Error::new(&code::SERVER_NO_SUCH, name));
        }
        let missing = match client.identity.role {
            Role::Node => &code::SERVER_NO_SUCH,
            Role::Admin | Role::Viewer => &code::SERVER_NO_KEY,
        };
        let (key, guard) = key.require_or(missing, name)?;
        Ok((key, vec![guard, grant.guard], grant.record))
    }

    /// Changes a key that the client may know of, in one commit with a row of the audit log, and
    /// returns its description. `change` gets the key without a stale request for its destruction,
    /// changes it in memory, and returns what the row says; it may be called again when records
    /// have changed.
    ///
    /// # Errors
    /// SR-8422 for a viewer; those of [`Service::read_key`] and of `change`; as for every request
    /// SR-8420 without a certificate, SR-8421 for one that is not enrolled, SR-8435 when the store
    /// fails, SR-8442 when others keep changing the record.
    pub(super) fn change_key(
        &self,
        peer: &Peer,
        action: &str,
        name: &str,
        change: impl Fn(&Client, &mut Key, Option<&Grant>) -> Result<KeyChange, Error>,
    ) -> Result<KeyInfo, Error> {
        self.run(peer, action, name, |client| {
            client.must_be(&[Role::Admin, Role::Node])?;
            let (mut key, mut guards, grant) = self.read_key(client, name)?;
            guards.extend(self.drop_stale_request(&mut key)?);
            let mut event = client.event(action, name);
            let changed = change(client, &mut key, grant.as_ref())?;
            (event.version, event.detail) = (changed.version, changed.detail);
            let mut changes = vec![self.put(&key_path(name), &key)?];
            changes.push(self.update_pending(name, &key)?);
            let value = KeyInfo::of(name, key);
            Ok(Plan {
                value,
                guards,
                changes,
                events: vec![event],
            })
        })
    }

    /// Returns the change that brings the list of pending destructions in line with this key: it
    /// enters the key's time of destruction, or removes the key from the list. SR-5001 if it cannot
    /// be sealed.
    pub(super) fn update_pending(&self, name: &str, key: &Key) -> Result<Change, Error> {
        let path = pending_path(name);
        match (key.state, key.destroy_at) {
            (State::DestroyPending, Some(at)) => self.put(&path, &at),
            _ => Ok(Change::Delete { path }),
        }
    }

    /// Removes from `key`, in memory, a request for its destruction that is no longer valid: it has
    /// expired or names no time, one administrator is enough by now, the key is destroyed, or the
    /// administrator who made it was revoked, enrolled anew, or has another role. Returns guards on
    /// the records by which that was decided, which a commit that depends on the decision has to
    /// carry; none when there is no request.
    ///
    /// # Errors
    /// What the store reports: SR-8435 when it does not answer, or a record is damaged.
    pub(super) fn drop_stale_request(&self, key: &mut Key) -> Result<Vec<Guard>, Error> {
        let Some(request) = &key.destroy_asked else {
            return Ok(Vec::new());
        };
        let node: Guarded<Node> = self.read(&node_path(&request.by))?;
        let mut guards = vec![node.guard];
        let mut identity = None;
        if let Some(node) = node.record {
            let found: Guarded<Identity> = self.read(&identity_path(&node.spki))?;
            guards.push(found.guard);
            identity = found.record;
        }
        let needs_two =
            self.rules().needs_two_administrators && effective_state(key) != State::Destroyed;
        if !needs_two || !is_valid(request, identity.as_ref()) {
            key.destroy_asked = None;
        }
        Ok(guards)
    }
}

/// Whether a request for destruction is still valid: it names a time, has not expired, and
/// `identity`, the present one of the administrator's name, is an administrator of the same
/// enrolment.
fn is_valid(request: &DestroyRequest, identity: Option<&Identity>) -> bool {
    let is_fresh = request.after_seconds.is_some() && request_expires(request) > now();
    let is_the_same = identity.is_some_and(|identity| {
        let is_admin = identity.role == Role::Admin && identity.expires > now();
        is_admin && request.enrolment == identity.enrolment
    });
    is_fresh && is_the_same
}
