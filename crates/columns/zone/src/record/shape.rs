//! Which operations are recorded, and which bytes of the data area are their arguments and answers.
//!
//! Must not: interpret them.

use strongroom_columns_ring::layout::relation_layout;
use strongroom_columns_ring::op::flag;
use strongroom_columns_ring::{ANSWER_HALF, AREA_SIZE, Answer, Area, Descriptor, Op};

/// Bytes of a token in [`Op::TokenMany`]'s answer.
const TOKEN: usize = 16;

/// Whether the operation is part of a query's computation, and so recorded. The others - ends of
/// statements, sessions, the log, changes of the store - are not.
pub(super) const fn is_recorded(op: Op) -> bool {
    matches!(
        op,
        Op::OpenEnvelope
            | Op::PostEnvelope
            | Op::Output
            | Op::Compute
            | Op::ThirdArgument
            | Op::Test
            | Op::Compare
            | Op::CompareMany
            | Op::CompareKeyed
            | Op::Token
            | Op::TokenMany
            | Op::RankMany
            | Op::TestMany
            | Op::Accumulate
            | Op::Final
            | Op::Combine
            | Op::Partition
    )
}

/// Whether the operation takes a list of identifiers in the data area.
pub(super) const fn takes_words(op: Op) -> bool {
    matches!(
        op,
        Op::Output | Op::CompareMany | Op::TokenMany | Op::RankMany | Op::TestMany
    )
}

/// How many identifiers the operation takes in the data area, and how many answers it gives there,
/// as its descriptor says. `None` if that does not fit into a `usize`.
fn word_counts(op: Op, descriptor: &Descriptor) -> Option<(usize, usize)> {
    let count = usize::try_from(descriptor.n).ok()?;
    Some(match op {
        Op::CompareMany if descriptor.flags & flag::PAIRS != 0 => (count.checked_mul(2)?, count),
        Op::TestMany => {
            let count = usize::try_from(descriptor.r).ok()?;
            (count, count)
        }
        _ => (count, count),
    })
}

/// Copies the operation's arguments out of the data area; empty for one that has none there. `None`
/// if they do not all lie in it.
pub(super) fn input(op: Op, descriptor: &Descriptor, area: &Area) -> Option<Vec<u8>> {
    let count = usize::try_from(descriptor.n).ok()?;
    let len = match op {
        Op::OpenEnvelope | Op::PostEnvelope => count,
        Op::Partition => relation_layout::SIZE,
        op if takes_words(op) => word_counts(op, descriptor)?.0.checked_mul(8)?,
        _ => 0,
    };
    let offset = if len == 0 { 0 } else { descriptor.b };
    read(area, usize::try_from(offset).ok()?, len)
}

/// Where the answer in the data area is: offset and length in bytes; length 0 if there is none, or
/// the operation has failed. `None` on overflow; does not check that it lies in the area.
pub(super) fn answer_range(
    op: Op,
    descriptor: &Descriptor,
    answer: &Answer,
) -> Option<(usize, usize)> {
    let (_, count) = word_counts(op, descriptor)?;
    let at = usize::try_from(descriptor.b).ok()?;
    Some(match op {
        _ if answer.status != 0 => (0, 0),
        Op::Output => (at, usize::try_from(answer.value).ok()?),
        Op::CompareMany | Op::TestMany => (ANSWER_HALF.checked_add(at)?, count),
        Op::TokenMany => (ANSWER_HALF.checked_add(at)?, count.checked_mul(TOKEN)?),
        Op::RankMany => (at, count.checked_mul(8)?),
        _ => (0, 0),
    })
}

/// Copies the answer out of the data area; empty if there is none. `None` if it does not lie in the
/// area.
pub(super) fn output(
    op: Op,
    descriptor: &Descriptor,
    answer: &Answer,
    area: &Area,
) -> Option<Vec<u8>> {
    if !takes_words(op) {
        return Some(Vec::new());
    }
    let (offset, len) = answer_range(op, descriptor, answer)?;
    read(area, offset, len)
}

/// Copies `len` bytes out of the shared area. `None` if they do not all lie in it, or the offset is
/// not a multiple of 8.
fn read(area: &Area, offset: usize, len: usize) -> Option<Vec<u8>> {
    if len > AREA_SIZE {
        return None;
    }
    let mut bytes = vec![0; len];
    area.read(offset, &mut bytes)?;
    Some(bytes)
}
