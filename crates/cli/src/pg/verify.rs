//! `strongroom verify DIR`, of a sealed PostgreSQL instance.
//!
//! Must not: check anything itself.

use std::path::Path;

use strongroom_format::header::ObjectKind;
use strongroom_postgres_instance::verify;

use super::given::given_key;
use crate::context::Context;
use crate::failure::{Failure, code_text};
use crate::key_options::KeyOptions;
use crate::progress::Progress;
use crate::verification::{AUTHENTIC, BadUnit, Checked, Verified};

/// Verifies the sealed instance in `path` and shows progress. Returns the report, with the failure
/// for what is bad, or `None` if nothing is. Errors: SR-7011 if it is no data directory; the errors
/// of the key and the header; SR-5001 when the system reports an error.
pub(crate) fn verify(
    path: &Path,
    key: KeyOptions,
    context: &Context,
) -> Result<(Verified, Option<Failure>), Failure> {
    let mut bar = Progress::new("verifying");
    let mut progress = |done, total| bar.update(done, total);
    let found = verify::verify(path, given_key(key, context), &mut progress)?;
    let bad = found.bad.into_iter().map(|bad| BadUnit {
        kind: bad.kind,
        index: bad.index,
        offset_bytes: bad.offset_bytes,
        code: code_text(bad.code),
        file: Some(bad.file),
    });
    let checked = found.checked.iter().map(|files| Checked {
        kind: files.kind,
        count: files.count,
        good: files.good,
        claim: match files.is_authenticated {
            true => AUTHENTIC,
            false => "without zeros that somebody wrote",
        },
    });
    let verified = Verified {
        path: path.display().to_string(),
        kind: ObjectKind::Postgres.name(),
        ok: found.failure.is_none(),
        cipher: found.cipher,
        rekey_under_way: found.rekey_under_way,
        freshness: None,
        seals: None,
        root: None,
        checked: checked.collect(),
        bad: bad.collect(),
        notes: Vec::new(),
        not_checked: found.not_checked,
        error: None,
    };
    Ok((verified, found.failure.map(Failure::from)))
}
