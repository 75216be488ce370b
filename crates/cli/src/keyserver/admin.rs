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
    /// Reads the node's configuration and returns a client that uses its certificate. The client
    /// gives up after about a second if no server can be reached. SR-8400 or SR-8401 if the
    /// configuration or one of its files cannot be used.
    pub(super) fn client(&self) -> Result<Client, Failure> {
        let node = Node::load(&Node::path(self.node.as_deref()))?;
        Ok(node.client().not_waiting())
    }

    /// Requests `path` by GET and returns the JSON of the response. The request may be repeated.
    /// Errors: those of [`Self::client`]; SR-8402 if no server answers; what the server refuses.
    pub(super) fn get(&self, path: &str) -> Result<Value, Failure> {
        Ok(self.client()?.call(&Method::GET, path, None, true)?)
    }

    /// Sends a request that changes something and returns the JSON of the response. It is not sent
    /// again once it may have reached a server: SR-8405 if it is not known whether it took effect.
    /// Other errors: those of [`Self::client`]; SR-8402 if no server answers; what the server
    /// refuses.
    pub(super) fn change(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        Ok(self.client()?.call(method, path, body, false)?)
    }

    /// Returns a function that requests a path as [`Self::get`] does, with one client for all
    /// calls. SR-8400 or SR-8401 if the configuration or one of its files cannot be used.
    pub(super) fn asking(&self) -> Result<impl FnMut(&str) -> Result<Value, Failure>, Failure> {
        let client = self.client()?;
        Ok(move |path: &str| Ok(client.call(&Method::GET, path, None, true)?))
    }

    /// Requests a whole list, page by page: the member `list` of the responses at `path`. `key` is
    /// the member of an item after which the next page begins. Errors as [`Self::get`].
    pub(super) fn all(&self, path: &str, list: &str, key: &str) -> Result<Vec<Value>, Failure> {
        let mut items = Vec::new();
        let key = |item: &Value| plain(&item[key]);
        self.pages(path, list, String::new(), key, |item| {
            items.push(item);
            Ok(true)
        })?;
        Ok(items)
    }

    /// Requests the items of a list that come after `after`, page by page, and calls `each` with
    /// every item until it returns `Ok(false)` or there are no more. `key` returns what the next
    /// page comes after. Errors as [`Self::get`], and those of `each`.
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
    /// Returns a client for requests that need no certificate: for the servers of `--server`,
    /// otherwise for those of the configuration, whose certificate is used if it names one. Errors:
    /// SR-8408 for an address that is not valid, SR-8400 or SR-8401 for the configuration or a
    /// file.
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

/// Returns `text` in lower case if it is an identifier of exactly `digits` hexadecimal digits;
/// otherwise `None`.
pub(super) fn hex_id(text: &str, digits: usize) -> Option<String> {
    let is_id = text.len() == digits && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_id.then(|| text.to_ascii_lowercase())
}

/// Returns `name`, which is then safe as a part of a request's path. SR-2013 if it is no valid name
/// of a key or a client.
pub(super) fn named(name: &str) -> Result<&str, Failure> {
    match strongroom_keys_client::key_name_is_valid(name) {
        true => Ok(name),
        false => Err(Failure::new(
            &code::KEY_NAME,
            strongroom_format::text::printable(name),
        )),
    }
}

/// Makes an SR-8404 failure: the member `what` is missing in the server's response.
pub(super) fn malformed(what: &str) -> Failure {
    Failure::new(&code::KEYSERVER_ANSWER, format!("no `{what}` in it"))
}

/// Returns a text with control characters escaped, a number as text, `true` as "yes", and an empty
/// text for everything else.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => strongroom_format::text::printable(text),
        Value::Number(number) => number.to_string(),
        Value::Bool(true) => "yes".to_owned(),
        _ => String::new(),
    }
}

/// Returns a number of seconds since the Unix epoch as a date and time in UTC; empty if `value` is
/// no such number.
pub(super) fn time(value: &Value) -> String {
    value
        .as_u64()
        .map_or_else(String::new, strongroom_inspect::time::rfc3339)
}
