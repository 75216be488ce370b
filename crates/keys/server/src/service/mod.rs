//! What an open server does: each operation of the API, decided, written down and committed.
//!
//! Invariants: V1, who asks is looked up in the store for every request, by the public key of its
//! certificate, and has to show the one certificate, made for the one name, that is written there;
//! V2, an operation that changes or delivers is committed together with its row and guarded by all
//! that it was decided upon, and decided anew when that changed meanwhile; V3, a key that is not
//! there and a key that is not granted give the same answer; V4, denials are written down, or
//! counted and the count written down (`denials.rs`).
//!
//! Must not: know HTTP; exist while the server is sealed.

mod archive;
mod clients;
mod denials;
mod destroy;
mod escrow;
mod fleet;
mod keys;
mod objects;
mod quotas;
mod renewal;
mod rescue;
mod room;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use strongroom_crypto::SecretKey;
use strongroom_format::code;
use strongroom_format::keyring::NAME_MAX;
use strongroom_keyring::Error;

pub use archive::{Archived, naming};
pub use clients::{Ending, Enrolled, GrantInfo, NewToken, NodeInfo, TokenInfo};
pub use destroy::{AskedInfo, Need, Needs};
pub use escrow::{HEADER_MAX, Kept};
pub use keys::{Delivered, KeyInfo, VersionInfo};
pub use objects::ObjectInfo;
pub use quotas::Quotas;
pub use room::RoomInfo;

use crate::audit::{Event, Row};
use crate::authority::Shown;
use crate::keys::Keys;
use crate::ledger::{Job, Ledger, opened};
use crate::log::log_failure;
use crate::now;
use crate::records::{self, AuditCut, Authority, Identity, Role};
use crate::store::{Change, Guard, Outcome, Store};

/// How often an operation is decided anew because others came in between.
const TRIES: usize = 32;

/// Most records of a sort that are looked through for one answer.
const RECORDS_MAX: usize = 200_000;
/// Records that are read at once.
const AT_ONCE: usize = 2000;

/// Denials of one client that are written down in a minute, and of one address that shows no
/// certificate. More are counted.
const KNOWN_DENIALS: u32 = 60;
const STRANGERS_DENIALS: u32 = 10;

/// Who asks, as the connection tells.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// The certificate that it showed.
    pub shown: Option<Shown>,
    /// The address that it comes from.
    pub address: String,
    /// Whether the service knows it.
    pub enrolled: IsEnrolled,
}

/// What the service last said of a connection's certificate. Every clone is the same one.
#[derive(Clone, Debug, Default)]
pub struct IsEnrolled(Arc<AtomicBool>);

impl IsEnrolled {
    /// Whether the certificate is enrolled.
    #[must_use]
    pub fn is(&self) -> bool {
        self.0.load(Relaxed)
    }

    fn set(&self, is: bool) {
        self.0.store(is, Relaxed);
    }
}

/// Who asks, as the store tells.
pub struct Client {
    /// What is known of it.
    pub identity: Identity,
    address: String,
    guard: Guard,
}

impl Client {
    /// That this happened, by this client.
    fn event(&self, action: &str, subject: &str) -> Event {
        Event {
            actor: self.identity.name.clone(),
            address: self.address.clone(),
            action: action.to_owned(),
            subject: subject.to_owned(),
            ..Event::default()
        }
    }

    /// # Errors
    /// SR-8422.
    fn must_be(&self, roles: &[Role]) -> Result<(), Error> {
        match roles.contains(&self.identity.role) {
            true => Ok(()),
            false => Err(Error::new(&code::SERVER_ROLE, self.identity.role.name())),
        }
    }

    fn is_admin(&self) -> bool {
        self.identity.role == Role::Admin
    }
}

/// What an operation has come to: its result, and what has to be committed before that may be told.
struct Plan<T> {
    value: T,
    guards: Vec<Guard>,
    changes: Vec<Change>,
    events: Vec<Event>,
}

impl<T> Plan<T> {
    /// Nothing to commit.
    fn read(value: T) -> Self {
        Self {
            value,
            guards: Vec::new(),
            changes: Vec::new(),
            events: Vec::new(),
        }
    }
}

