//! Keys: creating, listing, delivering, rotating and disabling them. `destroy.rs` destroys them.
//!
//! Must not: deliver a key to a client without a grant, whatever its role.

use strongroom_crypto::{SecretKey, random16};
use strongroom_format::code;
use strongroom_format::hex::{from_hex, hex};
use strongroom_keyring::Error;

use super::checks::{check_name, check_text};
use super::key_access::KeyChange;
use super::key_info::{KeyInfo, Members, effective_state};
use super::operation::Plan;
use super::peer::Peer;
use super::state::Service;
use crate::keys::WrapContext;
use crate::now;
use crate::paths::{GRANTS, KEYS, PENDING, grant_path, key_path};
use crate::records::{Grant, Guarded, Key, Role, State, Version};

/// The most versions of a key. Its record must fit into the store.
const VERSIONS_MAX: usize = 2000;
/// How many of these nodes can create. Administrators can create the others, so that they can
/// rotate a key even after a compromised node has used up its share.
const NODE_VERSIONS_MAX: usize = 1000;
/// The most members of the description of the object for which a key is created.
const MEMBERS_MAX: usize = 16;

/// One version of a key with its bytes.
pub struct Delivered {
    /// Its version.
    pub version: u32,
    /// Its bytes.
    pub key: SecretKey,
}

/// Checks that a key is active at this moment. SR-8425 if it is destroyed; SR-8426 if it is
/// disabled or its destruction is scheduled.
fn must_be_active(name: &str, key: &Key) -> Result<(), Error> {
    match effective_state(key) {
        State::Active => Ok(()),
        State::Destroyed => Err(Error::new(&code::SERVER_DESTROYED, name)),
        state @ (State::Disabled | State::DestroyPending) => Err(Error::new(
            &code::SERVER_DISABLED,
            format!("{name}: {}", state.name()),
        )),
    }
}

/// Checks that fewer than `most` versions of a key were created within a day, and that nodes may
/// still create some: several nodes can be granted it, and one of them must not use up the versions
/// of all.
///
/// # Errors
/// SR-8443 after `most` versions within a day, or 1000 versions in all.
fn check_rotations(key: &Key, most: u32) -> Result<(), Error> {
    const DAY_S: u64 = 86_400;
    let since = now().saturating_sub(DAY_S);
    let versions = key.versions.iter().rev();
    let fresh = versions.take_while(|version| version.created > since);
    if fresh.count() >= usize::try_from(most).unwrap_or(usize::MAX) {
        let detail = format!("{most} versions of a key in a day");
        return Err(Error::new(&code::SERVER_QUOTA, detail));
    }
    if key.versions.len() >= NODE_VERSIONS_MAX {
        let detail = format!("{NODE_VERSIONS_MAX} versions of a key, and more by administrators");
        return Err(Error::new(&code::SERVER_QUOTA, detail));
    }
    Ok(())
}

impl Service {
    /// Creates version 1 of a new random key, counts it for the client, and grants it to the client
    /// if that is a node. `object` describes what the key is for. The audit log gets a row.
    ///
    /// # Errors
    /// SR-8422 for a client that may not create keys; SR-8424 when there is a key of that name;
    /// SR-8429 for an invalid name or description; SR-8443 above a quota; as for every request
    /// SR-8420 without a certificate, SR-8421 for one that is not enrolled, SR-8435 when the store
    /// fails, SR-8442 when others keep changing the record.
    pub fn create_key(
        &self,
        peer: &Peer,
        name: &str,
        object: Option<&Members>,
    ) -> Result<KeyInfo, Error> {
        check_name(name)?;
        for (member, value) in object.into_iter().flatten() {
            check_text(member, "a member's name")?;
            check_text(value, member)?;
        }
        if object.is_some_and(|object| object.len() > MEMBERS_MAX) {
            return Err(Error::new(&code::SERVER_REQUEST, "too many members"));
        }
        self.run(peer, "create", name, |client| {
            if !client.is_admin() && !client.identity.may_create {
                return Err(Error::new(&code::SERVER_ROLE, "it may not make keys"));
            }
            let path = key_path(name);
            let found: Guarded<Key> = self.read(&path)?;
            if found.record.is_some() {
                return Err(Error::new(&code::SERVER_EXISTS, name));
            }
            let mut key = Key {
                id: hex(&random16()?),
                state: State::Active,
                destroy_at: None,
                destroy_asked: None,
                created_by: client.identity.name.clone(),
                versions: Vec::new(),
                object: object.cloned(),
            };
            self.add_version(name, &mut key)?;
            let (usage, count) = self.update_usage(client, &client.identity.name, |usage| {
                usage.keys = usage.keys.saturating_add(1);
            })?;
            let mut changes = vec![self.put(&path, &key)?, count];
            // An administrator creates keys for nodes, and grants them in a second step.
            if client.identity.role == Role::Node {
                let may_destroy = client.identity.may_destroy;
                let grant = Grant {
                    granted: now(),
                    may_destroy,
                };
                changes.push(self.put(&grant_path(&client.identity.name, name), &grant)?);
            }
            let mut event = client.event("create", name);
            event.version = 1;
            Ok(Plan {
                value: KeyInfo::of(name, key),
                guards: vec![found.guard, usage],
                changes,
                events: vec![event],
            })
        })
    }

