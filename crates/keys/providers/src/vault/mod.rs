//! Provider `vault`: the root key is sealed by a key of a transit engine, of Vault or `OpenBao`.
//!
//! `vault:https://HOST[:PORT]?key=NAME&token-file=FILE`. Options: `mount` (transit), `namespace`,
//! `ca` (the system's authorities), `certificate` and `private-key` for a server that wants them,
//! `timeout`. The credential is one of `token-file`, `token-env` (the name of a variable),
//! `approle-file` (JSON with `role_id` and `secret_id`; `approle-mount`).
//!
//! Invariants: the ciphertext that the engine returns names the version of the key, so a rotated
//! key still opens what older versions have sealed; the secret is bound to its context as
//! associated data, or as derivation context for derived keys.
//!
//! Must not: create, change or rotate a key of the engine; repeat the server's own text (R2).

use std::path::PathBuf;

use serde::Deserialize;
use strongroom_crypto::{SecretBytes, SecretKey};
use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_keyring::provider::{Made, Registered};

use crate::deadline::Deadline;
use crate::network::credential::{copy, read_file, read_variable, single_line};
use crate::network::http::{
    HttpClient, Request, Response, base_url, concat_locked, decode_key, encode_base64,
    is_path_segment,
};
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

const NAME: &str = "vault";
const NUMBER: u16 = 12;

const OPTIONS: &[&str] = &[
    "key",
    "mount",
    "namespace",
    "ca",
    "certificate",
    "private-key",
    "token-file",
    "token-env",
    "approle-file",
    "approle-mount",
    "timeout",
];
const PATHS: &[&str] = &[
    "ca",
    "certificate",
    "private-key",
    "token-file",
    "approle-file",
];

/// Makes a provider of the argument. The error says which option is missing or not valid. Reads no
/// file, and sends nothing.
fn make(argument: &str) -> Made {
    let mut locator = Locator::parse(argument, OPTIONS)?;
    locator.make_absolute(PATHS)?;
    let credential = match (
        locator.path("token-file"),
        locator.option("token-env"),
        locator.path("approle-file"),
    ) {
        (Some(path), None, None) => Credential::File(path),
        (None, Some(name), None) => Credential::Variable(name.to_owned()),
        (None, None, Some(path)) => Credential::AppRole {
            path,
            mount: path_option(&locator, "approle-mount", "approle")?,
        },
        _ => return Err("one of `token-file`, `token-env` and `approle-file` is wanted"),
    };
    let identity = match (locator.path("certificate"), locator.path("private-key")) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err("`certificate` and `private-key` belong together"),
    };
    let key = locator.required("key")?.to_owned();
    if !is_path_segment(&key) {
        return Err("the key's name has characters that are not allowed");
    }
    let namespace = locator.option("namespace").map(str::to_owned);
    if namespace
        .iter()
        .any(|name| !name.bytes().all(|byte| byte.is_ascii_graphic()))
    {
        return Err("the namespace has characters that are not allowed");
    }
    let server = Vault {
        base: base_url(&locator.target)?,
        mount: path_option(&locator, "mount", "transit")?,
        key,
        namespace,
        credential,
        files: TlsFiles {
            authority: locator.path("ca"),
            identity,
        },
    };
    Ok(Box::new(SealingProvider {
        name: NAME,
        number: NUMBER,
        argument: stored_argument(&locator, argument),
        timeout: locator.timeout()?,
        server,
    }))
}

/// Returns an option that is a path in URLs, of one segment or several; `default` where it is not
/// given. The error says that it has characters that are not allowed.
fn path_option(locator: &Locator, name: &str, default: &str) -> Result<String, &'static str> {
    let text = locator.option(name).unwrap_or(default);
    match text.split('/').all(is_path_segment) {
        true => Ok(text.to_owned()),
        false => Err("a mount has characters that are not allowed"),
    }
}

/// Where the token comes from.
enum Credential {
    File(PathBuf),
    Variable(String),
    AppRole { path: PathBuf, mount: String },
}

struct Vault {
    base: String,
    mount: String,
    key: String,
    namespace: Option<String>,
    credential: Credential,
    files: TlsFiles,
}

/// A response of the engine, or of the login by a role.
#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    data: Option<Data<'a>>,
    #[serde(borrow)]
    auth: Option<Auth<'a>>,
}

#[derive(Deserialize)]
struct Data<'a> {
    ciphertext: Option<&'a str>,
    plaintext: Option<&'a str>,
    derived: Option<bool>,
}

#[derive(Deserialize)]
struct Auth<'a> {
    client_token: &'a str,
}

#[derive(Deserialize)]
struct AppRole<'a> {
    role_id: &'a str,
    secret_id: &'a str,
}

