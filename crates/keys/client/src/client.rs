//! The requests of a node to the key server: docs/spec/keyserver.md, "Requests".
//!
//! Invariants N2 to N8. Every response is compared with the request: another key's material is
//! never returned.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use strongroom_crypto::SecretKey;
use strongroom_format::hex::hex;
use strongroom_tls::rustls::ClientConfig;
use ureq::http::Method;

use crate::address::{Address, checked_key_name};
use crate::base64;
use crate::error::{Error, Kind, Result};
use crate::exchange::{Request, Response, SECRET_MAX};
use crate::rounds::Servers;
use crate::wire::{
    Destroy, Ending, KeyRecord, Keys, Made, Material, Needs, NewKey, Report, ServerStatus,
};

/// The longest response in JSON, in bytes.
const JSON_MAX: usize = 64 * 1024 * 1024;

/// Keys in a page of the list of keys.
const PAGE: usize = 1000;
/// The most pages of the list.
const PAGES_MAX: usize = 10_000;

/// The longest escrow, in bytes.
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

/// Sends requests to a node's key servers. Each call ends within the total time of the
/// configuration.
#[derive(Clone)]
pub struct Client {
    pub(crate) addresses: Vec<Address>,
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) request_timeout: Duration,
    pub(crate) total_timeout: Duration,
    /// For how long servers are asked again while all of them are absent, if that is not the whole
    /// time.
    pub(crate) absence_timeout: Option<Duration>,
}

/// For how long a client that does not wait asks again while all servers are absent: a server that
/// is restarted is absent for less.
const ABSENCE_TIMEOUT: Duration = Duration::from_secs(1);

impl Client {
    /// Returns the same client for a person who waits for the result. It gives up after about a
    /// second, with [`Kind::Absent`], if every connection is refused or no host is known: then the
    /// server does not run, or the address is wrong. Any other client repeats a request until its
    /// total time is over, because a server may start later than its nodes.
    #[must_use]
    pub fn not_waiting(mut self) -> Self {
        self.absence_timeout = Some(ABSENCE_TIMEOUT);
        self
    }

    /// Returns the same client with another total time for each call, for a caller with something
    /// else to fall back on. The time for one request is lowered to it if it is longer.
    #[must_use]
    pub fn within(mut self, total: Duration) -> Self {
        self.total_timeout = total;
        self.request_timeout = self.request_timeout.min(total);
        self
    }

    /// Fetches the bytes of a key: of the newest version, or of the given one. The server writes a
    /// row of its audit log.
    ///
    /// # Errors
    /// [`Kind::Refused`] for a name that no key may have; [`Kind::Denied`], [`Kind::NotFound`],
    /// [`Kind::Disabled`] or [`Kind::Destroyed`] as the server decides; [`Kind::Malformed`] if the
    /// response is about another key or version, or the material is not 32 bytes in base64;
    /// [`Kind::Unreachable`], [`Kind::Absent`], [`Kind::Sealed`], [`Kind::Busy`],
    /// [`Kind::NotTrusted`] or [`Kind::NotAccepted`] if no server decided; [`Kind::Host`] without
    /// locked memory.
    pub fn material(&self, name: &str, version: Version) -> Result<Fetched> {
        let which = match version {
            Version::Latest => String::from("latest"),
            Version::Number(number) => number.to_string(),
        };
        let path = format!(
            "/v1/keys/{}/versions/{which}/material",
            checked_key_name(name)?
        );
        let response = self.ask(&Request {
            is_secret: true,
            ..Request::get(path, SECRET_MAX)
        })?;
        let found: Material<'_> = parse_json(&response)?;
        let wanted = match version {
            Version::Latest => found.version,
            Version::Number(number) => number,
        };
        if found.name != name || found.version != wanted {
            return Err(malformed("it is about another key"));
        }
        let material = base64::decode_key(found.material.as_bytes())?
            .ok_or_else(|| malformed("the material is not 32 bytes in base64"))?;
        Ok(Fetched {
            version: found.version,
            material,
        })
    }

