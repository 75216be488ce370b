//! Kept keys: made, listed, delivered, rotated, disabled, destroyed.
//!
//! Must not: deliver a key without a grant, to whomever.

use serde::Serialize;
use strongroom_crypto::{SecretKey, random16};
use strongroom_format::code;
use strongroom_format::hex::{from_hex, hex};
use strongroom_keyring::Error;

use super::destroy::AskedInfo;
use super::{Client, Members, Peer, Plan, Service, check_name, check_text};
use crate::keys::Place;
use crate::now;
use crate::records::{Found, GRANTS, Grant, KEYS, Key, PENDING, Role, State, Version};
use crate::store::{Change, Guard};

/// Most versions of a key: its record must fit into the store.
const VERSIONS_MAX: usize = 2000;
/// Of these, how many nodes can make: the rest is left to administrators, who must be able to when a node has gone bad.
const NODES_VERSIONS_MAX: usize = 1000;
/// Most members of what a key is said to be for.
const MEMBERS_MAX: usize = 16;

/// What is told of a key without its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyInfo {
    /// Its name.
    pub name: String,
    /// Whether it is delivered.
    pub state: State,
    /// When it will be destroyed, or was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destroy_at: Option<u64>,
    /// The request for its destruction that waits for a second administrator.
    #[serde(flatten)]
    pub destroy_asked: Option<AskedInfo>,
    /// Who made it.
    pub created_by: String,
    /// Its versions, oldest first.
    pub versions: Vec<VersionInfo>,
    /// What it was made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<Members>,
}

/// What is told of one version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VersionInfo {
    /// From 1.
    pub version: u32,
    /// When it was made, in seconds since the Unix epoch.
    pub created: u64,
}

/// A key on its way to a client.
pub struct Delivered {
    /// Its version.
    pub version: u32,
    /// Its bytes.
    pub key: SecretKey,
}

/// What a change of a key adds to its row of the audit log.
#[derive(Default)]
pub(super) struct Changed {
    /// The version that was made; 0: none was.
    pub version: u32,
    /// What is to be said of it.
    pub detail: String,
}

impl KeyInfo {
    /// Whether a request for the key's destruction still counts has to be looked up before
    /// (`Service::drop_stale_request`).
    fn of(name: &str, key: Key) -> Self {
        let versions = key.versions.iter();
        Self {
            name: name.to_owned(),
            state: effective(&key),
            destroy_at: key.destroy_at,
            destroy_asked: key.destroy_asked.and_then(AskedInfo::of),
            versions: versions
                .map(|one| VersionInfo {
                    version: one.version,
                    created: one.created,
                })
                .collect(),
            created_by: key.created_by,
            object: key.object,
        }
    }
}

/// The state at this time: a key whose time has come is destroyed, whether its material was erased already or not.
pub(super) fn effective(key: &Key) -> State {
    match (key.state, key.destroy_at) {
        (State::DestroyPending, Some(at)) if at <= now() => State::Destroyed,
        (state, _) => state,
    }
}

fn must_be_active(name: &str, key: &Key) -> Result<(), Error> {
    match effective(key) {
        State::Active => Ok(()),
        State::Destroyed => Err(Error::new(&code::SERVER_DESTROYED, name)),
        state @ (State::Disabled | State::DestroyPending) => Err(Error::new(
            &code::SERVER_DISABLED,
            format!("{name}: {}", state.name()),
        )),
    }
}

/// A key can be granted to several nodes. None of them uses up its versions for the others.
///
/// # Errors
/// SR-8443.
fn check_rotations(key: &Key, most: u32) -> Result<(), Error> {
    const DAY_S: u64 = 86_400;
    let since = now().saturating_sub(DAY_S);
    let versions = key.versions.iter().rev();
    let fresh = versions.take_while(|version| version.created > since);
    if fresh.count() >= usize::try_from(most).unwrap_or(usize::MAX) {
        let detail = format!("{most} versions of a key in a day");
        return Err(Error::new(&code::SERVER_QUOTA, detail));
    }
    if key.versions.len() >= NODES_VERSIONS_MAX {
        let detail = format!("{NODES_VERSIONS_MAX} versions of a key, and more by administrators");
        return Err(Error::new(&code::SERVER_QUOTA, detail));
    }
    Ok(())
}

