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

/// Encodes a segment of a path: everything except letters, digits and `-._~` is percent-encoded.
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

/// Renders a name that a node chose, without misleading characters and cut off if it is long. Its
/// writing direction does not affect the text around it.
#[must_use]
pub fn name(name: &str) -> Markup {
    html! { bdi { (text::displayed_name(name)) } }
}

/// Renders a link to the page of an object with this id, with its name.
#[must_use]
pub fn object_link(id: &str, object: &str) -> Markup {
    html! { a href={ "/fleet/objects/" (path_segment(id)) } { (name(object)) } }
}

/// Renders a link to the page of a key of this name.
#[must_use]
pub fn key_link(key: &str) -> Markup {
    html! { a href={ "/fleet/keys/" (path_segment(key)) } { (name(key)) } }
}

/// Renders a link to the page of a node of this name.
#[must_use]
pub fn node_link(node: &str) -> Markup {
    html! { a href={ "/fleet/nodes/" (path_segment(node)) } { (name(node)) } }
}

/// Renders a time as its age, or as how long it is ahead, with the date as a tooltip. Times are
/// seconds since the Unix epoch, here and below.
#[must_use]
pub fn age(at: u64, now: u64) -> Markup {
    html! { time datetime=(text::machine_date(at)) title=(text::date(at)) { (text::ago(at, now)) } }
}

/// Renders the duration since something was made, with the date as a tooltip.
#[must_use]
pub fn since(made: u64, now: u64) -> Markup {
    html! {
        time datetime=(text::machine_date(made)) title={ "since " (text::date(made)) } { (text::duration(now.saturating_sub(made))) }
    }
}

/// Renders a time as its date and its age.
#[must_use]
pub fn dated(at: u64, now: u64) -> Markup {
    html! {
        time datetime=(text::machine_date(at)) { (text::date(at)) }
        span.quiet { " (" (text::ago(at, now)) ")" }
    }
}

/// Renders a measure in a cell of a table: how long ago it happened, or "never", after a mark if it
/// is due soon or overdue.
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

/// Renders a small shape for a severity, with a word for screen readers.
#[must_use]
pub fn mark(severity: Severity) -> Markup {
    html! { span class={ "mark " (severity.word()) } { span.unseen { (severity.label()) ": " } } }
}

/// Renders a badge of a severity with a text.
#[must_use]
pub fn badge(severity: Severity, label: &str) -> Markup {
    html! { span class={ "badge " (severity.word()) } { (label) } }
}

/// Renders the list of all findings, or a badge that everything is in order.
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

/// Renders the first finding, which is the worst, as a badge, with the number of the others; or a
/// badge that everything is in order.
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

/// Renders a bar that shows the parts of a tally. It is hidden from screen readers, because the
/// numbers are beside it.
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
