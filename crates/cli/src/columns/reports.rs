//! The options that say which reports of confidential virtual machines (SEV-SNP, TDX) are accepted.
//!
//! Must not: verify a report.

mod judgement;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{ArgGroup, Args};
use strongroom_columns_proxy::channel::{
    SnpPolicy, TdMeasurement, TdxPolicy, TdxTcb, is_revocation_list, key_digest, read_certificates,
};
use strongroom_format::columns::sev_snp::SnpTcb;
use strongroom_format::hex::from_hex;

use self::judgement::IntelsJudgement;
use crate::failure::Failure;

/// Which reports are accepted.
#[derive(Args)]
#[command(group(ArgGroup::new("tdx_platforms").args(["tdx_min_tcb", "tdx_tcb_info"]).multiple(true)))]
pub(super) struct ReportTrust {
    /// Launch measurement (`MEASUREMENT`, 96 hexadecimal digits) of a SEV-SNP guest that may have
    /// the keys
    #[arg(long = "snp-measurement", value_name = "HEX", value_parser = fixed::<48>, requires = "snp_min_tcb")]
    snp_measurements: Vec<[u8; 48]>,
    /// Oldest firmware of the processor that is accepted: security versions, as the host reports
    /// them
    #[arg(long, value_name = "boot-loader=N,tee=N,snp=N,microcode=N[,fmc=N]", value_parser = snp_tcb, requires = "snp_measurements")]
    snp_min_tcb: Option<SnpTcb>,
    /// Certificate of a root (ARK) that is trusted in place of AMD's for Milan, Genoa and Turin
    #[arg(long = "snp-ark", value_name = "FILE", requires = "snp_measurements")]
    snp_arks: Vec<PathBuf>,
    /// Certificates that the zone's host does not give: ARK, ASK, VCEK, as AMD publishes them
    #[arg(long, value_name = "FILE", requires = "snp_measurements")]
    snp_certificates: Vec<PathBuf>,
    /// List of revoked certificates of AMD's, in DER
    #[arg(long = "snp-crl", value_name = "FILE", requires = "snp_measurements")]
    snp_crls: Vec<PathBuf>,
    /// Highest privilege level (VMPL) of the guest's that a report may come from
    #[arg(
        long,
        value_name = "0-3",
        default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(..=3)
    )]
    snp_max_vmpl: u32,
    /// Refuse a guest that may run where threads share a core
    #[arg(long, requires = "snp_measurements")]
    snp_refuse_smt: bool,
    /// Accept reports that a cloud's key (VLEK) signs, which do not say on which processor
    #[arg(long, requires = "snp_measurements")]
    snp_accept_vlek: bool,
    /// What a TDX trust domain that may have the keys was started with, 96 hexadecimal digits each;
    /// rtmr0, rtmr3 and mrconfigid may be added. Given several times: one of these
    #[arg(long = "tdx-measurement", value_name = "mrtd=HEX,rtmr1=HEX,rtmr2=HEX[,...]", value_parser = td_measurement, requires = "tdx_platforms")]
    tdx_measurements: Vec<TdMeasurement>,
    /// Oldest platform that is accepted: a level of Intel's TCB info for the family. Given several
    /// times: one of these. Together with --tdx-tcb-info, both have to hold
    #[arg(long, value_name = "fmspc=HEX,sgx=HEX,pce=N,tdx=HEX", value_parser = tdx_tcb, requires = "tdx_measurements")]
    tdx_min_tcb: Vec<TdxTcb>,
    /// Oldest quoting enclave that is accepted: its ISVSVN in Intel's enclave identity; 4 unless
    /// given
    #[arg(long, value_name = "NUMBER", requires = "tdx_measurements")]
    tdx_min_qe_svn: Option<u16>,
    /// List of revoked certificates of Intel's, in DER
    #[arg(long = "tdx-crl", value_name = "FILE", requires = "tdx_measurements")]
    tdx_crls: Vec<PathBuf>,
    #[command(flatten)]
    tdx_judgement: IntelsJudgement,
}

impl ReportTrust {
    /// Returns which reports of SEV-SNP are accepted; none if no measurement was named. SR-1001 for
    /// a file that holds no certificate or no list; SR-5001 for one that cannot be read.
    pub(super) fn snp(&self) -> Result<Option<SnpPolicy>, Failure> {
        let Some(minimum) = self.snp_min_tcb else {
            return Ok(None);
        };
        let mut policy = SnpPolicy::new(self.snp_measurements.clone(), minimum);
        policy.highest_vmpl = self.snp_max_vmpl;
        policy.smt = !self.snp_refuse_smt;
        policy.vlek = self.snp_accept_vlek;
        policy.revocation_lists = revocation_lists(&self.snp_crls)?;
        for file in &self.snp_certificates {
            policy.certificates.extend(certificates(file)?);
        }
        let mut roots = Vec::new();
        for file in &self.snp_arks {
            for root in certificates(file)? {
                roots.extend(key_digest(&root));
                policy.certificates.push(root);
            }
        }
        if !roots.is_empty() {
            policy.roots = roots;
        }
        Ok(Some(policy))
    }

