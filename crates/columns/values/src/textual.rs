//! Functions of text (UTF-8, collation "C") and of bytea: src/backend/utils/adt/varlena.c and
//! `oracle_compat.c`.
//!
//! Positions count characters from 1. Case is ASCII's alone, as in collation "C". Must not:
//! interpret text.

use strongroom_columns_ring::Fault;
use zeroize::Zeroizing;

use crate::value::Out;

/// The longest text or bytea that is computed. PostgreSQL's own limit is 1 GiB (`MaxAllocSize`), in
/// the memory of one process; all processes share this memory, and nothing longer than 1 MiB is
/// stored or sent.
pub(crate) const LEN_MAX: usize = 64 << 20;

/// Whether this byte is the first of a UTF-8 character.
const fn is_char_start(byte: u8) -> bool {
    byte & 0xc0 != 0x80
}

/// The length of a UTF-8 text in characters.
pub(crate) fn characters(text: &[u8]) -> i32 {
    i32::try_from(text.iter().filter(|byte| is_char_start(**byte)).count()).unwrap_or(i32::MAX)
}

/// Sets `out` to `a` followed by `b` (`textcat`, `byteacat`). `Fault::StringTooLong` above
/// [`LEN_MAX`].
pub(crate) fn concatenate(a: &[u8], b: &[u8], out: &mut Out) -> Result<(), Fault> {
    let len = a.len() + b.len();
    if len > LEN_MAX {
        return Err(Fault::StringTooLong);
    }
    let buf = out.begin(len);
    buf.extend(a);
    buf.extend(b);
    Ok(())
}

/// Sets `out` to the text with `map` applied to each byte (`upper`, `lower`).
pub(crate) fn map_case(text: &[u8], map: fn(&u8) -> u8, out: &mut Out) {
    let buf = out.begin(text.len());
    text.iter().for_each(|byte| buf.push(map(byte)));
}

/// The part of `start` (from 1) and `len` that is inside the text: how many characters to skip, and
/// how many to take (`None`: all others). `Fault::NegativeSubstring` for a negative length.
fn inner_range(start: i32, len: Option<i32>) -> Result<(usize, Option<usize>), Fault> {
    let skip = usize::try_from(start.max(1) - 1).unwrap_or(0);
    let Some(len) = len else {
        return Ok((skip, None));
    };
    if len < 0 {
        return Err(Fault::NegativeSubstring);
    }
    // An end beyond the range of an integer is the end of the string.
    let Some(end) = start.checked_add(len) else {
        return Ok((skip, None));
    };
    let take = i64::from(end) - i64::from(start.max(1));
    Ok((skip, Some(usize::try_from(take).unwrap_or(0))))
}

/// The byte offset of character `at`, counted from 0; the text's length if it has fewer.
fn offset(text: &[u8], at: usize) -> usize {
    let mut beginnings = text
        .iter()
        .enumerate()
        .filter(|(_, byte)| is_char_start(**byte));
    beginnings.nth(at).map_or(text.len(), |(offset, _)| offset)
}

/// Sets `out` to `len` characters, or all, from character `start`, counted from 1
/// (`text_substring`). `Fault::NegativeSubstring` for a negative length.
pub(crate) fn substring(
    text: &[u8],
    start: i32,
    len: Option<i32>,
    out: &mut Out,
) -> Result<(), Fault> {
    let (skip, take) = inner_range(start, len)?;
    let rest = &text[offset(text, skip)..];
    let end = take.map_or(rest.len(), |take| offset(rest, take));
    out.set_bytes(&rest[..end]);
    Ok(())
}

/// Sets `out` to `len` bytes, or all, from byte `start`, counted from 1 (`bytea_substring`).
/// `Fault::NegativeSubstring` for a negative length.
pub(crate) fn bytes_substring(
    bytes: &[u8],
    start: i32,
    len: Option<i32>,
    out: &mut Out,
) -> Result<(), Fault> {
    let (skip, take) = inner_range(start, len)?;
    let rest = bytes.get(skip..).unwrap_or(&[]);
    out.set_bytes(take.and_then(|take| rest.get(..take)).unwrap_or(rest));
    Ok(())
}

/// Sets `out` to the first `count` characters; if negative, to all but the last ones (`text_left`).
pub(crate) fn left(text: &[u8], count: i32, out: &mut Out) {
    let keep = if count < 0 {
        characters(text).saturating_add(count)
    } else {
        count
    };
    let end = offset(text, usize::try_from(keep).unwrap_or(0));
    out.set_bytes(&text[..end]);
}

