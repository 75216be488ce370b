//! Opens the envelopes of the server's answers, in every form that a result has.
//!
//! Must not: put a value into an error.

use strongroom_format::columns::Kind;
use zeroize::Zeroizing;

use super::convert::{BINARY, Converter, append_element, copy_array_bounds, map_array_elements};
use crate::envelope::{self, EnvelopeError};
use crate::sql::catalog::EncType;
use crate::sql::refusal::Refusal;

impl Converter<'_> {
    /// Opens a value of a result; returns it in the same format. Fails if an envelope does not open
    /// (22P03), an array is malformed, or the session's settings do not allow the value to be
    /// written (0A000).
    pub(crate) fn open_result(
        &self,
        of: EncType,
        format: i16,
        bytes: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Refusal> {
        match (of.array, format) {
            (false, BINARY) => self.open_envelope(of.kind, bytes),
            (false, _) => self.open_text(of.kind, bytes),
            (true, BINARY) => map_array_elements(bytes, of.kind.base_oid(), |bytes| {
                self.open_envelope(of.kind, bytes)
            }),
            (true, _) => self.open_array(of.kind, bytes),
        }
    }

    /// Opens the text form of one envelope and returns the value's text form. Fails as
    /// [`Self::open_result`] does.
    pub(crate) fn open_text(&self, kind: Kind, text: &[u8]) -> Result<Zeroizing<Vec<u8>>, Refusal> {
        let sealed = envelope::from_text(text).map_err(envelope_refusal)?;
        let value = self.open_envelope(kind, &sealed)?;
        self.to_text(kind, &value)
    }

    /// Opens one envelope and returns the value's binary form. Fails as [`Self::open_result`] does.
    fn open_envelope(&self, kind: Kind, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, Refusal> {
        let results = self.results.ok_or(EnvelopeError::NotAuthentic);
        let opened = results
            .and_then(|results| envelope::open(self.keys, (results, self.expected), kind, sealed));
        opened.map_err(envelope_refusal)
    }

    /// Opens the server's text form of an array, in which envelopes have no quotes; returns the
    /// array of values. Fails as [`Self::open_result`] does.
    fn open_array(&self, kind: Kind, text: &[u8]) -> Result<Zeroizing<Vec<u8>>, Refusal> {
        let mut out = Zeroizing::new(Vec::new());
        let mut rest = copy_array_bounds(text, &mut out);
        while let Some((byte, after)) = rest.split_first() {
            if matches!(byte, b'{' | b'}' | b',') {
                out.push(*byte);
                rest = after;
                continue;
            }
            let len = rest
                .iter()
                .position(|byte| matches!(byte, b'{' | b'}' | b','))
                .unwrap_or(rest.len());
            let (token, after) = rest.split_at_checked(len).unwrap_or((rest, &[]));
            rest = after;
            if token == b"NULL" {
                out.extend_from_slice(token);
                continue;
            }
            append_element(&mut out, &self.open_text(kind, token)?);
        }
        Ok(out)
    }
}

/// Makes the error for an envelope of the server that does not open (22P03, SR-8104), or is of
/// another column (SR-8108).
fn envelope_refusal(error: EnvelopeError) -> Refusal {
    let message = match error {
        EnvelopeError::Newer => {
            "the zone has sealed the value in a form of a newer version: update the proxy (SR-3002)"
        }
        EnvelopeError::Malformed => "the server sent something that is no envelope",
        EnvelopeError::UnknownKey => {
            "the server sent a value under a column key that the keyring does not hold"
        }
        EnvelopeError::OtherKind => "the server sent a value of another type than it said",
        EnvelopeError::OtherColumn => return Refusal::other_column(),
        EnvelopeError::NotAuthentic => {
            "the server sent an envelope that is damaged, forged, or no answer to this statement"
        }
        EnvelopeError::System => "the proxy has no locked memory left for an envelope's key",
    };
    Refusal::value("22P03", message)
}
