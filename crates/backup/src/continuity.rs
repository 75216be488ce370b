//! Checks whether the archive has all the log after a set: by the names of its files, by the
//! history of the newest timeline, and by the page headers of each segment that recovery will ask
//! for.
//!
//! Must not: check records; count log of a timeline that does not descend from the set's.

use std::collections::{BTreeMap, BTreeSet};

use strongroom_format::code::{self, Class};
use strongroom_keyring::Opener;
use strongroom_postgres_replication::Lsn;

use crate::head::{Description, PostgresFacts};
use crate::log_names::{is_segment_size, parse_segment_name};
use crate::segment;
use crate::store::Store;
use crate::timeline_history::parse_history;
use crate::wal::wal_fetch;
use crate::{Error, Result};

/// The most names that are listed; further ones are only counted.
const LISTED_MAX: u64 = 20;

/// What the archive has of the log after a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogCheck {
    /// Whole segments that follow the set.
    pub segments: u64,
    /// The newest one.
    pub newest: Option<String>,
    /// The names of the first segments that are missing before the newest one.
    pub missing: Vec<String>,
    /// How many segments are missing.
    pub missing_count: u64,
    /// Segments whose pages were compared with their names.
    pub looked_into: u64,
    /// The first segments that do not match their names, and why.
    pub wrong: Vec<String>,
    /// How many segments do not match their names.
    pub wrong_count: u64,
    /// What could not be checked.
    pub not_checked: Vec<String>,
    /// The archived segments that recovery asks for, in order.
    pub(crate) wanted: Vec<String>,
    /// Whether the newest timeline of the archive does not come from the set's.
    stranger: bool,
}

impl LogCheck {
    /// Whether recovery can go to the newest timeline of the archive: it comes from the set's
    /// timeline, or that could not be found out.
    pub(crate) fn follows_newest(&self) -> bool {
        !self.stranger
    }

    /// The error for a good set whose log is not: SR-7130 with the missing segments, otherwise
    /// SR-7174 with the first segment that does not match its name. `None` when there is neither.
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        if self.missing_count > 0 {
            let names = self.missing.join(", ");
            let more = match self.missing_count.saturating_sub(self.missing.len() as u64) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let detail = format!("the set is good; missing: {names}{more}");
            return Some(Error::new(&code::WAL_GAP, detail));
        }
        let first = self.wrong.first()?;
        let count = self.wrong_count;
        let detail = format!("the set is good; {count} wrong, the first is {first}");
        Some(Error::new(&code::ARCHIVE_CONTENT, detail))
    }
}

/// Numbers of the whole segments of each timeline.
type Timelines = BTreeMap<u64, BTreeSet<u64>>;

/// Checks the log between the end of a set of a PostgreSQL cluster, which brings its own log, and
/// the newest archived segment on the way to the newest timeline, to which recovery goes: which
/// segments are missing, and whether those that are there match their names. Gaps and mismatches
/// are in the result and no error. `None` for sets of other kinds, and when there is nothing to
/// report.
///
/// # Errors
/// SR-7106 when the set's range of the log is not valid; SR-5001, or SR-7141 to SR-7143 for an
/// object store, when the store fails.
pub fn check_log(
    store: &dyn Store,
    description: &Description,
    opener: Option<&Opener>,
) -> Result<Option<LogCheck>> {
    let Some(facts) = &description.postgres else {
        return Ok(None);
    };
    let end: Option<Lsn> = facts.end_lsn.parse().ok();
    let end = end.filter(|end| is_segment_size(facts.segment_size_bytes) && end.0 > 0);
    let end = end.ok_or_else(|| Error::new(&code::SET_HEAD, "a set's log range"))?;
    let timelines = list_archived(store, facts)?;
    // The end is the position after the set's last byte of log.
    let last = (end.0 - 1) / facts.segment_size_bytes;
    let of = u64::from(facts.end_timeline);
    let newest = timelines.keys().next_back().copied().unwrap_or(of);
    let mut not_checked = Vec::new();
    let mut stranger = false;
    let mut way = vec![(of, None)];
    if newest > of {
        match read_history(store, newest, opener)? {
            Ok(branches) => match timelines_between(&branches, of, newest, facts) {
                Some(found) if found.first().is_some_and(|(_, end)| *end >= Some(last)) => {
                    way = found;
                }
                _ => {
                    stranger = true;
                    not_checked.push(format!(
                        "log of timeline {newest}, which does not come from this set's"
                    ));
                }
            },
            Err(why) => not_checked.push(format!(
                "log of the timelines after {of}: {newest:08X}.history: {why}"
            )),
        }
    }
    let besides = timelines
        .range(of..newest)
        .filter(|(timeline, _)| !way.iter().any(|(on, _)| on == *timeline));
    for (timeline, _) in besides.filter(|_| way.len() > 1) {
        let text = format!("log of timeline {timeline}, from which {newest} does not come");
        not_checked.push(text);
    }
    let mut check = follow_timelines(&timelines, &way, last, facts);
    check.not_checked.extend(not_checked);
    // A server also takes segments from the archive that the set itself holds.
    let start: Option<Lsn> = facts.start_lsn.parse().ok();
    let first = start.map_or(last, |start| start.0 / facts.segment_size_bytes);
    let before = timelines.get(&of).into_iter().flat_map(|numbers| {
        let brought = numbers.range(first.min(last)..=last);
        brought.map(|number| segment_name(of, *number, facts))
    });
    let followed = std::mem::take(&mut check.wanted);
    // A segment that the next timeline has as well is not taken from the older one.
    let is_newer = |of: &String| followed.iter().any(|name| name.get(8..) == of.get(8..));
    let mut wanted: Vec<String> = before.filter(|name| !is_newer(name)).collect();
    wanted.extend_from_slice(&followed);
    check_pages(store, &wanted, facts, opener, &mut check)?;
    (check.wanted, check.stranger) = (wanted, stranger);
    let any = check.segments > 0
        || check.missing_count > 0
        || check.wrong_count > 0
        || !check.not_checked.is_empty();
    Ok(any.then_some(check))
}

