//! TPM 2.0 structures as a TPM marshals them: what `TPM2_Quote` answers, and the public area of an
//! attestation key.
//!
//! Source: TCG, "Trusted Platform Module Library", part 2 "Structures"; the sections are named
//! below. What is accepted is in docs/spec/columns-channel.md, "TPM 2.0". Invariants: a length is
//! checked against what is there; a structure with anything behind it, or with an algorithm that is
//! not on the list, is not read. Must not: verify anything, or talk to a TPM.
#![expect(clippy::big_endian_bytes, reason = "a TPM's integers are big-endian")]

/// A client refuses an attestation that comes later than this after its question.
pub const ANSWER_SECONDS: u64 = 60;
/// Registers of a bank.
pub const PCRS: u8 = 24;

/// `TPM_GENERATED_VALUE` (6.2): a restricted key signs nothing else that begins so.
const GENERATED: u32 = 0xff54_4347;
/// `clockInfo` (clock, resetCount, restartCount, safe) and `firmwareVersion`: not looked at,
/// freshness is the nonce's.
const CLOCK_AND_FIRMWARE: usize = 8 + 4 + 4 + 1 + 8;
/// `TPM_ST_ATTEST_QUOTE` (6.9).
const QUOTE: u16 = 0x8018;
// TPM_ALG_ID (6.3).
const RSA: u16 = 0x0001;
/// `TPM_ALG_SHA256`.
pub const SHA256: u16 = 0x000b;
/// `TPM_ALG_NULL`.
pub const NULL: u16 = 0x0010;
const RSASSA: u16 = 0x0014;
const ECDSA: u16 = 0x0018;
const ECC: u16 = 0x0023;
/// `TPM_ECC_NIST_P256` (6.4).
const P256: u16 = 0x0003;
// TPMA_OBJECT (8.3).
const FIXED_TPM: u32 = 1 << 1;
const SENSITIVE_DATA_ORIGIN: u32 = 1 << 5;
const RESTRICTED: u32 = 1 << 16;
const DECRYPT: u32 = 1 << 17;
const SIGN: u32 = 1 << 18;
/// What `publicArea.parameters.exponent` stands for when it is 0.
const EXPONENT: u32 = 65_537;

/// Reads fields one after the other. Each method returns `None` when there are fewer bytes than the
/// field has.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// Takes the next `len` bytes. `None`, and takes nothing, when there are fewer.
    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// Takes the next `N` bytes. `None`, and takes nothing, when there are fewer.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    /// Takes a big-endian `UINT16`. `None` when there are fewer than 2 bytes.
    pub fn uint16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Takes a big-endian `UINT32`. `None` when there are fewer than 4 bytes.
    pub fn uint32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Takes a big-endian `UINT64`. `None` when there are fewer than 8 bytes.
    pub fn uint64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Takes a `TPM2B`, a length of 2 bytes and as many bytes, and returns those. `None` when it is
    /// cut short.
    pub fn sized(&mut self) -> Option<&'a [u8]> {
        let len = self.uint16()?;
        self.bytes(usize::from(len))
    }

    /// Whether nothing is left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The contents of a quote (`TPMS_ATTEST` with `TPMS_QUOTE_INFO`, 10.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quote<'a> {
    /// The caller's data, which the TPM signed together with the registers.
    pub extra_data: &'a [u8],
    /// The registers of the SHA-256 bank that the quote covers: bit n is register n.
    pub pcrs: u32,
    /// The digest of their values.
    pub pcr_digest: [u8; 32],
}

/// A signature with SHA-256 (`TPMT_SIGNATURE`, 11.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signature<'a> {
    /// ECDSA: r and s, each filled up to 32 bytes.
    Ecdsa([u8; 64]),
    /// RSASSA.
    Rsassa(&'a [u8]),
}

/// The evidence of provider 2: what `TPM2_Quote` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuoteEvidence<'a> {
    /// What is signed.
    pub signed: &'a [u8],
    /// What it says.
    pub quote: Quote<'a>,
    /// The signature.
    pub signature: Signature<'a>,
}

impl<'a> QuoteEvidence<'a> {
    /// Parses evidence: a quote and its signature, and nothing after them. `None` unless it has the
    /// one form that is accepted. The signature is not verified.
    #[must_use]
    pub fn parse(evidence: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(evidence);
        let signed = fields.sized()?;
        let signature = Signature::read(&mut fields)?;
        fields.is_empty().then_some(())?;
        Some(Self {
            signed,
            quote: Quote::parse(signed)?,
            signature,
        })
    }
}

impl<'a> Quote<'a> {
    /// Parses what a quote's signature covers. `None` unless a TPM made it as a quote of the
    /// SHA-256 bank.
    fn parse(signed: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(signed);
        (fields.uint32()? == GENERATED && fields.uint16()? == QUOTE).then_some(())?;
        let _signer = fields.sized()?;
        let extra_data = fields.sized()?;
        fields.bytes(CLOCK_AND_FIRMWARE)?;
        let pcrs = read_selection(&mut fields)?;
        let pcr_digest = fields.sized()?.try_into().ok()?;
        fields.is_empty().then_some(Self {
            extra_data,
            pcrs,
            pcr_digest,
        })
    }
}

