//! The fleet page: objects, keys and nodes, for the browsers of viewers and administrators.
//!
//! A page is made in three steps. Records are judged by the operator's intervals
//! ([`model::Fleet`]), a query selects objects ([`query::Query`]), and templates write HTML
//! ([`overview`], [`detail`], [`lists`]). Only `serve` knows HTTP.
//!
//! Must not: show anything while the server is sealed; load anything from another server; run a
//! script in the browser.

pub mod detail;
pub mod elements;
pub mod findings;
pub mod frame;
pub mod lists;
pub mod model;
pub mod overview;
pub mod query;
pub mod records;
pub(crate) mod serve;
pub mod text;
pub mod unavailable;

/// The security headers of every response: the browser loads only from this server, runs no script,
/// and shows the page in no frame.
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
