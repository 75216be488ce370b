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

/// The options that every operation on a database has in common.
pub(crate) fn options(key: Option<KeySource>, context: &Context) -> OpenOptions {
    OpenOptions {
        key,
        // The library knows the environment, but not `--keyring`.
        keyring: Some(context.keyring_path()),
        ..OpenOptions::default()
    }
}

/// A copy gets its source's permissions when it is complete; until then nobody else may read it.
fn set_private_umask() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

/// Ctrl-C, or being asked to end, stops a copy so that nothing of it remains.
fn stop_on_signal() -> Result<(), Failure> {
    ctrlc::set_handler(ops::cancel)
        .map_err(|error| Failure::new(&code::IO, format!("signal handler: {error}")))
}

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

/// As [`ops::rekey`], and shows its progress.
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

/// The result of verifying a database, and the failure that it amounts to.
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

fn verify_once(sealed: &Path, options: &OpenOptions) -> Result<VerifyReport, Failure> {
    let mut progress = Progress::new("verifying");
    Ok(ops::verify(sealed, options, &mut |n, all| {
        progress.update(n, all);
    })?)
}

/// What the digest over the pages amounts to.
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

fn bad_failure(sealed: &Path, report: &VerifyReport) -> Option<Failure> {
    report.bad.first().map(|first| {
        let (count, kind) = (report.bad.len(), first.kind.name());
        let shown = sealed.display();
        let detail = format!("{shown}: {count} bad, the first is {kind} {}", first.index);
        Failure::new(first.code, detail)
    })
}

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

const fn freshness_name(freshness: Freshness) -> Option<&'static str> {
    match freshness {
        Freshness::NotKept => None,
        Freshness::Holds { .. } => Some("holds"),
        Freshness::Stale => Some("stale"),
        _ => Some("unknown"),
    }
}
