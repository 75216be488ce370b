//! Tokens: which opener has a key slot, and what is needed to ask for its key. Read and written.
//!
//! Form: docs/spec/volume.md. Everything in a token is a hint: whoever can write to the device can
//! write it, and no checksum says who did. A token selects a key; servers and authorities come from
//! the node's own configuration.
//!
//! Must not: refuse a header for what a token says beyond its type and its key slots.

use serde_json::{Value, json};
use strongroom_format::code;
use strongroom_format::hex::{from_hex, hex};
use strongroom_keyring::Error;

use crate::error::LuksError;
use crate::tree::{At, Rules, SLOTS_MAX, Tree, decimal, harmless};

/// The type of Strongroom's tokens.
pub const STRONGROOM_TYPE: &str = "strongroom";
/// The type of Strongroom's tokens of TPMs.
pub const TPM_TYPE: &str = "strongroom-tpm";
/// The type of the tokens of recovery keys. It is systemd's, and so is their form: its tools know
/// them.
pub const RECOVERY_TYPE: &str = "systemd-recovery";
/// Longest object that a TPM seals, in bytes.
pub const SEALED_LEN_MAX: usize = 2048;

/// The version of the form of Strongroom's tokens.
const VERSION: u32 = 1;
/// Longest name of a key.
const KEY_NAME_LEN_MAX: usize = 128;
/// Most servers, and the longest name of one.
const SERVERS_MAX: usize = 16;
const SERVER_LEN_MAX: usize = 512;

/// A token of any program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its type: `strongroom`, `systemd-tpm2`, `clevis` ...
    pub kind: String,
    /// The key slots it is for.
    pub keyslots: Vec<u32>,
    /// The rest of it.
    pub contents: Contents,
}

/// What a token says beside its type and key slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Of the type [`STRONGROOM_TYPE`], or why it cannot be read.
    Strongroom(Result<StrongroomToken, TokenError>),
    /// Of the type [`TPM_TYPE`], or why it cannot be read.
    Tpm(Result<TpmToken, TokenError>),
    /// Of another type: not read.
    Other,
}

/// What is wrong with the tokens of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// A version of its form that is newer than this program; what it is.
    Newer(&'static str),
    /// A member that is missing or breaks a rule; its name.
    Member(&'static str),
    /// There are several Strongroom tokens, and none says which is right.
    Several,
    /// It names no key slot that opens the volume.
    NoSlot,
}

/// Where the key of a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// At a key server.
    KeyServer,
    /// In the keyring of this host.
    Keyring,
}

/// A Strongroom token: which key opens the volume, and where it was when the token was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrongroomToken {
    /// The key slots that the key opens.
    pub slots: Vec<u32>,
    /// The volume's object id, and the salt of its slots' passphrases.
    pub object_id: [u8; 16],
    /// The key's name.
    pub key_id: String,
    /// Its version, from 1.
    pub key_version: u32,
    /// Where the key is.
    pub provider: Provider,
    /// The key servers when the token was written; for people, not for programs.
    pub servers: Vec<String>,
}

/// A token of a TPM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TpmToken {
    /// The key slots that the TPM opens.
    pub slots: Vec<u32>,
    /// The salt of their passphrase.
    pub salt: [u8; 16],
    /// The object that the TPM sealed.
    pub sealed: Vec<u8>,
}

impl Token {
    /// Reads a token of any program. A Strongroom token whose other members break a rule is no
    /// error: its contents say why it cannot be read.
    ///
    /// # Errors
    /// [`LuksError::Damaged`] when the type or the list of key slots is missing or malformed.
    pub(crate) fn read(token: &At<'_>) -> Result<Self, LuksError> {
        let kind = token.member("type")?.text()?.to_owned();
        Ok(Self {
            keyslots: token.member("keyslots")?.numbers()?,
            contents: match kind.as_str() {
                STRONGROOM_TYPE => Contents::Strongroom(StrongroomToken::of(token)),
                TPM_TYPE => Contents::Tpm(TpmToken::of(token)),
                _ => Contents::Other,
            },
            kind,
        })
    }

    /// Returns it as a Strongroom token. `None` when it is of another type or cannot be read.
    #[must_use]
    pub fn strongroom(&self) -> Option<&StrongroomToken> {
        match &self.contents {
            Contents::Strongroom(token) => token.as_ref().ok(),
            _ => None,
        }
    }