/// Sets `out` to the last `count` characters; if negative, to all but the first ones
/// (`text_right`).
pub(crate) fn right(text: &[u8], count: i32, out: &mut Out) {
    // The least integer has no negative: the greatest skips as much, every character there can be.
    // (Before 15.20 PostgreSQL's overflowed and skipped nothing.)
    let skip = if count < 0 {
        count.saturating_neg()
    } else {
        characters(text) - count
    };
    let begin = offset(text, usize::try_from(skip).unwrap_or(0));
    out.set_bytes(&text[begin..]);
}

/// The position, in characters from 1, at which `part` first is in the text; 0 if it is not
/// (`strpos`).
pub(crate) fn position(text: &str, part: &str) -> i32 {
    match text.find(part) {
        Some(at) => characters(&text.as_bytes()[..at]).saturating_add(1),
        None => 0,
    }
}

/// Bytes of a set of characters that is searched from its beginning.
const SET_SHORT: usize = 64;

/// Sets `out` to the text without characters of `set` at its beginning, its end, or both (`ltrim`,
/// `rtrim`, `btrim`).
pub(crate) fn trim(text: &str, set: &str, (begin, end): (bool, bool), out: &mut Out) {
    // A long set is searched in order: text and set of a MiB each would take minutes otherwise.
    let mut sorted = Zeroizing::new(Vec::new());
    if set.len() > SET_SHORT {
        sorted.reserve_exact(set.len());
        sorted.extend(set.chars());
        sorted.sort_unstable();
    }
    let is_in = |c: char| match sorted.len() {
        0 => set.contains(c),
        _ => sorted.binary_search(&c).is_ok(),
    };
    let text = if begin {
        text.trim_start_matches(is_in)
    } else {
        text
    };
    let text = if end {
        text.trim_end_matches(is_in)
    } else {
        text
    };
    out.set_bytes(text.as_bytes());
}

