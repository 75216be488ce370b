//! The model of the page: every object, key and node with its findings, and tallies of them.
//!
//! The model is a pure function of records, intervals and one time.
//!
//! Invariants:
//! 1. The severity of an object is that of its worst finding. The page shows every finding.
//! 2. A concern that a kind of object cannot have has no interval: the rotation of a backup medium,
//!    the verification of a volume that never reported one. The last backup of a backup medium is
//!    its newest set; that of a volume is a copy of its header.
//!
//! Must not: read a clock or a store; make HTML.

use std::collections::{BTreeMap, BTreeSet};

use super::findings::{Concern, Finding, Measure, Severity};
use super::records::{
    DAY_S, KeyRecord, KeyState, Kind, NodeRecord, ObjectRecord, PendingDestroyRequest, Policy,
    Records,
};
use super::text;

/// How many days before a certificate expires there is a finding.
const CERTIFICATE_DAYS: u64 = 30;

/// An object with its findings.
#[derive(Clone, Debug)]
pub struct Object {
    /// The node's report.
    pub record: ObjectRecord,
    /// The measures, in the order of [`Concern::MEASURED`].
    pub measures: [Measure; 4],
    /// When the version of its key was created, if the server has that key.
    pub key_created: Option<u64>,
    /// All findings, the worst first.
    pub findings: Vec<Finding>,
}

/// A key with its findings.
#[derive(Clone, Debug)]
pub struct Key {
    /// The record of the store.
    pub record: KeyRecord,
    /// When its newest version was created.
    pub rotation: Measure,
    /// How many objects name it.
    pub objects: usize,
    /// All findings, the worst first.
    pub findings: Vec<Finding>,
}

/// A node with its findings.
#[derive(Clone, Debug)]
pub struct Node {
    /// The record of the store; `None` for a node that reported objects and is no longer enrolled.
    pub record: Option<NodeRecord>,
    /// Its name.
    pub name: String,
    /// How many objects it reports.
    pub objects: usize,
    /// How many of them are overdue.
    pub overdue: usize,
    /// When its newest report came, in seconds since the Unix epoch.
    pub reported: Option<u64>,
    /// All findings, the worst first.
    pub findings: Vec<Finding>,
}

/// Counts by severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// In order.
    pub fine: usize,
    /// Due soon.
    pub soon: usize,
    /// Overdue.
    pub overdue: usize,
    /// Without an interval.
    pub no_interval: usize,
}

impl Tally {
    /// Counts one more of this severity.
    fn add(&mut self, severity: Severity) {
        match severity {
            Severity::Fine => self.fine += 1,
            Severity::Soon => self.soon += 1,
            Severity::Overdue => self.overdue += 1,
        }
    }

    /// Returns the sum of all counts.
    #[must_use]
    pub const fn all(&self) -> usize {
        self.fine + self.soon + self.overdue + self.no_interval
    }

    /// Returns the count of one severity.
    #[must_use]
    pub const fn of(&self, severity: Severity) -> usize {
        match severity {
            Severity::Fine => self.fine,
            Severity::Soon => self.soon,
            Severity::Overdue => self.overdue,
        }
    }
}

/// The fleet at one time.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// The time, in seconds since the Unix epoch.
    pub now: u64,
    /// The operator's intervals.
    pub policy: Policy,
    /// Every object that exists, in order of its id.
    pub objects: Vec<Object>,
    /// Objects that their nodes destroyed, the latest first. They have no intervals.
    pub shredded: Vec<Object>,
    /// Every key, in order of its name.
    pub keys: Vec<Key>,
    /// Every node, in order of its name.
    pub nodes: Vec<Node>,
    /// Whether there are more records than were read.
    pub cut: bool,
    /// The alarms of the key server itself, as text.
    pub alarms: Vec<String>,
}

