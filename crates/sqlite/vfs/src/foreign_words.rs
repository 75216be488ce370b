//! The words by which other products ask for an encrypted database: URI parameters and pragmas of
//! `SQLCipher`, SQLite's own encryption extension (SEE) and `SQLite3 Multiple Ciphers`, and
//! misspellings of ours.
//!
//! SQLite ignores unknown words, and a database that was meant to be sealed would be plain. So each
//! of these words is refused, with advice what to write instead.
//!
//! Must not: repeat the value of such a word, which may be a key.

/// URI parameters, and what to write in their place.
const PARAMETERS: &[(&str, &str)] = &[
    ("key", "key_env, key_file or key_id"),
    ("hexkey", "key_env, key_file or key_id"),
    ("textkey", "key_env, key_file or key_id"),
    ("password", "key_env, key_file or key_id"),
    ("passphrase", "key_env, key_file or key_id"),
    ("keyid", "key_id"),
    ("key-id", "key_id"),
    ("keyId", "key_id"),
    ("keyenv", "key_env"),
    ("key-env", "key_env"),
    ("keyfile", "key_file"),
    ("key-file", "key_file"),
    ("keycommand", "key_command"),
    ("key-command", "key_command"),
    ("key_cmd", "key_command"),
    ("key_ring", "keyring"),
    ("key-ring", "keyring"),
    ("pagesize", "page_size"),
    ("page-size", "page_size"),
    ("cipher_page_size", "page_size"),
    ("kdf_iter", "nothing: Argon2id has its own cost"),
    (
        "legacy",
        "nothing: other products' files are copied, not opened",
    ),
];

/// Returns what to write instead of a URI parameter of another product, or a misspelt one. Names
/// the first such parameter of the list that the URI has. `None` if it has none. `get` returns the
/// value of a parameter.
pub(crate) fn advice_for_parameter(get: impl Fn(&str) -> Option<String>) -> Option<String> {
    let found = PARAMETERS.iter().find(|(name, _)| get(name).is_some());
    found.map(|(name, ours)| format!("the parameter {name}: write {ours}"))
}

/// Returns what to write instead of a pragma of another product that gives a key or asks for
/// encryption; `None` for any other pragma. `name` is in lower case. A query that SQLite does not
/// answer (`cipher_version`) gets no advice: programs use it to learn which product they have.
pub(crate) fn advice_for_pragma(name: &str, has_value: bool) -> Option<String> {
    let ours = match name {
        "hexkey" => "PRAGMA key = \"x'...'\"",
        "textkey" => "PRAGMA key = '...'",
        "hexrekey" | "textrekey" => "PRAGMA rekey",
        "cipher_migrate" => "`strongroom sqlite encrypt` on a plain copy",
        "cipher_salt"
        | "cipher_plaintext_header_size"
        | "cipher_compatibility"
        | "cipher_default_compatibility"
        | "cipher_page_size"
        | "cipher_use_hmac"
        | "cipher_hmac_algorithm"
        | "cipher_kdf_algorithm"
        | "cipher"
        | "kdf_iter"
        | "legacy"
        | "hmac_check"
        | "activate_extensions"
            if has_value =>
        {
            "no such setting: a key is all that a sealed database takes"
        }
        _ => return None,
    };
    Some(format!("PRAGMA {name}: write {ours}"))
}

/// Whether a pragma of this name gives a key, in this product or another. Case is ignored.
pub(crate) fn gives_a_key(name: &str) -> bool {
    ["key", "rekey", "hexkey", "hexrekey", "textkey", "textrekey"]
        .iter()
        .any(|one| name.eq_ignore_ascii_case(one))
}