/// Takes a `TPML_PCR_SELECTION` (10.9.7): bit n of the result is register n. `None` unless it has
/// one selection, of the SHA-256 bank, of at most 24 registers.
fn read_selection(fields: &mut Fields<'_>) -> Option<u32> {
    (fields.uint32()? == 1 && fields.uint16()? == SHA256).then_some(())?;
    let [len] = fields.array()?;
    let bits = fields.bytes(usize::from(len))?;
    (bits.len() <= usize::from(PCRS) / 8).then_some(())?;
    let mut all = [0; 4];
    all.get_mut(..bits.len())?.copy_from_slice(bits);
    Some(u32::from_le_bytes(all))
}

impl<'a> Signature<'a> {
    /// Takes a signature. `None` for any scheme but ECDSA and RSASSA with SHA-256, and when it is
    /// cut short or too long.
    fn read(fields: &mut Fields<'a>) -> Option<Self> {
        let scheme = fields.uint16()?;
        (fields.uint16()? == SHA256).then_some(())?;
        match scheme {
            ECDSA => {
                let (r, s) = (fields.sized()?, fields.sized()?);
                let mut both = [0; 64];
                let (left, right) = both.split_at_mut(32);
                copy_right_aligned(r, left)?;
                copy_right_aligned(s, right)?;
                Some(Self::Ecdsa(both))
            }
            RSASSA => Some(Self::Rsassa(fields.sized()?)),
            _ => None,
        }
    }
}

/// Copies a big-endian number to the end of `out`, which is zero before. `None` when it is longer
/// than `out`.
fn copy_right_aligned(number: &[u8], out: &mut [u8]) -> Option<()> {
    let from = out.len().checked_sub(number.len())?;
    out.get_mut(from..)?.copy_from_slice(number);
    Some(())
}

/// An attestation key, by its public area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttestationKey<'a> {
    /// A point of NIST P-256, uncompressed (SEC 1): 4, x, y.
    P256([u8; 65]),
    /// RSA.
    Rsa {
        /// The modulus, its first byte not zero.
        modulus: &'a [u8],
        /// The public exponent, big-endian.
        exponent: [u8; 4],
    },
}

impl<'a> AttestationKey<'a> {
    /// Parses the public area of a TPM's key (`TPM2B_PUBLIC`, 12.2.5). `None` unless the key was
    /// made in the TPM, cannot leave it, and signs nothing but data that the TPM made itself, with
    /// ECDSA on P-256 or RSASSA and SHA-256. `None` also for malformed bytes, or bytes after it.
    #[must_use]
    pub fn parse(public: &'a [u8]) -> Option<Self> {
        let mut outer = Fields(public);
        let mut fields = Fields(outer.sized()?);
        outer.is_empty().then_some(())?;
        let kind = fields.uint16()?;
        let _name_algorithm = fields.uint16()?;
        let attributes = fields.uint32()?;
        let wanted = FIXED_TPM | SENSITIVE_DATA_ORIGIN | RESTRICTED | SIGN;
        (attributes & (wanted | DECRYPT) == wanted).then_some(())?;
        let _policy = fields.sized()?;
        // A key that signs has no symmetric algorithm; its scheme and that scheme's hash are its
        // own.
        (fields.uint16()? == NULL).then_some(())?;
        let scheme = fields.uint16()?;
        (fields.uint16()? == SHA256).then_some(())?;
        let key = match (kind, scheme) {
            (ECC, ECDSA) => read_p256(&mut fields)?,
            (RSA, RSASSA) => read_rsa(&mut fields)?,
            _ => return None,
        };
        fields.is_empty().then_some(key)
    }
}

/// Takes the parameters and the point of a key on NIST P-256. `None` for another curve, for a key
/// derivation scheme, and when a coordinate is longer than 32 bytes. Whether the point is on the
/// curve is not checked.
fn read_p256<'a>(fields: &mut Fields<'a>) -> Option<AttestationKey<'a>> {
    (fields.uint16()? == P256 && fields.uint16()? == NULL).then_some(())?;
    let (x, y) = (fields.sized()?, fields.sized()?);
    let mut point = [0; 65];
    let (form, rest) = point.split_first_mut()?;
    *form = 4;
    let (left, right) = rest.split_at_mut(32);
    copy_right_aligned(x, left)?;
    copy_right_aligned(y, right)?;
    Some(AttestationKey::P256(point))
}

/// Takes the parameters and the modulus of an RSA key; an exponent of 0 means 65537. `None` when it
/// is cut short, or the modulus is empty or begins with zero.
fn read_rsa<'a>(fields: &mut Fields<'a>) -> Option<AttestationKey<'a>> {
    let _bits = fields.uint16()?;
    let exponent = match fields.uint32()? {
        0 => EXPONENT,
        other => other,
    };
    let modulus = fields.sized()?;
    (*modulus.first()? != 0).then_some(AttestationKey::Rsa {
        modulus,
        exponent: exponent.to_be_bytes(),
    })
}

