//! Provider `keyserver`: the root key is sealed under a key that this host's key servers deliver.
//!
//! `keyserver:KEY[?node=FILE&timeout=SECONDS]`. KEY is the key's name at the key server; `node` is
//! the configuration of this host, `STRONGROOM_NODE` or /etc/strongroom/node.toml unless it is
//! given; `timeout` shortens that configuration's total time.
//!
//! Invariants: R4; the blob holds the version of the key, so a rotation at the server locks nobody
//! out, and `rotate-root` changes to the newest version; servers and trust anchors come from the
//! host's configuration, never from the keyring.
//!
//! Must not: keep key material; make, change or destroy a key at the server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use strongroom_crypto::{GcmKey, SecretKey, hkdf, nonce12};
use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_keyring::provider::{Made, Registered};
use strongroom_keys_client::{Client, Fetched, Node, Version, key_name_is_valid};

use crate::deadline::Deadline;
use crate::network::credential::copy;
use crate::network::locator::Locator;
use crate::network::sealing::{SealingProvider, SealingServer, stored_argument};

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
const LABEL: &[u8] = b"keyserver";

const VERSION_LEN: usize = 8;
const NONCE_LEN: usize = 12;
const TAG_LEN: usize = 16;
const SECRET_LEN: usize = 32;
/// Bytes of a blob.
const BLOB_LEN: usize = VERSION_LEN + NONCE_LEN + TAG_LEN + SECRET_LEN;

/// Makes a provider of the argument. The error says what is not valid. Reads no file, and sends
/// nothing.
fn make(argument: &str) -> Made {
    let mut locator = Locator::parse(argument, OPTIONS)?;
    locator.make_absolute(&["node"])?;
    if !key_name_is_valid(&locator.target) {
        return Err("the name of a key of the key server is wanted");
    }
    let timeout = locator.timeout()?;
    let server = KeyServer {
        name: locator.target.clone(),
        node: locator.path("node"),
        timeout,
    };
    Ok(Box::new(SealingProvider {
        name: NAME,
        number: NUMBER,
        argument: stored_argument(&locator, argument),
        // Not used: the host's configuration bounds each call.
        timeout,
        server,
    }))
}

struct KeyServer {
    /// The key's name.
    name: String,
    node: Option<PathBuf>,
    timeout: Option<Duration>,
}

impl KeyServer {
    /// Reads this host's node configuration, and returns a client of its key servers. A `timeout`
    /// of the argument shortens the configured total time, and never lengthens it. Sends nothing
    /// yet. Errors: the code of the client's error when the configuration or a file that it names
    /// cannot be used.
    fn client(&self) -> Result<Client, Error> {
        let node = Node::load(&Node::path(self.node.as_deref().map(Path::new)))?;
        let total = node.total_timeout();
        let client = node.client();
        Ok(match self.timeout {
            Some(timeout) => client.within(timeout.min(total)),
            None => client,
        })
    }

    /// Requests the key's material of this version from the key servers. Errors: those of
    /// [`Self::client`]; the code of the client's error when no server delivers it.
    fn fetch(&self, version: Version) -> Result<Fetched, Error> {
        Ok(self.client()?.material(&self.name, version)?)
    }
}

impl SealingServer for KeyServer {
    /// Fetches the newest version of the key, and encrypts the secret here under a key derived from
    /// it and the context. Returns version, nonce, tag and ciphertext. The deadline is not used:
    /// the configured total time bounds the call. Errors: the code of the client's error when the
    /// host's configuration cannot be used, or no server delivers the key; SR-5001 when the system
    /// reports an error.
    fn seal(&self, secret: &SecretKey, context: &[u8], _: Deadline) -> Result<Vec<u8>, Error> {
        let fetched = self.fetch(Version::Latest)?;
        let key = sealing_key(&fetched.material, context)?;
        let nonce = nonce12()?;
        // In clear until it is encrypted in place.
        let mut sealed = copy(secret.expose())?;
        let tag = key.seal(&nonce, context, sealed.as_mut_slice())?;
        let version = fetched.version.to_le_bytes();
        Ok([&version[..], &nonce, &tag, sealed.as_slice()].concat())
    }

    /// Fetches the version of the key that sealed, and decrypts the secret here. The deadline is
    /// not used: the configured total time bounds the call. Errors: SR-2105 when the sealed secret
    /// is malformed, or does not decrypt with the key; the code of the client's error when the
    /// host's configuration cannot be used, or no server delivers the key; SR-5001 when the system
    /// reports an error.
    fn open(&self, sealed: &[u8], context: &[u8], _: Deadline) -> Result<SecretKey, Error> {
        let blob = Blob::parse(sealed)
            .ok_or_else(|| Error::new(&code::PROVIDER_ANSWER, "the wrapped key is malformed"))?;
        let fetched = self.fetch(Version::Number(blob.version))?;
        let key = sealing_key(&fetched.material, context)?;
        let mut room = copy(blob.ciphertext)?;
        let secret = room.as_mut_slice();
        let wrong = || Error::new(&code::PROVIDER_ANSWER, "the server delivered another key");
        key.open(blob.nonce, context, secret, blob.tag)
            .map_err(|_| wrong())?;
        let secret: &mut [u8; SECRET_LEN] = secret.try_into().map_err(|_| wrong())?;
        Ok(SecretKey::take(secret)?)
    }
}

/// Derives the key that seals for one keyring. The context contains the keyring's id, so no two
/// keyrings share a key. Errors: SR-5001 when there is no memory for keys.
fn sealing_key(material: &SecretKey, context: &[u8]) -> Result<GcmKey, Error> {
    let key = hkdf(material, &[], &[context, LABEL].concat())?;
    Ok(GcmKey::new(&key)?)
}

/// What the keyring stores of a sealed secret (docs/spec/keyring.md, "Blobs of servers").
struct Blob<'a> {
    version: u64,
    nonce: &'a [u8; NONCE_LEN],
    tag: &'a [u8; TAG_LEN],
    ciphertext: &'a [u8],
}

impl<'a> Blob<'a> {
    /// Splits a sealed secret into its fields. `None` unless it has the one length that it can
    /// have.
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() != BLOB_LEN {
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
