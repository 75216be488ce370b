//! Operations on sealed SQLite databases, as the command calls them: open, encrypt, decrypt, rekey,
//! verify.
//!
//! Must not: know a byte of the sealed format.

use std::path::Path;

use strongroom_format::code;
use strongroom_format::header::{ObjectKind, SEALS_LIMIT};
use strongroom_format::hex::hex;
use strongroom_keyring::KeySource;
use strongroom_sqlite::ops::{self, Freshness, RekeyReport, Report, UnitKind, VerifyReport};
use strongroom_sqlite::{Cipher, OpenOptions};

use crate::context::Context;
use crate::failure::{Failure, code_text};
use crate::progress::Progress;
use crate::verification::{AUTHENTIC, BadUnit, Checked, Seals, Verified};

/// Returns the options that every operation on a database has in common: this key, the keyring that
/// was named or the default one, and defaults for all else.
pub(crate) fn options(key: Option<KeySource>, context: &Context) -> OpenOptions {
    OpenOptions {
        key,
        // The library knows the environment, but not `--keyring`.
        keyring: Some(context.keyring_path()),
        ..OpenOptions::default()
    }
}

/// Sets the umask of the process to 077, so that nobody else can read a copy before it is complete.
/// A complete copy gets the permissions of its source.
fn set_private_umask() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

/// Installs a handler that cancels a running copy on SIGINT, SIGTERM and SIGHUP; the unfinished
/// output is then removed. SR-5001 if the handler cannot be installed.
fn stop_on_signal() -> Result<(), Failure> {
    ctrlc::set_handler(ops::cancel)
        .map_err(|error| Failure::new(&code::IO, format!("signal handler: {error}")))
}

/// Writes a sealed copy of the plain database `plain` to the new file `sealed`. `page_size` is in
/// bytes; `None` keeps that of the source. Shows a progress bar, sets the umask to 077, and removes
/// the copy if a signal ends the process. Errors are those of [`ops::encrypt`]; SR-5001 when the
/// system reports an error.
pub(crate) fn encrypt(
    plain: &Path,
    sealed: &Path,
    options: OpenOptions,
    cipher: Cipher,
    page_size: Option<u32>,
) -> Result<Report, Failure> {
    let options = OpenOptions {
        cipher,
        page_size: page_size.unwrap_or(0),
        ..options
    };
    set_private_umask();
    stop_on_signal()?;
    let mut progress = Progress::new("encrypting");
    let done = ops::encrypt(plain, sealed, &options, &mut |n, all| {
        progress.update(n, all);
    });
    Ok(done?)
}

/// Writes a plain copy of the sealed database `sealed` to the new file `plain`. Shows a progress
/// bar, sets the umask to 077, and removes the copy if a signal ends the process. Errors are those
/// of [`ops::decrypt`]; SR-5001 when the system reports an error.
pub(crate) fn decrypt(
    sealed: &Path,
    plain: &Path,
    options: &OpenOptions,
) -> Result<Report, Failure> {
    set_private_umask();
    stop_on_signal()?;
    let mut progress = Progress::new("decrypting");
    let done = ops::decrypt(sealed, plain, options, &mut |n, all| {
        progress.update(n, all);
    });
    Ok(done?)
}

/// Gives the database a new data key and seals every page again; with `slots_only`, only replaces
/// the key slot. `None` as `new_key` keeps the key that opens it. Also finishes a rekey that was
/// interrupted. Shows a progress bar. Errors are those of [`ops::rekey`].
pub(crate) fn rekey(
    sealed: &Path,
    options: &OpenOptions,
    new_key: Option<&KeySource>,
    slots_only: bool,
) -> Result<RekeyReport, Failure> {
    let mut progress = Progress::new("rekeying");
    let done = ops::rekey(sealed, options, new_key, slots_only, &mut |n, all| {
        progress.update(n, all);
    });
    Ok(done?)
}

/// What is to be done about freshness.
#[derive(Clone, Copy, Default)]
pub(crate) struct FreshnessOptions {
    /// The root that the database must have.
    pub(crate) expected: Option<[u8; 32]>,
    /// The digest is made anew when everything else is good.
    pub(crate) settle: bool,
}

