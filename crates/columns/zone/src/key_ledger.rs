//! The ledgers of column keys: what the zone has told under each key, to whom, over all sessions
//! and starts, and how much it may tell.
//!
//! Invariant A8: what is durable counts at least as much of a limit as was given, so that a zone
//! that is killed gives nothing twice. Must not: hold a value, or anything that reveals one; decide
//! without the caller's clock.

use std::collections::BTreeMap;
use std::sync::Arc;

use strongroom_columns_ring::Fault;
use strongroom_format::columns::channel::{LIMITLESS, Limit};
use strongroom_format::columns::manifest::{Asker, LedgerEntry, LedgerLine};
use strongroom_format::hex::hex;

use crate::clock::now;

/// The id of a column key.
type KeyId = [u8; 16];

/// The most lines of one key's ledger, those of others and without a session included. Clients of
/// further names share one.
const LINES_MAX: usize = 64;

/// The most keys without a column that have a ledger. Whoever brings keys of their own cannot fill
/// the memory.
const UNBOUND_MAX: usize = 1024;

/// Into how many parts a limit is divided: so much of it is counted as given in advance each time
/// that the counts are made durable, and may be lost if the zone is killed.
const PARTS: u64 = 16;

/// What an operation has told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Truths given.
    pub truths: u64,
    /// Answers that showed whether a computation has failed.
    pub checks: u64,
    /// Values sealed for a client, or given in clear.
    pub outputs: u64,
    /// Values given in clear.
    pub declassified: u64,
}

impl Told {
    /// Answers alone.
    #[must_use]
    pub const fn truths(count: u64) -> Self {
        Self {
            truths: count,
            checks: 0,
            outputs: 0,
            declassified: 0,
        }
    }

    /// Adds `more`, each count up to the highest value.
    pub(crate) const fn add(&mut self, more: Self) {
        self.truths = self.truths.saturating_add(more.truths);
        self.checks = self.checks.saturating_add(more.checks);
        self.outputs = self.outputs.saturating_add(more.outputs);
        self.declassified = self.declassified.saturating_add(more.declassified);
    }

    /// How many answers it has: truths and checks share a limit.
    const fn answers(self) -> u64 {
        self.truths.saturating_add(self.checks)
    }
}

/// Whom the zone tells.
#[derive(Clone, Copy, Debug)]
pub enum To<'a> {
    /// A session whose client has this name.
    Session(&'a Arc<str>),
    /// The server, without a session.
    NoSession,
}

/// What the clients of one name were told.
struct Line {
    asker: Asker<Arc<str>>,
    seen: u64,
    told: Told,
}

/// What was given in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spent {
    answers: u64,
    outputs: u64,
}

/// One key's.
struct KeyLedger {
    lines: Vec<Line>,
    period: u64,
    truths: u64,
    outputs: u64,
    begun: u64,
    spent: Spent,
    /// What the last durable manifest counts as spent.
    durable: Spent,
    /// What the next manifest shall count as spent.
    reserved: Spent,
    /// What the manifest that is being published counts as spent of this period.
    published: Option<Spent>,
}

/// The ledgers of all column keys.
#[derive(Default)]
pub struct KeyLedgers(BTreeMap<KeyId, KeyLedger>);

/// What a client may ask of the ledgers of its keys.
pub trait LedgerBook {
    /// The ledgers of these keys as a JSON list.
    fn to_json(&self, keys: &[KeyId]) -> String;

    /// Sets the limit of a key.
    ///
    /// # Errors
    /// [`Fault::OutOfMemory`] if too many keys have ledgers; faults of making it durable.
    fn set_limit(&mut self, limit: &Limit) -> Result<(), Fault>;

    /// Notes that a client of this name has opened or renewed a session with these keys.
    fn note_session(&mut self, keys: &[KeyId], name: &Arc<str>);
}

