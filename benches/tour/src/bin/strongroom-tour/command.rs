//! Running the `strongroom` command.
//!
//! Must not: give it a secret on its command line, or hide what it said when a check needs it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use strongroom_benches::Failure;

/// The command, with the tour's keyring.
pub(crate) struct Strongroom {
    program: PathBuf,
    keyring: PathBuf,
}

/// What a run of it gave.
pub(crate) struct Ran {
    /// Exit code; `None` when a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Strongroom {
    /// `STRONGROOM_BIN`, else the command beside this program.
    pub(crate) fn find(keyring: PathBuf) -> Result<Self, Failure> {
        let named = std::env::var_os("STRONGROOM_BIN").map(PathBuf::from);
        let program = match named {
            Some(program) => program,
            None => std::env::current_exe()?.with_file_name("strongroom"),
        };
        let program = program
            .canonicalize()
            .map_err(|error| format!("{}: {error}; set STRONGROOM_BIN", program.display()))?;
        Ok(Self { program, keyring })
    }

    /// Its file.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Runs it to its end.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Result<Ran, Failure> {
        let output = Command::new(&self.program)
            .args(arguments)
            .env("STRONGROOM_KEYRING", &self.keyring)
            .stdin(Stdio::null())
            .output()?;
        Ok(output.into())
    }

    /// As [`Self::run`]; anything but success is an error with what the command said.
    pub(crate) fn succeed<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Result<Ran, Failure> {
        self.run(arguments)?.succeeded()
    }

    /// `strongroom verify FILE --key-id KEY --json`.
    pub(crate) fn verify(&self, file: &Path, key: &str) -> Result<Verified, Failure> {
        let arguments: [&OsStr; 5] = [
            "verify".as_ref(),
            file.as_ref(),
            "--key-id".as_ref(),
            key.as_ref(),
            "--json".as_ref(),
        ];
        let ran = self.run(&arguments)?;
        Verified::read(&ran)
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ran {
    /// Itself when it ended well, else its complaint as an error.
    pub(crate) fn succeeded(self) -> Result<Self, Failure> {
        if self.code == Some(0) {
            Ok(self)
        } else {
            Err(self.complaint().into())
        }
    }

    /// The first error line, or what there is.
    pub(crate) fn complaint(&self) -> String {
        let line = self.stderr.lines().find(|line| line.starts_with("error"));
        line.or_else(|| self.stderr.lines().next())
            .unwrap_or("it said nothing")
            .to_owned()
    }

    /// Whether it ended with `code` and named `error`, such as "SR-2002".
    pub(crate) fn refused(&self, code: i32, error: &str) -> bool {
        self.code == Some(code) && self.stderr.contains(&format!("error[{error}]"))
    }

    /// Exit code and error line.
    pub(crate) fn shown(&self) -> String {
        let code = self
            .code
            .map_or_else(|| "a signal".to_owned(), |code| code.to_string());
        // "error[SR-2002]: what happened (detail)": the detail is a path, which the line has no
        // room for.
        let complaint = self.complaint();
        let short = complaint.split(" (").next().unwrap_or_default();
        let short = short.replace("error[", "").replace("]:", ":");
        format!(
            "exit {code}, {}",
            short.split(": ").next().unwrap_or_default()
        )
    }
}

/// What `verify --json` found.
pub(crate) struct Verified {
    pub(crate) code: Option<i32>,
    /// Pages that were checked.
    pub(crate) pages: u64,
    /// Numbers of the bad ones, in order.
    pub(crate) bad_pages: Vec<u64>,
    /// Codes of all bad units, each once.
    pub(crate) codes: Vec<String>,
}

impl Verified {
    fn read(ran: &Ran) -> Result<Self, Failure> {
        let json: Value = serde_json::from_str(&ran.stdout).map_err(|_| ran.complaint())?;
        let list = |name: &str| {
            json[name]
                .as_array()
                .cloned()
                .ok_or_else(|| ran.complaint())
        };
        let (checked, bad) = (list("checked")?, list("bad")?);
        let pages = checked
            .iter()
            .filter(|unit| unit["kind"] == "page")
            .filter_map(|unit| unit["count"].as_u64());
        let of_pages = bad.iter().filter(|unit| unit["kind"] == "page");
        let mut codes: Vec<String> = bad
            .iter()
            .filter_map(|unit| unit["code"].as_str())
            .map(str::to_owned)
            .collect();
        codes.sort();
        codes.dedup();
        Ok(Self {
            code: ran.code,
            pages: pages.sum(),
            bad_pages: of_pages.filter_map(|unit| unit["index"].as_u64()).collect(),
            codes,
        })
    }

    /// Every page is authentic, and there was at least one.
    pub(crate) fn clean(&self) -> bool {
        self.code == Some(0) && self.pages > 0 && self.codes.is_empty()
    }

    /// Exactly `pages` are bad, and the command said so by its exit code.
    pub(crate) fn names(&self, pages: &[u64]) -> bool {
        self.code == Some(4) && self.bad_pages == pages && self.codes == ["SR-4001"]
    }

    /// For a line of the tour.
    pub(crate) fn shown(&self) -> String {
        if self.codes.is_empty() {
            return format!("{} of {} pages authentic", self.pages, self.pages);
        }
        let pages: Vec<String> = self.bad_pages.iter().map(u64::to_string).collect();
        format!(
            "page {} of {}: {}",
            pages.join(", "),
            self.pages,
            self.codes.join(", ")
        )
    }
}
