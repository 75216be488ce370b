//! Provider `aws-kms`: the root key is sealed by a key of AWS KMS.
//!
//! `aws-kms:arn:aws:kms:REGION:ACCOUNT:key/ID`, or `aws-kms:alias/NAME?region=REGION`. Options:
//! `region`, `endpoint` (of a private network; HTTP only for this host), `ca`, `profile`,
//! `credentials-file`, `timeout`. Credentials: see [`credentials`].
//!
//! Invariants: the blob names the key that sealed by its ARN, and only that key opens it: an alias
//! that points elsewhere later changes nothing. The secret is bound to its context by KMS's
//! encryption context, which also appears in AWS's log.
//!
//! Must not: create, change or schedule anything at AWS; repeat AWS's own text (R2).

mod credentials;
mod sigv4;

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use strongroom_crypto::{SecretBytes, SecretKey};
use strongroom_format::code::{self, Code};
use strongroom_keyring::Error;
use strongroom_keyring::provider::{Made, Registered};

use self::sigv4::{Scope, Signed, authorization, time_of};
use crate::deadline::Deadline;
use crate::network::http::{
    HttpClient, Request, Response, base_url, concat_locked, decode_key, encode_base64,
};
use crate::network::locator::Locator;
use crate::network::sealing::{SealingProvider, SealingServer, context_id, stored_argument};
use crate::network::tls::TlsFiles;

/// The registry line of this provider.
pub(crate) const REGISTERED: Registered = Registered {
    name: NAME,
    number: NUMBER,
    acts: true,
    make,
};

const NAME: &str = "aws-kms";
const NUMBER: u16 = 13;
const OPTIONS: &[&str] = &[
    "region",
    "endpoint",
    "ca",
    "profile",
    "credentials-file",
    "timeout",
];
/// How often a request is sent while AWS is overloaded or fails.
const ATTEMPTS: u32 = 4;
/// The wait before the second attempt; it doubles before each further one.
const WAIT: Duration = Duration::from_millis(200);

/// Makes a provider of the argument. The error says which part is missing or not valid. Reads no
/// file, and sends nothing.
fn make(argument: &str) -> Made {
    let mut locator = Locator::parse(argument, OPTIONS)?;
    locator.make_absolute(&["ca", "credentials-file"])?;
    let key = locator.target.clone();
    if !is_key(&key) {
        return Err("the key is an ARN, an id, or alias/NAME");
    }
    let of_arn = key
        .strip_prefix("arn:")
        .and_then(|rest| rest.split(':').nth(2));
    let region = locator.option("region").or(of_arn);
    let region = region.ok_or("`region` is wanted, or a key's ARN, which has one")?;
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if region.is_empty() || !region.bytes().all(plain) {
        return Err("the region has characters that are not allowed");
    }
    let china = if region.starts_with("cn-") { ".cn" } else { "" };
    let endpoint = match locator.option("endpoint") {
        Some(endpoint) => base_url(endpoint)?,
        None => format!("https://kms.{region}.amazonaws.com{china}"),
    };
    let host = endpoint.split_once("://").map_or("", |(_, host)| host);
    if host.contains('/') {
        return Err("the endpoint has no path");
    }
    let server = Kms {
        host: host.to_owned(),
        region: region.to_owned(),
        key,
        profile: locator.option("profile").map(str::to_owned),
        file: locator.path("credentials-file"),
        files: TlsFiles {
            authority: locator.path("ca"),
            identity: None,
        },
        endpoint,
    };
    Ok(Box::new(SealingProvider {
        name: NAME,
        number: NUMBER,
        argument: stored_argument(&locator, argument),
        timeout: locator.timeout()?,
        server,
    }))
}

/// Whether a text can be a key's ARN, id or alias, none of which needs an escape in JSON.
fn is_key(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b":/_-".contains(&byte);
    !text.is_empty() && text.len() <= 512 && text.bytes().all(plain)
}

struct Kms {
    endpoint: String,
    host: String,
    region: String,
    key: String,
    profile: Option<String>,
    file: Option<PathBuf>,
    files: TlsFiles,
}

/// The body of a response to a request that succeeded.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Body<'a> {
    key_id: &'a str,
    ciphertext_blob: Option<&'a str>,
    plaintext: Option<&'a str>,
}

