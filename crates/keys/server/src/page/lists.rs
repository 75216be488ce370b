//! The lists of keys and of nodes.
//!
//! Must not: show more than [`PER_PAGE`] items at once.

use maud::{Markup, html};

use super::detail;
use super::elements;
use super::findings::Severity;
use super::model::{Fleet, Key, Node};
use super::query::PER_PAGE;
use super::text;

/// One page of a list.
struct ListPage<'a, T> {
    items: Vec<&'a T>,
    /// The number of this page, from 1.
    page: usize,
    /// The number of pages.
    pages: usize,
    /// The number of items on all pages.
    total: usize,
}

/// Sorts items by severity, the worst first, and takes one page of them. A number of a page that is
/// out of range becomes the nearest one.
fn list_page<T>(all: &[T], severity: impl Fn(&T) -> Severity, page: usize) -> ListPage<'_, T> {
    let mut sorted: Vec<&T> = all.iter().collect();
    sorted.sort_by_key(|one| std::cmp::Reverse(severity(one)));
    let pages = sorted.len().div_ceil(PER_PAGE).max(1);
    let page = page.clamp(1, pages);
    ListPage {
        items: sorted
            .into_iter()
            .skip((page - 1) * PER_PAGE)
            .take(PER_PAGE)
            .collect(),
        page,
        pages,
        total: all.len(),
    }
}

/// Renders links to the previous and the next page; nothing for a single page.
fn pager<T>(list: &ListPage<'_, T>, path: &str) -> Markup {
    html! {
        @if list.pages > 1 {
            nav.pager aria-label="Pages" {
                @if list.page > 1 { a rel="prev" href={ (path) "?page=" (list.page - 1) } { "Previous" } }
                span aria-current="page" { "Page " (text::grouped(list.page)) " of " (text::grouped(list.pages)) }
                @if list.page < list.pages { a rel="next" href={ (path) "?page=" (list.page + 1) } { "Next" } }
            }
        }
    }
}

/// Renders one page of the list of all keys, the worst first.
#[must_use]
pub fn keys(fleet: &Fleet, page: usize) -> Markup {
    let list = list_page(&fleet.keys, Key::severity, page);
    html! {
        div.head { h1 { "Keys" } p.lead { (text::count(list.total, "key", "keys")) } }
        @if list.total == 0 {
            p.none { "No key has been made." }
        } @else {
            div.scroll tabindex="0" role="region" aria-label="Keys" {
                table.objects {
                    thead { tr {
                        th scope="col" { "Name" } th scope="col" { "Condition" } th.n scope="col" { "Versions" } th scope="col" { "Last rotation" }
                        th.n scope="col" { "Nodes" } th.n scope="col" { "Objects" } th scope="col" { "State" }
                    } }
                    tbody { @for key in &list.items { (key_row(fleet, key)) } }
                }
            }
            (pager(&list, "/fleet/keys"))
        }
    }
}

/// Renders a key as a row of the list.
fn key_row(fleet: &Fleet, key: &Key) -> Markup {
    html! {
        tr {
            th scope="row" { (elements::key_link(&key.record.name)) }
            td data-label="Condition" { (detail::key_state(key.record.state, fleet.now)) }
            td.n data-label="Versions" { (key.record.versions.len()) }
            td data-label="Last rotation" { (elements::measure_cell(&key.rotation, fleet.now)) }
            td.n data-label="Nodes" { (text::grouped(key.record.nodes.len())) }
            td.n data-label="Objects" { (text::grouped(key.objects)) }
            td data-label="State" { (elements::worst_finding(&key.findings)) }
        }
    }
}

/// Renders one page of the list of all nodes, the worst first.
#[must_use]
pub fn nodes(fleet: &Fleet, page: usize) -> Markup {
    let list = list_page(&fleet.nodes, Node::severity, page);
    html! {
        div.head { h1 { "Nodes" } p.lead { (text::count(list.total, "client", "clients")) } }
        @if list.total == 0 {
            p.none { "No node is enrolled." }
        } @else {
            div.scroll tabindex="0" role="region" aria-label="Nodes" {
                table.objects {
                    thead { tr {
                        th scope="col" { "Name" } th scope="col" { "Role" } th.n scope="col" { "Objects" } th.n scope="col" { "Overdue" }
                        th scope="col" { "Last report" } th scope="col" { "Certificate expires" } th scope="col" { "State" }
                    } }
                    tbody { @for node in &list.items { (node_row(fleet, node)) } }
                }
            }
            (pager(&list, "/fleet/nodes"))
        }
    }
}

/// Renders a node as a row of the list.
fn node_row(fleet: &Fleet, node: &Node) -> Markup {
    let record = node.record.as_ref();
    let expires = record.and_then(|record| record.expires);
    html! {
        tr {
            th scope="row" { (elements::node_link(&node.name)) }
            td data-label="Role" { @match record { Some(record) => (elements::name(&record.role)), None => span.quiet { "not enrolled" } } }
            td.n data-label="Objects" { (text::grouped(node.objects)) }
            td.n data-label="Overdue" { @if node.overdue > 0 { span.overdue { (text::grouped(node.overdue)) } } @else { span.quiet { "0" } } }
            td data-label="Last report" { @match node.reported { Some(at) => (elements::age(at, fleet.now)), None => span.quiet { "–" } } }
            td data-label="Certificate expires" { @match expires { Some(at) => (elements::age(at, fleet.now)), None => span.quiet { "–" } } }
            td data-label="State" { (elements::worst_finding(&node.findings)) }
        }
    }
}
