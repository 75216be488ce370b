//! Compares a platform, its TDX module and its quoting enclave with what Intel says of them:
//! docs/spec/columns-channel.md, "Intel's judgement".
//!
//! Source: Intel, "API for Provisioning Certification Service", version 4, the notes on how the
//! status of a TDX platform and of an enclave are found.
//!
//! Invariant: every status that is found has to be accepted for itself; a state for which Intel has
//! no level is refused. Must not: read files.

use strongroom_format::columns::tdx::QeReport;

use super::super::error::ChannelError;
use super::collateral::{
    CollateralError, Component, Date, EnclaveIdentity, Hex, Level, PlatformTcb, SvnTcb, TcbInfo,
    TcbSigner,
};
use super::platform::{Platform, TdxTcb};
use super::status::TcbStatus;

const DAY_S: i64 = 86_400;

/// Intel's judgement of platforms and of its quoting enclave, and what of it the owner accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TdxCollateral {
    signer: TcbSigner,
    tcb_infos: Vec<TcbInfo>,
    enclave: EnclaveIdentity,
    /// What is accepted besides `UpToDate`; `Revoked` and an unknown word never are.
    pub accepted: Vec<TcbStatus>,
    /// For how many days after `nextUpdate` the judgement counts.
    pub grace_days: u16,
}

impl TdxCollateral {
    /// Makes the judgement of what one key has signed. Nothing but `UpToDate` is accepted, and
    /// nothing after `nextUpdate`.
    ///
    /// # Errors
    /// [`CollateralError::Twice`] if two are for the same family of processors.
    pub fn new(
        signer: TcbSigner,
        tcb_infos: Vec<TcbInfo>,
        enclave: EnclaveIdentity,
    ) -> Result<Self, CollateralError> {
        let mut families: Vec<_> = tcb_infos
            .iter()
            .map(|one| (one.fmspc.0, one.pce_id.0))
            .collect();
        families.sort_unstable();
        families.dedup();
        if families.len() != tcb_infos.len() {
            return Err(CollateralError::Twice);
        }
        Ok(Self {
            signer,
            tcb_infos,
            enclave,
            accepted: Vec::new(),
            grace_days: 0,
        })
    }

    /// Checks that all of it counts at `now`, in seconds since 1970.
    ///
    /// # Errors
    /// [`CollateralError::Dates`] if part of it is not valid yet, or its time and the days of grace
    /// are over.
    pub fn check_dates(&self, now: u64) -> Result<(), CollateralError> {
        let all = self.tcb_infos.iter().all(|one| self.counts(one, now));
        all.then_some(()).ok_or(CollateralError::Dates)
    }

    /// Whether the signer's certificates, this TCB info and the enclave's identity count at `now`,
    /// in seconds since 1970. Certificates have no days of grace.
    fn counts(&self, info: &TcbInfo, now: u64) -> bool {
        let Ok(now) = i64::try_from(now) else {
            return false;
        };
        let grace_s = i64::from(self.grace_days).saturating_mul(DAY_S);
        let within =
            |issued: Date, next: Date| issued.0 <= now && now <= next.0.saturating_add(grace_s);
        self.signer.is_valid_at(now)
            && within(info.issue_date, info.next_update)
            && within(self.enclave.issue_date, self.enclave.next_update)
    }

    /// Checks that what Intel says at `now`, in seconds since 1970, of the platform, of its TDX
    /// module and of its quoting enclave is accepted. Fails with `Uncovered` if Intel's files are
    /// for other processors or other modules, `Expired`, `Chain` for another enclave, `Firmware`
    /// for a state for which Intel has no level, or `Judged`.
    pub(super) fn judge(
        &self,
        platform: &Platform,
        tcb: &TdxTcb,
        enclave: &QeReport,
        now: u64,
    ) -> Result<(), ChannelError> {
        let is_for =
            |info: &&TcbInfo| info.fmspc.0 == tcb.fmspc && Some(info.pce_id.0) == platform.pce_id;
        let info = self.tcb_infos.iter().find(is_for);
        let info = info.ok_or(ChannelError::Uncovered)?;
        if !self.counts(info, now) {
            return Err(ChannelError::Expired);
        }
        self.accept(status_of_enclave(&self.enclave, enclave)?)?;
        if let Some(status) = status_of_module(info, &tcb.tdx)? {
            self.accept(status)?;
        }
        self.accept(status_of_platform(info, tcb)?)
    }