    /// Adds a version with new random bytes, wrapped and bound to `name`, the key's name, to `key`
    /// in memory, as its newest, and returns its number. The caller stores the key. SR-8439 when it
    /// has 2000 versions; SR-8435 if its id is malformed; SR-5001 without random numbers or memory
    /// for keys.
    fn add_version(&self, name: &str, key: &mut Key) -> Result<u32, Error> {
        let last = key.versions.last().map_or(0, |last| last.version);
        if key.versions.len() >= VERSIONS_MAX {
            return Err(Error::new(
                &code::SERVER_STATE,
                "it has as many versions as a key can have",
            ));
        }
        let version = last.saturating_add(1);
        let material = SecretKey::generate()?;
        let context = WrapContext {
            id: key_id(name, key)?,
            name,
            version,
        };
        let wrapped = hex(&self.keys.wrap(&context, &material)?);
        key.versions.push(Version {
            version,
            created: now(),
            wrapped,
        });
        Ok(version)
    }

    /// Delivers the bytes of one version of a key, or of the newest if `version` is `None`. The row
    /// of the audit log is durable before this returns.
    ///
    /// # Errors
    /// SR-8423 without a grant, for every role, whether the key exists or not, and for a version
    /// that does not exist; SR-8425 when it is destroyed; SR-8426 when it is disabled, or its
    /// destruction is scheduled; SR-8429 for an invalid name; SR-8435 when the stored key is not
    /// authentic; as for every request SR-8420 without a certificate, SR-8421 for one that is not
    /// enrolled, SR-8442 when others keep changing the record.
    pub fn deliver(
        &self,
        peer: &Peer,
        name: &str,
        version: Option<u32>,
    ) -> Result<Delivered, Error> {
        self.run(peer, "deliver", name, |client| {
            let not_granted = |error: Error| match error.code() {
                code if code == &code::SERVER_NO_KEY => Error::new(&code::SERVER_NO_SUCH, name),
                _ => error,
            };
            let read = self.read_key(client, name).map_err(not_granted);
            let (key, guards, grant) = read?;
            if grant.is_none() {
                return Err(Error::new(&code::SERVER_NO_SUCH, name));
            }
            must_be_active(name, &key)?;
            let wanted = match version {
                None => key.versions.last(),
                Some(version) => key.versions.iter().find(|one| one.version == version),
            };
            let wanted = wanted.ok_or_else(|| Error::new(&code::SERVER_NO_SUCH, name))?;
            let context = WrapContext {
                id: key_id(name, &key)?,
                name,
                version: wanted.version,
            };
            let wrapped = from_hex(&wanted.wrapped).unwrap_or_default();
            let value = Delivered {
                version: wanted.version,
                key: self.keys.unwrap(&context, &wrapped)?,
            };
            let mut event = client.event("deliver", name);
            event.version = wanted.version;
            Ok(Plan {
                value,
                guards,
                changes: Vec::new(),
                events: vec![event],
            })
        })
    }

    /// Returns the description of one key, without its bytes.
    ///
    /// # Errors
    /// SR-8423 for a node without a grant; SR-8454 for another client when there is no such key;
    /// SR-8429 for an invalid name; as for every request SR-8420 without a certificate, SR-8421 for
    /// one that is not enrolled, SR-8435 when the store fails.
    pub fn key(&self, peer: &Peer, name: &str) -> Result<KeyInfo, Error> {
        self.run(peer, "key", name, |client| {
            let (mut key, _, _) = self.read_key(client, name)?;
            self.drop_stale_request(&mut key)?;
            Ok(Plan::read(KeyInfo::of(name, key)))
        })
    }

    /// Returns the descriptions of at most `limit` keys with names greater than `after`, in order:
    /// for a node of those that are granted to it, for others of all.
    ///
    /// # Errors
    /// As for every request SR-8420 without a certificate, SR-8421 for one that is not enrolled,
    /// SR-8435 when the store fails.
    pub fn key_list(&self, peer: &Peer, after: &str, limit: usize) -> Result<Vec<KeyInfo>, Error> {
        self.run(peer, "keys", "", |client| {
            let mut keys: Vec<(String, Key)> = Vec::new();
            if client.identity.role == Role::Node {
                let own_grants = format!("{GRANTS}{}/", client.identity.name);
                for (name, _) in self.list::<Grant>(&own_grants, after, limit)? {
                    let found: Guarded<Key> = self.read(&key_path(&name))?;
                    keys.extend(found.record.map(|key| (name, key)));
                }
            } else {
                keys = self.list(KEYS, after, limit)?;
            }
            let infos = keys.into_iter().map(|(name, mut key)| {
                self.drop_stale_request(&mut key)?;
                Ok(KeyInfo::of(&name, key))
            });
            Ok(Plan::read(infos.collect::<Result<_, Error>>()?))
        })
    }

