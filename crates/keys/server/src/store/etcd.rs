//! The store in etcd 3.4 or newer, by its JSON gateway: several key servers over one replicated store.
//!
//! A record is the key `strongroom/SERVER-ID/r/PATH`, a row of the audit log `.../a/NUMBER` in twenty digits, and `.../last`
//! holds the number of the last row. A commit is one transaction: it compares the modification revision of every guarded key,
//! that `last` is the number before the first new row, and that there is no such row; then it writes everything at once.
//!
//! Invariants: as for every store. S1 and S2 by the transaction, which a majority has on disk before it is answered; S3 because
//! every read is linearizable: a member that has lost the others answers none; S4 because a row is only ever written where
//! none is, and rows are removed from the first one on. E1: a transaction whose answer was lost is
//! sent again, and can happen once only, because it moves `last`; whose row stands under its number
//! afterwards says which of them happened.
//!
//! Must not: use a serializable read, or a connection without TLS to another host.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_keyring::Error;

use super::etcd_link::{Fault, Member, members};
use super::{Append, Change, Guard, Outcome, Room, Store, Stored, end_of, last_stays};
use crate::config::Config;

/// The longest time for a call that can be configured, in seconds.
const TOTAL_MAX_S: u64 = 600;
/// Time for one request to one member.
const REQUEST: Duration = Duration::from_secs(5);
/// Pause after every member was asked.
const PAUSE: Duration = Duration::from_millis(150);
/// Records of the first request for a list; more when they are small.
const PAGE: usize = 32;
const PAGE_MAX: usize = 1000;
/// A page with fewer bytes than this is followed by a larger one.
const PAGE_SMALL: usize = 256 * 1024;
/// How often a list is begun anew because etcd has dropped the revision it was begun at.
const LIST_TRIES: usize = 5;
/// What etcd says then.
const COMPACTED: &str = "compacted";

/// etcd as a store.
pub struct EtcdStore {
    members: Vec<Member>,
    /// What every key begins with.
    prefix: String,
    /// Time for one call, all members and repetitions.
    total: Duration,
    /// The member that answered last.
    first: AtomicUsize,
}

/// One range of keys and how it was answered.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Range {
    header: Header,
    kvs: Vec<KeyValue>,
    more: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Header {
    revision: String,
}

#[derive(Deserialize)]
struct KeyValue {
    key: String,
    #[serde(default)]
    value: String,
    mod_revision: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Done {
    succeeded: bool,
}

/// `POST /v3/maintenance/status`: sizes in bytes, as text. The quota is told by etcd 3.6 and newer.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    #[serde(rename = "dbSize")]
    db_size: String,
    #[serde(rename = "dbSizeQuota")]
    db_size_quota: String,
}

/// `POST /v3/kv/range`.
#[derive(Serialize)]
struct Ask<'a> {
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    range_end: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<usize>,
    /// The revision of the store that is read; the newest without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<&'a str>,
}

impl EtcdStore {
    /// Reaches the members: `URL,URL...`.
    ///
    /// # Errors
    /// SR-8434; SR-8440 for the files of TLS; SR-8435 when no majority answers.
    pub fn open(config: &Config, urls: &str) -> Result<Self, Error> {
        let total = config.etcd.clone().unwrap_or_default().timeout_seconds;
        if !(1..=TOTAL_MAX_S).contains(&total) {
            let detail = "[etcd] timeout_seconds is 1 to 600";
            return Err(Error::new(&code::SERVER_CONFIG, detail));
        }
        let store = Self {
            total: Duration::from_secs(total),
            members: members(config, urls)?,
            prefix: format!("strongroom/{}/", hex(&config.server_id()?)),
            first: AtomicUsize::new(0),
        };
        store.last()?;
        Ok(store)
    }

    fn record(&self, path: &str) -> String {
        format!("{}r/{path}", self.prefix)
    }

    fn row(&self, n: u64) -> String {
        format!("{}a/{n:020}", self.prefix)
    }

    fn last_key(&self) -> String {
        format!("{}last", self.prefix)
    }

    /// Number of the last row; 0 when there is none.
    fn last(&self) -> Result<u64, Error> {
        let Some(found) = self.one(&self.last_key())? else {
            return Ok(0);
        };
        let text = String::from_utf8(found.value).unwrap_or_default();
        text.parse()
            .map_err(|_| damaged("the number of the last row"))
    }

    fn one(&self, key: &str) -> Result<Option<Stored>, Error> {
        let ask = Ask {
            key: encoded(key),
            range_end: None,
            limit: None,
            revision: None,
        };
        let range: Range = self.read_request(&ask)?;
        match range.kvs.first() {
            None => Ok(None),
            Some(found) => stored(found).map(Some),
        }
    }

    /// At most `limit` keys from `start` to before `end`, as they were at one time.
    fn range(&self, start: &str, end: &str, limit: usize) -> Result<Vec<(String, Stored)>, Error> {
        for _ in 0..LIST_TRIES {
            match self.range_once(start, end, limit) {
                Err(error) if error.detail().contains(COMPACTED) => {}
                other => return other,
            }
        }
        let detail = "etcd: the history is dropped faster than a list is read";
        Err(Error::new(&code::SERVER_STORE, detail))
    }

