//! `strongroom backup verify MEDIUM`: is every segment of a set authentic, and every file what it was.
//!
//! Must not: say more than was checked.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use strongroom_backup::{Description, Verified, open_chain, verify_chain};

use super::{store, thread_count, threads, with_key};
use crate::args::KeyOptions;
use crate::failure::{Failure, printable};
use crate::help::tail;
use crate::progress::Progress;
use crate::{Context, keyring};

/// Read a set to its end: every segment is authenticated and decompressed, every file's digest compared.
#[derive(Args)]
#[command(after_help = tail!("  strongroom backup verify /mnt/backups --key-id backups"))]
pub(super) struct VerifyArgs {
    /// The medium
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
}

#[derive(Serialize)]
struct Report {
    position: u32,
    ok: bool,
    segments: u64,
    files: u64,
    size_bytes: u64,
    not_checked: Vec<String>,
    builds_on: Vec<u32>,
    set: Description,
}

impl VerifyArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let store = store(&self.medium);
        let keyring = keyring::path(context);
        let chain = with_key(self.key, &keyring, |key| {
            open_chain(store.as_ref(), self.set, key)
        })?;
        let mut progress = Progress::new("verifying");
        let total = chain.size_bytes();
        let (verified, bases) = verify_chain(&chain, threads(self.threads), &mut |bytes| {
            progress.update(bytes, total);
        })?;
        drop(progress);
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
                builds_on: bases.iter().map(|base| base.position).collect(),
                set: description,
            });
        }
        let mut text = String::new();
        for each in bases.iter().chain([&verified]) {
            text.push_str(&format!(
                "set {}: {} segments, {} files, {} bytes: good\n",
                each.position, each.segments, each.files, each.bytes
            ));
        }
        for item in &verified.not_checked {
            text.push_str(&format!("  not checked: {}\n", printable(item)));
        }
        context.output.text(&text)
    }
}