/// Sets `out` to the text cut off or filled up with `fill` to `len` characters, on the `left`
/// (`lpad`) or right (`rpad`). An empty `fill` adds none. `Fault::StringTooLong` above 16 Mi
/// characters.
pub(crate) fn pad(
    text: &str,
    len: i32,
    fill: &str,
    left: bool,
    out: &mut Out,
) -> Result<(), Fault> {
    let count = text.chars().count();
    let mut len = usize::try_from(len).unwrap_or(0);
    if fill.is_empty() {
        len = len.min(count);
    }
    // PostgreSQL refuses what would not fit if each character had the four bytes that it can have.
    if len.saturating_mul(4) > LEN_MAX {
        return Err(Fault::StringTooLong);
    }
    let kept = &text.as_bytes()[..offset(text.as_bytes(), len)];
    let missing = len.saturating_sub(count);
    let buf = out.begin(kept.len() + missing * 4);
    if !left {
        buf.extend(kept);
    }
    for c in fill.chars().cycle().take(missing) {
        buf.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
    if left {
        buf.extend(kept);
    }
    Ok(())
}

/// Sets `out` to field `number` of the text, counted from 1, or from the end if negative; empty if
/// there is none (`split_part`). `Fault::FieldPositionZero` for 0.
pub(crate) fn split_part(
    text: &str,
    separator: &str,
    number: i32,
    out: &mut Out,
) -> Result<(), Fault> {
    let at = match usize::try_from(number.unsigned_abs()) {
        Ok(0) => return Err(Fault::FieldPositionZero),
        Ok(number) => number - 1,
        Err(_) => usize::MAX,
    };
    let field = if separator.is_empty() {
        (at == 0).then_some(text)
    } else if number > 0 {
        text.split(separator).nth(at)
    } else {
        // Counted from the beginning, because separators that overlap are found from there.
        let count = text.split(separator).count();
        count
            .checked_sub(at + 1)
            .and_then(|at| text.split(separator).nth(at))
    };
    out.set_bytes(field.unwrap_or("").as_bytes());
    Ok(())
}

/// Sets `out` to the text's characters in reverse order (`reverse`).
pub(crate) fn reverse(text: &str, out: &mut Out) {
    let buf = out.begin(text.len());
    for c in text.chars().rev() {
        buf.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

/// The code point of the text's first character, 0 for an empty text (`ascii`).
pub(crate) fn first_character(text: &str) -> i32 {
    text.chars()
        .next()
        .map_or(0, |c| u32::from(c).cast_signed())
}

/// Sets `out` to the text with each `from` replaced by `to`; unchanged for an empty `from`
/// (`replace`). `Fault::StringTooLong` above [`LEN_MAX`].
pub(crate) fn replace(text: &str, from: &str, to: &str, out: &mut Out) -> Result<(), Fault> {
    if from.is_empty() {
        out.set_bytes(text.as_bytes());
        return Ok(());
    }
    let count = text.matches(from).count();
    let len = (text.len() - count * from.len()).saturating_add(count.saturating_mul(to.len()));
    if len > LEN_MAX {
        return Err(Fault::StringTooLong);
    }
    let buf = out.begin(len);
    let mut pieces = text.split(from);
    buf.extend(pieces.next().unwrap_or("").as_bytes());
    for piece in pieces {
        buf.extend(to.as_bytes());
        buf.extend(piece.as_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(run: impl FnOnce(&mut Out) -> Result<(), Fault>) -> Result<String, Fault> {
        let mut out = Out::new();
        run(&mut out)?;
        Ok(out.value().text()?.to_owned())
    }

    #[test]
    fn parts_at_the_edges() {
        let cut = |start, len| text(|out| substring("h\u{e9}llo".as_bytes(), start, len, out));
        assert_eq!(cut(2, Some(1)).unwrap(), "\u{e9}");
        assert_eq!(cut(-1, Some(3)).unwrap(), "h");
        assert_eq!(cut(0, None).unwrap(), "h\u{e9}llo");
        assert_eq!(cut(2, Some(i32::MAX)).unwrap(), "\u{e9}llo");
        assert_eq!(cut(9, Some(1)).unwrap(), "");
        assert_eq!(cut(1, Some(-1)), Err(Fault::NegativeSubstring));
        assert_eq!(cut(i32::MIN, Some(0)).unwrap(), "");
    }

    #[test]
    fn a_long_set_of_characters_trims_like_a_short_one() {
        let long: String = ('\u{100}'..'\u{400}').chain("xy\u{e9}".chars()).collect();
        for (given, (begin, end), left) in [
            ("xy\u{e9}middley", (true, true), "middle"),
            ("\u{3ff}x\u{100}middlex", (true, false), "middlex"),
            ("xmiddle\u{250}", (false, true), "xmiddle"),
            ("yxyx", (true, true), ""),
        ] {
            let trimmed = |set: &str| {
                text(|out| {
                    trim(given, set, (begin, end), out);
                    Ok(())
                })
            };
            assert_eq!(trimmed(&long).unwrap(), left);
        }
        let (all, set) = ("a".repeat(1 << 20), "b".repeat(1 << 20) + "a");
        let begun = std::time::Instant::now();
        assert_eq!(
            text(|out| {
                trim(&all, &set, (true, true), out);
                Ok(())
            })
            .unwrap(),
            ""
        );
        assert!(begun.elapsed().as_secs() < 30);
    }

    #[test]
    fn what_is_computed_has_an_end() {
        let half = vec![b'a'; LEN_MAX / 2 + 1];
        let mut out = Out::new();
        assert_eq!(
            concatenate(&half, &half, &mut out),
            Err(Fault::StringTooLong)
        );
        assert_eq!(concatenate(&half, &half[2..], &mut out), Ok(()));
    }

    #[test]
    fn left_and_right_at_the_edges() {
        let left_of = |count| {
            text(|out| {
                left("\u{e9}ab".as_bytes(), count, out);
                Ok(())
            })
            .unwrap()
        };
        let right_of = |count| {
            text(|out| {
                right("\u{e9}ab".as_bytes(), count, out);
                Ok(())
            })
            .unwrap()
        };
        assert_eq!(
            (left_of(1), left_of(-1), left_of(i32::MIN)),
            ("\u{e9}".into(), "\u{e9}a".into(), String::new())
        );
        assert_eq!(
            (right_of(2), right_of(-1), right_of(99)),
            ("ab".into(), "ab".into(), "\u{e9}ab".into())
        );
        assert_eq!((right_of(i32::MIN), right_of(-3)), Default::default());
    }

    #[test]
    fn positions_count_characters() {
        assert_eq!(position("\u{e9}\u{e9}a", "a"), 3);
        assert_eq!(position("abc", ""), 1);
        assert_eq!(position("", ""), 1);
        assert_eq!(position("abc", "x"), 0);
        assert_eq!(text(|out| replace("aaa", "aa", "b", out)).unwrap(), "ba");
    }
}
