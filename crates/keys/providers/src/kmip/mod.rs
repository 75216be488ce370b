//! Provider `kmip`: the root key is sealed by a key of a KMIP server, which that key does not
//! leave.
//!
//! `kmip:HOST[:PORT]?name=KEY&ca=FILE&certificate=FILE&private-key=FILE`. Instead of `name` there
//! may be `id`, the key's unique identifier. `method` says how: `gcm` or `cbc`, by the server;
//! `get`, with a key that the server hands out, where it cannot encrypt; without it, `gcm`, or else
//! `cbc`.
//!
//! Invariants: the identifier of the key that sealed stands in the blob, so a new key of the same
//! name does not lock anyone out; a key that is not active neither seals nor opens, also where this
//! client does the sealing.
//!
//! Must not: create, change or destroy a key at the server.

mod here;
mod message;
mod session;
pub(crate) mod ttlv;

use strongroom_crypto::{SecretKey, fill_random};
use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_keyring::provider::{Made, Registered};

use self::here::{fetched, unwrapped_here, wrapped_here};
use self::message::{Cipher, Minor, Operation, Reason, V1_2, V1_4, by_name, parameters, tag};
use self::session::{Address, Session};
use self::ttlv::Value;
use crate::network::deadline::Deadline;
use crate::network::error;
use crate::network::locator::Locator;
use crate::network::tls::Trust;
use crate::network::wrapped::{Remote, Sealing};

/// The registry line of this provider.
pub(crate) const REGISTERED: Registered = Registered {
    name: NAME,
    number: NUMBER,
    acts: true,
    make,
};

const NAME: &str = "kmip";
const NUMBER: u16 = 11;
/// The port that is registered for KMIP.
const PORT: u16 = 5696;

const OPTIONS: &[&str] = &[
    "name",
    "id",
    "ca",
    "certificate",
    "private-key",
    "method",
    "timeout",
];

fn make(argument: &str) -> Made {
    let mut locator = Locator::parse(argument, OPTIONS)?;
    locator.absolute(&["ca", "certificate", "private-key"])?;
    let key = match (locator.option("name"), locator.option("id")) {
        (Some(name), None) => Key::Name(name.to_owned()),
        (None, Some(id)) => Key::Id(id.to_owned()),
        _ => return Err("either `name` or `id` of the key is wanted"),
    };
    let method = match locator.option("method") {
        None => None,
        Some("gcm") => Some(Method::Gcm),
        Some("cbc") => Some(Method::Cbc),
        Some("get") => Some(Method::Fetched),
        Some(_) => return Err("`method` is gcm, cbc or get"),
    };
    let identity = ("certificate", "private-key");
    let identity = (locator.path(identity.0), locator.path(identity.1));
    let (Some(authority), (Some(certificate), Some(private_key))) = (locator.path("ca"), identity)
    else {
        return Err("`ca`, `certificate` and `private-key` are wanted");
    };
    let remote = Kmip {
        address: address(&locator.place)?,
        trust: Trust {
            authority: Some(authority),
            identity: Some((certificate, private_key)),
        },
        key,
        method,
    };
    Ok(Box::new(Sealing {
        name: NAME,
        number: NUMBER,
        argument: Sealing::<Kmip>::argument_of(&locator.text(), argument),
        timeout: locator.timeout()?,
        remote,
    }))
}

/// `HOST`, `HOST:PORT`, `[ADDRESS]` or `[ADDRESS]:PORT`.
fn address(place: &str) -> Result<Address, &'static str> {
    const WRONG: &str = "the address is HOST or HOST:PORT";
    let (host, rest) = match place.strip_prefix('[') {
        Some(inner) => inner.split_once(']').ok_or(WRONG)?,
        None => place.split_at(place.find(':').unwrap_or(place.len())),
    };
    let port = match rest.strip_prefix(':') {
        Some(port) => port.parse().map_err(|_| WRONG)?,
        None if rest.is_empty() => PORT,
        None => return Err(WRONG),
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    match !host.is_empty() && host.bytes().all(plain) && port != 0 {
        true => Ok(Address {
            host: host.to_owned(),
            port,
        }),
        false => Err(WRONG),
    }
}

/// Which key.
#[derive(Clone)]
enum Key {
    Name(String),
    Id(String),
}

/// How the secret is sealed; the first byte of what is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    Gcm = 1,
    Cbc = 2,
    Fetched = 3,
}

impl Method {
    /// Bytes of the initialisation vector, and of the tag.
    fn lengths(self) -> (usize, usize) {
        match self {
            Self::Gcm | Self::Fetched => (12, 16),
            Self::Cbc => (16, 0),
        }
    }
}

