//! The store in etcd 3.4 or newer, through its JSON gateway: several key servers on one replicated
//! store.
//!
//! A record is the key `strongroom/SERVER-ID/r/PATH`, and a row of the audit log is `.../a/NUMBER`
//! with twenty digits. `.../last` holds the number of the last row. A commit is one transaction. It
//! compares the modification revision of every guarded key, and checks that `last` is the number
//! before the first new row and that this row does not exist. Then it writes everything at once.
//!
//! Invariants: those of [`Store`].
//! - S1 and S2 hold because of the transaction, which a majority has on disk before etcd responds.
//! - S3 holds because every read is linearizable: a member that has lost the others does not
//!   respond.
//! - S4 holds because a row is only written where there is none, and rows are removed from the
//!   first one on.
//! - E1: A transaction whose response was lost is sent again. It takes effect at most once, because
//!   it changes `last`. The row at its number afterwards says whether it did.
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

use super::etcd_client::{Member, RequestError, members};
use super::interface::{
    Append, Change, Guard, Outcome, Store, StoreSpace, Stored, last_row_stays, prefix_end,
};
use crate::config::Config;

/// The longest configurable time for a call, in seconds.
const TOTAL_MAX_S: u64 = 600;
/// The time for one request to one member.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after a request to each member has failed.
const PAUSE: Duration = Duration::from_millis(150);
/// Keys in the first page of a range, and the most keys of a page. Pages grow while they are small.
const PAGE: usize = 32;
const PAGE_MAX: usize = 1000;
/// A page with fewer bytes is followed by one with more keys.
const PAGE_SMALL: usize = 256 * 1024;
/// How often a range is read again because etcd compacted the revision at which reading began.
const LIST_TRIES: usize = 5;
/// A part of etcd's message in that case.
const COMPACTED: &str = "compacted";

/// etcd as a store.
pub struct EtcdStore {
    members: Vec<Member>,
    /// The prefix of every key.
    prefix: String,
    /// The time for one call, with all members and repetitions.
    total: Duration,
    /// The index of the member that responded last.
    preferred: AtomicUsize,
}

/// The response to a range request.
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
struct TransactionResponse {
    succeeded: bool,
}

/// The response of `POST /v3/maintenance/status`. Sizes in bytes, as text. etcd 3.6 and newer
/// report the quota.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    #[serde(rename = "dbSize")]
    db_size: String,
    #[serde(rename = "dbSizeQuota")]
    db_size_quota: String,
}

impl Status {
    /// Returns size and quota. SR-8435 for a size that is not a number: counted as 0, it would keep
    /// the alarm of a full store from being raised.
    fn space(&self) -> Result<StoreSpace, Error> {
        Ok(StoreSpace {
            used_bytes: parse_bytes(&self.db_size)?.unwrap_or(0),
            limit_bytes: parse_bytes(&self.db_size_quota)?.filter(|quota| *quota > 0),
            free_bytes: None,
        })
    }
}

/// Parses a number of bytes; `None` for an empty text, because etcd leaves out what is 0 or not
/// known. SR-8435 for any other text.
fn parse_bytes(text: &str) -> Result<Option<u64>, Error> {
    match text {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| damaged("a size")),
    }
}

/// The request `POST /v3/kv/range`.
#[derive(Serialize)]
struct RangeRequest<'a> {
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    range_end: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<usize>,
    /// The revision of the store that is read; without it, the newest.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<&'a str>,
}

