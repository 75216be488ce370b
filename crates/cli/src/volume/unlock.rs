//! `strongroom volume unlock --at-boot`: opens every volume of the table, trying its openers in
//! their order, each for a limited time.
//!
//! Invariant V21: the command ends after the sum of the table's time-outs and of its own work,
//! whatever servers, devices, keyrings and people do: a thread does everything, and the command
//! waits for it no longer than that.
//!
//! Must not: ask with --no-prompt; call another server than those of the node's configuration.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_volume::boot::{Entry, OpenerKind, Swap, TABLE, Table};
use strongroom_volume::device::By;
use strongroom_volume::keys::{Keys as _, Material, OfKeyring};
use strongroom_volume::mapped::{self, Taken};
use strongroom_volume::probe::{Places, find};
use strongroom_volume::secret::{recovery_key, slot_secret};
use strongroom_volume::token::Token;
use strongroom_volume::{Volume, active};

use super::material::ProviderOptions;
use super::secret::of_token;
use super::swap::name_taken;
use super::tpm::TpmAddress;
use super::{cache, console, swap};
use crate::context::Context;
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
        let mut table = Table::load(&self.table)?;
        if let Some(name) = &self.name {
            table.only(name);
        }
        let names = table.names();
        if let (Some(name), true) = (&self.name, names.is_empty()) {
            return Err(Failure::new(
                &code::VOLUME_TABLE,
                format!("{name} is not in it"),
            ));
        }
        // A keyring's provider that would ask at a terminal would wait without a limit.
        strongroom_keyring::source::ask_nobody();
        let limit = table.limit();
        let work = Work {
            no_prompt: self.no_prompt,
            provider: self.provider.clone(),
            keyring: context.keyring_path(),
        };
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("unlock".to_owned());
        let started = thread.spawn(move || work.unlock_all(&table, &sender));
        started.map_err(|error| Failure::new(&code::IO, error.to_string()))?;
        let entries = collect(&names, &receiver, limit);
        let locked: Vec<String> = entries
            .iter()
            .filter(|outcome| !outcome.unlocked && !outcome.optional)
            .map(|outcome| format!("{}: {}", outcome.name, outcome.failures.join("; ")))
            .collect();
        self.print(context, Summary { entries })?;
        if locked.is_empty() {
            return Ok(());
        }
        let failure = Failure::new(&code::VOLUME_LOCKED, locked.join(" | "));
        Err(if self.json {
            failure.reported_in_json()
        } else {
            failure
        })
    }

    fn print(&self, context: &mut Context, summary: Summary) -> Result<(), Failure> {
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
}

/// What comes within `limit`, in the table's order; for the rest, that it did not come.
fn collect(names: &[(String, bool)], from: &Receiver<Outcome>, limit: Duration) -> Vec<Outcome> {
    let began = Instant::now();
    let mut entries = Vec::new();
    for (name, optional) in names {
        let left = limit.saturating_sub(began.elapsed());
        entries.push(from.recv_timeout(left).unwrap_or_else(|late| {
            let mut outcome = Outcome::new(name, *optional);
            outcome.failures.push(match late {
                RecvTimeoutError::Timeout => format!("not finished within {} s", limit.as_secs()),
                RecvTimeoutError::Disconnected => "stopped by a fault of the program".to_owned(),
            });
            outcome
        }));
    }
    entries
}

impl Outcome {
    fn new(name: &str, optional: bool) -> Self {
        Self {
            name: name.to_owned(),
            unlocked: false,
            by: None,
            optional,
            failures: Vec::new(),
        }
    }

    fn unlocked(mut self, by: &'static str) -> Self {
        self.unlocked = true;
        self.by = Some(by);
        self
    }

    fn locked(mut self, failure: &Failure) -> Self {
        self.failures.push(failure.summary());
        self
    }
}

/// What the thread needs.
struct Work {
    no_prompt: bool,
    provider: ProviderOptions,
    keyring: PathBuf,
}

impl Work {
    fn unlock_all(&self, table: &Table, to: &Sender<Outcome>) {
        let volumes = table.volume.iter().map(|entry| self.unlock_volume(entry));
        for outcome in volumes.chain(table.swap.iter().map(open_swap)) {
            if to.send(outcome).is_err() {
                return;
            }
        }
    }

    fn unlock_volume(&self, entry: &Entry) -> Outcome {
        let mut outcome = Outcome::new(&entry.name, entry.optional);
        match mapped::volume(&Places::default(), &entry.name, &entry.device) {
            Taken::No => {}
            Taken::Wanted => return outcome.unlocked("already"),
            Taken::Other => return outcome.locked(&name_taken(&entry.name)),
        }
        let wait = Duration::from_secs(entry.device_timeout_seconds);
        let path = match find(&entry.device, wait) {
            Ok(path) => path,
            Err(error) => return outcome.locked(&error.into()),
        };
        for opener in &entry.openers {
            match self.open_by(entry, &path, *opener) {
                Ok(by) => return outcome.unlocked(by),
                Err(failure) => {
                    let detail = format!("{}: {}", opener.name(), failure.summary());
                    note(&format!("{} by {detail}", entry.name));
                    outcome.failures.push(detail);
                }
            }
        }
        outcome
    }

