//! What a node asks of the key server: docs/spec/keyserver.md, "Requests".
//!
//! Invariants N2 to N8. Every answer is compared with what was asked for: another key's material is
//! never handed on.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use serde::Serialize;
use serde_json::Value;
use strongroom_crypto::SecretKey;
use strongroom_format::hex::hex;
use ureq::http::Method;

use crate::address::{Address, key_name};
use crate::base64;
use crate::error::{Error, Kind, Result};
use crate::exchange::{Answer, Request, SECRET_MAX};
use crate::rounds::Servers;
use crate::wire::{
    Destroy, Ending, KeyRecord, Keys, Made, Material, Needs, NewKey, Report, ServerStatus,
};

/// Longest answer in JSON, in bytes: a list of all keys.
const JSON_MAX: usize = 64 * 1024 * 1024;

/// Keys in a part of the list, and the most parts.
const PAGE: usize = 1000;
const PAGES_MAX: usize = 10_000;

/// Longest escrow, in bytes.
const ESCROW_MAX: usize = 32 * 1024 * 1024;

/// Which version of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The newest.
    Latest,
    /// This one.
    Number(u64),
}

/// Key material that was fetched.
pub struct Fetched {
    /// Its version, also where the newest was asked for.
    pub version: u64,
    /// 32 bytes, in locked memory.
    pub material: SecretKey,
}

/// Asks a node's key servers. Each call ends within the total time of the configuration.
#[derive(Clone)]
pub struct Client {
    pub(crate) addresses: Vec<Address>,
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) request_timeout: Duration,
    pub(crate) total_timeout: Duration,
    /// For how long servers are asked again while nobody is at any of the addresses, if that is
    /// not the whole time.
    pub(crate) nobody_timeout: Option<Duration>,
}

/// For how long a client that does not wait asks again while nobody is at any of the addresses: a
/// server that is started anew is away for less.
const NOBODY_TIMEOUT: Duration = Duration::from_secs(1);

impl Client {
    /// The same client for somebody who waits for its answer: it gives up after a second where
    /// every connection is refused, or no host is known, since that is a server that does not run
    /// or an address that is wrong. Any other client asks again until its total time is over,
    /// because a server may start later than its nodes.
    #[must_use]
    pub fn not_waiting(mut self) -> Self {
        self.nobody_timeout = Some(NOBODY_TIMEOUT);
        self
    }

    /// The same client with another total time, for a caller with something else to fall back on.
    #[must_use]
    pub fn within(mut self, total: Duration) -> Self {
        self.total_timeout = total;
        self.request_timeout = self.request_timeout.min(total);
        self
    }

    /// The material of a key.
    ///
    /// # Errors
    /// All kinds but [`Kind::Uncertain`] and [`Kind::Exists`].
    pub fn material(&self, name: &str, version: Version) -> Result<Fetched> {
        let which = match version {
            Version::Latest => String::from("latest"),
            Version::Number(number) => number.to_string(),
        };
        let path = format!("/v1/keys/{}/versions/{which}/material", key_name(name)?);
        let answer = self.ask(&Request {
            is_secret: true,
            ..Request::get(path, SECRET_MAX)
        })?;
        let found: Material<'_> = parsed(&answer)?;
        let wanted = match version {
            Version::Latest => found.version,
            Version::Number(number) => number,
        };
        if found.name != name || found.version != wanted {
            return Err(malformed("it is about another key"));
        }
        let material = base64::key(found.material.as_bytes())?
            .ok_or_else(|| malformed("the material is not 32 bytes in base64"))?;
        Ok(Fetched {
            version: found.version,
            material,
        })
    }

    /// Makes a key; the node that made it is granted it. The number of its first version.
    ///
    /// # Errors
    /// [`Kind::Exists`], [`Kind::Uncertain`] and others.
    pub fn create(&self, name: &str) -> Result<u64> {
        let body = json(&NewKey {
            name: key_name(name)?,
        })?;
        let answer = self.ask(&change(String::from("/v1/keys"), &body, false))?;
        made(&answer, name)
    }

