//! `strongroom verify DIR`: what of a sealed instance can be authenticated, which is its header and its containers.
//!
//! Invariant: what is not authenticated is said to be so, by class: blocks and streams are sealed without a tag.
//!
//! Must not: change a file, or need PostgreSQL.

use std::fs::File;
use std::path::Path;

use strongroom_format::code;
use strongroom_format::header::ObjectKind;
use strongroom_shield::body::Body;
use strongroom_shield::real::Errno;
use strongroom_shield::scratch;

use super::chosen::Chosen;
use super::contents::{Contents, check_control, seal_of};
use super::directory::Directory;
use super::plaintext::files;
use crate::Context;
use crate::args::KeyOptions;
use crate::failure::{Failure, code_text};
use crate::progress::Progress;
use crate::verify::{BadUnit, Checked, Verified};

/// The word for a container in results.
const CONTAINER: &str = "container";
/// The system's code for input that is not what was written, which is how a container tells that it does not open.
const EIO: Errno = Errno(5);

/// The result, and the failure that it amounts to.
pub(crate) fn verify(
    path: &Path,
    key: KeyOptions,
    context: &Context,
) -> Result<(Verified, Option<Failure>), Failure> {
    let directory = Directory::at(path)?;
    directory.check_sealed()?;
    let chosen = Chosen::required(key, context, &directory)?;
    let object = chosen.open(&directory)?;
    let instance = chosen.instance(&directory)?;
    check_control(&directory, &instance)?;
    let found = files(&directory.path)?;
    let total = found.len() as u64;
    let mut progress = Progress::new("verifying");
    let (mut count, mut bad) = (0, Vec::new());
    for (done, (relative, _)) in (1_u64..).zip(&found) {
        let Some(seal) = seal_of(relative).filter(|seal| seal.body == Body::Container) else {
            continue;
        };
        // A running server removes and replaces files.
        let Ok(file) = File::open(directory.path.join(relative)) else {
            continue;
        };
        count += 1;
        match opens(&Contents::new(&file, &instance, seal)) {
            Ok(()) => {}
            Err((EIO, offset_bytes)) => bad.push(BadUnit {
                kind: CONTAINER,
                index: count,
                offset_bytes,
                code: code_text(&code::PG_FILE),
                file: Some(relative.display().to_string()),
            }),
            Err((errno, _)) => {
                let error = std::io::Error::from_raw_os_error(errno.0);
                return Err(Failure::io(&directory.path.join(relative), &error));
            }
        }
        progress.update(done, total);
    }
    drop(progress);
    let failure = bad.first().map(|first| {
        let file = first.file.clone().unwrap_or_default();
        let detail = format!("{} bad, the first is {file}", bad.len());
        directory.failure(&code::PG_FILE, &detail)
    });
    let verified = Verified {
        path: path.display().to_string(),
        kind: ObjectKind::Postgres.name(),
        ok: bad.is_empty(),
        cipher: object.header().cipher.name(),
        rekey_under_way: object.previous_epoch().is_some(),
        freshness: None,
        root: None,
        checked: vec![Checked {
            kind: CONTAINER,
            count,
            good: count - bad.len() as u64,
        }],
        bad,
        notes: Vec::new(),
        not_checked: not_checked(&directory),
        error: None,
    };
    Ok((verified, failure))
}

/// Reads a container to its end; or why not, and at which logical offset.
fn opens(contents: &Contents<'_>) -> Result<(), (Errno, u64)> {
    let mut buffer = vec![0; scratch::LEN];
    let mut offset = 0;
    loop {
        match contents.read(&mut buffer, offset) {
            Ok(0) => return Ok(()),
            Ok(length) => offset += length as u64,
            Err(errno) => return Err((errno, offset)),
        }
    }
}

fn not_checked(directory: &Directory) -> Vec<String> {
    let mut out = vec![
        String::from(
            "relations, log, transaction status, control file: sealed without authentication; \
             `strongroom pg run -D DIR -- pg_checksums --check -D DIR` finds damage, not intent",
        ),
        String::from("streams and temporary files: sealed without authentication"),
        String::from("files in clear: `strongroom pg status --plaintext` lists them"),
        String::from("whether this is the newest state, and whether every file is there"),
    ];
    if let Some(pid) = directory.server() {
        out.push(format!(
            "what the running server (process {pid}) wrote meanwhile"
        ));
    }
    out
}
