//! The extension in a database, and the example table.
//!
//! Invariant: the database may belong to somebody who is no superuser, and a superuser's statements
//! run in it: every name is one of `pg_catalog`, or written with its schema.
//!
//! Must not: change an object that is there.

use strongroom_columns_proxy::conversion::server_error;
use strongroom_columns_proxy::server::{constant, identifier};
use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_postgres_wire::client::StatementClient;

use crate::options::Setup;
use crate::report::Found;
use crate::server::{Server, connect};

/// The schema that gets extension and table.
const SCHEMA: &str = "public";

/// A database of the server.
pub(crate) struct Database {
    client: StatementClient,
    name: String,
    owner: String,
    has_extension: bool,
    /// Its name, and whether it is there.
    table: Option<(String, bool)>,
}

impl Database {
    /// Connects to the database, and looks what it has. SR-8126 for a standby, which gets both from
    /// its primary; SR-8122 when the server refuses, as for a database that is not there; SR-6021,
    /// SR-5001.
    pub(crate) fn look(setup: &Setup, server: &Server, name: &str) -> Result<Self, Error> {
        if server.is_standby {
            let detail = "the server is a standby: leave out --database, as the extension comes from its primary";
            return Err(Error::new(&code::COLUMN_SETUP, detail));
        }
        let mut client = connect(setup, server.owner, name)?;
        let table = setup.example_table.as_deref();
        let question = format!(
            "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'strongroom_columns'), \
             EXISTS (SELECT FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace \
                WHERE nspname = {} AND relname = {}), \
             (SELECT rolname FROM pg_database JOIN pg_roles r ON r.oid = datdba \
                WHERE datname = current_database())",
            constant(SCHEMA),
            constant(table.unwrap_or_default()),
        );
        let answer = client
            .run(&question)
            .map_err(|error| server_error(&error))?;
        let mut fields = answer
            .rows
            .into_iter()
            .flatten()
            .map(Option::unwrap_or_default);
        let mut next = || fields.next().unwrap_or_default();
        let (has_extension, has_table, owner) = (next() == "t", next() == "t", next());
        Ok(Self {
            client,
            name: name.to_owned(),
            owner,
            has_extension,
            table: table.map(|table| (table.to_owned(), has_table)),
        })
    }

    /// Returns the database's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether it has all that it is to have.
    pub(crate) fn is_complete(&self) -> bool {
        self.has_extension && self.table.as_ref().is_none_or(|(_, is_there)| *is_there)
    }

    /// Returns the texts for the report, and whether each part is there.
    pub(crate) fn parts(&self) -> Vec<(String, Found)> {
        let found = |is_there: bool| match is_there {
            true => Found::There,
            false => Found::Missing,
        };
        let extension = format!("extension strongroom_columns in database {}", self.name);
        let mut parts = vec![(extension, found(self.has_extension))];
        if let Some((table, is_there)) = &self.table {
            let table = format!("table {SCHEMA}.{table} in database {}", self.name);
            parts.push((table, found(*is_there)));
        }
        parts
    }

    /// Makes the extension and the example table, in one transaction, if they are not there. The
    /// table belongs to the database's owner. SR-8122 when the server refuses; SR-5001.
    pub(crate) fn make(&mut self) -> Result<(), Error> {
        let mut script = String::new();
        if !self.has_extension {
            script.push_str(&format!(
                "CREATE EXTENSION strongroom_columns SCHEMA {SCHEMA}; "
            ));
        }
        if let Some((table, false)) = &self.table {
            let table = format!("{SCHEMA}.{}", identifier(table));
            script.push_str(&format!(
                "CREATE TABLE {table} (id integer PRIMARY KEY, name {SCHEMA}.enc_text(ordered), \
                 salary {SCHEMA}.enc_numeric, born {SCHEMA}.enc_date) USING strongroom; \
                 ALTER TABLE {table} OWNER TO {};",
                identifier(&self.owner)
            ));
        }
        if script.is_empty() {
            return Ok(());
        }
        // Several statements in one message are one transaction.
        let done = self.client.run(&script);
        done.map(drop).map_err(|error| server_error(&error))
    }
}
