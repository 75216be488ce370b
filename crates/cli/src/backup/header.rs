//! `strongroom backup header MEDIUM`: every set on a medium, without a key.
//!
//! Must not: fetch a key, or say that anything of it is authentic.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use strongroom_backup::{Description, ListedSet, Listing, MediumHead, list, opener_names};
use strongroom_format::hex::hex;
use strongroom_format::text::printable;
use strongroom_inspect::time::rfc3339;

use super::medium_name::store;
use crate::context::Context;
use crate::failure::{ErrorJson, Failure};
use crate::help::tail;

/// List the sets on a medium: what can be known without a key. Nothing of it is authenticated.
#[derive(Args)]
#[command(after_help = tail!("  strongroom backup header /mnt/backups --json"))]
pub(super) struct HeaderArgs {
    /// The medium: a directory, or the URL of a place in an object store (s3:, gs:, az:)
    #[arg(value_name = "MEDIUM")]
    medium: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    path: String,
    medium: Option<&'a MediumHead>,
    sets: Vec<SetReport<'a>>,
    unreadable: Vec<UnreadableReport>,
    error: Option<ErrorJson>,
}

#[derive(Serialize)]
struct SetReport<'a> {
    position: u32,
    #[serde(flatten)]
    description: &'a Description,
    started: String,
    finished: String,
    encryptors: Vec<Encryptor>,
}

#[derive(Serialize)]
struct Encryptor {
    encryptor_type: &'static str,
    key_id: Option<String>,
    key_version: Option<u32>,
}

#[derive(Serialize)]
struct UnreadableReport {
    position: u32,
    error: ErrorJson,
}

impl HeaderArgs {
    /// Prints all sets of the medium, without a key, as text or JSON. Returns the failure of the
    /// first set whose head cannot be read, after all others were printed. SR-7101 if there is no
    /// medium; SR-5001 when the system reports an error.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let listing = list(store(&self.medium)?.as_ref())?;
        let bad: Vec<(u32, Failure)> = listing
            .unreadable
            .iter()
            .map(|bad| {
                let failure = Failure::new(bad.error.code(), bad.error.detail());
                (bad.position, failure)
            })
            .collect();
        if self.json {
            context.output.json(&self.report(&listing, &bad))?;
        } else {
            context.output.text(&listing_text(&listing))?;
        }
        context.output.flush()?;
        let json = self.json;
        match bad.into_iter().next() {
            Some((_, failure)) if json => Err(failure.reported_in_json()),
            Some((_, failure)) => Err(failure),
            None => Ok(()),
        }
    }

    /// Returns the JSON result. `bad` are the sets whose heads cannot be read.
    fn report<'a>(&self, listing: &'a Listing, bad: &[(u32, Failure)]) -> Report<'a> {
        Report {
            path: self.medium.display().to_string(),
            medium: listing.head.as_ref(),
            sets: listing.sets.iter().map(set_report).collect(),
            unreadable: bad
                .iter()
                .map(|(position, failure)| UnreadableReport {
                    position: *position,
                    error: failure.json(),
                })
                .collect(),
            error: bad.first().map(|(_, failure)| failure.json()),
        }
    }
}

/// Returns the JSON form of one set, with what opens it.
fn set_report(set: &ListedSet) -> SetReport<'_> {
    use strongroom_format::slot::SlotKind;
    let slots = set.header.iter().flat_map(|header| &header.slots);
    let encryptors = slots.map(|slot| match &slot.kind {
        SlotKind::Keyring { id, version } => Encryptor {
            encryptor_type: "keyring",
            key_id: Some(id.clone()),
            key_version: Some(*version),
        },
        SlotKind::Certificate { id, .. } => Encryptor {
            encryptor_type: "certificate",
            key_id: Some(hex(id)),
            key_version: None,
        },
        other => Encryptor {
            encryptor_type: other.name(),
            key_id: None,
            key_version: None,
        },
    });
    SetReport {
        position: set.position,
        description: &set.description,
        started: rfc3339(set.description.started_unix_s),
        finished: rfc3339(set.description.finished_unix_s),
        encryptors: encryptors.collect(),
    }
}

/// Returns the list as text for people.
fn listing_text(listing: &Listing) -> String {
    let mut out = String::new();
    match &listing.head {
        Some(head) => out.push_str(&format!(
            "medium {}: {}, stripes {}\n",
            head.medium_id,
            head.protection.name(),
            head.stripes
        )),
        None => out.push_str("the medium's own head is missing or damaged\n"),
    }
    for set in &listing.sets {
        out.push_str(&set_text(set));
    }
    for bad in &listing.unreadable {
        let error = &bad.error;
        out.push_str(&format!(
            "set {}: {}\n",
            bad.position,
            printable(&error.to_string())
        ));
    }
    out.push_str("nothing of this is authenticated: strongroom backup verify does that\n");
    out
}

/// Returns one set as text for people.
fn set_text(set: &ListedSet) -> String {
    let d = &set.description;
    let name = if d.name.is_empty() { "" } else { ", " };
    let mut lines = vec![
        format!(
            "set {}: {}{name}{}",
            set.position,
            d.kind.name(),
            printable(&d.name)
        ),
        format!("  source           {}", printable(&d.source)),
        format!(
            "  made by          {} on {}, {}",
            printable(&d.user_name),
            printable(&d.machine_name),
            printable(&d.software)
        ),
        format!("  started          {}", rfc3339(d.started_unix_s)),
        format!("  finished         {}", rfc3339(d.finished_unix_s)),
        format!(
            "  size             {} bytes in {} files",
            d.backup_size_bytes, d.files
        ),
        format!(
            "  stored           {} bytes, {}",
            d.compressed_size_bytes,
            printable(&d.compression)
        ),
        format!("  KeyAlgorithm     {}", printable(&d.key_algorithm)),
    ];
    if let Some(expires) = d.expires_unix_s {
        lines.push(format!("  expires          {}", rfc3339(expires)));
    }
    if let Some(header) = &set.header {
        lines.push(format!("  object           {}", hex(&header.object_id)));
        for opener in opener_names(header) {
            lines.push(format!("  opened by        {}", printable(&opener)));
        }
    }
    if let Some(postgres) = &d.postgres {
        lines.push(format!(
            "  system           {}",
            printable(&postgres.system_identifier)
        ));
        lines.push(format!("  server           {}", postgres.server_version));
        lines.push(format!(
            "  log              {} to {}, timeline {}",
            printable(&postgres.start_lsn),
            printable(&postgres.end_lsn),
            postgres.end_timeline
        ));
        if let Some(base) = &postgres.base_set_id {
            lines.push(format!("  builds on        set {}", printable(base)));
        }
        for space in &postgres.tablespaces {
            lines.push(format!(
                "  tablespace       {} {}",
                space.oid,
                printable(&space.location)
            ));
        }
    }
    if let Some(sqlite) = &d.sqlite {
        let sealed = if sqlite.sealed_source { ", sealed" } else { "" };
        lines.push(format!(
            "  database         {} pages of {} bytes{sealed}",
            sqlite.pages, sqlite.page_size_bytes
        ));
    }
    lines.join("\n") + "\n"
}
