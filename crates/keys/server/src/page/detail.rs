//! The pages of one object, one key and one node.
//!
//! Must not: show key material, or anything that a fleet does not hold.

use maud::{Markup, html};

use super::judge::{Concern, Measure, Severity};
use super::model::{Fleet, Key, Node, Object};
use super::overview;
use super::parts;
use super::query::Query;
use super::records::KeyState;
use super::words;

/// Objects that are named on the page of a key or a node.
const NAMED: usize = 50;

/// One line of a list of properties.
fn line(label: &str, value: &Markup) -> Markup {
    html! { div { dt { (label) } dd { (value) } } }
}

fn trail(list: &str, link: &str, text: &str) -> Markup {
    html! {
        nav.trail aria-label="Breadcrumb" { a href=(link) { (list) } span aria-hidden="true" { " / " } span aria-current="page" { (parts::name(text)) } }
    }
}

/// One object.
#[must_use]
pub fn object(fleet: &Fleet, object: &Object) -> Markup {
    let record = &object.record;
    let now = fleet.now;
    html! {
        (trail("Fleet", "/", &record.name))
        div.head { h1 { (parts::name(&record.name)) } p.lead { (record.kind.name()) " on " (parts::node_link(&record.node)) } }
        section aria-label="Findings" { (parts::findings(&object.findings)) }
        div.pair {
            section.panel aria-labelledby="what" {
                h2 #what { "What it is" }
                dl {
                    (line("Object id", &html! { code { (parts::name(&record.id)) } }))
                    (line("Cipher", &html! { code { (parts::name(&record.cipher)) } }))
                    (line("Key", &overview::key(fleet, object)))
                    (line("Key age", &key_age(object, now)))
                    (line("Made", &parts::dated(record.created, now)))
                    (line("Reported", &parts::dated(record.reported, now)))
                    @if let Some(at) = record.shredded { (line("Shredded", &parts::dated(at, now))) }
                }
            }
            section.panel aria-labelledby="when" {
                h2 #when { "What is done to it" }
                table.measures {
                    thead { tr { th scope="col" { "What" } th scope="col" { "Last" } th scope="col" { "Due" } th scope="col" { "State" } } }
                    tbody {
                        @for (concern, measure) in Concern::MEASURED.iter().zip(&object.measures) {
                            (measured(*concern, measure, now))
                        }
                    }
                }
            }
        }
    }
}

fn key_age(object: &Object, now: u64) -> Markup {
    html! {
        @match object.key_made {
            Some(made) => (parts::dated(made, now)),
            None => span.quiet { "not known here" },
        }
    }
}

fn measured(concern: Concern, measure: &Measure, now: u64) -> Markup {
    let due = measure
        .interval_s
        .map(|interval| measure.since.saturating_add(interval));
    html! {
        tr {
            th scope="row" { (concern.label()) }
            td { @match measure.at { Some(at) => (parts::dated(at, now)), None => span.quiet { "never" } } }
            td { @match due { Some(due) => (parts::age(due, now)), None => span.quiet { "not asked for" } } }
            td {
                @if measure.interval_s.is_some() { (parts::badge(measure.severity, measure.severity.label())) }
                @else { span.quiet { "–" } }
            }
        }
    }
}

/// One key.
#[must_use]
pub fn key(fleet: &Fleet, key: &Key) -> Markup {
    let record = &key.record;
    let now = fleet.now;
    html! {
        (trail("Keys", "/fleet/keys", &record.name))
        div.head { h1 { (parts::name(&record.name)) } p.lead { "Key, " (state(record.state, now)) } }
        section aria-label="Findings" { (parts::findings(&key.findings)) }
        div.pair {
            section.panel aria-labelledby="versions" {
                h2 #versions { "Versions" }
                (versions(fleet, key))
            }
            section.panel aria-labelledby="granted" {
                h2 #granted { "Granted to" }
                @if record.nodes.is_empty() { p.quiet { "No node." } }
                @else {
                    ul.names { @for node in record.nodes.iter().take(NAMED) { li { (parts::node_link(node)) } } }
                    @if record.nodes.len() > NAMED { p.quiet { "and " (words::grouped(record.nodes.len() - NAMED)) " more" } }
                }
            }
        }
        (opened(fleet, key))
    }
}

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
                @for (number, made) in key.record.versions.iter().rev().take(NAMED) {
                    tr {
                        th scope="row" { "v" (number) }
                        td { (parts::dated(*made, fleet.now)) }
                        td.n { (words::grouped(users(*number))) }
                        td { @if Some(*number) == latest { span.quiet { "newest" } } @else { span.quiet { "for opening only" } } }
                    }
                }
            }
        }
        @if key.record.versions.len() > NAMED { p.quiet { "and " (words::grouped(key.record.versions.len() - NAMED)) " older" } }
    }
}

