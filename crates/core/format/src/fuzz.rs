//! Entry points for fuzzing and for the property tests: what must hold for any bytes from outside.
//!
//! Each asserts that what parses is canonical: serialised again it gives the same bytes.
//! Must not: be called outside tests; an assertion that fails here is a defect.

pub mod columns;

use crate::backup::{
    FamilyHeader, FileEnd, ItemHead, Member, SegmentHead, SetRecord, StreamEnd, family_layout,
    is_relative_path, item_layout, segment_layout, set_layout,
};
use crate::header::{Anchor, FIXED_LEN, Header, anchor_layout};
use crate::journal::{JournalMark, Segment, link_layout, mark_layout};
use crate::keyring::Body;
use crate::postgres::container::{
    CONTAINER_HEADER, ContainerHeader, chunk_offset, container_capacity, container_logical,
    container_physical,
};
use crate::postgres::convert::State;
use crate::postgres::stream::{STREAM_PREFIX, StreamHeader, stream_logical, stream_physical};
use crate::postgres::tail;
use crate::slot::Slot;
use crate::sqlite::{AuxKind, Prologue, WalGeometry, prologue_layout};

/// Parses the bytes as a header, a slot and an anchor. Asserts (and so panics otherwise) that what
/// parses is serialised to the same bytes.
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

/// Parses the bytes as each record of a backup set, and as each item of its stream. Asserts that
/// what parses is serialised to the same bytes, and stays within its bounds.
pub fn backup(bytes: &[u8]) {
    if let Ok(record) = SetRecord::parse(bytes) {
        let whole = bytes.get(..set_layout::SIZE);
        assert_eq!(Some(record.to_bytes().as_slice()), whole, "a set's record");
    }
    if let Ok(header) = FamilyHeader::parse(bytes) {
        let whole = bytes.get(..family_layout::SIZE);
        assert_eq!(
            Some(header.to_bytes().as_slice()),
            whole,
            "a family's header"
        );
    }
    if let Some(head) = SegmentHead::parse(bytes) {
        let whole = bytes.get(..segment_layout::SIZE);
        assert_eq!(Some(head.to_bytes().as_slice()), whole, "a segment's head");
        assert!(head.length <= crate::backup::SEGMENT_SIZE, "bounded");
        assert!(head.plain_length <= crate::backup::SEGMENT_SIZE, "bounded");
    }
    if let Some(head) = ItemHead::parse(bytes) {
        let whole = bytes.get(..item_layout::SIZE);
        assert_eq!(Some(head.to_bytes().as_slice()), whole, "an item's head");
        assert!(head.length <= crate::backup::SEGMENT_SIZE, "bounded");
    }
    if let Some(member) = Member::parse(bytes) {
        assert_eq!(member.to_bytes().as_deref(), Some(bytes), "a member");
        assert!(
            is_relative_path(&member.path),
            "a member stays below the root"
        );
    }
    if let Some(end) = FileEnd::parse(bytes) {
        assert_eq!(end.to_bytes().as_slice(), bytes, "the end of a file");
    }
    if let Some(end) = StreamEnd::parse(bytes) {
        assert_eq!(end.to_bytes().as_slice(), bytes, "the end of a stream");
    }
}

/// Parses the bytes as a keyring's body. Asserts that a body that parses is serialised to the same
/// bytes, and that nothing follows its MAC.
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

/// Parses the bytes as a prologue, a journal's mark and a link, and uses some of them as sizes of a
/// write-ahead log. Asserts that what parses is serialised to the same bytes.
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

/// Parses the bytes as a container's and a stream's header and as the state of a conversion, and
/// uses some of them as sizes. Asserts that what parses is serialised to the same bytes.
pub fn postgres(bytes: &[u8]) {
    if let Some(header) = ContainerHeader::parse(bytes) {
        let whole = bytes.get(..CONTAINER_HEADER);
        assert_eq!(
            Some(header.to_bytes().as_slice()),
            whole,
            "a container's header that parses is canonical"
        );
    }
    if let Some(header) = StreamHeader::parse(bytes) {
        let prefix = bytes.get(..STREAM_PREFIX);
        assert_eq!(
            Some(header.prefix().as_slice()),
            prefix,
            "a stream's header that parses is canonical"
        );
    }
    if let Some(state) = State::parse(bytes) {
        let text = state.to_text();
        assert!(
            bytes.starts_with(text.as_bytes()),
            "a conversion's state that parses is canonical"
        );
    }
    if let Some(size) = bytes.last_chunk::<8>() {
        sealed_sizes(u64::from_le_bytes(*size));
    }
    if let Some([unit @ .., len]) = bytes.first_chunk::<5>() {
        let made = tail([0; 16], u32::from_le_bytes(*unit), usize::from(*len));
        let in_range = u32::from_le_bytes(*unit) < 512 && (1..16).contains(len);
        assert_eq!(
            made.is_some(),
            in_range,
            "a tail of 1 to 15 bytes in a block"
        );
    }
}

/// Asserts that physical and logical sizes of containers and streams lead to each other, and that
/// nothing grows on the way, whatever `size` is.
fn sealed_sizes(size: u64) {
    let fits = container_capacity(size);
    if let Some(needed) = container_physical(fits) {
        assert!(needed <= size, "what fits needs no more than there is");
    }
    if let Some(logical) = container_logical(size) {
        assert_eq!(container_physical(logical), Some(size), "there and back");
    }
    if let Some(physical) = container_physical(size) {
        assert_eq!(container_logical(physical), Some(size), "back and there");
    }
    if let Some(offset) = chunk_offset(size) {
        assert!(offset >= size, "a chunk lies behind those before it");
    }
    if let Some(physical) = stream_physical(size) {
        assert_eq!(stream_logical(physical), size, "back and there");
    }
}

/// Takes a physical size from the last bytes, and asserts that its logical size leads back to it or
/// to less, never to more. Does nothing with fewer than 8 bytes.
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
