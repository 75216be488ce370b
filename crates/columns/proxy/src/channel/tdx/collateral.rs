//! Reads what Intel says of platforms (`TCB Info`) and of its quoting enclave (`Enclave Identity`),
//! as its service answers, and verifies that Intel has signed it: docs/spec/columns-channel.md,
//! "Intel's judgement".
//!
//! Source: Intel, "API for Provisioning Certification Service", version 4, "Get TDX TCB Info" and
//! "Get TDX QE Identity".
//!
//! Invariant: a value of [`TcbInfo`] or [`EnclaveIdentity`] was signed by a key that leads to the
//! pinned root. Must not: fetch anything, or compare it with a platform.

use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;
use strongroom_crypto::verify_p256;
use strongroom_format::columns::tdx::COLLATERAL_MAX;
use strongroom_format::hex::from_hex;

use super::super::error::ChannelError;
use super::super::x509::{Certificate, IssuedWith, read_pem};
use super::status::TcbStatus;

/// Subject of the certificate whose key signs.
const TCB_SIGNER: &str = "Intel SGX TCB Signing";
/// `version` of a `TCB Info` that is read.
const TCB_INFO_VERSION: u32 = 3;
/// `version` of an `Enclave Identity` that is read.
const IDENTITY_VERSION: u32 = 2;

/// Why a file of Intel's judgement is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollateralError {
    /// It has more than [`COLLATERAL_MAX`] bytes.
    TooLarge,
    /// It is not the JSON that Intel's service answers.
    Form,
    /// It is for something else than TDX, or of a version that is not known.
    Kind,
    /// The key of the certificate has not signed it.
    Signature,
    /// The certificates are not those of Intel's signing key and of the root that is trusted.
    Signer,
    /// A list of revoked certificates names the certificate of the signing key, or is not signed.
    Revoked,
    /// The same family of processors has been given before.
    Twice,
    /// It is not valid yet, or its time is over.
    Dates,
}

impl fmt::Display for CollateralError {
    /// Writes why the file is not taken, and what to do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => {
                "larger than an answer of Intel's service: give the file as it was fetched"
            }
            Self::Form => {
                "not the JSON that Intel's service answers: give the file as it was fetched, with \
                 nothing added to it"
            }
            Self::Kind => {
                "not for TDX, or of a version that is not known: fetch it from \
                 /tdx/certification/v4/"
            }
            Self::Signature => {
                "not signed by the key of --tdx-tcb-signer: it was changed after it was fetched, or \
                 the certificates belong to another answer"
            }
            Self::Signer => {
                "not the certificate of \"Intel SGX TCB Signing\" and that of Intel's root, in this \
                 order, in PEM: it is the header TCB-Info-Issuer-Chain of the answer"
            }
            Self::Revoked => {
                "the certificate of the key that signs was revoked, or a list of revoked \
                 certificates is not signed (--tdx-crl)"
            }
            Self::Twice => "another file is for the same family of processors: give the newer one",
            Self::Dates => {
                "has expired, or is not valid yet: fetch a newer one, see that this machine's clock \
                 is right, or say for how many days more it may count (--tdx-tcb-grace)"
            }
        })
    }
}

impl std::error::Error for CollateralError {}

/// The key that signs Intel's judgement, verified up to the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcbSigner {
    key: [u8; 65],
    /// When both certificates are valid, in seconds since 1970; the end is within it.
    begins: i64,
    ends: i64,
}

