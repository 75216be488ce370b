//! The first records of a new store: the authority and the first administrator.

use std::sync::Arc;

use strongroom_crypto::SecretKey;
use strongroom_format::code;
use strongroom_keyring::Error;

use crate::audit::Event;
use crate::keys::{Keys, ServerId};
use crate::ledger::{CommitRequest, Ledger};
use crate::paths::{AUTHORITY, certified_path, identity_path, node_path};
use crate::records::{self, Authority, Certified, Identity, Node};
use crate::store::{Guard, Outcome, Store};

/// Writes the first records of a store, with a row of the audit log, in one commit: the authority
/// and the first administrator, whose certificate has the public key with the SHA-256 `admin.0`.
///
/// # Errors
/// SR-8424 when the store has an authority already; what the store reports.
pub fn write_initial_records(
    store: Arc<dyn Store>,
    root: &SecretKey,
    id: &ServerId,
    authority: &Authority,
    admin: (&str, &Identity),
) -> Result<(), Error> {
    let keys = Arc::new(Keys::derive(root, *id)?);
    if store.read(AUTHORITY)?.is_some() {
        return Err(Error::new(
            &code::SERVER_EXISTS,
            "the store holds a key server already",
        ));
    }
    let (spki, identity) = admin;
    let name = &identity.name;
    let node = Node {
        spki: spki.to_owned(),
        next: None,
    };
    let certified = Certified { name: name.clone() };
    let changes = vec![
        records::put(&keys, AUTHORITY, authority)?,
        records::put(&keys, &identity_path(spki), identity)?,
        records::put(&keys, &node_path(name), &node)?,
        records::put(&keys, &certified_path(spki), &certified)?,
    ];
    let guards = vec![Guard {
        path: AUTHORITY.to_owned(),
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
    let request = CommitRequest {
        guards,
        changes,
        events: vec![event],
    };
    match ledger.commit(request)? {
        Outcome::Done => Ok(()),
        Outcome::Conflict => Err(Error::new(
            &code::SERVER_EXISTS,
            "another process made it at the same time",
        )),
    }
}
