//! cryptsetup's plugin for Strongroom's LUKS2 tokens, `libcryptsetup-token-strongroom.so`: with it,
//! `cryptsetup open`, systemd-cryptsetup and crypttab open a volume with the key that its token
//! names, which the key server delivers.
//!
//! The key server is the one of the node's configuration (`/etc/strongroom/node.toml`, or the file
//! that `STRONGROOM_NODE` names), never of the token; the token selects a key. Without an answer
//! cryptsetup tries its next way of opening: a refusal here is never final.
//!
//! Invariants: T1 no panic crosses the boundary; T2 a passphrase is in locked memory until
//! libcryptsetup gives it back, and is wiped then; T3 every call ends within the total time of the
//! node's configuration; T4 no key is fetched for a header whose data are not encrypted, or whose
//! slots ask for more work than is reasonable: both can be an attacker's work.
//!
//! Must not: ask anybody for a passphrase; print, except through libcryptsetup's log.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::indexing_slicing))]

mod ffi;

use serde_json::Value;
use strongroom_crypto::SecretBytes;
use strongroom_keys_client::{Kind, Node, Version};
use strongroom_luks2::{Provider, StrongroomToken};
use strongroom_volume::header;
use strongroom_volume::secret::slot_secret;

/// Why there is no passphrase.
#[derive(Debug)]
struct Refusal {
    kind: RefusalKind,
    text: String,
}

/// The kind of a refusal, which tells libcryptsetup whether to try the next token or to ask for a
/// passphrase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RefusalKind {
    /// This host has nothing for the token: no configuration, or the key is in a keyring.
    NotHere,
    /// The server cannot be reached, or is sealed.
    NotNow,
    /// The server refuses.
    Denied,
    /// The token or the header is malformed.
    Malformed,
    /// The header is unsafe: perhaps forged.
    Forged,
}

impl RefusalKind {
    /// Returns the negative error number for libcryptsetup. It tries its next way of opening after
    /// each of them.
    const fn number(self) -> i32 {
        match self {
            Self::NotHere => -libc::ENOENT,
            Self::NotNow => -libc::EAGAIN,
            Self::Denied | Self::Forged => -libc::EPERM,
            Self::Malformed => -libc::EINVAL,
        }
    }
}

/// Fetches the key that the token names from the key server of the node's configuration, and
/// returns the passphrase of the token's slots that is derived from it.
///
/// # Errors
/// `NotHere` when the key is in a keyring or the host is no node; `Malformed` for a token that
/// cannot be read; `NotNow` when no server can be reached, or it is sealed, or there is no memory
/// for keys; `Denied` for any other error of the server or the configuration.
fn passphrase(json: &str) -> Result<SecretBytes, Refusal> {
    let token = token(json)?;
    if token.provider != Provider::KeyServer {
        let text = "the volume's key is in a keyring: strongroom volume open".to_owned();
        return Err(Refusal {
            kind: RefusalKind::NotHere,
            text,
        });
    }
    let path = Node::path(None);
    if !path.exists() {
        let text = format!(
            "this host is no node of a key server: there is no {}",
            path.display()
        );
        return Err(Refusal {
            kind: RefusalKind::NotHere,
            text,
        });
    }
    let node = Node::load(&path).map_err(from_client)?;
    let version = Version::Number(token.key_version.into());
    let fetched = node
        .client()
        .material(&token.key_id, version)
        .map_err(from_client)?;
    slot_secret(&fetched.material, &token.object_id).map_err(from_keyring)
}

/// Checks that the token's key may be tried on the header, which is libcryptsetup's JSON. After a
/// refusal cryptsetup asks for a passphrase, so the text warns of that.
///
/// # Errors
/// `Malformed` when it is not JSON; `Forged` when the header cannot be read, has no token that
/// names a slot, does not encrypt its data, or asks for too much work.
fn check(header: &str) -> Result<(), Refusal> {
    let forged = |error: strongroom_keyring::Error| Refusal {
        kind: RefusalKind::Forged,
        text: format!("do not open this volume by any means: {error}"),
    };
    let json: Result<Value, _> = serde_json::from_str(header);
    let json = json.map_err(|error| Refusal {
        kind: RefusalKind::Malformed,
        text: format!("header: {error}"),
    })?;
    let metadata = header::read(&json).map_err(forged)?;
    let slots = metadata.token_slots();
    let slots = slots.map_err(|error| forged(error.into()))?;
    header::check_before_trying(&metadata, &slots).map_err(forged)
}

