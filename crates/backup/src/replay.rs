//! The archived log for a server that was restored from a set, and the check that the server
//! replayed all of it.
//!
//! Invariants: a file that cannot be opened, and a segment that was lost, are errors and never the
//! end of the log. How far the server has recovered, by its own log, is compared with the archive:
//! PostgreSQL takes a damaged record for the end of the log, and starts nevertheless.
//!
//! Must not: return files under names that PostgreSQL does not archive.

use strongroom_format::code;
use strongroom_keyring::Opener;
use strongroom_postgres_replication::Lsn;

use crate::continuity::LogCheck;
use crate::head::{Description, PostgresFacts};
use crate::log_names::parse_segment_name;
use crate::partial_segment::wal_partial;
use crate::segment;
use crate::store::Store;
use crate::wal::wal_fetch;
use crate::{Error, Result};

/// The line of a server's log that says how far it has replayed (`PerformWalRecovery`,
/// `src/backend/access/transam/xlogrecovery.c`; the same in PostgreSQL 15 to 18).
const REDO_DONE: &str = "redo done at ";
/// The line after it: when the last transaction ended, by the server's clock.
const LAST_TRANSACTION: &str = "last completed transaction was at log time ";

/// The log archive of a medium, for the recovery of one set.
pub struct ArchivedLog<'a> {
    store: &'a dyn Store,
    opener: Option<&'a Opener>,
    facts: PostgresFacts,
    /// Whether the newest timeline of the archive comes from the set's.
    latest: bool,
    /// The archived segments that recovery asks for, in order.
    wanted: Vec<String>,
}

impl std::fmt::Debug for ArchivedLog<'_> {
    /// Shows the number of segments only, and nothing secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ArchivedLog({} segments)", self.wanted.len())
    }
}

/// How far a server has recovered, by its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Where the last record begins that was replayed.
    pub lsn: Lsn,
    /// When the last transaction ended, as the server prints it. `None`: the log has none.
    pub time: Option<String>,
}

impl<'a> ArchivedLog<'a> {
    /// The archive on `store` for the set of `description`; `check` is the result of
    /// [`crate::check_log`]. `None` when the set is not of a PostgreSQL server, or when nothing is
    /// archived.
    ///
    /// # Errors
    /// SR-5001, or SR-7141 to SR-7143 for an object store, when the store fails.
    pub fn of_set(
        store: &'a dyn Store,
        description: &Description,
        check: Option<&LogCheck>,
        opener: Option<&'a Opener>,
    ) -> Result<Option<Self>> {
        let Some(facts) = description.postgres.clone() else {
            return Ok(None);
        };
        let listed = store.list("wal");
        let listed = listed.map_err(|error| Error::io(store.shown(), error))?;
        if listed.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self {
            store,
            opener,
            facts,
            latest: check.is_none_or(LogCheck::follows_newest),
            wanted: check.map(|check| check.wanted.clone()).unwrap_or_default(),
        }))
    }

    /// The value of `recovery_target_timeline`. A server refuses `latest` if the newest timeline of
    /// the archive does not come from that of the set.
    #[must_use]
    pub fn target_timeline(&self) -> &'static str {
        if self.latest { "latest" } else { "current" }
    }

    /// Fetches the file that recovery asks for; of an incomplete segment what was received, with
    /// zeros after it. `None` when the archive does not have it: recovery then ends, or uses the
    /// set's own file.
    ///
    /// # Errors
    /// As [`wal_fetch`] and [`wal_partial`], except SR-7121. SR-7130 when the archive has later
    /// segments and the set does not have this one.
    pub fn fetch(&self, name: &str) -> Result<Option<Vec<u8>>> {
        match wal_fetch(self.store, name, self.opener) {
            Ok(content) => return Ok(Some(content)),
            // The set itself has this segment; the archive need not have it.
            Err(error) if error.code() == &code::WAL_GAP && self.end_within(name).is_some() => {
                return Ok(None);
            }
            Err(error) if error.code() != &code::WAL_ABSENT => return Err(error),
            Err(_) => {}
        }
        let partial = wal_partial(self.store, name, self.opener)?;
        let partial = partial.filter(|partial| {
            // The set may have more of its last segment than a receiver has archived.
            let needed = self.end_within(name).unwrap_or(0);
            partial.received as u64 >= needed
        });
        Ok(partial.map(|partial| partial.content))
    }

    /// How many bytes of the segment `name`, from its beginning, the set has; `None` when it has
    /// none of them.
    fn end_within(&self, name: &str) -> Option<u64> {
        let (timeline, number) = parse_segment_name(name)?;
        let size = self.facts.segment_size_bytes;
        let begins = (number & 0xffff_ffff).checked_mul(size)?;
        let begins = begins.checked_add(number & !0xffff_ffff)?;
        let of_set: Lsn = self.facts.start_lsn.parse().ok()?;
        let end: Lsn = self.facts.end_lsn.parse().ok()?;
        let brought = timeline == u64::from(self.facts.end_timeline)
            && begins.checked_add(size)? > of_set.0
            && begins < end.0;
        brought.then(|| end.0.saturating_sub(begins).min(size))
    }

    /// Compares how far a server has recovered, by its log `said`, with the last record of the
    /// archive.
    ///
    /// # Errors
    /// SR-7175 when it stopped before that, or its log does not say how far it came; as
    /// [`wal_fetch`].
    pub fn check_replayed(&self, said: &str) -> Result<Replayed> {
        let short = |detail: String| Error::new(&code::LOG_NOT_REPLAYED, detail);
        let replayed = parse_replayed(said);
        let replayed = replayed.ok_or_else(|| {
            short(String::from(
                "the server does not say how far it has replayed the log",
            ))
        })?;
        let Some((name, last)) = self.last_record()? else {
            return Ok(replayed);
        };
        if replayed.lsn < last {
            let why = parse_reason(said)
                .map(|why| format!(" ({why})"))
                .unwrap_or_default();
            let detail = format!(
                "the server stopped after {}{why}; the last record of the archive, in {name}, is at {last}",
                replayed.lsn
            );
            return Err(short(detail));
        }
        Ok(replayed)
    }

    /// The position of the last complete record in the archived segments that recovery asks for,
    /// and the name of its segment. `None` when there is none. Errors of [`wal_fetch`].
    fn last_record(&self) -> Result<Option<(&str, Lsn)>> {
        // The last segment may hold nothing but the middle of one record.
        for name in self.wanted.iter().rev() {
            let content = wal_fetch(self.store, name, self.opener)?;
            if let Some(at) = segment::last_record(&content) {
                return Ok(Some((name, Lsn(at))));
            }
        }
        Ok(None)
    }
}

