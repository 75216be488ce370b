//! The pages of one object, one key and one node.
//!
//! Must not: show anything that is not in the [`Fleet`]; it holds no bytes of keys.

use maud::{Markup, html};

use super::elements;
use super::findings::{Concern, Measure, Severity};
use super::model::{Fleet, Key, Node, Object};
use super::overview;
use super::query::Query;
use super::records::KeyState;
use super::text;

/// The most items of a list on the page of a key or a node.
const LISTED_MAX: usize = 50;

/// Renders one property of a definition list.
fn property(label: &str, value: &Markup) -> Markup {
    html! { div { dt { (label) } dd { (value) } } }
}

/// Renders the breadcrumb of a page: a link to its list, and the page's own name.
fn breadcrumb(list: &str, link: &str, text: &str) -> Markup {
    html! {
        nav.trail aria-label="Breadcrumb" { a href=(link) { (list) } span aria-hidden="true" { " / " } span aria-current="page" { (elements::name(text)) } }
    }
}

/// Renders the page of an object: findings, properties, and the times of rotation, backup,
/// verification and report.
#[must_use]
pub fn object(fleet: &Fleet, object: &Object) -> Markup {
    let record = &object.record;
    let now = fleet.now;
    html! {
        (breadcrumb("Fleet", "/", &record.name))
        div.head { h1 { (elements::name(&record.name)) } p.lead { (record.kind.name()) " on " (elements::node_link(&record.node)) } }
        section aria-label="Findings" { (elements::findings(&object.findings)) }
        div.pair {
            section.panel aria-labelledby="what" {
                h2 #what { "What it is" }
                dl {
                    (property("Object id", &html! { code { (elements::name(&record.id)) } }))
                    (property("Cipher", &html! { code { (elements::name(&record.cipher)) } }))
                    (property("Key", &overview::object_key(fleet, object)))
                    (property("Key age", &key_age(object, now)))
                    (property("Made", &elements::dated(record.created, now)))
                    (property("Reported", &elements::dated(record.reported, now)))
                    @if let Some(at) = record.shredded { (property("Shredded", &elements::dated(at, now))) }
                }
            }
            section.panel aria-labelledby="when" {
                h2 #when { "What is done to it" }
                table.measures {
                    thead { tr { th scope="col" { "What" } th scope="col" { "Last" } th scope="col" { "Due" } th scope="col" { "State" } } }
                    tbody {
                        @for (concern, measure) in Concern::MEASURED.iter().zip(&object.measures) {
                            (measure_row(*concern, measure, now))
                        }
                    }
                }
            }
        }
    }
}

/// Renders when the version of the object's key was created, or that this is not known. `now`, here
/// and below: seconds since the Unix epoch.
fn key_age(object: &Object, now: u64) -> Markup {
    html! {
        @match object.key_created {
            Some(made) => (elements::dated(made, now)),
            None => span.quiet { "not known here" },
        }
    }
}

/// Renders a measure as a row of a table: when it happened last, when it is due, and how urgent it
/// is.
fn measure_row(concern: Concern, measure: &Measure, now: u64) -> Markup {
    let due = measure
        .interval_s
        .map(|interval| measure.since.saturating_add(interval));
    html! {
        tr {
            th scope="row" { (concern.label()) }
            td { @match measure.at { Some(at) => (elements::dated(at, now)), None => span.quiet { "never" } } }
            td { @match due { Some(due) => (elements::age(due, now)), None => span.quiet { "not asked for" } } }
            td {
                @if measure.interval_s.is_some() { (elements::badge(measure.severity, measure.severity.label())) }
                @else { span.quiet { "–" } }
            }
        }
    }
}

/// Renders the page of a key: state, findings, versions, the nodes that are granted it, and the
/// objects that name it.
#[must_use]
pub fn key(fleet: &Fleet, key: &Key) -> Markup {
    let record = &key.record;
    let now = fleet.now;
    html! {
        (breadcrumb("Keys", "/fleet/keys", &record.name))
        div.head { h1 { (elements::name(&record.name)) } p.lead { "Key, " (key_state(record.state, now)) } }
        section aria-label="Findings" { (elements::findings(&key.findings)) }
        div.pair {
            section.panel aria-labelledby="versions" {
                h2 #versions { "Versions" }
                (versions(fleet, key))
            }
            section.panel aria-labelledby="granted" {
                h2 #granted { "Granted to" }
                @if record.nodes.is_empty() { p.quiet { "No node." } }
                @else {
                    ul.names { @for node in record.nodes.iter().take(LISTED_MAX) { li { (elements::node_link(node)) } } }
                    @if record.nodes.len() > LISTED_MAX { p.quiet { "and " (text::grouped(record.nodes.len() - LISTED_MAX)) " more" } }
                }
            }
        }
        (opened_objects(fleet, key))
    }
}

