//! Confidential columns: envelopes, redo records, the store's manifest and log, the channel,
//! attestation.
//!
//! Must not: be called outside tests, as the rest of this module.

use alloc::vec::Vec;

use crate::columns::channel::{
    Attestation, Hello, Limit, Request, Sealed, Ticket, hello_layout, parse_opening,
};
use crate::columns::envelope::{EnvelopeHeader, pad, unpadded};
use crate::columns::log::FrameHead;
use crate::columns::manifest::{
    BlockEntry, ChainEntry, ColumnKeyEntry, ExtentEntry, LedgerEntry, LedgerLine, MANIFEST_VERSION,
    MANIFEST_VERSION_OLDEST, ManifestBody, ManifestHead, MovedEntry, PartitionEntry,
    QuarantineEntry,
};
use crate::columns::redo::{Entry, Link, RedoHead};
use crate::columns::sev_snp::{SnpEvidence, snp_report_layout};
use crate::columns::tdx::TdxQuote;
use crate::columns::tpm::{AttestationKey, QuoteEvidence, Signature};
use crate::columns::{Fid, Kind};

/// The part of `bytes` before `rest`, which is the end of it. `None` when `rest` is longer.
fn taken<'a>(bytes: &'a [u8], rest: &[u8]) -> Option<&'a [u8]> {
    bytes.get(..bytes.len().checked_sub(rest.len())?)
}

/// Parses the bytes as an envelope, and as a padded value of each kind. Asserts that head and
/// padding are canonical.
pub fn envelope(bytes: &[u8]) {
    if let Some(header) = EnvelopeHeader::parse(bytes) {
        let again = header.to_bytes();
        let whole = bytes.get(..again.len());
        assert_eq!(Some(&*again), whole, "a head is canonical");
    }
    for kind in [Kind::Text, Kind::Bytea, Kind::Numeric, Kind::Jsonb] {
        if let Some(len) = unpadded(kind, bytes) {
            let mut again = bytes.get(..len).unwrap_or_default().to_vec();
            pad(kind, &mut again);
            assert_eq!(again, bytes, "padding is canonical");
        }
    }
}

/// Parses the bytes as the head of a redo record, the head of a log's frame, a link, and entries.
/// Asserts that what parses is serialised to the same bytes.
pub fn redo(bytes: &[u8]) {
    if let Some(head) = RedoHead::parse(bytes) {
        let again = head.to_bytes();
        assert!(bytes.starts_with(&again), "a head is canonical");
    }
    if let Some(head) = FrameHead::parse(bytes) {
        assert!(bytes.starts_with(&head.to_bytes()), "a frame is canonical");
    }
    if let Some((link, rest)) = Link::parse(bytes) {
        let again = link.to_bytes();
        assert_eq!(taken(bytes, rest), Some(again.as_slice()));
    }
    let mut rest = bytes;
    while let Some((entry, behind)) = Entry::parse(rest) {
        let mut again = Vec::new();
        entry.write(&mut |part| again.extend_from_slice(part));
        let whole = taken(rest, behind);
        assert_eq!(Some(again.as_slice()), whole, "an entry is canonical");
        assert_eq!(again.len(), entry.encoded_len());
        assert!(behind.len() < rest.len(), "an entry has a length");
        rest = behind;
    }
}

/// Parses the bytes as a manifest's head, as every entry that its body may have, and as an
/// identifier. Asserts that what parses is serialised to the same bytes.
pub fn manifest(bytes: &[u8]) {
    if let Ok(head) = ManifestHead::parse(bytes) {
        assert!(bytes.starts_with(&head.to_bytes()), "a head is canonical");
    }
    for version in MANIFEST_VERSION_OLDEST..=MANIFEST_VERSION {
        if let Some((body, rest)) = ManifestBody::parse(bytes, version) {
            let again = body.to_bytes();
            let whole = taken(bytes, rest).unwrap_or_default();
            assert_eq!(again.get(..whole.len()), Some(whole), "a body is canonical");
        }
    }
    macro_rules! entries {
        ($($entry:ident),*) => {$(
            if let Some((entry, rest)) = $entry::parse(bytes) {
                let again = entry.to_bytes();
                let whole = taken(bytes, rest);
                assert_eq!(Some(again.as_slice()), whole, stringify!($entry));
            }
        )*};
    }
    entries!(
        LedgerEntry,
        LedgerLine,
        MovedEntry,
        PartitionEntry,
        ColumnKeyEntry,
        ExtentEntry,
        BlockEntry,
        ChainEntry,
        QuarantineEntry
    );
    if let Some((bits, _)) = bytes.split_first_chunk::<8>() {
        let bits = u64::from_le_bytes(*bits);
        if let Some(fid) = Fid::from_bits(bits) {
            assert_eq!(fid.bits(), bits);
            if fid.is_ephemeral() {
                return;
            }
            let index = u64::from(fid.index());
            let slot = u64::from(fid.extent()).wrapping_shl(16) | index;
            assert_eq!(fid.slot(), slot, "extent and index are the slot's halves");
        }
    }
}

