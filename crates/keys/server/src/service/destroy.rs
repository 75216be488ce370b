//! The end of a key: asked for, put off, agreed to by a second administrator, taken back, carried
//! out; and what would be lost with it.
//!
//! Invariants: D1, nobody has a key erased before the least delay is over, administrators neither;
//! D2, where two have to agree, the second is an administrator and another client than the first,
//! and both asked for the same time; D3, one of them alone brings no destruction forward.
//!
//! Must not: erase what was restored meanwhile; count a request of a client that is no
//! administrator any more.

use serde::Serialize;
use strongroom_format::code;
use strongroom_keyring::Error;

use super::clients::node_path;
use super::keys::{Changed, KeyInfo, effective, key_path};
use super::{Client, Peer, Plan, RECORDS_MAX, Service, identity_path};
use crate::now;
use crate::records::{
    Asked, Found, GRANTS, Grant, Identity, Key, Node, OBJECTS, Object, Role, State,
};
use crate::store::Guard;

/// Latest time until which destruction can be put off.
const DESTROY_AFTER_MAX_S: u64 = 366 * 86_400;
/// How long an administrator's request waits for another's, in seconds.
const ASKED_S: u64 = 7 * 86_400;
/// Objects that are named. All are counted.
const NAMED_MAX: usize = 20;

/// What would be lost with a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Needs {
    /// Objects whose last report names the key.
    pub objects: usize,
    /// Some of them.
    pub named: Vec<Need>,
    /// Nodes that are granted it.
    pub nodes: Vec<String>,
    /// Whether everything was looked through.
    pub complete: bool,
}

/// An object that needs a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Need {
    /// Its id.
    pub object_id: String,
    /// `volume`, `sqlite`, `instance` or `backup`.
    pub kind: String,
    /// What its node calls it.
    pub name: String,
    /// Its node.
    pub node: String,
}

/// What is told of a request for a key's destruction that waits for a second administrator. The
/// members stand among those of the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AskedInfo {
    /// Who asked.
    pub destroy_asked_by: String,
    /// When, in seconds since the Unix epoch.
    pub destroy_asked_at: u64,
    /// How many seconds after the second one's request the key is to be destroyed.
    pub destroy_asked_after_seconds: u64,
    /// When the request ends, in seconds since the Unix epoch.
    pub destroy_asked_until: u64,
}

impl AskedInfo {
    /// `None` for a request of an older build, which does not say a time.
    pub(super) fn of(asked: Asked) -> Option<Self> {
        Some(Self {
            destroy_asked_after_seconds: asked.after_seconds?,
            destroy_asked_until: until(&asked),
            destroy_asked_by: asked.by,
            destroy_asked_at: asked.at,
        })
    }
}

impl Service {
    /// What needs a key, as far as nodes have reported it.
    ///
    /// # Errors
    /// SR-8422 for a node without the right to destroy it; SR-8423.
    pub fn needs(&self, peer: &Peer, name: &str) -> Result<Needs, Error> {
        self.run(peer, "needs", name, |client| {
            let (_, _, grant) = self.known(client, name)?;
            let may = grant.is_some_and(|grant| grant.may_destroy);
            if !may {
                client.must_be(&[Role::Admin, Role::Viewer])?;
            }
            let mut needs = Needs::default();
            let more_objects = self.objects_with(name, &mut needs)?;
            let more_nodes = self.nodes_with(name, &mut needs)?;
            needs.complete = !more_objects && !more_nodes;
            Ok(Plan::read(needs))
        })
    }