    /// Makes a new version of a key; older ones stay for opening. The number of the new one.
    ///
    /// # Errors
    /// [`Kind::Uncertain`] and others.
    pub fn rotate(&self, name: &str) -> Result<u64> {
        let path = format!("/v1/keys/{}/rotate", key_name(name)?);
        made(&self.ask(&change(path, b"{}", false))?, name)
    }

    /// The keys that this client is granted; an administrator's are all.
    ///
    /// # Errors
    /// As [`Client::material`].
    pub fn keys(&self) -> Result<Vec<KeyRecord>> {
        let mut all: Vec<KeyRecord> = Vec::new();
        for _ in 0..PAGES_MAX {
            let path = match all.last() {
                None => format!("/v1/keys?limit={PAGE}"),
                Some(last) => format!("/v1/keys?limit={PAGE}&after={}", key_name(&last.name)?),
            };
            let mut page: Keys = parsed(&self.ask(&Request::get(path, JSON_MAX))?)?;
            let goes_on = page
                .keys
                .first()
                .is_none_or(|first| all.last().is_none_or(|last| first.name > last.name));
            if !goes_on {
                return Err(malformed("the list of keys does not go on"));
            }
            let is_last = !page.more || page.keys.is_empty();
            all.append(&mut page.keys);
            if is_last {
                return Ok(all);
            }
        }
        Err(malformed("the list of keys does not end"))
    }

    /// One key.
    ///
    /// # Errors
    /// As [`Client::material`].
    pub fn key(&self, name: &str) -> Result<KeyRecord> {
        let path = format!("/v1/keys/{}", key_name(name)?);
        let key: KeyRecord = parsed(&self.ask(&Request::get(path, JSON_MAX))?)?;
        match key.name == name {
            true => Ok(key),
            false => Err(malformed("it is about another key")),
        }
    }

    /// Forbids the use of a key, until it is enabled.
    ///
    /// # Errors
    /// As [`Client::material`].
    pub fn disable(&self, name: &str) -> Result<()> {
        self.act(name, "disable", b"{}")
    }

    /// Allows the use of a disabled key.
    ///
    /// # Errors
    /// As [`Client::material`].
    pub fn enable(&self, name: &str) -> Result<()> {
        self.act(name, "enable", b"{}")
    }

    /// Has a key destroyed after a time, the server's own where none is given. What has become of
    /// it: as a rule it waits for that time.
    ///
    /// # Errors
    /// As [`Client::material`].
    pub fn destroy(&self, name: &str, after: Option<Duration>) -> Result<Ending> {
        let after_seconds = after.map(|after| after.as_secs());
        let path = format!("/v1/keys/{}/destroy", key_name(name)?);
        let body = json(&Destroy { after_seconds })?;
        let ending: Ending = parsed(&self.ask(&change(path, &body, true))?)?;
        match ending.name == name {
            true => Ok(ending),
            false => Err(malformed("it is about another key")),
        }
    }

    /// What needs a key, as far as nodes have reported it.
    ///
    /// # Errors
    /// As [`Client::material`].
    pub fn needs(&self, name: &str) -> Result<Needs> {
        let path = format!("/v1/keys/{}/needs", key_name(name)?);
        parsed(&self.ask(&Request::get(path, JSON_MAX))?)
    }

    /// Calls off a destruction whose time has not come.
    ///
    /// # Errors
    /// As [`Client::material`].
    pub fn restore(&self, name: &str) -> Result<()> {
        self.act(name, "restore", b"{}")
    }

    fn act(&self, name: &str, what: &str, body: &[u8]) -> Result<()> {
        let path = format!("/v1/keys/{}/{what}", key_name(name)?);
        self.ask(&change(path, body, true)).map(drop)
    }

    /// Keeps a copy of an object's header. The bytes must be sealed: the server and its backups see
    /// them.
    ///
    /// # Errors
    /// As [`Client::material`].
    pub fn put_escrow(&self, object_id: &[u8; 16], sealed: &[u8]) -> Result<()> {
        if sealed.len() > ESCROW_MAX {
            return Err(Error::new(Kind::Refused, "an escrow has at most 32 MiB"));
        }
        self.ask(&Request {
            method: Method::PUT,
            content_type: "application/octet-stream",
            ..change(format!("/v1/escrow/{}", hex(object_id)), sealed, true)
        })
        .map(drop)
    }

