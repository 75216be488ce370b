//! How many pages were sealed under the data key of a database: an estimate, kept in the anchors.
//! docs/spec/header.md, "Anchors" and "Limits of use".
//!
//! Nothing is counted page by page. A nonce is twelve random bytes, so one in 65536 of them begins
//! with two zero bytes, and a page that is sealed under such a nonce stands for 65536 seals. That
//! costs one comparison a page, and the anchor is written once in 65536 pages.
//!
//! Invariants:
//! B1. A page whose nonce begins with two zero bytes is counted in an anchor before it is written.
//! B2. An estimate never falls under one data key, and begins at 0 under the next.
//! B3. A high estimate refuses nothing. It is warned of once in a process for each file, data key
//! and code.
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

/// Whether a page that is sealed under this nonce stands for others: so does one in 65536.
#[inline]
#[cfg(not(feature = "count-often"))]
pub(crate) fn stands_for_many(nonce: &[u8; 12]) -> bool {
    nonce[..2] == [0, 0]
}

/// For tests that fail calls and cut the power while a page is counted: every second page is.
#[cfg(feature = "count-often")]
pub(crate) fn stands_for_many(nonce: &[u8; 12]) -> bool {
    nonce[0].is_multiple_of(2)
}

/// The estimate that an anchor of a database of this header holds, if the limit is one of its
/// cipher: a nonce that repeats costs AES-256-GCM its authentication key, and AES-256-CTR nothing,
/// because its counters begin at a PRF of page and nonce.
pub(crate) fn estimate(object: &Object, anchor: &Anchor) -> Option<u64> {
    let limited = object.header().cipher == Cipher::Aes256Gcm;
    limited.then(|| anchor.seals_under(object.epoch()))
}

/// The warning that this many seals are worth.
pub(crate) fn warning_for(seals: u64) -> Option<&'static Code> {
    match seals {
        ..SEALS_WARN => None,
        SEALS_WARN..SEALS_LIMIT => Some(&code::SEALS_MANY),
        SEALS_LIMIT.. => Some(&code::SEALS_PASSED),
    }
}

/// Warns when the header (4096 bytes) of a database that is being opened says that its data key has
/// sealed much.
pub(crate) fn warn_from_header(path: &str, object: &Object, header: &[u8]) {
    // No MAC is computed for the sake of small numbers.
    let high = |sector| {
        let sector = bytes(header, sector).unwrap_or_default();
        u64_at(sector, anchor_layout::SEALS).is_some_and(|seals| seals >= SEALS_WARN)
    };
    if !high(header_layout::ANCHOR_A) && !high(header_layout::ANCHOR_B) {
        return;
    }
    // Of a header without a valid anchor nothing is known; whoever needs one says so.
    if let Ok(anchor) = object.anchor(header) {
        warn_if_many(path, object, &anchor);
    }
}

/// Says what the anchor's estimate is worth saying, once in this process for each database, data
/// key and code.
pub(crate) fn warn_if_many(path: &str, object: &Object, anchor: &Anchor) {
    /// The code that was last told of, by path, object and epoch.
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
