//! Provider `tang:url=http://HOST:PORT;thumbprint=...`: the root key comes out only where a Tang
//! server answers.
//!
//! The exchange is that of Tang and Clevis (github.com/latchset/tang, "Security Considerations" and
//! "Protocol"). The server keeps no state. Neither the server nor an eavesdropper learns a key, so
//! HTTP is enough. `thumbprint` (RFC 7638, SHA-256) is that of a key with which the server signs
//! its advertisement: what `tang-show-keys` prints.
//!
//! The blob: thumbprint of the server's exchange key (32 bytes), its point (132), the client's
//! point (132), then the secret under AES-256-GCM with the key of the exchange, which is derived
//! with the context as `info`, an all-zero nonce - the key is used once - and the context as
//! associated data (32 + 16 bytes).
//!
//! Must not: use an exchange key that the pinned key has not signed; send the client's point
//! unblinded.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde::{Deserialize, Serialize};
use strongroom_crypto::{
    CryptoError, GcmKey, P521Point, SecretKey, ecmr_blind, ecmr_provision, ecmr_recover, sha256,
    verify_p521,
};
use strongroom_format::code;
use strongroom_keyring::provider::{Created, Made, Registered, Wrapped, locator};
use strongroom_keyring::{Error, Opener, RootProvider};
use strongroom_tls::http;

use crate::deadline::Deadline;
use crate::network::credential::copy;
use crate::options::Options;

pub(crate) const REGISTERED: Registered = Registered {
    name: NAME,
    number: NUMBER,
    acts: true,
    make,
};

const NAME: &str = "tang";
const NUMBER: u16 = 10;
/// The longest body of a response, in bytes.
const BODY_MAX: u64 = 64 * 1024;
/// Bytes of a coordinate of P-521.
const FIELD: usize = 66;
const POINT: usize = 2 * FIELD;
const NONCE: [u8; 12] = [0; 12];

struct Tang {
    argument: String,
    url: String,
    thumbprint: [u8; 32],
}

/// A JSON Web Key (RFC 7517), as far as Tang uses it.
#[derive(Deserialize, Serialize)]
struct Jwk {
    #[serde(default)]
    alg: String,
    crv: String,
    #[serde(default)]
    key_ops: Vec<String>,
    kty: String,
    x: String,
    y: String,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Jwk>,
}

/// A signed advertisement (RFC 7515, section 7.2), with one signature or with several.
#[derive(Deserialize)]
struct Signed {
    payload: String,
    #[serde(default)]
    signatures: Vec<Signature>,
    #[serde(flatten)]
    single: Option<Signature>,
}

#[derive(Deserialize)]
struct Signature {
    protected: String,
    signature: String,
}

/// A server's exchange key.
struct ExchangeKey {
    thumbprint: [u8; 32],
    point: P521Point,
}

/// Makes a provider of the argument. The error says what is missing or not valid. Sends nothing.
fn make(argument: &str) -> Made {
    let options = Options::read(locator(argument), &["url", "thumbprint"])?;
    let url = options.get("url").unwrap_or_default().trim_end_matches('/');
    let host = url.strip_prefix("http://").unwrap_or_default();
    if host.is_empty() || host.contains(['@', '?', '#', ' ']) {
        return Err("url=http://HOST:PORT is missing; the exchange needs no TLS");
    }
    let thumbprint = options
        .get("thumbprint")
        .ok_or("thumbprint is missing: the one that tang-show-keys prints on the server")?;
    Ok(Box::new(Tang {
        url: url.to_owned(),
        thumbprint: decode_base64(thumbprint)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or("thumbprint is a SHA-256 in base64 for URLs, 43 characters")?,
        argument: argument.to_owned(),
    }))
}

/// Decodes base64 for URLs, without padding. `None` for anything else.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}

/// Makes the error SR-2105 of a response, or of a blob, that is not what it should be.
fn not_accepted(detail: &str) -> Error {
    Error::new(&code::PROVIDER_ANSWER, detail)
}

/// Makes the error of a computation with a point that the server sent: SR-2105 when it is not on
/// the curve.
fn translate_crypto_error(error: CryptoError) -> Error {
    match error {
        CryptoError::Key => not_accepted("a point of the server's is not on the curve"),
        error => error.into(),
    }
}

impl Jwk {
    /// Makes the JSON key for the exchange that has this point.
    fn exchange_key(point: &P521Point) -> Self {
        let (x, y) = point.split_at(FIELD);
        Self {
            alg: String::from("ECMR"),
            crv: String::from("P-521"),
            key_ops: vec![String::from("deriveKey")],
            kty: String::from("EC"),
            x: BASE64.encode(x),
            y: BASE64.encode(y),
        }
    }

    /// Returns the key's point; `None` for a key that is not of P-521, or is malformed. Does not
    /// check that it is on the curve.
    fn point(&self) -> Option<P521Point> {
        let is_p521 = self.kty == "EC" && self.crv == "P-521";
        let (x, y) = (decode_base64(&self.x)?, decode_base64(&self.y)?);
        let is_whole = is_p521 && x.len() == FIELD && y.len() == FIELD;
        is_whole.then(|| [x, y].concat().try_into().ok()).flatten()
    }