#[derive(Clone)]
struct Kmip {
    address: Address,
    trust: Trust,
    key: Key,
    method: Option<Method>,
}

impl Remote for Kmip {
    fn seal(
        &self,
        secret: &SecretKey,
        context: &[u8],
        deadline: Deadline,
    ) -> Result<Vec<u8>, Error> {
        let (this, secret, context) = (self.clone(), secret.try_clone()?, context.to_vec());
        deadline.bound(move || {
            this.sealed(&secret, &context, deadline)
                .map(|made| made.bytes())
        })
    }

    fn open(&self, sealed: &[u8], context: &[u8], deadline: Deadline) -> Result<SecretKey, Error> {
        let kept = Kept::parse(sealed);
        let damaged = || error(&code::PROVIDER_ANSWER, "the wrapped key is malformed");
        let (this, kept, context) = (self.clone(), kept.ok_or_else(damaged)?, context.to_vec());
        deadline.bound(move || this.opened(&kept, &context, deadline))
    }
}

/// What is kept of a sealed secret (docs/spec/keyring.md, "Blobs of servers").
struct Kept {
    method: Method,
    version: Minor,
    id: String,
    iv: Vec<u8>,
    tag: Vec<u8>,
    ciphertext: Vec<u8>,
}

impl Kept {
    fn bytes(&self) -> Vec<u8> {
        let length = u8::try_from(self.id.len()).unwrap_or(u8::MAX);
        let head = [self.method as u8, self.version.0, length];
        let id = self.id.as_bytes();
        [&head, id, &self.iv, &self.tag, &self.ciphertext].concat()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (&[method, version, length], rest) = bytes.split_first_chunk()?;
        let method = match method {
            1 => Method::Gcm,
            2 => Method::Cbc,
            3 => Method::Fetched,
            _ => return None,
        };
        let (id, rest) = rest.split_at_checked(usize::from(length))?;
        let (iv_length, tag_length) = method.lengths();
        let (iv, rest) = rest.split_at_checked(iv_length)?;
        let (tag, ciphertext) = rest.split_at_checked(tag_length)?;
        let version = Minor(version);
        let known = (V1_2..=V1_4).contains(&version) && !id.is_empty();
        (known && !ciphertext.is_empty()).then_some(Self {
            method,
            version,
            id: String::from_utf8(id.to_vec()).ok()?,
            iv: iv.to_vec(),
            tag: tag.to_vec(),
            ciphertext: ciphertext.to_vec(),
        })
    }
}

impl Kmip {
    fn sealed(
        &self,
        secret: &SecretKey,
        context: &[u8],
        deadline: Deadline,
    ) -> Result<Kept, Error> {
        let mut session = Session::open(&self.address, &self.trust, V1_2, deadline)?;
        session.version = highest(&mut session)?;
        let id = match &self.key {
            Key::Id(id) => id.clone(),
            Key::Name(name) => located(&mut session, name)?,
        };
        if id.is_empty() || id.len() > usize::from(u8::MAX) {
            return Err(error(
                &code::PROVIDER_ANSWER,
                "the key's identifier is too long",
            ));
        }
        let methods: &[Method] = match self.method {
            Some(Method::Gcm) => &[Method::Gcm],
            Some(Method::Cbc) => &[Method::Cbc],
            Some(Method::Fetched) => &[Method::Fetched],
            None if session.version >= V1_4 => &[Method::Gcm, Method::Cbc],
            None => &[Method::Cbc],
        };
        let mut why = Reason::NotSupported;
        for &method in methods {
            let made = match method {
                Method::Fetched => wrapped_here(&mut session, &id, secret, context)?,
                Method::Gcm => encrypted(&mut session, &id, Cipher::Gcm, secret, context)?,
                Method::Cbc => encrypted(&mut session, &id, Cipher::Cbc, secret, context)?,
            };
            match made {
                Ok(kept) => return Ok(kept),
                Err(reason @ Reason::NotSupported) => why = reason,
                Err(reason) => {
                    return Err(explained(&mut session, &id, reason, Operation::Encrypt));
                }
            }
        }
        Err(explained(&mut session, &id, why, Operation::Encrypt))
    }