/// The body of a response that reports an error.
#[derive(Deserialize)]
struct ErrorBody<'a> {
    #[serde(rename = "__type")]
    kind: &'a str,
}

impl SealingServer for Kms {
    /// Has AWS KMS encrypt the secret, bound to the context, and returns the ARN of the key that it
    /// used, a space, and the ciphertext in base64. Errors: SR-2105 when the response is malformed
    /// or names another key; SR-2123 for the access key; SR-2101 (not reached, or too late) and
    /// SR-2120 (server not trusted) for the connection; by AWS's answer SR-2102 (denied), SR-2103
    /// (no such key), SR-2104 (disabled), SR-2121 (key destroyed), SR-2122 (busy) or SR-2105
    /// (anything else).
    fn seal(
        &self,
        secret: &SecretKey,
        context: &[u8],
        deadline: Deadline,
    ) -> Result<Vec<u8>, Error> {
        let plaintext = encode_base64(secret.expose())?;
        let body = concat_locked(&[
            b"{\"KeyId\":\"",
            self.key.as_bytes(),
            b"\",\"Plaintext\":\"",
            plaintext.as_slice(),
            b"\",\"EncryptionContext\":",
            encryption_context(context).as_bytes(),
            b"}",
        ])?;
        let response = self.send("TrentService.Encrypt", &body, deadline)?;
        let parsed = parse_body(&response)?;
        let wrong = || {
            Error::new(
                &code::PROVIDER_ANSWER,
                "the wrapped key in the response is malformed",
            )
        };
        let ciphertext = parsed.ciphertext_blob.unwrap_or_default();
        let ciphertext = Some(ciphertext)
            .filter(|text| is_base64(text))
            .ok_or_else(wrong)?;
        // The response names an ARN also where the request has an id or alias.
        let arn = Some(parsed.key_id).filter(|arn| is_key(arn) && arn.starts_with("arn:"));
        let arn = arn.ok_or_else(wrong)?;
        if self.key.starts_with("arn:") && !self.key.contains(":alias/") && arn != self.key {
            return Err(Error::new(
                &code::PROVIDER_ANSWER,
                "it was wrapped with another key",
            ));
        }
        Ok(format!("{arn} {ciphertext}").into_bytes())
    }

    /// Has AWS KMS decrypt what [`Self::seal`] has returned, with the key of that ARN. Errors:
    /// SR-2105 when it or the response is malformed, or another key was used; SR-2123 for the
    /// access key; SR-2101 (not reached, or too late) and SR-2120 (server not trusted) for the
    /// connection; by AWS's answer SR-2102 (denied), SR-2103 (no such key), SR-2104 (disabled),
    /// SR-2121 (key destroyed), SR-2122 (busy) or SR-2105 (anything else).
    fn open(&self, sealed: &[u8], context: &[u8], deadline: Deadline) -> Result<SecretKey, Error> {
        let parts = std::str::from_utf8(sealed).ok();
        let parts = parts.and_then(|text| text.split_once(' '));
        let parts = parts.filter(|(arn, text)| is_key(arn) && is_base64(text));
        let damaged = || Error::new(&code::PROVIDER_ANSWER, "the wrapped key is malformed");
        let (arn, ciphertext) = parts.ok_or_else(damaged)?;
        let body = concat_locked(&[
            b"{\"KeyId\":\"",
            arn.as_bytes(),
            b"\",\"CiphertextBlob\":\"",
            ciphertext.as_bytes(),
            b"\",\"EncryptionContext\":",
            encryption_context(context).as_bytes(),
            b"}",
        ])?;
        let response = self.send("TrentService.Decrypt", &body, deadline)?;
        let parsed = parse_body(&response)?;
        if parsed.key_id != arn {
            return Err(Error::new(
                &code::PROVIDER_ANSWER,
                "it was unwrapped with another key",
            ));
        }
        decode_key(parsed.plaintext.unwrap_or_default())
    }
}

/// Returns the encryption context of a request, as JSON: a fixed purpose, and in hexadecimal the
/// keyring's id, which is the last 16 bytes of `context`. It appears in clear in AWS's log.
fn encryption_context(context: &[u8]) -> String {
    let id = context_id(context);
    format!("{{\"purpose\":\"strongroom keyring root\",\"id\":\"{id}\"}}")
}

