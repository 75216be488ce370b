//! Tokens: who put a key slot there, and where its key may be had.
//!
//! Everything in a token is a hint: whoever can write to the device can write it, and no checksum
//! says who did. Servers and authorities come from the node's own configuration.
//!
//! Must not: refuse a header for what a token says beyond its type and its key slots.

use strongroom_format::hex::from_hex;

use crate::error::LuksError;
use crate::metadata::numbers;
use crate::tree::{At, Tree, decimal, harmless};

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its type: `strongroom`, `systemd-tpm2`, `clevis` ...
    pub kind: String,
    /// The key slots it is for.
    pub keyslots: Vec<u32>,
    /// What it says, if it is ours and can be read.
    pub strongroom: Option<StrongroomToken>,
    /// What it says, if it is ours of a TPM and can be read.
    pub tpm: Option<TpmToken>,
}

/// What a token of a TPM says (docs/spec/volume.md).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TpmToken {
    /// The salt of the slots' passphrase.
    pub salt: [u8; 16],
    /// What the TPM sealed.
    pub sealed: Vec<u8>,
}

/// What a token of Strongroom says. Hints, all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrongroomToken {
    /// The volume's object id.
    pub object_id: [u8; 16],
    /// The key's name.
    pub key_id: String,
    /// Its version.
    pub key_version: u32,
    /// `keyserver` or `keyring`.
    pub provider: String,
    /// Where the key was had when the token was written.
    pub servers: Vec<String>,
}

impl Token {
    pub(crate) fn read(token: &At<'_>) -> Result<Self, LuksError> {
        let kind = token.member("type")?.text()?.to_owned();
        let strongroom = (kind == "strongroom")
            .then(|| StrongroomToken::read(token))
            .flatten();
        let tpm = (kind == "strongroom-tpm")
            .then(|| TpmToken::read(token))
            .flatten();
        Ok(Self {
            keyslots: numbers(&token.member("keyslots")?)?,
            kind,
            strongroom,
            tpm,
        })
    }
}

impl TpmToken {
    fn read(token: &At<'_>) -> Option<Self> {
        let bytes = |name: &str| from_hex(token.member(name).ok()?.text().ok()?);
        if token.member("version").ok()?.u32().ok()? != 1 {
            return None;
        }
        let sealed = bytes("sealed").filter(|sealed| (1..=2048).contains(&sealed.len()))?;
        let salt = bytes("salt")?.try_into().ok()?;
        Some(Self { salt, sealed })
    }
}

impl StrongroomToken {
    /// Reads a token's JSON. `None` when it is not of Strongroom, of another version, or not well
    /// formed.
    #[must_use]
    pub fn from_json(json: &str) -> Option<Self> {
        let tree: Tree = serde_json::from_str(json).ok()?;
        let token = At::root(&tree);
        (token.member("type").ok()?.text().ok()? == "strongroom")
            .then(|| Self::read(&token))
            .flatten()
    }

    fn read(token: &At<'_>) -> Option<Self> {
        let text = |name: &str| token.member(name).ok()?.text().ok();
        if token.member("version").ok()?.u32().ok()? != 1 {
            return None;
        }
        let version = u32::try_from(decimal(text("key_version")?)?).ok()?;
        let servers = match token.optional("servers").ok()? {
            Some(servers) => servers.texts().ok()?,
            None => Vec::new(),
        };
        let fine = |text: &str| text.len() <= 1024 && text.chars().all(|c| c == harmless(c));
        let token = Self {
            object_id: object_id(text("object_id")?)?,
            key_id: text("key_id")?.to_owned(),
            key_version: version,
            provider: text("provider")?.to_owned(),
            servers,
        };
        let known = matches!(token.provider.as_str(), "keyserver" | "keyring");
        let named = is_key_name(&token.key_id);
        (known && named && token.servers.iter().all(|server| fine(server))).then_some(token)
    }
}

/// 1 to 128 of a-z, A-Z, 0-9, '.', '_', '-'.
fn is_key_name(name: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=128).contains(&name.len()) && name.bytes().all(fine)
}

fn object_id(text: &str) -> Option<[u8; 16]> {
    let digits = text.as_bytes();
    let lower = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if digits.len() != 32 || !digits.iter().all(lower) {
        return None;
    }
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> StrongroomToken {
        StrongroomToken {
            object_id: [0xa5; 16],
            key_id: "db-1".to_owned(),
            key_version: 3,
            provider: "keyserver".to_owned(),
            servers: vec!["https://keys-a:8443".to_owned()],
        }
    }

    const JSON: &str = r#"{"type":"strongroom","keyslots":["1","4"],"version":1,
        "object_id":"a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5","key_id":"db-1","key_version":"3","provider":"keyserver",
        "servers":["https://keys-a:8443"]}"#;

    #[test]
    fn a_token_is_read() {
        assert_eq!(StrongroomToken::from_json(JSON), Some(token()));
    }

    #[test]
    fn a_token_of_a_tpm_is_read_and_one_that_is_not_well_formed_says_nothing() {
        const GOOD: &str = r#"{"type":"strongroom-tpm","keyslots":["2"],"version":1,
            "salt":"04040404040404040404040404040404","sealed":"80080000ff"}"#;
        let read = |json: &str| {
            let tree: Tree = serde_json::from_str(json).unwrap();
            Token::read(&At::root(&tree)).unwrap()
        };
        let token = read(GOOD);
        assert_eq!((&token.keyslots, token.strongroom), (&vec![2], None));
        let said = token.tpm.unwrap();
        assert_eq!((said.salt, said.sealed.len()), ([4; 16], 5));
        for (from, to) in [
            ("strongroom-tpm", "systemd-tpm2"),
            ("\"version\":1", "\"version\":2"),
            ("\"0404", "\"04"),
            ("80080000ff", "80080000FF"),
            ("80080000ff", ""),
            ("\"sealed\"", "\"blob\""),
        ] {
            assert!(GOOD.contains(from), "{from}");
            assert_eq!(read(&GOOD.replacen(from, to, 1)).tpm, None, "{to}");
        }
    }

    #[test]
    fn what_is_not_well_formed_says_nothing() {
        for (from, to) in [
            (r#""version":1"#, r#""version":2"#),
            (r#""version":1"#, r#""version":"1""#),
            ("a5a5", "A5a5"),
            ("a5a5", "a5"),
            (r#""key_id":"db-1""#, r#""key_id":"../x""#),
            (r#""key_id":"db-1""#, r#""key_id":"""#),
            (r#""key_version":"3""#, r#""key_version":"-3""#),
            (r#""key_version":"3""#, r#""key_version":3"#),
            (r#""provider":"keyserver""#, r#""provider":"other""#),
            ("https://keys-a:8443", r"https://\u001b[2J"),
            (r#""type":"strongroom""#, r#""type":"clevis""#),
        ] {
            assert!(JSON.contains(from), "{from}");
            let changed = JSON.replacen(from, to, 1);
            assert_eq!(StrongroomToken::from_json(&changed), None, "{changed}");
        }
        assert_eq!(StrongroomToken::from_json("[]"), None);
        assert_eq!(StrongroomToken::from_json(""), None);
    }
}
