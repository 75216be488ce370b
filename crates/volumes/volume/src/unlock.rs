//! Opens every volume and swap area of the table as the system starts: the openers of each in their
//! order, each for a limited time.
//!
//! Invariant V21: [`unlock_all`] ends after the sum of the table's time-outs and of its own work,
//! whatever servers, devices, keyrings and people do: a thread does everything, and is waited for
//! no longer than that.
//!
//! Must not: ask anybody when [`Sources::asks_nobody`]; call another server than those of the
//! node's configuration.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use serde::Serialize;
use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::{Error, Keyring};
use strongroom_keys_client::Node;
use strongroom_luks2::StrongroomToken;

use crate::boot::{Entry, OpenerKind, Swap, Table};
use crate::device::{By, Volume};
use crate::keys::{KeyringKeys, Keys as _, Material, secret_of_token};
use crate::mapped::{self, NameUse};
use crate::notices::{Notices, summary};
use crate::probe::{KernelPaths, find};
use crate::secret::{recovery_key, slot_secret};
use crate::server::ServerKeys;
use crate::swap::{activate, name_taken};
use crate::tpm::{OpenTpm, opening};
use crate::{active, console, outage};

/// Where keys come from, and who is told.
pub struct Sources {
    /// Whether the opener `passphrase` fails at once instead of asking.
    pub asks_nobody: bool,
    /// The node's configuration, unless it is at its usual place.
    pub node: Option<PathBuf>,
    /// The keyring.
    pub keyring: PathBuf,
    /// Opens this machine's TPM.
    pub tpm: OpenTpm,
    /// Is told which opener failed, and why.
    pub notices: Box<dyn Notices + Send>,
}

/// What became of one entry of the table. A stable contract: docs/reference/volume.md.
#[derive(Serialize)]
pub struct Outcome {
    /// The entry's name.
    pub name: String,
    /// Whether it is open now.
    pub unlocked: bool,
    /// The opener that opened it; `already` when it was open before.
    pub by: Option<&'static str>,
    /// Whether the table has it as optional.
    pub optional: bool,
    /// Why it is not open: one text for each opener that was tried.
    pub failures: Vec<String>,
}

impl Outcome {
    /// Returns the outcome of an entry that is not open and that nothing was tried on.
    fn new(name: &str, optional: bool) -> Self {
        Self {
            name: name.to_owned(),
            unlocked: false,
            by: None,
            optional,
            failures: Vec::new(),
        }
    }

    /// Marks the entry as open, opened by this opener.
    fn unlocked(mut self, by: &'static str) -> Self {
        self.unlocked = true;
        self.by = Some(by);
        self
    }

    /// Adds the error to the failures of this outcome.
    fn locked(mut self, error: &Error) -> Self {
        self.failures.push(summary(error));
        self
    }
}

/// Opens all that is in the table. Returns one outcome for each entry, in the table's order; an
/// entry that has none when the table's time is over counts as locked, and its thread is left
/// running. From then on no keyring of this process asks for anything at a terminal.
///
/// # Errors
/// SR-5001 when no thread can be started.
pub fn unlock_all(table: Table, sources: Sources) -> Result<Vec<Outcome>, Error> {
    // A keyring's provider that asked at a terminal would wait without a limit.
    strongroom_keyring::source::ask_nobody();
    let (names, limit) = (table.names(), table.limit());
    let (sender, receiver) = channel();
    let thread = std::thread::Builder::new().name("unlock".to_owned());
    let started = thread.spawn(move || sources.unlock_each(&table, &sender));
    started.map_err(|error| Error::new(&code::IO, error.to_string()))?;
    Ok(collect(&names, &receiver, limit))
}

/// Returns the outcomes that come within `limit`, in the order of `names`; the others count as
/// locked.
fn collect(names: &[(String, bool)], from: &Receiver<Outcome>, limit: Duration) -> Vec<Outcome> {
    let began = Instant::now();
    let mut outcomes = Vec::new();
    for (name, optional) in names {
        let left = limit.saturating_sub(began.elapsed());
        outcomes.push(from.recv_timeout(left).unwrap_or_else(|late| {
            let mut outcome = Outcome::new(name, *optional);
            outcome.failures.push(match late {
                RecvTimeoutError::Timeout => format!("not finished within {} s", limit.as_secs()),
                RecvTimeoutError::Disconnected => "stopped by a fault of the program".to_owned(),
            });
            outcome
        }));
    }
    outcomes
}