    fn range_once(
        &self,
        start: &str,
        end: &str,
        limit: usize,
    ) -> Result<Vec<(String, Stored)>, Error> {
        let mut found: Vec<(String, Stored)> = Vec::new();
        let (mut page, mut from) = (PAGE, start.to_owned());
        let mut revision: Option<String> = None;
        while found.len() < limit {
            let ask = Ask {
                key: encoded(&from),
                range_end: Some(encoded(end)),
                limit: Some(page.min(limit - found.len())),
                revision: revision.as_deref(),
            };
            let range: Range = self.read_request(&ask)?;
            let before = found.len();
            let mut size = 0_usize;
            for one in &range.kvs {
                let key = String::from_utf8(decoded(&one.key)?)
                    .map_err(|_| damaged("a key that is not text"))?;
                let value = stored(one)?;
                size = size.saturating_add(value.value.len());
                found.push((key, value));
            }
            if !range.more || found.len() == before {
                break;
            }
            if size < PAGE_SMALL {
                page = page.saturating_mul(2).min(PAGE_MAX);
            } else {
                page = PAGE;
            }
            revision.get_or_insert(range.header.revision);
            if let Some((last, _)) = found.last() {
                from = format!("{last}\0");
            }
        }
        Ok(found)
    }

    fn read_request<T: for<'a> Deserialize<'a>>(&self, ask: &Ask<'_>) -> Result<T, Error> {
        let body = text(ask)?;
        let (answer, _) = self.request("/v3/kv/range", &body)?;
        parsed(&answer)
    }

