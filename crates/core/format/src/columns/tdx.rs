//! Quotes of Intel TDX, version 4, with an ECDSA key.
//!
//! Sources: Intel, "Trust Domain Extensions Data Center Attestation Primitives: Quote Generation
//! Library and Quote Verification Library", "Version 4 Quote Format"; Intel, "Software Developer's
//! Manual", volume 3D, table "Layout of REPORT", for the report of the quoting enclave. What is
//! accepted is in docs/spec/columns-channel.md, "TDX". Invariants: a length is checked against what
//! is there; a quote with anything behind it is not read. Must not: verify anything.

use crate::layout::{array, bytes, is_zero, layout, u16_at, u32_at, u64_at};

/// Longest file of Intel's judgement of platforms (`TCB Info`, `Enclave Identity`) that is read, in
/// bytes. Those of 2026 have up to 20,000.
pub const COLLATERAL_MAX: usize = 262_144;

/// `VERSION` of a quote.
const QUOTE_VERSION: u16 = 4;
/// `KEY_TYPE`: ECDSA with SHA-256 on P-256.
const ECDSA_P256: u16 = 2;
/// `TEE_TYPE`: a trust domain.
const TDX: u32 = 0x81;
/// The vendor of the quoting enclave: Intel.
const INTEL: [u8; 16] = [
    0x93, 0x9a, 0x72, 0x33, 0xf7, 0x9c, 0x4c, 0xa9, 0x94, 0x0a, 0x0d, 0xb3, 0x95, 0x7f, 0x06, 0x07,
];
/// Certification data of the type "QE report".
const QE_REPORT: u16 = 6;
/// Certification data of the type "PCK certificate chain", in PEM.
const PCK_CHAIN: u16 = 5;

/// Bits of `TDATTRIBUTES` (Intel, "TDX Module Base Architecture Specification", `ATTRIBUTES`).
pub mod td_attribute {
    /// Any of these makes a trust domain untrusted; bit 0 is DEBUG.
    pub const UNTRUSTED: u64 = 0xff;
    /// The trust domain can be migrated to another machine.
    pub const MIGRATABLE: u64 = 1 << 29;
}

layout! {
    /// Layout of the part of a quote that has a fixed length. The signature covers what stands
    /// before `SIGNATURE_LENGTH`.
    tdx_quote_layout, 636, {
        VERSION @ 0, 2;
        KEY_TYPE @ 2, 2;
        TEE_TYPE @ 4, 4;
        RESERVED @ 8, 4;
        QE_VENDOR @ 12, 16;
        USER_DATA @ 28, 20;
        TEE_TCB_SVN @ 48, 16;
        MRSEAM @ 64, 48;
        MRSIGNERSEAM @ 112, 48;
        SEAMATTRIBUTES @ 160, 8;
        TDATTRIBUTES @ 168, 8;
        XFAM @ 176, 8;
        MRTD @ 184, 48;
        MRCONFIGID @ 232, 48;
        MROWNER @ 280, 48;
        MROWNERCONFIG @ 328, 48;
        RTMR0 @ 376, 48;
        RTMR1 @ 424, 48;
        RTMR2 @ 472, 48;
        RTMR3 @ 520, 48;
        REPORTDATA @ 568, 64;
        SIGNATURE_LENGTH @ 632, 4;
    }
}

layout! {
    /// Layout of the report of the quoting enclave.
    sgx_report_layout, 384, {
        CPUSVN @ 0, 16;
        MISCSELECT @ 16, 4;
        RESERVED @ 20, 28;
        ATTRIBUTES @ 48, 16;
        MRENCLAVE @ 64, 32;
        RESERVED_2 @ 96, 32;
        MRSIGNER @ 128, 32;
        RESERVED_3 @ 160, 96;
        ISVPRODID @ 256, 2;
        ISVSVN @ 258, 2;
        RESERVED_4 @ 260, 60;
        REPORTDATA @ 320, 64;
    }
}

/// What a quote says of the trust domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TdReport<'a> {
    /// Security versions of the TDX module and its loader.
    pub tee_tcb_svn: [u8; 16],
    /// Bits of [`td_attribute`].
    pub attributes: u64,
    /// The digest of the memory with which the trust domain was started.
    pub mrtd: [u8; 48],
    /// What the host's configuration was named to be when the trust domain was started.
    pub mrconfigid: [u8; 48],
    /// The registers that firmware and system extend.
    pub rtmr: [[u8; 48]; 4],
    /// The trust domain's own data.
    pub report_data: &'a [u8],
}

