//! `strongroom volume unlock --at-boot`: every volume of the table, each opener in its order, each wait with its end.
//!
//! Invariant: the command ends after the sum of the table's time-outs, whatever servers, devices and people do.
//! Must not: ask when nobody is to be asked; go on to another server than those of the node's configuration.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_volume::boot::{Entry, OpenerKind, Swap, TABLE, Table, find};
use strongroom_volume::secret::recovery_key;
use strongroom_volume::{Volume, active};

use super::material::{ProviderOptions, Who};
use super::secret::of_token;
use super::tpm::TpmPlace;
use super::{console, swap};
use crate::Context;
use crate::failure::{Failure, note, warn};
use crate::help::tail;

/// Unlock the volumes of a table, in bounded time.
#[derive(Args)]
#[command(after_help = tail!("  strongroom volume unlock --at-boot"))]
pub(super) struct UnlockArgs {
    /// As the system starts: openers are tried in the table's order, and passphrases are asked for
    #[arg(long, required_unless_present = "no_prompt")]
    at_boot: bool,
    /// Ask nobody
    #[arg(long)]
    no_prompt: bool,
    /// The table
    #[arg(long, value_name = "FILE", default_value = TABLE)]
    table: PathBuf,
    /// Only this volume or swap area of it
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    provider: ProviderOptions,
    /// Write one JSON object to standard output
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Serialize)]
struct Summary {
    entries: Vec<Outcome>,
}

#[derive(Serialize)]
struct Outcome {
    name: String,
    unlocked: bool,
    /// What opened it; `already` when it was open.
    by: Option<&'static str>,
    optional: bool,
    /// Why not, one for each opener that was tried.
    failures: Vec<String>,
}