/// Fetches each archived segment in `wanted`, compares the headers of its pages with its name
/// (timeline and position in the log) and with the set's cluster, and adds the result to `check`. A
/// sealed segment counts as not checked if the key does not open it or `opener` is `None`; one that
/// is damaged, gone or another cluster's counts as wrong. An error only when the store fails.
fn check_pages(
    store: &dyn Store,
    wanted: &[String],
    facts: &PostgresFacts,
    opener: Option<&Opener>,
    check: &mut LogCheck,
) -> Result<()> {
    let mut closed = 0_u64;
    let mut first_closed = None;
    for (at, name) in wanted.iter().enumerate() {
        let why = match wal_fetch(store, name, opener) {
            Ok(content) => {
                check.looked_into = check.looked_into.saturating_add(1);
                let is_last = at.saturating_add(1) == wanted.len();
                mismatch_of(name, &content, facts, is_last).map(String::from)
            }
            Err(error) if error.code().class == Class::Io => return Err(error),
            Err(error) if error.code().class == Class::Key => {
                closed = closed.saturating_add(1);
                let shown = format!("{name}: SR-{:04}", error.code().number);
                first_closed.get_or_insert(shown);
                None
            }
            Err(error) => Some(format!("SR-{:04}", error.code().number)),
        };
        let Some(why) = why else {
            continue;
        };
        check.wrong_count = check.wrong_count.saturating_add(1);
        if (check.wrong.len() as u64) < LISTED_MAX {
            check.wrong.push(format!("{name}: {why}"));
        }
    }
    if let Some(first) = first_closed {
        let text =
            format!("what {closed} archived segments hold, which the key does not open: {first}");
        check.not_checked.push(text);
    }
    Ok(())
}

/// Why a segment does not match its name; `None` when it does. Only the last segment may have
/// something else after its end.
fn mismatch_of(
    name: &str,
    content: &[u8],
    facts: &PostgresFacts,
    is_last: bool,
) -> Option<&'static str> {
    match segment::examine_pages(name, content) {
        Err(why) => Some(why),
        Ok(pages) if pages.system.to_string() != facts.system_identifier => {
            Some("of another cluster")
        }
        Ok(pages) if !pages.whole && !is_last => Some("its pages do not go on to its end"),
        Ok(_) => None,
    }
}

/// The numbers of all whole segments that the archive lists, for each timeline. Errors of the
/// store.
fn list_archived(store: &dyn Store, facts: &PostgresFacts) -> Result<Timelines> {
    let listed = store.list("wal");
    let listed = listed.map_err(|error| Error::io(store.shown(), error))?;
    let per_file = (1_u64 << 32) / facts.segment_size_bytes.max(1);
    let mut timelines = Timelines::new();
    for (name, _) in &listed {
        if let Some((timeline, number)) = parse_segment_name(name) {
            let number = (number >> 32)
                .saturating_mul(per_file)
                .saturating_add(number & 0xffff_ffff);
            timelines.entry(timeline).or_default().insert(number);
        }
    }
    Ok(timelines)
}