/// What the quoting enclave's report says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QeReport {
    /// The first eight bytes of `ATTRIBUTES`.
    pub flags: u64,
    /// The last eight: `XFRM`, the processor's state that the enclave may use.
    pub xfrm: u64,
    /// `MISCSELECT`.
    pub misc_select: u32,
    /// The digest of the key that has signed the enclave.
    pub mr_signer: [u8; 32],
    /// The product, among those of its signer.
    pub product: u16,
    /// The security version.
    pub svn: u16,
    /// The digest of the attestation key and the authentication data, then zeros.
    pub report_data: [u8; 64],
}

/// The evidence of provider 4: a quote with the certificates of the platform's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TdxQuote<'a> {
    /// What the attestation key has signed.
    pub signed: &'a [u8],
    /// What it says.
    pub report: TdReport<'a>,
    /// The signature of the attestation key: r, then s.
    pub signature: [u8; 64],
    /// The attestation key, a point of P-256: x, then y.
    pub attestation_key: [u8; 64],
    /// What the platform's key has signed: the quoting enclave's report.
    pub qe_signed: &'a [u8],
    /// What that says.
    pub qe: QeReport,
    /// The signature of the platform's key (PCK): r, then s.
    pub qe_signature: [u8; 64],
    /// Authentication data of the quoting enclave, which its report covers.
    pub qe_auth: &'a [u8],
    /// Certificates in PEM: that of the platform's key, those of its issuers up to the root.
    pub chain: &'a [u8],
}

impl<'a> TdxQuote<'a> {
    /// Parses a quote, and nothing after it. `None` unless it has the one form that is accepted.
    /// Nothing is verified.
    #[must_use]
    pub fn parse(quote: &'a [u8]) -> Option<Self> {
        use tdx_quote_layout as at;
        let form = u16_at(quote, at::VERSION)? == QUOTE_VERSION
            && u16_at(quote, at::KEY_TYPE)? == ECDSA_P256
            && u32_at(quote, at::TEE_TYPE)? == TDX
            && array(quote, at::QE_VENDOR)? == INTEL
            && is_zero(bytes(quote, at::MRSIGNERSEAM)?)
            && is_zero(bytes(quote, at::SEAMATTRIBUTES)?);
        (form && quote.len() == Self::length(quote)?).then_some(())?;
        let mut rest = Rest(quote.get(at::SIZE..)?);
        let (signature, attestation_key) = (rest.array()?, rest.array()?);
        let (kind, certification) = rest.certification()?;
        (kind == QE_REPORT && rest.0.is_empty()).then_some(())?;
        let mut rest = Rest(certification);
        let qe_signed = rest.take(sgx_report_layout::SIZE)?;
        let qe_signature = rest.array()?;
        let auth_length = u16::from_le_bytes(rest.array()?);
        let qe_auth = rest.take(usize::from(auth_length))?;
        let (kind, chain) = rest.certification()?;
        (kind == PCK_CHAIN && rest.0.is_empty()).then_some(())?;
        Some(Self {
            signed: quote.get(..at::SIGNATURE_LENGTH.offset)?,
            report: TdReport::read(quote)?,
            signature,
            attestation_key,
            qe_signed,
            qe: QeReport::read(qe_signed)?,
            qe_signature,
            qe_auth,
            chain,
        })
    }

    /// The length of the quote that these bytes begin with, as it says itself. A host may fill up a
    /// quote to the length of its buffer. `None` when it is cut short.
    #[must_use]
    pub fn length(bytes: &[u8]) -> Option<usize> {
        let signature = u32_at(bytes, tdx_quote_layout::SIGNATURE_LENGTH)?;
        let length = tdx_quote_layout::SIZE.checked_add(usize::try_from(signature).ok()?)?;
        (length <= bytes.len()).then_some(length)
    }
}

impl<'a> TdReport<'a> {
    /// Reads what the quote says. `None` when it is cut short.
    fn read(quote: &'a [u8]) -> Option<Self> {
        use tdx_quote_layout as at;
        Some(Self {
            tee_tcb_svn: array(quote, at::TEE_TCB_SVN)?,
            attributes: u64_at(quote, at::TDATTRIBUTES)?,
            mrtd: array(quote, at::MRTD)?,
            mrconfigid: array(quote, at::MRCONFIGID)?,
            rtmr: [
                array(quote, at::RTMR0)?,
                array(quote, at::RTMR1)?,
                array(quote, at::RTMR2)?,
                array(quote, at::RTMR3)?,
            ],
            report_data: bytes(quote, at::REPORTDATA)?,
        })
    }
}

