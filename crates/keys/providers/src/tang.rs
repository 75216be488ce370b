//! Provider `tang:url=http://HOST:PORT;thumbprint=...`: the root key comes out only where a Tang
//! server answers.
//!
//! The exchange is that of Tang and Clevis (github.com/latchset/tang, "Security Considerations" and
//! "Protocol"): the server keeps no state and never learns a key, and whoever listens neither, so
//! HTTP is enough. `thumbprint` (RFC 7638, SHA-256) is that of a key with which the server signs
//! its advertisement: what `tang-show-keys` prints.
//!
//! The blob: thumbprint of the server's exchange key (32 bytes), its point (132), the client's
//! point (132), then the secret under AES-256-GCM with the key of the exchange, which is derived
//! with the context as `info`, an all-zero nonce - the key is used once - and the context as
//! associated data (32 + 16 bytes).
//!
//! Must not: use an exchange key that the pinned key has not signed; send the client's point as it
//! is.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde::{Deserialize, Serialize};
use strongroom_crypto::{
    CryptoError, GcmKey, P521Point, SecretKey, ecmr_blind, ecmr_provision, ecmr_recover, sha256,
    verify_p521,
};
use strongroom_format::code::{self, Code};
use strongroom_keyring::provider::{Created, Made, Registered, Wrapped, locator};
use strongroom_keyring::{Error, Opener, RootProvider};

use crate::limit::Deadline;
use crate::options::Options;

pub(crate) const REGISTERED: Registered = Registered {
    name: NAME,
    number: NUMBER,
    acts: true,
    make,
};

const NAME: &str = "tang";
const NUMBER: u16 = 10;
/// Longest answer.
const ANSWER_MAX: u64 = 64 * 1024;
const FIELD: usize = 66;
const POINT: usize = 2 * FIELD;
const NONCE: [u8; 12] = [0; 12];

struct Tang {
    argument: String,
    url: String,
    thumbprint: [u8; 32],
}

/// A key in JSON (RFC 7517), as far as Tang has it.
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
struct Keys {
    keys: Vec<Jwk>,
}

/// A signed advertisement (RFC 7515, section 7.2): with one signature, or with several.
#[derive(Deserialize)]
struct Signed {
    payload: String,
    #[serde(default)]
    signatures: Vec<Signature>,
    #[serde(flatten)]
    only: Option<Signature>,
}

#[derive(Deserialize)]
struct Signature {
    protected: String,
    signature: String,
}

/// A server's key for the exchange.
struct Exchange {
    thumbprint: [u8; 32],
    point: P521Point,
}

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
        thumbprint: decoded(thumbprint)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or("thumbprint is a SHA-256 in base64 for URLs, 43 characters")?,
        argument: argument.to_owned(),
    }))
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}

fn failed(code: &'static Code, detail: &str) -> Error {
    Error::new(code, detail)
}

fn forged(detail: &str) -> Error {
    failed(&code::PROVIDER_ANSWER, detail)
}

/// What a point that is not one says of who sent it.
fn crypto(error: CryptoError) -> Error {
    match error {
        CryptoError::Key => forged("a point of the server's is not on the curve"),
        error => error.into(),
    }
}

impl Jwk {
    fn of(point: &P521Point) -> Self {
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

    fn point(&self) -> Option<P521Point> {
        let fits = self.kty == "EC" && self.crv == "P-521";
        let (x, y) = (decoded(&self.x)?, decoded(&self.y)?);
        let whole = fits && x.len() == FIELD && y.len() == FIELD;
        whole.then(|| [x, y].concat().try_into().ok()).flatten()
    }

    /// RFC 7638.
    fn thumbprint(&self) -> [u8; 32] {
        let text = format!(
            r#"{{"crv":"{}","kty":"{}","x":"{}","y":"{}"}}"#,
            self.crv, self.kty, self.x, self.y
        );
        sha256(&[text.as_bytes()])
    }

    fn serves(&self, use_: &str) -> bool {
        self.key_ops.iter().any(|operation| operation == use_)
    }
}

/// The exchange key in an advertisement that the key of this thumbprint has signed.
fn trusted(answer: &[u8], thumbprint: &[u8; 32]) -> Result<Exchange, Error> {
    let malformed = || forged("the server's advertisement does not have its form");
    let signed: Signed = serde_json::from_slice(answer).map_err(|_| malformed())?;
    let payload = decoded(&signed.payload).ok_or_else(malformed)?;
    let keys: Keys = serde_json::from_slice(&payload).map_err(|_| malformed())?;
    let pinned = keys
        .keys
        .iter()
        .filter(|key| key.alg == "ES512" && key.serves("verify"));
    let mut pinned = pinned.map(|key| (key.thumbprint(), key.point()));
    let pinned = pinned.find(|(other, _)| other == thumbprint);
    let Some((_, Some(pinned))) = pinned else {
        return Err(forged(
            "the server does not advertise the key of that thumbprint",
        ));
    };
    let holds = |signature: &Signature| {
        let message = format!("{}.{}", signature.protected, signed.payload);
        let bytes: Option<[u8; POINT]> =
            decoded(&signature.signature).and_then(|it| it.try_into().ok());
        bytes.is_some_and(|bytes| verify_p521(&pinned, message.as_bytes(), &bytes).is_ok())
    };
    if !signed.signatures.iter().chain(&signed.only).any(holds) {
        return Err(forged(
            "the advertisement is not signed by the key of that thumbprint",
        ));
    }
    let exchange = keys
        .keys
        .iter()
        .find(|key| key.alg == "ECMR" && key.serves("deriveKey"));
    let point = exchange.and_then(|key| Some((key.thumbprint(), key.point()?)));
    let (thumbprint, point) = point.ok_or_else(malformed)?;
    Ok(Exchange { thumbprint, point })
}

impl Tang {
    /// Asks the server: gets what is at the path, or posts there.
    fn ask(&self, path: &str, body: Option<&[u8]>) -> Result<Vec<u8>, Error> {
        let lost = |error: &ureq::Error| {
            Error::new(
                &code::PROVIDER_UNREACHABLE,
                format!("{}: {error}", self.url),
            )
        };
        let left = Deadline::begin()?.left()?;
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(left))
            .proxy(None)
            .max_redirects(0)
            .http_status_as_error(false)
            .build();
        let agent = config.new_agent();
        let url = format!("{}/{path}", self.url);
        let answer = match body {
            None => agent.get(url).call(),
            Some(body) => agent
                .post(url)
                .content_type("application/jwk+json")
                .send(body),
        };
        let mut answer = answer.map_err(|error| lost(&error))?;
        match answer.status().as_u16() {
            200 => {}
            404 => {
                return Err(failed(
                    &code::PROVIDER_NO_KEY,
                    "the server has no such key any more",
                ));
            }
            status => {
                let detail = format!("{}: HTTP status {status}", self.url);
                return Err(Error::new(&code::PROVIDER_UNREACHABLE, detail));
            }
        }
        let body = answer.body_mut().with_config().limit(ANSWER_MAX);
        body.read_to_vec().map_err(|error| lost(&error))
    }