    fn opened(&self, kept: &Kept, context: &[u8], deadline: Deadline) -> Result<SecretKey, Error> {
        let mut session = Session::open(&self.address, &self.trust, kept.version, deadline)?;
        if kept.method == Method::Fetched {
            let key = fetched(&mut session, &kept.id)?;
            return unwrapped_here(&key, kept, context);
        }
        let cipher = match kept.method {
            Method::Gcm => Cipher::Gcm,
            _ => Cipher::Cbc,
        };
        let done = session.ask(
            Operation::Decrypt,
            |to| {
                to.text(tag::UNIQUE_IDENTIFIER, &kept.id);
                parameters(to, cipher);
                to.bytes(tag::DATA, &kept.ciphertext);
                to.bytes(tag::IV, &kept.iv);
                if cipher == Cipher::Gcm {
                    to.bytes(tag::AUTHENTICATED_DATA, context);
                    to.bytes(tag::AUTHENTICATION_TAG, &kept.tag);
                }
            },
            |payload| {
                let data = payload.bytes(tag::DATA).unwrap_or_default();
                let mut key: [u8; 32] = data.try_into().map_err(|_| no_secret())?;
                Ok(SecretKey::take(&mut key)?)
            },
        )?;
        done.map_err(|reason| explained(&mut session, &kept.id, reason, Operation::Decrypt))
    }
}

fn no_secret() -> Error {
    error(
        &code::PROVIDER_ANSWER,
        "the response is not a secret of 32 bytes",
    )
}

/// The highest version that server and client speak.
fn highest(session: &mut Session) -> Result<Minor, Error> {
    let offered = session.ask(
        Operation::DiscoverVersions,
        |_| {},
        |payload| {
            let versions = payload.all(tag::PROTOCOL_VERSION);
            let minors = versions.filter(|version| version.integer(tag::MAJOR) == Some(1));
            let minors = minors.filter_map(|version| version.integer(tag::MINOR));
            let minors = minors.filter_map(|minor| u8::try_from(minor).ok());
            Ok(minors
                .map(Minor)
                .filter(|minor| (V1_2..=V1_4).contains(minor))
                .max())
        },
    )?;
    match offered {
        Ok(Some(version)) => Ok(version),
        Ok(None) => {
            let detail = "the server speaks none of KMIP 1.2 to 1.4";
            Err(error(&code::PROVIDER_ANSWER, detail))
        }
        // A server need not tell its versions.
        Err(Reason::NotSupported) => Ok(V1_2),
        Err(reason) => Err(reason.error(Operation::DiscoverVersions)),
    }
}

/// The identifier of the one active key of this name; of the one key, where none is active.
fn located(session: &mut Session, name: &str) -> Result<String, Error> {
    /// More than anyone has of one name; each is asked for its state.
    const CANDIDATES_MAX: usize = 32;
    let found = session.ask(
        Operation::Locate,
        |to| by_name(to, name),
        |payload| {
            let ids = payload.all(tag::UNIQUE_IDENTIFIER);
            let ids = ids.filter_map(|item| match item.value {
                Value::Text(id) => Some(id.to_owned()),
                _ => None,
            });
            Ok(ids.collect::<Vec<_>>())
        },
    )?;
    let mut found = found.map_err(|reason| reason.error(Operation::Locate))?;
    if let ([_, _, ..], true) = (found.as_slice(), found.len() <= CANDIDATES_MAX) {
        let mut active = Vec::new();
        for id in &found {
            if state(session, id)? == Ok(State::Active) {
                active.push(id.clone());
            }
        }
        found = active;
    }
    match <[String; 1]>::try_from(found) {
        Ok([id]) => Ok(id),
        Err(none) if none.is_empty() => Err(error(&code::PROVIDER_NO_KEY, "none of that name")),
        Err(_) => {
            let detail = "several active keys have that name: give `id` instead";
            Err(error(&code::PROVIDER_NO_KEY, detail))
        }
    }
}

/// A key's state (KMIP 1.4, section 3.22).
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    PreActive,
    Active,
    Deactivated,
    Compromised,
    Destroyed,
}

fn state(session: &mut Session, id: &str) -> Result<Result<State, Reason>, Error> {
    session.ask(
        Operation::GetAttributes,
        |to| {
            to.text(tag::UNIQUE_IDENTIFIER, id);
            to.text(tag::ATTRIBUTE_NAME, "State");
        },
        |payload| {
            let mut attributes = payload.all(tag::ATTRIBUTE);
            let state = attributes.find(|one| one.text(tag::ATTRIBUTE_NAME) == Some("State"));
            match state.and_then(|state| state.choice(tag::ATTRIBUTE_VALUE)) {
                Some(1) => Ok(State::PreActive),
                Some(2) => Ok(State::Active),
                Some(3) => Ok(State::Deactivated),
                Some(4) => Ok(State::Compromised),
                Some(5 | 6) => Ok(State::Destroyed),
                _ => Err(error(
                    &code::PROVIDER_ANSWER,
                    "the key's state is not known",
                )),
            }
        },
    )
}

/// The error of a key in this state; none when it is active.
fn state_error(state: State) -> Option<Error> {
    let disabled = |what: &str| Some(error(&code::PROVIDER_DISABLED, what));
    match state {
        State::Active => None,
        State::PreActive => disabled("the key was not activated yet"),
        State::Deactivated => disabled("the key was deactivated"),
        State::Compromised => disabled("the key was marked as compromised"),
        State::Destroyed => Some(error(&code::PROVIDER_DESTROYED, "")),
    }
}

