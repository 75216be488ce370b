//! Provider `kmip`: a key of a KMIP server seals the root key.
//!
//! `kmip:HOST[:PORT]?name=KEY&ca=FILE&certificate=FILE&private-key=FILE`. Instead of `name` there
//! may be `id`, the key's unique identifier. `method` chooses how: `gcm` or `cbc`, by the server,
//! which the key does not leave; `get`, here, with a key that the server hands out, where the
//! server cannot encrypt. Without `method` it is `gcm`, or `cbc` where the server has no `gcm`.
//!
//! Invariants: the blob holds the identifier of the key that sealed, so a new key of the same name
//! does not lock anyone out; a key that is not active neither seals nor opens, also where this
//! client seals.
//!
//! Must not: create, change or destroy a key at the server.

mod blob;
mod client_side;
mod key_state;
mod message;
mod server_side;
mod session;
mod tag;
pub(crate) mod ttlv;

use strongroom_crypto::SecretKey;
use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_keyring::provider::{Made, Registered};

use self::blob::{Blob, Method};
use self::key_state::{explain_refusal, find_key};
use self::message::{Cipher, Minor, Operation, Reason, V1_2, V1_4};
use self::session::{Address, Session};
use crate::deadline::Deadline;
use crate::network::locator::Locator;
use crate::network::sealing::{SealingProvider, SealingServer, stored_argument};
use crate::network::tls::TlsFiles;

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

/// Makes a provider of the argument. The error says which option is missing or not valid. Reads no
/// file, and sends nothing.
fn make(argument: &str) -> Made {
    let mut locator = Locator::parse(argument, OPTIONS)?;
    locator.make_absolute(&["ca", "certificate", "private-key"])?;
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
    let identity = (locator.path("certificate"), locator.path("private-key"));
    let (Some(authority), (Some(certificate), Some(private_key))) = (locator.path("ca"), identity)
    else {
        return Err("`ca`, `certificate` and `private-key` are wanted");
    };
    let server = Kmip {
        address: parse_address(&locator.target)?,
        files: TlsFiles {
            authority: Some(authority),
            identity: Some((certificate, private_key)),
        },
        key,
        method,
    };
    Ok(Box::new(SealingProvider {
        name: NAME,
        number: NUMBER,
        argument: stored_argument(&locator, argument),
        timeout: locator.timeout()?,
        server,
    }))
}