/// Renders the table of a key's versions, the newest first and at most [`LISTED_MAX`], with the
/// number of objects that use each.
fn versions(fleet: &Fleet, key: &Key) -> Markup {
    let name = &key.record.name;
    let users = |version: u32| {
        let objects = fleet.objects.iter();
        objects
            .filter(|o| o.record.key_id == *name && o.record.key_version == version)
            .count()
    };
    let latest = key.record.latest().map(|(number, _)| number);
    html! {
        table {
            thead { tr { th scope="col" { "Version" } th scope="col" { "Made" } th.n scope="col" { "Objects" } th scope="col" { span.unseen { "Use" } } } }
            tbody {
                @for (number, made) in key.record.versions.iter().rev().take(LISTED_MAX) {
                    tr {
                        th scope="row" { "v" (number) }
                        td { (elements::dated(*made, fleet.now)) }
                        td.n { (text::grouped(users(*number))) }
                        td { @if Some(*number) == latest { span.quiet { "newest" } } @else { span.quiet { "for opening only" } } }
                    }
                }
            }
        }
        @if key.record.versions.len() > LISTED_MAX { p.quiet { "and " (text::grouped(key.record.versions.len() - LISTED_MAX)) " older" } }
    }
}

/// Renders the list of the objects that name a key.
fn opened_objects(fleet: &Fleet, key: &Key) -> Markup {
    let query = Query {
        key: Some(key.record.name.clone()),
        page: 1,
        ..Query::default()
    };
    html! {
        section aria-labelledby="opened" {
            h2 #opened { "Objects that it opens" }
            (first_objects(fleet, &query))
        }
    }
}

/// Renders the first objects of a query, at most [`LISTED_MAX`], and a link to all of them.
fn first_objects(fleet: &Fleet, query: &Query) -> Markup {
    let found = query.select(fleet);
    html! {
        @if found.is_empty() { p.none { "None that a node reported." } }
        @else {
            div.scroll tabindex="0" role="region" aria-label="Objects" {
                table.objects {
                    thead { tr { th scope="col" { "Name" } th scope="col" { "Kind" } th scope="col" { "Node" } th scope="col" { "Key" } th scope="col" { "State" } } }
                    tbody {
                        @for object in found.iter().take(LISTED_MAX) {
                            tr {
                                th scope="row" { (elements::object_link(&object.record.id, &object.record.name)) }
                                td data-label="Kind" { (object.record.kind.name()) }
                                td data-label="Node" { (elements::node_link(&object.record.node)) }
                                td data-label="Key" { (overview::object_key(fleet, object)) }
                                td data-label="State" { (elements::worst_finding(&object.findings)) }
                            }
                        }
                    }
                }
            }
            p { a href=(query.link()) { "All " (text::count(found.len(), "object", "objects")) ", with their times" } }
        }
    }
}

/// Renders the page of a node: findings, enrolment, the keys that it is granted, and the objects
/// that it reports.
#[must_use]
pub fn node(fleet: &Fleet, node: &Node) -> Markup {
    let now = fleet.now;
    let query = Query {
        node: Some(node.name.clone()),
        page: 1,
        ..Query::default()
    };
    let granted: Vec<&str> = fleet
        .keys
        .iter()
        .filter(|key| key.record.nodes.contains(&node.name))
        .map(|key| key.record.name.as_str())
        .collect();
    html! {
        (breadcrumb("Nodes", "/fleet/nodes", &node.name))
        div.head { h1 { (elements::name(&node.name)) } p.lead { (role(node)) } }
        section aria-label="Findings" { (elements::findings(&node.findings)) }
        div.pair {
            section.panel aria-labelledby="who" {
                h2 #who { "Who it is" }
                dl {
                    @if let Some(record) = &node.record {
                        (property("Role", &html! { (elements::name(&record.role)) }))
                        @if let Some(at) = record.enrolled { (property("Enrolled", &elements::dated(at, now))) }
                        @if let Some(at) = record.expires { (property("Certificate expires", &elements::dated(at, now))) }
                    }
                    (property("Objects", &html! { (text::grouped(node.objects)) }))
                    (property("Last report", &html! { @match node.reported { Some(at) => (elements::dated(at, now)), None => span.quiet { "never" } } }))
                }
            }
            section.panel aria-labelledby="granted" {
                h2 #granted { "Keys that it is granted" }
                @if granted.is_empty() { p.quiet { "None." } }
                @else {
                    ul.names { @for key in granted.iter().take(LISTED_MAX) { li { (elements::key_link(key)) } } }
                    @if granted.len() > LISTED_MAX { p.quiet { "and " (text::grouped(granted.len() - LISTED_MAX)) " more" } }
                }
            }
        }
        section aria-labelledby="objects" {
            h2 #objects { "Objects that it reports" }
            (first_objects(fleet, &query))
        }
    }
}

/// Renders the role of a node, or that it is no longer enrolled.
fn role(node: &Node) -> Markup {
    html! {
        @match &node.record {
            Some(record) => (elements::name(&record.role)),
            None => "no longer enrolled",
        }
    }
}

/// Renders the state of a key: as plain text while it is active, else as a badge.
#[must_use]
pub fn key_state(state: KeyState, now: u64) -> Markup {
    html! {
        @match state {
            KeyState::Active => "active",
            KeyState::Disabled => (elements::badge(Severity::Overdue, "disabled")),
            KeyState::Pending { at } => (elements::badge(Severity::Overdue, &format!("destroyed {}", text::ago(at, now)))),
            KeyState::Destroyed => (elements::badge(Severity::Overdue, "destroyed")),
        }
    }
}
