//! Reading the fleet for the fleet page: objects, keys and clients from the store, judged, and
//! cached for a moment.
//!
//! Invariants:
//! - G1: The client is looked up in the store before anything is shown, also when the fleet comes
//!   from the cache.
//! - G2: At most a tenth of the time is spent on reading the store for pages, however many are
//!   requested.
//! - G3: The cache is dropped with the service when the server is sealed.
//!
//! Must not: read the wrapped keys out of a record.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use serde::de::DeserializeOwned;
use strongroom_keyring::Error;

use super::fleet_cache::FleetSnapshot;
use super::key_info::DestroyRequestInfo;
use super::peer::Peer;
use super::state::{RECORDS_MAX, Service};
use crate::config::Config;
use crate::now;
use crate::page::model::Fleet;
use crate::page::records::{
    KeyRecord, KeyState, Kind, NodeRecord, ObjectRecord, PendingDestroyRequest, Policy, Records,
};
use crate::paths::{ESCROW, GRANTS, IDENTITIES, KEYS, OBJECTS};
use crate::records::{Escrow, Grant, Identity, Key, Object, Role, State};

impl Service {
    /// Returns the client's identity and the fleet, for viewers and administrators. The fleet may
    /// come from the cache, and be up to a minute old; otherwise it is read from the store and
    /// cached.
    ///
    /// # Errors
    /// SR-8420 without a certificate; SR-8421 for one that is not enrolled; SR-8422 unless the
    /// client is a viewer or an administrator; what the store reports.
    pub fn fleet(
        &self,
        peer: &Peer,
        policy: Policy,
        config: &Config,
    ) -> Result<(Identity, Arc<Fleet>), Error> {
        let identity = self.check_role(peer, "fleet", &[Role::Admin, Role::Viewer])?;
        // Locked while the store is read, so that concurrent requests wait for this fleet.
        let mut cache = self.fleet.lock();
        let cached = cache.as_ref().and_then(|cached| cached.fleet_for(policy));
        if let Some(fleet) = cached {
            return Ok((identity, fleet));
        }
        let began = Instant::now();
        let mut fleet = Fleet::new(self.read_fleet()?, policy, now());
        fleet.alarms = self.space(config)?.alarms;
        let fleet = Arc::new(fleet);
        *cache = Some(FleetSnapshot::new(&fleet, policy, began.elapsed()));
        Ok((identity, fleet))
    }

    /// Reads objects, keys with their grants, headers in escrow and clients from the store, as the
    /// page's records. Stale requests for destruction are left out. Writes nothing. Errors are
    /// those of the store, such as SR-8435 when it does not answer.
    fn read_fleet(&self) -> Result<Records, Error> {
        let (grants, cut_grants) = self.list_all::<Grant>(GRANTS)?;
        let mut granted: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (path, _) in grants {
            if let Some((node, key)) = path.split_once('/') {
                granted
                    .entry(key.to_owned())
                    .or_default()
                    .push(node.to_owned());
            }
        }
        let (mut keys, cut_keys) = self.list_all::<Key>(KEYS)?;
        for (_, key) in &mut keys {
            self.drop_stale_request(key)?;
        }
        let keys = keys.into_iter().map(|(name, key)| {
            let nodes = granted.remove(&name).unwrap_or_default();
            key_record(name, key, nodes)
        });
        let keys = keys.collect();
        let (escrow, cut_escrow) = self.list_all::<Escrow>(ESCROW)?;
        let escrow: BTreeMap<String, u64> = escrow
            .into_iter()
            .map(|(id, header)| (id, header.stored))
            .collect();
        let (objects, cut_objects) = self.list_all::<Object>(OBJECTS)?;
        let objects = objects.into_iter().filter_map(|(id, object)| {
            let stored = escrow.get(&id).copied();
            object_record(id, object, stored)
        });
        let objects = objects.collect();
        let (identities, cut_nodes) = self.list_all::<Identity>(IDENTITIES)?;
        Ok(Records {
            objects,
            keys,
            nodes: node_records(identities),
            cut: cut_grants || cut_keys || cut_escrow || cut_objects || cut_nodes,
        })
    }

    /// Reads the records below a prefix, in order of their names, and whether there may be more
    /// than the about [`RECORDS_MAX`] that are read. Errors are those of the store, such as SR-8435
    /// when it does not answer.
    fn list_all<T: DeserializeOwned>(
        &self,
        prefix: &str,
    ) -> Result<(Vec<(String, T)>, bool), Error> {
        let mut all: Vec<(String, T)> = Vec::new();
        let cut = self.for_each(prefix, RECORDS_MAX, |name, record| all.push((name, record)))?;
        Ok((all, cut))
    }
}

/// Converts a key and the nodes that are granted it into a record for the page, without the key's
/// bytes.
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
        destroy_request: key
            .destroy_asked
            .and_then(DestroyRequestInfo::of)
            .map(|request| PendingDestroyRequest {
                by: request.destroy_asked_by,
                after_s: request.destroy_asked_after_seconds,
                until: request.destroy_asked_until,
            }),
    }
}

/// Converts an object into a record for the page. `stored`: when its header was put into escrow,
/// which for a volume is its backup. `None` for an object of an unknown kind.
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

/// Converts identities into one record for each name, in order: the one that expires last. A client
/// that renews its certificate has two identities until it uses the new one, which is left out
/// until then.
fn node_records(identities: Vec<(String, Identity)>) -> Vec<NodeRecord> {
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