/// Parses the bytes as each message of the channel, a ticket, and an attestation. Asserts that what
/// parses is canonical.
pub fn channel(bytes: &[u8]) {
    if let Some(attestation) = Attestation::parse(bytes) {
        assert_eq!(attestation.to_bytes(), bytes, "canonical");
    }
    if let Some((hello, rest)) = Hello::parse(bytes) {
        assert_eq!(
            taken(bytes, rest).map(<[u8]>::len),
            Some(hello_layout::SIZE)
        );
        assert!(bytes.starts_with(&hello.to_bytes()), "canonical");
    }
    if let Some((sealed, rest)) = Sealed::parse(bytes) {
        let again = sealed.to_bytes();
        assert_eq!(
            taken(bytes, rest),
            Some(again.as_slice()),
            "a head is canonical"
        );
    }
    if let Some((ticket, covered, macs)) = Ticket::parse(bytes) {
        assert_eq!(
            ticket.to_bytes().as_deref(),
            Some(covered),
            "a ticket is canonical"
        );
        let len = macs.len().checked_mul(32);
        let whole = len.and_then(|len| covered.len().checked_add(len));
        assert_eq!(whole, Some(bytes.len()), "nothing follows the MACs");
    }
    if let Some((request, _)) = Request::parse(bytes) {
        assert_eq!(bytes.first(), Some(&request.number()));
    }
    if let Some(limit) = Limit::parse(bytes) {
        assert_eq!(limit.to_bytes(), bytes, "canonical");
    }
    if let Some(opening) = parse_opening(bytes) {
        let len = opening.keys.len().checked_mul(48);
        let len = len.and_then(|len| len.checked_add(opening.name.len())?.checked_add(3));
        assert_eq!(taken(bytes, opening.ticket).map(<[u8]>::len), len);
    }
}

/// Parses the bytes as a TPM's quote, as the public area of an attestation key, as a report of
/// SEV-SNP and as a quote of TDX. Asserts that what parses is within its bounds.
pub fn attestation(bytes: &[u8]) {
    reports(bytes);
    if let Some(evidence) = QuoteEvidence::parse(bytes) {
        let signature = match evidence.signature {
            Signature::Ecdsa(both) => both.len(),
            Signature::Rsassa(signature) => signature.len(),
        };
        assert!(evidence.signed.len() < bytes.len() && signature < bytes.len().max(65));
        assert!(evidence.quote.pcrs < 1 << 24, "there are 24 registers");
        assert!(evidence.quote.extra_data.len() < evidence.signed.len());
    }
    match AttestationKey::parse(bytes) {
        Some(AttestationKey::P256(point)) => assert_eq!(point.first(), Some(&4)),
        Some(AttestationKey::Rsa { modulus, exponent }) => {
            assert!(modulus.first().is_some_and(|byte| *byte != 0));
            assert_ne!(exponent, [0; 4]);
        }
        None => {}
    }
}

/// Parses the bytes as a report of SEV-SNP, and as a quote of TDX. Asserts that what parses is
/// within its bounds.
fn reports(bytes: &[u8]) {
    if let Some(evidence) = SnpEvidence::parse(bytes) {
        assert_eq!(evidence.signed.len(), snp_report_layout::SIGNATURE_R.offset);
        assert!(evidence.certificates.len() <= 16, "the most of a table");
        let table = bytes.len().checked_sub(snp_report_layout::SIZE);
        assert!(
            evidence
                .certificates
                .iter()
                .all(|one| Some(one.len()) <= table)
        );
    }
    if let Some(quote) = TdxQuote::parse(bytes) {
        assert_eq!(TdxQuote::length(bytes), Some(bytes.len()));
        let parts = [quote.signed, quote.qe_signed, quote.qe_auth, quote.chain];
        assert!(parts.iter().map(|part| part.len()).sum::<usize>() < bytes.len());
    }
}
