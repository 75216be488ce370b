//! What the module's process does: one wrap or unwrap by one key of one token.
//!
//! Must not: be called in the process that asks (`child.rs`); leave an object in the token.

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error as Failed, RvError};
use cryptoki::mechanism::Mechanism;
use cryptoki::mechanism::aead::GcmParams;
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::types::AuthPin;
use strongroom_crypto::{SecretBytes, nonce12};
use strongroom_format::code::{self, Code};
use strongroom_keyring::Error;
use zeroize::Zeroize as _;

use super::request::{Operation, Request};

// The first byte of a blob.
const GCM: u8 = 1;
const KEY_WRAP: u8 = 2;
const TAG_BITS: u64 = 128;

/// Does what a request asks for: loads the module, opens a session with the token, finds the key,
/// and wraps or unwraps with it. Errors: SR-9001 for fields that are not a request; SR-2101 no such
/// token, or the module fails; SR-2102 the PIN is refused; SR-2103 not one such key; SR-2104 the
/// key may not do it; SR-2105 the data does not unwrap.
pub(crate) fn operate(fields: &[&[u8]]) -> Result<SecretBytes, Error> {
    let request = Request::parse(fields).ok_or_else(|| {
        let detail = "the question to the module's process";
        Error::new(&code::BUG, detail)
    })?;
    let library = Pkcs11::new(request.module).map_err(|error| translate_error(&error))?;
    let flags = CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK);
    library
        .initialize(flags)
        .map_err(|error| translate_error(&error))?;
    let session = open_session(&library, &request.token, request.pin)?;
    let key = find_key(&session, request.object, request.id)?;
    match request.operation {
        Operation::Wrap => wrap(&session, key, request.context, request.data),
        Operation::Unwrap => unwrap(&session, key, request.context, request.data),
    }
}

/// Opens a read-only session with the one token that has these properties, empty ones being any:
/// label, serial number, manufacturer, model. Logs in where there is a PIN, or the token has a
/// keypad of its own. Errors: SR-2101 when no token fits, SR-2103 when several do; SR-2102 when the
/// PIN is refused; SR-2101 when the module fails.
fn open_session(
    library: &Pkcs11,
    wanted: &[&[u8]; 4],
    pin: Option<&str>,
) -> Result<Session, Error> {
    let mut found = None;
    for slot in library
        .get_slots_with_token()
        .map_err(|error| translate_error(&error))?
    {
        let Ok(info) = library.get_token_info(slot) else {
            continue;
        };
        let has = [
            info.label(),
            info.serial_number(),
            info.manufacturer_id(),
            info.model(),
        ];
        let fits =
            (wanted.iter().zip(has)).all(|(want, has)| want.is_empty() || *want == has.as_bytes());
        if fits {
            if found.is_some() {
                let detail = "more than one token fits; name its serial number too";
                return Err(Error::new(&code::PROVIDER_NO_KEY, detail));
            }
            found = Some((slot, info));
        }
    }
    let absent = || Error::new(&code::PROVIDER_UNREACHABLE, "the module has no such token");
    let (slot, info) = found.ok_or_else(absent)?;
    let session = library
        .open_ro_session(slot)
        .map_err(|error| translate_error(&error))?;
    let pin = pin.map(|pin| AuthPin::from(pin.to_owned()));
    if pin.is_some() || info.protected_authentication_path() {
        session
            .login(UserType::User, pin.as_ref())
            .map_err(|error| translate_error(&error))?;
    }
    Ok(session)
}

/// Finds the one secret key with this label and id, an empty one being any. Errors: SR-2103 when
/// there is none or several; SR-2101 when the module fails.
fn find_key(session: &Session, object: &[u8], id: &[u8]) -> Result<ObjectHandle, Error> {
    let mut template = vec![Attribute::Class(ObjectClass::SECRET_KEY)];
    if !object.is_empty() {
        template.push(Attribute::Label(object.to_vec()));
    }
    if !id.is_empty() {
        template.push(Attribute::Id(id.to_vec()));
    }
    let found = session
        .find_objects(&template)
        .map_err(|error| translate_error(&error))?;
    match found.as_slice() {
        [key] => Ok(*key),
        [] => Err(Error::new(
            &code::PROVIDER_NO_KEY,
            "the token shows no such secret key",
        )),
        _ => {
            let detail = "more than one key of the token fits; name its id too";
            Err(Error::new(&code::PROVIDER_NO_KEY, detail))
        }
    }
}

/// Wraps the secret under the token's key: by AES-GCM with the context as associated data or, where
/// the token cannot do that, by AES key wrap with padding, which does not bind the context. For the
/// latter the secret is an object of the session meanwhile. Errors: SR-2104 when the key may not do
/// it; SR-2101 when the module fails.
fn wrap(
    session: &Session,
    key: ObjectHandle,
    context: &[u8],
    secret: &[u8],
) -> Result<SecretBytes, Error> {
    let mut iv = nonce12()?;
    let sealed = {
        let params = GcmParams::new(&mut iv, context, TAG_BITS.into())
            .map_err(|error| translate_error(&error))?;
        session.encrypt(&Mechanism::AesGcm(params), key, secret)
    };
    let mut blob = match sealed {
        // A module that chooses the IV itself has written it here.
        Ok(sealed) => [&[GCM][..], &iv, &sealed].concat(),
        Err(Failed::Pkcs11(
            RvError::MechanismInvalid
            | RvError::KeyFunctionNotPermitted
            | RvError::KeyTypeInconsistent
            | RvError::FunctionNotSupported
            | RvError::MechanismParamInvalid,
            _,
        )) => {
            let mut template = [
                Attribute::Class(ObjectClass::SECRET_KEY),
                Attribute::KeyType(KeyType::GENERIC_SECRET),
                Attribute::Token(false),
                Attribute::Sensitive(false),
                Attribute::Extractable(true),
                Attribute::Value(secret.to_vec()),
            ];
            let made = session.create_object(&template);
            if let Some(Attribute::Value(copy)) = template.last_mut() {
                copy.zeroize();
            }
            let object = made.map_err(|error| translate_error(&error))?;
            let sealed = session.wrap_key(&Mechanism::AesKeyWrapPad, key, object);
            [
                &[KEY_WRAP][..],
                &sealed.map_err(|error| translate_error(&error))?,
            ]
            .concat()
        }
        Err(error) => return Err(translate_error(&error)),
    };
    Ok(SecretBytes::take(&mut blob)?)
}

