//! `strongroom columns proxy`: the PostgreSQL proxy that applications connect to instead of the
//! server.
//!
//! Must not: print a statement or a value.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use strongroom_columns_proxy::keys::ColumnKeys;
use strongroom_columns_proxy::proxy::{
    Address, Config, PlaintextConstants, Proxy, TicketTerms, Tls,
};
use strongroom_columns_proxy::relations::KnownRelations;
use strongroom_columns_proxy::server::TLS_OVER_UNIX;
use strongroom_columns_proxy::sql::comparable::{
    ColumnPath, FormerName, parse_adopted, parse_adopted_database,
};
use strongroom_columns_proxy::sql::pins::PinnedColumn;
use strongroom_format::code;
use strongroom_format::columns::channel::right;
use strongroom_keyring::Keyring;

use super::connect::{TlsMode, address, checked};
use super::trust::ZoneTrust;
use crate::context::Context;
use crate::failure::{Failure, note};
use crate::help::tail;

/// Encrypt what goes into confidential columns, decrypt what comes out of them.
///
/// Any driver connects to the proxy as it would to the server, and sees the base types. The server
/// sees envelopes. User names and passwords are the server's own; the proxy passes authentication
/// through.
#[derive(Args)]
#[command(after_help = tail!("  strongroom columns proxy --listen 127.0.0.1:6432 --server /run/postgresql/.s.PGSQL.5432 --key-id columns --accept-process-attestation"))]
pub(super) struct ProxyArgs {
    /// Where applications connect: HOST:PORT, or the path of a socket
    #[arg(long, value_name = "ADDRESS", required = true, value_parser = checked)]
    listen: Vec<String>,
    /// The server: HOST:PORT, or the path of its socket
    #[arg(long, value_name = "ADDRESS", value_parser = checked)]
    server: String,
    /// Certificate in PEM, with those up to its authority behind it: applications may ask for TLS
    /// then
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Key of that certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// TLS towards the server
    #[arg(long, value_enum, default_value_t = TlsMode::Disable)]
    server_tls: TlsMode,
    /// Authorities in PEM that vouch for the server's certificate
    #[arg(long, value_name = "FILE", required_if_eq("server_tls", "verify-full"))]
    server_ca: Option<PathBuf>,
    #[command(flatten)]
    trust: ZoneTrust,
    /// File that keeps what relations with confidential columns looked like when they were seen
    /// first: they have to stay so. Beside the keyring unless given
    #[arg(long, value_name = "FILE")]
    pins: Option<PathBuf>,
    /// Column that is confidential whatever the server says; opaque unless `:ordered` or
    /// `:equality` follows
    #[arg(long = "pin", value_name = "SCHEMA.RELATION.COLUMN[:CLASS]", value_parser = parse_pinned_column)]
    pinned: Vec<PinnedColumn>,
    /// Column that was renamed past this proxy, or restored under another name, and what it was
    /// called when its values were stored:
    /// SCHEMA.RELATION.COLUMN=[DATABASE.]SCHEMA.RELATION.COLUMN
    #[arg(long = "adopt", value_name = "NOW=BEFORE", value_parser = parse_adopted_column)]
    adopted: Vec<(ColumnPath, FormerName)>,
    /// Database that was renamed, or restored under another name, and what it was called when its
    /// values were stored
    #[arg(long = "adopt-database", value_name = "NOW=BEFORE", value_parser = parse_database)]
    adopted_databases: Vec<(String, String)>,
    /// Seconds that a ticket is good; renewed while its connection is used
    #[arg(long, value_name = "SECONDS", default_value_t = 14_400, value_parser = clap::value_parser!(u64).range(4..))]
    ticket_lifetime: u64,
    /// Comparisons, tests, tokens and ranks that a connection may learn; any number unless given
    #[arg(long, value_name = "NUMBER")]
    comparison_budget: Option<u64>,
    /// Let connections take values out of protection into the server, and plain values of the
    /// server into it (the SQL functions declassify and classify): for all columns of the key
    #[arg(long)]
    declassify: bool,
    /// Let connections store computed values, and those of other columns, in comparable columns,
    /// where the server can compare them afterwards for nothing
    #[arg(long)]
    store_derived: bool,
    /// What is done with a constant beside a confidential value that the server expects in clear
    #[arg(long, value_enum, default_value_t = Constants::Refuse)]
    plaintext_constants: Constants,
    /// Connections at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    connections: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum Constants {
    /// An error that names it
    Refuse,
    /// It is sent in clear
    Allow,
}

