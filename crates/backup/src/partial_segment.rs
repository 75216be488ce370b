//! The segment of the log that is not complete yet: its pieces in the archive, each an archived
//! file of its own.
//!
//! Invariants:
//! - B14: a piece is removed only when a longer piece that contains it, or the whole segment, is
//!   durable in the archive.
//! - A segment is put together from pieces only if the archive has no later one of its timeline:
//!   otherwise it would hide a gap.
//!
//! Must not: put a segment together from pieces that do not begin with its first byte.

use strongroom_format::code;
use strongroom_keyring::Opener;

use crate::first_page::{begins_segment, segment_facts};
use crate::log_names::{Piece, is_segment_size, object_name, parse_segment_name};
use crate::medium_head::MediumHead;
use crate::store::Store;
use crate::wal::{has_later_segment, wal_fetch};
use crate::{Error, Result};

/// The part of a segment that was received.
#[derive(Debug)]
pub struct Partial {
    /// As long as a whole segment, with zeros after the received bytes.
    pub content: Vec<u8>,
    /// The number of received bytes.
    pub received: usize,
}

/// The pieces of a segment that cover it without a gap from its first byte on, in order, and how
/// many bytes they cover; empty and 0 without a piece at its beginning.
pub(crate) fn contiguous_pieces(pieces: &[Piece], segment: &str) -> (Vec<Piece>, u64) {
    let mut of: Vec<&Piece> = pieces
        .iter()
        .filter(|piece| piece.segment == segment)
        .collect();
    of.sort_by_key(|piece| (piece.start, piece.end));
    let (mut chosen, mut reached) = (Vec::new(), 0);
    loop {
        let best = of.iter().filter(|piece| piece.start <= reached);
        match best.max_by_key(|piece| piece.end) {
            Some(piece) if piece.end > reached => {
                reached = piece.end;
                chosen.push((*piece).clone());
            }
            _ => return (chosen, reached),
        }
    }
}

/// Fetches and puts together what was received of the segment `name`, which the archive does not
/// have as a whole. `None` when it has no pieces from the first byte on, when `name` is no segment,
/// and without a medium.
///
/// # Errors
/// SR-7130 when the archive has later segments; SR-7106 when a piece does not belong to the
/// segment; as [`wal_fetch`], for each piece.
pub fn wal_partial(
    store: &dyn Store,
    name: &str,
    opener: Option<&Opener>,
) -> Result<Option<Partial>> {
    if parse_segment_name(name).is_none() || MediumHead::read(store)?.is_none() {
        return Ok(None);
    }
    let listed = store.list("wal");
    let listed = listed.map_err(|error| Error::io(store.shown(), error))?;
    let pieces: Vec<Piece> = listed
        .iter()
        .filter_map(|(name, _)| Piece::of(name))
        .collect();
    let (chosen, received) = contiguous_pieces(&pieces, name);
    if chosen.is_empty() {
        return Ok(None);
    }
    if has_later_segment(store, name)? {
        return Err(Error::new(&code::WAL_GAP, name));
    }
    let strange = |why: &str| Error::new(&code::SET_HEAD, format!("{name}: {why}"));
    let mut content = Vec::new();
    for piece in chosen {
        let bytes = wal_fetch(store, &piece.name(), opener)?;
        let whole = piece.end.checked_sub(piece.start) == Some(bytes.len() as u64);
        let again = (content.len() as u64).checked_sub(piece.start);
        let again = again.and_then(|again| usize::try_from(again).ok());
        let new = again.and_then(|again| bytes.get(again..));
        match new.filter(|_| whole) {
            Some(new) => content.extend_from_slice(new),
            None => return Err(strange("a piece of another length")),
        }
    }
    let size = segment_facts(name, &content).segment_size_bytes;
    let sound = is_segment_size(size) && begins_segment(name, &content);
    let size = usize::try_from(size)
        .ok()
        .filter(|size| sound && *size >= content.len());
    let size = size.ok_or_else(|| strange("pieces that do not begin a segment"))?;
    content.resize(size, 0);
    let received = usize::try_from(received).unwrap_or(size);
    Ok(Some(Partial { content, received }))
}

/// Removes pieces from the archive, under its lock, after something that contains them is durable.
/// Errors of the store.
pub(crate) fn remove_pieces(store: &dyn Store, pieces: &[Piece]) -> Result<()> {
    if pieces.is_empty() {
        return Ok(());
    }
    let failed = |error| Error::io(store.shown(), error);
    let _changing = store.lock_changes("wal").map_err(failed)?;
    for piece in pieces {
        store.remove(&object_name(&piece.name())).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "0000000100000000000000AB";

    fn piece(start: u64, end: u64) -> Piece {
        Piece {
            segment: NAME.to_owned(),
            start,
            end,
        }
    }

    #[test]
    fn a_piece_has_one_name() {
        let name = piece(0x2000, 0x1000_0000).name();
        assert_eq!(name, format!("{NAME}.00002000.10000000.piece"));
        assert_eq!(Piece::of(&name), Some(piece(0x2000, 0x1000_0000)));
        for other in [
            format!("{NAME}.00002000.00002000.piece"),
            format!("{NAME}.2000.00003000.piece"),
            format!("{NAME}.0000200a.00003000.piece"),
            format!("{NAME}.00002000.00003000.00004000.piece"),
            format!("{NAME}.00000000.40000001.piece"),
            format!("{NAME}0.00000000.00000001.piece"),
            format!("{NAME}.+0000001.00000002.piece"),
            format!("{NAME}.partial"),
        ] {
            assert_eq!(Piece::of(&other), None, "{other}");
        }
    }

    #[test]
    fn pieces_cover_from_the_first_byte_without_a_hole() {
        let reached = |pieces: &[(u64, u64)]| {
            let pieces: Vec<Piece> = pieces.iter().map(|(s, e)| piece(*s, *e)).collect();
            contiguous_pieces(&pieces, NAME).1
        };
        assert_eq!(reached(&[]), 0);
        assert_eq!(reached(&[(1, 5)]), 0);
        assert_eq!(reached(&[(0, 5), (6, 9)]), 5);
        assert_eq!(reached(&[(5, 9), (0, 5)]), 9);
        assert_eq!(reached(&[(0, 3), (3, 5), (0, 7), (6, 8), (8, 9)]), 9);
        let pieces = [piece(0, 3), piece(3, 5), piece(0, 7)];
        assert_eq!(contiguous_pieces(&pieces, NAME).0, [piece(0, 7)]);
        assert_eq!(contiguous_pieces(&pieces, "0000000200000000000000AB").1, 0);
    }
}
