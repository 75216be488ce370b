//! Pieces that several pages use: times, badges, bars, links.
//!
//! Invariant: how something stands is said in words, never by colour alone.
//!
//! Must not: put a name into a page other than through [`words::name`], or into a link other than percent-encoded.

use maud::{Markup, html};

use super::judge::{Finding, Measure, Severity};
use super::model::Tally;
use super::words;

/// A part of a path: everything but letters, digits and `-._~` percent-encoded.
#[must_use]
pub fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// A name that someone else chose, kept apart from the direction of the text round it.
#[must_use]
pub fn name(text: &str) -> Markup {
    html! { bdi { (words::name(text)) } }
}

/// A link to an object.
#[must_use]
pub fn object_link(id: &str, text: &str) -> Markup {
    html! { a href={ "/fleet/objects/" (segment(id)) } { (name(text)) } }
}

/// A link to a key.
#[must_use]
pub fn key_link(key: &str) -> Markup {
    html! { a href={ "/fleet/keys/" (segment(key)) } { (name(key)) } }
}

/// A link to a node.
#[must_use]
pub fn node_link(node: &str) -> Markup {
    html! { a href={ "/fleet/nodes/" (segment(node)) } { (name(node)) } }
}

/// A time as its age, with the date for whoever points at it.
#[must_use]
pub fn age(at: u64, now: u64) -> Markup {
    html! { time datetime=(words::machine_date(at)) title=(words::date(at)) { (words::ago(at, now)) } }
}

/// The length of time since something was made.
#[must_use]
pub fn since(made: u64, now: u64) -> Markup {
    html! {
        time datetime=(words::machine_date(made)) title={ "since " (words::date(made)) } { (words::length(now.saturating_sub(made))) }
    }
}

/// A time as its date, with its age.
#[must_use]
pub fn dated(at: u64, now: u64) -> Markup {
    html! {
        time datetime=(words::machine_date(at)) { (words::date(at)) }
        span.quiet { " (" (words::ago(at, now)) ")" }
    }
}

/// A measure in a cell of a table.
#[must_use]
pub fn cell(measure: &Measure, now: u64) -> Markup {
    let asked = measure.interval_s.is_some();
    html! {
        @if asked && measure.severity != Severity::Fine { (mark(measure.severity)) }
        @match measure.at {
            Some(at) => (age(at, now)),
            None if asked => span.quiet { "never" },
            None => span.quiet title="not asked for" { "–" },
        }
    }
}

/// A small shape with its word for those who do not see it.
#[must_use]
pub fn mark(severity: Severity) -> Markup {
    html! { span class={ "mark " (severity.word()) } { span.unseen { (severity.label()) ": " } } }
}

/// A badge in words.
#[must_use]
pub fn badge(severity: Severity, text: &str) -> Markup {
    html! { span class={ "badge " (severity.word()) } { (text) } }
}

/// Everything that is to be said.
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

/// The worst of the findings as a badge, with how many more there are.
#[must_use]
pub fn worst(findings: &[Finding]) -> Markup {
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

/// A bar of the parts of a tally. For the eye only: its numbers stand beside it.
#[must_use]
pub fn bar(tally: &Tally) -> Markup {
    let all = tally.all().max(1);
    let parts = [
        ("overdue", tally.overdue),
        ("soon", tally.soon),
        ("fine", tally.fine),
        ("not-asked", tally.not_asked),
    ];
    // Thousandths of the width; something is never nothing.
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