impl Sources {
    /// Opens every volume and then every swap area of the table, and sends each outcome. Stops when
    /// nobody receives them any more.
    fn unlock_each(&self, table: &Table, to: &Sender<Outcome>) {
        let volumes = table.volume.iter().map(|entry| self.unlock_volume(entry));
        for outcome in volumes.chain(table.swap.iter().map(open_swap)) {
            if to.send(outcome).is_err() {
                return;
            }
        }
    }

    /// Tries the entry's openers until one opens the volume, and notes each failure. A volume that
    /// is open already counts as opened when it is the volume of this entry.
    fn unlock_volume(&self, entry: &Entry) -> Outcome {
        let mut outcome = Outcome::new(&entry.name, entry.optional);
        match mapped::use_of_volume_name(&KernelPaths::default(), &entry.name, &entry.device) {
            NameUse::Free => {}
            NameUse::Wanted => return outcome.unlocked("already"),
            NameUse::Other => return outcome.locked(&name_taken(&entry.name)),
        }
        let wait = Duration::from_secs(entry.device_timeout_seconds);
        let path = match find(&entry.device, wait) {
            Ok(path) => path,
            Err(error) => return outcome.locked(&error),
        };
        for opener in &entry.openers {
            match self.open_by(entry, &path, *opener) {
                Ok(by) => return outcome.unlocked(by),
                Err(error) => {
                    let detail = format!("{}: {}", opener.name(), summary(&error));
                    self.notices.note(&format!("{} by {detail}", entry.name));
                    outcome.failures.push(detail);
                }
            }
        }
        outcome
    }

