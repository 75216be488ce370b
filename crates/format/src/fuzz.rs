//! Entry points for fuzzing and for the property tests: what must hold for any bytes from outside.
//!
//! Each asserts that what parses is canonical: serialised again it gives the same bytes.
//! Must not: be called outside tests; an assertion that fails here is a defect.

use crate::header::{Anchor, FIXED_LEN, Header, anchor_layout};
use crate::journal::{JournalMark, Segment, link_layout, mark_layout};
use crate::keyring::Body;
use crate::slot::Slot;
use crate::sqlite::{AuxKind, Prologue, WalGeometry, prologue_layout};

/// Header, slots and anchors.
pub fn header(bytes: &[u8]) {
    if let Ok(header) = Header::parse(bytes) {
        let again = header.to_bytes().ok();
        assert_eq!(
            again.as_deref(),
            bytes.get(..FIXED_LEN),
            "a header that parses is canonical"
        );
    }
    if let Some((slot, rest)) = Slot::parse(bytes) {
        let taken = bytes.len().saturating_sub(rest.len());
        assert_eq!(
            slot.to_bytes().as_deref(),
            bytes.get(..taken),
            "a slot that parses is canonical"
        );
    }
    if let Some(anchor) = Anchor::parse(bytes) {
        let whole = bytes.get(..anchor_layout::SIZE);
        assert_eq!(
            Some(anchor.to_bytes().as_slice()),
            whole,
            "an anchor that parses is canonical"
        );
    }
}

/// The keyring's body.
pub fn keyring(bytes: &[u8]) {
    if let Some((body, covered, mac)) = Body::parse(bytes) {
        assert_eq!(
            body.to_bytes().as_deref(),
            Some(covered),
            "a body that parses is canonical"
        );
        assert_eq!(
            covered.len().checked_add(mac.len()),
            Some(bytes.len()),
            "nothing follows the MAC"
        );
    }
}

/// Prologues, marks, and sizes that an attacker chooses.
pub fn auxiliary(bytes: &[u8]) {
    let record = bytes.get(..mark_layout::SIZE);
    if let Some(mark) = record.and_then(JournalMark::parse) {
        let again = mark.to_bytes();
        assert_eq!(
            Some(again.as_slice()),
            record,
            "a mark that parses is canonical"
        );
    }
    let record = bytes.get(..link_layout::SIZE);
    if let Some(link) = record.and_then(Segment::parse_link) {
        assert_eq!(
            Some(link.to_link().as_slice()),
            record,
            "a link is canonical"
        );
    }
    if let Some(prologue) = Prologue::parse(bytes) {
        let whole = bytes.get(..prologue_layout::SIZE);
        assert_eq!(
            Some(prologue.to_bytes().as_slice()),
            whole,
            "a prologue that parses is canonical"
        );
        if prologue.kind == AuxKind::Wal {
            sizes(
                WalGeometry {
                    page_size: prologue.unit,
                },
                bytes,
            );
        }
    }
    if let Some(size) = bytes.first_chunk::<4>() {
        sizes(
            WalGeometry {
                page_size: u32::from_le_bytes(*size),
            },
            bytes,
        );
    }
}

/// A logical size that came from a physical one leads back to it or to less, never to more.
fn sizes(geometry: WalGeometry, bytes: &[u8]) {
    let Some(size) = bytes.last_chunk::<8>() else {
        return;
    };
    // Files are shorter than 2^62 bytes.
    let physical = u64::from_le_bytes(*size) >> 2;
    let logical = geometry.logical_size(physical);
    assert!(
        geometry.physical_size(logical) <= physical,
        "a size never grows on the way"
    );
}