impl KeyLedgers {
    /// Checks that so many truths may still be given under these keys at `now`, seconds since 1970.
    ///
    /// # Errors
    /// [`Fault::BudgetSpent`] if one of the keys does not have as many left.
    pub fn check<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a KeyId>,
        truths: u64,
        now: impl Fn() -> u64,
    ) -> Result<(), Fault> {
        for ledger in keys.into_iter().filter_map(|key| self.0.get(key)) {
            let spent = if ledger.truths == LIMITLESS || !ledger.is_over(&now) {
                ledger.spent.answers
            } else {
                0
            };
            if spent.saturating_add(truths) > ledger.truths {
                return Err(Fault::BudgetSpent);
            }
        }
        Ok(())
    }

    /// Adds what is about to be told to the ledgers of these keys, each of which gets all of it.
    /// What is told without a session is counted and not limited. Returns whether the counts have
    /// to be made durable before it is told.
    ///
    /// # Errors
    /// [`Fault::BudgetSpent`] if one of the keys does not have as much left; then nothing may be
    /// told, and nothing was counted.
    pub fn charge(
        &mut self,
        keys: &[KeyId],
        to: To<'_>,
        told: Told,
        now: impl Fn() -> u64,
    ) -> Result<bool, Fault> {
        // Mostly there is one key, which is looked up once.
        if let [key] = keys {
            let Some(ledger) = self.0.get_mut(key) else {
                return Ok(false);
            };
            if matches!(to, To::Session(_)) && !ledger.has_left(told, &now) {
                return Err(Fault::BudgetSpent);
            }
            return Ok(ledger.count(to, told, &now));
        }
        if matches!(to, To::Session(_)) {
            for key in keys {
                if let Some(ledger) = self.0.get_mut(key)
                    && !ledger.has_left(told, &now)
                {
                    return Err(Fault::BudgetSpent);
                }
            }
        }
        let mut undurable = false;
        for key in keys {
            if let Some(ledger) = self.0.get_mut(key) {
                undurable |= ledger.count(to, told, &now);
            }
        }
        Ok(undurable)
    }

    /// Begins to keep a ledger of this key, if there is none: without limit, of zeros.
    pub(crate) fn begin(&mut self, key: KeyId) {
        self.0.entry(key).or_insert_with(KeyLedger::new);
    }

    /// Whether there is a ledger of this key.
    pub(crate) fn has(&self, key: &KeyId) -> bool {
        self.0.contains_key(key)
    }

    /// Notes that a session was opened or renewed at `now`, whose ticket names these keys.
    pub(crate) fn note_session(&mut self, keys: &[KeyId], name: &Arc<str>, now: u64) {
        for key in keys {
            if let Some(ledger) = self.0.get_mut(key) {
                ledger.line(To::Session(name), || now).seen = now;
            }
        }
    }

    /// Sets the limit of a key, and begins a period of it at `now` in which nothing is spent. The
    /// key need not have a column yet.
    ///
    /// # Errors
    /// [`Fault::OutOfMemory`] if too many keys have ledgers already, and this one has none.
    pub fn set_limit(&mut self, limit: &Limit, now: u64) -> Result<(), Fault> {
        if self.0.len() >= UNBOUND_MAX && !self.has(&limit.key_id) {
            return Err(Fault::OutOfMemory);
        }
        let ledger = self.0.entry(limit.key_id).or_insert_with(KeyLedger::new);
        ledger.period = limit.period;
        ledger.truths = limit.truths;
        ledger.outputs = limit.outputs;
        ledger.begin_period(now);
        Ok(())
    }

    /// Forgets the ledgers of keys without a limit for which `wanted` is false.
    pub(crate) fn retain(&mut self, wanted: impl Fn(&KeyId) -> bool) {
        self.0
            .retain(|key, ledger| ledger.is_limited() || wanted(key));
    }

    /// How many ledgers there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Counts a part of the limit of each of these keys as spent in advance, as of the next
    /// [`Self::write`].
    pub(crate) fn reserve(&mut self, keys: &[KeyId]) {
        for key in keys {
            if let Some(ledger) = self.0.get_mut(key) {
                ledger.reserved = ledger.reservation();
            }
        }
    }

    /// Counts nothing as spent in advance, as of the next [`Self::write`].
    pub(crate) fn give_back_reserves(&mut self) {
        for ledger in self.0.values_mut() {
            ledger.reserved = ledger.spent;
        }
    }

    /// Notes that a manifest with what [`Self::write`] writes now is being published.
    pub(crate) fn begin_publication(&mut self) {
        for ledger in self.0.values_mut() {
            ledger.published = Some(ledger.reserved);
        }
    }

    /// Notes that this manifest is durable, or with `durable` false, that it has failed.
    pub(crate) fn end_publication(&mut self, durable: bool) {
        for ledger in self.0.values_mut() {
            let published = ledger.published.take().filter(|_| durable);
            ledger.durable = published.unwrap_or(ledger.durable);
        }
    }

    /// Passes the bytes of every ledger to `out`, in ascending order of key; stops at its first
    /// error and returns it.
    pub(crate) fn write<E>(&self, mut out: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        for (key, ledger) in &self.0 {
            let entry = LedgerEntry {
                key_id: *key,
                // At most LINES_MAX.
                lines: u32::try_from(ledger.lines.len()).unwrap_or(u32::MAX),
                period: ledger.period,
                truths: ledger.truths,
                outputs: ledger.outputs,
                begun: ledger.begun,
                spent_truths: ledger.reserved.answers,
                spent_outputs: ledger.reserved.outputs,
            };
            out(&entry.to_bytes())?;
            for line in &ledger.lines {
                out(&line.entry().to_bytes())?;
            }
        }
        Ok(())
    }

    /// Reads `count` ledgers from the bytes of a manifest in place of those that are here. Returns
    /// the bytes behind them; `None` if they are cut, malformed, or not in ascending order of key.
    pub(crate) fn load<'a>(&mut self, count: u32, mut rest: &'a [u8]) -> Option<&'a [u8]> {
        self.0.clear();
        let mut last = None;
        for _ in 0..count {
            let (entry, mut tail) = LedgerEntry::parse(rest)?;
            last.is_none_or(|last| last < entry.key_id).then_some(())?;
            last = Some(entry.key_id);
            let spent = Spent {
                answers: entry.spent_truths,
                outputs: entry.spent_outputs,
            };
            let mut ledger = KeyLedger {
                lines: Vec::new(),
                period: entry.period,
                truths: entry.truths,
                outputs: entry.outputs,
                begun: entry.begun,
                spent,
                durable: spent,
                reserved: spent,
                published: None,
            };
            for _ in 0..entry.lines {
                let (line, behind) = LedgerLine::parse(tail)?;
                ledger.lines.push(Line::of(&line));
                (ledger.lines.len() <= LINES_MAX).then_some(())?;
                tail = behind;
            }
            self.0.insert(entry.key_id, ledger);
            rest = tail;
        }
        Some(rest)
    }

    /// The ledgers of these keys as a JSON list, at `now`; of a key that has none, with zeros.
    #[must_use]
    pub fn to_json(&self, keys: &[KeyId], now: u64) -> String {
        let none = KeyLedger::new();
        let ledgers = keys
            .iter()
            .map(|key| self.0.get(key).unwrap_or(&none).to_json(key, now));
        format!("[{}]", ledgers.collect::<Vec<String>>().join(","))
    }
}

