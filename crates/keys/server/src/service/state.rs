//! The state of an open server: its store, its keys, the ledger and the caches, and the functions
//! with which every operation reads and commits records.

use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use strongroom_format::code;
use strongroom_keyring::Error;

use super::denials::Denials;
use super::expiry::ExpiryCache;
use super::fleet_cache::FleetCache;
use super::space_info::SpaceState;
use crate::audit::Event;
use crate::keys::Keys;
use crate::ledger::{CommitRequest, Ledger};
use crate::paths::AUTHORITY;
use crate::records::{self, Authority, Guarded};
use crate::rules::Rules;
use crate::store::{Change, Guard, Outcome, Store};

/// How often an operation is decided again because other commits came in between.
pub(super) const TRIES: usize = 32;

/// The most records of one kind that are read for one response.
pub(super) const RECORDS_MAX: usize = 200_000;
/// Records that are read from the store at once.
const PAGE: usize = 2000;

/// An open server.
pub struct Service {
    pub(super) store: Arc<dyn Store>,
    pub(super) keys: Arc<Keys>,
    pub(super) ledger: Ledger,
    authority: String,
    rules: Mutex<Rules>,
    pub(super) denials: Denials,
    pub(super) fleet: FleetCache,
    /// The count of administrators made with the root key that was logged last.
    pub(super) break_glass_seen: Mutex<Option<u64>>,
    pub(super) expiry: ExpiryCache,
    /// Held while rows are moved into an archive.
    pub(super) archiving: Mutex<()>,
    pub(super) space: SpaceState,
}

impl Service {
    /// Opens the service on a store that was initialized with this root key: reads the authority
    /// and the last row of the audit log, and starts the thread of the ledger.
    ///
    /// # Errors
    /// SR-8437 when the authority does not open, as with another root key; SR-8435 for a store that
    /// does not answer or was never initialized; SR-8436 when the last row does not open; SR-5001
    /// when the system reports an error; what the store reports of damage.
    pub fn open(store: Arc<dyn Store>, keys: Keys, rules: Rules) -> Result<Self, Error> {
        let keys = Arc::new(keys);
        let Some(stored) = store.read(AUTHORITY)? else {
            return Err(Error::new(
                &code::SERVER_STORE,
                "it was not made by `keyserver init`",
            ));
        };
        let opened = keys.open(AUTHORITY, &stored.value).map_err(|error| {
            match error.code() == &code::SERVER_STORE {
                true => Error::new(&code::SERVER_ROOT, error.detail()),
                false => error,
            }
        })?;
        let authority: Authority = records::parse(AUTHORITY, &opened)?;
        let ledger = Ledger::start(Arc::clone(&store), Arc::clone(&keys))?;
        Ok(Self {
            store,
            keys,
            ledger,
            authority: authority.certificate,
            rules: Mutex::new(rules),
            denials: Denials::default(),
            fleet: FleetCache::default(),
            break_glass_seen: Mutex::new(None),
            expiry: ExpiryCache::default(),
            archiving: Mutex::new(()),
            space: SpaceState::default(),
        })
    }

    /// The authority's certificate, in PEM.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Replaces the rules by which later operations are decided.
    pub fn set_rules(&self, rules: Rules) {
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = rules;
    }

    /// Returns a copy of the rules in force.
    pub(super) fn rules(&self) -> Rules {
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits a row of the audit log, durably, for an event that no enrolled client caused; the
    /// row also goes to syslog, if that is set. `address` is `-` for the server itself.
    ///
    /// # Errors
    /// SR-8435 when the store does not answer, or what the SQLite extension reports: it is then
    /// unknown whether the row is in the log. SR-8442 when other servers append rows again and
    /// again, SR-8436 when the last row does not open, SR-5001 without random numbers or locked
    /// memory: no row was appended.
    pub fn record_event(
        &self,
        address: &str,
        action: &str,
        subject: &str,
        detail: &str,
    ) -> Result<(), Error> {
        let event = Event {
            actor: "-".to_owned(),
            address: address.to_owned(),
            action: action.to_owned(),
            subject: subject.to_owned(),
            detail: detail.to_owned(),
            version: 0,
        };
        self.ledger.commit(CommitRequest {
            events: vec![event],
            ..CommitRequest::default()
        })?;
        Ok(())
    }

    /// Commits changes with the rows of their events, durably. False when a guarded record has
    /// changed; nothing is written then. Without changes and events it writes nothing, checks no
    /// guard and returns true. Errors are those of the store, such as SR-8435 when it does not
    /// answer.
    pub(super) fn commit(
        &self,
        guards: Vec<Guard>,
        changes: Vec<Change>,
        events: Vec<Event>,
    ) -> Result<bool, Error> {
        if changes.is_empty() && events.is_empty() {
            return Ok(true);
        }
        let outcome = self.ledger.commit(CommitRequest {
            guards,
            changes,
            events,
        })?;
        Ok(outcome == Outcome::Done)
    }

    /// Reads and opens the record at a path; it may be missing. SR-8435 when it does not open.
    pub(super) fn read<T: DeserializeOwned>(&self, path: &str) -> Result<Guarded<T>, Error> {
        records::read(&*self.store, &self.keys, path)
    }

    /// Reads at most `limit` records below a prefix, in order of their names, which follow the
    /// prefix and are greater than `after`. SR-8435 when one does not open.
    pub(super) fn list<T: DeserializeOwned>(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, T)>, Error> {
        records::list(&*self.store, &self.keys, prefix, after, limit)
    }

    /// Calls `take` with the name and the content of each record below a prefix, in order. Whole
    /// pages are read, until at least `most` records were; then it returns true, because there may
    /// be more. False when all were read. Errors are those of the store, such as SR-8435 when it
    /// does not answer.
    pub(super) fn for_each<T: DeserializeOwned>(
        &self,
        prefix: &str,
        most: usize,
        mut take: impl FnMut(String, T),
    ) -> Result<bool, Error> {
        let (mut after, mut seen) = (String::new(), 0_usize);
        while seen < most {
            let page = self.list::<T>(prefix, &after, PAGE)?;
            let is_last = page.len() < PAGE;
            seen = seen.saturating_add(page.len());
            for (name, record) in page {
                after.clone_from(&name);
                take(name, record);
            }
            if is_last {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Seals a record and returns the change that writes it. SR-8430 when it is too long for the
    /// store.
    pub(super) fn put<T: Serialize>(&self, path: &str, record: &T) -> Result<Change, Error> {
        records::put(&self.keys, path, record)
    }
}
