//! What the fleet page is made from: objects, keys and clients as the store has them, judged, and kept for a moment.
//!
//! Invariants: G1, who asks is looked up in the store before anything is shown, also of what is kept; G2, at most a tenth of the time
//! goes into reading the store for pages, however many are asked for; G3, what is kept goes with the service when the server is sealed.
//!
//! Must not: read the wrapped keys out of a record.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use strongroom_keyring::Error;

use super::destroy::AskedInfo;
use super::{Client, Peer, Plan, RECORDS_MAX, Service};
use crate::config::Config;
use crate::now;
use crate::page::model::Fleet;
use crate::page::records::{
    DestroyAsked, KeyRecord, KeyState, Kind, NodeRecord, ObjectRecord, Policy, Records,
};
use crate::records::{
    ESCROW, Escrow, GRANTS, Grant, IDENTITIES, Identity, KEYS, Key, OBJECTS, Object, Role, State,
};

/// A fleet is kept for so many times as long as it took to make it, but not longer than [`KEPT_MAX`].
const KEPT: u32 = 10;
/// As told there.
const KEPT_MAX: Duration = Duration::from_secs(60);

/// The fleet that was made last.
#[derive(Default)]
pub(super) struct Kept(Mutex<Option<Snapshot>>);

struct Snapshot {
    fleet: Arc<Fleet>,
    policy: Policy,
    until: Instant,
}

impl Service {
    /// The fleet, for viewers and administrators, and who asks.
    ///
    /// # Errors
    /// SR-8420, SR-8421; SR-8422 unless viewer or administrator; what the store reports.
    pub fn fleet(
        &self,
        peer: &Peer,
        policy: Policy,
        config: &Config,
    ) -> Result<(Identity, Arc<Fleet>), Error> {
        let identity = self.run(peer, "fleet", "", |client: &Client| {
            client.must_be(&[Role::Admin, Role::Viewer])?;
            Ok(Plan::read(client.identity.clone()))
        })?;
        // Held while the store is read: whoever comes meanwhile waits for this fleet, and makes none of its own.
        let mut kept = self.fleet.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = kept
            .as_ref()
            .filter(|kept| kept.policy == policy && Instant::now() < kept.until);
        if let Some(snapshot) = fresh {
            return Ok((identity, Arc::clone(&snapshot.fleet)));
        }
        let began = Instant::now();
        let mut fleet = Fleet::new(self.fleet_records()?, policy, now());
        fleet.alarms = self.room(config)?.alarms;
        let fleet = Arc::new(fleet);
        let keep = began.elapsed().saturating_mul(KEPT).min(KEPT_MAX);
        *kept = Some(Snapshot {
            fleet: Arc::clone(&fleet),
            policy,
            until: Instant::now() + keep,
        });
        Ok((identity, fleet))
    }

    fn fleet_records(&self) -> Result<Records, Error> {
        let (grants, cut_grants) = self.all::<Grant>(GRANTS)?;
        let mut granted: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (path, _) in grants {
            if let Some((node, key)) = path.split_once('/') {
                granted
                    .entry(key.to_owned())
                    .or_default()
                    .push(node.to_owned());
            }
        }
        let (mut keys, cut_keys) = self.all::<Key>(KEYS)?;
        for (_, key) in &mut keys {
            self.drop_stale_request(key)?;
        }
        let keys = keys.into_iter().map(|(name, key)| {
            let nodes = granted.remove(&name).unwrap_or_default();
            key_record(name, key, nodes)
        });
        let keys = keys.collect();
        let (escrow, cut_escrow) = self.all::<Escrow>(ESCROW)?;
        let escrow: BTreeMap<String, u64> = escrow
            .into_iter()
            .map(|(id, kept)| (id, kept.stored))
            .collect();
        let (objects, cut_objects) = self.all::<Object>(OBJECTS)?;
        let objects = objects.into_iter().filter_map(|(id, object)| {
            let stored = escrow.get(&id).copied();
            object_record(id, object, stored)
        });
        let objects = objects.collect();
        let (identities, cut_nodes) = self.all::<Identity>(IDENTITIES)?;
        Ok(Records {
            objects,
            keys,
            nodes: nodes(identities),
            cut: cut_grants || cut_keys || cut_escrow || cut_objects || cut_nodes,
        })
    }

    /// The records below a prefix, and whether there are more than are looked at.
    fn all<T: DeserializeOwned>(&self, prefix: &str) -> Result<(Vec<(String, T)>, bool), Error> {
        let mut all: Vec<(String, T)> = Vec::new();
        let cut = self.each(prefix, RECORDS_MAX, |name, record| all.push((name, record)))?;
        Ok((all, cut))
    }
}

fn key_record(name: String, key: Key, nodes: Vec<String>) -> KeyRecord {
    let state = match key.state {
        State::Active => KeyState::Active,
        State::Disabled => KeyState::Disabled,
        State::DestroyPending => KeyState::Pending {
            at: key.destroy_at.unwrap_or(0),
        },
        State::Destroyed => KeyState::Destroyed,
    };
    KeyRecord {
        name,
        state,
        versions: key
            .versions
            .iter()
            .map(|one| (one.version, one.created))
            .collect(),
        nodes,
        destroy_asked: key
            .destroy_asked
            .and_then(AskedInfo::of)
            .map(|asked| DestroyAsked {
                by: asked.destroy_asked_by,
                after_s: asked.destroy_asked_after_seconds,
                until: asked.destroy_asked_until,
            }),
    }
}

/// Of a volume, the server knows itself when its header was backed up: when it came into escrow.
fn object_record(id: String, object: Object, stored: Option<u64>) -> Option<ObjectRecord> {
    let report = object.report;
    let kind = Kind::of(&report.kind)?;
    let stored = stored.filter(|_| kind == Kind::Volume);
    Some(ObjectRecord {
        id,
        node: object.node,
        kind,
        name: report.name,
        cipher: report.cipher,
        key_id: report.key_id,
        key_version: report.key_version,
        created: report.created,
        rotated: report.rotated,
        backed_up: report.backed_up.max(stored),
        verified: report.verified,
        reported: object.reported,
        shredded: report.shredded,
    })
}

/// One of each name: a client that renews its certificate has two identities until it uses the new
/// one.
fn nodes(identities: Vec<(String, Identity)>) -> Vec<NodeRecord> {
    let mut nodes: BTreeMap<String, NodeRecord> = BTreeMap::new();
    for (_, identity) in identities.into_iter().filter(|(_, one)| !one.unused) {
        let record = NodeRecord {
            name: identity.name.clone(),
            role: identity.role.name().to_owned(),
            enrolled: Some(identity.enrolled),
            expires: Some(identity.expires),
        };
        let newest = nodes.get(&identity.name).map(|node| node.expires);
        if newest < Some(record.expires) {
            nodes.insert(identity.name, record);
        }
    }
    nodes.into_values().collect()
}