    /// The copy of an object's header.
    ///
    /// # Errors
    /// As [`Client::material`].
    pub fn escrow(&self, object_id: &[u8; 16]) -> Result<Vec<u8>> {
        let path = format!("/v1/escrow/{}", hex(object_id));
        let answer = self.ask(&Request::get(path, ESCROW_MAX))?;
        Ok(answer.body.bytes().to_vec())
    }

    /// Removes the copy of an object's header.
    ///
    /// # Errors
    /// As [`Client::material`].
    pub fn delete_escrow(&self, object_id: &[u8; 16]) -> Result<()> {
        self.ask(&Request {
            method: Method::DELETE,
            ..Request::get(format!("/v1/escrow/{}", hex(object_id)), JSON_MAX)
        })
        .map(drop)
    }

    /// Says how an object stands, for the fleet page.
    ///
    /// # Errors
    /// As [`Client::material`].
    pub fn report(&self, object_id: &[u8; 16], report: &Report) -> Result<()> {
        let body = json(report)?;
        self.ask(&Request {
            method: Method::PUT,
            ..change(format!("/v1/objects/{}", hex(object_id)), &body, true)
        })
        .map(drop)
    }

    /// What the first server that answers says of itself.
    ///
    /// # Errors
    /// As [`Client::material`].
    pub fn status(&self) -> Result<ServerStatus> {
        parsed(&self.ask(&Request::get(String::from("/v1/status"), JSON_MAX))?)
    }

    /// Any other request of docs/spec/keyserver.md in JSON, for administration. `path` is made of
    /// checked parts and holds no secret. `repeatable`: asking twice is asking once.
    ///
    /// # Errors
    /// All kinds. [`Kind::Refused`] for a path with characters that would have to be quoted.
    pub fn call(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
        repeatable: bool,
    ) -> Result<Value> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-?=&".contains(&byte);
        if !path.starts_with("/v1/") || !path.bytes().all(plain) || path.contains("/..") {
            return Err(Error::new(Kind::Refused, "not a path of the key server"));
        }
        let body = body.map(json).transpose()?;
        let answer = self.ask(&Request {
            method: method.clone(),
            body: body.as_deref(),
            repeatable,
            ..Request::get(path.to_owned(), JSON_MAX)
        })?;
        match answer.body.bytes() {
            [] => Ok(Value::Null),
            _ => parsed(&answer),
        }
    }

    pub(crate) fn ask(&self, request: &Request<'_>) -> Result<Answer> {
        let servers = Servers {
            addresses: &self.addresses,
            tls: &self.tls,
            request_timeout: self.request_timeout,
            total_timeout: self.total_timeout,
            nobody_timeout: self.nobody_timeout,
        };
        servers.ask(request)
    }
}

pub(crate) fn change(path: String, body: &[u8], repeatable: bool) -> Request<'_> {
    Request {
        method: Method::POST,
        path,
        body: Some(body),
        content_type: "application/json",
        answer_max: JSON_MAX,
        is_secret: false,
        repeatable,
    }
}

fn made(answer: &Answer, name: &str) -> Result<u64> {
    let made: Made = parsed(answer)?;
    match made.name == name {
        true => Ok(made.version),
        false => Err(malformed("it is about another key")),
    }
}

fn json(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| Error::new(Kind::Host, error.to_string()))
}

/// An answer in JSON. The parser's message may quote the answer, so it is not passed on.
pub(crate) fn parsed<'a, T: serde::Deserialize<'a>>(answer: &'a Answer) -> Result<T> {
    serde_json::from_slice(answer.body.bytes())
        .map_err(|_| malformed("it is not the JSON that was asked for"))
}

pub(crate) fn malformed(why: &str) -> Error {
    Error::new(Kind::Malformed, why)
}
