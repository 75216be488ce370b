//! Reports of a confidential virtual machine, from Linux's `configfs-tsm` (6.7).
//!
//! Source: Linux, `Documentation/ABI/testing/configfs-tsm-report`. An entry of
//! `/sys/kernel/config/tsm/report` is a directory: what is written to `inblob` is in the report
//! that `outblob` then gives, and `generation` counts the writes. The entry is made before the
//! sandbox closes, and stays: as root owns what is made there, an operator whose zone is not root
//! makes it and gives it to the zone's user.
//!
//! Invariant: a report is given only if nobody else has written to the entry meanwhile. Must not:
//! verify a report.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;

use strongroom_format::columns::channel::AttestationProvider;
use strongroom_format::columns::sev_snp::SnpEvidence;
use strongroom_format::columns::tdx::TdxQuote;

use super::Attester;

/// Which hardware makes the reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hardware {
    /// AMD SEV-SNP.
    SevSnp,
    /// Intel TDX.
    Tdx,
}

impl Hardware {
    /// What `provider` holds in an entry.
    const fn kernel_name(self) -> &'static str {
        match self {
            Self::SevSnp => "sev_guest",
            Self::Tdx => "tdx_guest",
        }
    }
}

/// The kernel of a confidential virtual machine, which asks the hardware for reports.
///
/// The zone does nothing else while it waits for a report: some milliseconds; with TDX the host
/// signs, which may take longer.
#[derive(Debug)]
pub struct TsmAttester {
    entry: PathBuf,
    hardware: Hardware,
}

impl TsmAttester {
    /// A source of reports by this hardware, through this entry, which is made if it is not there.
    /// Makes one report to try it.
    ///
    /// # Errors
    /// If the entry cannot be made or used, is of other hardware, or gives no report.
    pub fn new(entry: PathBuf, hardware: Hardware) -> io::Result<Self> {
        if !entry.exists() {
            fs::create_dir(&entry)?;
        }
        let attester = Self { entry, hardware };
        let provider = attester.text("provider")?;
        if provider != hardware.kernel_name() {
            let wrong = format!(
                "the kernel makes reports of {provider}, not of {}: choose --attest accordingly",
                hardware.kernel_name()
            );
            return Err(io::Error::other(wrong));
        }
        attester.evidence(&[0; 32])?;
        Ok(attester)
    }

    /// Reads a file of the entry, and returns its text without the line's end.
    fn text(&self, name: &str) -> io::Result<String> {
        let text = fs::read_to_string(self.entry.join(name))?;
        Ok(text.trim_end().to_owned())
    }

    /// Returns how often the entry was written to.
    fn generation(&self) -> io::Result<u32> {
        let text = self.text("generation")?;
        text.parse().map_err(io::Error::other)
    }

    /// Writes the data that the report has to have. It counts when the file is closed.
    fn write_data(&self, data: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .open(self.entry.join("inblob"))?;
        file.write_all(data)
    }
}

impl Attester for TsmAttester {
    /// The kind of the hardware.
    fn provider(&self) -> AttestationProvider {
        match self.hardware {
            Hardware::SevSnp => AttestationProvider::SevSnp,
            Hardware::Tdx => AttestationProvider::Tdx,
        }
    }

    /// A report over `binding` and 32 zero bytes, with the certificates that the host gives. Takes
    /// some milliseconds or more. Fails if the kernel gives none, if it is not of a known form, and
    /// if another process uses the entry.
    fn evidence(&self, binding: &[u8; 32]) -> io::Result<Vec<u8>> {
        let before = self.generation()?;
        self.write_data(&[*binding, [0; 32]].concat())?;
        let mut report = fs::read(self.entry.join("outblob"))?;
        let certificates = match self.hardware {
            // The host need not give any, and then the file is empty, or cannot be read. The
            // client may have them.
            Hardware::SevSnp => fs::read(self.entry.join("auxblob")).unwrap_or_default(),
            Hardware::Tdx => Vec::new(),
        };
        if self.generation()? != before.wrapping_add(1) {
            let shared = "another process uses this entry: name an entry of the zone's own (--tsm)";
            return Err(io::Error::other(shared));
        }
        let known = match self.hardware {
            Hardware::SevSnp => {
                let with = [&report[..], &certificates].concat();
                if SnpEvidence::parse(&with).is_some() {
                    report = with;
                }
                SnpEvidence::parse(&report).is_some()
            }
            Hardware::Tdx => {
                // Some hosts fill the quote up to the length of their buffer.
                report.truncate(TdxQuote::length(&report).unwrap_or(0));
                TdxQuote::parse(&report).is_some()
            }
        };
        let unknown = "the hardware's report is not of a form that is known";
        known
            .then_some(report)
            .ok_or_else(|| io::Error::other(unknown))
    }
}
