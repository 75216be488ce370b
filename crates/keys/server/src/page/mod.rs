//! The fleet page: what a viewer's browser is shown of objects, keys and nodes.
//!
//! A page is made in three steps, of which only the last knows HTTP: records are judged against the operator's intervals
//! ([`model::Fleet`]), a query selects from them ([`query::Query`]), templates write HTML ([`overview`], [`detail`], [`lists`]).
//!
//! Must not: show anything while the server is sealed, load anything from elsewhere, run a script in the browser.

pub mod detail;
pub mod frame;
pub mod judge;
pub mod lists;
pub mod model;
pub mod overview;
pub mod parts;
pub mod query;
pub mod records;
pub(crate) mod serve;
pub mod states;
pub mod words;

/// The headers of every page: nothing is loaded but from here, nothing runs, nobody frames it, nothing is kept.
pub const HEADERS: [(&str, &str); 9] = [
    (
        "content-security-policy",
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-embedder-policy", "require-corp"),
    ("cross-origin-resource-policy", "same-origin"),
    (
        "permissions-policy",
        "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    ),
    ("strict-transport-security", "max-age=31536000"),
];
