//! The data owner's own connection to the zone: what was told under their column keys, and how much
//! may be.
//!
//! Its session has no right to anything else. Must not: see a value.

use serde_json::Value;
use strongroom_format::code;
use strongroom_format::columns::channel::{Limit, Request};
use strongroom_keyring::Error;
use strongroom_postgres_wire::client::StatementClient;

use crate::channel::OpenSession;
use crate::conversion::server_error;
use crate::keys::ColumnKeys;
use crate::proxy::zone_session::{self, TicketTerms};

/// A session of the owner with the zone, over a connection to the server.
pub struct Owner<'c> {
    connection: &'c mut StatementClient,
    session: OpenSession,
}

impl<'c> Owner<'c> {
    /// Has the zone attest itself over this connection, which leads to the server, and opens a
    /// session with it under a ticket for all keys, with the terms' rights. The keys are released
    /// to the zone if it is accepted. `user` and `database` are those of the connection.
    ///
    /// # Errors
    /// SR-8122 if the server or the zone refuses, or the zone is not accepted; SR-5001 if the
    /// connection fails.
    pub fn open(
        connection: &'c mut StatementClient,
        keys: &ColumnKeys,
        terms: &TicketTerms,
        (user, database): (&str, &str),
    ) -> Result<Self, Error> {
        let name = zone_session::client_name(user, database, "columns ledger");
        let opened = zone_session::open(keys, terms, &name, |function, bytes| {
            Ok::<_, Error>(Ok(call(connection, function, bytes)?))
        })?;
        match opened {
            Ok(zone) => Ok(Self {
                connection,
                session: zone.session,
            }),
            Err(refusal) => Err(Error::new(&code::COLUMN_SERVER, refusal.message)),
        }
    }

    /// Returns the ledgers of the keys, as the zone tells them: a list of JSON objects
    /// (docs/spec/columns-channel.md).
    ///
    /// # Errors
    /// As [`Self::open`]; SR-9001 if the zone's answer is not JSON.
    pub fn ledgers(&mut self) -> Result<Value, Error> {
        let message = self.session.send(Request::KeyLedgers).map_err(unsent)?;
        let answer = self.exchange(&message)?;
        serde_json::from_slice(&answer)
            .map_err(|error| Error::new(&code::BUG, format!("the zone's ledgers: {error}")))
    }

    /// Sets the limit of a key and begins its period. It is durable when this returns.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn set_limit(&mut self, limit: &Limit) -> Result<(), Error> {
        let message = self.session.set_limit(limit).map_err(unsent)?;
        self.exchange(&message).map(drop)
    }

    /// Sends a sealed message and returns the content of the zone's answer. Fails as
    /// [`Self::open`].
    fn exchange(&mut self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let reply = call(self.connection, "message", message)?;
        self.session.receive(&reply).map_err(unsent)
    }
}

impl Drop for Owner<'_> {
    /// Closes the session. One that cannot be closed ends with the connection.
    fn drop(&mut self) {
        if let Ok(message) = self.session.send(Request::Close) {
            drop(call(self.connection, "message", &message));
        }
    }
}

/// Makes the error for a message that cannot be sealed, or an answer that does not open (SR-8122).
fn unsent(error: crate::channel::ChannelError) -> Error {
    Error::new(&code::COLUMN_SERVER, error.to_string())
}

/// Calls a function of the extension from bytes to bytes. SR-8122 if the server refuses it, or its
/// answer is malformed; SR-5001 if the connection fails.
fn call(connection: &mut StatementClient, function: &str, bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let sql = zone_session::call_statement(function, bytes);
    let answer = connection.run(&sql).map_err(|error| server_error(&error))?;
    let row = answer.rows.into_iter().next().unwrap_or_default();
    zone_session::bytes_of_row(row).map_err(|text| Error::new(&code::COLUMN_SERVER, text))
}