/// Fetches the history of `timeline`: the timelines that it comes from, the oldest first, each with
/// the position at which it was left. The inner error says why they are not known; an outer error
/// when the store fails.
fn read_history(
    store: &dyn Store,
    timeline: u64,
    opener: Option<&Opener>,
) -> Result<std::result::Result<Vec<(u64, Lsn)>, String>> {
    let content = match wal_fetch(store, &format!("{timeline:08X}.history"), opener) {
        Ok(content) => content,
        Err(error) if error.code().class == Class::Io => return Err(error),
        Err(error) if error.code() == &code::WAL_ABSENT => {
            return Ok(Err(String::from("not archived")));
        }
        Err(error) => return Ok(Err(format!("SR-{:04}", error.code().number))),
    };
    let parsed = parse_history(&content);
    Ok(parsed.ok_or_else(|| String::from("not a timeline's history")))
}

/// The timelines from `of` to `newest`, in order, each with the number of the segment in which the
/// next one begins. `None` when `newest` does not come from `of`.
fn timelines_between(
    branches: &[(u64, Lsn)],
    of: u64,
    newest: u64,
    facts: &PostgresFacts,
) -> Option<Vec<(u64, Option<u64>)>> {
    let from = branches.iter().position(|(timeline, _)| *timeline == of)?;
    let left = branches.get(from..)?.iter();
    let size = facts.segment_size_bytes.max(1);
    let mut way: Vec<_> = left
        .map(|(timeline, end)| (*timeline, Some(end.0 / size)))
        .collect();
    way.push((newest, None));
    Some(way)
}

/// Follows `way` from the segment `last` of its first timeline to the newest one, and lists the
/// segments that are there and those that are missing, by the listing alone. The segment in which a
/// timeline was left counts for the next timeline: recovery takes it from the newest timeline that
/// begins before its end.
fn follow_timelines(
    timelines: &Timelines,
    way: &[(u64, Option<u64>)],
    last: u64,
    facts: &PostgresFacts,
) -> LogCheck {
    let mut check = LogCheck::default();
    let none = BTreeSet::new();
    let mut next = last.saturating_add(1);
    if way.first().is_some_and(|(_, end)| *end == Some(last)) {
        // The set ends in the segment in which the next timeline begins: that timeline has the
        // segment too.
        next = last;
    } else if let Some((timeline, _)) = way.first() {
        let numbers = timelines.get(timeline).unwrap_or(&none);
        if !numbers.contains(&last) && numbers.range(next..).next().is_some() {
            let name = segment_name(*timeline, last, facts);
            check.not_checked.push(format!(
                "whether the set has all of {name}, which is not archived: one of a standby has only its beginning"
            ));
        }
    }
    for (at, (timeline, end)) in way.iter().enumerate() {
        let numbers = timelines.get(timeline).unwrap_or(&none);
        let later = way
            .get(at.saturating_add(1)..)
            .unwrap_or_default()
            .iter()
            .any(|(later, _)| timelines.contains_key(later));
        let end = end.filter(|_| later).or_else(|| {
            let newest = numbers.last().map(|newest| newest.saturating_add(1));
            Some(newest.unwrap_or(next))
        });
        let end = end.unwrap_or(next).max(next);
        for number in numbers.range(next..end) {
            add_missing(&mut check, *timeline, next..*number, facts);
            next = number.saturating_add(1);
            check.segments = check.segments.saturating_add(1);
            let name = segment_name(*timeline, *number, facts);
            check.wanted.push(name.clone());
            check.newest = Some(name);
        }
        add_missing(&mut check, *timeline, next..end, facts);
        next = end;
        if !later {
            break;
        }
    }
    check
}

/// Adds segments to the missing ones: all to the count, and names only up to the limit.
fn add_missing(
    check: &mut LogCheck,
    timeline: u64,
    numbers: std::ops::Range<u64>,
    facts: &PostgresFacts,
) {
    let count = numbers.end.saturating_sub(numbers.start);
    let room = LISTED_MAX.saturating_sub(check.missing.len() as u64);
    let names = numbers.take(usize::try_from(room).unwrap_or(0));
    check
        .missing
        .extend(names.map(|number| segment_name(timeline, number, facts)));
    check.missing_count = check.missing_count.saturating_add(count);
}

