//! Parses the history of a timeline, as PostgreSQL writes it.

use strongroom_postgres_replication::Lsn;

/// Parses a timeline's history: the earlier timelines, each with the position at which it was left,
/// from lines with timeline, position and reason (PostgreSQL: `readTimeLineHistory`,
/// `src/backend/access/transam/timeline.c`). `None` when it is malformed or not in rising order.
pub(crate) fn parse_history(content: &[u8]) -> Option<Vec<(u64, Lsn)>> {
    let text = std::str::from_utf8(content).ok()?;
    let mut found: Vec<(u64, Lsn)> = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(timeline) = words.next() else {
            continue;
        };
        let (timeline, end) = (timeline.parse().ok()?, words.next()?.parse().ok()?);
        let rising = found
            .last()
            .is_none_or(|(before, at): &(u64, Lsn)| *before < timeline && *at <= end);
        if !rising {
            return None;
        }
        found.push((timeline, end));
    }
    Some(found)
}