impl EtcdStore {
    /// Prepares the members, `URL,URL...`, and reads the number of the last row as a test that they
    /// respond.
    ///
    /// # Errors
    /// SR-8434 when `[etcd]` or `urls` is not valid; SR-8440 for the TLS files; SR-8435 when no
    /// majority responds within the configured time.
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
            preferred: AtomicUsize::new(0),
        };
        store.last_number()?;
        Ok(store)
    }

    /// Returns the etcd key of the record at a path.
    fn record_key(&self, path: &str) -> String {
        format!("{}r/{path}", self.prefix)
    }

    /// Returns the etcd key of row `n` of the audit log.
    fn row_key(&self, n: u64) -> String {
        format!("{}a/{n:020}", self.prefix)
    }

    /// Returns the etcd key that holds the number of the last row.
    fn last_key(&self) -> String {
        format!("{}last", self.prefix)
    }

    /// Reads the number of the last row; 0 when there is none. SR-8435 if it is not a number.
    fn last_number(&self) -> Result<u64, Error> {
        let Some(found) = self.read_one(&self.last_key())? else {
            return Ok(0);
        };
        let text = String::from_utf8(found.value).unwrap_or_default();
        text.parse()
            .map_err(|_| damaged("the number of the last row"))
    }

    /// Reads one etcd key. `None` when it does not exist. SR-8435 when etcd does not answer or
    /// refuses.
    fn read_one(&self, key: &str) -> Result<Option<Stored>, Error> {
        let request = RangeRequest {
            key: encode(key),
            range_end: None,
            limit: None,
            revision: None,
        };
        let range: Range = self.range_request(&request)?;
        match range.kvs.first() {
            None => Ok(None),
            Some(found) => to_stored(found).map(Some),
        }
    }

    /// Reads at most `limit` keys from `start` to before `end`, in order and all at one revision.
    /// SR-8435, also if etcd compacts its history faster than the range is read, five times in a
    /// row.
    fn read_range(
        &self,
        start: &str,
        end: &str,
        limit: usize,
    ) -> Result<Vec<(String, Stored)>, Error> {
        for _ in 0..LIST_TRIES {
            match self.try_read_range(start, end, limit) {
                Err(error) if error.detail().contains(COMPACTED) => {}
                other => return other,
            }
        }
        let detail = "etcd: the history is dropped faster than a list is read";
        Err(Error::new(&code::SERVER_STORE, detail))
    }

    /// Reads the range once, page by page, at the revision of its first page. SR-8435 when no
    /// majority responds or a value is damaged; the detail has `COMPACTED` if etcd dropped that
    /// revision meanwhile.
    fn try_read_range(
        &self,
        start: &str,
        end: &str,
        limit: usize,
    ) -> Result<Vec<(String, Stored)>, Error> {
        let mut found: Vec<(String, Stored)> = Vec::new();
        let (mut page, mut from) = (PAGE, start.to_owned());
        let mut revision: Option<String> = None;
        while found.len() < limit {
            let request = RangeRequest {
                key: encode(&from),
                range_end: Some(encode(end)),
                limit: Some(page.min(limit - found.len())),
                revision: revision.as_deref(),
            };
            let range: Range = self.range_request(&request)?;
            let before = found.len();
            let mut size = 0_usize;
            for one in &range.kvs {
                let key = String::from_utf8(decode(&one.key)?)
                    .map_err(|_| damaged("a key that is not text"))?;
                let value = to_stored(one)?;
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

    /// Sends a range request and parses the response. SR-8435 when etcd does not answer or refuses.
    fn range_request<T: for<'a> Deserialize<'a>>(
        &self,
        request: &RangeRequest<'_>,
    ) -> Result<T, Error> {
        let body = to_json(request)?;
        let (response, _) = self.request("/v3/kv/range", &body)?;
        parse(&response)
    }

    /// Sends a request to the members in turn, beginning with the one that responded last, until
    /// one accepts it or the time is over. Pauses after each turn. Returns the response, and
    /// whether an earlier try may have taken effect. SR-8435 when a member refuses the request or
    /// the time is over.
    fn request(&self, path: &str, body: &[u8]) -> Result<(Vec<u8>, bool), Error> {
        let deadline = Instant::now() + self.total;
        let count = self.members.len().max(1);
        let mut at = self.preferred.load(Ordering::Relaxed);
        let (mut sent, mut tries) = (false, 0_usize);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let member = self.members.get(at % count);
            let Some(member) = member else {
                return Err(Error::new(&code::SERVER_CONFIG, "store: no member of etcd"));
            };
            let detail = match member.post(path, body, REQUEST_TIMEOUT.min(left.max(PAUSE))) {
                Ok(response) => {
                    self.preferred.store(at % count, Ordering::Relaxed);
                    return Ok((response, sent));
                }
                Err(RequestError::Refused(detail)) => {
                    return Err(Error::new(&code::SERVER_STORE, detail));
                }
                Err(RequestError::Retryable { detail, sent: now }) => {
                    sent |= now;
                    detail
                }
            };
            at = at.wrapping_add(1);
            tries = tries.saturating_add(1);
            if left <= PAUSE {
                return Err(Error::new(&code::SERVER_STORE, detail));
            }
            if tries % count == 0 {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Builds the JSON of a commit's transaction: it compares the guards and the number of the last
    /// row, and then writes changes, rows and the new number.
    fn transaction(&self, guards: &[Guard], changes: &[Change], append: &Append) -> Value {
        let mut compare: Vec<Value> = guards
            .iter()
            .map(|guard| {
                let revision = guard.revision.to_string();
                let key = encode(&self.record_key(&guard.path));
                json!({"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision})
            })
            .collect();
        let mut success: Vec<Value> = changes
            .iter()
            .map(|change| match change {
                Change::Put { path, value } => put_request(&self.record_key(path), value),
                Change::Delete { path } => {
                    json!({"request_delete_range": {"key": encode(&self.record_key(path))}})
                }
            })
            .collect();
        if let Some(last) = last_appended(append) {
            let (key, row) = (
                encode(&self.last_key()),
                encode(&self.row_key(append.first)),
            );
            compare.push(match append.first.saturating_sub(1) {
                0 => is_absent(&key),
                before => {
                    let value = encode(&before.to_string());
                    json!({"key": key, "target": "VALUE", "result": "EQUAL", "value": value})
                }
            });
            compare.push(is_absent(&row));
            for (n, row) in (append.first..).zip(&append.rows) {
                success.push(put_request(&self.row_key(n), row));
            }
            success.push(put_request(&self.last_key(), last.to_string().as_bytes()));
        }
        json!({"compare": compare, "success": success, "failure": []})
    }

    /// Finds out whether a transaction took effect that was sent more than once and failed the last
    /// time (E1): it did if its first row is at its number. SR-8435 if it had no rows, so that this
    /// is unknown.
    fn outcome_after_retry(&self, append: &Append) -> Result<Outcome, Error> {
        let Some(ours) = append.rows.first() else {
            let detail = "etcd: the answer to a change was lost";
            return Err(Error::new(&code::SERVER_STORE, detail));
        };
        match self.read_one(&self.row_key(append.first))? {
            // Rows are sealed with random nonces, so that no two are equal.
            Some(found) if &found.value == ours => Ok(Outcome::Done),
            _ => Ok(Outcome::Conflict),
        }
    }
}

/// Returns the number of the last appended row; `None` when no row is appended.
fn last_appended(append: &Append) -> Option<u64> {
    let more = u64::try_from(append.rows.len()).ok()?.checked_sub(1)?;
    append.first.checked_add(more)
}

/// Builds the part of a transaction that writes a key.
fn put_request(key: &str, value: &[u8]) -> Value {
    json!({"request_put": {"key": encode(key), "value": STANDARD.encode(value)}})
}

/// Builds a comparison that holds when the key, in base64, does not exist.
fn is_absent(key: &str) -> Value {
    json!({"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"})
}

/// Encodes text in base64, as etcd's JSON has keys and values.
fn encode(text: &str) -> String {
    STANDARD.encode(text)
}

/// Decodes base64. SR-8435 if it is malformed.
fn decode(text: &str) -> Result<Vec<u8>, Error> {
    STANDARD
        .decode(text)
        .map_err(|_| damaged("an answer that is not base64"))
}

/// Converts a key of a response into a value with its revision. SR-8435 if one of them is
/// malformed.
fn to_stored(found: &KeyValue) -> Result<Stored, Error> {
    let revision = found.mod_revision.parse().unwrap_or(0);
    if revision == 0 {
        return Err(damaged("a revision"));
    }
    let value = decode(&found.value)?;
    Ok(Stored { value, revision })
}

/// Makes the error for content or a response of etcd that cannot be used (SR-8435).
fn damaged(what: &str) -> Error {
    Error::new(&code::SERVER_STORE, format!("etcd: {what}"))
}

/// Writes a request as JSON. SR-9001 if that fails.
fn to_json(value: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(value).map_err(|error| Error::new(&code::BUG, error.to_string()))
}

/// Parses a response. SR-8435 if it has another form. Its text is not in the error.
fn parse<T: for<'a> Deserialize<'a>>(response: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(response).map_err(|_| damaged("an answer that is not its own"))
}

impl Store for EtcdStore {
    /// Reads the record at `path` from a majority of the members; `None` when there is none.
    /// SR-8435 when etcd does not answer or refuses.
    fn read(&self, path: &str) -> Result<Option<Stored>, Error> {
        self.read_one(&self.record_key(path))
    }

    /// Reads at most `limit` records whose path begins with `prefix` and is greater than `after`,
    /// in order and all at one revision. SR-8435 when etcd does not answer or refuses.
    fn list(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, Stored)>, Error> {
        let start = match after < prefix {
            true => self.record_key(prefix),
            false => format!("{}\0", self.record_key(after)),
        };
        let all = self.record_key("");
        let found = self.read_range(&start, &self.record_key(&prefix_end(prefix)), limit)?;
        let path = |key: String| key.strip_prefix(&all).map(str::to_owned);
        Ok(found
            .into_iter()
            .filter_map(|(key, value)| Some((path(key)?, value)))
            .collect())
    }

    /// Commits in one transaction of etcd. [`Outcome::Conflict`], without an effect, if a guard
    /// does not hold or the rows do not follow the last row. After SR-8435 it is unknown whether it
    /// took effect.
    fn commit(
        &self,
        guards: &[Guard],
        changes: &[Change],
        append: &Append,
    ) -> Result<Outcome, Error> {
        let body = to_json(&self.transaction(guards, changes, append))?;
        let (response, sent_before) = self.request("/v3/kv/txn", &body)?;
        let done: TransactionResponse = parse(&response)?;
        match (done.succeeded, sent_before) {
            (true, _) => Ok(Outcome::Done),
            (false, false) => Ok(Outcome::Conflict),
            (false, true) => self.outcome_after_retry(append),
        }
    }

    /// Reads the number of the last row and the sealed row; `None` when the log is empty. SR-8435,
    /// also when the row with that number is missing.
    fn last_row(&self) -> Result<Option<(u64, Vec<u8>)>, Error> {
        match self.last_number()? {
            0 => Ok(None),
            n => match self.read_one(&self.row_key(n))? {
                Some(row) => Ok(Some((n, row.value))),
                None => Err(damaged("the last row of the audit log is not there")),
            },
        }
    }

    /// Reads at most `limit` sealed rows with numbers greater than `after`, in order. SR-8435 when
    /// etcd does not answer or refuses.
    fn rows(&self, after: u64, limit: usize) -> Result<Vec<(u64, Vec<u8>)>, Error> {
        let start = self.row_key(after.saturating_add(1));
        let before = format!("{}a/", self.prefix);
        let found = self.read_range(&start, &format!("{}a0", self.prefix), limit)?;
        found
            .into_iter()
            .map(|(key, row)| {
                let number = key.strip_prefix(&before).and_then(|text| text.parse().ok());
                let n: u64 = number.ok_or_else(|| damaged("the number of a row"))?;
                Ok((n, row.value))
            })
            .collect()
    }

    /// Deletes at most `limit` rows from the first one to `through`, and returns how many these
    /// are, by their numbers; 0 when there are none. SR-9001 when `through` is the last row or
    /// beyond; SR-8435 when etcd does not answer or refuses.
    fn forget_rows(&self, through: u64, limit: u64) -> Result<u64, Error> {
        if through >= self.last_number()? {
            return Err(last_row_stays());
        }
        let first = match self.rows(0, 1)?.first() {
            Some((n, _)) if *n <= through => *n,
            _ => return Ok(0),
        };
        let to = first.saturating_add(limit).saturating_sub(1).min(through);
        let (from, end) = (self.row_key(first), self.row_key(to.saturating_add(1)));
        let body = to_json(&json!({"key": encode(&from), "range_end": encode(&end)}))?;
        // Deleting rows again has no effect, so the request may be repeated.
        self.request("/v3/kv/deleterange", &body)?;
        Ok(to.saturating_sub(first).saturating_add(1))
    }

    /// Returns the size and the quota of the first member that responds; each member compares its
    /// own size with the quota. The quota is `None` if etcd does not report it. SR-8435 when etcd
    /// does not answer or refuses, or its response has a size that is not a number.
    fn space(&self) -> Result<StoreSpace, Error> {
        let (response, _) = self.request("/v3/maintenance/status", b"{}")?;
        parse::<Status>(&response)?.space()
    }

    /// Compacts the history of etcd. etcd frees and overwrites its space only when the members are
    /// defragmented, and their logs and snapshots keep it for a while
    /// (docs/guides/keyserver-etcd.md). A history that another server has compacted is no error.
    /// SR-8435 when etcd does not answer or refuses.
    fn scrub(&self) -> Result<(), Error> {
        let request = RangeRequest {
            key: encode(&self.last_key()),
            range_end: None,
            limit: None,
            revision: None,
        };
        let range: Range = self.range_request(&request)?;
        let body = to_json(&json!({"revision": range.header.revision, "physical": true}))?;
        match self.request("/v3/kv/compaction", &body) {
            // Another server compacted it first.
            Err(error) if error.detail().contains(COMPACTED) => Ok(()),
            other => other.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(response: &str) -> Option<(u64, Option<u64>)> {
        let status: Status = parse(response.as_bytes()).ok()?;
        let space = status.space().ok()?;
        Some((space.used_bytes, space.limit_bytes))
    }

    #[test]
    fn a_size_that_is_no_number_is_an_error_and_not_an_empty_store() {
        let both = r#"{"dbSize":"20480","dbSizeQuota":"2147483648"}"#;
        assert_eq!(space(both), Some((20480, Some(2_147_483_648))));
        // What is 0, or not known to this version of etcd, is left out.
        assert_eq!(space("{}"), Some((0, None)));
        assert_eq!(
            space(r#"{"dbSize":"1","dbSizeQuota":"0"}"#),
            Some((1, None))
        );
        for wrong in [
            r#"{"dbSize":"20 kB"}"#,
            r#"{"dbSize":"-1"}"#,
            r#"{"dbSize":"99999999999999999999"}"#,
            r#"{"dbSize":"1","dbSiz"#,
            r#"{"dbSize":"1","dbSizeQuota":"much"}"#,
        ] {
            assert_eq!(space(wrong), None, "{wrong}");
        }
    }
}
