//! Estimates how many pages were sealed under the data key of a database. The estimate is kept in
//! the anchors. docs/spec/header.md, "Anchors" and "Limits of use".
//!
//! Pages are not counted one by one. A nonce has twelve random bytes, so one in 65536 nonces begins
//! with two zero bytes, and a page that is sealed under such a nonce counts for 65536 pages. That
//! costs one comparison for each page, and one write of an anchor for 65536 pages.
//!
//! Invariants:
//! B1. A page whose nonce begins with two zero bytes is counted in an anchor before it is written.
//! B2. An estimate never decreases under one data key, and begins at 0 under the next.
//! B3. A high estimate refuses nothing. A process warns once for each file, data key and code.
//!
//! Must not: decide by an estimate whether a page is sealed.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use strongroom_format::code::{self, Code};
use strongroom_format::header::{
    Anchor, Cipher, SEALS_LIMIT, SEALS_WARN, anchor_layout, header_layout,
};
use strongroom_format::layout::{bytes, u64_at};
use strongroom_keyring::Object;

use crate::warnings::warn;

/// Whether a page that is sealed under this nonce counts for 65536 pages. That is so for the one
/// nonce in 65536 that begins with two zero bytes.
#[inline]
#[cfg(not(feature = "count-often"))]
pub(crate) fn stands_for_many(nonce: &[u8; 12]) -> bool {
    nonce[..2] == [0, 0]
}

/// Whether a page that is sealed under this nonce counts for 65536 pages, in tests that inject
/// faults and power cuts while a page is counted: true for every second nonce, those whose first
/// byte is even.
#[cfg(feature = "count-often")]
pub(crate) fn stands_for_many(nonce: &[u8; 12]) -> bool {
    nonce[0].is_multiple_of(2)
}

/// Returns how many pages were sealed under the object's data key, as the anchor estimates it.
/// `None` unless the cipher is AES-256-GCM: a repeated nonce reveals its authentication key. It
/// does no harm to AES-256-CTR here, because its counters begin at a PRF of page and nonce.
pub(crate) fn estimate(object: &Object, anchor: &Anchor) -> Option<u64> {
    let limited = object.header().cipher == Cipher::Aes256Gcm;
    limited.then(|| anchor.seals_under(object.epoch()))
}

/// Returns the warning for this many seals: SR-6012 from a quarter of the limit on, SR-6013 from
/// the limit on, and `None` below.
pub(crate) fn warning_for(seals: u64) -> Option<&'static Code> {
    match seals {
        ..SEALS_WARN => None,
        SEALS_WARN..SEALS_LIMIT => Some(&code::SEALS_MANY),
        SEALS_LIMIT.. => Some(&code::SEALS_PASSED),
    }
}

/// Reports SR-6012 or SR-6013 as a warning, once for each database, data key and code, if an anchor
/// in `header` (4096 bytes) has a high estimate. Called as a database is opened. Damaged anchors
/// are ignored.
pub(crate) fn warn_from_header(path: &str, object: &Object, header: &[u8]) {
    // No MAC is computed for small estimates.
    let high = |sector| {
        let sector = bytes(header, sector).unwrap_or_default();
        u64_at(sector, anchor_layout::SEALS).is_some_and(|seals| seals >= SEALS_WARN)
    };
    if !high(header_layout::ANCHOR_A) && !high(header_layout::ANCHOR_B) {
        return;
    }
    // A header without a valid anchor has no estimate. What needs an anchor reports the damage.
    if let Ok(anchor) = object.anchor(header) {
        warn_if_many(path, object, &anchor);
    }
}

/// Reports SR-6012 or SR-6013 as a warning if the anchor has a high estimate. Warns again for the
/// same database and data key only if the code has changed since the last warning in this process.
pub(crate) fn warn_if_many(path: &str, object: &Object, anchor: &Anchor) {
    /// The code of the last warning, by path, object and epoch.
    type LastWarned = BTreeMap<(String, [u8; 16], u32), u16>;
    static LAST_WARNED: Mutex<LastWarned> = Mutex::new(BTreeMap::new());
    let Some(seals) = estimate(object, anchor) else {
        return;
    };
    let Some(code) = warning_for(seals) else {
        return;
    };
    let name = (path.to_owned(), object.object_id(), object.epoch());
    // A panic while the map was locked leaves it whole: it is changed by single insertions.
    let mut told = LAST_WARNED.lock().unwrap_or_else(PoisonError::into_inner);
    if told.insert(name, code.number) == Some(code.number) {
        return;
    }
    drop(told);
    let detail = format!("{path}: about {seals} of {SEALS_LIMIT}");
    warn(code, &detail);
}

#[cfg(all(test, not(feature = "count-often")))]
mod tests {
    use super::*;

    /// 2^25 nonces as pages get them: 512 are to be counted, with a standard deviation of 22.6.
    #[test]
    fn the_estimate_is_within_eight_standard_deviations() {
        let counted = (0..1 << 25)
            .filter(|_| stands_for_many(&strongroom_crypto::nonce12().unwrap()))
            .count();
        assert!((331..=693).contains(&counted), "{counted}");
    }

    #[test]
    fn one_nonce_in_65536_is_counted() {
        assert!(stands_for_many(&[0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]));
        for (first, second) in [(0, 1), (1, 0), (0, 0x80), (0x80, 0)] {
            let mut nonce = [0; 12];
            (nonce[0], nonce[1]) = (first, second);
            assert!(!stands_for_many(&nonce), "{first} {second}");
        }
    }

    #[test]
    fn a_quarter_is_warned_of_and_the_limit_otherwise() {
        let number = |seals| warning_for(seals).map(|code| code.number);
        assert_eq!(number(0), None);
        assert_eq!(number((1 << 30) - 1), None);
        assert_eq!(number(1 << 30), Some(6012));
        assert_eq!(number((1 << 32) - 1), Some(6012));
        assert_eq!(number(1 << 32), Some(6013));
        assert_eq!(number(u64::MAX), Some(6013));
    }
}