    /// Makes a key at the server, which grants it to this client if that is a node. Returns the
    /// number of its first version. The request is sent only once.
    ///
    /// # Errors
    /// [`Kind::Exists`] if there is a key of that name; [`Kind::Uncertain`] if the request was sent
    /// and no response says whether the key was made; [`Kind::Refused`] for an invalid name;
    /// [`Kind::Denied`] without the right to make keys; [`Kind::Malformed`] if the response names
    /// another key; those of a request that no server decided ([`Client::material`]).
    pub fn create(&self, name: &str) -> Result<u64> {
        let body = json(&NewKey {
            name: checked_key_name(name)?,
        })?;
        let response = self.ask(&post(String::from("/v1/keys"), &body, false))?;
        made_version(&response, name)
    }

    /// Makes a new version of a key and returns its number. Older versions still open what they
    /// have sealed. The request is sent only once.
    ///
    /// # Errors
    /// [`Kind::Uncertain`] if the request was sent and no response says whether the version was
    /// made; otherwise as [`Client::material`], such as [`Kind::Denied`] without the right,
    /// [`Kind::NotFound`] without such a key, [`Kind::Unreachable`] if no server answers.
    pub fn rotate(&self, name: &str) -> Result<u64> {
        let path = format!("/v1/keys/{}/rotate", checked_key_name(name)?);
        made_version(&self.ask(&post(path, b"{}", false))?, name)
    }

