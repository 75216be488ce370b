//! What nodes report of their objects, for the fleet page.
//!
//! Must not: let a node write over what another one reports, unless it may open the object itself.

use serde::Serialize;
use strongroom_format::code;
use strongroom_keyring::Error;

use super::keys::grant_path;
use super::{Peer, Plan, Service, check_name, check_object_id, check_text};
use crate::now;
use crate::records::{Found, Grant, OBJECTS, Object, Report, Role, Usage};
use crate::store::Change;

/// What an object can be.
const KINDS: [&str; 4] = ["volume", "sqlite", "instance", "backup"];

/// What is told of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObjectInfo {
    /// Its id.
    pub object_id: String,
    /// Who reported it.
    pub node: String,
    /// When it was reported last, in seconds since the Unix epoch.
    pub reported: u64,
    /// What was reported.
    #[serde(flatten)]
    pub report: Report,
}

impl Service {
    /// Takes a report. Written down when the object is new, is another node's now, or was shredded,
    /// not each time.
    ///
    /// # Errors
    /// SR-8422 unless node or administrator; SR-8423 when another node reports the object and the key is not granted to this one;
    /// SR-8429; SR-8443.
    pub fn report(&self, peer: &Peer, id: &str, report: &Report) -> Result<(), Error> {
        check_object_id(id)?;
        check_report(report)?;
        let path = format!("{OBJECTS}{id}");
        self.run(peer, "report", id, |client| {
            client.must_be(&[Role::Admin, Role::Node])?;
            let found: Found<Object> = self.read(&path)?;
            let reporter = found.record.as_ref().map(|object| &object.node);
            // An administrator reports in the place of the node whose object it is.
            let node = match reporter.filter(|_| client.is_admin()) {
                Some(node) => node.clone(),
                None => client.identity.name.clone(),
            };
            let mut guards = vec![found.guard];
            let before = found.record.as_ref().map(|object| &object.report);
            let report = completed(report, before);
            let was_there = before.is_none_or(|before| before.shredded.is_none());
            let is_shredded = report.shredded.is_some();
            let known = found
                .record
                .as_ref()
                .is_some_and(|object| object.node == node);
            let mut changes = Vec::new();
            if !known {
                let (guard, change) = self.counted(client, &node, |usage| {
                    usage.objects = usage.objects.saturating_add(1);
                })?;
                guards.push(guard);
                changes.push(change);
            }
            if let Some(other) = found.record.filter(|object| object.node != node) {
                let grant: Found<Grant> = self.read(&grant_path(&node, &other.report.key_id))?;
                guards.push(grant.guard);
                if grant.record.is_none() {
                    return Err(Error::new(&code::SERVER_NO_SUCH, id));
                }
                let (guard, change) = self.counted(client, &other.node, one_less)?;
                guards.push(guard);
                changes.push(change);
            }
            let object = Object {
                node,
                reported: now(),
                report,
            };
            changes.push(self.put(&path, &object)?);
            let is_news = was_there && is_shredded;
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

    /// Objects after this id, in order.
    ///
    /// # Errors
    /// SR-8422 unless viewer or administrator.
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

    /// Forgets an object that is no more.
    ///
    /// # Errors
    /// SR-8422 unless administrator; SR-8429, SR-8457.
    pub fn forget_object(&self, peer: &Peer, id: &str) -> Result<(), Error> {
        check_object_id(id)?;
        let path = format!("{OBJECTS}{id}");
        self.run(peer, "forget", id, |client| {
            client.must_be(&[Role::Admin])?;
            let (object, guard) = self
                .read::<Object>(&path)?
                .or(&code::SERVER_NO_OBJECT, id)?;
            let (usage, count) = self.counted(client, &object.node, one_less)?;
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

fn one_less(usage: &mut Usage) {
    usage.objects = usage.objects.saturating_sub(1);
}

/// The report with the times that were reported before, where it has none: a node does not remember everything.
fn completed(report: &Report, before: Option<&Report>) -> Report {
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

fn check_report(report: &Report) -> Result<(), Error> {
    if !KINDS.contains(&report.kind.as_str()) {
        return Err(Error::new(
            &code::SERVER_REQUEST,
            "kind: volume, sqlite, instance or backup",
        ));
    }
    check_text(&report.name, "name")?;
    check_text(&report.cipher, "cipher")?;
    // Of objects that open with something else than a key of this server.
    if !report.key_id.is_empty() {
        check_name(&report.key_id)?;
    }
    Ok(())
}
