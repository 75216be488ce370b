//! The result of `strongroom verify`, whichever kind of object was verified.
//!
//! Must not: leave out what was not checked.

use serde::Serialize;

use crate::failure::ErrorJson;

/// The JSON result: docs/reference/exit-codes.md.
#[derive(Serialize)]
pub(crate) struct Verified {
    pub(crate) path: String,
    pub(crate) kind: &'static str,
    pub(crate) ok: bool,
    pub(crate) cipher: &'static str,
    pub(crate) rekey_under_way: bool,
    /// Of a database that keeps it: `holds`, `stale` or `unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) freshness: Option<&'static str>,
    /// The root of its pages, when freshness holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) root: Option<String>,
    /// Of a database that is sealed with AES-256-GCM and has a valid anchor.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) seals: Option<Seals>,
    /// What was checked, and how many of it were good.
    pub(crate) checked: Vec<Checked>,
    pub(crate) bad: Vec<BadUnit>,
    /// What was found that is neither good nor bad.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
    pub(crate) not_checked: Vec<String>,
    pub(crate) error: Option<ErrorJson>,
}

/// How much was sealed under the data key of a database.
#[derive(Serialize)]
pub(crate) struct Seals {
    /// An estimate of the pages that were sealed.
    pub(crate) seals: u64,
    /// How many pages one data key may seal.
    pub(crate) seals_limit: u64,
}

/// One sort of unit.
#[derive(Serialize)]
pub(crate) struct Checked {
    pub(crate) kind: &'static str,
    pub(crate) count: u64,
    pub(crate) good: u64,
    /// What is known of a good one, for people.
    #[serde(skip)]
    pub(crate) claim: &'static str,
}

/// What is known of a unit whose tag was checked.
pub(crate) const AUTHENTIC: &str = "authentic";

/// One unit that failed.
#[derive(Serialize)]
pub(crate) struct BadUnit {
    pub(crate) kind: &'static str,
    pub(crate) index: u64,
    pub(crate) offset_bytes: u64,
    pub(crate) code: String,
    /// Of an instance: the file, relative to the data directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
}