/// Registers as the three bytes of a `pcrSelect` in a command: bit n is register n, beginning with
/// the lowest bit of the first byte. Bits of registers above 23 are left out.
#[must_use]
pub fn selected(pcrs: u32) -> [u8; 3] {
    let [a, b, c, _] = pcrs.to_le_bytes();
    [a, b, c]
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// As part 2 writes it down, by hand.
    fn quote() -> Vec<u8> {
        let mut signed = Vec::new();
        signed.extend_from_slice(&[0xff, b'T', b'C', b'G', 0x80, 0x18]);
        signed.extend_from_slice(&[0, 2, 7, 7]); // qualifiedSigner
        signed.extend_from_slice(&[0, 3, 1, 2, 3]); // extraData
        signed.extend_from_slice(&[9; 25]); // clockInfo, firmwareVersion
        signed.extend_from_slice(&[0, 0, 0, 1, 0, 0x0b, 3, 0x01, 0x08, 0x80]);
        signed.extend_from_slice(&[0, 32]);
        signed.extend_from_slice(&[5; 32]);
        signed
    }

    fn evidence(signed: &[u8]) -> Vec<u8> {
        let mut out = Vec::from(u16::try_from(signed.len()).unwrap().to_be_bytes());
        out.extend_from_slice(signed);
        out.extend_from_slice(&[0, 0x18, 0, 0x0b]);
        out.extend_from_slice(&[0, 2, 3, 4]);
        out.extend_from_slice(&[0, 32]);
        out.extend_from_slice(&[6; 32]);
        out
    }

    #[test]
    fn a_quote_says_what_it_is_of() {
        let signed = quote();
        let bytes = evidence(&signed);
        let parsed = QuoteEvidence::parse(&bytes).unwrap();
        assert_eq!(parsed.signed, signed);
        assert_eq!(parsed.quote.extra_data, [1, 2, 3]);
        assert_eq!(parsed.quote.pcrs, 1 | 1 << 11 | 1 << 23);
        assert_eq!(parsed.quote.pcr_digest, [5; 32]);
        let Signature::Ecdsa(both) = parsed.signature else {
            panic!("ECDSA");
        };
        assert_eq!((both[29], both[30], both[31], both[32]), (0, 3, 4, 6));
    }

    #[test]
    fn every_cut_and_every_odd_field_is_refused() {
        let signed = quote();
        let bytes = evidence(&signed);
        for cut in 0..bytes.len() {
            assert_eq!(QuoteEvidence::parse(&bytes[..cut]), None, "{cut} bytes");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(QuoteEvidence::parse(&longer), None, "a byte too much");
        // magic, type, number of selections, bank, length of the selection, length of the digest
        for at in [0, 3, 4, 5, 43, 45, 46, 51] {
            let mut bad = signed.clone();
            bad[at] ^= 1;
            assert_eq!(QuoteEvidence::parse(&evidence(&bad)), None, "byte {at}");
        }
        let end = signed.len() + 2;
        for at in [end + 1, end + 3] {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert_eq!(QuoteEvidence::parse(&bad), None, "signature, byte {at}");
        }
    }

    fn public(attributes: u32) -> Vec<u8> {
        let mut area = Vec::from([0, 0x23, 0, 0x0b]);
        area.extend_from_slice(&attributes.to_be_bytes());
        area.extend_from_slice(&[0, 0, 0, 0x10, 0, 0x18, 0, 0x0b, 0, 3, 0, 0x10]);
        area.extend_from_slice(&[0, 31]);
        area.extend_from_slice(&[1; 31]);
        area.extend_from_slice(&[0, 32]);
        area.extend_from_slice(&[2; 32]);
        let mut out = Vec::from(u16::try_from(area.len()).unwrap().to_be_bytes());
        out.extend_from_slice(&area);
        out
    }

    #[test]
    fn only_a_key_that_signs_what_its_tpm_made_is_taken() {
        let right = FIXED_TPM | SENSITIVE_DATA_ORIGIN | RESTRICTED | SIGN;
        let bytes = public(right | 1 << 6);
        let AttestationKey::P256(point) = AttestationKey::parse(&bytes).unwrap() else {
            panic!("P-256");
        };
        assert_eq!((point[0], point[1], point[2], point[64]), (4, 0, 1, 2));
        for lacking in [FIXED_TPM, SENSITIVE_DATA_ORIGIN, RESTRICTED, SIGN] {
            assert_eq!(AttestationKey::parse(&public(right & !lacking)), None);
        }
        assert_eq!(AttestationKey::parse(&public(right | DECRYPT)), None);
        for cut in 0..bytes.len() {
            assert_eq!(AttestationKey::parse(&bytes[..cut]), None, "{cut} bytes");
        }
    }

    #[test]
    fn registers_are_selected_from_the_lowest_bit_on() {
        assert_eq!(selected(1 | 1 << 11 | 1 << 23), [0x01, 0x08, 0x80]);
    }
}
