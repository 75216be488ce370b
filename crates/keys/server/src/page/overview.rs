//! The first page: an overview of the fleet, and the list of its objects.
//!
//! Must not: show more than [`PER_PAGE`] objects at once.

use maud::{Markup, html};

use super::elements;
use super::findings::{Concern, Finding, Severity};
use super::model::{Fleet, Object, Tally};
use super::query::{PER_PAGE, Query, Sort};
use super::records::{KeyState, Kind};
use super::text;

/// The most keys and nodes that are listed beside the objects.
const NOTICES_MAX: usize = 6;
/// The most shredded objects that are listed.
const SHREDDED_MAX: usize = 100;

/// Renders the content of the first page: totals, alarms, what is overdue, the list of the objects
/// that the query selects, and shredded objects.
#[must_use]
pub fn overview(fleet: &Fleet, query: &Query) -> Markup {
    html! {
        div.head {
            h1 { "Fleet" }
            p.lead { (summary(fleet)) }
        }
        @if !fleet.alarms.is_empty() {
            section.state role="alert" {
                h2 { "The key server needs room" }
                ul.findings { @for alarm in &fleet.alarms { li { (elements::badge(Severity::Overdue, alarm)) } } }
                p { "Without room it delivers no key. What to do is in the guide keyserver-audit.md, " q { "When there is no room" } "." }
            }
        }
        @if fleet.cut {
            section.state { p { "There is more than this page reads. What is shown is not all: see the lists of the interface." } }
        }
        @if fleet.objects.is_empty() {
            (nothing_reported(fleet))
        }
        (tiles(fleet))
        @if !fleet.objects.is_empty() {
            div.pair {
                (currency(fleet))
                (notices(fleet))
            }
            (objects(fleet, query))
        }
        @if !fleet.shredded.is_empty() { (shredded(fleet)) }
    }
}

/// Renders the objects that their nodes destroyed, the latest first and at most [`SHREDDED_MAX`],
/// with the states of their keys; of further ones only the number.
fn shredded(fleet: &Fleet) -> Markup {
    let more = fleet.shredded.len().saturating_sub(SHREDDED_MAX);
    html! {
        section.panel aria-labelledby="shredded" {
            h2 #shredded { "Shredded" }
            p.quiet { "Their nodes destroyed them. " code { "strongroom keyserver forget ID" } " takes one off this page." }
            div.scroll tabindex="0" role="region" aria-label="Table of shredded objects" {
                table.objects {
                    thead { tr { @for head in ["Name", "Node", "Shredded", "Key", "State of the key", "Id"] { th scope="col" { (head) } } } }
                    tbody { @for object in fleet.shredded.iter().take(SHREDDED_MAX) { (shredded_row(fleet, object)) } }
                }
            }
            @if more > 0 { p.quiet { "and " (text::grouped(more)) " more" } }
        }
    }
}

/// Renders a shredded object as a row of its table.
fn shredded_row(fleet: &Fleet, object: &Object) -> Markup {
    let record = &object.record;
    let server_key = fleet.key(&record.key_id);
    html! {
        tr {
            th scope="row" { (elements::object_link(&record.id, &record.name)) }
            td data-label="Node" { (elements::node_link(&record.node)) }
            td data-label="Shredded" { (elements::age(record.shredded.unwrap_or(0), fleet.now)) }
            td data-label="Key" { (object_key(fleet, object)) }
            td data-label="State of the key" { (server_key.map_or_else(|| html! { span.quiet { "not kept here" } }, |key| shredded_key_state(key.record.state, fleet.now))) }
            td.code data-label="Id" { (elements::name(&record.id)) }
        }
    }
}

/// Renders whether the key of a shredded object is destroyed, or will be. `now` is in seconds since
/// the Unix epoch.
fn shredded_key_state(state: KeyState, now: u64) -> Markup {
    html! {
        @match state {
            KeyState::Destroyed => "destroyed",
            KeyState::Pending { at } => { "not destroyed yet: at " (text::date(at)) ", in " (text::duration(at.saturating_sub(now))) },
            KeyState::Active | KeyState::Disabled => "kept",
        }
    }
}

