//! Elements that several pages use: times, badges, bars, links.
//!
//! Invariant: a state is always said in words and never by colour alone.
//!
//! Must not: put a name into a page without [`text::displayed_name`], or into a link without
//! percent-encoding.

use maud::{Markup, html};

use super::findings::{Finding, Measure, Severity};
use super::model::Tally;
use super::text;

/// A segment of a path: everything except letters, digits and `-._~` is percent-encoded.
#[must_use]
pub fn path_segment(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// A name that a node chose. Its writing direction does not affect the text around it.
#[must_use]
pub fn name(name: &str) -> Markup {
    html! { bdi { (text::displayed_name(name)) } }
}

/// A link to an object.
#[must_use]
pub fn object_link(id: &str, object: &str) -> Markup {
    html! { a href={ "/fleet/objects/" (path_segment(id)) } { (name(object)) } }
}

/// A link to a key.
#[must_use]
pub fn key_link(key: &str) -> Markup {
    html! { a href={ "/fleet/keys/" (path_segment(key)) } { (name(key)) } }
}

/// A link to a node.
#[must_use]
pub fn node_link(node: &str) -> Markup {
    html! { a href={ "/fleet/nodes/" (path_segment(node)) } { (name(node)) } }
}

/// A time as its age, with the date as a tooltip.
#[must_use]
pub fn age(at: u64, now: u64) -> Markup {
    html! { time datetime=(text::machine_date(at)) title=(text::date(at)) { (text::ago(at, now)) } }
}

/// The duration since something was made.
#[must_use]
pub fn since(made: u64, now: u64) -> Markup {
    html! {
        time datetime=(text::machine_date(made)) title={ "since " (text::date(made)) } { (text::duration(now.saturating_sub(made))) }
    }
}

/// A time as its date and its age.
#[must_use]
pub fn dated(at: u64, now: u64) -> Markup {
    html! {
        time datetime=(text::machine_date(at)) { (text::date(at)) }
        span.quiet { " (" (text::ago(at, now)) ")" }
    }
}

/// A measure in a cell of a table.
#[must_use]
pub fn measure_cell(measure: &Measure, now: u64) -> Markup {
    let has_interval = measure.interval_s.is_some();
    html! {
        @if has_interval && measure.severity != Severity::Fine { (mark(measure.severity)) }
        @match measure.at {
            Some(at) => (age(at, now)),
            None if has_interval => span.quiet { "never" },
            None => span.quiet title="not asked for" { "–" },
        }
    }
}

/// A small shape, with a word for screen readers.
#[must_use]
pub fn mark(severity: Severity) -> Markup {
    html! { span class={ "mark " (severity.word()) } { span.unseen { (severity.label()) ": " } } }
}

/// A badge with a text.
#[must_use]
pub fn badge(severity: Severity, label: &str) -> Markup {
    html! { span class={ "badge " (severity.word()) } { (label) } }
}

/// The list of all findings.
#[must_use]
pub fn findings(findings: &[Finding]) -> Markup {
    html! {
        @if findings.is_empty() {
            p.allwell { (badge(Severity::Fine, Severity::Fine.label())) }
        } @else {
            ul.findings {
                @for finding in findings {
                    li { (badge(finding.severity, &finding.text)) }
                }
            }
        }
    }
}

/// The worst finding as a badge, with the number of the others.
#[must_use]
pub fn worst_finding(findings: &[Finding]) -> Markup {
    html! {
        @match findings.split_first() {
            None => (badge(Severity::Fine, Severity::Fine.label())),
            Some((first, rest)) => {
                (badge(first.severity, &first.text))
                @if !rest.is_empty() { span.quiet.more { " +" (rest.len()) } }
            }
        }
    }
}

/// A bar that shows a tally. It is hidden from screen readers, because the numbers are beside it.
#[must_use]
pub fn bar(tally: &Tally) -> Markup {
    let all = tally.all().max(1);
    let parts = [
        ("overdue", tally.overdue),
        ("soon", tally.soon),
        ("fine", tally.fine),
        ("not-asked", tally.no_interval),
    ];
    // Thousandths of the width. A count above 0 is always visible.
    let width = |count: usize| {
        if count == 0 {
            0
        } else {
            (count * 1000 / all).max(6)
        }
    };
    let total: usize = parts.iter().map(|(_, count)| width(*count)).sum();
    let mut at = 0;
    let mut rects = Vec::new();
    for (class, count) in parts {
        rects.push((class, at, width(count)));
        at += width(count);
    }
    html! {
        svg.bar viewBox={ "0 0 " (total.max(1)) " 8" } preserveAspectRatio="none" aria-hidden="true" focusable="false" {
            @for (class, x, width) in rects {
                @if width > 0 { rect class=(class) x=(x) y="0" width=(width) height="8" {} }
            }
        }
    }
}