/// What server.toml sets for operations.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// How long clients' certificates are valid.
    pub certificate_days: u32,
    /// How long a key can be restored after it was to be destroyed, unless an administrator says otherwise.
    pub destroy_after_s: u64,
    /// The least such time, also for administrators: who took one over does not erase a key before
    /// anybody looks.
    pub destroy_least_s: u64,
    /// Whether an administrator other than who asked for it has to want it too.
    pub is_destroyed_by_two: bool,
    /// How much one node may have here.
    pub quotas: Quotas,
}

/// An open server.
pub struct Service {
    store: Arc<dyn Store>,
    keys: Arc<Keys>,
    ledger: Ledger,
    authority: String,
    rules: Mutex<Rules>,
    denials: denials::Denials,
    fleet: fleet::Kept,
    /// How many administrators made with the root key were shown.
    glass: Mutex<Option<u64>>,
    ending: clients::KeptEnding,
    /// Held while rows go into an archive.
    archiving: Mutex<()>,
    room: room::KeptRoom,
}

impl Service {
    /// Opens the service on a store that was made with this root key.
    ///
    /// # Errors
    /// SR-8437 when the root key is another one; what the store reports.
    pub fn open(store: Arc<dyn Store>, keys: Keys, rules: Rules) -> Result<Self, Error> {
        let keys = Arc::new(keys);
        let authority: records::Found<Authority> =
            records::read(&*store, &keys, records::AUTHORITY).map_err(|error| {
                match error.code() == &code::SERVER_STORE {
                    true => Error::new(&code::SERVER_ROOT, error.detail()),
                    false => error,
                }
            })?;
        let Some(authority) = authority.record else {
            return Err(Error::new(
                &code::SERVER_STORE,
                "it was not made by `keyserver init`",
            ));
        };
        let ledger = Ledger::start(Arc::clone(&store), Arc::clone(&keys))?;
        let authority = authority.certificate;
        let rules = Mutex::new(rules);
        Ok(Self {
            store,
            keys,
            ledger,
            authority,
            rules,
            denials: denials::Denials::default(),
            fleet: fleet::Kept::default(),
            glass: Mutex::new(None),
            ending: clients::KeptEnding::default(),
            archiving: Mutex::new(()),
            room: room::KeptRoom::default(),
        })
    }

    /// The authority's certificate, in PEM.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Replaces the rules.
    pub fn set_rules(&self, rules: Rules) {
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = rules;
    }

