//! Whether the archive has all the log that follows a set: by the names of its files.
//!
//! Must not: open an archived file, or say anything about what is in one.

use std::collections::{BTreeMap, BTreeSet};

use strongroom_format::code;
use strongroom_replication::Lsn;

use crate::head::{Description, PostgresFacts};
use crate::store::Store;
use crate::wal::segment;
use crate::{Error, Result};

/// Names that are listed at the most; the rest is counted.
const LISTED_MAX: u64 = 20;

/// What the archive has of the log behind a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogCheck {
    /// Whole segments that follow the set.
    pub segments: u64,
    /// The newest one.
    pub newest: Option<String>,
    /// Names of segments that are missing before it, the first of them.
    pub missing: Vec<String>,
    /// How many are missing.
    pub missing_count: u64,
}

/// Looks for segments that are missing between the end of a set of a PostgreSQL cluster, which brings its own log, and the newest
/// archived one. `None` for other sets, and where nothing is archived that follows it.
///
/// # Errors
/// SR-7106 when the set's range of the log is none; SR-5001.
pub fn check_log(store: &dyn Store, description: &Description) -> Result<Option<LogCheck>> {
    let Some(facts) = &description.postgres else {
        return Ok(None);
    };
    let sound = facts.segment_size_bytes.is_power_of_two()
        && (1 << 20..=1 << 30).contains(&facts.segment_size_bytes);
    let end: Option<Lsn> = facts.end_lsn.parse().ok();
    let end = end.filter(|end| sound && end.0 > 0);
    let end = end.ok_or_else(|| Error::new(&code::SET_HEAD, "a set's log range"))?;
    let listed = store.list("wal");
    let listed = listed.map_err(|error| Error::io(store.shown(), error))?;
    let per_file = (1_u64 << 32) / facts.segment_size_bytes;
    let mut timelines: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for (name, _) in &listed {
        if let Some((timeline, number)) = segment(name) {
            let number = (number >> 32)
                .saturating_mul(per_file)
                .saturating_add(number & 0xffff_ffff);
            timelines.entry(timeline).or_default().insert(number);
        }
    }
    // The end is behind the set's last byte of log.
    let last = (end.0 - 1) / facts.segment_size_bytes;
    let check = follow(&timelines, u64::from(facts.end_timeline), last, facts);
    Ok((check.segments > 0 || check.missing_count > 0).then_some(check))
}

/// From the segment `last` of `timeline` on to the newest one. A later timeline goes on where an earlier one has come to.
fn follow(
    timelines: &BTreeMap<u64, BTreeSet<u64>>,
    timeline: u64,
    last: u64,
    facts: &PostgresFacts,
) -> LogCheck {
    let mut check = LogCheck::default();
    let mut reached = last;
    for (timeline, numbers) in timelines.range(timeline..) {
        // A timeline begins with the segment of the one before in which it branched off.
        let first = numbers.first().copied().unwrap_or(reached);
        let next = first.min(reached.saturating_add(1));
        let mut next = next.max(last.saturating_add(1));
        for number in numbers.range(next..) {
            let missing = number.saturating_sub(next);
            let room = LISTED_MAX.saturating_sub(check.missing.len() as u64);
            let names = (next..*number).take(usize::try_from(room).unwrap_or(0));
            check
                .missing
                .extend(names.map(|number| name(*timeline, number, facts)));
            check.missing_count = check.missing_count.saturating_add(missing);
            next = number.saturating_add(1);
            if *number > last {
                check.segments = check.segments.saturating_add(1);
                check.newest = Some(name(*timeline, *number, facts));
            }
        }
        reached = reached.max(next.saturating_sub(1));
    }
    check
}

fn name(timeline: u64, number: u64, facts: &PostgresFacts) -> String {
    let per_file = ((1_u64 << 32) / facts.segment_size_bytes.max(1)).max(1);
    let (file, within) = (number / per_file, number % per_file);
    format!("{timeline:08X}{file:08X}{within:08X}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed(timelines: &[(u64, &[u64])], last: u64) -> (Vec<String>, u64) {
        let facts = PostgresFacts {
            segment_size_bytes: 16 << 20,
            ..PostgresFacts::default()
        };
        let timelines = timelines
            .iter()
            .map(|(timeline, numbers)| (*timeline, numbers.iter().copied().collect()))
            .collect();
        let check = follow(&timelines, 1, last, &facts);
        assert!(check.missing.len() as u64 <= check.missing_count);
        (check.missing, check.segments)
    }

    #[test]
    fn what_is_missing_is_named() {
        let none: Vec<String> = Vec::new();
        assert_eq!(followed(&[], 4), (none.clone(), 0));
        assert_eq!(followed(&[(1, &[2, 3])], 4), (none.clone(), 0));
        assert_eq!(followed(&[(1, &[3, 4, 5, 6])], 4), (none.clone(), 2));
        // The set brings 3 itself.
        assert_eq!(followed(&[(1, &[2, 4, 5])], 4), (none, 1));
        let five = vec![String::from("000000010000000000000005")];
        assert_eq!(followed(&[(1, &[4, 6])], 4), (five.clone(), 1));
        assert_eq!(followed(&[(1, &[6, 7])], 4), (five, 2));
        let file = vec![String::from("000000010000000100000000")];
        assert_eq!(followed(&[(1, &[255, 257])], 254), (file, 2));
    }

    #[test]
    fn a_later_timeline_goes_on_where_the_earlier_one_ended() {
        let none: Vec<String> = Vec::new();
        // 6 has the branch: the old timeline's is not whole.
        assert_eq!(followed(&[(1, &[5]), (2, &[6, 7])], 4), (none.clone(), 3));
        assert_eq!(followed(&[(1, &[5, 6, 7]), (2, &[6, 7, 8])], 4), (none, 6));
        let six = vec![String::from("000000020000000000000006")];
        assert_eq!(followed(&[(1, &[5]), (2, &[7])], 4), (six, 2));
    }

    #[test]
    fn a_name_far_away_is_counted_and_not_listed() {
        let (missing, segments) = followed(&[(1, &[1 << 40])], 4);
        assert_eq!((missing.len(), segments), (20, 1));
    }
}