/// Why a server did not do it, asked after it has refused: servers give one reason for several
/// states.
fn explained(session: &mut Session, id: &str, reason: Reason, operation: Operation) -> Error {
    let told = || match (reason, operation) {
        // Some servers say no more of what does not open.
        (Reason::Other, Operation::Decrypt) => {
            error(&code::PROVIDER_ANSWER, "the server failed to open it")
        }
        _ => reason.error(operation),
    };
    match state(session, id) {
        Ok(Ok(state)) => state_error(state).unwrap_or_else(told),
        Ok(Err(Reason::NotFound)) => Reason::NotFound.error(operation),
        // The first answer stands: what came now may be of a connection that the server has closed.
        Ok(Err(_)) | Err(_) => told(),
    }
}

/// Has the server encrypt.
fn encrypted(
    session: &mut Session,
    id: &str,
    cipher: Cipher,
    secret: &SecretKey,
    context: &[u8],
) -> Result<Result<Kept, Reason>, Error> {
    let method = match cipher {
        Cipher::Gcm => Method::Gcm,
        Cipher::Cbc => Method::Cbc,
    };
    let (iv_length, tag_length) = method.lengths();
    let mut iv = vec![0; iv_length];
    fill_random(&mut iv)?;
    let version = session.version;
    session.ask(
        Operation::Encrypt,
        |to| {
            to.text(tag::UNIQUE_IDENTIFIER, id);
            parameters(to, cipher);
            to.bytes(tag::DATA, secret.expose());
            to.bytes(tag::IV, &iv);
            if cipher == Cipher::Gcm {
                to.bytes(tag::AUTHENTICATED_DATA, context);
            }
        },
        |payload| {
            let ciphertext = payload.bytes(tag::DATA).unwrap_or_default();
            let mac = payload.bytes(tag::AUTHENTICATION_TAG).unwrap_or_default();
            // 32 bytes, and a block of padding with CBC.
            let expected = if cipher == Cipher::Gcm { 32 } else { 48 };
            if ciphertext.len() != expected || mac.len() != tag_length {
                let detail = "the wrapped key in the response has the wrong length";
                return Err(error(&code::PROVIDER_ANSWER, detail));
            }
            Ok(Kept {
                method,
                version,
                id: id.to_owned(),
                iv: iv.clone(),
                tag: mac.to_vec(),
                ciphertext: ciphertext.to_vec(),
            })
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked_and_survive_storage() {
        let tls = "ca=/a&certificate=/c&private-key=/k";
        for text in [
            format!("kms.example?name=root&{tls}"),
            format!("kms.example:5697?id=7&{tls}&method=get&timeout=3"),
            format!("[::1]:5697?name=a%20b&{tls}&method=cbc"),
        ] {
            let made = make(&text).unwrap();
            let again = make(made.argument()).unwrap();
            assert_eq!(again.argument(), made.argument());
            let kept = format!("{};blob=01ab", made.argument());
            assert_eq!(make(&kept).unwrap().argument(), kept);
        }
        for text in [
            format!("kms.example?{tls}"),
            format!("kms.example?name=a&id=b&{tls}"),
            format!("?name=a&{tls}"),
            format!("kms.example:0?name=a&{tls}"),
            format!("kms.example:x?name=a&{tls}"),
            format!("kms.example/x?name=a&{tls}"),
            format!("[::1?name=a&{tls}"),
            format!("kms.example?name=a&{tls}&method=ecb"),
            format!("kms.example?name=a&{tls}&password=hunter2"),
            String::from("kms.example?name=a&ca=/a"),
        ] {
            assert!(make(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_kept_is_read_again_and_nothing_else() {
        for method in [Method::Gcm, Method::Cbc, Method::Fetched] {
            let (iv, tag) = method.lengths();
            let kept = Kept {
                method,
                version: V1_4,
                id: String::from("key-7"),
                iv: vec![1; iv],
                tag: vec![2; tag],
                ciphertext: vec![3; 32],
            };
            let bytes = kept.bytes();
            assert_eq!(Kept::parse(&bytes).unwrap().bytes(), bytes);
            for end in 0..=bytes.len() - 32 {
                assert!(Kept::parse(&bytes[..end]).is_none());
            }
            for (at, value) in [(0, 0), (0, 4), (1, 1), (1, 5), (2, 0), (3, 0xff)] {
                let mut changed = bytes.clone();
                changed[at] = value;
                assert!(Kept::parse(&changed).is_none(), "{at}");
            }
        }
    }
}