fn opened(fleet: &Fleet, key: &Key) -> Markup {
    let query = Query {
        key: Some(key.record.name.clone()),
        page: 1,
        ..Query::default()
    };
    html! {
        section aria-labelledby="opened" {
            h2 #opened { "Objects that it opens" }
            (some(fleet, &query))
        }
    }
}

/// The first objects of a query, and the way to the others.
fn some(fleet: &Fleet, query: &Query) -> Markup {
    let found = query.select(fleet);
    html! {
        @if found.is_empty() { p.none { "None that a node reported." } }
        @else {
            div.scroll tabindex="0" role="region" aria-label="Objects" {
                table.objects {
                    thead { tr { th scope="col" { "Name" } th scope="col" { "Kind" } th scope="col" { "Node" } th scope="col" { "Key" } th scope="col" { "State" } } }
                    tbody {
                        @for object in found.iter().take(NAMED) {
                            tr {
                                th scope="row" { (parts::object_link(&object.record.id, &object.record.name)) }
                                td data-label="Kind" { (object.record.kind.name()) }
                                td data-label="Node" { (parts::node_link(&object.record.node)) }
                                td data-label="Key" { (overview::key(fleet, object)) }
                                td data-label="State" { (parts::worst(&object.findings)) }
                            }
                        }
                    }
                }
            }
            p { a href=(query.link()) { "All " (words::count(found.len(), "object", "objects")) ", with their times" } }
        }
    }
}

/// One node.
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
        (trail("Nodes", "/fleet/nodes", &node.name))
        div.head { h1 { (parts::name(&node.name)) } p.lead { (role(node)) } }
        section aria-label="Findings" { (parts::findings(&node.findings)) }
        div.pair {
            section.panel aria-labelledby="who" {
                h2 #who { "Who it is" }
                dl {
                    @if let Some(record) = &node.record {
                        (line("Role", &html! { (parts::name(&record.role)) }))
                        @if let Some(at) = record.enrolled { (line("Enrolled", &parts::dated(at, now))) }
                        @if let Some(at) = record.expires { (line("Certificate expires", &parts::dated(at, now))) }
                    }
                    (line("Objects", &html! { (words::grouped(node.objects)) }))
                    (line("Last report", &html! { @match node.reported { Some(at) => (parts::dated(at, now)), None => span.quiet { "never" } } }))
                }
            }
            section.panel aria-labelledby="granted" {
                h2 #granted { "Keys that it is granted" }
                @if granted.is_empty() { p.quiet { "None." } }
                @else {
                    ul.names { @for key in granted.iter().take(NAMED) { li { (parts::key_link(key)) } } }
                    @if granted.len() > NAMED { p.quiet { "and " (words::grouped(granted.len() - NAMED)) " more" } }
                }
            }
        }
        section aria-labelledby="objects" {
            h2 #objects { "Objects that it reports" }
            (some(fleet, &query))
        }
    }
}

fn role(node: &Node) -> Markup {
    html! {
        @match &node.record {
            Some(record) => (parts::name(&record.role)),
            None => "no longer enrolled",
        }
    }
}

/// The state of a key in words.
#[must_use]
pub fn state(state: KeyState, now: u64) -> Markup {
    html! {
        @match state {
            KeyState::Active => "active",
            KeyState::Disabled => (parts::badge(Severity::Overdue, "disabled")),
            KeyState::Pending { at } => (parts::badge(Severity::Overdue, &format!("destroyed {}", words::ago(at, now)))),
            KeyState::Destroyed => (parts::badge(Severity::Overdue, "destroyed")),
        }
    }
}
