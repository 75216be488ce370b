//! Names and sizes of the files of a PostgreSQL server's log, and of the archive's objects.
//!
//! Must not: read a file.

/// Parses the name of a whole segment: its timeline, and its number as the rest of the name has it:
/// 32 bits for the number of the 4 GiB, 32 bits for the segment within them. `None` when it is not
/// the name of a whole segment.
pub(crate) fn parse_segment_name(name: &str) -> Option<(u64, u64)> {
    let digits = |byte: u8| byte.is_ascii_hexdigit();
    if name.len() != 24 || !name.bytes().all(digits) {
        return None;
    }
    let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
    Some((number(name.get(..8)?)?, number(name.get(8..)?)?))
}

/// Whether PostgreSQL allows this size of a segment: a power of two from 1 MiB to 1 GiB
/// (`IsValidWalSegSize`, `src/include/access/xlog_internal.h`).
pub(crate) fn is_segment_size(bytes: u64) -> bool {
    bytes.is_power_of_two() && (1 << 20..=1 << 30).contains(&bytes)
}

/// The name of the object that has the archived file `name`.
pub(crate) fn object_name(name: &str) -> String {
    format!("wal/{name}")
}

/// What a piece's name says: the segment, and which bytes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) segment: String,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Piece {
    /// Parses `NAME.SSSSSSSS.EEEEEEEE.piece`, in the one spelling that [`Self::name`] writes.
    /// `None` for any other name, and for a range that is empty or beyond 1 GiB.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let mut parts = name.strip_suffix(".piece")?.split('.');
        let (name_of, start, end) = (parts.next()?, parts.next()?, parts.next()?);
        let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
        let piece = Self {
            segment: name_of.to_owned(),
            start: number(start)?,
            end: number(end)?,
        };
        let sound = parse_segment_name(name_of).is_some()
            && piece.start < piece.end
            && piece.end <= 1 << 30;
        (sound && parts.next().is_none() && piece.name() == name).then_some(piece)
    }

    /// The piece's name in the archive.
    pub(crate) fn name(&self) -> String {
        let (segment, start, end) = (&self.segment, self.start, self.end);
        format!("{segment}.{start:08X}.{end:08X}.piece")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_no_segment_has_are_refused() {
        for sound in [1 << 20, 16 << 20, 1 << 30] {
            assert!(is_segment_size(sound));
        }
        for size in [
            0,
            1,
            1 << 19,
            (16 << 20) + 1,
            1 << 31,
            1 << 32,
            1 << 33,
            1 << 63,
        ] {
            assert!(!is_segment_size(size), "{size}");
        }
    }
}