/// Returns the sentence under the heading: how many objects and nodes there are, and how many
/// objects are overdue.
fn summary(fleet: &Fleet) -> String {
    let objects = text::count(fleet.objects.len(), "object", "objects");
    let nodes = text::count(fleet.nodes.len(), "node", "nodes");
    let bad = fleet
        .objects
        .iter()
        .filter(|object| object.severity() == Severity::Overdue)
        .count();
    let tail = match bad {
        0 if fleet.objects.is_empty() => String::new(),
        0 => " Nothing is overdue.".to_owned(),
        1 => " 1 needs attention.".to_owned(),
        _ => format!(" {} need attention.", text::grouped(bad)),
    };
    format!("{objects}, {nodes}.{tail}")
}

/// Renders what to do while no node has reported an object: enrol a node, or have nodes report.
fn nothing_reported(fleet: &Fleet) -> Markup {
    html! {
        section.state {
            h2 { "No node has reported an object yet" }
            @if fleet.nodes.iter().all(|node| node.record.as_ref().is_none_or(|r| r.role != "node")) {
                p { "Enrol a node first: make a token with " code { "strongroom keyserver token" } ", and on the node run "
                    code { "strongroom keyserver join" } "." }
            } @else {
                p { "Nodes are enrolled. On each of them, " code { "strongroom keyserver report" } " tells this server of its databases, "
                    "instances, volumes and backups; the units in " code { "packaging/systemd" } " do so every day." }
            }
        }
    }
}

/// Renders a tile for each kind of object, for the keys and for the nodes.
fn tiles(fleet: &Fleet) -> Markup {
    html! {
        section aria-label="Totals" {
            ul.tiles {
                @for kind in Kind::ALL {
                    @let link = Query { kind: Some(kind), page: 1, ..Query::default() }.link();
                    (tile(kind.plural(), &link, &fleet.tally(kind)))
                }
                (tile("Keys", "/fleet/keys", &fleet.key_tally()))
                (tile("Nodes", "/fleet/nodes", &fleet.node_tally()))
            }
        }
    }
}

/// Renders a tile: a total with its parts, as a link.
fn tile(label: &str, link: &str, tally: &Tally) -> Markup {
    html! {
        li {
            a.tile href=(link) {
                span.label { (label) }
                span.number { (text::grouped(tally.all())) }
                (elements::bar(tally))
                span.sub {
                    @if tally.all() == 0 { "none" }
                    @else if tally.overdue + tally.soon == 0 { "in order" }
                    @else {
                        @if tally.overdue > 0 { span.overdue { (text::grouped(tally.overdue)) " overdue" } }
                        @if tally.overdue > 0 && tally.soon > 0 { " · " }
                        @if tally.soon > 0 { span.soon { (text::grouped(tally.soon)) " soon" } }
                    }
                }
            }
        }
    }
}