    /// What opened it.
    fn open_by(
        &self,
        entry: &Entry,
        path: &Path,
        opener: OpenerKind,
    ) -> Result<&'static str, Failure> {
        let time = Duration::from_secs(entry.timeout_seconds);
        if opener == OpenerKind::Passphrase {
            self.open_by_typing(entry, path)?;
            return Ok(opener.name());
        }
        let mut volume = Volume::open(path)?;
        let mut by = opener.name();
        let secret = match opener {
            OpenerKind::KeyServer => {
                let mut server = self.provider.server()?.within(time);
                match entry.cache_hours {
                    Some(hours) => {
                        let (secret, whose) =
                            cache::of_server(&mut volume, &mut server, entry, hours)?;
                        by = whose;
                        secret
                    }
                    None => of_token(&mut volume, &mut server)?,
                }
            }
            OpenerKind::Tpm => {
                open_by_tpm(&mut volume, entry, time)?;
                return Ok(by);
            }
            OpenerKind::Keyring | OpenerKind::Passphrase => {
                let token = volume.token()?;
                let material = of_keyring(&self.keyring, &token, time)?;
                slot_secret(&material.key, &token.object_id)?
            }
        };
        open_volume(&mut volume, entry, (By::Token, &secret))?;
        Ok(by)
    }

    /// A person types: a passphrase, or the recovery key.
    fn open_by_typing(&self, entry: &Entry, path: &Path) -> Result<(), Failure> {
        if self.no_prompt {
            return Err(Failure::new(&code::NO_TERMINAL, "--no-prompt"));
        }
        let mut volume = Volume::open(path)?;
        let began = Instant::now();
        let all = Duration::from_secs(entry.prompt_timeout_seconds);
        let prompt = format!("Passphrase or recovery key of {}", entry.name);
        let mut last = Failure::new(&code::WRONG_KEY, entry.name.as_str());
        for _ in 0..entry.tries {
            let left = all.saturating_sub(began.elapsed());
            let typed = console::ask(&prompt, left)?;
            let secret = recovery_key(&typed).unwrap_or(typed);
            match open_volume(&mut volume, entry, (By::Person, &secret)) {
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

fn open_by_tpm(volume: &mut Volume, entry: &Entry, time: Duration) -> Result<(), Failure> {
    let place = TpmAddress {
        tcti: entry.tcti.clone(),
    };
    let secret = place.secret(volume, Some(time))?;
    // Its slots are not those of the key's token.
    open_volume(volume, entry, (By::Person, &secret))
}

/// The key that a token names, from the keyring, whose root key a provider may have to fetch: not
/// waited for longer than `time`.
fn of_keyring(path: &Path, token: &Token, time: Duration) -> Result<Material, Failure> {
    let (sender, receiver) = channel();
    let (path, name, version) = (path.to_owned(), token.key_id.clone(), token.key_version);
    let thread = std::thread::Builder::new().name("keyring".to_owned());
    let started = thread.spawn(move || {
        let fetched = check_keyring(&path)
            .and_then(|()| Ok(OfKeyring::new(&path).fetch(&name, Some(version))?));
        // Nobody waits any more: it came too late.
        drop(sender.send(fetched));
    });
    started.map_err(|error| Failure::new(&code::IO, error.to_string()))?;
    receiver.recv_timeout(time).unwrap_or_else(|_| {
        let detail = format!("the keyring did not deliver it within {} s", time.as_secs());
        Err(Failure::new(&code::NO_KEY, detail))
    })
}

/// Refuses a keyring whose root key is typed: the table has an opener for passphrases.
fn check_keyring(path: &Path) -> Result<(), Failure> {
    let status = strongroom_keyring::Keyring::status(path)?;
    if status.provider == "passphrase" {
        let detail =
            "the keyring's root key is a passphrase: at boot use `passphrase` as the opener";
        return Err(Failure::new(&code::NO_TERMINAL, detail));
    }
    Ok(())
}

fn open_volume(volume: &mut Volume, entry: &Entry, by: (By, &SecretBytes)) -> Result<(), Failure> {
    active::open(volume, &entry.name, by, entry.read_only)?;
    Ok(())
}

fn open_swap(entry: &Swap) -> Outcome {
    let outcome = Outcome::new(&entry.name, false);
    let places = Places::default();
    let is_on = mapped::swaps_to(&places, &entry.name);
    if is_on && mapped::swap(&places, &entry.name, &entry.device) == Taken::Wanted {
        return outcome.unlocked("already");
    }
    let wait = Duration::from_secs(entry.device_timeout_seconds);
    let done = find(&entry.device.to_string_lossy(), wait)
        .map_err(Failure::from)
        .and_then(|path| swap::activate(&path, &entry.name, true));
    match done {
        Ok(()) => outcome.unlocked("a random key"),
        Err(failure) => outcome.locked(&failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<(String, bool)> {
        vec![("data".to_owned(), false), ("logs".to_owned(), true)]
    }

    #[test]
    fn what_does_not_finish_is_not_waited_for() {
        let (sender, receiver) = channel();
        sender
            .send(Outcome::new("data", false).unlocked("keyserver"))
            .unwrap();
        let began = Instant::now();
        let entries = collect(&names(), &receiver, Duration::from_millis(50));
        assert!(began.elapsed() < Duration::from_secs(5));
        assert!(entries[0].unlocked && !entries[1].unlocked);
        assert_eq!(
            (entries[1].name.as_str(), entries[1].optional),
            ("logs", true)
        );
        assert_eq!(entries[1].failures, ["not finished within 0 s"]);
        drop(sender);
        let entries = collect(&names(), &receiver, Duration::from_secs(60));
        assert_eq!(entries[0].failures, ["stopped by a fault of the program"]);
    }
}
