//! Provider `vault`: the root key is sealed by a key of a transit engine, of Vault or `OpenBao`.
//!
//! `vault:https://HOST[:PORT]?key=NAME&token-file=FILE`. Options: `mount` (transit), `namespace`,
//! `ca` (the system's authorities), `certificate` and `private-key` for a server that wants them,
//! `timeout`. The credential is one of `token-file`, `token-env` (the name of a variable),
//! `approle-file` (JSON with `role_id` and `secret_id`; `approle-mount`).
//!
//! Invariants: the version of the key that sealed stands in what the engine returns, so a rotated
//! key still opens what older versions have sealed; the secret is bound to its context as
//! associated data, or as derivation context for derived keys.
//!
//! Must not: create, change or rotate a key of the engine; tell what the server says in words (R2).

use std::path::PathBuf;

use serde::Deserialize;
use strongroom_crypto::{SecretBytes, SecretKey};
use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_keyring::provider::{Made, Registered};

use crate::network::credential::{copy, from_file, from_variable, line};
use crate::network::deadline::Deadline;
use crate::network::error;
use crate::network::http::{
    Answer, Http, Question, base, base64_of, is_path_piece, joined, key_of,
};
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

fn make(argument: &str) -> Made {
    let mut locator = Locator::parse(argument, OPTIONS)?;
    locator.absolute(PATHS)?;
    let credential = match (
        locator.path("token-file"),
        locator.option("token-env"),
        locator.path("approle-file"),
    ) {
        (Some(path), None, None) => Credential::File(path),
        (None, Some(name), None) => Credential::Variable(name.to_owned()),
        (None, None, Some(path)) => Credential::AppRole {
            path,
            mount: piece(&locator, "approle-mount", "approle")?,
        },
        _ => return Err("one of `token-file`, `token-env` and `approle-file` is wanted"),
    };
    let identity = match (locator.path("certificate"), locator.path("private-key")) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err("`certificate` and `private-key` belong together"),
    };
    let key = locator.needed("key")?.to_owned();
    if !is_path_piece(&key) {
        return Err("the key's name has characters that are not allowed");
    }
    let namespace = locator.option("namespace").map(str::to_owned);
    if namespace
        .iter()
        .any(|name| !name.bytes().all(|byte| byte.is_ascii_graphic()))
    {
        return Err("the namespace has characters that are not allowed");
    }
    let remote = Vault {
        base: base(&locator.place)?,
        mount: piece(&locator, "mount", "transit")?,
        key,
        namespace,
        credential,
        trust: Trust {
            authority: locator.path("ca"),
            identity,
        },
    };
    Ok(Box::new(Sealing {
        name: NAME,
        number: NUMBER,
        argument: Sealing::<Vault>::argument_of(&locator.text(), argument),
        timeout: locator.timeout()?,
        remote,
    }))
}

/// An option that is a path in URLs, of one piece or several.
fn piece(locator: &Locator, name: &str, otherwise: &str) -> Result<String, &'static str> {
    let text = locator.option(name).unwrap_or(otherwise);
    match text.split('/').all(is_path_piece) {
        true => Ok(text.to_owned()),
        false => Err("a mount has characters that are not allowed"),
    }
}

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
    trust: Trust,
}

/// An answer of the engine, or of the login by a role.
#[derive(Deserialize)]
struct Told<'a> {
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

impl Remote for Vault {
    fn seal(
        &self,
        secret: &SecretKey,
        context: &[u8],
        deadline: Deadline,
    ) -> Result<Vec<u8>, Error> {
        let session = Session::open(self, deadline)?;
        let derived = session.is_derived()?;
        let plaintext = base64_of(secret.expose())?;
        let bound = base64_of(context)?;
        let body = joined(&[
            b"{\"plaintext\":\"",
            plaintext.as_slice(),
            b"\",\"",
            member(derived).as_bytes(),
            b"\":\"",
            bound.as_slice(),
            b"\"}",
        ])?;
        let answer = session.engine("encrypt", body.as_slice())?;
        let told = told(&answer)?;
        let ciphertext = told.data.and_then(|data| data.ciphertext);
        let ciphertext = ciphertext.filter(|text| is_ciphertext(text));
        let missing = || {
            error(
                &code::PROVIDER_ANSWER,
                "the wrapped key in the response is malformed",
            )
        };
        let ciphertext = ciphertext.ok_or_else(missing)?;
        Ok([&[u8::from(derived)], ciphertext.as_bytes()].concat())
    }