/// Reads a Strongroom token from JSON. `Malformed` when it is none, or one of a newer version.
fn token(json: &str) -> Result<StrongroomToken, Refusal> {
    let value: Result<Value, _> = serde_json::from_str(json);
    let value = value.map_err(|error| Refusal {
        kind: RefusalKind::Malformed,
        text: format!("token: {error}"),
    })?;
    StrongroomToken::read(&value).map_err(|error| Refusal {
        kind: RefusalKind::Malformed,
        text: strongroom_keyring::Error::from(error).to_string(),
    })
}

/// Returns the text that `cryptsetup luksDump` shows for a token: key, object id and servers, or
/// why it cannot be read.
fn description(json: &str) -> String {
    match token(json) {
        Ok(token) => format!(
            "\tKey:        {} (version {}, {})\n\tObject:     {}\n\tServers:    {} (a hint; those of the node's configuration are asked)\n",
            token.key_id,
            token.key_version,
            token.provider.name(),
            strongroom_format::hex::hex(&token.object_id),
            token.servers.join(" "),
        ),
        Err(refusal) => format!("\t{}\n", refusal.text),
    }
}

/// Returns the refusal for an error of the key server's client: `NotNow` when the server cannot be
/// reached or is sealed, `Denied` for anything else.
fn from_client(error: strongroom_keys_client::Error) -> Refusal {
    let kind = match error.kind() {
        Kind::Unreachable | Kind::Sealed => RefusalKind::NotNow,
        _ => RefusalKind::Denied,
    };
    Refusal {
        kind,
        text: error.to_string(),
    }
}

/// Returns the refusal `NotNow` for a failure on this host.
fn from_keyring(error: strongroom_keyring::Error) -> Refusal {
    Refusal {
        kind: RefusalKind::NotNow,
        text: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(provider: &str) -> String {
        format!(
            r#"{{"type":"strongroom","keyslots":["1"],"version":1,"object_id":"{}","key_id":"db-7","key_version":"3","provider":"{provider}","servers":["https://keys-a:8443"]}}"#,
            "a5".repeat(16)
        )
    }

    /// A volume in a file, whose token names a key of a keyring.
    pub(crate) fn volume(path: &std::path::Path) {
        use strongroom_volume::create::{DATA_OFFSET, NewVolume, Openers, create};
        let new = NewVolume {
            path,
            size: Some(DATA_OFFSET + (1 << 20)),
            cipher: "aes-xts-plain64",
            key_len: 64,
            integrity: false,
            label: None,
            sector_size: None,
            overwrite: false,
            wipe: false,
        };
        let token = StrongroomToken {
            slots: vec![],
            object_id: [1; 16],
            key_id: "k".to_owned(),
            key_version: 1,
            provider: Provider::Keyring,
            servers: vec![],
        };
        let secret = SecretBytes::take(&mut [7; 64]).unwrap();
        let openers = Openers {
            token: &token,
            secret: &secret,
            recovery: None,
        };
        create(&new, &openers, &mut |_, _| true).unwrap();
    }

    /// Changes both copies of the header as somebody without a key can: the checksums are right.
    pub(crate) fn forge(path: &std::path::Path, from: &str, to: &str) {
        use std::os::unix::fs::FileExt as _;
        use strongroom_luks2::{json_of, replace_json};
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).open(path).unwrap();
        for at in [0, 16 << 10] {
            let mut copy = vec![0; 16 << 10];
            file.read_exact_at(&mut copy, at).unwrap();
            let json = std::str::from_utf8(json_of(&copy)).unwrap().to_owned();
            assert!(json.contains(from), "{from} not in {json}");
            let sequence = u64::from(copy[23]);
            replace_json(&mut copy, json.replace(from, to).as_bytes(), sequence).unwrap();
            file.write_all_at(&copy, at).unwrap();
        }
    }

    #[test]
    fn a_token_of_a_keyring_is_left_to_others() {
        let refusal = passphrase(&json("keyring")).err().unwrap();
        assert_eq!(refusal.kind.number(), -libc::ENOENT);
    }

    #[test]
    fn what_is_not_a_token_is_refused_and_shown_without_what_it_holds() {
        for wrong in [
            "",
            "{}",
            "[]",
            &json("else"),
            &json("keyserver").replace("db-7", "../x"),
            &json("keyserver").replace("\"1\"", "\"99\""),
        ] {
            assert_eq!(
                token(wrong).err().unwrap().kind,
                RefusalKind::Malformed,
                "{wrong}"
            );
            assert!(!description(wrong).contains("keys-a"), "{wrong}");
        }
    }

    #[test]
    fn what_is_shown_of_a_token() {
        let shown = description(&json("keyserver"));
        assert!(
            shown.contains("db-7 (version 3, keyserver)") && shown.contains("a hint"),
            "{shown}"
        );
    }
}