impl SealingServer for Vault {
    /// Gets a token, asks whether the key is a derived one, and has the engine encrypt the secret,
    /// bound to the context. Returns a byte that says whether it is derived, then the ciphertext.
    /// Errors: SR-2105 when the response is malformed; SR-2123 for the credential; SR-2101 (not
    /// reached, or too late) and SR-2120 (server not trusted) for the connection; by the engine's
    /// status SR-2102 (denied), SR-2103 (no such key), SR-2104 (disabled), SR-2122 (server busy,
    /// sealed or failing).
    fn seal(
        &self,
        secret: &SecretKey,
        context: &[u8],
        deadline: Deadline,
    ) -> Result<Vec<u8>, Error> {
        let session = Session::open(self, deadline)?;
        let derived = session.is_derived()?;
        let plaintext = encode_base64(secret.expose())?;
        let bound = encode_base64(context)?;
        let body = concat_locked(&[
            b"{\"plaintext\":\"",
            plaintext.as_slice(),
            b"\",\"",
            binding_member(derived).as_bytes(),
            b"\":\"",
            bound.as_slice(),
            b"\"}",
        ])?;
        let response = session.call_engine("encrypt", body.as_slice())?;
        let parsed = parse_body(&response)?;
        let ciphertext = parsed.data.and_then(|data| data.ciphertext);
        let ciphertext = ciphertext.filter(|text| is_ciphertext(text));
        let missing = || {
            Error::new(
                &code::PROVIDER_ANSWER,
                "the wrapped key in the response is malformed",
            )
        };
        let ciphertext = ciphertext.ok_or_else(missing)?;
        Ok([&[u8::from(derived)], ciphertext.as_bytes()].concat())
    }

    /// Gets a token, and has the engine decrypt what [`Self::seal`] has returned. Errors: SR-2105
    /// when it or the response is malformed; SR-2123 for the credential; SR-2101 (not reached, or
    /// too late) and SR-2120 (server not trusted) for the connection; by the engine's status
    /// SR-2102 (denied), SR-2103 (no such key), SR-2104 (disabled), SR-2122 (server busy, sealed or
    /// failing).
    fn open(&self, sealed: &[u8], context: &[u8], deadline: Deadline) -> Result<SecretKey, Error> {
        let (derived, ciphertext) = match sealed.split_first() {
            Some((0, text)) => (false, text),
            Some((1, text)) => (true, text),
            _ => (false, sealed),
        };
        let ciphertext = std::str::from_utf8(ciphertext).unwrap_or_default();
        if !is_ciphertext(ciphertext) {
            let detail = "the wrapped key is malformed";
            return Err(Error::new(&code::PROVIDER_ANSWER, detail));
        }
        let session = Session::open(self, deadline)?;
        let bound = encode_base64(context)?;
        let body = concat_locked(&[
            b"{\"ciphertext\":\"",
            ciphertext.as_bytes(),
            b"\",\"",
            binding_member(derived).as_bytes(),
            b"\":\"",
            bound.as_slice(),
            b"\"}",
        ])?;
        let response = session.call_engine("decrypt", body.as_slice())?;
        let plaintext = parse_body(&response)?.data.and_then(|data| data.plaintext);
        decode_key(plaintext.unwrap_or_default())
    }
}

/// Returns the name of the JSON member that binds the secret to its context.
fn binding_member(derived: bool) -> &'static str {
    match derived {
        true => "context",
        false => "associated_data",
    }
}

/// Whether a text is `vault:vVERSION:BASE64`, which needs no escape in JSON.
fn is_ciphertext(text: &str) -> bool {
    let mut parts = text.splitn(3, ':');
    let (Some("vault"), Some(version), Some(rest)) = (parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let version = version.strip_prefix('v').unwrap_or_default();
    let base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    version.parse::<u32>().is_ok() && !rest.is_empty() && rest.bytes().all(base64)
}

/// Parses the JSON of a response. Errors: SR-2105 for any other text, which is not repeated.
fn parse_body(response: &Response) -> Result<Body<'_>, Error> {
    // The parser's error may quote the response.
    serde_json::from_slice(response.body.as_slice()).map_err(|_| {
        Error::new(
            &code::PROVIDER_ANSWER,
            "the response is not the expected JSON",
        )
    })
}

/// A token, and the engine that accepts it.
struct Session<'a> {
    vault: &'a Vault,
    http: HttpClient,
    token: SecretBytes,
    deadline: Deadline,
}

