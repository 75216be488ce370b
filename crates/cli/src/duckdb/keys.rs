//! From key options to the key that DuckDB derives from a text.
//!
//! Must not: take a text from the command line.

use strongroom_duckdb::KeyText;
use strongroom_format::code;
use strongroom_keyring::{KeySource, Keyring, SourceContext};

use crate::context::Context;
use crate::failure::Failure;
use crate::key_options::KeyOptions;
use crate::keys;

/// Fetches the keys that may open a database, in the order to try: every version of a key of the
/// keyring, the newest first, or the one text that the options name. SR-2041 if they name no key,
/// SR-2003 if the keyring has none of that name; the errors of fetching it.
pub(super) fn opening(options: KeyOptions, context: &Context) -> Result<Vec<KeyText>, Failure> {
    match keys::required(options, "an encrypted DuckDB database")? {
        KeySource::KeyId { id } => {
            let keyring = keyring(context)?;
            // Told as usual when there is no such key.
            let of_id = keyring.list().into_iter().filter(|key| key.name == id);
            let mut versions: Vec<u32> = of_id.map(|key| key.version).collect();
            versions.sort_unstable_by(|a, b| b.cmp(a));
            if versions.is_empty() {
                return Err(Failure::new(&code::UNKNOWN_KEY_ID, id));
            }
            let text = |version| -> Result<KeyText, Failure> {
                let key = keyring.key(&id, Some(version))?;
                Ok(KeyText::of_keyring_key(&key)?)
            };
            versions.into_iter().map(text).collect()
        }
        source => Ok(vec![key_text(
            &source,
            "Key of the DuckDB database",
            false,
        )?]),
    }
}

/// Fetches the keys that a database may be sealed for: first the newest active version of a key of
/// the keyring, then all its versions, for a rekey that began before the key was rotated; or the
/// one text that the options name, asked for twice at a terminal.
/// Errors: SR-2041 if they name no key, SR-2003 if the keyring has none of that name, SR-2012 if it
/// is retired; the errors of fetching it.
pub(super) fn sealing(options: KeyOptions, context: &Context) -> Result<Vec<KeyText>, Failure> {
    let chosen = keys::required(options.clone(), "the new key of the DuckDB database")?;
    let texts = match chosen {
        KeySource::KeyId { id } => {
            // A retired key seals nothing new.
            let newest = keyring(context)?.key(&id, None)?;
            let mut texts = vec![KeyText::of_keyring_key(&newest)?];
            texts.extend(opening(options, context)?);
            texts
        }
        source => vec![key_text(&source, "New key of the DuckDB database", true)?],
    };
    Ok(texts)
}

/// Opens the keyring that was named, or the default one, with the root key from its provider, which
/// may ask at the terminal, run a command or call a server. Takes no lock. SR-2004 if there is no
/// keyring, SR-2005 if it is damaged, SR-2006 if the root key does not open it; the provider's
/// errors.
pub(super) fn keyring(context: &Context) -> Result<Keyring, Failure> {
    let path = context.keyring.clone();
    Ok(Keyring::open(&path.unwrap_or_else(Keyring::default_path))?)
}

/// Fetches a text from `source`, at a terminal with `prompt` and, if `creating`, twice, and derives
/// DuckDB's key from it. SR-2205 if DuckDB would not take the text; the errors of the source.
fn key_text(source: &KeySource, prompt: &str, creating: bool) -> Result<KeyText, Failure> {
    let about = SourceContext {
        creating,
        prompt: prompt.to_owned(),
        ..SourceContext::default()
    };
    Ok(KeyText::new(&source.passphrase(&about)?)?)
}