    /// Computes the key's thumbprint (RFC 7638, SHA-256).
    fn thumbprint(&self) -> [u8; 32] {
        let text = format!(
            r#"{{"crv":"{}","kty":"{}","x":"{}","y":"{}"}}"#,
            self.crv, self.kty, self.x, self.y
        );
        sha256(&[text.as_bytes()])
    }

    /// Whether the key's `key_ops` include this operation.
    fn allows(&self, operation: &str) -> bool {
        self.key_ops.iter().any(|allowed| allowed == operation)
    }
}

/// Finds the exchange key in an advertisement, after checking that the key of this thumbprint has
/// signed it. Errors: SR-2105 when the advertisement is malformed, or is not signed by that key.
fn verified_exchange_key(
    advertisement: &[u8],
    thumbprint: &[u8; 32],
) -> Result<ExchangeKey, Error> {
    let malformed = || not_accepted("the server's advertisement is malformed");
    let signed: Signed = serde_json::from_slice(advertisement).map_err(|_| malformed())?;
    let payload = decode_base64(&signed.payload).ok_or_else(malformed)?;
    let keys: KeySet = serde_json::from_slice(&payload).map_err(|_| malformed())?;
    let pinned = keys
        .keys
        .iter()
        .filter(|key| key.alg == "ES512" && key.allows("verify"));
    let mut pinned = pinned.map(|key| (key.thumbprint(), key.point()));
    let pinned = pinned.find(|(other, _)| other == thumbprint);
    let Some((_, Some(pinned))) = pinned else {
        return Err(not_accepted(
            "the server does not advertise the key of that thumbprint",
        ));
    };
    let verifies = |signature: &Signature| {
        let message = format!("{}.{}", signature.protected, signed.payload);
        let bytes: Option<[u8; POINT]> =
            decode_base64(&signature.signature).and_then(|it| it.try_into().ok());
        bytes.is_some_and(|bytes| verify_p521(&pinned, message.as_bytes(), &bytes).is_ok())
    };
    if !signed.signatures.iter().chain(&signed.single).any(verifies) {
        return Err(not_accepted(
            "the advertisement is not signed by the key of that thumbprint",
        ));
    }
    let exchange = keys
        .keys
        .iter()
        .find(|key| key.alg == "ECMR" && key.allows("deriveKey"));
    let point = exchange.and_then(|key| Some((key.thumbprint(), key.point()?)));
    let (thumbprint, point) = point.ok_or_else(malformed)?;
    Ok(ExchangeKey { thumbprint, point })
}

impl Tang {
    /// Sends a request for a path below the server's address, GET without a body and POST with one,
    /// and returns the body of the response. Errors: SR-2103 for status 404; SR-2101 when the
    /// server cannot be reached, breaks off or does not answer before the deadline, for any other
    /// status than 200 (a redirect is not followed), and for a body longer than 64 KiB.
    fn send(&self, path: &str, body: Option<&[u8]>, deadline: Deadline) -> Result<Vec<u8>, Error> {
        let lost = |error: &ureq::Error| {
            Error::new(
                &code::PROVIDER_UNREACHABLE,
                format!("{}: {error}", self.url),
            )
        };
        let rules = http::client_rules().timeout_global(Some(deadline.remaining()?));
        let agent = http::client(rules.build(), None);
        let url = format!("{}/{path}", self.url);
        let response = match body {
            None => agent.get(url).call(),
            Some(body) => agent
                .post(url)
                .content_type("application/jwk+json")
                .send(body),
        };
        let mut response = response.map_err(|error| lost(&error))?;
        match response.status().as_u16() {
            200 => {}
            404 => {
                let detail = "the server has no such key any more";
                return Err(Error::new(&code::PROVIDER_NO_KEY, detail));
            }
            status => {
                let detail = format!("{}: HTTP status {status}", self.url);
                return Err(Error::new(&code::PROVIDER_UNREACHABLE, detail));
            }
        }
        let body = response.body_mut().with_config().limit(BODY_MAX);
        body.read_to_vec().map_err(|error| lost(&error))
    }

    /// Recovers the key of the exchange with the server's help: sends the client's point, blinded
    /// by a random scalar, which the server multiplies by its private key. Errors: SR-2105 when the
    /// answer is malformed; SR-2103 when the server no longer has the key; SR-2101 when it cannot
    /// be reached or does not answer before the deadline; SR-5001 when the system reports an error.
    fn recover(
        &self,
        exchange: &ExchangeKey,
        client: &P521Point,
        context: &[u8],
        deadline: Deadline,
    ) -> Result<SecretKey, Error> {
        let (blind, blinded) = ecmr_blind(client).map_err(translate_crypto_error)?;
        let request = serde_json::to_vec(&Jwk::exchange_key(&blinded));
        let request = request.map_err(|_| Error::new(&code::BUG, "a key as JSON"))?;
        let path = format!("rec/{}", BASE64.encode(exchange.thumbprint));
        let response = self.send(&path, Some(&request), deadline)?;
        let answer: Option<Jwk> = serde_json::from_slice(&response).ok();
        let answer = answer.and_then(|key| key.point());
        let answer = answer.ok_or_else(|| not_accepted("the server's answer is malformed"))?;
        ecmr_recover(&blind, &exchange.point, &answer, context).map_err(translate_crypto_error)
    }