impl LedgerBook for KeyLedgers {
    fn to_json(&self, keys: &[KeyId]) -> String {
        Self::to_json(self, keys, now())
    }

    fn set_limit(&mut self, limit: &Limit) -> Result<(), Fault> {
        Self::set_limit(self, limit, now())
    }

    fn note_session(&mut self, keys: &[KeyId], name: &Arc<str>) {
        Self::note_session(self, keys, name, now());
    }
}

impl KeyLedger {
    /// One without limit, of zeros.
    const fn new() -> Self {
        const NOTHING: Spent = Spent {
            answers: 0,
            outputs: 0,
        };
        Self {
            lines: Vec::new(),
            period: 0,
            truths: LIMITLESS,
            outputs: LIMITLESS,
            begun: 0,
            spent: NOTHING,
            durable: NOTHING,
            reserved: NOTHING,
            published: None,
        }
    }

    /// Whether it has a limit.
    const fn is_limited(&self) -> bool {
        self.truths != LIMITLESS || self.outputs != LIMITLESS
    }

    /// Whether the period is over. The clock is asked only where there is a period.
    fn is_over(&self, now: impl Fn() -> u64) -> bool {
        self.period != 0 && now() >= self.begun.saturating_add(self.period)
    }

    /// Begins a period at `begun` in which nothing is spent.
    fn begin_period(&mut self, begun: u64) {
        self.begun = begun;
        self.spent = Spent::default();
        self.reserved = Spent::default();
        // The last manifest counts for a period that is over, and so does one that is being
        // published.
        self.durable = Spent::default();
        self.published = None;
    }

    /// Whether so much may be told. Begins another period if this one is over.
    fn has_left(&mut self, told: Told, now: impl Fn() -> u64) -> bool {
        if !self.is_limited() {
            return true;
        }
        if self.is_over(&now) {
            self.begin_period(now());
        }
        self.spent.answers.saturating_add(told.answers()) <= self.truths
            && self.spent.outputs.saturating_add(told.outputs) <= self.outputs
    }

    /// Counts what is told. Returns whether the last durable manifest counts less as spent.
    fn count(&mut self, to: To<'_>, told: Told, now: impl Fn() -> u64) -> bool {
        self.line(to, now).told.add(told);
        if matches!(to, To::NoSession) || !self.is_limited() {
            return false;
        }
        self.spent.answers = self.spent.answers.saturating_add(told.answers());
        self.spent.outputs = self.spent.outputs.saturating_add(told.outputs);
        (self.truths != LIMITLESS && self.spent.answers > self.durable.answers)
            || (self.outputs != LIMITLESS && self.spent.outputs > self.durable.outputs)
    }