/// Renders the table of how many objects are overdue, due soon and in order for each concern.
fn currency(fleet: &Fleet) -> Markup {
    html! {
        section.panel aria-labelledby="currency" {
            h2 #currency { "How current" }
            table.currency {
                thead { tr {
                    th scope="col" { "What" } th scope="col" { "Within" }
                    th.share scope="col" { span.unseen { "Share" } }
                    th.n scope="col" { "Overdue" } th.n scope="col" { "Soon" } th.n scope="col" { "In order" }
                } }
                tbody {
                    @for concern in Concern::MEASURED {
                        @let tally = fleet.concern_tally(concern);
                        tr {
                            th scope="row" { (concern.label()) }
                            td { (interval(fleet, concern)) }
                            td.share { (elements::bar(&tally)) }
                            @for severity in [Severity::Overdue, Severity::Soon, Severity::Fine] {
                                td.n { (count_link(concern, severity, tally.of(severity))) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Renders the operator's interval for a concern, in days; 0 as "not asked for".
fn interval(fleet: &Fleet, concern: Concern) -> Markup {
    let policy = &fleet.policy;
    let days = match concern {
        Concern::Rotation => policy.rotation_days,
        Concern::Backup => policy.backup_days,
        Concern::Verification => policy.verification_days,
        _ => policy.report_days,
    };
    html! { @if days == 0 { span.quiet { "not asked for" } } @else { (days) " d" } }
}

/// Renders a count, as a link to the objects that it counts; 0 without a link.
fn count_link(concern: Concern, severity: Severity, number: usize) -> Markup {
    let query = Query {
        concern: Some(concern),
        state: Some(severity),
        page: 1,
        ..Query::default()
    };
    html! {
        @if number == 0 { span.quiet { "0" } }
        @else { a class=(severity.word()) href=(query.link()) { (text::grouped(number)) } }
    }
}

/// Renders the keys and nodes with findings, the worst first and at most [`NOTICES_MAX`].
fn notices(fleet: &Fleet) -> Markup {
    let keys = fleet.keys.iter().map(|key| {
        let name = &key.record.name;
        ("Key", elements::key_link(name), key.findings.as_slice())
    });
    let nodes = fleet.nodes.iter().map(|node| {
        let link = elements::node_link(&node.name);
        ("Node", link, node.findings.as_slice())
    });
    let mut found: Vec<(&str, Markup, &[Finding])> = keys
        .chain(nodes)
        .filter(|(_, _, findings)| !findings.is_empty())
        .collect();
    found.sort_by_key(|(_, _, findings)| findings.first().map(|f| std::cmp::Reverse(f.severity)));
    let more = found.len().saturating_sub(NOTICES_MAX);
    html! {
        section.panel aria-labelledby="notices" {
            h2 #notices { "Keys and nodes" }
            @if found.is_empty() {
                p.allwell { (elements::badge(Severity::Fine, "all in order")) }
            } @else {
                ul.notices {
                    @for (what, link, findings) in found.iter().take(NOTICES_MAX) {
                        li { span.quiet { (what) " " } (link) " " (elements::worst_finding(findings)) }
                    }
                }
                @if more > 0 {
                    p.quiet { "and " (text::grouped(more)) " more: " a href="/fleet/keys" { "keys" } ", " a href="/fleet/nodes" { "nodes" } }
                }
            }
        }
    }
}

/// Renders the list of the objects that a query selects, one page of it, with filters and links to
/// other pages.
#[must_use]
pub fn objects(fleet: &Fleet, query: &Query) -> Markup {
    let found = query.select(fleet);
    let pages = found.len().div_ceil(PER_PAGE).max(1);
    let page = query.page.clamp(1, pages);
    let first = (page - 1) * PER_PAGE;
    let shown = found.get(first..).unwrap_or_default();
    let shown = shown.get(..PER_PAGE.min(shown.len())).unwrap_or_default();
    html! {
        section aria-labelledby="objects" #list {
            div.listhead {
                h2 #objects { "Objects" }
                p.quiet role="status" { (extent(found.len(), fleet.objects.len(), first, shown.len())) }
            }
            (filters(fleet, query))
            @if shown.is_empty() {
                p.none { "No object is like this. " a href="/" { "Show all" } }
            } @else {
                (table(fleet, query, shown))
                (pager(query, page, pages))
            }
        }
    }
}

/// Returns which objects the page shows: how many of `found`, and of `all` if a filter left some
/// out.
fn extent(found: usize, all: usize, first: usize, shown: usize) -> String {
    let total = text::grouped(found);
    let of_all = if found == all {
        String::new()
    } else {
        format!(", filtered from {}", text::grouped(all))
    };
    if shown == found {
        return format!("{total}{of_all}");
    }
    let (from, to) = (text::grouped(first + 1), text::grouped(first + shown));
    format!("{from}–{to} of {total}{of_all}")
}

/// Renders the form with the filters of the list.
fn filters(fleet: &Fleet, query: &Query) -> Markup {
    let kinds = Kind::ALL.map(|kind| (kind.word(), kind.name(), query.kind == Some(kind)));
    let states = [Severity::Overdue, Severity::Soon, Severity::Fine]
        .map(|one| (one.word(), one.label(), query.state == Some(one)));
    let concerns = Concern::ALL.map(|one| (one.word(), one.label(), query.concern == Some(one)));
    html! {
        form.filters method="get" action="/" role="search" aria-label="Objects" {
            (select("kind", "Kind", &kinds))
            (select("state", "State", &states))
            (select("concern", "In respect of", &concerns))
            label { span { "Search" } input type="search" name="q" value=(query.text) maxlength="200" placeholder="name, node, key, cipher"; }
            @for (name, value) in query.pairs().into_iter().filter(|(name, _)| matches!(*name, "node" | "key" | "sort" | "order")) {
                input type="hidden" name=(name) value=(value);
            }
            button type="submit" { "Show" }
            @if query.is_filtered() { a.clear href="/" { "Clear" } }
            (link_filters(fleet, query))
        }
    }
}

/// Renders the filters that a link set and that have no field in the form (node and key), each with
/// a link that removes it.
fn link_filters(fleet: &Fleet, query: &Query) -> Markup {
    let without_node = Query {
        node: None,
        ..query.on_page(1)
    };
    let without_key = Query {
        key: None,
        ..query.on_page(1)
    };
    html! {
        @if let Some(node) = &query.node {
            span.chosen { "Node " @if fleet.node(node).is_some() { (elements::node_link(node)) } @else { (elements::name(node)) }
                " " a href=(without_node.link()) aria-label="All nodes" { "×" } }
        }
        @if let Some(key) = &query.key {
            span.chosen { "Key " @if fleet.key(key).is_some() { (elements::key_link(key)) } @else { (elements::name(key)) }
                " " a href=(without_key.link()) aria-label="All keys" { "×" } }
        }
    }
}

/// Renders a field of the form with these options, each with its value, its text and whether it is
/// chosen, after "any".
fn select(name: &str, label: &str, options: &[(&str, &str, bool)]) -> Markup {
    html! {
        label { span { (label) }
            select name=(name) {
                option value="" { "any" }
                @for (value, text, chosen) in options {
                    option value=(value) selected[*chosen] { (text) }
                }
            }
        }
    }
}

const COLUMNS: [(Sort, &str); 10] = [
    (Sort::Name, "Name"),
    (Sort::Kind, "Kind"),
    (Sort::Node, "Node"),
    (Sort::Cipher, "Cipher"),
    (Sort::Key, "Key"),
    (Sort::KeyAge, "Key age"),
    (Sort::Measure(Concern::Rotation), "Last rotation"),
    (Sort::Measure(Concern::Backup), "Last backup"),
    (Sort::Measure(Concern::Verification), "Last verification"),
    (Sort::Attention, "State"),
];

/// Renders the table of these objects.
fn table(fleet: &Fleet, query: &Query, shown: &[&Object]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Table of objects" {
            table.objects {
                thead { tr { @for (sort, label) in COLUMNS { (heading(query, sort, label)) } } }
                tbody { @for object in shown { (row(fleet, object)) } }
            }
        }
    }
}

/// Renders the heading of a column, as a link that sorts by it, or reverses the order.
fn heading(query: &Query, sort: Sort, label: &str) -> Markup {
    let current = query.sort == sort;
    let order = match (current, query.reversed) {
        (false, _) => None,
        (true, false) => Some("ascending"),
        (true, true) => Some("descending"),
    };
    html! {
        th scope="col" aria-sort=[order] {
            a href={ (query.sorted(sort).link()) "#list" } { (label) }
        }
    }
}

/// Renders an object as a row of the table.
fn row(fleet: &Fleet, object: &Object) -> Markup {
    let record = &object.record;
    let now = fleet.now;
    html! {
        tr {
            th scope="row" { (elements::object_link(&record.id, &record.name)) }
            td data-label="Kind" { (record.kind.name()) }
            td data-label="Node" { (elements::node_link(&record.node)) }
            td.code data-label="Cipher" { (elements::name(&record.cipher)) }
            td data-label="Key" { (object_key(fleet, object)) }
            td data-label="Key age" {
                @if let Some(made) = object.key_created { (elements::since(made, now)) }
                @else { span.quiet title="this key is not kept here" { "–" } }
            }
            @for (concern, measure) in Concern::MEASURED.iter().zip(&object.measures).take(3) {
                td data-label=(concern.label()) { (elements::measure_cell(measure, now)) }
            }
            td data-label="State" { (elements::worst_finding(&object.findings)) }
        }
    }
}

/// Renders the key of an object with its version, as a link if the server has the key; a dash if
/// the node named none.
#[must_use]
pub fn object_key(fleet: &Fleet, object: &Object) -> Markup {
    let record = &object.record;
    html! {
        @if record.key_id.is_empty() { span.quiet { "–" } }
        @else if fleet.key(&record.key_id).is_some() {
            (elements::key_link(&record.key_id)) span.quiet { " v" (record.key_version) }
        } @else {
            (elements::name(&record.key_id)) span.quiet { " v" (record.key_version) " (elsewhere)" }
        }
    }
}

/// Renders links to the first, previous, next and last page; nothing for a single page.
fn pager(query: &Query, page: usize, pages: usize) -> Markup {
    let link = |to: usize| format!("{}#list", query.on_page(to).link());
    html! {
        @if pages > 1 {
            nav.pager aria-label="Pages" {
                @if page > 1 {
                    a href=(link(1)) { "First" } a rel="prev" href=(link(page - 1)) { "Previous" }
                }
                span aria-current="page" { "Page " (text::grouped(page)) " of " (text::grouped(pages)) }
                @if page < pages {
                    a rel="next" href=(link(page + 1)) { "Next" } a href=(link(pages)) { "Last" }
                }
            }
        }
    }
}