/// The file name of a segment, by its number from the beginning of the log.
fn segment_name(timeline: u64, number: u64, facts: &PostgresFacts) -> String {
    let per_file = ((1_u64 << 32) / facts.segment_size_bytes.max(1)).max(1);
    let (file, within) = (number / per_file, number % per_file);
    format!("{timeline:08X}{file:08X}{within:08X}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 16 << 20;

    /// The names that are missing, how many segments follow, and how much was not checked.
    fn followed(
        timelines: &[(u64, &[u64])],
        way: &[(u64, Option<u64>)],
        last: u64,
    ) -> (Vec<String>, u64, usize) {
        let facts = PostgresFacts {
            segment_size_bytes: SIZE,
            ..PostgresFacts::default()
        };
        let timelines = timelines
            .iter()
            .map(|(timeline, numbers)| (*timeline, numbers.iter().copied().collect()))
            .collect();
        let check = follow_timelines(&timelines, way, last, &facts);
        assert!(check.missing.len() as u64 <= check.missing_count);
        (check.missing, check.segments, check.not_checked.len())
    }

    fn alone(numbers: &[u64], last: u64) -> (Vec<String>, u64, usize) {
        followed(&[(1, numbers)], &[(1, None)], last)
    }

    #[test]
    fn what_is_missing_is_named() {
        let none: Vec<String> = Vec::new();
        assert_eq!(followed(&[], &[(1, None)], 4), (none.clone(), 0, 0));
        assert_eq!(alone(&[2, 3], 4), (none.clone(), 0, 0));
        assert_eq!(alone(&[3, 4, 5, 6], 4), (none.clone(), 2, 0));
        // The set brings 3 itself.
        assert_eq!(alone(&[2, 4, 5], 4), (none.clone(), 1, 0));
        // Of 4 it has all, or only the beginning.
        assert_eq!(alone(&[5], 4), (none, 1, 1));
        let five = vec![String::from("000000010000000000000005")];
        assert_eq!(alone(&[4, 6], 4), (five.clone(), 1, 0));
        assert_eq!(alone(&[4, 6, 7], 4), (five, 2, 0));
        let file = vec![String::from("000000010000000100000000")];
        assert_eq!(alone(&[254, 255, 257], 254), (file, 2, 0));
    }

    #[test]
    fn a_later_timeline_goes_on_where_the_earlier_one_was_left() {
        let none: Vec<String> = Vec::new();
        let way = [(1, Some(6)), (2, None)];
        // 6 has the branch: the old timeline's is not whole.
        let sound: [(u64, &[u64]); 2] = [(1, &[4, 5]), (2, &[6, 7])];
        assert_eq!(followed(&sound, &way, 4), (none.clone(), 3, 0));
        // The old server went on: what it wrote after the branch fills no gap.
        let lost: [(u64, &[u64]); 2] = [(1, &[4, 5, 6, 7, 8, 9]), (2, &[8, 9])];
        let both = ["000000020000000000000006", "000000020000000000000007"];
        assert_eq!(
            followed(&lost, &way, 4),
            (both.map(String::from).to_vec(), 3, 0)
        );
        // And what it lost after the branch is no gap.
        let odd: [(u64, &[u64]); 2] = [(1, &[4, 5, 7]), (2, &[6, 7])];
        assert_eq!(followed(&odd, &way, 4), (none.clone(), 3, 0));
        // The end of the old one is missing.
        let short: [(u64, &[u64]); 2] = [(1, &[4]), (2, &[6])];
        let five = vec![String::from("000000010000000000000005")];
        assert_eq!(followed(&short, &way, 4), (five, 1, 0));
        // Nothing of the new one yet.
        assert_eq!(followed(&[(1, &[4, 5])], &way, 4), (none.clone(), 1, 0));
        // The set ends in the segment of the branch.
        let way = [(1, Some(4)), (2, None)];
        assert_eq!(followed(&[(1, &[4]), (2, &[4, 5])], &way, 4), (none, 2, 0));
        let four = vec![String::from("000000020000000000000004")];
        assert_eq!(followed(&[(1, &[4]), (2, &[5])], &way, 4), (four, 1, 0));
    }

    #[test]
    fn a_history_names_the_way() {
        let text = b"1\t0/5000000\tno recovery target specified\n\n# no line\n2\t0/7000000\tx\n";
        let found = parse_history(text).unwrap();
        assert_eq!(found, [(1, Lsn(0x500_0000)), (2, Lsn(0x700_0000))]);
        let facts = PostgresFacts {
            segment_size_bytes: SIZE,
            ..PostgresFacts::default()
        };
        let way = timelines_between(&found, 1, 4, &facts).unwrap();
        assert_eq!(way, [(1, Some(5)), (2, Some(7)), (4, None)]);
        let way = timelines_between(&found, 2, 4, &facts).unwrap();
        assert_eq!(way, [(2, Some(7)), (4, None)]);
        assert_eq!(timelines_between(&found, 3, 4, &facts), None);
        for odd in [
            &b"1"[..],
            b"x 0/1",
            b"1 0",
            b"2 0/1\n1 0/2",
            b"1 0/2\n2 0/1",
            b"\xff",
        ] {
            assert_eq!(parse_history(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn a_name_far_away_is_counted_and_not_listed() {
        let (missing, segments, _) = alone(&[4, 1 << 40], 4);
        assert_eq!((missing.len(), segments), (20, 1));
    }
}
