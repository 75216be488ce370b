//! The order of the groups of an aggregation that takes the place of one over sorted rows.
//!
//! Must not: change which groups there are.

use std::cmp::Ordering;

use strongroom_format::columns::Kind;

use super::aggregate_plan::Place;
use crate::functions::comparison::compare_two;
use crate::interrupts;
use crate::scanning::batching;
use crate::scanning::memo::RANKED_MAX;

/// One key of the order.
#[derive(Clone, Copy)]
pub(super) struct OrderKey {
    /// Number of the column among those of the node's own rows, from 0.
    pub(super) column: usize,
    /// The kind of its values. `None` for a type in clear.
    pub(super) kind: Option<Kind>,
    /// Whether the greatest value comes first.
    pub(super) is_descending: bool,
    /// Whether NULLs come before values.
    pub(super) nulls_first: bool,
}

/// What groups are compared by.
enum Values {
    /// By group a number that is in the order of the values; `None` for NULL.
    Numbers(Vec<Option<i64>>),
    /// By group an identifier, 0 for NULL, of values that the zone compares one by one.
    Identifiers(Kind, Vec<u64>),
}

/// Sorts the numbers of groups by these keys. `word` returns the word of a place of a group. Groups
/// that are alike in all keys stay in their order. Raises the zone's faults as an ERROR.
pub(super) fn sort(
    groups: &mut [usize],
    keys: &[OrderKey],
    places: &[Place],
    word: impl Fn(usize, usize) -> u64,
) {
    let all = groups.iter().max().map_or(0, |last| last + 1);
    let values: Vec<(OrderKey, Values)> = keys
        .iter()
        .filter_map(|key| Some((*key, values_of(*key, *places.get(key.column)?, all, &word))))
        .collect();
    groups.sort_by(|a, b| {
        interrupts::check();
        let mut orders = values.iter().map(|(key, of)| key.order(of, *a, *b));
        orders
            .find(|order| *order != Ordering::Equal)
            .unwrap_or(Ordering::Equal)
    });
}

/// What the first `all` groups have in a column.
fn values_of(
    key: OrderKey,
    place: Place,
    all: usize,
    word: impl Fn(usize, usize) -> u64,
) -> Values {
    match (place, key.kind) {
        (Place::Value(at), Some(kind)) => {
            let fids: Vec<u64> = (0..all).map(|group| word(group, at)).collect();
            match ranks(kind, &fids) {
                Some(ranks) => Values::Numbers(ranks),
                None => Values::Identifiers(kind, fids),
            }
        }
        (Place::Word(at), _) => {
            let number = |group: usize| {
                let is_null = at.checked_sub(1).is_some_and(|at| word(group, at) != 0);
                (!is_null).then(|| word(group, at).cast_signed())
            };
            Values::Numbers((0..all).map(number).collect())
        }
        (Place::Value(at) | Place::Count(at) | Place::Number(at), _) => {
            let number = |group| Some(word(group, at).cast_signed());
            Values::Numbers((0..all).map(number).collect())
        }
    }
}

/// The ranks of values among these; `None` for NULL. No ranks if there are too many for one call of
/// the zone, or it refuses.
fn ranks(kind: Kind, fids: &[u64]) -> Option<Vec<Option<i64>>> {
    let present: Vec<u64> = fids.iter().copied().filter(|fid| *fid != 0).collect();
    if present.len() > RANKED_MAX {
        return None;
    }
    if present.is_empty() {
        return Some(vec![None; fids.len()]);
    }
    let found = batching::rank(kind, &present)?;
    // Groups are often sorted again, by a count and then by their keys.
    batching::keep_ranks(kind, &present, &found);
    let mut found = found.into_iter();
    let mut rank = |fid: &u64| {
        if *fid == 0 {
            return None;
        }
        found.next().map(u64::cast_signed)
    };
    Some(fids.iter().map(&mut rank).collect())
}

impl OrderKey {
    /// The order of two groups by this key.
    fn order(&self, values: &Values, a: usize, b: usize) -> Ordering {
        let (a, b, order) = match values {
            Values::Numbers(numbers) => {
                let number = |at: usize| numbers.get(at).copied().flatten();
                let (a, b) = (number(a), number(b));
                (a.is_none(), b.is_none(), a.cmp(&b))
            }
            Values::Identifiers(kind, fids) => {
                let fid = |at: usize| fids.get(at).copied().unwrap_or(0);
                let (a, b) = (fid(a), fid(b));
                let order = if a == 0 || b == 0 {
                    Ordering::Equal
                } else {
                    compare_two(*kind, a, b).cmp(&0)
                };
                (a == 0, b == 0, order)
            }
        };
        match (a, b) {
            (true, true) => Ordering::Equal,
            (true, false) if self.nulls_first => Ordering::Less,
            (true, false) => Ordering::Greater,
            (false, true) if self.nulls_first => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) if self.is_descending => order.reverse(),
            (false, false) => order,
        }
    }
}