impl QeReport {
    /// Reads what the report says. `None` when it is cut short.
    fn read(report: &[u8]) -> Option<Self> {
        use sgx_report_layout as at;
        let attributes: [u8; 16] = array(report, at::ATTRIBUTES)?;
        let (flags, xfrm) = attributes.split_first_chunk::<8>()?;
        Some(Self {
            flags: u64::from_le_bytes(*flags),
            xfrm: u64::from_le_bytes(xfrm.try_into().ok()?),
            misc_select: u32_at(report, at::MISCSELECT)?,
            mr_signer: array(report, at::MRSIGNER)?,
            product: u16_at(report, at::ISVPRODID)?,
            svn: u16_at(report, at::ISVSVN)?,
            report_data: array(report, at::REPORTDATA)?,
        })
    }
}

/// What has not been read yet. Each method returns `None` when there are fewer bytes than it takes.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    /// Takes the next `len` bytes. `None`, and takes nothing, when there are fewer.
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// Takes the next `N` bytes. `None`, and takes nothing, when there are fewer.
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// Takes certification data: its type, and the data. `None` when it is cut short.
    fn certification(&mut self) -> Option<(u16, &'a [u8])> {
        let kind = u16::from_le_bytes(self.array()?);
        let length = u32::from_le_bytes(self.array()?);
        Some((kind, self.take(usize::try_from(length).ok()?)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn quote() -> Vec<u8> {
        let mut quote = Vec::from([0; 632]);
        quote[0] = 4;
        quote[2] = 2;
        quote[4] = 0x81;
        quote[12..28].copy_from_slice(&INTEL);
        quote[184] = 5;
        quote[520] = 6;
        let mut inner = Vec::from([0; 384]);
        inner[258] = 4;
        inner.extend_from_slice(&[8; 64]);
        inner.extend_from_slice(&[3, 0, 1, 2, 3, 5, 0, 4, 0, 0, 0]);
        inner.extend_from_slice(b"PEM.");
        let mut signature = Vec::from([7; 64]);
        signature.extend_from_slice(&[9; 64]);
        signature.extend_from_slice(&[6, 0]);
        signature.extend_from_slice(&u32::try_from(inner.len()).unwrap().to_le_bytes());
        signature.extend_from_slice(&inner);
        quote.extend_from_slice(&u32::try_from(signature.len()).unwrap().to_le_bytes());
        quote.extend_from_slice(&signature);
        quote
    }

    #[test]
    fn a_quote_is_read() {
        let bytes = quote();
        let parsed = TdxQuote::parse(&bytes).unwrap();
        assert_eq!(parsed.signed, &bytes[..632]);
        assert_eq!((parsed.report.mrtd[0], parsed.report.rtmr[3][0]), (5, 6));
        assert_eq!(
            (parsed.signature, parsed.attestation_key),
            ([7; 64], [9; 64])
        );
        assert_eq!((parsed.qe.svn, parsed.qe_signature), (4, [8; 64]));
        assert_eq!(
            (parsed.qe_auth, parsed.chain),
            (&[1, 2, 3][..], &b"PEM."[..])
        );
        let padded = [&bytes[..], &[0; 9]].concat();
        assert_eq!(TdxQuote::length(&padded), Some(bytes.len()));
        assert_eq!(TdxQuote::parse(&padded), None, "bytes behind it");
    }

    #[test]
    fn every_cut_and_every_odd_field_is_refused() {
        let bytes = quote();
        for cut in 0..bytes.len() {
            assert_eq!(TdxQuote::parse(&bytes[..cut]), None, "{cut} bytes");
        }
        // Version, kind of key, of environment, vendor, another signer of the module, its
        // attributes, the lengths and the types of certification data.
        let inner = 636 + 128;
        let nested = inner + 6 + 384 + 64;
        for at in [
            0,
            2,
            4,
            12,
            112,
            160,
            632,
            inner,
            inner + 2,
            nested,
            nested + 5,
            nested + 7,
        ] {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert_eq!(TdxQuote::parse(&bad), None, "byte {at}");
        }
    }
}