/// How far the server has replayed, from its log; `None` when the log does not say so.
fn parse_replayed(said: &str) -> Option<Replayed> {
    let after = |words: &str| {
        let mut lines = said.lines().rev();
        lines.find_map(|line| {
            line.split_once(words)
                .map(|(_, rest)| rest.trim().to_owned())
        })
    };
    let done = after(REDO_DONE)?;
    Some(Replayed {
        lsn: done.split_whitespace().next()?.parse().ok()?,
        time: after(LAST_TRANSACTION),
    })
}

/// The last message before the end of recovery, which says why the server took the log to end
/// there. `None` when the server's log has none.
fn parse_reason(said: &str) -> Option<&str> {
    let before = said.rsplit_once(REDO_DONE)?.0;
    let mut lines = before.lines().rev().skip(1);
    let line = lines.find(|line| !line.contains("restored log file"))?;
    line.split_once("LOG:").map(|(_, why)| why.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_words_tell_how_far_it_came() {
        let said = "\
2026-11-25 01:00:00 UTC [1] LOG:  restored log file \"000000010000000000000003\" from archive
2026-11-25 01:00:00 UTC [1] LOG:  invalid record length at 0/4000060: expected at least 24, got 0
2026-11-25 01:00:00 UTC [1] LOG:  redo done at 0/4000028 system usage: CPU: user: 0.00 s
2026-11-25 01:00:00 UTC [1] LOG:  last completed transaction was at log time 2026-11-25 00:59:58.1+00
2026-11-25 01:00:00 UTC [1] LOG:  selected new timeline ID: 2
";
        let found = parse_replayed(said).unwrap();
        assert_eq!(found.lsn, Lsn(0x400_0028));
        assert_eq!(found.time.as_deref(), Some("2026-11-25 00:59:58.1+00"));
        assert_eq!(
            parse_reason(said),
            Some("invalid record length at 0/4000060: expected at least 24, got 0")
        );
        assert_eq!(parse_replayed("LOG:  redo is not required"), None);
    }
}