    /// Opens the volume on `path` with one opener. Returns the name of what opened it.
    ///
    /// # Errors
    /// What the source of the key or the mapping reports.
    fn open_by(
        &self,
        entry: &Entry,
        path: &Path,
        opener: OpenerKind,
    ) -> Result<&'static str, Error> {
        let time = Duration::from_secs(entry.timeout_seconds);
        let mut by = opener.name();
        if opener == OpenerKind::Passphrase {
            self.open_by_typing(entry, path)?;
            return Ok(by);
        }
        let mut volume = Volume::open(path)?;
        let secret = match opener {
            OpenerKind::KeyServer => {
                let node = Node::path(self.node.as_deref());
                let mut server = ServerKeys::new(&node)?.within(time);
                match entry.cache_hours {
                    Some(hours) => {
                        let tpm = || (self.tpm)(entry.tcti.as_deref(), Some(time));
                        let kept = outage::Keeping {
                            name: &entry.name,
                            hours,
                            tpm: &tpm,
                            notices: self.notices.as_ref(),
                        };
                        let (secret, from) = kept.secret(&mut volume, &mut server)?;
                        by = from;
                        secret
                    }
                    None => secret_of_token(&mut server, &volume.token()?)?,
                }
            }
            OpenerKind::Tpm => {
                let tpm = (self.tpm)(entry.tcti.as_deref(), Some(time))?;
                let secret = opening(&mut volume, &|sealed| tpm.unseal(sealed))?;
                // Its slots are not those of the key's token.
                open_volume(&mut volume, entry, (By::Person, &secret))?;
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

    /// Asks for a passphrase or the recovery key, as often and as long as the entry allows, and
    /// opens the volume with it. A wrong one is a warning.
    ///
    /// # Errors
    /// SR-1004 when nobody is to be asked; SR-2002 when every try was wrong; as [`console::ask`]
    /// and [`active::open`].
    fn open_by_typing(&self, entry: &Entry, path: &Path) -> Result<(), Error> {
        if self.asks_nobody {
            return Err(Error::new(&code::NO_TERMINAL, "--no-prompt"));
        }
        let mut volume = Volume::open(path)?;
        let began = Instant::now();
        let all = Duration::from_secs(entry.prompt_timeout_seconds);
        let prompt = format!("Passphrase or recovery key of {}", entry.name);
        let mut last = Error::new(&code::WRONG_KEY, entry.name.as_str());
        for _ in 0..entry.tries {
            let left = all.saturating_sub(began.elapsed());
            let typed = console::ask(&prompt, left)?;
            let secret = recovery_key(&typed).unwrap_or(typed);
            match open_volume(&mut volume, entry, (By::Person, &secret)) {
                Err(error) if error.code() == &code::WRONG_KEY => {
                    self.notices.warn(error.code(), &entry.name);
                    last = error;
                }
                other => return other,
            }
        }
        Err(last)
    }
}

/// Returns the key that a token names, from the keyring at `path`. Its provider may have to fetch
/// the root key: that is not waited for longer than `time`, and its thread is left running.
///
/// # Errors
/// SR-2001 after `time`; SR-1004 when the root key would have to be typed; SR-5001 when no thread
/// can be started; what the keyring reports.
fn of_keyring(path: &Path, token: &StrongroomToken, time: Duration) -> Result<Material, Error> {
    let (sender, receiver) = channel();
    let (path, name, version) = (path.to_owned(), token.key_id.clone(), token.key_version);
    let thread = std::thread::Builder::new().name("keyring".to_owned());
    let started = thread.spawn(move || {
        let fetched = refuse_typed_root_key(&path)
            .and_then(|()| KeyringKeys::new(&path).fetch(&name, Some(version)));
        // When it came too late, nobody receives it.
        drop(sender.send(fetched));
    });
    started.map_err(|error| Error::new(&code::IO, error.to_string()))?;
    receiver.recv_timeout(time).unwrap_or_else(|_| {
        let detail = format!("the keyring did not deliver it within {} s", time.as_secs());
        Err(Error::new(&code::NO_KEY, detail))
    })
}

/// Refuses a keyring whose root key is typed, SR-1004: the table has an opener for passphrases.
fn refuse_typed_root_key(path: &Path) -> Result<(), Error> {
    let status = Keyring::status(path)?;
    if status.provider == "passphrase" {
        let detail =
            "the keyring's root key is a passphrase: at boot use `passphrase` as the opener";
        return Err(Error::new(&code::NO_TERMINAL, detail));
    }
    Ok(())
}

/// Maps the volume under the entry's name, as [`active::open`].
fn open_volume(volume: &mut Volume, entry: &Entry, by: (By, &SecretBytes)) -> Result<(), Error> {
    active::open(volume, &entry.name, by, entry.read_only)?;
    Ok(())
}

/// Waits for the entry's device, maps it under a random key and has the kernel swap to it; does
/// nothing when that is done already.
fn open_swap(entry: &Swap) -> Outcome {
    let outcome = Outcome::new(&entry.name, false);
    let places = KernelPaths::default();
    let is_on = mapped::is_swap_on(&places, &entry.name);
    if is_on && mapped::use_of_swap_name(&places, &entry.name, &entry.device) == NameUse::Wanted {
        return outcome.unlocked("already");
    }
    let wait = Duration::from_secs(entry.device_timeout_seconds);
    let done = find(&entry.device.to_string_lossy(), wait)
        .and_then(|path| activate(&path, &entry.name, true));
    match done {
        Ok(()) => outcome.unlocked("a random key"),
        Err(error) => outcome.locked(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Told, made, no_tpm};

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

    /// No opener of this entry has a key: each is tried once, and says why.
    #[test]
    fn each_opener_is_tried_in_its_order_and_says_why_it_failed() {
        let room = tempfile::tempdir().unwrap();
        let image = room.path().join("v");
        made(&image, None);
        let table = format!(
            "[[volume]]\nname = \"strongroom-test-unlock\"\ndevice = \"{}\"\nopeners = [\"passphrase\", \"tpm\", \"keyring\", \"keyserver\"]\ntimeout_seconds = 5\n",
            image.display()
        );
        let path = room.path().join("table");
        strongroom_keyring::durable::replace(&path, table.as_bytes(), 0o600).unwrap();
        let told = Told::default();
        let sources = Sources {
            asks_nobody: true,
            node: Some(room.path().join("node.toml")),
            keyring: room.path().join("keyring"),
            tpm: no_tpm,
            notices: Box::new(told.clone()),
        };
        let outcomes = unlock_all(Table::load(&path).unwrap(), sources).unwrap();
        let outcome = &outcomes[0];
        assert_eq!((outcome.unlocked, outcome.by), (false, None));
        let begins = [
            "passphrase: SR-1004",
            "tpm: SR-2101",
            "keyring: SR-2004",
            "keyserver: SR-",
        ];
        assert_eq!(outcome.failures.len(), begins.len());
        for (failure, begin) in outcome.failures.iter().zip(begins) {
            assert!(failure.starts_with(begin), "{failure}");
        }
        assert_eq!(told.notes().len(), begins.len());
    }
}