/// Whether a text is not empty and has only characters of base64, none of which needs an escape in
/// JSON.
fn is_base64(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    !text.is_empty() && text.bytes().all(plain)
}

/// Parses the JSON of a response that succeeded. Errors: SR-2105 for any other text, which is not
/// repeated.
fn parse_body(response: &Response) -> Result<Body<'_>, Error> {
    // The parser's error may quote the response.
    serde_json::from_slice(response.body.as_slice()).map_err(|_| {
        Error::new(
            &code::PROVIDER_ANSWER,
            "the response is not the expected JSON",
        )
    })
}

impl Kms {
    /// Reads the access key, signs a request and sends it; up to three times again, after 200 ms,
    /// 400 ms and 800 ms, while AWS is overloaded or fails and the deadline allows it. Returns a
    /// response of status 200. Errors: SR-2123 for the access key or `ca`; SR-2101 (not reached, or
    /// too late) and SR-2120 (server not trusted) for the connection; by AWS's answer SR-2102
    /// (denied), SR-2103 (no such key), SR-2104 (disabled), SR-2121 (key destroyed), SR-2122 (busy)
    /// or SR-2105 (anything else).
    fn send(
        &self,
        target: &str,
        body: &SecretBytes,
        deadline: Deadline,
    ) -> Result<Response, Error> {
        let http = HttpClient::new(&self.files)?;
        let keys = credentials::find(self.profile.as_deref(), self.file.as_deref())?;
        let mut wait = WAIT;
        for attempt in 1.. {
            let response = self.send_once(&http, &keys, target, body, deadline)?;
            if response.status == 200 {
                return Ok(response);
            }
            let error = response_error(&response);
            if error.code() != &code::PROVIDER_BUSY || attempt >= ATTEMPTS {
                return Err(error);
            }
            if deadline.remaining()? <= wait {
                return Err(error);
            }
            std::thread::sleep(wait);
            wait = wait.saturating_mul(2);
        }
        Err(deadline.expired())
    }

    /// Signs a request for the present time and sends it once. Returns the response whatever its
    /// status is. Errors: SR-2101 (not reached, or too late), SR-2102 (client refused), SR-2105
    /// (malformed response), SR-2120 (server not trusted) or SR-2124 (no common TLS version) for
    /// the connection; SR-5001 when the system reports an error.
    fn send_once(
        &self,
        http: &HttpClient,
        keys: &credentials::Keys,
        target: &str,
        body: &SecretBytes,
        deadline: Deadline,
    ) -> Result<Response, Error> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let time = time_of(now.map_or(0, |now| now.as_secs()));
        let mut headers: Vec<(&str, &[u8])> = vec![
            ("content-type", b"application/x-amz-json-1.1"),
            ("host", self.host.as_bytes()),
            ("x-amz-date", time.as_bytes()),
        ];
        if let Some(token) = &keys.token {
            headers.push(("x-amz-security-token", token.as_slice()));
        }
        headers.push(("x-amz-target", target.as_bytes()));
        let scope = Scope {
            region: &self.region,
            service: "kms",
            time: &time,
        };
        let signed = Signed {
            method: "POST",
            path: "/",
            query: "",
            headers: &headers,
            body: body.as_slice(),
        };
        let authorization = authorization(&scope, &keys.id, &keys.secret, &signed)?;
        headers.push(("authorization", authorization.as_bytes()));
        let request = Request {
            method: "POST",
            url: &format!("{}/", self.endpoint),
            headers: &headers,
            body: body.as_slice(),
        };
        http.send(&request, deadline)
    }
}