    fn rules(&self) -> Rules {
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who asks.
    ///
    /// # Errors
    /// SR-8420 without a certificate; SR-8421 when the store does not know it.
    pub fn identify(&self, peer: &Peer) -> Result<Client, Error> {
        let found = self.found(peer);
        match &found {
            Ok(_) => peer.enrolled.set(true),
            // What else can fail, such as the store, says nothing of the certificate.
            Err(error) if error.code().number == code::SERVER_NOT_ENROLLED.number => {
                peer.enrolled.set(false);
            }
            Err(_) => {}
        }
        found
    }

    fn found(&self, peer: &Peer) -> Result<Client, Error> {
        let needed = || Error::new(&code::SERVER_CERTIFICATE_NEEDED, "");
        let shown = peer.shown.as_ref().ok_or_else(needed)?;
        let found: records::Found<Identity> = self.read(&identity_path(&shown.spki))?;
        let guard = found.guard.clone();
        let unknown = || Error::new(&code::SERVER_NOT_ENROLLED, "");
        let identity = found.record.ok_or_else(unknown)?;
        // A key is not enough: of one key there can be several certificates, also ones that ended.
        let known = identity.certificate.as_deref();
        let is_it = known.is_none_or(|known| known == shown.fingerprint);
        if identity.name != shown.name || !is_it {
            return Err(unknown());
        }
        // TLS has looked at the dates when the connection began; it may be an old one.
        if identity.expires <= now() {
            return Err(unknown());
        }
        let (identity, guard) = match identity.unused {
            true => self.first_use(peer, &shown.spki)?.ok_or_else(unknown)?,
            false => (identity, guard),
        };
        Ok(Client {
            identity,
            address: peer.address.clone(),
            guard,
        })
    }

    /// Writes down something that the server did of itself, or that nobody known did.
    ///
    /// # Errors
    /// What the store reports.
    pub fn note(
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
        self.ledger.commit(Job {
            events: vec![event],
            ..Job::default()
        })?;
        Ok(())
    }

    /// Decides and commits; decides anew when something that was decided upon has changed.
    fn run<T>(
        &self,
        peer: &Peer,
        action: &str,
        subject: &str,
        decide: impl Fn(&Client) -> Result<Plan<T>, Error>,
    ) -> Result<T, Error> {
        for _ in 0..TRIES {
            let client = self.identify(peer).inspect_err(|error| {
                self.denied(None, peer, action, subject, error);
            })?;
            let plan = decide(&client).inspect_err(|error| {
                self.denied(Some(&client), peer, action, subject, error);
            })?;
            if self.commit(Some(&client), plan.guards, plan.changes, plan.events)? {
                return Ok(plan.value);
            }
        }
        Err(Error::new(&code::SERVER_BUSY, subject))
    }

    /// True when it happened.
    fn commit(
        &self,
        client: Option<&Client>,
        mut guards: Vec<Guard>,
        changes: Vec<Change>,
        events: Vec<Event>,
    ) -> Result<bool, Error> {
        if changes.is_empty() && events.is_empty() {
            return Ok(true);
        }
        guards.extend(client.map(|client| client.guard.clone()));
        let outcome = self.ledger.commit(Job {
            guards,
            changes,
            events,
        })?;
        Ok(outcome == Outcome::Done)
    }

    /// Writes a denial down, or counts it. The denial stands, whether that succeeds or not; that it
    /// could not be written down is in the server's log.
    fn denied(
        &self,
        client: Option<&Client>,
        peer: &Peer,
        action: &str,
        subject: &str,
        error: &Error,
    ) {
        const DENIALS: [u16; 7] = [8421, 8422, 8423, 8425, 8426, 8431, 8443];
        if !DENIALS.contains(&error.code().number) {
            return;
        }
        let actor = client.map_or("-", |client| client.identity.name.as_str());
        let mut event = Event {
            actor: actor.to_owned(),
            address: peer.address.clone(),
            action: "denied".to_owned(),
            subject: denials::kept(subject),
            version: 0,
            detail: format!("{action} SR-{}", error.code().number),
        };
        let (who, most) = match (client, &peer.shown) {
            (Some(client), _) => (format!("client {}", client.identity.name), KNOWN_DENIALS),
            // A certificate of this authority that counts no longer: revoked, replaced, or over.
            (None, Some(shown)) => {
                let (name, serial) = (denials::kept(&shown.name), &shown.serial);
                event.detail = format!("{}; certificate {serial} of {name}", event.detail);
                (format!("certificate {}", shown.fingerprint), 1)
            }
            (None, None) => (format!("address {}", peer.address), STRANGERS_DENIALS),
        };
        self.told(self.denials.take(&who, most, event, Instant::now()));
    }

    /// Counts of denials that are due.
    fn tell_denials(&self) {
        self.told(self.denials.due(Instant::now()));
    }

    fn told(&self, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let job = Job {
            events,
            ..Job::default()
        };
        if let Err(error) = self.ledger.commit(job) {
            log_failure("denial not recorded", &error);
        }
    }

    /// Rows of the audit log after this number, and which ones are in an archive.
    ///
    /// # Errors
    /// SR-8422 unless viewer or administrator; SR-8436 when a row does not open.
    pub fn audit(
        &self,
        peer: &Peer,
        after: u64,
        limit: usize,
    ) -> Result<(AuditCut, Vec<Row>), Error> {
        self.run(peer, "audit", "", |client| {
            client.must_be(&[Role::Admin, Role::Viewer])?;
            let (cut, _) = self.audit_cut()?;
            // Rows that are archived may not be removed yet.
            let rows = self.store.rows(after.max(cut.through), limit)?.into_iter();
            let rows = rows.map(|(n, sealed)| opened(&self.keys, n, &sealed));
            Ok(Plan::read((cut, rows.collect::<Result<_, _>>()?)))
        })
    }

    /// Whether the client may do what only some roles may, for what has no operation of its own.
    ///
    /// # Errors
    /// SR-8420, SR-8421, SR-8422.
    pub fn allowed(&self, peer: &Peer, action: &str, roles: &[Role]) -> Result<Identity, Error> {
        self.run(peer, action, "", |client| {
            client.must_be(roles)?;
            Ok(Plan::read(client.identity.clone()))
        })
    }

    /// The same, written down as done.
    ///
    /// # Errors
    /// As [`Service::allowed`]; what the store reports.
    pub fn authorised(&self, peer: &Peer, action: &str, roles: &[Role]) -> Result<(), Error> {
        self.run(peer, action, "", |client| {
            client.must_be(roles)?;
            let events = vec![client.event(action, "")];
            Ok(Plan {
                events,
                ..Plan::read(())
            })
        })
    }

    fn read<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<records::Found<T>, Error> {
        records::read(&*self.store, &self.keys, path)
    }

    fn list<T: serde::de::DeserializeOwned>(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, T)>, Error> {
        records::list(&*self.store, &self.keys, prefix, after, limit)
    }

    /// Calls `take` with the name and the content of each record below a prefix, in order. True
    /// when there are more than `most`, roughly: whole pages are read.
    fn each<T: serde::de::DeserializeOwned>(
        &self,
        prefix: &str,
        most: usize,
        mut take: impl FnMut(String, T),
    ) -> Result<bool, Error> {
        let (mut after, mut seen) = (String::new(), 0_usize);
        while seen < most {
            let page = self.list::<T>(prefix, &after, AT_ONCE)?;
            let is_last = page.len() < AT_ONCE;
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

    fn put<T: serde::Serialize>(&self, path: &str, record: &T) -> Result<Change, Error> {
        records::put(&self.keys, path, record)
    }
}

/// Makes the first records of a store: the authority, and the first administrator.
///
/// # Errors
/// SR-8424 when the store has an authority already; what the store reports.
pub fn found(
    store: Arc<dyn Store>,
    root: &SecretKey,
    id: &crate::keys::ServerId,
    authority: &Authority,
    admin: (&str, &Identity),
) -> Result<(), Error> {
    let keys = Arc::new(Keys::of(root, *id)?);
    if store.read(records::AUTHORITY)?.is_some() {
        return Err(Error::new(
            &code::SERVER_EXISTS,
            "the store holds a key server already",
        ));
    }
    let (spki, identity) = admin;
    let name = &identity.name;
    let changes = vec![
        records::put(&keys, records::AUTHORITY, authority)?,
        records::put(&keys, &identity_path(spki), identity)?,
        records::put(
            &keys,
            &format!("{}{name}", records::NODES),
            &records::Node {
                spki: spki.to_owned(),
                next: None,
            },
        )?,
        records::put(
            &keys,
            &format!("{}{spki}", records::CERTIFIED),
            &records::Certified { name: name.clone() },
        )?,
    ];
    let guards = vec![Guard {
        path: records::AUTHORITY.to_owned(),
        revision: 0,
    }];
    let event = Event {
        actor: "-".to_owned(),
        address: "-".to_owned(),
        action: "init".to_owned(),
        subject: name.clone(),
        ..Event::default()
    };
    let ledger = Ledger::start(store, keys)?;
    match ledger.commit(Job {
        guards,
        changes,
        events: vec![event],
    })? {
        Outcome::Done => Ok(()),
        Outcome::Conflict => Err(Error::new(
            &code::SERVER_EXISTS,
            "made by another at the same time",
        )),
    }
}

fn identity_path(spki: &str) -> String {
    format!("{}{spki}", records::IDENTITIES)
}

/// A name of a key or of a client: as the keyring has them, and no name of a directory.
///
/// # Errors
/// SR-8429.
pub fn check_name(name: &str) -> Result<(), Error> {
    let fine = (1..=NAME_MAX).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        && name.bytes().any(|b| b != b'.');
    match fine {
        true => Ok(()),
        false => Err(Error::new(
            &code::SERVER_REQUEST,
            "a name is 1 to 128 of a-z A-Z 0-9 . _ -",
        )),
    }
}

/// The id of an object: 32 hexadecimal digits in lower case.
fn check_object_id(id: &str) -> Result<(), Error> {
    let fine = id.len() == 32
        && id
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    match fine {
        true => Ok(()),
        false => Err(Error::new(
            &code::SERVER_REQUEST,
            "an object id is 32 hexadecimal digits",
        )),
    }
}

/// A text that a client may give: printable, and not too long.
fn check_text(text: &str, what: &str) -> Result<(), Error> {
    match text.len() <= 256 && !text.contains(reorders) {
        true => Ok(()),
        false => Err(Error::new(
            &code::SERVER_REQUEST,
            format!("{what}: at most 256 bytes, printable"),
        )),
    }
}

/// Controls, separators of lines, and marks of direction (Unicode UAX #9): they change how what
/// stands beside them is read.
fn reorders(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Members of an object that a client gives with a key.
type Members = BTreeMap<String, String>;