    /// Returns which quotes of TDX are accepted; none if no measurement was named. SR-1001 for a
    /// file that holds no list of revoked certificates, and for what Intel has not signed or is not
    /// valid now; SR-5001 for one that cannot be read.
    pub(super) fn tdx(&self) -> Result<Option<TdxPolicy>, Failure> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        self.tdx_at(since.map_or(0, |since| since.as_secs()))
    }

    /// As [`Self::tdx`], at `now` in seconds since 1970.
    fn tdx_at(&self, now: u64) -> Result<Option<TdxPolicy>, Failure> {
        if self.tdx_measurements.is_empty() {
            return Ok(None);
        }
        let (measurements, minimum) = (self.tdx_measurements.clone(), self.tdx_min_tcb.clone());
        let mut policy = TdxPolicy::new(measurements, minimum);
        policy.minimum_qe_svn = self.tdx_min_qe_svn.unwrap_or(policy.minimum_qe_svn);
        policy.revocation_lists = revocation_lists(&self.tdx_crls)?;
        policy.collateral = self.tdx_judgement.read(&policy, now)?;
        Ok(Some(policy))
    }
}

/// Reads lists of revoked certificates. SR-5001 if a file cannot be read, SR-1001 if it is none.
fn revocation_lists(paths: &[PathBuf]) -> Result<Vec<Vec<u8>>, Failure> {
    let read = |path: &PathBuf| {
        let file = std::fs::read(path).map_err(|error| Failure::io(path, &error))?;
        let wrong = format!(
            "{}: not a list of revoked certificates in DER",
            path.display()
        );
        let list = Some(file).filter(|file| is_revocation_list(file));
        list.ok_or_else(|| Failure::usage(&wrong))
    };
    paths.iter().map(read).collect()
}

/// Reads certificates in DER. SR-5001 if the file cannot be read, SR-1001 if it holds none.
fn certificates(path: &Path) -> Result<Vec<Vec<u8>>, Failure> {
    let file = std::fs::read(path).map_err(|error| Failure::io(path, &error))?;
    read_certificates(&file).ok_or_else(|| {
        let shown = path.display();
        Failure::usage(&format!("{shown}: not certificates in PEM or one in DER"))
    })
}

/// Parses hexadecimal digits for `N` bytes. The error is the text that clap shows.
pub(super) fn fixed<const N: usize>(text: &str) -> Result<[u8; N], String> {
    let bytes = from_hex(&text.to_ascii_lowercase());
    let fixed = bytes.and_then(|bytes| bytes.try_into().ok());
    fixed.ok_or_else(|| format!("{} hexadecimal digits", N.saturating_mul(2)))
}

/// What was given as `name=value,name=value`, each name once and one of a list.
struct Fields<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Fields<'a> {
    /// Parses it. The error is the text that clap shows: `form`.
    fn parse(text: &'a str, names: &[&str], form: &str) -> Result<Self, String> {
        let mut fields = BTreeMap::new();
        for one in text.split(',') {
            let field = one.split_once('=').filter(|(name, _)| names.contains(name));
            let (name, value) = field.ok_or_else(|| form.to_owned())?;
            if fields.insert(name, value).is_some() {
                return Err(form.to_owned());
            }
        }
        Ok(Self(fields))
    }

    /// Returns a field as a number. `None` if it was not given; the error says what is wrong.
    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, String> {
        let parse = |text: &&str| text.parse().map_err(|_| format!("{name}: a number"));
        self.0.get(name).map(parse).transpose()
    }

    /// Returns a field as bytes. `None` if it was not given; the error says what is wrong.
    fn bytes<const N: usize>(&self, name: &str) -> Result<Option<[u8; N]>, String> {
        let parse = |text: &&str| fixed(text).map_err(|wrong| format!("{name}: {wrong}"));
        self.0.get(name).map(parse).transpose()
    }
}

/// Parses the least versions of a processor's firmware. The error is the text that clap shows.
fn snp_tcb(text: &str) -> Result<SnpTcb, String> {
    let form = "boot-loader=N,tee=N,snp=N,microcode=N, and from Turin on fmc=N";
    let names = ["boot-loader", "tee", "snp", "microcode", "fmc"];
    let fields = Fields::parse(text, &names, form)?;
    let number = |name| fields.number(name)?.ok_or_else(|| form.to_owned());
    Ok(SnpTcb {
        boot_loader: number("boot-loader")?,
        tee: number("tee")?,
        snp: number("snp")?,
        microcode: number("microcode")?,
        fmc: fields.number("fmc")?.unwrap_or_default(),
    })
}

