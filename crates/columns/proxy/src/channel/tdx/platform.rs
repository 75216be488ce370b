//! What the certificate of a platform's key says of the platform, and the states of platforms that
//! an owner allows.
//!
//! Source: Intel, "SGX PCK Certificate and Certificate Revocation List Profile Specification". Must
//! not: decide whether the certificate is trusted.

use x509_parser::asn1_rs::oid;
use x509_parser::der_parser::ber::BerObject;
use x509_parser::der_parser::parse_der;

use super::super::x509::Certificate;

/// The oldest state of a platform that is allowed: a level of Intel's `TCB Info` for a family of
/// platforms. Greater numbers are newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TdxTcb {
    /// The family of platforms.
    pub fmspc: [u8; 6],
    /// `sgxtcbcomponents`: microcode and more.
    pub sgx: [u8; 16],
    /// `pcesvn`.
    pub pce: u16,
    /// `tdxtcbcomponents`: the TDX module and its loader.
    pub tdx: [u8; 16],
}

impl TdxTcb {
    /// Whether a platform is of the family and at least as new as `minimum`. The second component
    /// of TDX, the major version of the module, has to be the same: others are counted by it.
    pub(super) fn is_at_least(&self, minimum: &Self) -> bool {
        let all = |own: &[u8; 16], least: &[u8; 16]| own.iter().zip(least).all(|(a, b)| a >= b);
        self.fmspc == minimum.fmspc
            && self.pce >= minimum.pce
            && all(&self.sgx, &minimum.sgx)
            && all(&self.tdx, &minimum.tdx)
            && self.tdx.get(1) == minimum.tdx.get(1)
    }
}

/// What the certificate of a platform's key says of the platform.
pub(super) struct Platform {
    pub(super) fmspc: [u8; 6],
    /// The number of the platform's provisioning certification enclave (PCE), if it is there.
    pub(super) pce_id: Option<[u8; 2]>,
    pub(super) components: [u8; 16],
    pub(super) pce: u16,
}

impl Platform {
    /// Reads Intel's extension of a platform's certificate. `None` if there is none, or it lacks
    /// one of the fields.
    pub(super) fn of(certificate: &Certificate<'_>) -> Option<Self> {
        let extension = certificate.extension(&oid!(1.2.840.113741.1.13.1))?;
        let (rest, all) = parse_der(extension).ok()?;
        rest.is_empty().then_some(())?;
        let tcb = field(&all, "2")?;
        let mut components = [0; 16];
        for (component, number) in components.iter_mut().zip(1..) {
            let value = field(tcb, &format!("2.{number}"))?;
            *component = u8::try_from(value.as_u32().ok()?).ok()?;
        }
        Some(Self {
            fmspc: field(&all, "4")?.as_slice().ok()?.try_into().ok()?,
            pce_id: field(&all, "3").and_then(|id| id.as_slice().ok()?.try_into().ok()),
            components,
            pce: u16::try_from(field(tcb, "2.17")?.as_u32().ok()?).ok()?,
        })
    }
}

/// Returns the value of a field in a list of pairs, each an object identifier and a value. `number`
/// is what follows Intel's 1.2.840.113741.1.13.1. `None` if there is no such field.
fn field<'a, 'b>(list: &'a BerObject<'b>, number: &str) -> Option<&'a BerObject<'b>> {
    let wanted = format!("1.2.840.113741.1.13.1.{number}");
    list.as_sequence().ok()?.iter().find_map(|pair| {
        let [name, value] = pair.as_sequence().ok()?.as_slice() else {
            return None;
        };
        (name.as_oid().ok()?.to_id_string() == wanted).then_some(value)
    })
}