    /// Returns it as a token of a TPM. `None` when it is of another type or cannot be read.
    #[must_use]
    pub fn tpm(&self) -> Option<&TpmToken> {
        match &self.contents {
            Contents::Tpm(token) => token.as_ref().ok(),
            _ => None,
        }
    }
}

impl Provider {
    /// Returns its name in a token.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::KeyServer => "keyserver",
            Self::Keyring => "keyring",
        }
    }

    /// Returns the provider of this name in a token. `None` when there is no such provider.
    fn named(name: &str) -> Option<Self> {
        let all = [Self::KeyServer, Self::Keyring];
        all.into_iter().find(|provider| provider.name() == name)
    }
}

impl StrongroomToken {
    /// Reads a Strongroom token from its JSON.
    ///
    /// # Errors
    /// [`TokenError::Newer`] for a newer version of its form; [`TokenError::Member`] with the first
    /// member that is missing or breaks a rule.
    pub fn read(json: &Value) -> Result<Self, TokenError> {
        let tree = Tree::from(json);
        Self::of(&At::root(&tree, Rules::Own))
    }

    /// Reads a Strongroom token from JSON in a header; fails as [`StrongroomToken::read`].
    fn of(token: &At<'_>) -> Result<Self, TokenError> {
        check_form(token, STRONGROOM_TYPE, "LUKS2 token")?;
        let key_id = text(token, "key_id")?;
        if !key_name_is_valid(key_id) {
            return Err(TokenError::Member("key_id"));
        }
        let servers = servers(token).ok_or(TokenError::Member("servers"))?;
        let object_id = from_hex(text(token, "object_id")?).and_then(|id| id.try_into().ok());
        let version = decimal(text(token, "key_version")?).filter(|version| *version > 0);
        let version = version.and_then(|version| u32::try_from(version).ok());
        Ok(Self {
            slots: slots(token)?,
            object_id: object_id.ok_or(TokenError::Member("object_id"))?,
            key_id: key_id.to_owned(),
            key_version: version.ok_or(TokenError::Member("key_version"))?,
            provider: Provider::named(text(token, "provider")?)
                .ok_or(TokenError::Member("provider"))?,
            servers,
        })
    }

    /// Returns the token as JSON, without the member `servers` when there are none.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut json = json!({
            "type": STRONGROOM_TYPE,
            "keyslots": in_text(&self.slots),
            "version": VERSION,
            "object_id": hex(&self.object_id),
            "key_id": self.key_id,
            "key_version": self.key_version.to_string(),
            "provider": self.provider.name(),
        });
        if let (Some(members), false) = (json.as_object_mut(), self.servers.is_empty()) {
            members.insert("servers".to_owned(), json!(self.servers));
        }
        json
    }
}

impl TpmToken {
    /// Reads a token of a TPM from its JSON.
    ///
    /// # Errors
    /// [`TokenError::Newer`] for a newer version of its form; [`TokenError::Member`] with the first
    /// member that is missing or breaks a rule.
    pub fn read(json: &Value) -> Result<Self, TokenError> {
        let tree = Tree::from(json);
        Self::of(&At::root(&tree, Rules::Own))
    }

    /// Reads a token of a TPM from JSON in a header; fails as [`TpmToken::read`].
    fn of(token: &At<'_>) -> Result<Self, TokenError> {
        check_form(token, TPM_TYPE, "LUKS2 token of a TPM")?;
        let sealed = from_hex(text(token, "sealed")?);
        let sealed = sealed.filter(|sealed| (1..=SEALED_LEN_MAX).contains(&sealed.len()));
        let salt = from_hex(text(token, "salt")?).and_then(|salt| salt.try_into().ok());
        Ok(Self {
            slots: slots(token)?,
            salt: salt.ok_or(TokenError::Member("salt"))?,
            sealed: sealed.ok_or(TokenError::Member("sealed"))?,
        })
    }

    /// Returns the token as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "type": TPM_TYPE,
            "keyslots": in_text(&self.slots),
            "version": VERSION,
            "salt": hex(&self.salt),
            "sealed": hex(&self.sealed),
        })
    }

    /// Returns the numbers of the registers (PCRs) to whose values the object is sealed, in
    /// ascending order, by the mask in its first four bytes. Empty when it is shorter.
    #[must_use]
    pub fn registers(&self) -> Vec<u8> {
        let mask = self.sealed.first_chunk::<4>();
        let mask = mask.map_or(0, |mask| u32::from_le_bytes(*mask));
        (0..32).filter(|number| mask >> number & 1 != 0).collect()
    }
}

