//! Destroying a key: scheduling and postponing it, the consent of a second administrator,
//! withdrawing it, erasing the key; and which objects would be lost with the key.
//!
//! Invariants:
//! - D1: No key is erased before the least delay has passed, not even by an administrator.
//! - D2: Where two administrators have to agree, they are two different clients, both
//!   administrators, and both requested the same time.
//! - D3: One of the two alone cannot bring a destruction forward.
//!
//! Must not: erase a key that was restored in the meantime; accept the request of a client that is
//! no longer an administrator.

use serde::Serialize;
use strongroom_format::code;
use strongroom_keyring::Error;

use super::identify::Client;
use super::key_access::KeyChange;
use super::key_info::{KeyInfo, effective_state, request_expires};
use super::operation::Plan;
use super::peer::Peer;
use super::state::{RECORDS_MAX, Service};
use crate::audit::Event;
use crate::now;
use crate::paths::{GRANTS, OBJECTS, key_path};
use crate::records::{DestroyRequest, Grant, Guarded, Key, Object, Role, State};

/// The longest time after which a key can be scheduled to be destroyed.
const DESTROY_AFTER_MAX_S: u64 = 366 * 86_400;
/// The most objects that are listed by name. All of them are counted.
const NAMED_MAX: usize = 20;

/// The objects that would be lost with a key, and the nodes that use it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Needs {
    /// Objects whose last report names the key.
    pub objects: usize,
    /// Some of these objects.
    pub named: Vec<Need>,
    /// Nodes to which the key is granted.
    pub nodes: Vec<String>,
    /// Whether all records were read; false when there were too many.
    pub complete: bool,
}

/// An object that needs a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Need {
    /// Its id.
    pub object_id: String,
    /// `volume`, `sqlite`, `instance` or `backup`.
    pub kind: String,
    /// The name that its node gave it.
    pub name: String,
    /// The node that reported it.
    pub node: String,
}

impl Service {
    /// Returns the objects that would be lost with a key, as far as nodes have reported them, and
    /// the nodes that are granted it. Objects that were shredded do not count.
    ///
    /// # Errors
    /// SR-8422 for a node without the right to destroy it; SR-8423 for a node without a grant;
    /// SR-8454 when there is no such key; as for every request SR-8420 without a certificate,
    /// SR-8421 for one that is not enrolled, SR-8435 when the store fails.
    pub fn needs(&self, peer: &Peer, name: &str) -> Result<Needs, Error> {
        self.run(peer, "needs", name, |client| {
            let (_, _, grant) = self.read_key(client, name)?;
            let may = grant.is_some_and(|grant| grant.may_destroy);
            if !may {
                client.must_be(&[Role::Admin, Role::Viewer])?;
            }
            let mut needs = Needs::default();
            let more_objects = self.add_objects(name, &mut needs)?;
            let more_nodes = self.add_nodes(name, &mut needs)?;
            needs.complete = !more_objects && !more_nodes;
            Ok(Plan::read(needs))
        })
    }

    /// Adds the objects that name the key, except shredded ones, to `needs`: all to the count, and
    /// the first [`NAMED_MAX`] by name. True when there may be more than were read. Errors are
    /// those of the store, such as SR-8435 when it does not answer.
    fn add_objects(&self, key: &str, needs: &mut Needs) -> Result<bool, Error> {
        self.for_each::<Object>(OBJECTS, RECORDS_MAX, |id, object| {
            // The data of a shredded object is lost already.
            if object.report.key_id != key || object.report.shredded.is_some() {
                return;
            }
            needs.objects = needs.objects.saturating_add(1);
            if needs.named.len() < NAMED_MAX {
                needs.named.push(Need {
                    object_id: id,
                    kind: object.report.kind,
                    name: object.report.name,
                    node: object.node,
                });
            }
        })
    }

    /// Adds the nodes to which the key is granted to `needs`. True when there may be more than were
    /// read. Errors are those of the store, such as SR-8435 when it does not answer.
    fn add_nodes(&self, key: &str, needs: &mut Needs) -> Result<bool, Error> {
        self.for_each::<Grant>(GRANTS, RECORDS_MAX, |path, _| {
            if let Some((node, granted)) = path.split_once('/')
                && granted == key
            {
                needs.nodes.push(node.to_owned());
            }
        })
    }