    fn objects_with(&self, key: &str, needs: &mut Needs) -> Result<bool, Error> {
        self.each::<Object>(OBJECTS, RECORDS_MAX, |id, object| {
            // Nothing is lost with the key of what was destroyed before.
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

    fn nodes_with(&self, key: &str, needs: &mut Needs) -> Result<bool, Error> {
        self.each::<Grant>(GRANTS, RECORDS_MAX, |path, _| {
            if let Some((node, granted)) = path.split_once('/')
                && granted == key
            {
                needs.nodes.push(node.to_owned());
            }
        })
    }

    /// Has the key destroyed after a time, until which it can be restored. Where two administrators
    /// have to agree, the first one's request waits for the second one's, which says the same time
    /// or none.
    ///
    /// # Errors
    /// SR-8422 for a node without the right to; SR-8423; SR-8425; SR-8429 for a time beyond a year;
    /// SR-8452 for one below the least; SR-8458 for another time than the one that was asked for.
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
            let asked = key.destroy_asked.as_ref();
            let asked = asked.and_then(|asked| asked.after_seconds);
            let after = after_s.or(asked).unwrap_or(rules.destroy_after_s);
            let may = grant.is_some_and(|grant| grant.may_destroy);
            let may = may && !rules.is_destroyed_by_two && after >= rules.destroy_after_s;
            if !client.is_admin() && !may {
                let detail =
                    "it may not destroy this key, or not so soon, or two administrators must";
                return Err(Error::new(&code::SERVER_ROLE, detail));
            }
            if effective(key) == State::Destroyed {
                return Err(Error::new(&code::SERVER_DESTROYED, name));
            }
            if after < rules.destroy_least_s {
                let waits = match asked.is_some() && after_s.is_none() {
                    true => "; the request that waits is for less: take it back and ask anew",
                    false => "",
                };
                let detail = format!("{} days at least{waits}", rules.destroy_least_s / 86_400);
                return Err(Error::new(&code::SERVER_TOO_SOON, detail));
            }
            let needs_two = rules.is_destroyed_by_two;
            let detail = schedule_destruction(client, key, after, needs_two)?;
            Ok(Changed { version: 0, detail })
        })?;
        if info.state == State::Destroyed {
            self.erase(name)?;
        }
        Ok(info)
    }

    /// Takes back that the key is to be destroyed, and a request for it that waits. A key that was
    /// to be destroyed is disabled then: whoever restores it looks first.
    ///
    /// # Errors
    /// SR-8422, SR-8423, SR-8425; SR-8439 for an active key without such a request.
    pub fn restore_key(&self, peer: &Peer, name: &str) -> Result<KeyInfo, Error> {
        self.change_key(peer, "restore", name, |client, key, _| {
            client.must_be(&[Role::Admin])?;
            let state = effective(key);
            let asked = key.destroy_asked.take();
            match state {
                State::Destroyed => return Err(Error::new(&code::SERVER_DESTROYED, name)),
                State::Active if asked.is_none() => {
                    let detail = format!("{name}: {}", state.name());
                    return Err(Error::new(&code::SERVER_STATE, detail));
                }
                State::DestroyPending => {
                    (key.state, key.destroy_at) = (State::Disabled, None);
                }
                // Of a disabled one: asked twice, because the first answer was lost.
                State::Active | State::Disabled => {}
            }
            let detail = asked.as_ref().map(taken_back).unwrap_or_default();
            Ok(Changed { version: 0, detail })
        })
    }

    /// Takes back a request for the key's destruction that waits for a second administrator, and
    /// leaves the key as it is.
    ///
    /// # Errors
    /// SR-8422 unless administrator; SR-8423; SR-8439 when no request waits.
    pub fn withdraw_destroy(&self, peer: &Peer, name: &str) -> Result<KeyInfo, Error> {
        self.change_key(peer, "destroy-withdraw", name, |client, key, _| {
            client.must_be(&[Role::Admin])?;
            let none = || {
                let detail = format!("{name}: no destruction waits for a second administrator");
                Error::new(&code::SERVER_STATE, detail)
            };
            let asked = key.destroy_asked.take().ok_or_else(none)?;
            let detail = taken_back(&asked);
            Ok(Changed { version: 0, detail })
        })
    }

    /// Removes from `key`, in memory, a request for its destruction that is no longer valid: it has
    /// expired, one administrator is enough by now, or the administrator who made it was revoked,
    /// enrolled anew, or has another role. Returns guards on the records by which that was decided;
    /// a commit that depends on the decision has to carry them. None when there is no request.
    ///
    /// # Errors
    /// What the store reports.
    pub(super) fn drop_stale_request(&self, key: &mut Key) -> Result<Vec<Guard>, Error> {
        let Some(asked) = &key.destroy_asked else {
            return Ok(Vec::new());
        };
        let node: Found<Node> = self.read(&node_path(&asked.by))?;
        let mut guards = vec![node.guard];
        let mut identity = None;
        if let Some(node) = node.record {
            let found: Found<Identity> = self.read(&identity_path(&node.spki))?;
            guards.push(found.guard);
            identity = found.record;
        }
        let by_two = self.rules().is_destroyed_by_two && effective(key) != State::Destroyed;
        if !by_two || !counts(asked, identity.as_ref()) {
            key.destroy_asked = None;
        }
        Ok(guards)
    }

