//! What the child process that loads the module is asked to do.
//!
//! Must not: be stored.

use strongroom_crypto::SecretBytes;

use super::uri::Uri;

/// What is to be done with the data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Wrap = 1,
    Unwrap = 2,
}

/// A request, as the child reads it.
pub(super) struct Request<'a> {
    pub(super) operation: Operation,
    /// Path of the module.
    pub(super) module: &'a str,
    /// `None`: the token is used without a PIN.
    pub(super) pin: Option<&'a str>,
    /// Label, serial number, manufacturer and model of the token; empty: any.
    pub(super) token: [&'a [u8]; 4],
    /// Label of the key; empty: any.
    pub(super) object: &'a [u8],
    /// Id of the key; empty: any.
    pub(super) id: &'a [u8],
    pub(super) context: &'a [u8],
    /// The secret, or what was wrapped.
    pub(super) data: &'a [u8],
}

/// Puts a request together from its fields, and returns what `send` returns for them.
pub(super) fn with_fields<T>(
    operation: Operation,
    uri: &Uri,
    pin: Option<&SecretBytes>,
    context: &[u8],
    data: &[u8],
    send: impl FnOnce(&[&[u8]; 11]) -> T,
) -> T {
    let head = [operation as u8, u8::from(pin.is_some())];
    let pin = pin.map(SecretBytes::as_slice).unwrap_or_default();
    send(&[
        &head,
        uri.module.as_bytes(),
        pin,
        &uri.token,
        &uri.serial,
        &uri.manufacturer,
        &uri.model,
        &uri.object,
        &uri.id,
        context,
        data,
    ])
}

impl<'a> Request<'a> {
    /// Reads the fields that [`with_fields`] has made. `None` for fields that are not a request.
    pub(super) fn parse(fields: &[&'a [u8]]) -> Option<Self> {
        let fields: &[&'a [u8]; 11] = fields.try_into().ok()?;
        let [
            head,
            module,
            pin,
            token,
            serial,
            manufacturer,
            model,
            object,
            id,
            context,
            data,
        ] = *fields;
        let [operation, has_pin] = *head else {
            return None;
        };
        let pin = match has_pin {
            0 => None,
            _ => Some(std::str::from_utf8(pin).ok()?),
        };
        Some(Self {
            operation: match operation {
                1 => Operation::Wrap,
                2 => Operation::Unwrap,
                _ => return None,
            },
            module: std::str::from_utf8(module).ok()?,
            pin,
            token: [token, serial, manufacturer, model],
            object,
            id,
            context,
            data,
        })
    }
}
