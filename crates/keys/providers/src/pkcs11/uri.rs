//! PKCS #11 URIs (RFC 7512), as far as they name one secret key, its token, its module and where
//! the PIN comes from.
//!
//! An attribute that is not known is refused rather than ignored: it might be what distinguishes
//! two keys.
//!
//! Must not: take a PIN.

use strongroom_keyring::KeySource;

use crate::options::secret_source;
use crate::percent;

/// A key of a token, and the module through which it is reached.
#[derive(Default)]
pub(crate) struct Uri {
    pub(crate) module: String,
    /// `None`: the token is used without a PIN.
    pub(crate) pin: Option<KeySource>,
    pub(crate) token: Vec<u8>,
    pub(crate) serial: Vec<u8>,
    pub(crate) manufacturer: Vec<u8>,
    pub(crate) model: Vec<u8>,
    pub(crate) object: Vec<u8>,
    pub(crate) id: Vec<u8>,
}

impl Uri {
    /// Parses what follows `pkcs11:`. Without `pin-source` the PIN is asked for. The error says
    /// what is missing, unknown, given twice or not valid, and does not repeat it.
    pub(crate) fn read(text: &str) -> Result<Self, &'static str> {
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        let mut uri = Self {
            pin: Some(KeySource::Ask),
            ..Self::default()
        };
        for part in path.split(';').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or("write name=value")?;
            let value = percent::decode(value).ok_or("it has a `%` without two digits")?;
            let attribute = match name {
                "token" => &mut uri.token,
                "serial" => &mut uri.serial,
                "manufacturer" => &mut uri.manufacturer,
                "model" => &mut uri.model,
                "object" => &mut uri.object,
                "id" => &mut uri.id,
                "type" if value == b"secret-key" => continue,
                "type" => return Err("the key has to be of type=secret-key"),
                _ => return Err("it has an attribute that is not known"),
            };
            if value.is_empty() || !attribute.is_empty() {
                return Err("it has an attribute twice, or one without a value");
            }
            *attribute = value;
        }
        let mut pins = 0;
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or("write name=value")?;
            let value = percent::decode(value).ok_or("it has a `%` without two digits")?;
            let value = String::from_utf8(value).map_err(|_| "it is not UTF-8")?;
            match name {
                "module-path" if value.starts_with('/') && uri.module.is_empty() => {
                    uri.module = value;
                }
                "module-path" => return Err("module-path is one absolute path"),
                "pin-source" => {
                    pins += 1;
                    uri.pin = match value.as_str() {
                        "none" => None,
                        source => Some(secret_source(source)?),
                    };
                }
                "pin-value" => {
                    return Err(
                        "pin-value is refused: the argument is no place for a PIN; use pin-source",
                    );
                }
                _ => return Err("it has an attribute that is not known"),
            }
        }
        if pins > 1 || uri.module.is_empty() {
            return Err("module-path is missing, or pin-source stands twice");
        }
        if uri.object.is_empty() && uri.id.is_empty() {
            return Err("it names no key: object or id is missing");
        }
        Ok(uri)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_a_key_is_read() {
        let uri = Uri::read(
            "token=Our%20token;object=root;id=%01%ff;type=secret-key?module-path=/lib/m.so&pin-source=file:/run/pin",
        )
        .unwrap();
        assert_eq!(uri.token, b"Our token");
        assert_eq!((uri.object, uri.id), (b"root".to_vec(), vec![1, 255]));
        assert_eq!(uri.module, "/lib/m.so");
        assert!(matches!(uri.pin, Some(KeySource::File(_))));
        let uri = Uri::read("object=root?module-path=/m&pin-source=none").unwrap();
        assert!(uri.pin.is_none());
        let uri = Uri::read("object=root?module-path=/m").unwrap();
        assert!(matches!(uri.pin, Some(KeySource::Ask)));
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            "object=root",
            "token=t?module-path=/m",
            "object=root?module-path=m",
            "object=root?module-path=/m&pin-value=1234",
            "object=root?module-path=/m&pin-source=1234",
            "object=root?module-path=/m&pin-source=ask&pin-source=ask",
            "object=root?module-path=/m&module-path=/n",
            "object=root?module-path=/m&module-name=n",
            "object=root;object=other?module-path=/m",
            "object=%zz?module-path=/m",
            "object=%+1?module-path=/m",
            "object=%1?module-path=/m",
            "object=root;type=private?module-path=/m",
            "object=root;slot-id=1?module-path=/m",
        ] {
            let refused = Uri::read(text).err();
            assert!(refused.is_some_and(|why| !why.contains("1234")), "{text}");
        }
    }
}