    /// Schedules the destruction of a key in `after_s` seconds, or after the configured time; until
    /// then it is not delivered and can be restored. With 0, where the configuration allows that,
    /// it is erased at once. Where two administrators have to agree, the first one's request only
    /// waits for the second one's, which names the same time or none. The audit log gets a row.
    ///
    /// # Errors
    /// SR-8422 for a node without the right; SR-8423 or SR-8454 when there is no such key; SR-8425
    /// when it is destroyed; SR-8429 for a time longer than a year; SR-8452 for one shorter than
    /// the least; SR-8458 when the first administrator requested another time; as for every request
    /// SR-8420 without a certificate, SR-8421 for one that is not enrolled, SR-8435 when the store
    /// fails, SR-8442 when others keep changing the record.
    pub fn destroy_key(
        &self,
        peer: &Peer,
        name: &str,
        after_s: Option<u64>,
    ) -> Result<KeyInfo, Error> {
        let rules = self.rules();
        if after_s.is_some_and(|after| after > DESTROY_AFTER_MAX_S) {
            let detail = "after_seconds: at most a year";
            return Err(Error::new(&code::SERVER_REQUEST, detail));
        }
        let info = self.change_key(peer, "destroy", name, |client, key, grant| {
            let request = key.destroy_asked.as_ref();
            let requested = request.and_then(|request| request.after_seconds);
            let after = after_s.or(requested).unwrap_or(rules.destroy_after_s);
            let may = grant.is_some_and(|grant| grant.may_destroy);
            let may = may && !rules.needs_two_administrators && after >= rules.destroy_after_s;
            if !client.is_admin() && !may {
                let detail =
                    "it may not destroy this key, or not so soon, or two administrators must";
                return Err(Error::new(&code::SERVER_ROLE, detail));
            }
            if effective_state(key) == State::Destroyed {
                return Err(Error::new(&code::SERVER_DESTROYED, name));
            }
            if after < rules.destroy_least_s {
                let waits = match requested.is_some() && after_s.is_none() {
                    true => "; the request that waits is for less: withdraw it and ask anew",
                    false => "",
                };
                let detail = format!("{} days at least{waits}", rules.destroy_least_s / 86_400);
                return Err(Error::new(&code::SERVER_TOO_SOON, detail));
            }
            let needs_two = rules.needs_two_administrators;
            let detail = schedule_destruction(client, key, after, needs_two)?;
            Ok(KeyChange { version: 0, detail })
        })?;
        if info.state == State::Destroyed {
            self.erase(name)?;
        }
        Ok(info)
    }

    /// Cancels the scheduled destruction of a key, and withdraws a request for it that waits. A key
    /// whose destruction was scheduled is disabled afterwards, so that an administrator looks at it
    /// before it is delivered again. The audit log gets a row.
    ///
    /// # Errors
    /// SR-8423 for a node without a grant; SR-8422 for every other client that is no administrator;
    /// SR-8454 when there is no such key; SR-8425 when it is destroyed; SR-8439 for an active key
    /// without such a request; as for every request SR-8420 without a certificate, SR-8421 for one
    /// that is not enrolled, SR-8435 when the store fails, SR-8442 when others keep changing the
    /// record.
    pub fn restore_key(&self, peer: &Peer, name: &str) -> Result<KeyInfo, Error> {
        self.change_key(peer, "restore", name, |client, key, _| {
            client.must_be(&[Role::Admin])?;
            let state = effective_state(key);
            let request = key.destroy_asked.take();
            match state {
                State::Destroyed => return Err(Error::new(&code::SERVER_DESTROYED, name)),
                State::Active if request.is_none() => {
                    let detail = format!("{name}: {}", state.name());
                    return Err(Error::new(&code::SERVER_STATE, detail));
                }
                State::DestroyPending => {
                    (key.state, key.destroy_at) = (State::Disabled, None);
                }
                // The key may be disabled because this is a repeated request, whose first response
                // was lost.
                State::Active | State::Disabled => {}
            }
            let detail = request.as_ref().map(describe_withdrawn).unwrap_or_default();
            Ok(KeyChange { version: 0, detail })
        })
    }