/// Parses `HOST`, `HOST:PORT`, `[ADDRESS]` or `[ADDRESS]:PORT`. Without a port it is 5696. The
/// error says what the form is. Resolves no name.
fn parse_address(text: &str) -> Result<Address, &'static str> {
    const WRONG: &str = "the address is HOST or HOST:PORT";
    let (host, rest) = match text.strip_prefix('[') {
        Some(inner) => inner.split_once(']').ok_or(WRONG)?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match rest.strip_prefix(':') {
        Some(port) => port.parse().map_err(|_| WRONG)?,
        None if rest.is_empty() => PORT,
        None => return Err(WRONG),
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    match !host.is_empty() && host.bytes().all(is_plain) && port != 0 {
        true => Ok(Address {
            host: host.to_owned(),
            port,
        }),
        false => Err(WRONG),
    }
}

/// How the argument refers to the key.
#[derive(Clone)]
enum Key {
    Name(String),
    Id(String),
}

#[derive(Clone)]
struct Kmip {
    address: Address,
    files: TlsFiles,
    key: Key,
    /// `None`: the first that the server supports.
    method: Option<Method>,
}

impl SealingServer for Kmip {
    /// Has the secret sealed as [`Self::seal_before`] does, in a thread, and returns the bytes of
    /// the blob. Errors: SR-2101 when the deadline passes, or the server cannot be reached; SR-2102
    /// (client refused), SR-2105 (malformed response), SR-2120 (server not trusted), SR-2122
    /// (server busy, sealed or failing) or SR-2123 (files of TLS) for the server; SR-2103 (no such
    /// key), SR-2104 (key not active) or SR-2121 (key destroyed) for the key.
    fn seal(
        &self,
        secret: &SecretKey,
        context: &[u8],
        deadline: Deadline,
    ) -> Result<Vec<u8>, Error> {
        let (this, secret, context) = (self.clone(), secret.try_clone()?, context.to_vec());
        deadline.run_in_thread(move || {
            this.seal_before(&secret, &context, deadline)
                .map(|blob| blob.bytes())
        })
    }

    /// Opens a blob as [`Self::open_before`] does, in a thread. Errors: SR-2105 for bytes that are
    /// not a blob, or do not open; SR-2101 when the deadline passes, or the server cannot be
    /// reached; SR-2102 (client refused), SR-2120 (server not trusted), SR-2122 (server busy,
    /// sealed or failing) or SR-2123 (files of TLS) for the server; SR-2103 (no such key), SR-2104
    /// (key not active) or SR-2121 (key destroyed) for the key.
    fn open(&self, sealed: &[u8], context: &[u8], deadline: Deadline) -> Result<SecretKey, Error> {
        let damaged = || Error::new(&code::PROVIDER_ANSWER, "the wrapped key is malformed");
        let blob = Blob::parse(sealed).ok_or_else(damaged)?;
        let (this, context) = (self.clone(), context.to_vec());
        deadline.run_in_thread(move || this.open_before(&blob, &context, deadline))
    }
}

impl Kmip {
    /// Connects to the server, finds the key, and seals the secret: by the method of the argument,
    /// or else by the first of AES-GCM and AES-CBC that the server supports. Errors: SR-2101 (not
    /// reached, or too late), SR-2102 (client refused), SR-2105 (malformed response), SR-2120
    /// (server not trusted) or SR-2123 (files of TLS) for the connection; SR-2103 (no such key),
    /// SR-2104 (key not active) or SR-2121 (key destroyed) for the key; SR-2122 when the server
    /// fails.
    fn seal_before(
        &self,
        secret: &SecretKey,
        context: &[u8],
        deadline: Deadline,
    ) -> Result<Blob, Error> {
        let mut session = Session::connect(&self.address, &self.files, V1_2, deadline)?;
        session.version = highest_version(&mut session)?;
        let id = match &self.key {
            Key::Id(id) => id.clone(),
            Key::Name(name) => find_key(&mut session, name)?,
        };
        if id.is_empty() || id.len() > usize::from(u8::MAX) {
            let detail = "the key's identifier is too long";
            return Err(Error::new(&code::PROVIDER_ANSWER, detail));
        }
        let ciphers: &[Cipher] = match self.method {
            Some(Method::Fetched) => {
                return client_side::seal(&mut session, &id, secret, context);
            }
            Some(Method::Gcm) => &[Cipher::Gcm],
            Some(Method::Cbc) => &[Cipher::Cbc],
            None if session.version >= V1_4 => &[Cipher::Gcm, Cipher::Cbc],
            None => &[Cipher::Cbc],
        };
        for &cipher in ciphers {
            match server_side::seal(&mut session, &id, cipher, secret, context)? {
                Ok(blob) => return Ok(blob),
                Err(Reason::NotSupported) => {}
                Err(reason) => {
                    let operation = Operation::Encrypt;
                    return Err(explain_refusal(&mut session, &id, reason, operation));
                }
            }
        }
        let reason = Reason::NotSupported;
        Err(explain_refusal(
            &mut session,
            &id,
            reason,
            Operation::Encrypt,
        ))
    }

    /// Connects to the server and opens the blob, with the key, the method and the version of the
    /// protocol that the blob names. `context` must be the one of the sealing, except with AES-CBC,
    /// which does not use it. Name resolution may pass the deadline.
    ///
    /// Errors: SR-2101 when the server cannot be reached or the deadline passes, SR-2102 when it
    /// rejects the client, SR-2103 when it has no such key, SR-2104 or SR-2121 when the key is not
    /// active or is destroyed, SR-2105 when the blob does not open or a response is malformed,
    /// SR-2120 or SR-2124 when TLS fails, SR-2122 when the server fails, SR-2123 for the files of
    /// TLS, SR-5001 when there is no memory.
    fn open_before(
        &self,
        blob: &Blob,
        context: &[u8],
        deadline: Deadline,
    ) -> Result<SecretKey, Error> {
        let mut session = Session::connect(&self.address, &self.files, blob.version, deadline)?;
        let cipher = match blob.method {
            Method::Fetched => return client_side::open(&mut session, blob, context),
            Method::Gcm => Cipher::Gcm,
            Method::Cbc => Cipher::Cbc,
        };
        let opened = server_side::open(&mut session, cipher, blob, context)?;
        opened.map_err(|reason| explain_refusal(&mut session, &blob.id, reason, Operation::Decrypt))
    }
}

/// Requests the server's versions, and returns the highest of KMIP 1.2 to 1.4 that it has. A server
/// need not tell its versions: then it is 1.2. Errors: SR-2105 when it has none of them; when it
/// refuses, SR-2102 (denied), SR-2103 (no such key), SR-2104 (key not active), SR-2105 (malformed
/// response) or SR-2122 (any other reason); for the connection SR-2101 (not reached, or too late),
/// SR-2102 (client refused), SR-2105 (malformed response) or SR-2120 (server not trusted).
fn highest_version(session: &mut Session) -> Result<Minor, Error> {
    let offered = session.request(
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
            Err(Error::new(&code::PROVIDER_ANSWER, detail))
        }
        Err(Reason::NotSupported) => Ok(V1_2),
        Err(reason) => Err(reason.into_error(Operation::DiscoverVersions)),
    }
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
}
