//! `strongroom volume shred DEVICE --confirm UUID`.
//!
//! Must not: destroy a volume whose UUID the user did not give.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use strongroom_format::code;
use strongroom_inspect::time::rfc3339;
use strongroom_volume::shred::{Record, Request, shred_and_report};

use super::material::ProviderOptions;
use super::messages::StandardError;
use crate::context::Context;
use crate::failure::{ErrorJson, Failure, warn};
use crate::help::tail;

/// Destroy a volume: its key slots, its header, and the key at the key server. Says what remains.
///
/// The key server erases a key after a delay only, seven days unless its configuration says
/// otherwise: until then the record says `destroy-pending`. When the key server refuses, or cannot
/// be asked, the volume is destroyed nevertheless, and the command fails with SR-8358.
#[derive(Args)]
#[command(after_help = tail!("  strongroom volume shred /dev/vdb --confirm 5f1c9d1e-4c43-4b0e-9f2c-6b1f3f0d8a11 --json > shredded.json"))]
pub(super) struct ShredArgs {
    /// The device, or the file
    #[arg(value_name = "DEVICE")]
    path: PathBuf,
    /// The volume's UUID, as `strongroom volume status` shows it
    #[arg(long, value_name = "UUID")]
    confirm: String,
    /// Leave the key and the header backup at the key server: other volumes use the key
    #[arg(long)]
    keep_key: bool,
    #[command(flatten)]
    provider: ProviderOptions,
    /// Write one JSON object to standard output: the record
    #[arg(long)]
    pub(super) json: bool,
}

impl ShredArgs {
    /// Destroys the volume whose UUID was confirmed: its key slots, its header and, unless
    /// `--keep-key`, its key at the key server; prints the record, and warns with SR-8339 of what
    /// remains.
    /// Errors: SR-8359 for another UUID, SR-8320 if it is in use, SR-8362 if other objects need the
    /// key: nothing is changed then; SR-8358 if the volume is destroyed but the key server did not
    /// do everything.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let request = Request {
            path: &self.path,
            confirmed: &self.confirm,
            keeps_key: self.keep_key,
        };
        let keys = self.provider.host_keys(context);
        let keys = |provider| keys.open(Some(provider));
        let record = shred_and_report(request, keys, &StandardError)?;
        let failure = incomplete_failure(&record);
        if self.json {
            let error = failure.as_ref().map(Failure::json);
            context.output.json(&Written { record, error })?;
            return failure.map_or(Ok(()), |failure| Err(failure.reported_in_json()));
        }
        let line = format!(
            "volume {}: {} key slots destroyed, {} bytes overwritten",
            record.uuid,
            record.slots_destroyed.len(),
            record.overwritten_bytes
        );
        context.output.line(&line)?;
        if record.key_state == "destroy-pending" {
            let until = record
                .key_destroy_at
                .map_or_else(|| "later".to_owned(), |at| format!("at {}", rfc3339(at)));
            let line = format!("its key is NOT destroyed yet: the key server erases it {until}");
            context.output.line(&line)?;
        }
        for left in &record.remains {
            warn(&code::VOLUME_WARNED, left);
        }
        failure.map_or(Ok(()), Err)
    }
}

/// The record, with what went wrong.
#[derive(Serialize)]
struct Written {
    #[serde(flatten)]
    record: Record,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorJson>,
}

/// Returns an SR-8358 failure that names what the key server did not do; `None` if it did
/// everything.
fn incomplete_failure(record: &Record) -> Option<Failure> {
    let detail = record.not_done.join("; ");
    (!record.not_done.is_empty()).then(|| Failure::new(&code::VOLUME_KEY_REMAINS, detail))
}