/// Verifies a database and returns the report, with the failure for the first thing that is wrong,
/// or `None` if all is good. With `settle`, the digest is computed again over the present pages if
/// nothing is bad, and the database is verified again.
/// Errors: SR-4014 if `settle` was asked for and the database keeps no freshness, SR-6010 if others
/// then use it; the errors of opening it.
pub(crate) fn verify(
    sealed: &Path,
    options: &OpenOptions,
    about: FreshnessOptions,
) -> Result<(Verified, Option<Failure>), Failure> {
    let mut report = verify_once(sealed, options)?;
    let mut settled = false;
    if about.settle {
        if report.freshness == Freshness::NotKept {
            return Err(Failure::new(
                &code::FRESHNESS_OFF,
                sealed.display().to_string(),
            ));
        }
        if report.bad.is_empty() {
            ops::settle(sealed, options)?;
            report = verify_once(sealed, options)?;
            settled = true;
        }
    }
    let failure = bad_failure(sealed, &report).or_else(|| stale_failure(sealed, &report, about));
    let mut verified = verified(sealed, report);
    if settled {
        let note = "the digest was made anew over the pages that are there: whether they were the newest nobody knows";
        verified.notes.push(note.to_owned());
    }
    verified.ok = failure.is_none();
    Ok((verified, failure))
}

/// Authenticates every page, log frame and journal slot, and shows a progress bar. Damage is in the
/// report; an error means that the database could not be opened.
fn verify_once(sealed: &Path, options: &OpenOptions) -> Result<VerifyReport, Failure> {
    let mut progress = Progress::new("verifying");
    Ok(ops::verify(sealed, options, &mut |n, all| {
        progress.update(n, all);
    })?)
}

/// Returns the failure that follows from the digest over the pages: SR-4012 if the pages are not
/// the newest, SR-4013 if the root differs from the expected one, SR-4014 if a root is expected and
/// the database keeps no freshness, SR-4010 if it is not known. `None` if nothing is wrong.
fn stale_failure(sealed: &Path, report: &VerifyReport, about: FreshnessOptions) -> Option<Failure> {
    let shown = sealed.display().to_string();
    match (report.freshness, about.expected) {
        (Freshness::Stale, _) => Some(Failure::new(&code::STALE, shown)),
        (Freshness::NotKept, Some(_)) => Some(Failure::new(&code::FRESHNESS_OFF, shown)),
        (Freshness::NotKept, None) => None,
        (Freshness::Holds { root, .. }, Some(expected)) if root != expected => {
            Some(Failure::new(&code::ROOT, shown))
        }
        (Freshness::Holds { .. }, _) => None,
        _ => {
            let detail = format!("{shown}: whether its pages are the newest");
            Some(Failure::new(&code::UNVERIFIED, detail))
        }
    }
}

/// Returns a failure with the code of the first bad unit and the number of bad units. `None` if
/// there are none.
fn bad_failure(sealed: &Path, report: &VerifyReport) -> Option<Failure> {
    report.bad.first().map(|first| {
        let (count, kind) = (report.bad.len(), first.kind.name());
        let shown = sealed.display();
        let detail = format!("{shown}: {count} bad, the first is {kind} {}", first.index);
        Failure::new(first.code, detail)
    })
}

/// Turns the library's report into the result that is printed. `ok` only says that no unit is bad.
fn verified(path: &Path, report: VerifyReport) -> Verified {
    let bad_of = |kind: UnitKind| report.bad.iter().filter(|bad| bad.kind == kind).count() as u64;
    let log = |kind: UnitKind, good: u64| Checked {
        kind: kind.name(),
        count: good + bad_of(kind),
        good,
        claim: AUTHENTIC,
    };
    let page = Checked {
        kind: UnitKind::Page.name(),
        count: report.pages,
        good: report.pages_ok,
        claim: AUTHENTIC,
    };
    let checked = vec![
        page,
        log(UnitKind::WalFrame, report.frames_ok),
        log(UnitKind::JournalSlot, report.slots_ok),
    ];
    let bad = report.bad.iter().map(|bad| BadUnit {
        kind: bad.kind.name(),
        index: bad.index,
        offset_bytes: bad.offset,
        code: code_text(bad.code),
        file: None,
    });
    let root = match report.freshness {
        Freshness::Holds { root, .. } => Some(hex(&root)),
        _ => None,
    };
    Verified {
        freshness: freshness_name(report.freshness),
        root,
        seals: report.seals.map(|seals| Seals {
            seals,
            seals_limit: SEALS_LIMIT,
        }),
        path: path.display().to_string(),
        kind: ObjectKind::Sqlite.name(),
        ok: report.bad.is_empty(),
        cipher: report.cipher,
        rekey_under_way: report.rekey_under_way,
        checked,
        bad: bad.collect(),
        notes: report.notes,
        not_checked: report.not_checked,
        error: None,
    }
}

/// Returns the word for the `freshness` field of the result; `None` for a database that keeps none.
const fn freshness_name(freshness: Freshness) -> Option<&'static str> {
    match freshness {
        Freshness::NotKept => None,
        Freshness::Holds { .. } => Some("holds"),
        Freshness::Stale => Some("stale"),
        _ => Some("unknown"),
    }
}
