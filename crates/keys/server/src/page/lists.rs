//! The lists of keys and of nodes.
//!
//! Must not: show more than [`PER_PAGE`] of them at once.

use maud::{Markup, html};

use super::detail;
use super::judge::Severity;
use super::model::{Fleet, Key, Node};
use super::parts;
use super::query::PER_PAGE;
use super::words;

/// A part of a list: which page of how many.
struct Part<'a, T> {
    shown: Vec<&'a T>,
    page: usize,
    pages: usize,
    all: usize,
}

/// The worst first, then in the order they have; one page of them.
fn part<T>(all: &[T], severity: impl Fn(&T) -> Severity, page: usize) -> Part<'_, T> {
    let mut sorted: Vec<&T> = all.iter().collect();
    sorted.sort_by_key(|one| std::cmp::Reverse(severity(one)));
    let pages = sorted.len().div_ceil(PER_PAGE).max(1);
    let page = page.clamp(1, pages);
    Part {
        shown: sorted
            .into_iter()
            .skip((page - 1) * PER_PAGE)
            .take(PER_PAGE)
            .collect(),
        page,
        pages,
        all: all.len(),
    }
}

fn pager<T>(part: &Part<'_, T>, path: &str) -> Markup {
    html! {
        @if part.pages > 1 {
            nav.pager aria-label="Pages" {
                @if part.page > 1 { a rel="prev" href={ (path) "?page=" (part.page - 1) } { "Previous" } }
                span aria-current="page" { "Page " (words::grouped(part.page)) " of " (words::grouped(part.pages)) }
                @if part.page < part.pages { a rel="next" href={ (path) "?page=" (part.page + 1) } { "Next" } }
            }
        }
    }
}

/// All keys.
#[must_use]
pub fn keys(fleet: &Fleet, page: usize) -> Markup {
    let part = part(&fleet.keys, Key::severity, page);
    html! {
        div.head { h1 { "Keys" } p.lead { (words::count(part.all, "key", "keys")) } }
        @if part.all == 0 {
            p.none { "No key has been made." }
        } @else {
            div.scroll tabindex="0" role="region" aria-label="Keys" {
                table.objects {
                    thead { tr {
                        th scope="col" { "Name" } th scope="col" { "Condition" } th.n scope="col" { "Versions" } th scope="col" { "Last rotation" }
                        th.n scope="col" { "Nodes" } th.n scope="col" { "Objects" } th scope="col" { "State" }
                    } }
                    tbody { @for key in &part.shown { (key_row(fleet, key)) } }
                }
            }
            (pager(&part, "/fleet/keys"))
        }
    }
}

fn key_row(fleet: &Fleet, key: &Key) -> Markup {
    html! {
        tr {
            th scope="row" { (parts::key_link(&key.record.name)) }
            td data-label="Condition" { (detail::state(key.record.state, fleet.now)) }
            td.n data-label="Versions" { (key.record.versions.len()) }
            td data-label="Last rotation" { (parts::cell(&key.rotation, fleet.now)) }
            td.n data-label="Nodes" { (words::grouped(key.record.nodes.len())) }
            td.n data-label="Objects" { (words::grouped(key.objects)) }
            td data-label="State" { (parts::worst(&key.findings)) }
        }
    }
}

/// All nodes.
#[must_use]
pub fn nodes(fleet: &Fleet, page: usize) -> Markup {
    let part = part(&fleet.nodes, Node::severity, page);
    html! {
        div.head { h1 { "Nodes" } p.lead { (words::count(part.all, "client", "clients")) } }
        @if part.all == 0 {
            p.none { "No node is enrolled." }
        } @else {
            div.scroll tabindex="0" role="region" aria-label="Nodes" {
                table.objects {
                    thead { tr {
                        th scope="col" { "Name" } th scope="col" { "Role" } th.n scope="col" { "Objects" } th.n scope="col" { "Overdue" }
                        th scope="col" { "Last report" } th scope="col" { "Certificate expires" } th scope="col" { "State" }
                    } }
                    tbody { @for node in &part.shown { (node_row(fleet, node)) } }
                }
            }
            (pager(&part, "/fleet/nodes"))
        }
    }
}

fn node_row(fleet: &Fleet, node: &Node) -> Markup {
    let record = node.record.as_ref();
    let expires = record.and_then(|record| record.expires);
    html! {
        tr {
            th scope="row" { (parts::node_link(&node.name)) }
            td data-label="Role" { @match record { Some(record) => (parts::name(&record.role)), None => span.quiet { "not enrolled" } } }
            td.n data-label="Objects" { (words::grouped(node.objects)) }
            td.n data-label="Overdue" { @if node.overdue > 0 { span.overdue { (words::grouped(node.overdue)) } } @else { span.quiet { "0" } } }
            td data-label="Last report" { @match node.reported { Some(at) => (parts::age(at, fleet.now)), None => span.quiet { "–" } } }
            td data-label="Certificate expires" { @match expires { Some(at) => (parts::age(at, fleet.now)), None => span.quiet { "–" } } }
            td data-label="State" { (parts::worst(&node.findings)) }
        }
    }
}
