//! Reports of nodes about their objects, for the fleet page.
//!
//! Must not: let a node overwrite the report of another node, unless the object's key is granted to
//! it.

use serde::Serialize;
use strongroom_format::code;
use strongroom_keyring::Error;

use super::checks::{check_name, check_object_id, check_text};
use super::operation::Plan;
use super::peer::Peer;
use super::state::Service;
use crate::now;
use crate::paths::{OBJECTS, grant_path, object_path};
use crate::records::{Grant, Guarded, Object, Report, Role, Usage};
use crate::store::Change;

/// The kinds of objects.
const KINDS: [&str; 4] = ["volume", "sqlite", "instance", "backup"];

/// An object, as viewers and administrators see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObjectInfo {
    /// Its id.
    pub object_id: String,
    /// The node that reported it.
    pub node: String,
    /// When it was reported last, in seconds since the Unix epoch.
    pub reported: u64,
    /// The report.
    #[serde(flatten)]
    pub report: Report,
}

impl Service {
    /// Stores a report of an object, in place of the former one, and counts the object for its
    /// node. Times that the report does not have are kept from the former one. An administrator
    /// reports on behalf of the node that reported the object. The audit log gets a row only when
    /// the object is new, moved to this node, or was shredded.
    ///
    /// # Errors
    /// SR-8422 for a viewer; SR-8423 when another node reported the object and its key is not
    /// granted to this one; SR-8429 for an invalid id or report; SR-8443 above a quota; as for
    /// every request SR-8420 without a certificate, SR-8421 for one that is not enrolled, SR-8435
    /// when the store fails, SR-8442 when others keep changing the record.
    pub fn report(&self, peer: &Peer, id: &str, report: &Report) -> Result<(), Error> {
        check_object_id(id)?;
        check_report(report)?;
        let path = object_path(id);
        self.run(peer, "report", id, |client| {
            client.must_be(&[Role::Admin, Role::Node])?;
            let found: Guarded<Object> = self.read(&path)?;
            let reporter = found.record.as_ref().map(|object| &object.node);
            // An administrator reports on behalf of the node that has the object.
            let node = match reporter.filter(|_| client.is_admin()) {
                Some(node) => node.clone(),
                None => client.identity.name.clone(),
            };
            let mut guards = vec![found.guard];
            let before = found.record.as_ref().map(|object| &object.report);
            let report = with_earlier_times(report, before);
            let existed = before.is_none_or(|before| before.shredded.is_none());
            let is_shredded = report.shredded.is_some();
            let known = found
                .record
                .as_ref()
                .is_some_and(|object| object.node == node);
            let mut changes = Vec::new();
            if !known {
                let (guard, change) = self.update_usage(client, &node, |usage| {
                    usage.objects = usage.objects.saturating_add(1);
                })?;
                guards.push(guard);
                changes.push(change);
            }
            if let Some(other) = found.record.filter(|object| object.node != node) {
                let grant: Guarded<Grant> = self.read(&grant_path(&node, &other.report.key_id))?;
                guards.push(grant.guard);
                if grant.record.is_none() {
                    return Err(Error::new(&code::SERVER_NO_SUCH, id));
                }
                let (guard, change) = self.update_usage(client, &other.node, decrement_objects)?;
                guards.push(guard);
                changes.push(change);
            }
            let object = Object {
                node,
                reported: now(),
                report,
            };
            changes.push(self.put(&path, &object)?);
            let is_news = existed && is_shredded;
            let mut event = client.event("report", id);
            if is_shredded {
                "shredded".clone_into(&mut event.detail);
            }
            let events = match known && !is_news {
                true => Vec::new(),
                false => vec![event],
            };
            Ok(Plan {
                value: (),
                guards,
                changes,
                events,
            })
        })
    }

    /// Returns at most `limit` objects with ids greater than `after`, in order.
    ///
    /// # Errors
    /// SR-8422 unless the client is a viewer or an administrator; as for every request SR-8420
    /// without a certificate, SR-8421 for one that is not enrolled, SR-8435 when the store fails.
    pub fn objects(
        &self,
        peer: &Peer,
        after: &str,
        limit: usize,
    ) -> Result<Vec<ObjectInfo>, Error> {
        self.run(peer, "objects", "", |client| {
            client.must_be(&[Role::Admin, Role::Viewer])?;
            let page = self.list::<Object>(OBJECTS, after, limit)?.into_iter();
            let infos = page.map(|(object_id, object)| ObjectInfo {
                object_id,
                node: object.node,
                reported: object.reported,
                report: object.report,
            });
            Ok(Plan::read(infos.collect()))
        })
    }

    /// Removes the report of an object that no longer exists, and no longer counts it. The audit
    /// log gets a row.
    ///
    /// # Errors
    /// SR-8422 unless the client is an administrator; SR-8429 for an invalid id; SR-8457 when there
    /// is no such object; as for every request SR-8420 without a certificate, SR-8421 for one that
    /// is not enrolled, SR-8435 when the store fails, SR-8442 when others keep changing the record.
    pub fn forget_object(&self, peer: &Peer, id: &str) -> Result<(), Error> {
        check_object_id(id)?;
        let path = object_path(id);
        self.run(peer, "forget", id, |client| {
            client.must_be(&[Role::Admin])?;
            let (object, guard) = self
                .read::<Object>(&path)?
                .require_or(&code::SERVER_NO_OBJECT, id)?;
            let (usage, count) = self.update_usage(client, &object.node, decrement_objects)?;
            let changes = vec![Change::Delete { path: path.clone() }, count];
            let events = vec![client.event("forget", id)];
            Ok(Plan {
                value: (),
                guards: vec![guard, usage],
                changes,
                events,
            })
        })
    }
}

/// Counts one object less.
fn decrement_objects(usage: &mut Usage) {
    usage.objects = usage.objects.saturating_sub(1);
}

/// Returns the report, with the times of the former report where it has none: nodes do not remember
/// all of them. Without any time of creation, that is now.
fn with_earlier_times(report: &Report, before: Option<&Report>) -> Report {
    let created = match (report.created, before) {
        (0, None) => now(),
        (0, Some(before)) => before.created,
        (created, _) => created,
    };
    Report {
        created,
        rotated: report.rotated.or_else(|| before?.rotated),
        backed_up: report.backed_up.or_else(|| before?.backed_up),
        verified: report.verified.or_else(|| before?.verified),
        ..report.clone()
    }
}

/// Checks that a report names a known kind, has short printable texts, and an empty or valid name
/// of a key. SR-8429 if not.
fn check_report(report: &Report) -> Result<(), Error> {
    if !KINDS.contains(&report.kind.as_str()) {
        return Err(Error::new(
            &code::SERVER_REQUEST,
            "kind: volume, sqlite, instance or backup",
        ));
    }
    check_text(&report.name, "name")?;
    check_text(&report.cipher, "cipher")?;
    // It is empty for an object that opens with something other than a key of this server.
    if !report.key_id.is_empty() {
        check_name(&report.key_id)?;
    }
    Ok(())
}
