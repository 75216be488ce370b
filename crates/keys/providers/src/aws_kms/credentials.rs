//! The access keys of AWS: from the environment or from the shared credentials file.
//!
//! `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`, unless the provider names
//! a profile or a file; else the profile (`AWS_PROFILE`, or `default`) of the file
//! (`AWS_SHARED_CREDENTIALS_FILE`, or `~/.aws/credentials`).
//!
//! Must not: put a part of a key into an error; run what a profile names (`credential_process`).

use std::path::{Path, PathBuf};

use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::Error;

use crate::network::credential::{copy, read_file, read_variable, single_line};

/// An access key of AWS.
pub(super) struct Keys {
    /// Not a secret.
    pub(super) id: String,
    pub(super) secret: SecretBytes,
    pub(super) token: Option<SecretBytes>,
}

/// Reads the access key: from the environment, or else from a profile of the credentials file.
/// `profile` and `file` are those that the provider's argument names; with one of them the
/// environment's keys are not used. Errors: SR-2123 when there is none, it cannot be used, or
/// others may read the file; SR-5001 when the system reports an error.
pub(super) fn find(profile: Option<&str>, file: Option<&Path>) -> Result<Keys, Error> {
    if profile.is_none()
        && file.is_none()
        && let Some(keys) = from_environment()?
    {
        return Ok(keys);
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let path = match file {
        Some(path) => path.to_owned(),
        None => match variable("AWS_SHARED_CREDENTIALS_FILE") {
            Some(path) => PathBuf::from(path),
            None => PathBuf::from(variable("HOME").ok_or_else(|| {
                let detail = "neither AWS_ACCESS_KEY_ID nor a credentials file";
                Error::new(&code::PROVIDER_CREDENTIALS, detail)
            })?)
            .join(".aws/credentials"),
        },
    };
    let profile = match profile {
        Some(profile) => profile.to_owned(),
        None => variable("AWS_PROFILE").unwrap_or_else(|| String::from("default")),
    };
    let held = read_file(&path)?;
    parse_profile(&held, &profile).map_err(|what| {
        let detail = format!("{}: {what}", path.display());
        Error::new(&code::PROVIDER_CREDENTIALS, detail)
    })?
}

/// Reads the access key from `AWS_ACCESS_KEY_ID` and its companions. `None` when that is not set or
/// empty. Errors: SR-2123 when the secret is missing, or a value cannot be used; SR-5001 when the
/// system reports an error.
fn from_environment() -> Result<Option<Keys>, Error> {
    let Some(id) = read_variable("AWS_ACCESS_KEY_ID")? else {
        return Ok(None);
    };
    let secret = read_variable("AWS_SECRET_ACCESS_KEY")?;
    let missing = || {
        let detail = "AWS_SECRET_ACCESS_KEY is not set, and AWS_ACCESS_KEY_ID is";
        Error::new(&code::PROVIDER_CREDENTIALS, detail)
    };
    let token = read_variable("AWS_SESSION_TOKEN")?;
    let secret = secret.ok_or_else(missing)?;
    keys(
        id.as_slice(),
        secret.as_slice(),
        token.as_ref().map(SecretBytes::as_slice),
    )
    .map(Some)
}

/// Checks the parts of an access key and copies them into locked memory. Errors: SR-2123 when one
/// is not a single line of visible characters, or the id has other characters than letters and
/// digits.
fn keys(id: &[u8], secret: &[u8], token: Option<&[u8]>) -> Result<Keys, Error> {
    let id = single_line(&copy(id)?, "the access key's id")?;
    let secret = single_line(&copy(secret)?, "the secret access key")?;
    let token = match token {
        Some(token) => Some(single_line(&copy(token)?, "the session's token")?),
        None => None,
    };
    // A comma or a slash would end it early in the header that it goes into.
    let plain = id.as_slice().iter().all(u8::is_ascii_alphanumeric);
    match std::str::from_utf8(id.as_slice()) {
        Ok(id) if plain => Ok(Keys {
            id: id.to_owned(),
            secret,
            token,
        }),
        _ => {
            let detail = "the access key's id has characters that are not allowed";
            Err(Error::new(&code::PROVIDER_CREDENTIALS, detail))
        }
    }
}

/// Finds the access key of a profile in a credentials file. The outer error is about the file: it
/// is not text, or has no such profile or no access key in it. The inner one, SR-2123, is about the
/// key.
fn parse_profile(held: &SecretBytes, profile: &str) -> Result<Result<Keys, Error>, &'static str> {
    let text = std::str::from_utf8(held.as_slice()).map_err(|_| "is not text")?;
    let (mut is_in_profile, mut is_found) = (false, false);
    let (mut id, mut secret, mut token) = (None, None, None);
    for line in text.lines().map(str::trim) {
        if line.starts_with(['#', ';']) || line.is_empty() {
            continue;
        }
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            is_in_profile = name.trim() == profile;
            is_found |= is_in_profile;
            continue;
        }
        let Some((name, value)) = line.split_once('=').filter(|_| is_in_profile) else {
            continue;
        };
        let value = value.trim().as_bytes();
        match name.trim() {
            "aws_access_key_id" => id = Some(value),
            "aws_secret_access_key" => secret = Some(value),
            "aws_session_token" => token = Some(value),
            _ => {}
        }
    }
    match (id, secret) {
        (Some(id), Some(secret)) => Ok(keys(id, secret, token)),
        _ if is_found => Err("the profile has no aws_access_key_id and aws_secret_access_key"),
        _ => Err("has no such profile"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &[u8] = b"# comment\n[default]\naws_access_key_id = AKIDEXAMPLE\n\
        aws_secret_access_key=CANARY/secret+key\nregion = x\n\n[ other ]\r\n\
        aws_access_key_id = AKIDOTHER\r\naws_secret_access_key = CANARY2\r\naws_session_token = CANARY3==\r\n\
        [half]\naws_access_key_id = AKIDHALF\n[bad]\naws_access_key_id = A/B\naws_secret_access_key = CANARY\n";

    #[test]
    fn profiles_are_found() {
        let held = copy(FILE).unwrap();
        let found = parse_profile(&held, "default").unwrap().unwrap();
        assert_eq!(found.id, "AKIDEXAMPLE");
        assert_eq!(found.secret.as_slice(), b"CANARY/secret+key");
        assert!(found.token.is_none());
        let found = parse_profile(&held, "other").unwrap().unwrap();
        assert_eq!(found.id, "AKIDOTHER");
        assert_eq!(found.token.unwrap().as_slice(), b"CANARY3==");
        assert!(parse_profile(&held, "none").is_err() && parse_profile(&held, "half").is_err());
        let error = parse_profile(&held, "bad").unwrap().err().unwrap();
        assert!(error.code().number == code::PROVIDER_CREDENTIALS.number);
        assert!(!error.to_string().contains("CANARY"));
    }
}
