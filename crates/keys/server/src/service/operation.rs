//! How an operation is decided and committed: the client is identified, the operation is planned,
//! and the plan is committed together with its rows of the audit log (V2, V4).

use std::time::Instant;

use strongroom_format::code;
use strongroom_keyring::Error;

use super::denials;
use super::identify::Client;
use super::peer::Peer;
use super::state::{Service, TRIES};
use crate::audit::Event;
use crate::ledger::CommitRequest;
use crate::log::log_failure;
use crate::records::{Identity, Role};
use crate::store::{Change, Guard};

/// Denials that are recorded in a minute, of one client, and of one address without a certificate.
/// More are counted.
const CLIENT_DENIALS_MAX: u32 = 60;
const ADDRESS_DENIALS_MAX: u32 = 10;

/// A decided operation: its result, and what has to be committed before the result is returned.
pub(super) struct Plan<T> {
    pub(super) value: T,
    pub(super) guards: Vec<Guard>,
    pub(super) changes: Vec<Change>,
    pub(super) events: Vec<Event>,
}

impl<T> Plan<T> {
    /// Makes a plan with a result and nothing to commit.
    pub(super) fn read(value: T) -> Self {
        Self {
            value,
            guards: Vec::new(),
            changes: Vec::new(),
            events: Vec::new(),
        }
    }
}

impl Service {
    /// Looks up the client, has `decide` plan the operation, commits the plan, and returns its
    /// value. Decides again, up to 32 times, when a record on which the decision depends has
    /// changed. Denials are recorded, with `action` and `subject`.
    ///
    /// # Errors
    /// SR-8420 without a certificate; SR-8421 for a client that is not enrolled; those of
    /// `decide`; SR-8442 when the records keep changing; what the store reports.
    pub(super) fn run<T>(
        &self,
        peer: &Peer,
        action: &str,
        subject: &str,
        decide: impl Fn(&Client) -> Result<Plan<T>, Error>,
    ) -> Result<T, Error> {
        for _ in 0..TRIES {
            let client = self.identify(peer).inspect_err(|error| {
                self.record_denial(None, peer, action, subject, error);
            })?;
            let mut plan = decide(&client).inspect_err(|error| {
                self.record_denial(Some(&client), peer, action, subject, error);
            })?;
            if !plan.changes.is_empty() || !plan.events.is_empty() {
                plan.guards.push(client.guard);
            }
            if self.commit(plan.guards, plan.changes, plan.events)? {
                return Ok(plan.value);
            }
        }
        Err(Error::new(&code::SERVER_BUSY, subject))
    }

    /// Records a denial in the audit log, or counts it when the same party was denied often lately.
    /// Ignores errors that are no denials: all but SR-8421, 8422, 8423, 8425, 8426, 8431 and 8443.
    /// The operation is denied even if that fails; the server's log then says so.
    pub(super) fn record_denial(
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
            subject: denials::printable(subject),
            version: 0,
            detail: format!("{action} SR-{}", error.code().number),
        };
        let (party, most) = match (client, &peer.certificate) {
            (Some(client), _) => (
                format!("client {}", client.identity.name),
                CLIENT_DENIALS_MAX,
            ),
            // A certificate of this authority that is no longer valid: revoked, replaced, expired.
            (None, Some(certificate)) => {
                let name = denials::printable(&certificate.name);
                let serial = &certificate.serial;
                event.detail = format!("{}; certificate {serial} of {name}", event.detail);
                (format!("certificate {}", certificate.fingerprint), 1)
            }
            (None, None) => (format!("address {}", peer.address), ADDRESS_DENIALS_MAX),
        };
        self.commit_denials(self.denials.add(&party, most, event, Instant::now()));
    }

    /// Records in the audit log the counts of denials whose minute is over. A failure is only
    /// logged.
    pub(super) fn record_due_denials(&self) {
        self.commit_denials(self.denials.take_due(Instant::now()));
    }

    /// Commits events of denials to the audit log. A failure is only logged. Does nothing without
    /// events.
    fn commit_denials(&self, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let request = CommitRequest {
            events,
            ..CommitRequest::default()
        };
        if let Err(error) = self.ledger.commit(request) {
            log_failure("denial not recorded", &error);
        }
    }

    /// Checks that the client has one of these roles, for a request that has no operation of its
    /// own. Returns the client's identity. A denial is recorded.
    ///
    /// # Errors
    /// SR-8420 without a certificate, SR-8421 for one that is not enrolled, SR-8422 for another
    /// role; what the store reports.
    pub fn check_role(&self, peer: &Peer, action: &str, roles: &[Role]) -> Result<Identity, Error> {
        self.run(peer, action, "", |client| {
            client.must_be(roles)?;
            Ok(Plan::read(client.identity.clone()))
        })
    }

    /// Checks that the client has one of these roles, and records the action in the audit log. A
    /// denial is recorded too.
    ///
    /// # Errors
    /// SR-8420 without a certificate, SR-8421 for one that is not enrolled, SR-8422 for another
    /// role; SR-8442 when the records keep changing; what the store reports.
    pub fn record_action(&self, peer: &Peer, action: &str, roles: &[Role]) -> Result<(), Error> {
        self.run(peer, action, "", |client| {
            client.must_be(roles)?;
            let events = vec![client.event(action, "")];
            Ok(Plan {
                events,
                ..Plan::read(())
            })
        })
    }
}