    /// What the next manifest counts as spent: what was, and a part of the limit.
    fn reservation(&self) -> Spent {
        let ahead = |spent: u64, limit: u64| match limit {
            LIMITLESS => 0,
            limit => spent
                .saturating_add(limit.div_ceil(PARTS))
                .min(limit)
                .max(spent),
        };
        Spent {
            answers: ahead(self.spent.answers, self.truths),
            outputs: ahead(self.spent.outputs, self.outputs),
        }
    }

    /// The line of those that are told. It is made if there is none; the last one is for all whose
    /// names come when there are as many as there may be.
    fn line(&mut self, to: To<'_>, now: impl Fn() -> u64) -> &mut Line {
        let is = |line: &Line| match (&line.asker, to) {
            (Asker::NoSession, To::NoSession) => true,
            (Asker::Named(known), To::Session(name)) => Arc::ptr_eq(known, name) || known == name,
            _ => false,
        };
        let others = |line: &Line| line.asker == Asker::Others;
        let found = self.lines.iter().position(is);
        // Two places are left: for others, and without a session.
        let full = self.lines.len() + 2 >= LINES_MAX;
        let found = match (found, to) {
            (None, To::Session(_)) if full => self.lines.iter().position(others),
            (found, _) => found,
        };
        let at = found.unwrap_or(self.lines.len());
        if at == self.lines.len() {
            let asker = match to {
                To::NoSession => Asker::NoSession,
                To::Session(_) if full => Asker::Others,
                To::Session(name) => Asker::Named(Arc::clone(name)),
            };
            let seen = match to {
                To::NoSession => 0,
                To::Session(_) => now(),
            };
            self.lines.push(Line {
                asker,
                seen,
                told: Told::default(),
            });
        }
        &mut self.lines[at]
    }

    /// The ledger as a JSON object.
    fn to_json(&self, key: &KeyId, now: u64) -> String {
        let or_null = |number: u64, none: u64| match number {
            number if number == none => String::from("null"),
            number => number.to_string(),
        };
        let spent = if self.is_over(|| now) {
            Spent::default()
        } else {
            self.spent
        };
        let lines: Vec<String> = self.lines.iter().map(Line::to_json).collect();
        format!(
            "{{\"key\":\"{}\",\"limit\":{{\"period\":{},\"answers\":{},\"outputs\":{},\"begun\":{},\
             \"spent\":{{\"answers\":{},\"outputs\":{}}}}},\"lines\":[{}]}}",
            hex(key),
            or_null(self.period, 0),
            or_null(self.truths, LIMITLESS),
            or_null(self.outputs, LIMITLESS),
            or_null(self.begun, 0),
            spent.answers,
            spent.outputs,
            lines.join(",")
        )
    }
}

impl Line {
    /// The line that a manifest has.
    fn of(line: &LedgerLine<'_>) -> Self {
        let asker = match line.asker {
            Asker::NoSession => Asker::NoSession,
            Asker::Named(name) => Asker::Named(Arc::from(name)),
            Asker::Others => Asker::Others,
        };
        let told = Told {
            truths: line.truths,
            checks: line.checks,
            outputs: line.outputs,
            declassified: line.declassified,
        };
        Self {
            asker,
            seen: line.seen,
            told,
        }
    }

    /// The line for a manifest.
    fn entry(&self) -> LedgerLine<'_> {
        let asker = match &self.asker {
            Asker::NoSession => Asker::NoSession,
            Asker::Named(name) => Asker::Named(&**name),
            Asker::Others => Asker::Others,
        };
        LedgerLine {
            asker,
            seen: self.seen,
            truths: self.told.truths,
            checks: self.told.checks,
            outputs: self.told.outputs,
            declassified: self.told.declassified,
        }
    }

    /// The line as a JSON object. A name is a string, no session null, and all others false.
    fn to_json(&self) -> String {
        let name = match &self.asker {
            Asker::NoSession => String::from("null"),
            Asker::Named(name) => quoted(name),
            Asker::Others => String::from("false"),
        };
        format!(
            "{{\"name\":{name},\"seen\":{},\"truths\":{},\"checks\":{},\"outputs\":{},\"declassified\":{}}}",
            self.seen,
            self.told.truths,
            self.told.checks,
            self.told.outputs,
            self.told.declassified
        )
    }
}

/// A name, which has no control character, as a JSON string.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests;
