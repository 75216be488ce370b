//! Messages that the proxy makes of its own refusals.

use strongroom_postgres_wire::Builder;

use crate::sql::refusal::Refusal;

/// Appends the refusal to `out` as an `ErrorResponse` of this severity.
pub(crate) fn append_error(out: &mut Vec<u8>, severity: &str, refusal: &Refusal) {
    let mut message = Builder::new(out, b'E');
    message.byte(b'S').string(severity.as_bytes());
    message.byte(b'V').string(severity.as_bytes());
    message.byte(b'C').string(refusal.sqlstate.as_bytes());
    message.byte(b'M').string(refusal.message.as_bytes());
    if let Some(hint) = refusal.hint {
        message.byte(b'H').string(hint.as_bytes());
    }
    if let Some(position) = refusal.position {
        message.byte(b'P').string(position.to_string().as_bytes());
    }
    message.byte(0).end();
}

/// Returns the state of the transaction that a `ReadyForQuery` with this body tells: `I`, `T` or
/// `E`. `None` if it tells none of them.
pub(crate) const fn transaction_status(body: &[u8]) -> Option<u8> {
    match body {
        [status @ (b'I' | b'T' | b'E')] => Some(*status),
        _ => None,
    }
}

/// Makes the error (SR-8105) for an answer of the server that is malformed or not expected there.
pub(crate) fn unexpected() -> Refusal {
    Refusal::protocol("the server's answer is not the one that was expected")
}
