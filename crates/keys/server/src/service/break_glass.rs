//! What the holder of the root key can do without an administrator's certificate: issue
//! certificates for servers, and create an administrator when none has a usable key ("break
//! glass").
//!
//! Invariants:
//! - O1: Each of these is recorded in the audit log before the certificate is returned.
//! - O2: Every server on the store shows in its log and its metrics that an administrator was
//!   created in this way.
//!
//! Must not: be reached by a request.

use std::sync::PoisonError;

use strongroom_crypto::random16;
use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_keyring::Error;

use super::checks::check_name;
use super::identify::{delete_identities, delete_identity};
use super::state::{Service, TRIES};
use crate::audit::Event;
use crate::authority::{self, IssuedCertificate};
use crate::log::{Level, log};
use crate::now;
use crate::paths::{AUTHORITY, BREAK_GLASS, certified_path, identity_path, node_path};
use crate::records::{Authority, BreakGlass, Certified, Guarded, Identity, Node, Role};

/// For how many seconds after the last use a server logs it again when it starts.
const RECENT_S: u64 = 30 * 86_400;

impl Service {
    /// Issues a certificate with a new key for a server with these names. `by` says how the root
    /// key was given; it is in the row of the audit log that is written before this returns.
    ///
    /// # Errors
    /// SR-8440 for a name that cannot be in a certificate; what the store reports.
    pub fn server_certificate(
        &self,
        names: &[String],
        days: u32,
        by: &str,
    ) -> Result<IssuedCertificate, Error> {
        let (authority, _) = self.read::<Authority>(AUTHORITY)?.require("authority")?;
        let issued = authority::issue_server_certificate(&authority, names, days)?;
        let first = names.first().map_or("", String::as_str);
        let detail = format!("{by} {}", issued.spki);
        self.record_event("-", "server-certificate", first, &detail)?;
        Ok(issued)
    }

    /// Creates an administrator with a new key and certificate, writes a row of the audit log and
    /// raises the alarm that all servers show. An administrator of this name loses the former
    /// certificates. `by` says how the root key was given.
    ///
    /// # Errors
    /// SR-8429 for an invalid name; SR-8424 for the name of a client that is no administrator;
    /// SR-8442 when the records keep changing; what the store reports.
    pub fn break_glass(&self, name: &str, by: &str) -> Result<IssuedCertificate, Error> {
        check_name(name)?;
        for _ in 0..TRIES {
            let node: Guarded<Node> = self.read(&node_path(name))?;
            let mut guards = vec![node.guard.clone()];
            let mut changes = Vec::new();
            if let Some(former) = &node.record {
                let found: Guarded<Identity> = self.read(&identity_path(&former.spki))?;
                if found.record.is_some_and(|other| other.role != Role::Admin) {
                    return Err(Error::new(&code::SERVER_EXISTS, name));
                }
                changes.extend(delete_identities(former));
            }
            let (authority, _) = self.read::<Authority>(AUTHORITY)?.require("authority")?;
            let issued = authority::issue_client_certificate(
                &authority,
                name,
                self.rules().certificate_days,
            )?;
            let identity = Identity {
                name: name.to_owned(),
                role: Role::Admin,
                may_create: false,
                may_destroy: false,
                enrolled: now(),
                expires: issued.expires,
                enrolment: Some(hex(&random16()?)),
                unused: false,
                certificate: Some(issued.fingerprint.clone()),
            };
            let new_node = Node {
                spki: issued.spki.clone(),
                next: None,
            };
            let alarm: Guarded<BreakGlass> = self.read(BREAK_GLASS)?;
            guards.push(alarm.guard);
            let raised = BreakGlass {
                count: alarm
                    .record
                    .map_or(1, |before| before.count.saturating_add(1)),
                at: now(),
                name: name.to_owned(),
            };
            changes.retain(|change| *change != delete_identity(&issued.spki));
            changes.push(self.put(&identity_path(&issued.spki), &identity)?);
            changes.push(self.put(&node_path(name), &new_node)?);
            let owner = Certified {
                name: name.to_owned(),
            };
            changes.push(self.put(&certified_path(&issued.spki), &owner)?);
            changes.push(self.put(BREAK_GLASS, &raised)?);
            let event = Event {
                actor: "-".to_owned(),
                address: "-".to_owned(),
                action: "break-glass".to_owned(),
                subject: name.to_owned(),
                version: 0,
                detail: format!("{by} {}", issued.spki),
            };
            if self.commit(guards, changes, vec![event])? {
                return Ok(issued);
            }
        }
        Err(Error::new(&code::SERVER_BUSY, name))
    }

    /// Reads how often an administrator was created with the root key, and when last. `None`:
    /// never.
    ///
    /// # Errors
    /// What the store reports: SR-8435 when it does not answer, or a record is damaged.
    pub fn read_break_glass(&self) -> Result<Option<BreakGlass>, Error> {
        Ok(self.read(BREAK_GLASS)?.record)
    }

    /// Writes an error to the server's log if [`Service::break_glass`] was used, by any process,
    /// since the last call. The first call also does so for a use within the last 30 days.
    ///
    /// # Errors
    /// What the store reports: SR-8435 when it does not answer, or a record is damaged.
    pub fn watch_break_glass(&self) -> Result<(), Error> {
        let Some(last) = self.read_break_glass()? else {
            return Ok(());
        };
        let mut seen = self
            .break_glass_seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_news = match *seen {
            Some(count) => count < last.count,
            None => last.at.saturating_add(RECENT_S) > now(),
        };
        *seen = Some(last.count);
        if is_news {
            let what = code::SERVER_BREAK_GLASS;
            log(
                Level::Error,
                "break-glass",
                &[
                    ("code", &format!("SR-{}", what.number)),
                    ("what", what.what),
                    ("todo", what.todo),
                    ("name", &last.name),
                    ("at", &last.at.to_string()),
                    ("count", &last.count.to_string()),
                ],
            );
        }
        Ok(())
    }
}
