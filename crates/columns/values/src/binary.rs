//! PostgreSQL's binary forms: what `recv` functions read and `send` functions write.
//!
//! Invariant: what the server refuses is refused, with the server's SQLSTATE; bytes left over are
//! refused too. Must not: panic on any bytes.
#![expect(
    clippy::big_endian_bytes,
    reason = "PostgreSQL's protocol is big-endian"
)]

use strongroom_columns_ring::Fault;
use strongroom_format::columns::Kind;

use crate::datetime::{is_date, is_infinite, is_infinite_date, is_timestamp};
use crate::input::Unreadable;
use crate::interval::Interval;
use crate::jsonb;
use crate::numeric::forms;
use crate::time_of_day::is_time;
use crate::uuid;
use crate::value::{Buf, Out, Value};

/// Reads a value from PostgreSQL's binary form, as its `recv` function does, into `out`.
///
/// # Errors
/// [`Unreadable`] where the server's `recv` function refuses it, or leaves bytes unread.
pub fn receive(kind: Kind, bytes: &[u8], out: &mut Out) -> Result<(), Unreadable> {
    match kind {
        Kind::Bool => out.set(Value::of_bool(array::<1>(bytes)? != [0])),
        Kind::Int4 => out.set_int4(i32::from_be_bytes(array(bytes)?)),
        Kind::Int8 => out.set_int8(i64::from_be_bytes(array(bytes)?)),
        Kind::Float8 => out.set_word(u64::from_be_bytes(array(bytes)?)),
        Kind::Numeric => forms::receive(bytes, out)?,
        Kind::Text => {
            out.set_bytes(check_text(bytes)?.as_bytes());
        }
        Kind::Bytea => out.set_bytes(bytes),
        Kind::Date => {
            let date = i32::from_be_bytes(array(bytes)?);
            if !is_infinite_date(date) && !is_date(date) {
                return Err(Unreadable::OutOfRange);
            }
            out.set_int4(date);
        }
        Kind::Timestamp | Kind::Timestamptz => {
            let timestamp = i64::from_be_bytes(array(bytes)?);
            if !is_infinite(timestamp) && !is_timestamp(timestamp) {
                return Err(Unreadable::OutOfRange);
            }
            out.set_int8(timestamp);
        }
        Kind::Interval => {
            let word = u128::from_be_bytes(array(bytes)?);
            #[expect(clippy::cast_possible_truncation, reason = "the parts of 128 bits")]
            let (time, days, months) = ((word >> 64) as u64, (word >> 32) as u32, word as u32);
            let interval = Interval {
                months: months.cast_signed(),
                days: days.cast_signed(),
                time: time.cast_signed(),
            };
            interval.put(out);
        }
        Kind::Uuid => out.set_bytes(&array::<16>(bytes)?),
        Kind::Jsonb => jsonb::receive(bytes, out)?,
        Kind::Time => {
            let time = i64::from_be_bytes(array(bytes)?);
            if !is_time(time) {
                return Err(Unreadable::OutOfRange);
            }
            out.set_int8(time);
        }
    }
    Ok(())
}

/// The bytes as an array. `Unreadable::Binary` if they are not exactly as many.
fn array<const LEN: usize>(bytes: &[u8]) -> Result<[u8; LEN], Unreadable> {
    bytes.try_into().map_err(|_| Unreadable::Binary)
}

/// The bytes as text, as a server with encoding UTF8 takes it. `Unreadable::Encoding` if they are
/// not UTF-8 or have a zero byte.
pub(crate) fn check_text(bytes: &[u8]) -> Result<&str, Unreadable> {
    let text = core::str::from_utf8(bytes).map_err(|_| Unreadable::Encoding)?;
    if text.contains('\0') {
        Err(Unreadable::Encoding)
    } else {
        Ok(text)
    }
}

/// Appends a value's binary form to `buf`, as PostgreSQL's `send` function writes it.
///
/// # Errors
/// [`Fault::KindMismatch`] if the value is not of the kind's form.
pub fn send(kind: Kind, value: Value<'_>, buf: &mut Buf) -> Result<(), Fault> {
    match kind {
        Kind::Bool => buf.push(u8::from(value.bool()?)),
        Kind::Int4 | Kind::Date => buf.extend(&value.int4()?.to_be_bytes()),
        Kind::Int8 | Kind::Float8 | Kind::Timestamp | Kind::Timestamptz | Kind::Time => {
            buf.extend(&value.word()?.to_be_bytes());
        }
        Kind::Numeric => forms::send(value, buf)?,
        Kind::Text | Kind::Bytea => buf.extend(value.bytes()?),
        Kind::Interval => {
            let interval = Interval::read(value)?;
            buf.extend(&interval.time.to_be_bytes());
            buf.extend(&interval.days.to_be_bytes());
            buf.extend(&interval.months.to_be_bytes());
        }
        Kind::Uuid => buf.extend(&uuid::of(value)?),
        Kind::Jsonb => jsonb::send(value, buf)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_are_a_value_or_refused_and_values_come_back() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let (mut read, mut refused) = (0, 0);
        for round in 0..200_000_u32 {
            let kind = Kind::ALL[usize::try_from(next()).unwrap() % Kind::ALL.len()];
            let len = kind
                .fixed_len()
                .filter(|_| round % 8 != 0)
                .unwrap_or_else(|| usize::try_from(next() % 40).unwrap());
            let mut bytes: Vec<u8> = (0..len).map(|_| next().to_le_bytes()[0]).collect();
            if kind == Kind::Numeric && round % 4 != 0 {
                bytes = plausible_numeric(&mut next);
            }
            let mut out = Out::new();
            if receive(kind, &bytes, &mut out).is_err() {
                refused += 1;
                continue;
            }
            read += 1;
            let mut sent = Buf::new();
            send(kind, out.value(), &mut sent).unwrap();
            let mut again = Out::new();
            receive(kind, sent.as_slice(), &mut again).unwrap();
            let mut twice = Buf::new();
            send(kind, again.value(), &mut twice).unwrap();
            assert!(sent.as_slice() == twice.as_slice(), "{}", kind.base());
        }
        assert!(read > 50_000 && refused > 10_000, "{read} {refused}");
    }

    fn plausible_numeric(next: &mut impl FnMut() -> u64) -> Vec<u8> {
        let count = next() % 6;
        let weight = u16::try_from(next() % 9).unwrap().wrapping_sub(4);
        let sign =
            [0, 0x4000, 0xC000, 0xD000, 0xF000, 0x1000][usize::try_from(next() % 6).unwrap()];
        let scale = u16::try_from(next() % 20).unwrap();
        let head = [u16::try_from(count).unwrap(), weight, sign, scale];
        let digits = (0..count).map(|_| u16::try_from(next() % 10_050).unwrap());
        head.into_iter()
            .chain(digits.collect::<Vec<_>>())
            .flat_map(u16::to_be_bytes)
            .collect()
    }

    #[test]
    fn text_must_be_utf8_without_zeros() {
        let mut out = Out::new();
        assert_eq!(
            receive(Kind::Text, b"a\0", &mut out),
            Err(Unreadable::Encoding)
        );
        assert_eq!(
            receive(Kind::Text, b"\xff", &mut out),
            Err(Unreadable::Encoding)
        );
        assert_eq!(receive(Kind::Bytea, b"\xff\0", &mut out), Ok(()));
        assert_eq!(
            receive(Kind::Int4, &[0; 5], &mut out),
            Err(Unreadable::Binary)
        );
    }
}