impl TcbSigner {
    /// Reads the certificate of the signing key and that of the root, in this order, in PEM. `root`
    /// is the SHA-256 of the `SubjectPublicKeyInfo` of the root that is trusted, `lists` are lists
    /// of revoked certificates in DER. The certificates' dates are not looked at.
    ///
    /// # Errors
    /// [`CollateralError::Signer`] for other certificates; [`CollateralError::Revoked`] if the
    /// root's list names the first one, or one of the lists is not signed or is none.
    pub fn read(pem: &[u8], root: &[u8; 32], lists: &[Vec<u8>]) -> Result<Self, CollateralError> {
        let chain = read_pem(pem).ok_or(CollateralError::Signer)?;
        let parsed: Option<Vec<_>> = chain.iter().map(|der| Certificate::parse(der)).collect();
        let parsed = parsed.ok_or(CollateralError::Signer)?;
        let [signer, issuer] = parsed.as_slice() else {
            return Err(CollateralError::Signer);
        };
        let is_trusted = issuer.key_digest() == *root
            && signer.is_issued_by(issuer, IssuedWith::P256)
            && signer.is_named(TCB_SIGNER);
        if !is_trusted {
            return Err(CollateralError::Signer);
        }
        let listed = signer.check_lists(issuer, IssuedWith::P256, lists);
        listed.map_err(|_: ChannelError| CollateralError::Revoked)?;
        let key = signer.public_key().try_into();
        let (begins, ends) = signer.validity();
        let (root_begins, root_ends) = issuer.validity();
        Ok(Self {
            key: key.map_err(|_| CollateralError::Signer)?,
            begins: begins.max(root_begins),
            ends: ends.min(root_ends),
        })
    }

    /// Whether both certificates are valid at this time, in seconds since 1970.
    pub(super) const fn is_valid_at(&self, unix_s: i64) -> bool {
        self.begins <= unix_s && unix_s <= self.ends
    }

    /// Verifies the signature over a body as it stands in the file, and returns it parsed. Fails
    /// with `Signature`, `Kind` unless it has this name and version, or `Form`.
    fn open<'a, T: Deserialize<'a>>(
        &self,
        signed: &Signed<'a>,
        (id, version): (&str, u32),
    ) -> Result<T, CollateralError> {
        let body = signed.body.get();
        let verified = verify_p256(&self.key, body.as_bytes(), &signed.signature.0);
        verified.map_err(|_| CollateralError::Signature)?;
        let head: Head = parse(body.as_bytes())?;
        if head.id != id || head.version != version {
            return Err(CollateralError::Kind);
        }
        parse(body.as_bytes())
    }
}

/// An answer of Intel's service: the signed object, as its bytes stand in the file, and the
/// signature, r and s.
struct Signed<'a> {
    body: &'a RawValue,
    signature: Hex<64>,
}

/// The answer about platforms, with nothing beside its two members.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TcbInfoAnswer<'a> {
    #[serde(borrow)]
    tcb_info: &'a RawValue,
    signature: Hex<64>,
}

/// The answer about an enclave, with nothing beside its two members.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EnclaveIdentityAnswer<'a> {
    #[serde(borrow)]
    enclave_identity: &'a RawValue,
    signature: Hex<64>,
}

/// What says of which kind a signed object is.
#[derive(Deserialize)]
struct Head {
    id: String,
    version: u32,
}

/// How Intel judges the platforms of one family of processors.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TcbInfo {
    pub(super) issue_date: Date,
    /// When Intel makes the next answer.
    pub(super) next_update: Date,
    /// The family of processors.
    pub(super) fmspc: Hex<6>,
    pub(super) pce_id: Hex<2>,
    /// How levels are compared; 0 is the only way that Intel has defined.
    tcb_type: u32,
    /// The TDX module of major version 0.
    pub(super) tdx_module: Module,
    /// The modules of later major versions.
    #[serde(default)]
    pub(super) tdx_module_identities: Vec<ModuleIdentity>,
    /// The newest first.
    pub(super) tcb_levels: Vec<Level<PlatformTcb>>,
}

impl TcbInfo {
    /// Reads an answer about a family of processors whose signature is `signer`'s. Its dates are
    /// not looked at.
    ///
    /// # Errors
    /// [`CollateralError::TooLarge`], [`CollateralError::Form`], also for a member that is there
    /// twice; [`CollateralError::Signature`], [`CollateralError::Kind`].
    pub fn read(file: &[u8], signer: &TcbSigner) -> Result<Self, CollateralError> {
        let answer: TcbInfoAnswer<'_> = parse(file)?;
        let signed = Signed {
            body: answer.tcb_info,
            signature: answer.signature,
        };
        let info: Self = signer.open(&signed, ("TDX", TCB_INFO_VERSION))?;
        let is_known = info.tcb_type == 0;
        is_known.then_some(()).ok_or(CollateralError::Kind)?;
        let is_whole = info.issue_date < info.next_update && !info.tcb_levels.is_empty();
        is_whole.then_some(info).ok_or(CollateralError::Form)
    }
}

