//! What the verbs of administration share: whose certificate is used, and how lists are read.
//!
//! Must not: ask twice for what must be done once.

use std::path::PathBuf;

use clap::Args;
use serde_json::Value;
use strongroom_format::code;
use strongroom_keys_client::{Client, Method, Node};

use crate::failure::Failure;

/// With whose certificate, and where.
#[derive(Args)]
pub(super) struct ServerOptions {
    #[arg(
        long,
        value_name = "FILE",
        help = "Configuration with servers, authority and certificate [default: STRONGROOM_NODE, else /etc/strongroom/node.toml]"
    )]
    pub(super) node: Option<PathBuf>,
}

impl ServerOptions {
    /// A client with this configuration.
    pub(super) fn client(&self) -> Result<Client, Failure> {
        let node = Node::load(&Node::path(self.node.as_deref()))?;
        Ok(node.client().not_waiting())
    }

    /// Reads something.
    pub(super) fn get(&self, path: &str) -> Result<Value, Failure> {
        Ok(self.client()?.call(&Method::GET, path, None, true)?)
    }

    /// Changes something, once.
    pub(super) fn change(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        Ok(self.client()?.call(method, path, body, false)?)
    }

    /// As [`Self::get`], for many paths.
    pub(super) fn asking(&self) -> Result<impl FnMut(&str) -> Result<Value, Failure>, Failure> {
        let client = self.client()?;
        Ok(move |path: &str| Ok(client.call(&Method::GET, path, None, true)?))
    }

    /// A whole list. `key` is the member that the next page comes after.
    pub(super) fn all(&self, path: &str, list: &str, key: &str) -> Result<Vec<Value>, Failure> {
        let mut items = Vec::new();
        let key = |item: &Value| plain(&item[key]);
        self.pages(path, list, String::new(), key, |item| {
            items.push(item);
            Ok(true)
        })?;
        Ok(items)
    }

    /// Items of a list that come after `after`, until `each` says that it has enough. `key` is what
    /// the next page comes after.
    pub(super) fn pages(
        &self,
        path: &str,
        list: &str,
        after: String,
        key: impl Fn(&Value) -> String,
        each: impl FnMut(Value) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        self.client()?.pages(path, list, after, key, each)
    }
}

/// Whom to ask for what needs no certificate.
#[derive(Args)]
pub(super) struct AnybodyOptions {
    /// A server's address, in place of a configuration; may be repeated. No certificate is shown
    #[arg(
        long = "server",
        value_name = "URL",
        requires = "authority",
        conflicts_with = "node"
    )]
    servers: Vec<String>,
    /// The certificate of the servers' authority
    #[arg(long, value_name = "FILE", requires = "servers")]
    authority: Option<PathBuf>,
    #[command(flatten)]
    server: ServerOptions,
}

impl AnybodyOptions {
    /// A client: with the certificate that the configuration names, if it names one.
    pub(super) fn client(&self) -> Result<Client, Failure> {
        let client = match &self.authority {
            Some(authority) => Node::client_without_certificate(&self.servers, authority)?,
            None => {
                Node::client_with_or_without_certificate(&Node::path(self.server.node.as_deref()))?
            }
        };
        Ok(client.not_waiting())
    }
}

/// An identifier of `digits` hexadecimal digits, as the server writes it; `None` for another text.
pub(super) fn hex_id(text: &str, digits: usize) -> Option<String> {
    let is_id = text.len() == digits && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_id.then(|| text.to_ascii_lowercase())
}

/// A name as part of an address.
pub(super) fn named(name: &str) -> Result<&str, Failure> {
    match strongroom_keys_client::key_name_is_valid(name) {
        true => Ok(name),
        false => Err(Failure::new(
            &code::KEY_NAME,
            strongroom_format::text::printable(name),
        )),
    }
}

pub(super) fn malformed(what: &str) -> Failure {
    Failure::new(&code::KEYSERVER_ANSWER, format!("no `{what}` in it"))
}

/// A text or a number as text; of anything else nothing. Control characters do not reach the
/// terminal.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => strongroom_format::text::printable(text),
        Value::Number(number) => number.to_string(),
        Value::Bool(true) => "yes".to_owned(),
        _ => String::new(),
    }
}

/// A time for people.
pub(super) fn time(value: &Value) -> String {
    value
        .as_u64()
        .map_or_else(String::new, strongroom_inspect::time::rfc3339)
}