impl<'a> Session<'a> {
    /// Gets a token: reads it from its file or variable, or logs in with the role of the file.
    /// Errors: SR-2123 when the credential is missing or cannot be used; for a login SR-2101 (not
    /// reached, or too late), SR-2102 (denied), SR-2105 (malformed response), SR-2120 (server not
    /// trusted) or SR-2122 (server busy, sealed or failing).
    fn open(vault: &'a Vault, deadline: Deadline) -> Result<Self, Error> {
        let mut session = Self {
            vault,
            http: HttpClient::new(&vault.files)?,
            token: copy(b"")?,
            deadline,
        };
        session.token = match &vault.credential {
            Credential::File(path) => single_line(&read_file(path)?, &path.display().to_string())?,
            Credential::Variable(name) => {
                let missing =
                    || Error::new(&code::PROVIDER_CREDENTIALS, format!("{name} is not set"));
                single_line(&read_variable(name)?.ok_or_else(missing)?, name)?
            }
            Credential::AppRole { path, mount } => session.login(&read_file(path)?, mount)?,
        };
        Ok(session)
    }

    /// Logs in with a role and its secret, from the JSON in `file`, and returns the token. Errors:
    /// SR-2123 when the file is not such JSON; SR-2102 when they are not accepted; SR-2105 when the
    /// response contains no token; for any other status than 200 SR-2102 (denied), SR-2103 (no such
    /// key), SR-2104 (disabled), SR-2122 (busy or sealed) or SR-2105 (anything else); for the
    /// connection SR-2101 (not reached, or too late), SR-2102 (client refused), SR-2105 (malformed
    /// response), SR-2120 (server not trusted) or SR-2124 (no common TLS version).
    fn login(&self, file: &SecretBytes, mount: &str) -> Result<SecretBytes, Error> {
        let wrong = || {
            let detail = "the file of the role is not JSON with `role_id` and `secret_id`";
            Error::new(&code::PROVIDER_CREDENTIALS, detail)
        };
        let role: AppRole<'_> = serde_json::from_slice(file.as_slice()).map_err(|_| wrong())?;
        // What needs no escape in JSON.
        let plain = |text: &str| {
            text.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        if !plain(role.role_id) || !plain(role.secret_id) {
            return Err(wrong());
        }
        let body = concat_locked(&[
            b"{\"role_id\":\"",
            role.role_id.as_bytes(),
            b"\",\"secret_id\":\"",
            role.secret_id.as_bytes(),
            b"\"}",
        ])?;
        let url = format!("{}/v1/auth/{mount}/login", self.vault.base);
        let response = self.send("POST", &url, body.as_slice())?;
        match response.status {
            200 => {}
            // A wrong role or secret is 400.
            400 | 401 | 403 => {
                let detail = "the role or its secret is not accepted";
                return Err(Error::new(&code::PROVIDER_DENIED, detail));
            }
            _ => return Err(status_error(&response)),
        }
        let token = parse_body(&response)?.auth.map(|auth| auth.client_token);
        let token = token.unwrap_or_default().as_bytes();
        if token.is_empty() || !token.iter().all(u8::is_ascii_graphic) {
            return Err(Error::new(
                &code::PROVIDER_ANSWER,
                "the response holds no token",
            ));
        }
        copy(token)
    }

    /// Requests the key's properties, and returns whether it needs a derivation context. False,
    /// too, when the token may not read them. Errors: SR-2103 when there is no such key or engine;
    /// for any other status than 200 SR-2102 (denied), SR-2103 (no such key), SR-2104 (disabled),
    /// SR-2122 (busy or sealed) or SR-2105 (anything else); for the connection SR-2101 (not
    /// reached, or too late), SR-2102 (client refused), SR-2105 (malformed response), SR-2120
    /// (server not trusted) or SR-2124 (no common TLS version).
    fn is_derived(&self) -> Result<bool, Error> {
        let Vault {
            base, mount, key, ..
        } = self.vault;
        let response = self.send("GET", &format!("{base}/v1/{mount}/keys/{key}"), b"")?;
        match response.status {
            200 => Ok(parse_body(&response)?.data.and_then(|data| data.derived) == Some(true)),
            403 => Ok(false),
            404 => Err(Error::new(
                &code::PROVIDER_NO_KEY,
                "the engine or the key is not there",
            )),
            _ => Err(status_error(&response)),
        }
    }

    /// Sends `encrypt` or `decrypt` with the key, and returns a response of status 200. Errors: for
    /// any other status SR-2102 (denied), SR-2103 (no such key), SR-2104 (disabled), SR-2122 (busy
    /// or sealed) or SR-2105 (anything else); for the connection SR-2101 (not reached, or too
    /// late), SR-2102 (client refused), SR-2105 (malformed response), SR-2120 (server not trusted)
    /// or SR-2124 (no common TLS version).
    fn call_engine(&self, operation: &str, body: &[u8]) -> Result<Response, Error> {
        let Vault {
            base, mount, key, ..
        } = self.vault;
        let url = format!("{base}/v1/{mount}/{operation}/{key}");
        let response = self.send("POST", &url, body)?;
        match response.status {
            200 => Ok(response),
            _ => Err(status_error(&response)),
        }
    }

    /// Sends a request with the token, if there is one already, and the namespace. Returns the
    /// response whatever its status is. Errors: SR-2101 (not reached, or too late), SR-2102 (client
    /// refused), SR-2105 (malformed response), SR-2120 (server not trusted) or SR-2124 (no common
    /// TLS version) for the connection.
    fn send(&self, method: &str, url: &str, body: &[u8]) -> Result<Response, Error> {
        let mut headers: Vec<(&str, &[u8])> = vec![
            ("x-vault-request", b"true"),
            ("content-type", b"application/json"),
        ];
        if !self.token.is_empty() {
            headers.push(("x-vault-token", self.token.as_slice()));
        }
        if let Some(namespace) = &self.vault.namespace {
            headers.push(("x-vault-namespace", namespace.as_bytes()));
        }
        let request = Request {
            method,
            url,
            headers: &headers,
            body,
        };
        self.http.send(&request, self.deadline)
    }
}

/// Makes the error that a status other than 200 means: SR-2102 denied, SR-2103 no such key, SR-2104
/// disabled, SR-2122 busy or sealed, else SR-2105. The engine gives causes only as text: the known
/// ones are searched for, and no text gets into the error.
fn status_error(response: &Response) -> Error {
    let says = |words: &str| {
        let body = response.body.as_slice();
        body.windows(words.len())
            .any(|at| at.eq_ignore_ascii_case(words.as_bytes()))
    };
    let status = response.status;
    let (code, what) = match status {
        400 if says("encryption key not found") || says("key not found") => {
            (&code::PROVIDER_NO_KEY, "the engine has no such key")
        }
        400 if says("disallowed by policy") => {
            let what = "the engine opens only what newer versions of the key have sealed";
            (&code::PROVIDER_DISABLED, what)
        }
        400 if says("soft-deleted") || says("soft deleted") => {
            (&code::PROVIDER_DISABLED, "the key is marked as deleted")
        }
        400 => (&code::PROVIDER_ANSWER, "the engine does not open it"),
        401 | 403 => (&code::PROVIDER_DENIED, "permission denied"),
        404 => (&code::PROVIDER_NO_KEY, "the engine or the key is not there"),
        412 | 429 | 472 | 473 => (&code::PROVIDER_BUSY, "standing by, or asked too often"),
        503 => (&code::PROVIDER_BUSY, "sealed, or in maintenance"),
        500..=599 => (&code::PROVIDER_BUSY, "it has failed"),
        _ => (&code::PROVIDER_ANSWER, "unknown status"),
    };
    Error::new(code, format!("status {status}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked_and_survive_storage() {
        for text in [
            "https://vault.example:8200?key=root&token-file=/t",
            "http://127.0.0.1:8200?key=root&token-env=VAULT_TOKEN&mount=a/b&namespace=team/x",
            "https://v/proxy?key=k&approle-file=/r&approle-mount=roles&ca=/ca&timeout=2",
            "https://v?key=k&token-file=/t&certificate=/c&private-key=/k",
        ] {
            let made = make(text).unwrap();
            let again = make(made.argument()).unwrap();
            assert_eq!(again.argument(), made.argument());
        }
        for text in [
            "http://vault.example?key=root&token-file=/t",
            "https://vault.example?token-file=/t",
            "https://vault.example?key=a/../b&token-file=/t",
            "https://vault.example?key=..&token-file=/t",
            "https://vault.example?key=a&mount=../sys&token-file=/t",
            "https://vault.example?key=a",
            "https://vault.example?key=a&token-file=/t&token-env=T",
            "https://vault.example?key=a&token=hvs.CANARY",
            "https://vault.example?key=a&token-file=/t&certificate=/c",
            "https://vault.example?key=a&token-file=/t&namespace=a%20b",
        ] {
            assert!(make(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ciphertexts_have_their_form() {
        assert!(is_ciphertext("vault:v1:abcd+/=="));
        assert!(is_ciphertext("vault:v12:YQ=="));
        for text in [
            "",
            "vault:v1:",
            "vault:1:YQ==",
            "vault:vx:YQ==",
            "v:v1:a",
            "vault:v1:a\"b",
            "vault:v1:a:b",
        ] {
            assert!(!is_ciphertext(text), "{text}");
        }
    }
}