    /// Withdraws a request for the key's destruction that waits for a second administrator. The
    /// key's state does not change. The audit log gets a row.
    ///
    /// # Errors
    /// SR-8423 for a node without a grant; SR-8422 for every other client that is no administrator;
    /// SR-8454 when there is no such key; SR-8439 when no request waits; as for every request
    /// SR-8420 without a certificate, SR-8421 for one that is not enrolled, SR-8435 when the store
    /// fails, SR-8442 when others keep changing the record.
    pub fn withdraw_destroy(&self, peer: &Peer, name: &str) -> Result<KeyInfo, Error> {
        self.change_key(peer, "destroy-withdraw", name, |client, key, _| {
            client.must_be(&[Role::Admin])?;
            let none = || {
                let detail = format!("{name}: no destruction waits for a second administrator");
                Error::new(&code::SERVER_STATE, detail)
            };
            let request = key.destroy_asked.take().ok_or_else(none)?;
            let detail = describe_withdrawn(&request);
            Ok(KeyChange { version: 0, detail })
        })
    }

    /// Erases the bytes of a key whose time of destruction has passed, with a row of the audit log,
    /// and has the store erase the old record. True when this call erased them; false when there is
    /// no such key, its time has not passed, or it was restored in the meantime. Errors are those
    /// of the store, such as SR-8435 when it does not answer.
    pub(super) fn erase(&self, name: &str) -> Result<bool, Error> {
        let found: Guarded<Key> = self.read(&key_path(name))?;
        let Some(mut key) = found.record else {
            return Ok(false);
        };
        if key.state != State::DestroyPending || effective_state(&key) != State::Destroyed {
            return Ok(false);
        }
        key.state = State::Destroyed;
        key.destroy_asked = None;
        for version in &mut key.versions {
            version.wrapped = String::new();
        }
        let event = Event {
            actor: "-".to_owned(),
            address: "-".to_owned(),
            action: "destroyed".to_owned(),
            subject: name.to_owned(),
            ..Event::default()
        };
        let changes = vec![
            self.put(&key_path(name), &key)?,
            self.update_pending(name, &key)?,
        ];
        // The guard fails when the key was restored in the meantime.
        let done = self.commit(vec![found.guard], changes, vec![event])?;
        if done {
            self.store.scrub()?;
        }
        Ok(done)
    }
}

/// Schedules the destruction of `key` in `after` seconds, in memory; the caller commits the record.
/// With `needs_two`, the first administrator's call only records a request in the key, and a second
/// one's call with the same time schedules the destruction. Returns the detail of the row of the
/// audit log.
///
/// Two administrators are needed to schedule a destruction, and to bring a scheduled one forward.
/// One is enough to postpone it, as for `restore`, and withdraws the request of another one. A
/// node's call never postpones a destruction.
///
/// # Errors
/// SR-8458 when another administrator has requested another time.
fn schedule_destruction(
    client: &Client,
    key: &mut Key,
    after: u64,
    needs_two: bool,
) -> Result<String, Error> {
    let pending = key.destroy_at;
    let pending = pending.filter(|_| key.state == State::DestroyPending);
    let mut at = now().saturating_add(after);
    let is_sooner = pending.is_none_or(|pending| at < pending);
    let request = key.destroy_asked.take();
    let others = request.filter(|request| request.by != client.identity.name);
    let mut why = String::new();
    match others {
        Some(other) if other.after_seconds == Some(after) => {
            // The second request came later, but must not postpone a destruction that is scheduled.
            at = pending.map_or(at, |pending| pending.min(at));
            why = format!(", asked for by {}", other.by);
        }
        Some(other) if needs_two && is_sooner => {
            let requested = other.after_seconds.unwrap_or_default();
            let detail = format!("{} asked for after_seconds {requested}", other.by);
            return Err(Error::new(&code::SERVER_ASKED_OTHERWISE, detail));
        }
        _ if needs_two && is_sooner => {
            let request = DestroyRequest {
                by: client.identity.name.clone(),
                at: now(),
                after_seconds: Some(after),
                enrolment: client.identity.enrolment.clone(),
            };
            let until = request_expires(&request);
            key.destroy_asked = Some(request);
            return Ok(format!(
                "after_seconds {after}, waits for another administrator until {until}"
            ));
        }
        Some(other) => why = format!(", {}", describe_withdrawn(&other)),
        None => {}
    }
    if !client.is_admin() {
        // A node must not postpone what an administrator has scheduled.
        at = pending.map_or(at, |pending| pending.min(at));
    }
    (key.state, key.destroy_at) = (State::DestroyPending, Some(at));
    Ok(format!("after_seconds {after}, destroy_at {at}{why}"))
}

/// Returns what a row of the audit log says of a request that was withdrawn.
fn describe_withdrawn(request: &DestroyRequest) -> String {
    let after = request.after_seconds.unwrap_or_default();
    format!(
        "taken back: after_seconds {after}, asked for by {}",
        request.by
    )
}