/// The codes of AWS's kinds of errors.
const KINDS: &[(&str, &Code)] = &[
    ("AccessDeniedException", &code::PROVIDER_DENIED),
    ("UnrecognizedClientException", &code::PROVIDER_DENIED),
    ("InvalidClientTokenId", &code::PROVIDER_DENIED),
    ("IncompleteSignature", &code::PROVIDER_DENIED),
    ("IncompleteSignatureException", &code::PROVIDER_DENIED),
    ("InvalidSignatureException", &code::PROVIDER_DENIED),
    ("SignatureDoesNotMatch", &code::PROVIDER_DENIED),
    ("MissingAuthenticationToken", &code::PROVIDER_DENIED),
    (
        "MissingAuthenticationTokenException",
        &code::PROVIDER_DENIED,
    ),
    ("ExpiredTokenException", &code::PROVIDER_DENIED),
    ("OptInRequired", &code::PROVIDER_DENIED),
    ("RequestExpired", &code::PROVIDER_DENIED),
    ("NotFoundException", &code::PROVIDER_NO_KEY),
    ("InvalidArnException", &code::PROVIDER_NO_KEY),
    ("DisabledException", &code::PROVIDER_DISABLED),
    ("InvalidKeyUsageException", &code::PROVIDER_DISABLED),
    // Of a key that is about to be deleted: KMS has no other name for it.
    ("KMSInvalidStateException", &code::PROVIDER_DESTROYED),
    ("InvalidCiphertextException", &code::PROVIDER_ANSWER),
    ("IncorrectKeyException", &code::PROVIDER_ANSWER),
    ("ThrottlingException", &code::PROVIDER_BUSY),
    ("Throttling", &code::PROVIDER_BUSY),
    ("LimitExceededException", &code::PROVIDER_BUSY),
    ("KMSInternalException", &code::PROVIDER_BUSY),
    ("KeyUnavailableException", &code::PROVIDER_BUSY),
    ("DependencyTimeoutException", &code::PROVIDER_BUSY),
    ("InternalFailure", &code::PROVIDER_BUSY),
    ("ServiceUnavailable", &code::PROVIDER_BUSY),
];

/// Makes the error that a response with another status than 200 means: by AWS's name for it, or
/// else by the status. Repeats only a name that is known.
fn response_error(response: &Response) -> Error {
    let parsed = serde_json::from_slice::<ErrorBody<'_>>(response.body.as_slice()).ok();
    let kind = parsed.map_or("", |parsed| parsed.kind);
    // Some services write their name in front of it.
    let kind = kind.rsplit('#').next().unwrap_or_default();
    let known = KINDS.iter().find(|(name, _)| *name == kind);
    // Only a known name gets into the error (R2).
    let name = known.map_or("an error that is not known", |(name, _)| name);
    let code = match (known, response.status) {
        (Some((_, code)), _) => *code,
        (None, 429 | 500..=599) => &code::PROVIDER_BUSY,
        (None, 401 | 403) => &code::PROVIDER_DENIED,
        (None, _) => &code::PROVIDER_ANSWER,
    };
    Error::new(code, format!("status {}: {name}", response.status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked_and_survive_storage() {
        let arn = "arn:aws:kms:eu-west-3:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab";
        for text in [
            arn.to_owned(),
            format!("{arn}?endpoint=http://127.0.0.1:25000&profile=prod&timeout=5"),
            String::from("alias/strongroom?region=us-east-1&credentials-file=/c&ca=/a"),
        ] {
            let made = make(&text).unwrap();
            assert_eq!(make(made.argument()).unwrap().argument(), made.argument());
        }
        for text in [
            "",
            "alias/strongroom",
            "alias/strongroom?region=US",
            "alias/a%22b?region=us-east-1",
            "alias/a?region=us-east-1&endpoint=http://kms.example",
            "alias/a?region=us-east-1&endpoint=https://kms.example/x",
            "alias/a?region=us-east-1&secret=CANARY",
        ] {
            assert!(make(text).is_err(), "{text}");
        }
    }

    #[test]
    fn kinds_of_errors_are_told_apart() {
        let number = |status, body: &str| {
            let body = crate::network::credential::copy(body.as_bytes()).unwrap();
            response_error(&Response { status, body }).code().number
        };
        let of = |kind: &str| number(400, &format!("{{\"__type\":\"{kind}\",\"message\":\"x\"}}"));
        assert_eq!(of("DisabledException"), 2104);
        assert_eq!(of("KMSInvalidStateException"), 2121);
        assert_eq!(of("com.amazonaws.kms#NotFoundException"), 2103);
        assert_eq!(of("InvalidCiphertextException"), 2105);
        assert_eq!(of("ThrottlingException"), 2122);
        assert_eq!(of("AccessDeniedException"), 2102);
        assert_eq!(of("Other"), 2105);
        assert_eq!((number(503, ""), number(403, "<html>")), (2122, 2102));
    }
}