/// Returns the token of the recovery keys in `slots`, as JSON.
#[must_use]
pub fn recovery_token(slots: &[u32]) -> Value {
    json!({ "type": RECOVERY_TYPE, "keyslots": in_text(slots) })
}

/// Returns whether a key may have this name: 1 to 128 characters of `a-z A-Z 0-9 . _ -`.
#[must_use]
pub fn key_name_is_valid(name: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=KEY_NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(fine)
}

/// Checks type and version of one of Strongroom's tokens.
///
/// # Errors
/// [`TokenError::Newer`] with `what` when the version is newer than this program;
/// [`TokenError::Member`] when the type is not `kind`, or there is no valid version.
fn check_form(token: &At<'_>, kind: &str, what: &'static str) -> Result<(), TokenError> {
    let version = token.member("version").and_then(|version| version.u32());
    if version.as_ref().is_ok_and(|version| *version > VERSION) {
        return Err(TokenError::Newer(what));
    }
    if text(token, "type")? != kind || version.ok() != Some(VERSION) {
        return Err(TokenError::Member("type or version"));
    }
    Ok(())
}

/// Returns the text of a member. [`TokenError::Member`] when it is missing or not a text.
fn text<'a>(token: &At<'a>, name: &'static str) -> Result<&'a str, TokenError> {
    let text = token.member(name).and_then(|member| member.text());
    text.map_err(|_| TokenError::Member(name))
}

/// Returns the key slots that the token names. [`TokenError::Member`] when the list is missing, or
/// one of them is not a number from 0 to 31.
fn slots(token: &At<'_>) -> Result<Vec<u32>, TokenError> {
    let slots = token.member("keyslots").and_then(|list| list.numbers());
    let slots = slots.ok();
    slots
        .filter(|slots| slots.iter().all(|slot| *slot < SLOTS_MAX))
        .ok_or(TokenError::Member("keyslots"))
}

/// Returns the servers that the token names; empty when it has no such member. `None` when the list
/// is malformed, too long, or a name in it is too long or has control characters.
fn servers(token: &At<'_>) -> Option<Vec<String>> {
    let servers: Vec<String> = match token.optional("servers").ok()? {
        Some(servers) => {
            let servers = servers.list().ok()?;
            let servers = servers
                .iter()
                .map(|server| server.text().map(str::to_owned));
            servers.collect::<Result<_, _>>().ok()?
        }
        None => Vec::new(),
    };
    let fine = |server: &String| {
        server.len() <= SERVER_LEN_MAX && server.chars().all(|c| c == harmless(c))
    };
    (servers.len() <= SERVERS_MAX && servers.iter().all(fine)).then_some(servers)
}

/// Returns the numbers as texts, as LUKS2 has them in lists.
fn in_text(slots: &[u32]) -> Vec<String> {
    slots.iter().map(ToString::to_string).collect()
}

impl From<TokenError> for Error {
    /// Gives SR-3002 for a newer version of the form, and SR-8323 for anything else.
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Newer(what) => Self::new(&code::NEWER_FORMAT, what),
            TokenError::Member(name) => Self::new(&code::VOLUME_TOKEN, format!("member {name}")),
            TokenError::Several => Self::new(&code::VOLUME_TOKEN, "there are several"),
            TokenError::NoSlot => Self::new(&code::VOLUME_TOKEN, "it names no key slot"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> StrongroomToken {
        StrongroomToken {
            slots: vec![1, 4],
            object_id: [0xa5; 16],
            key_id: "db-1".to_owned(),
            key_version: 3,
            provider: Provider::KeyServer,
            servers: vec!["https://keys-a:8443".to_owned()],
        }
    }

    fn tpm_token() -> TpmToken {
        TpmToken {
            slots: vec![2],
            salt: [4; 16],
            sealed: vec![0x80, 8, 0, 0, 0xff],
        }
    }

    const JSON: &str = r#"{"type":"strongroom","keyslots":["1","4"],"version":1,
        "object_id":"a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5","key_id":"db-1","key_version":"3","provider":"keyserver",
        "servers":["https://keys-a:8443"]}"#;

