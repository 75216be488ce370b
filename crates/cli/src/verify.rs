//! `strongroom verify FILE` or `DIR`: checks every unit of a sealed object, and lists what could
//! not be checked.
//!
//! Invariant: everything that was not checked is listed. Success means that nothing bad was found
//! in what was checked.
//!
//! Must not: change the object, or show any of its contents.

use std::path::{Path, PathBuf};

use clap::Args;
use strongroom_format::code;
use strongroom_format::header::{Cipher, HEADER_LEN, Header, HeaderError, ObjectKind};
use strongroom_format::hex::from_hex;
use strongroom_format::text::printable;
use strongroom_keyring::Keyring;
use strongroom_keyring::paths::{self, FileFormat};

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::key_options::KeyOptions;
use crate::verification::{AUTHENTIC, BadUnit, Checked, Seals, Verified};
use crate::{duckdb, keys, pg, sealed_sqlite};

/// Check that every part of a sealed database, or a keyring, is authentic; of a PostgreSQL instance
/// or DuckDB's encrypted database, what can be.
///
/// Names every bad page, frame, journal chunk and container, and lists what was not checked.
#[derive(Args)]
#[command(after_help = tail!("  strongroom verify sealed.db --key-id app --json"))]
pub(crate) struct VerifyArgs {
    /// The sealed database, a keyring, a DuckDB database, or the data directory of a PostgreSQL
    /// instance
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    key: KeyOptions,
    /// Of a database that keeps freshness: the root that it must have, 64 hexadecimal digits, as
    /// verify has shown it before
    #[arg(long, value_name = "ROOT", value_parser = parse_root)]
    expect: Option<[u8; 32]>,
    /// Of a database that keeps freshness: take the pages that are there for the newest, if they
    /// are authentic
    #[arg(long, conflicts_with = "expect")]
    settle: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl VerifyArgs {
    /// Verifies the file or data directory, prints the report as text or JSON, and returns the
    /// failure that the report contains, if there is one.
    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let about = sealed_sqlite::FreshnessOptions {
            expected: self.expect,
            settle: self.settle,
        };
        let (mut report, failure) = if self.file.is_dir() {
            pg::verify::verify(&self.file, self.key, context)?
        } else {
            verify_file(&self.file, self.key, about, context)?
        };
        report.error = failure.as_ref().map(Failure::json);
        if self.json {
            context.output.json(&report)?;
        } else {
            context.output.text(&report_text(&report))?;
        }
        match failure {
            Some(failure) if self.json => Err(failure.reported_in_json()),
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}

/// Determines what the file is and verifies it: a DuckDB database, a keyring, or a sealed SQLite
/// database. Returns the report, and the failure if something is bad.
/// Errors: SR-3007 for the header of a PostgreSQL instance; the errors of [`sealed_kind`] and of
/// opening the object.
fn verify_file(
    path: &Path,
    key: KeyOptions,
    about: sealed_sqlite::FreshnessOptions,
    context: &Context,
) -> Result<(Verified, Option<Failure>), Failure> {
    if duckdb::verify::is_duckdb(path)? {
        return duckdb::verify::verify(path, key, context);
    }
    match sealed_kind(path)? {
        ObjectKind::Keyring => Ok((verify_keyring(path)?, None)),
        // The sealed bytes are in other files.
        ObjectKind::Postgres => {
            let shown = path.display();
            let detail =
                format!("{shown}: the header of a PostgreSQL instance; name its directory");
            Err(Failure::new(&code::WRONG_KIND, detail))
        }
        _ => sealed_sqlite::verify(
            path,
            &sealed_sqlite::options(keys::source(key), context),
            about,
        ),
    }
}

/// Returns the kind of object that the header names, without a key. A header that is damaged counts
/// as SQLite, because the VFS can restore it from its redo copy. Errors: SR-1006 or SR-1007 if
/// there is no such regular file, SR-3001 if it is not sealed, SR-3002 if a newer version wrote it,
/// SR-3006 if it ends within the header, SR-5001 when the system reports an error.
fn sealed_kind(path: &Path) -> Result<ObjectKind, Failure> {
    use std::io::Read as _;
    let shown = path.display().to_string();
    if paths::file_format(path)? != FileFormat::Sealed {
        return Err(Failure::new(&code::NOT_SEALED, shown));
    }
    let (file, _) = paths::open_to_read(path)?;
    let mut head = Vec::new();
    let limit = HEADER_LEN as u64;
    let read = file.take(limit).read_to_end(&mut head);
    read.map_err(|e| Failure::io(path, &e))?;
    match Header::parse(&head) {
        Ok(header) => Ok(header.kind),
        Err(HeaderError::Newer(version)) => {
            let detail = format!("{shown}: format version {version}");
            Err(Failure::new(&code::NEWER_FORMAT, detail))
        }
        Err(HeaderError::Truncated) => Err(Failure::new(&code::HEADER_TRUNCATED, shown)),
        // A crash can leave a header half written, of which a redo copy exists; the VFS reads it.
        Err(_) => Ok(ObjectKind::Sqlite),
    }
}

/// Verifies a keyring by opening it with its root key, which authenticates its header and body, and
/// by opening every private key. Everything counts as good; the first thing that does not open is
/// an error: SR-2004 if there is no keyring, SR-2005 if it is damaged, SR-2006 if the root key does
/// not open it; the provider's errors.
fn verify_keyring(path: &Path) -> Result<Verified, Failure> {
    let keyring = Keyring::open(path)?;
    let count = keyring.list().len() as u64;
    let mut checked = vec![Checked {
        kind: "key",
        count,
        good: count,
        claim: AUTHENTIC,
    }];
    // The private keys open one by one; the first that does not is an error.
    drop(keyring.private_keys()?);
    match keyring.certificates().len() as u64 {
        0 => {}
        count => checked.push(Checked {
            kind: "certificate",
            count,
            good: count,
            claim: AUTHENTIC,
        }),
    }
    Ok(Verified {
        path: path.display().to_string(),
        kind: ObjectKind::Keyring.name(),
        ok: true,
        cipher: Cipher::Aes256Gcm.name(),
        rekey_under_way: false,
        freshness: None,
        root: None,
        seals: None,
        checked,
        bad: Vec::new(),
        notes: Vec::new(),
        not_checked: vec!["whether this is the newest state of the keyring".to_owned()],
        error: None,
    })
}

/// Returns the report as text for people; control characters in names are escaped.
fn report_text(report: &Verified) -> String {
    let mut out = format!("{}: {}\n", printable(&report.path), report.kind);
    for Checked {
        kind,
        count,
        good,
        claim,
    } in &report.checked
    {
        out.push_str(&format!("  {kind}: {good} of {count} {claim}\n"));
    }
    if report.rekey_under_way {
        out.push_str("  a rekey was begun and not finished\n");
    }
    if let Some(freshness) = report.freshness {
        out.push_str(&format!("  freshness: {freshness}\n"));
    }
    if let Some(root) = &report.root {
        out.push_str(&format!("  root: {root}\n"));
    }
    if let Some(Seals { seals, seals_limit }) =
        report.seals.as_ref().filter(|seals| seals.seals > 0)
    {
        out.push_str(&format!("  seals: about {seals} of {seals_limit}\n"));
    }
    for bad in &report.bad {
        let BadUnit {
            kind,
            index,
            offset_bytes,
            code,
            file,
        } = bad;
        let file = file.as_deref().map(printable).unwrap_or_default();
        let separator = if file.is_empty() { "" } else { " " };
        out.push_str(&format!(
            "  BAD {kind} {index}{separator}{file} at byte {offset_bytes}: {code}\n"
        ));
    }
    for item in &report.notes {
        out.push_str(&format!("  note: {}\n", printable(item)));
    }
    for item in &report.not_checked {
        out.push_str(&format!("  not checked: {}\n", printable(item)));
    }
    out.push_str(conclusion(report));
    out
}

/// Returns the last line of the report. It says "good" only if nothing is wrong and the cipher
/// authenticates everything; for another cipher it says that no damage was found.
fn conclusion(report: &Verified) -> &'static str {
    let authenticated = report.cipher == Cipher::Aes256Gcm.name();
    match (report.ok && report.error.is_none(), authenticated) {
        (true, true) => "good: everything that was checked is authentic\n",
        (true, false) => "no damage found; this cipher does not authenticate everything\n",
        (false, _) => "NOT GOOD\n",
    }
}

/// Parses a root of 64 hexadecimal digits. The error is the text that clap shows.
fn parse_root(text: &str) -> Result<[u8; 32], String> {
    let wrong = || "use the 64 hexadecimal digits that verify shows".to_owned();
    from_hex(text)
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(wrong)
}