    /// Opens a blob: recovers the key with the server's help, and decrypts the secret. Errors:
    /// SR-2105 when the blob is malformed or does not decrypt; SR-2103 when the server no longer
    /// has the key; SR-2101 when it cannot be reached or does not answer before the deadline.
    fn open(&self, blob: &[u8], context: &[u8], deadline: Deadline) -> Result<SecretKey, Error> {
        let malformed = || not_accepted("the wrapped key is malformed");
        let (thumbprint, rest) = blob.split_first_chunk::<32>().ok_or_else(malformed)?;
        let (server, rest) = rest.split_first_chunk::<POINT>().ok_or_else(malformed)?;
        let (client, rest) = rest.split_first_chunk::<POINT>().ok_or_else(malformed)?;
        let (sealed, tag) = rest.split_first_chunk::<32>().ok_or_else(malformed)?;
        let tag: &[u8; 16] = tag.try_into().map_err(|_| malformed())?;
        let exchange = ExchangeKey {
            thumbprint: *thumbprint,
            point: *server,
        };
        let key = self.recover(&exchange, client, context, deadline)?;
        let mut secret = *sealed;
        let opened = GcmKey::new(&key)?.open(&NONCE, context, &mut secret, tag);
        opened.map_err(|_| {
            not_accepted("the wrapped root key does not open with what the server answered")
        })?;
        Ok(SecretKey::take(&mut secret)?)
    }
}

impl RootProvider for Tang {
    /// Returns `tang`.
    fn name(&self) -> &'static str {
        NAME
    }

    /// Returns 10.
    fn number(&self) -> u16 {
        NUMBER
    }

    /// Returns the argument as the keyring stores it, with the wrapped root key if there is one.
    fn argument(&self) -> &str {
        &self.argument
    }

    /// Opens the wrapped secret with the server's help, and derives the root key. Errors: SR-2020
    /// no wrapped root key; SR-2105 when it does not open; SR-2103 when the server no longer has
    /// the key; SR-2101 when it does not answer within the usual limit (30 seconds unless the
    /// environment says otherwise); SR-2043 for a wrong time limit in the environment.
    fn fetch(&self, _creating: bool) -> Result<Opener, Error> {
        let wrapped = Wrapped::of(NUMBER, &self.argument)?;
        let deadline = Deadline::usual()?;
        wrapped.root(&self.open(wrapped.blob(), &wrapped.context(), deadline)?)
    }

    /// Fetches the server's advertisement, makes a new root key, encrypts its secret for the
    /// server's exchange key, and has it opened again before anything is stored. Errors: SR-2105
    /// when the advertisement is not signed by the key of the thumbprint, or the secret does not
    /// come back; SR-2020 when the argument becomes too long; SR-2101 when the server does not
    /// answer to both within the usual limit (30 seconds unless the environment says otherwise);
    /// SR-2103 when it does not have the key; SR-2043 for a wrong time limit in the environment.
    fn create(&self) -> Result<Created, Error> {
        let deadline = Deadline::usual()?;
        let advertisement = self.send("adv", None, deadline)?;
        let exchange = verified_exchange_key(&advertisement, &self.thumbprint)?;
        Wrapped::create(NUMBER, locator(&self.argument), |secret, context| {
            let (key, client) =
                ecmr_provision(&exchange.point, context).map_err(translate_crypto_error)?;
            // In clear until it is encrypted in place.
            let mut sealed = copy(secret.expose())?;
            let tag = GcmKey::new(&key)?.seal(&NONCE, context, sealed.as_mut_slice())?;
            let parts = [
                &exchange.thumbprint[..],
                &exchange.point,
                &client,
                sealed.as_slice(),
                &tag,
            ];
            let blob = parts.concat();
            // Opened before anything is stored: with a server that advertises a key and does not
            // serve it, the keyring would be lost.
            match self.open(&blob, context, deadline)?.ct_eq(secret) {
                true => Ok(blob),
                false => Err(not_accepted(
                    "the server does not give back what was sealed with it",
                )),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_and_thumbprint_are_checked() {
        let good = "A".repeat(43);
        assert!(make(&format!("url=http://tang:7500/;thumbprint={good}")).is_ok());
        for text in [
            String::from("url=http://tang"),
            format!("thumbprint={good}"),
            format!("url=https://tang;thumbprint={good}"),
            format!("url=http://user:hunter2@tang;thumbprint={good}"),
            format!("url=http://;thumbprint={good}"),
            String::from("url=http://tang;thumbprint=AAAA"),
        ] {
            let refused = make(&text).err();
            assert!(
                refused.is_some_and(|why| !why.contains("hunter2")),
                "{text}"
            );
        }
    }
}