    fn open(&self, sealed: &[u8], context: &[u8], deadline: Deadline) -> Result<SecretKey, Error> {
        let (derived, ciphertext) = match sealed.split_first() {
            Some((0, text)) => (false, text),
            Some((1, text)) => (true, text),
            _ => (false, sealed),
        };
        let ciphertext = std::str::from_utf8(ciphertext).unwrap_or_default();
        if !is_ciphertext(ciphertext) {
            let detail = "the wrapped key is malformed";
            return Err(error(&code::PROVIDER_ANSWER, detail));
        }
        let session = Session::open(self, deadline)?;
        let bound = base64_of(context)?;
        let body = joined(&[
            b"{\"ciphertext\":\"",
            ciphertext.as_bytes(),
            b"\",\"",
            member(derived).as_bytes(),
            b"\":\"",
            bound.as_slice(),
            b"\"}",
        ])?;
        let answer = session.engine("decrypt", body.as_slice())?;
        let plaintext = told(&answer)?.data.and_then(|data| data.plaintext);
        key_of(plaintext.unwrap_or_default())
    }
}

/// What the engine calls what a secret is bound to.
fn member(derived: bool) -> &'static str {
    match derived {
        true => "context",
        false => "associated_data",
    }
}

/// `vault:v1:...`: base64 behind the key's version. It goes into JSON as it is.
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

fn told(answer: &Answer) -> Result<Told<'_>, Error> {
    // The parser's error may quote the answer.
    serde_json::from_slice(answer.body.as_slice()).map_err(|_| {
        error(
            &code::PROVIDER_ANSWER,
            "the response is not the expected JSON",
        )
    })
}

/// A token, and where it is good for something.
struct Session<'a> {
    vault: &'a Vault,
    http: Http,
    token: SecretBytes,
    deadline: Deadline,
}

impl<'a> Session<'a> {
    fn open(vault: &'a Vault, deadline: Deadline) -> Result<Self, Error> {
        let mut session = Self {
            vault,
            http: Http::new(&vault.trust)?,
            token: copy(b"")?,
            deadline,
        };
        session.token = match &vault.credential {
            Credential::File(path) => line(&from_file(path)?, &path.display().to_string())?,
            Credential::Variable(name) => {
                let missing = || error(&code::PROVIDER_CREDENTIALS, format!("{name} is not set"));
                line(&from_variable(name)?.ok_or_else(missing)?, name)?
            }
            Credential::AppRole { path, mount } => session.login(&from_file(path)?, mount)?,
        };
        Ok(session)
    }

    /// Trades a role and its secret for a token.
    fn login(&self, file: &SecretBytes, mount: &str) -> Result<SecretBytes, Error> {
        let wrong = || {
            let detail = "the file of the role is not JSON with `role_id` and `secret_id`";
            error(&code::PROVIDER_CREDENTIALS, detail)
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
        let body = joined(&[
            b"{\"role_id\":\"",
            role.role_id.as_bytes(),
            b"\",\"secret_id\":\"",
            role.secret_id.as_bytes(),
            b"\"}",
        ])?;
        let url = format!("{}/v1/auth/{mount}/login", self.vault.base);
        let answer = self.ask("POST", &url, body.as_slice())?;
        match answer.status {
            200 => {}
            // A wrong role or secret is 400.
            400 | 401 | 403 => {
                let detail = "the role or its secret is not accepted";
                return Err(error(&code::PROVIDER_DENIED, detail));
            }
            _ => return Err(refused(&answer)),
        }
        let token = told(&answer)?.auth.map(|auth| auth.client_token);
        let token = token.unwrap_or_default().as_bytes();
        if token.is_empty() || !token.iter().all(u8::is_ascii_graphic) {
            return Err(error(&code::PROVIDER_ANSWER, "the response holds no token"));
        }
        copy(token)
    }

    /// Whether the key wants a context of derivation; a token that may not look is taken to have a
    /// usual key.
    fn is_derived(&self) -> Result<bool, Error> {
        let Vault {
            base, mount, key, ..
        } = self.vault;
        let answer = self.ask("GET", &format!("{base}/v1/{mount}/keys/{key}"), b"")?;
        match answer.status {
            200 => Ok(told(&answer)?.data.and_then(|data| data.derived) == Some(true)),
            403 => Ok(false),
            404 => Err(error(
                &code::PROVIDER_NO_KEY,
                "the engine or the key is not there",
            )),
            _ => Err(refused(&answer)),
        }
    }

    fn engine(&self, operation: &str, body: &[u8]) -> Result<Answer, Error> {
        let Vault {
            base, mount, key, ..
        } = self.vault;
        let url = format!("{base}/v1/{mount}/{operation}/{key}");
        let answer = self.ask("POST", &url, body)?;
        match answer.status {
            200 => Ok(answer),
            _ => Err(refused(&answer)),
        }
    }

    fn ask(&self, method: &str, url: &str, body: &[u8]) -> Result<Answer, Error> {
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
        let question = Question {
            method,
            url,
            headers: &headers,
            body,
        };
        self.http.ask(&question, self.deadline)
    }
}

/// What a status other than 200 means. The engine tells causes in words only: the ones that are
/// known are looked for, and no other words are told.
fn refused(answer: &Answer) -> Error {
    let says = |words: &str| {
        let body = answer.body.as_slice();
        body.windows(words.len())
            .any(|at| at.eq_ignore_ascii_case(words.as_bytes()))
    };
    let status = answer.status;
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
    error(code, format!("status {status}: {what}"))
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