/// Parses what a trust domain has to have been started with. The error is the text that clap shows.
fn td_measurement(text: &str) -> Result<TdMeasurement, String> {
    let form = "mrtd=HEX,rtmr1=HEX,rtmr2=HEX, and if wanted rtmr0=HEX, rtmr3=HEX, mrconfigid=HEX";
    let names = ["mrtd", "rtmr0", "rtmr1", "rtmr2", "rtmr3", "mrconfigid"];
    let fields = Fields::parse(text, &names, form)?;
    let required = |name| fields.bytes(name)?.ok_or_else(|| form.to_owned());
    // The firmware alone would start any system.
    let (started, further) = (required("rtmr1")?, required("rtmr2")?);
    Ok(TdMeasurement {
        mrtd: required("mrtd")?,
        rtmr: [
            fields.bytes("rtmr0")?,
            Some(started),
            Some(further),
            fields.bytes("rtmr3")?,
        ],
        mrconfigid: fields.bytes("mrconfigid")?,
    })
}

/// Parses the oldest state of a platform. The error is the text that clap shows.
fn tdx_tcb(text: &str) -> Result<TdxTcb, String> {
    let form = "fmspc=HEX,sgx=HEX,pce=N,tdx=HEX with 12, 32 and 32 hexadecimal digits";
    let fields = Fields::parse(text, &["fmspc", "sgx", "pce", "tdx"], form)?;
    let missing = || form.to_owned();
    Ok(TdxTcb {
        fmspc: fields.bytes("fmspc")?.ok_or_else(missing)?,
        sgx: fields.bytes("sgx")?.ok_or_else(missing)?,
        pce: fields.number("pce")?.ok_or_else(missing)?,
        tdx: fields.bytes("tdx")?.ok_or_else(missing)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_firmware_are_read_by_name() {
        let tcb = snp_tcb("snp=8,boot-loader=3,microcode=115,tee=0").unwrap();
        assert_eq!(
            (tcb.boot_loader, tcb.snp, tcb.microcode, tcb.fmc),
            (3, 8, 115, 0)
        );
        assert_eq!(
            snp_tcb("boot-loader=0,tee=0,snp=0,microcode=0,fmc=1")
                .unwrap()
                .fmc,
            1
        );
        for wrong in [
            "",
            "boot-loader=3",
            "boot-loader=3,tee=0,snp=8,microcode=256",
            "boot-loader=3,tee=0,snp=8,microcode=1,microcode=2",
            "boot-loader=3,tee=0,snp=8,microcode=1,other=2",
            "boot-loader=3,tee=0,snp=8,microcode=1,",
        ] {
            assert!(snp_tcb(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_trust_domain_is_named_by_more_than_its_firmware() {
        let [one, two] = ["01", "02"].map(|byte| byte.repeat(48));
        let parsed = td_measurement(&format!("mrtd={one},rtmr1={two},rtmr2={one}")).unwrap();
        assert_eq!(parsed.mrtd, [1; 48]);
        assert_eq!(parsed.rtmr, [None, Some([2; 48]), Some([1; 48]), None]);
        assert_eq!(parsed.mrconfigid, None);
        for wrong in [
            format!("mrtd={one}"),
            format!("mrtd={one},rtmr1={two}"),
            format!("rtmr1={two},rtmr2={one}"),
            format!("mrtd={one},rtmr1={two},rtmr2={one}00"),
            format!("mrtd={one},rtmr1={two},rtmr2={one},rtmr4={one}"),
        ] {
            assert!(td_measurement(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_level_of_a_platform_is_read_as_intel_lists_it() {
        let svn = "07".repeat(16);
        let level = tdx_tcb(&format!("fmspc=50806F000000,sgx={svn},pce=11,tdx={svn}")).unwrap();
        assert_eq!(level.fmspc, [0x50, 0x80, 0x6f, 0, 0, 0]);
        assert_eq!((level.sgx, level.pce, level.tdx), ([7; 16], 11, [7; 16]));
        for wrong in [
            format!("sgx={svn},pce=11,tdx={svn}"),
            format!("fmspc=50806F000000,sgx={svn},pce=-1,tdx={svn}"),
            format!("fmspc=50806F,sgx={svn},pce=11,tdx={svn}"),
        ] {
            assert!(tdx_tcb(&wrong).is_err(), "{wrong}");
        }
    }
}