impl Fleet {
    /// Judges records by the intervals of `policy` at the time `now`, in seconds since the Unix
    /// epoch, and sorts them. Shredded objects are listed apart. There are no alarms yet.
    #[must_use]
    pub fn new(records: Records, policy: Policy, now: u64) -> Self {
        let keys: BTreeMap<String, KeyRecord> = records
            .keys
            .into_iter()
            .map(|key| (key.name.clone(), key))
            .collect();
        let enrolled: BTreeSet<&str> = records.nodes.iter().map(|n| n.name.as_str()).collect();
        let mut objects: Vec<Object> = records
            .objects
            .into_iter()
            .map(|record| {
                let revoked = !enrolled.contains(record.node.as_str());
                judge_object(record, &keys, policy, now, revoked)
            })
            .collect();
        objects.sort_by(|a, b| a.record.id.cmp(&b.record.id));
        let (mut shredded, objects): (Vec<Object>, Vec<Object>) = objects
            .into_iter()
            .partition(|object| object.record.shredded.is_some());
        shredded.sort_by_key(|object| std::cmp::Reverse(object.record.shredded));
        let nodes = judge_nodes(records.nodes, &objects, now);
        let keys = judge_keys(keys, &objects, policy, now);
        Self {
            now,
            policy,
            objects,
            shredded,
            keys,
            nodes,
            cut: records.cut,
            alarms: Vec::new(),
        }
    }

    /// Counts the objects of a kind by severity, without shredded ones.
    #[must_use]
    pub fn tally(&self, kind: Kind) -> Tally {
        let mut tally = Tally::default();
        for object in self.objects.iter().filter(|o| o.record.kind == kind) {
            tally.add(object.severity());
        }
        tally
    }

    /// Counts the keys by severity.
    #[must_use]
    pub fn key_tally(&self) -> Tally {
        let mut tally = Tally::default();
        self.keys.iter().for_each(|key| tally.add(key.severity()));
        tally
    }

    /// Counts the nodes by severity.
    #[must_use]
    pub fn node_tally(&self) -> Tally {
        let mut tally = Tally::default();
        self.nodes
            .iter()
            .for_each(|node| tally.add(node.severity()));
        tally
    }

    /// Counts all objects by their severity for one concern, or as without an interval. Shredded
    /// ones do not count.
    #[must_use]
    pub fn concern_tally(&self, concern: Concern) -> Tally {
        let mut tally = Tally::default();
        for object in &self.objects {
            match object.measure(concern) {
                Some(measure) if measure.interval_s.is_some() => tally.add(measure.severity),
                _ => tally.no_interval += 1,
            }
        }
        tally
    }

    /// Returns the object with an id, also if it was shredded; `None` if there is none.
    #[must_use]
    pub fn object(&self, id: &str) -> Option<&Object> {
        let at = self
            .objects
            .binary_search_by(|object| object.record.id.as_str().cmp(id));
        let there = at.ok().and_then(|at| self.objects.get(at));
        there.or_else(|| self.shredded.iter().find(|object| object.record.id == id))
    }

    /// Returns the key with a name; `None` if there is none.
    #[must_use]
    pub fn key(&self, name: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.record.name == name)
    }

    /// Returns the node with a name, also if it is no longer enrolled but objects name it; `None`
    /// if there is none.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }
}

impl Object {
    /// Returns the severity of the worst finding; in order without one.
    #[must_use]
    pub fn severity(&self) -> Severity {
        worst_severity(&self.findings)
    }

    /// Returns the measure of a concern; `None` for a concern that has no measure (key and cipher).
    #[must_use]
    pub fn measure(&self, concern: Concern) -> Option<&Measure> {
        let at = Concern::MEASURED.iter().position(|one| *one == concern)?;
        self.measures.get(at)
    }
}

impl Key {
    /// Returns the severity of the worst finding; in order without one.
    #[must_use]
    pub fn severity(&self) -> Severity {
        worst_severity(&self.findings)
    }
}

impl Node {
    /// Returns the severity of the worst finding; in order without one.
    #[must_use]
    pub fn severity(&self) -> Severity {
        worst_severity(&self.findings)
    }
}

/// Returns the severity of the worst finding; in order without one.
fn worst_severity(findings: &[Finding]) -> Severity {
    let all = findings.iter().map(|finding| finding.severity);
    all.max().unwrap_or(Severity::Fine)
}

/// Judges an object: its measures, and the findings about these, its key, its cipher and its node,
/// the worst first. `revoked`: its node is no longer enrolled. `now`, here and below: seconds since
/// the Unix epoch.
fn judge_object(
    record: ObjectRecord,
    keys: &BTreeMap<String, KeyRecord>,
    policy: Policy,
    now: u64,
    revoked: bool,
) -> Object {
    let measures = measures_of(&record, policy, now);
    let key = keys.get(&record.key_id);
    let mut findings = Vec::new();
    for (concern, measure) in Concern::MEASURED.into_iter().zip(&measures) {
        findings.extend(overdue_finding(concern, measure, now));
    }
    if let Some(key) = key {
        findings.extend(key_findings(key, record.key_version, now));
    }
    findings.extend(cipher_finding(&record.cipher));
    if revoked {
        findings.push(finding(
            Concern::Report,
            Severity::Soon,
            "its node is no longer enrolled",
        ));
    }
    sort_findings(&mut findings);
    Object {
        key_created: key.and_then(|key| key.created(record.key_version)),
        record,
        measures,
        findings,
    }
}

