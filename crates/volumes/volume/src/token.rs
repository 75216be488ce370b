//! The LUKS2 token: which material opens the volume, and where it was to be had when the token was
//! written.
//!
//! Form: `docs/spec/volume.md`. Everything in it is a hint, which whoever can write the disk can
//! write too: it selects, it authorises nothing. Whom to ask stands in the node's configuration,
//! never here.
//!
//! Must not: be used without [`Token::read`], which checks form and bounds.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use strongroom_format::code;
use strongroom_format::hex::{from_hex, hex};
use strongroom_keyring::Error;

/// The type of our tokens.
pub const TYPE: &str = "strongroom";
/// The type of systemd's tokens of recovery keys, which ours follow in form, so that its tools know
/// them.
pub const RECOVERY_TYPE: &str = "systemd-recovery";
/// The version of the token's form.
const VERSION: u32 = 1;
/// Longest name of a key.
const NAME_MAX: usize = 128;
/// Most servers, and the longest name of one.
const SERVERS_MAX: usize = 16;
const SERVER_LEN_MAX: usize = 512;

/// Who has the material.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// A key server.
    KeyServer,
    /// The keyring of this host.
    Keyring,
}

impl Provider {
    /// As in the token.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::KeyServer => "keyserver",
            Self::Keyring => "keyring",
        }
    }
}

/// Our token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Key slots that it speaks of.
    pub slots: Vec<u32>,
    /// The volume's id, and the salt of its slots' passphrases.
    pub object_id: [u8; 16],
    /// Name of the key.
    pub key_id: String,
    /// Version of the key.
    pub key_version: u32,
    /// Who had it.
    pub provider: Provider,
    /// Where it was to be had; for people, not for programs.
    pub servers: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(rename = "type")]
    kind: String,
    keyslots: Vec<String>,
    version: u32,
    object_id: String,
    key_id: String,
    key_version: String,
    provider: Provider,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    servers: Vec<String>,
}

impl Token {
    /// Reads a token's JSON.
    ///
    /// # Errors
    /// SR-3002 for a newer form, SR-8323 for one that is not as the specification says.
    pub fn read(json: &Value) -> Result<Self, Error> {
        let version = json.get("version").and_then(Value::as_u64);
        if version.is_some_and(|version| version > u64::from(VERSION)) {
            return Err(Error::new(&code::NEWER_FORMAT, "LUKS2 token"));
        }
        let stored: Stored =
            serde_json::from_value(json.clone()).map_err(|error| bad(&error.to_string()))?;
        if stored.kind != TYPE || stored.version != VERSION {
            return Err(bad("type or version"));
        }
        if !name_is_valid(&stored.key_id) {
            return Err(bad("key_id"));
        }
        let fine = |server: &String| server.len() <= SERVER_LEN_MAX && !has_control(server);
        if stored.servers.len() > SERVERS_MAX || !stored.servers.iter().all(fine) {
            return Err(bad("servers"));
        }
        Ok(Self {
            slots: slots(&stored.keyslots)?,
            object_id: object_id(&stored.object_id)?,
            key_id: stored.key_id,
            key_version: stored
                .key_version
                .parse()
                .ok()
                .filter(|version| *version > 0)
                .ok_or_else(|| bad("key_version"))?,
            provider: stored.provider,
            servers: stored.servers,
        })
    }

    /// As JSON.
    ///
    /// # Errors
    /// SR-9001 only.
    pub fn json(&self) -> Result<Value, Error> {
        let stored = Stored {
            kind: TYPE.to_owned(),
            keyslots: self.slots.iter().map(ToString::to_string).collect(),
            version: VERSION,
            object_id: hex(&self.object_id),
            key_id: self.key_id.clone(),
            key_version: self.key_version.to_string(),
            provider: self.provider,
            servers: self.servers.clone(),
        };
        serde_json::to_value(stored).map_err(|error| Error::new(&code::BUG, error.to_string()))
    }
}

/// The token of recovery keys in `slots`.
#[must_use]
pub fn recovery_json(slots: &[u32]) -> Value {
    let slots: Vec<String> = slots.iter().map(ToString::to_string).collect();
    serde_json::json!({ "type": RECOVERY_TYPE, "keyslots": slots })
}

/// Whether keys may be named so: 1 to 128 of `a-z A-Z 0-9 . _ -`.
#[must_use]
pub fn name_is_valid(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

pub(crate) fn slots(texts: &[String]) -> Result<Vec<u32>, Error> {
    let slot = |text: &String| text.parse::<u32>().ok().filter(|slot| *slot < 32);
    let slots: Option<Vec<u32>> = texts.iter().map(slot).collect();
    slots.ok_or_else(|| bad("keyslots"))
}

fn object_id(text: &str) -> Result<[u8; 16], Error> {
    from_hex(text)
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| bad("object_id"))
}

fn bad(what: &str) -> Error {
    Error::new(&code::VOLUME_TOKEN, format!("member {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn token() -> Token {
        Token {
            slots: vec![1],
            object_id: [0xa5; 16],
            key_id: "db-7".to_owned(),
            key_version: 3,
            provider: Provider::KeyServer,
            servers: vec!["https://keys-a:8443".to_owned()],
        }
    }

    #[test]
    fn as_the_specification_shows_it() {
        let json = json!({
            "type": "strongroom", "keyslots": ["1"], "version": 1,
            "object_id": "a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5", "key_id": "db-7", "key_version": "3",
            "provider": "keyserver", "servers": ["https://keys-a:8443"],
        });
        assert_eq!(token().json().unwrap(), json);
        assert_eq!(Token::read(&json).unwrap(), token());
    }

    #[test]
    fn what_is_not_in_form_is_refused() {
        let good = token().json().unwrap();
        let wrong = [
            ("type", json!("clevis")),
            ("keyslots", json!(["32"])),
            ("keyslots", json!(["x"])),
            ("version", json!(0)),
            ("object_id", json!("A5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5")),
            ("object_id", json!("a5")),
            ("object_id", json!("éééééééééééééééé")),
            ("key_id", json!("../x")),
            ("key_id", json!("")),
            ("key_id", json!("a".repeat(129))),
            ("key_version", json!("0")),
            ("key_version", json!("-1")),
            ("key_version", json!(1)),
            ("provider", json!("else")),
            ("servers", json!(["a\nb"])),
            ("servers", json!(vec!["a"; 17])),
        ];
        for (member, value) in wrong {
            let mut json = good.clone();
            json[member] = value.clone();
            let error = Token::read(&json).unwrap_err();
            assert_eq!(error.code(), &code::VOLUME_TOKEN, "{member} {value}");
        }
        let mut newer = good;
        newer["version"] = json!(2);
        assert_eq!(Token::read(&newer).unwrap_err().code(), &code::NEWER_FORMAT);
    }
}