    /// Creates the next version of a key, with new random bytes. Older versions stay. The audit log
    /// gets a row.
    ///
    /// # Errors
    /// SR-8422 for a viewer; SR-8423 or SR-8454 when there is no such key; SR-8425 when it is
    /// destroyed; SR-8426 when it is disabled, or its destruction is scheduled; SR-8439 when the
    /// key has the most versions that it can have; SR-8443 for a node when too many versions were
    /// created lately; as for every request SR-8420 without a certificate, SR-8421 for one that is
    /// not enrolled, SR-8435 when the store fails, SR-8442 when others keep changing the record.
    pub fn rotate_key(&self, peer: &Peer, name: &str) -> Result<KeyInfo, Error> {
        let most = self.rules().quotas.rotations_per_day;
        self.change_key(peer, "rotate", name, |client, key, _| {
            must_be_active(name, key)?;
            if !client.is_admin() {
                check_rotations(key, most)?;
            }
            let version = self.add_version(name, key)?;
            Ok(KeyChange {
                version,
                ..KeyChange::default()
            })
        })
    }

    /// Stops the delivery of the key until it is enabled. Succeeds also when it is disabled
    /// already. The audit log gets a row.
    ///
    /// # Errors
    /// SR-8423 for a node without a grant; SR-8422 for every other client that is no administrator;
    /// SR-8454 when there is no such key; SR-8425 when it is destroyed; SR-8439 when its
    /// destruction is scheduled; as for every request SR-8420 without a certificate, SR-8421 for
    /// one that is not enrolled, SR-8435 when the store fails, SR-8442 when others keep changing
    /// the record.
    pub fn disable_key(&self, peer: &Peer, name: &str) -> Result<KeyInfo, Error> {
        self.set_state(peer, "disable", name, State::Active, State::Disabled)
    }

    /// Lets a disabled key be delivered again. Succeeds also when it is active already. The audit
    /// log gets a row.
    ///
    /// # Errors
    /// SR-8423 for a node without a grant; SR-8422 for every other client that is no administrator;
    /// SR-8454 when there is no such key; SR-8425 when it is destroyed; SR-8439 when its
    /// destruction is scheduled; as for every request SR-8420 without a certificate, SR-8421 for
    /// one that is not enrolled, SR-8435 when the store fails, SR-8442 when others keep changing
    /// the record.
    pub fn enable_key(&self, peer: &Peer, name: &str) -> Result<KeyInfo, Error> {
        self.set_state(peer, "enable", name, State::Disabled, State::Active)
    }

    /// Changes a key's state to `to`, if it is `from` or `to` already, with a row of the audit log.
    /// SR-8423 for a node without a grant; SR-8422 for every other client that is no administrator;
    /// SR-8454 when there is no such key; SR-8425 when it is destroyed; SR-8439 when its
    /// destruction is scheduled; those of every request.
    fn set_state(
        &self,
        peer: &Peer,
        action: &str,
        name: &str,
        from: State,
        to: State,
    ) -> Result<KeyInfo, Error> {
        self.change_key(peer, action, name, |client, key, _| {
            client.must_be(&[Role::Admin])?;
            let state = effective_state(key);
            if state == State::Destroyed {
                return Err(Error::new(&code::SERVER_DESTROYED, name));
            }
            // A client that did not get the first response repeats the request.
            if state != from && state != to {
                return Err(Error::new(
                    &code::SERVER_STATE,
                    format!("{name}: {}", state.name()),
                ));
            }
            // A request for the key's destruction is kept: a key is usually disabled before it is
            // destroyed.
            (key.state, key.destroy_at) = (to, None);
            Ok(KeyChange::default())
        })
    }

    /// Erases the bytes of every key whose time of destruction has passed, and returns how many
    /// keys that were. Before that, records the counts of denials that are due, and removes expired
    /// tokens and pieces of headers that no record names.
    ///
    /// # Errors
    /// What the store reports: SR-8435 when it does not answer, or a record is damaged.
    pub fn sweep(&self) -> Result<usize, Error> {
        const PAGE: usize = 500;
        let (mut after, mut count) = (String::new(), 0_usize);
        self.record_due_denials();
        self.remove_expired_tokens()?;
        self.remove_unnamed_pieces()?;
        loop {
            let page = self.list::<u64>(PENDING, &after, PAGE)?;
            for (name, at) in &page {
                if *at <= now() && self.erase(name)? {
                    count = count.saturating_add(1);
                }
            }
            match page.last() {
                Some((name, _)) if page.len() == PAGE => after.clone_from(name),
                _ => return Ok(count),
            }
        }
    }
}

/// Returns the random id of a key, from its record. SR-8435 if it is malformed.
fn key_id(name: &str, key: &Key) -> Result<[u8; 16], Error> {
    let id = from_hex(&key.id).and_then(|id| id.try_into().ok());
    id.ok_or_else(|| Error::new(&code::SERVER_STORE, format!("the id of {name}")))
}