/// Judges when an object was rotated, backed up, verified and reported last, in this order.
fn measures_of(record: &ObjectRecord, policy: Policy, now: u64) -> [Measure; 4] {
    let made = record.created;
    let measure = |at: Option<u64>, days: u32, has_interval: bool| {
        if has_interval {
            Measure::new(at, made, days, now)
        } else {
            Measure::without_interval(at, made)
        }
    };
    let is_backup = record.kind == Kind::Backup;
    let verifiable = record.kind != Kind::Volume || record.verified.is_some();
    [
        measure(record.rotated, policy.rotation_days, !is_backup),
        measure(record.backed_up, policy.backup_days, true),
        measure(record.verified, policy.verification_days, verifiable),
        measure(Some(record.reported), policy.report_days, true),
    ]
}

/// Makes a finding.
fn finding(concern: Concern, severity: Severity, text: impl Into<String>) -> Finding {
    Finding {
        concern,
        severity,
        text: text.into(),
    }
}

/// Makes the finding about a measure that is due soon, overdue or in the future. `None` if it is in
/// order, or the concern has no measure.
fn overdue_finding(concern: Concern, measure: &Measure, now: u64) -> Option<Finding> {
    let what = match concern {
        Concern::Rotation => "rotation",
        Concern::Backup => "backup",
        Concern::Verification => "verification",
        Concern::Report => "report",
        Concern::Key | Concern::Cipher => return None,
    };
    let text = match (measure.severity, measure.late_s(now)) {
        (Severity::Fine, _) => return None,
        (Severity::Soon, _) => format!("{what} due soon"),
        (Severity::Overdue, Some(late)) => format!("{what} overdue by {}", text::duration(late)),
        (Severity::Overdue, None) => format!("time of {what} lies in the future"),
    };
    Some(finding(concern, measure.severity, text))
}

/// Makes the findings about the key of an object: its state, and a `version` that is not known or
/// not the newest.
fn key_findings(key: &KeyRecord, version: u32, now: u64) -> Vec<Finding> {
    let mut findings: Vec<Finding> = state_finding(key.state, now).into_iter().collect();
    let latest = key.latest().map_or(0, |(number, _)| number);
    if key.created(version).is_none() && key.state != KeyState::Destroyed {
        let text = format!("version {version} of its key is not known");
        findings.push(finding(Concern::Key, Severity::Overdue, text));
    } else if version < latest {
        let text = format!("key version {version}, the newest is {latest}");
        findings.push(finding(Concern::Key, Severity::Soon, text));
    }
    findings
}

/// Makes the finding about a key that is not active; `None` for an active one.
fn state_finding(state: KeyState, now: u64) -> Option<Finding> {
    let text = match state {
        KeyState::Active => return None,
        KeyState::Disabled => "key disabled".to_owned(),
        KeyState::Pending { at } if at > now => {
            format!("key is destroyed in {}", text::duration(at - now))
        }
        KeyState::Pending { .. } => "key is about to be destroyed".to_owned(),
        KeyState::Destroyed => "key destroyed".to_owned(),
    };
    Some(finding(Concern::Key, Severity::Overdue, text))
}

/// Makes the finding about a request for destruction. A second administrator has to look at it
/// before it expires.
fn destroy_request_finding(request: &PendingDestroyRequest) -> Finding {
    let text = format!(
        "{} asked for its destruction {} after a second administrator agrees, until {}",
        text::displayed_name(&request.by),
        text::duration(request.after_s),
        text::date(request.until)
    );
    finding(Concern::Key, Severity::Soon, text)
}

