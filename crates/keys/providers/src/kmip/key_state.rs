//! Which key a name means, and whether it may be used.
//!
//! Must not: create, change or destroy a key at the server.

use strongroom_format::code;
use strongroom_keyring::Error;

use super::message::{Operation, Reason, keys_named};
use super::session::Session;
use super::tag;
use super::ttlv::Value;

/// The state of a key (KMIP 1.4, section 3.22).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    PreActive,
    Active,
    Deactivated,
    Compromised,
    Destroyed,
}

impl State {
    /// Makes the error of using a key in this state: SR-2121 when it is destroyed, SR-2104 in any
    /// other that is not active. `None` when it is active.
    pub(super) fn error(self) -> Option<Error> {
        let disabled = |what: &str| Some(Error::new(&code::PROVIDER_DISABLED, what));
        match self {
            Self::Active => None,
            Self::PreActive => disabled("the key was not activated yet"),
            Self::Deactivated => disabled("the key was deactivated"),
            Self::Compromised => disabled("the key was marked as compromised"),
            Self::Destroyed => Some(Error::new(&code::PROVIDER_DESTROYED, "")),
        }
    }
}

/// Requests the state of a key. The inner error is the reason for which the server refused. Errors:
/// SR-2105 for a state that is not known; SR-2101 (not reached, or too late), SR-2102 (client
/// refused), SR-2105 (malformed response) or SR-2120 (server not trusted) for the connection.
pub(super) fn state(session: &mut Session, id: &str) -> Result<Result<State, Reason>, Error> {
    session.request(
        Operation::GetAttributes,
        |to| {
            to.text(tag::UNIQUE_IDENTIFIER, id);
            to.text(tag::ATTRIBUTE_NAME, "State");
        },
        |payload| {
            let mut attributes = payload.all(tag::ATTRIBUTE);
            let state = attributes.find(|one| one.text(tag::ATTRIBUTE_NAME) == Some("State"));
            match state.and_then(|state| state.choice(tag::ATTRIBUTE_VALUE)) {
                Some(1) => Ok(State::PreActive),
                Some(2) => Ok(State::Active),
                Some(3) => Ok(State::Deactivated),
                Some(4) => Ok(State::Compromised),
                Some(5 | 6) => Ok(State::Destroyed),
                _ => Err(Error::new(
                    &code::PROVIDER_ANSWER,
                    "the key's state is not known",
                )),
            }
        },
    )
}

/// Requests the keys of this name, and returns the identifier of the one that is active. If there
/// is only one key of the name, its state is not requested. Errors: SR-2103 when there is none, or
/// several are active; when the server refuses, SR-2102 (denied), SR-2103 (no such key), SR-2104
/// (key not active), SR-2105 (malformed response) or SR-2122 (any other reason); for the connection
/// SR-2101 (not reached, or too late), SR-2102 (client refused), SR-2105 (malformed response) or
/// SR-2120 (server not trusted).
pub(super) fn find_key(session: &mut Session, name: &str) -> Result<String, Error> {
    /// More keys of one name than anyone has; the state of each is requested.
    const CANDIDATES_MAX: usize = 32;
    let found = session.request(
        Operation::Locate,
        |to| keys_named(to, name),
        |payload| {
            let ids = payload.all(tag::UNIQUE_IDENTIFIER);
            let ids = ids.filter_map(|item| match item.value {
                Value::Text(id) => Some(id.to_owned()),
                _ => None,
            });
            Ok(ids.collect::<Vec<_>>())
        },
    )?;
    let mut found = found.map_err(|reason| reason.into_error(Operation::Locate))?;
    if let ([_, _, ..], true) = (found.as_slice(), found.len() <= CANDIDATES_MAX) {
        let mut active = Vec::new();
        for id in &found {
            if state(session, id)? == Ok(State::Active) {
                active.push(id.clone());
            }
        }
        found = active;
    }
    match <[String; 1]>::try_from(found) {
        Ok([id]) => Ok(id),
        Err(none) if none.is_empty() => {
            Err(Error::new(&code::PROVIDER_NO_KEY, "none of that name"))
        }
        Err(_) => {
            let detail = "several active keys have that name: give `id` instead";
            Err(Error::new(&code::PROVIDER_NO_KEY, detail))
        }
    }
}

/// Makes the error for an operation that the server refused. Requests the state of the key first,
/// because servers give one reason for several states: a key that is not active is SR-2104 or
/// SR-2121, one that is absent SR-2103. Otherwise the error is that of `reason`.
pub(super) fn explain_refusal(
    session: &mut Session,
    id: &str,
    reason: Reason,
    operation: Operation,
) -> Error {
    let of_reason = || match (reason, operation) {
        // Some servers give no better reason for a ciphertext that does not open.
        (Reason::Other, Operation::Decrypt) => {
            Error::new(&code::PROVIDER_ANSWER, "the server failed to open it")
        }
        _ => reason.into_error(operation),
    };
    match state(session, id) {
        Ok(Ok(state)) => state.error().unwrap_or_else(of_reason),
        Ok(Err(Reason::NotFound)) => Reason::NotFound.into_error(operation),
        // The first reason counts: the server may have closed the connection after it.
        Ok(Err(_)) | Err(_) => of_reason(),
    }
}
