//! `strongroom verify FILE` of a DuckDB database.
//!
//! Must not: call the database authentic; only its units are, one by one.

use std::path::Path;

use strongroom_duckdb::VerifyReport;
use strongroom_format::code;

use super::keys;
use crate::context::Context;
use crate::failure::{Failure, code_text};
use crate::key_options::KeyOptions;
use crate::progress::Progress;
use crate::verification::{AUTHENTIC, BadUnit, Checked, Verified};

/// Returns whether a file is a DuckDB database, encrypted or not, by its first 12 bytes; false for
/// a shorter file. SR-1006 if nothing is there, SR-1007 if it is no regular file; SR-5001 when the
/// system reports an error.
pub(crate) fn is_duckdb(path: &Path) -> Result<bool, Failure> {
    use std::io::Read as _;
    let (file, _) = strongroom_keyring::paths::open_to_read(path)?;
    let mut head = Vec::new();
    let read = file.take(12).read_to_end(&mut head);
    read.map_err(|error| Failure::io(path, &error))?;
    Ok(strongroom_format::duckdb::is_duckdb(&head))
}

/// Authenticates every header and block and shows progress. Returns the report, with the failure
/// for the first bad unit, or `None` if none is bad. Errors: SR-2041 without a key; SR-2201 if the
/// database is not encrypted; SR-2204 if no key opens it; the errors of its headers; SR-5001 when
/// the system reports an error.
pub(crate) fn verify(
    path: &Path,
    key: KeyOptions,
    context: &Context,
) -> Result<(Verified, Option<Failure>), Failure> {
    let keys = keys::opening(key, context)?;
    let mut progress = Progress::new("verifying");
    let mut update = |done, all| progress.update(done, all);
    let report = strongroom_duckdb::verify(path, &keys, &mut update)?;
    drop(progress);
    let failure = report.bad.first().map(|first| {
        let (count, kind) = (report.bad_count, first.kind.name());
        let shown = path.display();
        let detail = format!("{shown}: {count} bad, the first is {kind} {}", first.index);
        Failure::new(report.failure().unwrap_or(&code::DUCKDB_UNIT), detail)
    });
    Ok((verified(path, &report), failure))
}

/// Turns the library's report into the result that is printed. Nothing is checked here.
fn verified(path: &Path, report: &VerifyReport) -> Verified {
    let bad = report.bad.iter().map(|bad| BadUnit {
        kind: bad.kind.name(),
        index: bad.index,
        offset_bytes: bad.offset,
        code: code::by_number(bad.number).map_or_else(String::new, code_text),
        file: None,
    });
    let one = |kind, count, good| Checked {
        kind,
        count,
        good,
        claim: AUTHENTIC,
    };
    Verified {
        path: path.display().to_string(),
        kind: "duckdb",
        ok: report.bad.is_empty(),
        cipher: report.cipher,
        rekey_under_way: false,
        freshness: None,
        seals: None,
        root: None,
        checked: vec![
            one("canary", 1, 1),
            one("database-header", 2, report.headers_ok),
            one("block", report.blocks, report.blocks_ok),
        ],
        bad: bad.collect(),
        notes: report_notes(report),
        not_checked: report.not_checked.clone(),
        error: None,
    }
}

/// Returns what the report says that is neither good nor bad: blocks of zeros, blocks after the
/// last one, unused bytes that are not zero, and bad units that are not listed.
fn report_notes(report: &VerifyReport) -> Vec<String> {
    let mut notes = Vec::new();
    if report.blocks_zero > 0 {
        notes.push(format!(
            "{} blocks are all zeros: free, or missing; they are not counted as authentic",
            report.blocks_zero
        ));
    }
    if report.blocks_beyond > 0 {
        notes.push(format!(
            "{} blocks after the database's last one do not open: of a checkpoint that was not finished",
            report.blocks_beyond
        ));
    }
    if report.unused_set > 0 {
        notes.push(format!(
            "{} units have something other than zeros in bytes that DuckDB does not use; `strongroom duckdb scrub` zeroes them",
            report.unused_set
        ));
    }
    let named = report.bad.len() as u64;
    if report.bad_count > named {
        notes.push(format!(
            "{} more bad units are not named",
            report.bad_count - named
        ));
    }
    notes
}