    /// Erases the material of a key whose time has come. True when there was something to erase.
    pub(super) fn erase(&self, name: &str) -> Result<bool, Error> {
        let found: Found<Key> = self.read(&key_path(name))?;
        let Some(mut key) = found.record else {
            return Ok(false);
        };
        if key.state != State::DestroyPending || effective(&key) != State::Destroyed {
            return Ok(false);
        }
        key.state = State::Destroyed;
        key.destroy_asked = None;
        for version in &mut key.versions {
            version.wrapped = String::new();
        }
        let event = crate::audit::Event {
            actor: "-".to_owned(),
            address: "-".to_owned(),
            action: "destroyed".to_owned(),
            subject: name.to_owned(),
            ..crate::audit::Event::default()
        };
        let changes = vec![self.put(&key_path(name), &key)?, self.pending(name, &key)?];
        // Restored meanwhile: then it is not to be erased.
        let done = self.commit(None, vec![found.guard], changes, vec![event])?;
        if done {
            self.store.scrub()?;
        }
        Ok(done)
    }
}

/// Whether a request still counts. `identity` is the one that its administrator's name has now.
fn counts(asked: &Asked, identity: Option<&Identity>) -> bool {
    let is_fresh = asked.after_seconds.is_some() && until(asked) > now();
    let is_the_same = identity.is_some_and(|identity| {
        let is_admin = identity.role == Role::Admin && identity.expires > now();
        is_admin && asked.enrolment == identity.enrolment
    });
    is_fresh && is_the_same
}

/// When a request ends, in seconds since the Unix epoch.
fn until(asked: &Asked) -> u64 {
    asked.at.saturating_add(ASKED_S)
}

/// Schedules the destruction of `key` in `after` seconds, in memory; the caller commits the record.
/// With `needs_two`, the first administrator's call only records a request in the key, and a second
/// one's call with the same time schedules the destruction. Returns the text for the column
/// `detail` of the audit log.
///
/// Two administrators are needed to schedule a destruction, and to bring a scheduled one forward.
/// One is enough to postpone it, as for `restore`.
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
    let asked = key.destroy_asked.take();
    let others = asked.filter(|asked| asked.by != client.identity.name);
    let mut why = String::new();
    match others {
        Some(other) if other.after_seconds == Some(after) => {
            // The time that both asked for began later for the second one. It puts nothing off.
            at = pending.map_or(at, |pending| pending.min(at));
            why = format!(", asked for by {}", other.by);
        }
        Some(other) if needs_two && is_sooner => {
            let asked = other.after_seconds.unwrap_or_default();
            let detail = format!("{} asked for after_seconds {asked}", other.by);
            return Err(Error::new(&code::SERVER_ASKED_OTHERWISE, detail));
        }
        _ if needs_two && is_sooner => {
            let asked = Asked {
                by: client.identity.name.clone(),
                at: now(),
                after_seconds: Some(after),
                enrolment: client.identity.enrolment.clone(),
            };
            let until = until(&asked);
            key.destroy_asked = Some(asked);
            return Ok(format!(
                "after_seconds {after}, waits for another administrator until {until}"
            ));
        }
        Some(other) => why = format!(", {}", taken_back(&other)),
        None => {}
    }
    if !client.is_admin() {
        // What an administrator ordered is not put off by a node.
        at = pending.map_or(at, |pending| pending.min(at));
    }
    (key.state, key.destroy_at) = (State::DestroyPending, Some(at));
    Ok(format!("after_seconds {after}, destroy_at {at}{why}"))
}

/// What a row of the audit log says of a request that ends before its time.
fn taken_back(asked: &Asked) -> String {
    let after = asked.after_seconds.unwrap_or_default();
    format!(
        "taken back: after_seconds {after}, asked for by {}",
        asked.by
    )
}
