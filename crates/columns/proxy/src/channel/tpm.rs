//! Checks the TPM 2.0 quotes for which keys are released: docs/spec/columns-channel.md, "TPM
//! 2.0".
//!
//! Invariant: nothing in a quote is used before its signature was checked with a trusted key.
//! Must not: talk to a TPM.

use std::collections::BTreeMap;

use strongroom_crypto::{sha256, verify_p256, verify_rsa};
use strongroom_format::columns::tpm::{AttestationKey, PCRS, QuoteEvidence, Signature};

use super::error::ChannelError;

/// An attestation key whose quotes are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedKey(Vec<u8>);

impl TrustedKey {
    /// Makes a trusted key of this public area (`TPM2B_PUBLIC`). `None` unless it can be parsed and
    /// signs only data that its TPM made.
    #[must_use]
    pub fn new(public: Vec<u8>) -> Option<Self> {
        AttestationKey::parse(&public)?;
        Some(Self(public))
    }

    /// Returns whether the key has signed the quote.
    fn verifies(&self, evidence: &QuoteEvidence<'_>) -> bool {
        let Some(key) = AttestationKey::parse(&self.0) else {
            return false;
        };
        let verified = match (key, evidence.signature) {
            (AttestationKey::P256(point), Signature::Ecdsa(signature)) => {
                verify_p256(&point, evidence.signed, &signature)
            }
            (AttestationKey::Rsa { modulus, exponent }, Signature::Rsassa(signature)) => {
                verify_rsa(modulus, &exponent, evidence.signed, signature)
            }
            _ => return false,
        };
        verified.is_ok()
    }
}

/// The values that registers of the SHA-256 bank have to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PcrPolicy(BTreeMap<u8, [u8; 32]>);

impl PcrPolicy {
    /// Makes the policy that these registers have these values. `None` when there is no register,
    /// one is named twice, or a number is not that of a register.
    #[must_use]
    pub fn new(values: &[(u8, [u8; 32])]) -> Option<Self> {
        let all: BTreeMap<_, _> = values.iter().copied().collect();
        let sound = !all.is_empty() && all.len() == values.len();
        (sound && all.keys().all(|pcr| *pcr < PCRS)).then_some(Self(all))
    }

    /// Returns whether the quote is of exactly these registers, with these values.
    fn holds(&self, evidence: &QuoteEvidence<'_>) -> bool {
        let pcrs = self.0.keys().fold(0, |all, pcr| all | 1_u32 << pcr);
        let values: Vec<&[u8]> = self.0.values().map(<[u8; 32]>::as_slice).collect();
        evidence.quote.pcrs == pcrs && evidence.quote.pcr_digest == sha256(&values)
    }
}

/// Checks the evidence of a TPM quote: a trusted key has signed it, it is for this `binding`, and
/// one of the policies holds. Fails with `Malformed` if it cannot be parsed, `Untrusted` if no
/// trusted key has signed it, `Unbound` for another `binding`, or `Registers` if no policy holds.
pub(super) fn check(
    evidence: &[u8],
    binding: &[u8; 32],
    keys: &[TrustedKey],
    policies: &[PcrPolicy],
) -> Result<(), ChannelError> {
    let evidence = QuoteEvidence::parse(evidence).ok_or(ChannelError::Malformed)?;
    if !keys.iter().any(|key| key.verifies(&evidence)) {
        return Err(ChannelError::Untrusted);
    }
    if evidence.quote.extra_data != binding {
        return Err(ChannelError::Unbound);
    }
    if policies.iter().any(|policy| policy.holds(&evidence)) {
        Ok(())
    } else {
        Err(ChannelError::Registers)
    }
}