    /// One request to the members in turn, until one answers it. Also: whether an earlier try may have come to something.
    fn request(&self, path: &str, body: &[u8]) -> Result<(Vec<u8>, bool), Error> {
        let deadline = Instant::now() + self.total;
        let count = self.members.len().max(1);
        let mut at = self.first.load(Ordering::Relaxed);
        let (mut sent, mut asked) = (false, 0_usize);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let member = self.members.get(at % count);
            let Some(member) = member else {
                return Err(Error::new(&code::SERVER_CONFIG, "store: no member of etcd"));
            };
            let fault = match member.post(path, body, REQUEST.min(left.max(PAUSE))) {
                Ok(answer) => {
                    self.first.store(at % count, Ordering::Relaxed);
                    return Ok((answer, sent));
                }
                Err(Fault::Refused(detail)) => {
                    return Err(Error::new(&code::SERVER_STORE, detail));
                }
                Err(Fault::Again { detail, sent: now }) => {
                    sent |= now;
                    detail
                }
            };
            at = at.wrapping_add(1);
            asked = asked.saturating_add(1);
            if left <= PAUSE {
                return Err(Error::new(&code::SERVER_STORE, fault));
            }
            if asked % count == 0 {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// The transaction of a commit.
    fn transaction(&self, guards: &[Guard], changes: &[Change], append: &Append) -> Value {
        let mut compare: Vec<Value> = guards
            .iter()
            .map(|guard| {
                let revision = guard.revision.to_string();
                let key = encoded(&self.record(&guard.path));
                json!({"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision})
            })
            .collect();
        let mut success: Vec<Value> = changes
            .iter()
            .map(|change| match change {
                Change::Put { path, value } => put(&self.record(path), value),
                Change::Delete { path } => {
                    json!({"request_delete_range": {"key": encoded(&self.record(path))}})
                }
            })
            .collect();
        if let Some(last) = last_of(append) {
            let (key, row) = (encoded(&self.last_key()), encoded(&self.row(append.first)));
            compare.push(match append.first.saturating_sub(1) {
                0 => absent(&key),
                before => {
                    let value = encoded(&before.to_string());
                    json!({"key": key, "target": "VALUE", "result": "EQUAL", "value": value})
                }
            });
            compare.push(absent(&row));
            for (n, row) in (append.first..).zip(&append.rows) {
                success.push(put(&self.row(n), row));
            }
            success.push(put(&self.last_key(), last.to_string().as_bytes()));
        }
        json!({"compare": compare, "success": success, "failure": []})
    }

    /// What became of a transaction that was sent more than once and was refused the last time (E1).
    fn settled(&self, append: &Append) -> Result<Outcome, Error> {
        let Some(ours) = append.rows.first() else {
            let detail = "etcd: the answer to a change was lost";
            return Err(Error::new(&code::SERVER_STORE, detail));
        };
        match self.one(&self.row(append.first))? {
            // Rows are sealed with fresh random numbers: no two are the same.
            Some(found) if &found.value == ours => Ok(Outcome::Done),
            _ => Ok(Outcome::Conflict),
        }
    }
}

/// Number of the last of these rows.
fn last_of(append: &Append) -> Option<u64> {
    let more = u64::try_from(append.rows.len()).ok()?.checked_sub(1)?;
    append.first.checked_add(more)
}

fn put(key: &str, value: &[u8]) -> Value {
    json!({"request_put": {"key": encoded(key), "value": STANDARD.encode(value)}})
}

/// A comparison that holds when there is no such key.
fn absent(key: &str) -> Value {
    json!({"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"})
}

fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

fn decoded(text: &str) -> Result<Vec<u8>, Error> {
    STANDARD
        .decode(text)
        .map_err(|_| damaged("an answer that is not base64"))
}

fn stored(found: &KeyValue) -> Result<Stored, Error> {
    let revision = found.mod_revision.parse().unwrap_or(0);
    if revision == 0 {
        return Err(damaged("a revision"));
    }
    let value = decoded(&found.value)?;
    Ok(Stored { value, revision })
}

fn damaged(what: &str) -> Error {
    Error::new(&code::SERVER_STORE, format!("etcd: {what}"))
}

fn text(value: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(value).map_err(|error| Error::new(&code::BUG, error.to_string()))
}

fn parsed<T: for<'a> Deserialize<'a>>(answer: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(answer).map_err(|_| damaged("an answer that is not its own"))
}

impl Store for EtcdStore {
    fn read(&self, path: &str) -> Result<Option<Stored>, Error> {
        self.one(&self.record(path))
    }

    fn list(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, Stored)>, Error> {
        let start = match after < prefix {
            true => self.record(prefix),
            false => format!("{}\0", self.record(after)),
        };
        let all = self.record("");
        let found = self.range(&start, &self.record(&end_of(prefix)), limit)?;
        let path = |key: String| key.strip_prefix(&all).map(str::to_owned);
        Ok(found
            .into_iter()
            .filter_map(|(key, value)| Some((path(key)?, value)))
            .collect())
    }

    fn commit(
        &self,
        guards: &[Guard],
        changes: &[Change],
        append: &Append,
    ) -> Result<Outcome, Error> {
        let body = text(&self.transaction(guards, changes, append))?;
        let (answer, sent_before) = self.request("/v3/kv/txn", &body)?;
        let done: Done = parsed(&answer)?;
        match (done.succeeded, sent_before) {
            (true, _) => Ok(Outcome::Done),
            (false, false) => Ok(Outcome::Conflict),
            (false, true) => self.settled(append),
        }
    }

    fn last_row(&self) -> Result<Option<(u64, Vec<u8>)>, Error> {
        match self.last()? {
            0 => Ok(None),
            n => match self.one(&self.row(n))? {
                Some(row) => Ok(Some((n, row.value))),
                None => Err(damaged("the last row of the audit log is not there")),
            },
        }
    }

    fn rows(&self, after: u64, limit: usize) -> Result<Vec<(u64, Vec<u8>)>, Error> {
        let start = self.row(after.saturating_add(1));
        let before = format!("{}a/", self.prefix);
        let found = self.range(&start, &format!("{}a0", self.prefix), limit)?;
        found
            .into_iter()
            .map(|(key, row)| {
                let number = key.strip_prefix(&before).and_then(|text| text.parse().ok());
                let n: u64 = number.ok_or_else(|| damaged("the number of a row"))?;
                Ok((n, row.value))
            })
            .collect()
    }

    fn forget_rows(&self, through: u64, limit: u64) -> Result<u64, Error> {
        if through >= self.last()? {
            return Err(last_stays());
        }
        let first = match self.rows(0, 1)?.first() {
            Some((n, _)) if *n <= through => *n,
            _ => return Ok(0),
        };
        let to = first.saturating_add(limit).saturating_sub(1).min(through);
        let (from, end) = (self.row(first), self.row(to.saturating_add(1)));
        let body = text(&json!({"key": encoded(&from), "range_end": encoded(&end)}))?;
        // Removing what is removed already changes nothing, so it does not matter how often it
        // arrives.
        self.request("/v3/kv/deleterange", &body)?;
        Ok(to.saturating_sub(first).saturating_add(1))
    }

    /// The size that etcd compares with its quota is that of the first member that answers.
    fn room(&self) -> Result<Room, Error> {
        let (answer, _) = self.request("/v3/maintenance/status", b"{}")?;
        let status: Status = parsed(&answer)?;
        Ok(Room {
            used: status.db_size.parse().unwrap_or(0),
            limit: status.db_size_quota.parse().ok().filter(|quota| *quota > 0),
            free: None,
        })
    }

    /// Drops the history before now. The space that it had is given back, and overwritten, only when etcd's members are
    /// defragmented, and their logs and snapshots keep it for a while: docs/guides/keyserver-etcd.md.
    fn scrub(&self) -> Result<(), Error> {
        let ask = Ask {
            key: encoded(&self.last_key()),
            range_end: None,
            limit: None,
            revision: None,
        };
        let range: Range = self.read_request(&ask)?;
        let body = text(&json!({"revision": range.header.revision, "physical": true}))?;
        match self.request("/v3/kv/compaction", &body) {
            // Another server was there first.
            Err(error) if error.detail().contains(COMPACTED) => Ok(()),
            other => other.map(drop),
        }
    }
}