    fn recovered(
        &self,
        exchange: &Exchange,
        client: &P521Point,
        context: &[u8],
    ) -> Result<SecretKey, Error> {
        let (blind, asked) = ecmr_blind(client).map_err(crypto)?;
        let asked = serde_json::to_vec(&Jwk::of(&asked));
        let asked = asked.map_err(|_| failed(&code::BUG, "a key as JSON"))?;
        let path = format!("rec/{}", BASE64.encode(exchange.thumbprint));
        let answer = self.ask(&path, Some(&asked))?;
        let answer: Option<Jwk> = serde_json::from_slice(&answer).ok();
        let answer = answer.and_then(|key| key.point());
        let answer = answer.ok_or_else(|| forged("the server's answer does not have its form"))?;
        ecmr_recover(&blind, &exchange.point, &answer, context).map_err(crypto)
    }

    fn opened(&self, blob: &[u8], context: &[u8]) -> Result<SecretKey, Error> {
        let malformed = || forged("the wrapped key is malformed");
        let (thumbprint, rest) = blob.split_first_chunk::<32>().ok_or_else(malformed)?;
        let (server, rest) = rest.split_first_chunk::<POINT>().ok_or_else(malformed)?;
        let (client, rest) = rest.split_first_chunk::<POINT>().ok_or_else(malformed)?;
        let (sealed, tag) = rest.split_first_chunk::<32>().ok_or_else(malformed)?;
        let tag: &[u8; 16] = tag.try_into().map_err(|_| malformed())?;
        let exchange = Exchange {
            thumbprint: *thumbprint,
            point: *server,
        };
        let key = self.recovered(&exchange, client, context)?;
        let mut secret = *sealed;
        let opened = GcmKey::new(&key)?.open(&NONCE, context, &mut secret, tag);
        opened.map_err(|_| {
            forged("the wrapped root key does not open with what the server answered")
        })?;
        Ok(SecretKey::take(&mut secret)?)
    }
}

impl RootProvider for Tang {
    fn name(&self) -> &'static str {
        NAME
    }

    fn number(&self) -> u16 {
        NUMBER
    }

    fn argument(&self) -> &str {
        &self.argument
    }

    fn fetch(&self, _creating: bool) -> Result<Opener, Error> {
        let wrapped = Wrapped::of(NUMBER, &self.argument)?;
        wrapped.root(&self.opened(wrapped.blob(), &wrapped.context())?)
    }

    fn create(&self) -> Result<Created, Error> {
        let exchange = trusted(&self.ask("adv", None)?, &self.thumbprint)?;
        Wrapped::create(NUMBER, locator(&self.argument), |secret, context| {
            let (key, client) = ecmr_provision(&exchange.point, context).map_err(crypto)?;
            // Encrypted where it stands; in clear only for these two lines.
            let mut sealed = *secret.expose();
            let tag = GcmKey::new(&key)?.seal(&NONCE, context, &mut sealed)?;
            let parts = [
                &exchange.thumbprint[..],
                &exchange.point,
                &client,
                &sealed,
                &tag,
            ];
            let blob = parts.concat();
            // A server that advertises a key and does not serve it would cost the keyring.
            match self.opened(&blob, context)?.ct_eq(secret) {
                true => Ok(blob),
                false => Err(forged(
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