    /// The token in a header that is read strictly.
    fn in_header(json: &str) -> Token {
        let tree: Tree = serde_json::from_str(json).unwrap();
        Token::read(&At::root(&tree, Rules::Own)).unwrap()
    }

    #[test]
    fn a_token_is_read() {
        let read = in_header(JSON);
        assert_eq!(read.strongroom(), Some(&token()));
        assert_eq!(read.keyslots, token().slots);
        let json: Value = serde_json::from_str(JSON).unwrap();
        assert_eq!(token().json(), json);
        assert_eq!(StrongroomToken::read(&json), Ok(token()));
        let without = StrongroomToken {
            servers: Vec::new(),
            ..token()
        };
        assert!(without.json().get("servers").is_none());
        assert_eq!(StrongroomToken::read(&without.json()), Ok(without));
    }

    #[test]
    fn a_token_of_a_tpm_is_read_and_one_that_is_not_well_formed_says_nothing() {
        const GOOD: &str = r#"{"type":"strongroom-tpm","keyslots":["2"],"version":1,
            "salt":"04040404040404040404040404040404","sealed":"80080000ff"}"#;
        let token = in_header(GOOD);
        assert_eq!((&token.keyslots, token.strongroom()), (&vec![2], None));
        let said = token.tpm().unwrap();
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
            assert_eq!(in_header(&GOOD.replacen(from, to, 1)).tpm(), None, "{to}");
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
            assert_eq!(in_header(&changed).strongroom(), None, "{changed}");
        }
        let read = |json: &str| StrongroomToken::read(&serde_json::from_str(json).unwrap()).ok();
        assert_eq!(read("[]"), None);
        assert_eq!(read("{}"), None);
    }

    #[test]
    fn as_the_specification_shows_it() {
        let json = json!({
            "type": "strongroom", "keyslots": ["1", "4"], "version": 1,
            "object_id": "a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5", "key_id": "db-1", "key_version": "3",
            "provider": "keyserver", "servers": ["https://keys-a:8443"],
        });
        assert_eq!(token().json(), json);
        let tpm = json!({
            "type": "strongroom-tpm", "keyslots": ["2"], "version": 1,
            "salt": "04040404040404040404040404040404", "sealed": "80080000ff",
        });
        assert_eq!(tpm_token().json(), tpm);
        assert_eq!(TpmToken::read(&tpm).unwrap(), tpm_token());
        assert_eq!(tpm_token().registers(), [7, 11]);
        let page = include_str!("../../../../docs/spec/volume.md");
        for json in [json, tpm] {
            for member in json.as_object().unwrap().keys() {
                let named = format!("\"{member}\":");
                assert!(page.contains(&named), "{member}");
            }
        }
    }

    /// The code of the error for `good` with this member changed to this value.
    fn code_of<T>(
        good: &Value,
        (member, value): (&str, &Value),
        read: impl Fn(&Value) -> Result<T, TokenError>,
    ) -> u16 {
        let mut json = good.clone();
        json[member] = value.clone();
        Error::from(read(&json).err().unwrap()).code().number
    }

    #[test]
    fn what_is_not_in_form_is_refused() {
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
        let good = token().json();
        for (member, value) in &wrong {
            let code = code_of(&good, (member, value), StrongroomToken::read);
            assert_eq!(code, code::VOLUME_TOKEN.number, "{member} {value}");
        }
        let newer = code_of(&good, ("version", &json!(2)), StrongroomToken::read);
        assert_eq!(newer, code::NEWER_FORMAT.number);
    }

    #[test]
    fn a_token_of_a_tpm_that_is_not_in_form_is_refused() {
        let wrong = [
            ("type", json!("strongroom")),
            ("keyslots", json!(["32"])),
            ("version", json!(0)),
            ("salt", json!("04")),
            ("salt", json!("0404040404040404040404040404040A")),
            ("sealed", json!("")),
            ("sealed", json!("8")),
            ("sealed", json!("00".repeat(2049))),
            ("sealed", json!(["80"])),
        ];
        let good = tpm_token().json();
        for (member, value) in &wrong {
            let code = code_of(&good, (member, value), TpmToken::read);
            assert_eq!(code, code::VOLUME_TOKEN.number, "{member} {value}");
        }
        let newer = code_of(&good, ("version", &json!(2)), TpmToken::read);
        assert_eq!(newer, code::NEWER_FORMAT.number);
    }
}