/// How Intel judges its quoting enclave for trust domains.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnclaveIdentity {
    pub(super) issue_date: Date,
    pub(super) next_update: Date,
    pub(super) miscselect: Hex<4>,
    pub(super) miscselect_mask: Hex<4>,
    pub(super) attributes: Hex<16>,
    pub(super) attributes_mask: Hex<16>,
    pub(super) mrsigner: Hex<32>,
    pub(super) isvprodid: u16,
    /// The newest first.
    pub(super) tcb_levels: Vec<Level<SvnTcb>>,
}

impl EnclaveIdentity {
    /// Reads the answer about the quoting enclave whose signature is `signer`'s. Its dates are not
    /// looked at.
    ///
    /// # Errors
    /// As [`TcbInfo::read`].
    pub fn read(file: &[u8], signer: &TcbSigner) -> Result<Self, CollateralError> {
        let answer: EnclaveIdentityAnswer<'_> = parse(file)?;
        let signed = Signed {
            body: answer.enclave_identity,
            signature: answer.signature,
        };
        let identity: Self = signer.open(&signed, ("TD_QE", IDENTITY_VERSION))?;
        let is_whole =
            identity.issue_date < identity.next_update && !identity.tcb_levels.is_empty();
        is_whole.then_some(identity).ok_or(CollateralError::Form)
    }
}

/// What Intel's TDX module has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Module {
    pub(super) mrsigner: Hex<48>,
    pub(super) attributes: Hex<8>,
}

/// The modules of one major version.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ModuleIdentity {
    /// `TDX_` and the major version in two hexadecimal digits.
    pub(super) id: String,
    pub(super) mrsigner: Hex<48>,
    pub(super) attributes: Hex<8>,
    /// The newest first.
    pub(super) tcb_levels: Vec<Level<SvnTcb>>,
}

/// A state and how Intel judges it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Level<T> {
    pub(super) tcb: T,
    pub(super) tcb_status: TcbStatus,
}

/// The least versions of a level of a platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct PlatformTcb {
    #[serde(rename = "sgxtcbcomponents")]
    pub(super) sgx: [Component; 16],
    #[serde(rename = "pcesvn")]
    pub(super) pce: u16,
    #[serde(rename = "tdxtcbcomponents")]
    pub(super) tdx: [Component; 16],
}

/// The least version of one component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Component {
    pub(super) svn: u8,
}

/// The least version of a level of an enclave or a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct SvnTcb {
    pub(super) isvsvn: u16,
}

/// Bytes that JSON has as hexadecimal digits, in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Hex<const N: usize>(pub(super) [u8; N]);

impl<const N: usize> TryFrom<String> for Hex<N> {
    type Error = &'static str;

    /// Parses the digits. Fails for another number of them, and for anything else.
    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = from_hex(&text.to_ascii_lowercase());
        let fixed = bytes.and_then(|bytes| bytes.try_into().ok());
        fixed.map(Self).ok_or("not so many hexadecimal digits")
    }
}

/// A time that JSON has as `2026-01-31T23:59:59Z`: in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Date(pub(super) i64);

impl TryFrom<String> for Date {
    type Error = &'static str;

    /// Parses the time. Fails for another form.
    fn try_from(text: String) -> Result<Self, Self::Error> {
        let form = "not a time as 2026-01-31T23:59:59Z";
        let is_short = text.len() == "2026-01-31T23:59:59Z".len();
        let is_short = is_short && text.contains('T') && text.ends_with('Z');
        let parsed = is_short.then(|| text.parse::<jiff::Timestamp>().ok());
        let parsed = parsed.flatten().ok_or(form)?;
        Ok(Self(parsed.as_second()))
    }
}

/// Parses JSON with nothing behind it. Fails with `TooLarge` or `Form`.
fn parse<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, CollateralError> {
    if json.len() > COLLATERAL_MAX {
        return Err(CollateralError::TooLarge);
    }
    serde_json::from_slice(json).map_err(|_| CollateralError::Form)
}
