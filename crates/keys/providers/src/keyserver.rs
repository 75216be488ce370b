//! Provider `keyserver`: the root key is sealed under a key that this host's key servers deliver.
//!
//! `keyserver:KEY[?node=FILE&timeout=SECONDS]`. KEY is the key's name at the key server; `node` is
//! the configuration of this host, `STRONGROOM_NODE` or /etc/strongroom/node.toml unless it is
//! given; `timeout` shortens that configuration's total time.
//!
//! Invariants: R4; the version of the key stands in the blob, so a rotation at the server locks
//! nobody out, and `rotate-root` goes over to the newest; servers and trust anchors come from the
//! host's configuration, never from the keyring.
//!
//! Must not: keep key material; make, change or destroy a key at the server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use strongroom_crypto::{GcmKey, SecretBytes, SecretKey, hkdf, nonce12};
use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_keyring::provider::{Made, Registered};
use strongroom_keys_client::{Client, Fetched, Node, Version, key_name_is_valid};

use crate::network::deadline::Deadline;
use crate::network::error;
use crate::network::locator::Locator;
use crate::network::wrapped::{Remote, Sealing};

/// The registry line of this provider.
pub(crate) const REGISTERED: Registered = Registered {
    name: NAME,
    number: NUMBER,
    acts: true,
    make,
};

const NAME: &str = "keyserver";
const NUMBER: u16 = 5;

const OPTIONS: &[&str] = &["node", "timeout"];

/// What follows the context in the label of the key that seals.
const SEALING: &[u8] = b"keyserver";

const VERSION_LEN: usize = 8;
const NONCE_LEN: usize = 12;
const TAG_LEN: usize = 16;
const SECRET_LEN: usize = 32;
/// Bytes of what is kept.
const KEPT_LEN: usize = VERSION_LEN + NONCE_LEN + TAG_LEN + SECRET_LEN;

fn make(argument: &str) -> Made {
    let mut locator = Locator::parse(argument, OPTIONS)?;
    locator.absolute(&["node"])?;
    if !key_name_is_valid(&locator.place) {
        return Err("the name of a key of the key server is wanted");
    }
    let timeout = locator.timeout()?;
    let remote = KeyServer {
        name: locator.place.clone(),
        node: locator.path("node"),
        timeout,
    };
    Ok(Box::new(Sealing {
        name: NAME,
        number: NUMBER,
        argument: Sealing::<KeyServer>::argument_of(&locator.text(), argument),
        // Not used: the host's configuration bounds each call.
        timeout,
        remote,
    }))
}

struct KeyServer {
    /// The key's name.
    name: String,
    node: Option<PathBuf>,
    timeout: Option<Duration>,
}

impl KeyServer {
    fn client(&self) -> Result<Client, Error> {
        let node = Node::load(&Node::path(self.node.as_deref().map(Path::new)))?;
        let total = node.total_timeout();
        let client = node.client();
        Ok(match self.timeout {
            Some(timeout) => client.within(timeout.min(total)),
            None => client,
        })
    }

    fn fetch(&self, version: Version) -> Result<Fetched, Error> {
        Ok(self.client()?.material(&self.name, version)?)
    }
}

impl Remote for KeyServer {
    fn seal(&self, secret: &SecretKey, context: &[u8], _: Deadline) -> Result<Vec<u8>, Error> {
        let fetched = self.fetch(Version::Latest)?;
        let key = sealing_key(&fetched.material, context)?;
        let nonce = nonce12()?;
        let mut sealed = secret.expose().to_vec();
        let tag = key.seal(&nonce, context, &mut sealed)?;
        let version = fetched.version.to_le_bytes();
        Ok([&version[..], &nonce, &tag, &sealed].concat())
    }

    fn open(&self, sealed: &[u8], context: &[u8], _: Deadline) -> Result<SecretKey, Error> {
        let kept = Kept::parse(sealed)
            .ok_or_else(|| error(&code::PROVIDER_ANSWER, "the wrapped key is malformed"))?;
        let fetched = self.fetch(Version::Number(kept.version))?;
        let key = sealing_key(&fetched.material, context)?;
        let mut room = SecretBytes::with_capacity(SECRET_LEN)?;
        let secret = room.as_mut_slice();
        secret.copy_from_slice(kept.ciphertext);
        let wrong = || error(&code::PROVIDER_ANSWER, "the server delivered another key");
        key.open(kept.nonce, context, secret, kept.tag)
            .map_err(|_| wrong())?;
        let secret: &mut [u8; SECRET_LEN] = secret.try_into().map_err(|_| wrong())?;
        Ok(SecretKey::take(secret)?)
    }
}

/// The key that seals for one keyring: bound to its id by the context, so that no two keyrings
/// share one.
fn sealing_key(material: &SecretKey, context: &[u8]) -> Result<GcmKey, Error> {
    let key = hkdf(material, &[], &[context, SEALING].concat())?;
    Ok(GcmKey::new(&key)?)
}

/// What is kept of a sealed secret (docs/spec/keyring.md, "Blobs of servers").
struct Kept<'a> {
    version: u64,
    nonce: &'a [u8; NONCE_LEN],
    tag: &'a [u8; TAG_LEN],
    ciphertext: &'a [u8],
}

impl<'a> Kept<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() != KEPT_LEN {
            return None;
        }
        let (version, rest) = bytes.split_first_chunk::<VERSION_LEN>()?;
        let (nonce, rest) = rest.split_first_chunk()?;
        let (tag, ciphertext) = rest.split_first_chunk()?;
        Some(Self {
            version: u64::from_le_bytes(*version),
            nonce,
            tag,
            ciphertext,
        })
    }
}