/// Makes the finding about an object that is not encrypted, or whose cipher is obsolete; `None` for
/// another cipher.
fn cipher_finding(cipher: &str) -> Option<Finding> {
    let lower = cipher.to_ascii_lowercase();
    if matches!(lower.as_str(), "" | "none" | "plain" | "cipher_null-ecb") {
        return Some(finding(Concern::Cipher, Severity::Overdue, "not encrypted"));
    }
    let obsolete = ["3des", "tdes", "des3", "triple"];
    obsolete
        .iter()
        .any(|name| lower.contains(name))
        .then(|| finding(Concern::Cipher, Severity::Soon, "cipher is obsolete"))
}

/// Sorts findings: the worst first, and those of the same severity by [`rank`].
fn sort_findings(findings: &mut [Finding]) {
    findings.sort_by_key(|finding| (std::cmp::Reverse(finding.severity), rank(finding.concern)));
}

/// Returns the place of a concern among findings of the same severity; the least comes first.
const fn rank(concern: Concern) -> u8 {
    match concern {
        Concern::Cipher => 0,
        Concern::Key => 1,
        Concern::Backup => 2,
        Concern::Verification => 3,
        Concern::Rotation => 4,
        Concern::Report => 5,
    }
}

/// Judges keys, in order of their names, and counts the objects that name each. A destroyed key
/// that no object needs is no finding, and has no interval.
fn judge_keys(
    keys: BTreeMap<String, KeyRecord>,
    objects: &[Object],
    policy: Policy,
    now: u64,
) -> Vec<Key> {
    let mut users: BTreeMap<&str, usize> = BTreeMap::new();
    for object in objects {
        *users.entry(&object.record.key_id).or_default() += 1;
    }
    let judged = |(name, record): (String, KeyRecord)| {
        let made = record.latest().map_or(0, |(_, made)| made);
        let alive = matches!(record.state, KeyState::Active | KeyState::Disabled);
        let rotation = if alive {
            Measure::new(Some(made), made, policy.rotation_days, now)
        } else {
            Measure::without_interval(Some(made), made)
        };
        let mut findings: Vec<Finding> = overdue_finding(Concern::Rotation, &rotation, now)
            .into_iter()
            .collect();
        let objects = users.get(name.as_str()).copied().unwrap_or(0);
        // A destroyed key is a finding only if an object still needs it.
        let wanted = record.state == KeyState::Destroyed && objects == 0;
        findings.extend(state_finding(record.state, now).filter(|_| !wanted));
        findings.extend(record.destroy_request.as_ref().map(destroy_request_finding));
        sort_findings(&mut findings);
        Key {
            record,
            rotation,
            objects,
            findings,
        }
    };
    keys.into_iter().map(judged).collect()
}

/// Judges nodes, in order of their names, and counts their objects. Nodes that reported objects and
/// are no longer enrolled are among them.
fn judge_nodes(records: Vec<NodeRecord>, objects: &[Object], now: u64) -> Vec<Node> {
    let mut all: BTreeMap<String, Node> = BTreeMap::new();
    let new_node = |name: &str, record: Option<NodeRecord>| Node {
        record,
        name: name.to_owned(),
        objects: 0,
        overdue: 0,
        reported: None,
        findings: Vec::new(),
    };
    for record in records {
        let name = record.name.clone();
        let node = new_node(&name, Some(record));
        all.insert(name, node);
    }
    for object in objects {
        let name = &object.record.node;
        let node = all
            .entry(name.clone())
            .or_insert_with(|| new_node(name, None));
        node.objects += 1;
        node.overdue += usize::from(object.severity() == Severity::Overdue);
        node.reported = node.reported.max(Some(object.record.reported));
    }
    let judged = |mut node: Node| {
        node.findings = node_findings(&node, now);
        sort_findings(&mut node.findings);
        node
    };
    all.into_values().map(judged).collect()
}

/// Makes the findings about a node: it is no longer enrolled, or its certificate has expired or
/// expires within 30 days.
fn node_findings(node: &Node, now: u64) -> Vec<Finding> {
    let Some(record) = &node.record else {
        let text = "no longer enrolled, its objects remain";
        return vec![finding(Concern::Report, Severity::Soon, text)];
    };
    let Some(expires) = record.expires else {
        return Vec::new();
    };
    let left = expires.saturating_sub(now);
    if expires <= now {
        vec![finding(
            Concern::Key,
            Severity::Overdue,
            "certificate expired",
        )]
    } else if left < CERTIFICATE_DAYS * DAY_S {
        let text = format!("certificate expires in {}", text::duration(left));
        vec![finding(Concern::Key, Severity::Soon, text)]
    } else {
        Vec::new()
    }
}
