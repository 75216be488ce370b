//! `strongroom backup verify MEDIUM`: is every segment of a set authentic, and every file what it was.
//!
//! Must not: say more than was checked.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use strongroom_backup::{Description, Verified, open_set};

use super::history::{self, Entry, HistoryOptions, Told};
use super::metrics::MetricsOptions;
use super::progress::{ProgressOptions, Watch};
use super::{store, thread_count, threads, with_key};
use crate::args::KeyOptions;
use crate::failure::{Failure, printable};
use crate::help::tail;
use crate::{Context, keyring};

/// Read a set to its end: every segment is authenticated and decompressed, every file's digest compared.
#[derive(Args)]
#[command(after_help = tail!("  strongroom backup verify /mnt/backups --key-id backups"))]
pub(super) struct VerifyArgs {
    /// The medium: a directory, or s3://BUCKET/PREFIX, gs://..., az://...
    #[arg(value_name = "MEDIUM")]
    medium: PathBuf,
    /// The set's position [default: the newest]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    set: Option<u32>,
    #[command(flatten)]
    key: KeyOptions,
    /// Threads that open and decompress, 1 to 64 [default: one per processor]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    threads: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    progress: ProgressOptions,
    #[command(flatten)]
    metrics: MetricsOptions,
    #[command(flatten)]
    history: HistoryOptions,
}

#[derive(Serialize)]
struct Report {
    position: u32,
    ok: bool,
    segments: u64,
    files: u64,
    size_bytes: u64,
    not_checked: Vec<String>,
    set: Description,
}

impl VerifyArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let told = Told {
            history: Some(self.history.clone()),
            key_id: self.key.key_id.clone(),
            metrics: self.metrics.file(),
        };
        history::told(context, "verify", &told, |context, entry| {
            self.read(context, entry)
        })
    }

    fn read(self, context: &mut Context, entry: &mut Entry) -> Result<(), Failure> {
        let store = store(&self.medium)?;
        entry.on(store.as_ref());
        let keyring = keyring::path(context);
        let set = with_key(self.key, &keyring, |key| {
            open_set(store.as_ref(), self.set, key)
        })?;
        entry.with_set(store.as_ref(), set.position());
        let total = set.description().backup_size_bytes;
        let mut progress = Watch::new("verify", self.progress).of(total);
        let verified = strongroom_backup::verify(&set, threads(self.threads), &mut |bytes| {
            progress.update(bytes);
        })?;
        entry.done();
        progress.finish();
        if self.json {
            let Verified {
                position,
                description,
                segments,
                files,
                bytes,
                not_checked,
            } = verified;
            return context.output.json(&Report {
                position,
                ok: true,
                segments,
                files,
                size_bytes: bytes,
                not_checked,
                set: description,
            });
        }
        let mut text = format!(
            "set {}: {} segments, {} files, {} bytes: good\n",
            verified.position, verified.segments, verified.files, verified.bytes
        );
        for item in &verified.not_checked {
            text.push_str(&format!("  not checked: {}\n", printable(item)));
        }
        context.output.text(&text)
    }
}