impl ProxyArgs {
    /// Reads the certificates and keys that the options name and returns the TLS settings towards
    /// applications and towards the server. SR-1001 for options that contradict each other, as TLS
    /// over a UNIX socket; SR-5001 for a file or what it holds.
    fn tls(&self) -> Result<Tls, Failure> {
        let mut tls = Tls::default();
        if let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) {
            tls = tls
                .accept(certificate, key)
                .map_err(|error| Failure::io(certificate, &error))?;
        }
        if self.server_ca.is_some() && self.server_tls != TlsMode::VerifyFull {
            return Err(Failure::usage("--server-ca needs --server-tls verify-full"));
        }
        if self.server_tls == TlsMode::Disable {
            return Ok(tls);
        }
        let Address::Tcp(server) = address(&self.server) else {
            return Err(Failure::usage(TLS_OVER_UNIX));
        };
        let host = server
            .rsplit_once(':')
            .map_or(server.as_str(), |(host, _)| host);
        let authorities = match self.server_tls {
            TlsMode::VerifyFull => self.server_ca.as_deref(),
            _ => None,
        };
        let about = |error| Failure::io(authorities.unwrap_or_else(|| Path::new(host)), &error);
        tls.require(host, authorities).map_err(about)
    }

    /// Opens the keyring, listens at the addresses, notes them, and serves applications until the
    /// process is ended. SR-2003 if there is no such key; the errors of the keyring and of the
    /// options; SR-5001 if it cannot listen.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let path = context.keyring_path();
        let keys = ColumnKeys::from_keyring(&Keyring::open(&path)?, &self.trust.key_id)?;
        let tls = self.tls()?;
        let mut rights = right::ORDINARY;
        if self.declassify {
            rights |= right::DECLASSIFY;
        }
        if self.store_derived {
            rights |= right::DERIVE;
        }
        let (accepted, zones) = self.trust.policy(&path)?;
        let pins = self.pins.unwrap_or_else(|| path.with_extension("pins"));
        let relations = KnownRelations::at(pins.clone());
        let relations = relations.map_err(|error| Failure::io(&pins, &error))?;
        let config = Config {
            listen: self.listen.iter().map(|text| address(text)).collect(),
            server: address(&self.server),
            tls,
            keys,
            terms: Some(TicketTerms {
                accepted,
                zones,
                lifetime: Duration::from_secs(self.ticket_lifetime),
                truths: self.comparison_budget,
                rights,
            }),
            plaintext_constants: match self.plaintext_constants {
                Constants::Refuse => PlaintextConstants::Refuse,
                Constants::Allow => PlaintextConstants::Allow,
            },
            pinned: self.pinned,
            adopted: self.adopted.into_iter().collect(),
            adopted_databases: self.adopted_databases.into_iter().collect(),
            relations: Arc::new(relations),
            connections_max: self.connections,
        };
        let failed = |error: std::io::Error| Failure::new(&code::IO, error.to_string());
        let proxy = Proxy::bind(config).map_err(failed)?;
        let addresses = proxy.addresses().map_err(failed)?;
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        note(&format!("listening at {}", addresses.join(", ")));
        proxy.run().map_err(failed)
    }
}

/// Parses `SCHEMA.RELATION.COLUMN`, with the column's class behind a colon if it is comparable. The
/// error is the text that clap shows.
fn parse_pinned_column(text: &str) -> Result<PinnedColumn, String> {
    PinnedColumn::parse(text)
        .ok_or_else(|| String::from("SCHEMA.RELATION.COLUMN, as in the catalog"))
}

/// Parses `SCHEMA.RELATION.COLUMN=[DATABASE.]SCHEMA.RELATION.COLUMN`. The error is the text that
/// clap shows.
pub(super) fn parse_adopted_column(text: &str) -> Result<(ColumnPath, FormerName), String> {
    parse_adopted(text).ok_or_else(|| {
        String::from(
            "SCHEMA.RELATION.COLUMN=[DATABASE.]SCHEMA.RELATION.COLUMN, now and before, as in the catalog",
        )
    })
}

/// Parses `DATABASE=DATABASE`. The error is the text that clap shows.
fn parse_database(text: &str) -> Result<(String, String), String> {
    parse_adopted_database(text).ok_or_else(|| String::from("the database's names, now and before"))
}