pub(super) fn key_path(name: &str) -> String {
    format!("{KEYS}{name}")
}

pub(super) fn grant_path(node: &str, key: &str) -> String {
    format!("{GRANTS}{node}/{key}")
}

impl Service {
    /// Makes version 1 of a new key and grants it to the client that asked.
    ///
    /// # Errors
    /// SR-8422 for a client that may not make keys; SR-8424; SR-8429; SR-8443.
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
            let found: Found<Key> = self.read(&path)?;
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
            let (usage, count) = self.counted(client, &client.identity.name, |usage| {
                usage.keys = usage.keys.saturating_add(1);
            })?;
            let mut changes = vec![self.put(&path, &key)?, count];
            // An administrator makes keys for others, and grants them when that is wanted.
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
        let place = Place {
            id: id_of(name, key)?,
            name,
            version,
        };
        let wrapped = hex(&self.keys.wrap(&place, &material)?);
        key.versions.push(Version {
            version,
            created: now(),
            wrapped,
        });
        Ok(version)
    }

    /// The key, if the client may know of it: administrators and viewers know all, and are told
    /// SR-8454 of what is not there; nodes are told SR-8423 of what is not granted to them, there
    /// or not.
    pub(super) fn known(
        &self,
        client: &Client,
        name: &str,
    ) -> Result<(Key, Vec<Guard>, Option<Grant>), Error> {
        check_name(name)?;
        let grant: Found<Grant> = self.read(&grant_path(&client.identity.name, name))?;
        let key: Found<Key> = self.read(&key_path(name))?;
        if client.identity.role == Role::Node && grant.record.is_none() {
            return Err(Error::new(&code::SERVER_NO_SUCH, name));
        }
        let missing = match client.identity.role {
            Role::Node => &code::SERVER_NO_SUCH,
            // Who may know of every key may know that there is none.
            Role::Admin | Role::Viewer => &code::SERVER_NO_KEY,
        };
        let (key, guard) = key.or(missing, name)?;
        Ok((key, vec![guard, grant.guard], grant.record))
    }

    /// One version of a key, or the newest.
    ///
    /// # Errors
    /// SR-8423 without a grant, whoever asks, and whether there is such a key or not; SR-8425,
    /// SR-8426 by the key's state.
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
            let known = self.known(client, name).map_err(not_granted);
            let (key, guards, grant) = known?;
            if grant.is_none() {
                return Err(Error::new(&code::SERVER_NO_SUCH, name));
            }
            must_be_active(name, &key)?;
            let wanted = match version {
                None => key.versions.last(),
                Some(version) => key.versions.iter().find(|one| one.version == version),
            };
            let wanted = wanted.ok_or_else(|| Error::new(&code::SERVER_NO_SUCH, name))?;
            let place = Place {
                id: id_of(name, &key)?,
                name,
                version: wanted.version,
            };
            let wrapped = from_hex(&wanted.wrapped).unwrap_or_default();
            let value = Delivered {
                version: wanted.version,
                key: self.keys.unwrap(&place, &wrapped)?,
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

    /// What the client may know of one key.
    ///
    /// # Errors
    /// SR-8423.
    pub fn key(&self, peer: &Peer, name: &str) -> Result<KeyInfo, Error> {
        self.run(peer, "key", name, |client| {
            let (mut key, _, _) = self.known(client, name)?;
            self.drop_stale_request(&mut key)?;
            Ok(Plan::read(KeyInfo::of(name, key)))
        })
    }

    /// The keys that the client may know of, after this name, in order, at most `limit`.
    ///
    /// # Errors
    /// SR-8420, SR-8421.
    pub fn key_list(&self, peer: &Peer, after: &str, limit: usize) -> Result<Vec<KeyInfo>, Error> {
        self.run(peer, "keys", "", |client| {
            let mut keys: Vec<(String, Key)> = Vec::new();
            if client.identity.role == Role::Node {
                let mine = format!("{GRANTS}{}/", client.identity.name);
                for (name, _) in self.list::<Grant>(&mine, after, limit)? {
                    let found: Found<Key> = self.read(&key_path(&name))?;
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

    /// Changes a key that is known. `change` gets the key without a request for its destruction
    /// that has ended, and tells what the row of the audit log says.
    pub(super) fn change_key(
        &self,
        peer: &Peer,
        action: &str,
        name: &str,
        change: impl Fn(&Client, &mut Key, Option<&Grant>) -> Result<Changed, Error>,
    ) -> Result<KeyInfo, Error> {
        self.run(peer, action, name, |client| {
            client.must_be(&[Role::Admin, Role::Node])?;
            let (mut key, mut guards, grant) = self.known(client, name)?;
            guards.extend(self.drop_stale_request(&mut key)?);
            let mut event = client.event(action, name);
            let changed = change(client, &mut key, grant.as_ref())?;
            (event.version, event.detail) = (changed.version, changed.detail);
            let mut changes = vec![self.put(&key_path(name), &key)?];
            changes.push(self.pending(name, &key)?);
            let value = KeyInfo::of(name, key);
            Ok(Plan {
                value,
                guards,
                changes,
                events: vec![event],
            })
        })
    }

    /// The list of keys to be destroyed, as it must be for this key.
    pub(super) fn pending(&self, name: &str, key: &Key) -> Result<Change, Error> {
        let path = format!("{PENDING}{name}");
        match (key.state, key.destroy_at) {
            (State::DestroyPending, Some(at)) => self.put(&path, &at),
            _ => Ok(Change::Delete { path }),
        }
    }

    /// Makes the next version. Older ones stay.
    ///
    /// # Errors
    /// SR-8423, SR-8425, SR-8426; SR-8439 when the key has all versions that it can have; SR-8443 for a node when others were made
    /// not long ago.
    pub fn rotate_key(&self, peer: &Peer, name: &str) -> Result<KeyInfo, Error> {
        let most = self.rules().quotas.rotations_per_day;
        self.change_key(peer, "rotate", name, |client, key, _| {
            must_be_active(name, key)?;
            if !client.is_admin() {
                check_rotations(key, most)?;
            }
            let version = self.add_version(name, key)?;
            Ok(Changed {
                version,
                ..Changed::default()
            })
        })
    }

    /// Stops the key's delivery until it is enabled.
    ///
    /// # Errors
    /// SR-8422, SR-8423, SR-8425, SR-8439.
    pub fn disable_key(&self, peer: &Peer, name: &str) -> Result<KeyInfo, Error> {
        self.switch(peer, "disable", name, State::Active, State::Disabled)
    }

    /// Lets a disabled key be delivered again.
    ///
    /// # Errors
    /// As [`Service::disable_key`].
    pub fn enable_key(&self, peer: &Peer, name: &str) -> Result<KeyInfo, Error> {
        self.switch(peer, "enable", name, State::Disabled, State::Active)
    }

    fn switch(
        &self,
        peer: &Peer,
        action: &str,
        name: &str,
        from: State,
        to: State,
    ) -> Result<KeyInfo, Error> {
        self.change_key(peer, action, name, |client, key, _| {
            client.must_be(&[Role::Admin])?;
            let state = effective(key);
            if state == State::Destroyed {
                return Err(Error::new(&code::SERVER_DESTROYED, name));
            }
            // Asked twice, because the first answer was lost.
            if state != from && state != to {
                return Err(Error::new(
                    &code::SERVER_STATE,
                    format!("{name}: {}", state.name()),
                ));
            }
            // A request for the key's destruction goes on waiting: a key is disabled before it is
            // destroyed.
            (key.state, key.destroy_at) = (to, None);
            Ok(Changed::default())
        })
    }

    /// Erases the material of every key whose time has come; how many there were. Removes tokens that are over, and pieces of headers
    /// that nothing names.
    ///
    /// # Errors
    /// What the store reports.
    pub fn sweep(&self) -> Result<usize, Error> {
        const PAGE: usize = 500;
        let (mut after, mut count) = (String::new(), 0_usize);
        self.tell_denials();
        self.forget_tokens()?;
        self.forget_unnamed()?;
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

fn id_of(name: &str, key: &Key) -> Result<[u8; 16], Error> {
    let id = from_hex(&key.id).and_then(|id| id.try_into().ok());
    id.ok_or_else(|| Error::new(&code::SERVER_STORE, format!("the id of {name}")))
}