impl UnlockArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let table = Table::load(&self.table)?;
        let wanted = |name: &str| self.name.as_deref().is_none_or(|only| only == name);
        let mut entries = Vec::new();
        for entry in table.volume.iter().filter(|entry| wanted(&entry.name)) {
            entries.push(self.volume(context, entry));
        }
        for entry in table.swap.iter().filter(|entry| wanted(&entry.name)) {
            entries.push(swapped(entry));
        }
        if let (Some(name), true) = (&self.name, entries.is_empty()) {
            return Err(Failure::new(
                &code::VOLUME_TABLE,
                format!("{name} is not in it"),
            ));
        }
        let locked: Vec<String> = entries
            .iter()
            .filter(|outcome| !outcome.unlocked && !outcome.optional)
            .map(|outcome| format!("{}: {}", outcome.name, outcome.failures.join("; ")))
            .collect();
        self.tell(context, Summary { entries })?;
        if locked.is_empty() {
            return Ok(());
        }
        let failure = Failure::new(&code::VOLUME_LOCKED, locked.join(" | "));
        Err(if self.json {
            failure.told_in_json()
        } else {
            failure
        })
    }

    fn tell(&self, context: &mut Context, summary: Summary) -> Result<(), Failure> {
        if self.json {
            return context.output.json(&summary);
        }
        for outcome in &summary.entries {
            let state = match outcome.by {
                Some(by) => format!("unlocked by {by}"),
                None => "locked".to_owned(),
            };
            context.output.line(&format!("{}: {state}", outcome.name))?;
        }
        Ok(())
    }

    fn volume(&self, context: &Context, entry: &Entry) -> Outcome {
        let mut outcome = Outcome {
            name: entry.name.clone(),
            unlocked: false,
            by: None,
            optional: entry.optional,
            failures: Vec::new(),
        };
        if active::mapping(&entry.name).is_some() {
            outcome.unlocked = true;
            outcome.by = Some("already");
            return outcome;
        }
        let wait = Duration::from_secs(entry.device_timeout_seconds);
        let path = match find(&entry.device, wait) {
            Ok(path) => path,
            Err(error) => {
                outcome.failures.push(error.to_string());
                return outcome;
            }
        };
        for opener in &entry.openers {
            match self.opened_by(context, entry, &path, *opener) {
                Ok(()) => {
                    outcome.unlocked = true;
                    outcome.by = Some(opener.name());
                    break;
                }
                Err(failure) => {
                    let detail =
                        format!("{} by {}: {}", entry.name, opener.name(), failure.shown());
                    note(&detail);
                    outcome
                        .failures
                        .push(format!("{}: {}", opener.name(), failure.shown()));
                }
            }
        }
        outcome
    }

    fn opened_by(
        &self,
        context: &Context,
        entry: &Entry,
        path: &Path,
        opener: OpenerKind,
    ) -> Result<(), Failure> {
        let who = match opener {
            OpenerKind::KeyServer => Who::Keyserver,
            OpenerKind::Keyring => Who::Keyring,
            OpenerKind::Tpm => return by_tpm(entry, path),
            OpenerKind::Passphrase => return self.typed(entry, path),
        };
        let options = ProviderOptions {
            provider: Some(who),
            node: self.provider.node.clone(),
        };
        if who == Who::Keyring {
            Self::check_keyring(context)?;
        }
        let time = Duration::from_secs(entry.timeout_seconds);
        let mut keys = options.keys_within(context, None, Some(time))?;
        let mut volume = Volume::open(path)?;
        let secret = of_token(&mut volume, keys.as_mut())?;
        opened(&mut volume, entry, &secret)
    }

    /// A keyring whose own root key somebody types would wait without a limit.
    fn check_keyring(context: &Context) -> Result<(), Failure> {
        let status = strongroom_keyring::Keyring::status(&crate::keyring::path(context))?;
        if status.provider == "passphrase" {
            let detail = "the keyring's root key is a passphrase: at the start use `passphrase` as the opener";
            return Err(Failure::new(&code::NO_TERMINAL, detail));
        }
        Ok(())
    }

    /// A person types: a passphrase, or the recovery key.
    fn typed(&self, entry: &Entry, path: &Path) -> Result<(), Failure> {
        if self.no_prompt {
            return Err(Failure::new(&code::NO_TERMINAL, "--no-prompt"));
        }
        let mut volume = Volume::open(path)?;
        let began = std::time::Instant::now();
        let all = Duration::from_secs(entry.prompt_timeout_seconds);
        let prompt = format!("Passphrase or recovery key of {}", entry.name);
        let mut last = Failure::new(&code::WRONG_KEY, entry.name.as_str());
        for _ in 0..entry.tries {
            let left = all.saturating_sub(began.elapsed());
            let typed = console::ask(&prompt, left)?;
            let secret = recovery_key(&typed).unwrap_or(typed);
            match opened(&mut volume, entry, &secret) {
                Err(failure) if failure.code() == &code::WRONG_KEY => {
                    warn(failure.code(), &entry.name);
                    last = failure;
                }
                other => return other,
            }
        }
        Err(last)
    }
}

fn by_tpm(entry: &Entry, path: &Path) -> Result<(), Failure> {
    let place = TpmPlace {
        tcti: entry.tcti.clone(),
    };
    let time = Duration::from_secs(entry.timeout_seconds);
    let mut volume = Volume::open(path)?;
    let secret = place.secret(&mut volume, Some(time))?;
    opened(&mut volume, entry, &secret)
}

fn opened(volume: &mut Volume, entry: &Entry, secret: &SecretBytes) -> Result<(), Failure> {
    active::open(volume, &entry.name, secret, entry.read_only)?;
    Ok(())
}

fn swapped(entry: &Swap) -> Outcome {
    let mut outcome = Outcome {
        name: entry.name.clone(),
        unlocked: false,
        by: None,
        optional: false,
        failures: Vec::new(),
    };
    if active::mapping(&entry.name).is_some() {
        outcome.unlocked = true;
        outcome.by = Some("already");
        return outcome;
    }
    let wait = Duration::from_secs(entry.device_timeout_seconds);
    let done = find(&entry.device.to_string_lossy(), wait)
        .map_err(Failure::from)
        .and_then(|path| swap::on(&path, &entry.name, true));
    match done {
        Ok(()) => {
            outcome.unlocked = true;
            outcome.by = Some("a random key");
        }
        Err(failure) => outcome.failures.push(failure.shown()),
    }
    outcome
}