    /// Fetches the list of the keys that this client is granted, or of all keys for an
    /// administrator or a viewer, in order of their names and without their bytes.
    ///
    /// # Errors
    /// [`Kind::Malformed`] if the pages of the list do not go on in order or do not end; otherwise
    /// as [`Client::material`], such as [`Kind::Denied`] without the right, [`Kind::Unreachable`]
    /// if no server answers.
    pub fn keys(&self) -> Result<Vec<KeyRecord>> {
        let mut all: Vec<KeyRecord> = Vec::new();
        for _ in 0..PAGES_MAX {
            let path = match all.last() {
                None => format!("/v1/keys?limit={PAGE}"),
                Some(last) => format!(
                    "/v1/keys?limit={PAGE}&after={}",
                    checked_key_name(&last.name)?
                ),
            };
            let mut page: Keys = parse_json(&self.ask(&Request::get(path, JSON_MAX))?)?;
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

    /// Fetches the description of one key, without its bytes.
    ///
    /// # Errors
    /// [`Kind::Malformed`] if the response is about another key; otherwise as [`Client::material`],
    /// such as [`Kind::Denied`] without the right, [`Kind::NotFound`] without such a key,
    /// [`Kind::Unreachable`] if no server answers.
    pub fn key(&self, name: &str) -> Result<KeyRecord> {
        let path = format!("/v1/keys/{}", checked_key_name(name)?);
        let key: KeyRecord = parse_json(&self.ask(&Request::get(path, JSON_MAX))?)?;
        match key.name == name {
            true => Ok(key),
            false => Err(malformed("it is about another key")),
        }
    }

    /// Has the server forbid the delivery of a key until it is enabled. For administrators.
    /// Repeating it has no further effect.
    ///
    /// # Errors
    /// [`Kind::Refused`] if the state of the key does not allow it; otherwise as
    /// [`Client::material`], such as [`Kind::Denied`] without the right, [`Kind::NotFound`] without
    /// such a key, [`Kind::Unreachable`] if no server answers.
    pub fn disable(&self, name: &str) -> Result<()> {
        self.act(name, "disable", b"{}")
    }

    /// Has the server allow the delivery of a disabled key again. For administrators. Repeating it
    /// has no further effect.
    ///
    /// # Errors
    /// [`Kind::Refused`] if the state of the key does not allow it; otherwise as
    /// [`Client::material`], such as [`Kind::Denied`] without the right, [`Kind::NotFound`] without
    /// such a key, [`Kind::Unreachable`] if no server answers.
    pub fn enable(&self, name: &str) -> Result<()> {
        self.act(name, "enable", b"{}")
    }

    /// Has a key destroyed after a time, or after the server's own time if `after` is `None`.
    /// Returns the key's new state: usually the key waits for that time, or for the consent of a
    /// second administrator. `after` is rounded down to whole seconds.
    ///
    /// # Errors
    /// [`Kind::Malformed`] if the response is about another key; [`Kind::Refused`] if the request
    /// conflicts with another administrator's; otherwise as [`Client::material`], such as
    /// [`Kind::Denied`] without the right, [`Kind::NotFound`] without such a key,
    /// [`Kind::Unreachable`] if no server answers.
    pub fn destroy(&self, name: &str, after: Option<Duration>) -> Result<Ending> {
        let after_seconds = after.map(|after| after.as_secs());
        let path = format!("/v1/keys/{}/destroy", checked_key_name(name)?);
        let body = json(&Destroy { after_seconds })?;
        let ending: Ending = parse_json(&self.ask(&post(path, &body, true))?)?;
        match ending.name == name {
            true => Ok(ending),
            false => Err(malformed("it is about another key")),
        }
    }

    /// Fetches which objects would be lost with a key, as far as nodes have reported them, and the
    /// nodes that are granted it.
    ///
    /// # Errors
    /// As [`Client::material`], such as [`Kind::Denied`] without the right, [`Kind::NotFound`]
    /// without such a key, [`Kind::Unreachable`] if no server answers.
    pub fn needs(&self, name: &str) -> Result<Needs> {
        let path = format!("/v1/keys/{}/needs", checked_key_name(name)?);
        parse_json(&self.ask(&Request::get(path, JSON_MAX))?)
    }

    /// Has the server cancel a destruction that has not happened yet. A key whose destruction was
    /// scheduled is disabled afterwards.
    ///
    /// # Errors
    /// [`Kind::Refused`] if no destruction is scheduled or requested; otherwise as
    /// [`Client::material`], such as [`Kind::Denied`] without the right, [`Kind::NotFound`] without
    /// such a key, [`Kind::Unreachable`] if no server answers.
    pub fn restore(&self, name: &str) -> Result<()> {
        self.act(name, "restore", b"{}")
    }

    /// Sends `POST /v1/keys/NAME/WHAT` with a JSON body and ignores the content of the response.
    /// May be sent several times.
    ///
    /// # Errors
    /// [`Kind::Refused`] for an invalid name; otherwise as [`Client::material`], such as
    /// [`Kind::Denied`] without the right, [`Kind::NotFound`] without such a key,
    /// [`Kind::Unreachable`] if no server answers.
    fn act(&self, name: &str, what: &str, body: &[u8]) -> Result<()> {
        let path = format!("/v1/keys/{}/{what}", checked_key_name(name)?);
        self.ask(&post(path, body, true)).map(drop)
    }

    /// Stores a copy of an object's header at the server, in place of a former one. The bytes must
    /// be sealed, because the server and its backups hold them.
    ///
    /// # Errors
    /// [`Kind::Refused`] for more than 32 MiB, before anything is sent; otherwise as
    /// [`Client::material`], such as [`Kind::Denied`] without the right, [`Kind::Unreachable`] if
    /// no server answers.
    pub fn put_escrow(&self, object_id: &[u8; 16], sealed: &[u8]) -> Result<()> {
        if sealed.len() > ESCROW_MAX {
            return Err(Error::new(Kind::Refused, "an escrow has at most 32 MiB"));
        }
        self.ask(&Request {
            method: Method::PUT,
            content_type: "application/octet-stream",
            ..post(format!("/v1/escrow/{}", hex(object_id)), sealed, true)
        })
        .map(drop)
    }

    /// Fetches the copy of an object's header that the server keeps.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if there is none or another node owns it; otherwise as
    /// [`Client::material`], such as [`Kind::Denied`] without the right, [`Kind::Unreachable`] if
    /// no server answers.
    pub fn escrow(&self, object_id: &[u8; 16]) -> Result<Vec<u8>> {
        let path = format!("/v1/escrow/{}", hex(object_id));
        let response = self.ask(&Request::get(path, ESCROW_MAX))?;
        Ok(response.body.bytes().to_vec())
    }

    /// Removes the copy of an object's header from the server.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if there is none, which may also be because an earlier attempt of this
    /// call removed it; otherwise as [`Client::material`], such as [`Kind::Denied`] without the
    /// right, [`Kind::Unreachable`] if no server answers.
    pub fn delete_escrow(&self, object_id: &[u8; 16]) -> Result<()> {
        self.ask(&Request {
            method: Method::DELETE,
            ..Request::get(format!("/v1/escrow/{}", hex(object_id)), JSON_MAX)
        })
        .map(drop)
    }

    /// Sends the state of an object to the server, for the fleet page. It replaces the former
    /// report.
    ///
    /// # Errors
    /// As [`Client::material`], such as [`Kind::Denied`] without the right, [`Kind::Unreachable`]
    /// if no server answers.
    pub fn report(&self, object_id: &[u8; 16], report: &Report) -> Result<()> {
        let body = json(report)?;
        self.ask(&Request {
            method: Method::PUT,
            ..post(format!("/v1/objects/{}", hex(object_id)), &body, true)
        })
        .map(drop)
    }

    /// Fetches the status of the first server that responds: whether it is sealed, and more. Needs
    /// no certificate.
    ///
    /// # Errors
    /// As [`Client::material`], such as [`Kind::Unreachable`] if no server answers.
    pub fn status(&self) -> Result<ServerStatus> {
        parse_json(&self.ask(&Request::get(String::from("/v1/status"), JSON_MAX))?)
    }

    /// Sends any other request of docs/spec/keyserver.md, for administration, and returns the JSON
    /// of the response, or `Null` for an empty one. `path` begins with `/v1/`, is made of checked
    /// parts and holds no secret. `is_repeatable`: sending it twice has the same effect as once;
    /// otherwise it is not sent again once it may have reached a server.
    ///
    /// # Errors
    /// [`Kind::Refused`] for a path with characters that would have to be quoted, or with `/..`,
    /// and for what a state does not allow; [`Kind::Uncertain`] if a request that is not repeatable
    /// may have taken effect; [`Kind::Exists`] for a name that is taken; otherwise as
    /// [`Client::material`], such as [`Kind::Denied`] without the right, [`Kind::NotFound`] without
    /// what the path names, [`Kind::Unreachable`] if no server answers.
    pub fn call(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
        is_repeatable: bool,
    ) -> Result<Value> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-?=&".contains(&byte);
        if !path.starts_with("/v1/") || !path.bytes().all(is_plain) || path.contains("/..") {
            return Err(Error::new(Kind::Refused, "not a path of the key server"));
        }
        let body = body.map(json).transpose()?;
        let response = self.ask(&Request {
            method: method.clone(),
            body: body.as_deref(),
            is_repeatable,
            ..Request::get(path.to_owned(), JSON_MAX)
        })?;
        match response.body.bytes() {
            [] => Ok(Value::Null),
            _ => parse_json(&response),
        }
    }

    /// Sends a request to the servers in order, and again after pauses, and returns the response of
    /// the one that fulfilled it. Blocks for at most the total time. Errors are those of
    /// `Servers::ask`.
    pub(crate) fn ask(&self, request: &Request<'_>) -> Result<Response> {
        let servers = Servers {
            addresses: &self.addresses,
            tls: &self.tls,
            request_timeout: self.request_timeout,
            total_timeout: self.total_timeout,
            absence_timeout: self.absence_timeout,
        };
        servers.ask(request)
    }
}

/// Builds a request that posts `body` as JSON. The response may have 64 MiB and is not treated as
/// secret.
pub(crate) fn post(path: String, body: &[u8], is_repeatable: bool) -> Request<'_> {
    Request {
        method: Method::POST,
        path,
        body: Some(body),
        content_type: "application/json",
        response_max: JSON_MAX,
        is_secret: false,
        is_repeatable,
    }
}

/// Returns the number of the version that was made. [`Kind::Malformed`] if the response is not such
/// JSON, or about a key other than `name`.
fn made_version(response: &Response, name: &str) -> Result<u64> {
    let made: Made = parse_json(response)?;
    match made.name == name {
        true => Ok(made.version),
        false => Err(malformed("it is about another key")),
    }
}

/// Writes a value as JSON. [`Kind::Host`] if that fails.
fn json(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| Error::new(Kind::Host, error.to_string()))
}

/// Parses the body of a response as JSON. [`Kind::Malformed`] if it does not fit `T`. The parser's
/// message may quote the response, so it is dropped.
pub(crate) fn parse_json<'a, T: serde::Deserialize<'a>>(response: &'a Response) -> Result<T> {
    serde_json::from_slice(response.body.bytes())
        .map_err(|_| malformed("it is not the JSON that was asked for"))
}

/// Makes the error of a response that does not fit the request ([`Kind::Malformed`], SR-8404).
pub(crate) fn malformed(why: &str) -> Error {
    Error::new(Kind::Malformed, why)
}
