//! What the service does for whoever has the root key: certificates for servers, and an
//! administrator when none is left.
//!
//! Invariants: O1, each is a row of the audit log before it is handed out; O2, an administrator who
//! was made so is shown by every server that runs on the store, in its log and its metrics.
//!
//! Must not: be reached by a request.

use std::sync::PoisonError;

use strongroom_crypto::random16;
use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_keyring::Error;

use super::clients::{ends, identities_of, node_path};
use super::{Service, check_name, identity_path};
use crate::audit::Event;
use crate::authority::{self, Issued};
use crate::log::{Level, log};
use crate::now;
use crate::records::{
    AUTHORITY, Authority, BREAK_GLASS, BreakGlass, CERTIFIED, Certified, Found, Identity, Node,
    Role,
};

/// An administrator who was made so lately is shown again when a server starts.
const LATELY_S: u64 = 30 * 86_400;

impl Service {
    /// A certificate with a new key for a server with these names.
    ///
    /// # Errors
    /// SR-8440 for a name that cannot be in a certificate; what the store reports.
    pub fn server_certificate(
        &self,
        names: &[String],
        days: u32,
        by: &str,
    ) -> Result<Issued, Error> {
        let (authority, _) = self.read::<Authority>(AUTHORITY)?.there("authority")?;
        let issued = authority::server(&authority, names, days)?;
        let first = names.first().map_or("", String::as_str);
        let detail = format!("{by} {}", issued.spki);
        self.note("-", "server-certificate", first, &detail)?;
        Ok(issued)
    }

    /// A certificate with a new key for an administrator of this name. One who has the name loses
    /// the certificates that there were.
    ///
    /// # Errors
    /// SR-8424 for the name of a client that is no administrator; SR-8429; what the store reports.
    pub fn break_glass(&self, name: &str, by: &str) -> Result<Issued, Error> {
        check_name(name)?;
        for _ in 0..super::TRIES {
            let node: Found<Node> = self.read(&node_path(name))?;
            let mut guards = vec![node.guard.clone()];
            let mut changes = Vec::new();
            if let Some(former) = &node.record {
                let found: Found<Identity> = self.read(&identity_path(&former.spki))?;
                if found.record.is_some_and(|other| other.role != Role::Admin) {
                    return Err(Error::new(&code::SERVER_EXISTS, name));
                }
                changes.extend(identities_of(former));
            }
            let (authority, _) = self.read::<Authority>(AUTHORITY)?.there("authority")?;
            let issued = authority::client(&authority, name, self.rules().certificate_days)?;
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
            let fresh = Node {
                spki: issued.spki.clone(),
                next: None,
            };
            let told: Found<BreakGlass> = self.read(BREAK_GLASS)?;
            guards.push(told.guard);
            let telling = BreakGlass {
                count: told
                    .record
                    .map_or(1, |before| before.count.saturating_add(1)),
                at: now(),
                name: name.to_owned(),
            };
            changes.retain(|change| *change != ends(&issued.spki));
            changes.push(self.put(&identity_path(&issued.spki), &identity)?);
            changes.push(self.put(&node_path(name), &fresh)?);
            let whose = Certified {
                name: name.to_owned(),
            };
            changes.push(self.put(&format!("{CERTIFIED}{}", issued.spki), &whose)?);
            changes.push(self.put(BREAK_GLASS, &telling)?);
            let event = Event {
                actor: "-".to_owned(),
                address: "-".to_owned(),
                action: "break-glass".to_owned(),
                subject: name.to_owned(),
                version: 0,
                detail: format!("{by} {}", issued.spki),
            };
            if self.commit(None, guards, changes, vec![event])? {
                return Ok(issued);
            }
        }
        Err(Error::new(&code::SERVER_BUSY, name))
    }

    /// How often an administrator was made with the root key, and when last.
    ///
    /// # Errors
    /// What the store reports.
    pub fn glass_broken(&self) -> Result<Option<BreakGlass>, Error> {
        Ok(self.read(BREAK_GLASS)?.record)
    }

    /// Writes to the log what [`Service::break_glass`] did since it was looked for last, by
    /// whichever process.
    ///
    /// # Errors
    /// What the store reports.
    pub fn watch_glass(&self) -> Result<(), Error> {
        let Some(last) = self.glass_broken()? else {
            return Ok(());
        };
        let mut seen = self.glass.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = match *seen {
            Some(count) => count < last.count,
            None => last.at.saturating_add(LATELY_S) > now(),
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