    /// Checks that the owner accepts this status. Fails with `Judged`.
    fn accept(&self, status: TcbStatus) -> Result<(), ChannelError> {
        let accepted = match status {
            TcbStatus::UpToDate => true,
            TcbStatus::Revoked | TcbStatus::Unknown => false,
            _ => self.accepted.contains(&status),
        };
        accepted.then_some(()).ok_or(ChannelError::Judged(status))
    }
}

/// Finds how Intel judges the quoting enclave. Fails with `Chain` if it is another enclave, or
/// `Firmware` if there is no level for its security version.
fn status_of_enclave(
    identity: &EnclaveIdentity,
    enclave: &QeReport,
) -> Result<TcbStatus, ChannelError> {
    let masked = |value: &[u8], mask: &[u8], wanted: &[u8]| {
        let mut bytes = value.iter().zip(mask).zip(wanted);
        bytes.all(|((value, mask), wanted)| value & mask == *wanted)
    };
    let attributes = [enclave.flags.to_le_bytes(), enclave.xfrm.to_le_bytes()].concat();
    let is_this = enclave.mr_signer == identity.mrsigner.0
        && enclave.product == identity.isvprodid
        && masked(
            &enclave.misc_select.to_le_bytes(),
            &identity.miscselect_mask.0,
            &identity.miscselect.0,
        )
        && masked(
            &attributes,
            &identity.attributes_mask.0,
            &identity.attributes.0,
        );
    is_this.then_some(()).ok_or(ChannelError::Chain)?;
    status_by_svn(&identity.tcb_levels, enclave.svn)
}

/// Finds how Intel judges the TDX module, by the first component of TDX; the second one is its
/// major version. `None` for the major version 0, which the platform's levels judge. Fails with
/// `Uncovered` if Intel does not name this module, or `Firmware` if there is no level for it.
fn status_of_module(info: &TcbInfo, tdx: &[u8; 16]) -> Result<Option<TcbStatus>, ChannelError> {
    let [minor, major, ..] = *tdx;
    if major == 0 {
        let module = &info.tdx_module;
        check_module(&module.mrsigner, &module.attributes)?;
        return Ok(None);
    }
    let named = format!("TDX_{major:02x}");
    let mut modules = info.tdx_module_identities.iter();
    let module = modules.find(|one| one.id.eq_ignore_ascii_case(&named));
    let module = module.ok_or(ChannelError::Uncovered)?;
    check_module(&module.mrsigner, &module.attributes)?;
    status_by_svn(&module.tcb_levels, u16::from(minor)).map(Some)
}

/// Checks that Intel describes a module with the signer and the attributes of the quote's. A quote
/// is only read where all of both are zero (`TdxQuote`), under whatever mask. Fails with
/// `Uncovered`.
fn check_module(signer: &Hex<48>, attributes: &Hex<8>) -> Result<(), ChannelError> {
    let is_this = signer.0 == [0; 48] && attributes.0 == [0; 8];
    is_this.then_some(()).ok_or(ChannelError::Uncovered)
}

/// Finds how Intel judges a security version: by the first level that is not newer. Fails with
/// `Firmware` if there is none.
fn status_by_svn(levels: &[Level<SvnTcb>], svn: u16) -> Result<TcbStatus, ChannelError> {
    let level = levels.iter().find(|level| level.tcb.isvsvn <= svn);
    level
        .map(|level| level.tcb_status)
        .ok_or(ChannelError::Firmware)
}

/// Finds how Intel judges a platform: by the first level of which no part is newer. Fails with
/// `Firmware` if there is none.
fn status_of_platform(info: &TcbInfo, tcb: &TdxTcb) -> Result<TcbStatus, ChannelError> {
    let mut levels = info.tcb_levels.iter();
    let level = levels.find(|level| is_at_least(tcb, &level.tcb));
    level
        .map(|level| level.tcb_status)
        .ok_or(ChannelError::Firmware)
}

/// Whether no part of a level is newer than the platform's. The first two components of TDX count
/// for a module of major version 0; later ones have levels of their own.
fn is_at_least(tcb: &TdxTcb, level: &PlatformTcb) -> bool {
    let all = |own: &[u8], least: &[Component]| {
        let mut pairs = own.iter().zip(least);
        pairs.all(|(own, least)| *own >= least.svn)
    };
    let [_, major, ..] = tcb.tdx;
    let judged_apart = if major == 0 { 0 } else { 2 };
    let (_, own) = tcb.tdx.split_at(judged_apart);
    let (_, least) = level.tdx.split_at(judged_apart);
    tcb.pce >= level.pce && all(&tcb.sgx, &level.sgx) && all(own, least)
}
