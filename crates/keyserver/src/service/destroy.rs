//! The end of a key: asked for, put off, wanted by a second administrator, carried out; and what
//! would be lost with it.
//!
//! Invariants: D1, nobody has a key erased before the least delay is over, administrators neither;
//! D2, where two have to want it, the second is an administrator and another client than the first.
//!
//! Must not: erase what was restored meanwhile.

use serde::Serialize;
use strongroom_format::code;
use strongroom_keyring::Error;

use super::keys::{KeyInfo, effective, key_path};
use super::{Client, Peer, Plan, RECORDS_MAX, Service};
use crate::now;
use crate::records::{Asked, Found, GRANTS, Grant, Key, OBJECTS, Object, Role, State};

/// Latest time until which destruction can be put off.
const DESTROY_AFTER_MAX_S: u64 = 366 * 86_400;
/// How long somebody's wish to have a key destroyed waits for another's.
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

    /// Has the key destroyed after a time, until which it can be restored.
    ///
    /// # Errors
    /// SR-8422 for a node without the right to; SR-8423; SR-8425; SR-8429 for a time beyond a year;
    /// SR-8452 for one below the least.
    pub fn destroy_key(
        &self,
        peer: &Peer,
        name: &str,
        after_s: Option<u64>,
    ) -> Result<KeyInfo, Error> {
        let rules = self.rules();
        let after = after_s.unwrap_or(rules.destroy_after_s);
        if after > DESTROY_AFTER_MAX_S {
            let detail = "after_seconds: at most a year";
            return Err(Error::new(&code::SERVER_REQUEST, detail));
        }
        let info = self.change_key(peer, "destroy", name, |client, key, grant| {
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
                let detail = format!("{} days at least", rules.destroy_least_s / 86_400);
                return Err(Error::new(&code::SERVER_TOO_SOON, detail));
            }
            let is_new = key.state != State::DestroyPending;
            if rules.is_destroyed_by_two && is_new && !is_wanted_by_another(client, key) {
                key.destroy_asked = Some(Asked {
                    by: client.identity.name.clone(),
                    at: now(),
                });
                return Ok(0);
            }
            let mut at = now().saturating_add(after);
            if !client.is_admin() && key.state == State::DestroyPending {
                // What an administrator ordered is not put off by a node.
                at = key.destroy_at.map_or(at, |ordered| ordered.min(at));
            }
            (key.state, key.destroy_at) = (State::DestroyPending, Some(at));
            key.destroy_asked = None;
            Ok(0)
        })?;
        if info.state == State::Destroyed {
            self.erase(name)?;
        }
        Ok(info)
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

/// Whether this client is the second that a destruction needs.
fn is_wanted_by_another(client: &Client, key: &Key) -> bool {
    let asked = key.destroy_asked.as_ref();
    asked.is_some_and(|asked| {
        asked.by != client.identity.name && asked.at.saturating_add(ASKED_S) > now()
    })
}