/// Unwraps what [`wrap`] has made. Errors: SR-2105 when it is malformed or does not unwrap; SR-2103
/// or SR-2104 for the key; SR-2101 when the token is absent.
fn unwrap(
    session: &Session,
    key: ObjectHandle,
    context: &[u8],
    blob: &[u8],
) -> Result<SecretBytes, Error> {
    let malformed = || Error::new(&code::PROVIDER_ANSWER, "the wrapped key is malformed");
    let (how, rest) = blob.split_first().ok_or_else(malformed)?;
    let mut secret = match *how {
        GCM => {
            let (iv, sealed) = rest.split_first_chunk::<12>().ok_or_else(malformed)?;
            let mut iv = *iv;
            let params = GcmParams::new(&mut iv, context, TAG_BITS.into())
                .map_err(|error| translate_error(&error))?;
            let opened = session.decrypt(&Mechanism::AesGcm(params), key, sealed);
            opened.map_err(|error| translate_unwrap_error(&error))?
        }
        KEY_WRAP => {
            let template = [
                Attribute::Class(ObjectClass::SECRET_KEY),
                Attribute::KeyType(KeyType::GENERIC_SECRET),
                Attribute::Token(false),
                Attribute::Sensitive(false),
                Attribute::Extractable(true),
            ];
            let object = session.unwrap_key(&Mechanism::AesKeyWrapPad, key, rest, &template);
            let object = object.map_err(|error| translate_unwrap_error(&error))?;
            let values = session
                .get_attributes(object, &[AttributeType::Value])
                .map_err(|error| translate_error(&error))?;
            match values.into_iter().next() {
                Some(Attribute::Value(value)) => value,
                _ => return Err(malformed()),
            }
        }
        _ => return Err(malformed()),
    };
    Ok(SecretBytes::take(&mut secret)?)
}

/// As [`translate_error`], but for a failure to unwrap: SR-2105 instead of SR-2101 unless the error
/// says that the token is absent, because it is then about the data.
fn translate_unwrap_error(error: &Failed) -> Error {
    let translated = translate_error(error);
    match translated.code().number {
        number if number == code::PROVIDER_UNREACHABLE.number && !is_absence(error) => {
            Error::new(&code::PROVIDER_ANSWER, translated.detail())
        }
        _ => translated,
    }
}

/// Whether the error names the token or the host as what failed: the device, its removal or memory,
/// the host's memory, a closed session. False for every other error, also for one that names no
/// cause, such as a general error.
fn is_absence(error: &Failed) -> bool {
    matches!(
        error,
        Failed::Pkcs11(
            RvError::DeviceError
                | RvError::DeviceMemory
                | RvError::DeviceRemoved
                | RvError::TokenNotPresent
                | RvError::HostMemory
                | RvError::SessionClosed,
            _,
        )
    )
}

/// Makes the error of this crate that an error of the module means: SR-2102 for the PIN, SR-2104
/// for a key that may not do it, SR-2103 for a key that is gone, SR-2105 for data that does not
/// unwrap, SR-2101 for anything else.
fn translate_error(error: &Failed) -> Error {
    let code: &'static Code = match error {
        Failed::Pkcs11(rv, _) => match rv {
            RvError::PinIncorrect
            | RvError::PinInvalid
            | RvError::PinLenRange
            | RvError::PinExpired
            | RvError::PinLocked
            | RvError::UserPinNotInitialized
            | RvError::UserNotLoggedIn => &code::PROVIDER_DENIED,
            RvError::KeyFunctionNotPermitted
            | RvError::ActionProhibited
            | RvError::MechanismInvalid
            | RvError::KeyNotWrappable
            | RvError::KeyTypeInconsistent
            | RvError::WrappingKeyTypeInconsistent
            | RvError::UnwrappingKeyTypeInconsistent
            | RvError::KeySizeRange => &code::PROVIDER_DISABLED,
            RvError::KeyHandleInvalid | RvError::ObjectHandleInvalid => &code::PROVIDER_NO_KEY,
            RvError::EncryptedDataInvalid
            | RvError::EncryptedDataLenRange
            | RvError::WrappedKeyInvalid
            | RvError::WrappedKeyLenRange => &code::PROVIDER_ANSWER,
            _ => &code::PROVIDER_UNREACHABLE,
        },
        Failed::PinNotSet => &code::PROVIDER_DENIED,
        _ => &code::PROVIDER_UNREACHABLE,
    };
    Error::new(code, error.to_string())
}
