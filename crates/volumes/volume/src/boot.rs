//! The table of volumes that are unlocked when the system starts.
//!
//! Form of the table: `docs/reference/volume.md`. Every wait in it has a limit; none can be
//! switched off.
//!
//! Must not: ask anybody; take a key server's address from a disk.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use strongroom_format::code;
use strongroom_keyring::{Error, text_of};

use crate::active::check_name;

/// Where the table is, unless another is named.
pub const TABLE: &str = "/etc/strongroom/volumes.toml";
/// Longest table.
const TABLE_MAX: u64 = 1 << 20;
/// Most volumes and swap areas in it.
const ENTRIES_MAX: usize = 256;
/// Longest of its waits, in seconds.
const WAIT_MAX_S: u64 = 3600;
/// Time for the work of one opener or one device besides waiting, in seconds: key derivation within
/// the limits for trying a slot, and the kernel's work.
const WORK_S: u64 = 120;
/// Longest that a passphrase is kept, in hours.
const CACHE_MAX_H: u64 = 168;

/// The table.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Volumes, in the order in which they are unlocked.
    #[serde(default)]
    pub volume: Vec<Entry>,
    /// Swap areas.
    #[serde(default)]
    pub swap: Vec<Swap>,
}

/// One volume.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The mapping's name.
    pub name: String,
    /// The volume: `UUID=...` or `LABEL=...` of its LUKS2 header, or a path.
    pub device: String,
    /// The openers, in the order in which they are tried.
    pub openers: Vec<OpenerKind>,
    /// How long to wait for the device, in seconds.
    #[serde(default = "device_wait")]
    pub device_timeout_seconds: u64,
    /// How long each opener but `passphrase` is tried, in seconds.
    #[serde(default = "opener_wait")]
    pub timeout_seconds: u64,
    /// How long to wait in all for somebody to type a passphrase, in seconds.
    #[serde(default = "prompt_wait")]
    pub prompt_timeout_seconds: u64,
    /// How many passphrases may be typed.
    #[serde(default = "tries")]
    pub tries: u32,
    /// Whether the mapping refuses writes.
    #[serde(default)]
    pub read_only: bool,
    /// For how many hours the passphrase that the key server's key made is kept, sealed to the TPM,
    /// for a start while no server answers. Not at all when the table does not say.
    #[serde(default)]
    pub cache_hours: Option<u64>,
    /// The TPM's address, unless it is the usual one.
    #[serde(default)]
    pub tcti: Option<String>,
    /// Whether the start of the system counts as successful without this volume.
    #[serde(default)]
    pub optional: bool,
}

/// One swap area.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Swap {
    /// The mapping's name.
    pub name: String,
    /// The device, as a path: swap has no header with a UUID or label. A path below
    /// /dev/disk/by-partuuid stays the same when disks are added.
    pub device: PathBuf,
    /// How long to wait for the device, in seconds.
    #[serde(default = "device_wait")]
    pub device_timeout_seconds: u64,
}

/// What a volume is opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OpenerKind {
    /// The key that the volume's token names, from the key server of the node's configuration.
    KeyServer,
    /// The key that the volume's token names, from the keyring.
    Keyring,
    /// A key that this machine's TPM has sealed.
    Tpm,
    /// A passphrase or the recovery key that somebody types.
    Passphrase,
}

impl OpenerKind {
    /// Returns its name in the table: `keyserver`, `keyring`, `tpm` or `passphrase`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::KeyServer => "keyserver",
            Self::Keyring => "keyring",
            Self::Tpm => "tpm",
            Self::Passphrase => "passphrase",
        }
    }
}

/// Returns the default of `device_timeout_seconds`: 30.
fn device_wait() -> u64 {
    30
}

/// Returns the default of `timeout_seconds`: 60.
fn opener_wait() -> u64 {
    60
}

/// Returns the default of `prompt_timeout_seconds`: 300.
fn prompt_wait() -> u64 {
    300
}

/// Returns the default of `tries`: 3.
fn tries() -> u32 {
    3
}

impl Table {
    /// Reads and checks the table at `path`.
    ///
    /// # Errors
    /// SR-1006 when there is none; SR-8335 when it is not valid; SR-5001 when the system reports an
    /// error.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(|error| Error::opening(path, error))?;
        let bad = |what: &str| {
            let detail = format!("{}: {what}", path.display());
            Error::new(&code::VOLUME_TABLE, detail)
        };
        // Never a part of it: volumes must not go missing.
        let text = text_of(file, TABLE_MAX).map_err(|error| match error.kind() {
            ErrorKind::FileTooLarge => bad("longer than 1 MiB"),
            ErrorKind::InvalidData => bad("not UTF-8"),
            _ => Error::on_path(path, error),
        })?;
        Self::read(&text).map_err(|error| bad(error.detail()))
    }

    /// Removes all volumes and swap areas but the one of this name.
    pub fn only(&mut self, name: &str) {
        self.volume.retain(|entry| entry.name == name);
        self.swap.retain(|entry| entry.name == name);
    }

    /// Returns the names in the order in which they are opened, volumes first, and whether each is
    /// optional.
    #[must_use]
    pub fn names(&self) -> Vec<(String, bool)> {
        let volumes = self.volume.iter();
        let volumes = volumes.map(|entry| (entry.name.clone(), entry.optional));
        let swap = self.swap.iter().map(|entry| (entry.name.clone(), false));
        volumes.chain(swap).collect()
    }

    /// Returns the longest time that unlocking all entries can take: the sum of all time-outs, and
    /// of the work between them.
    #[must_use]
    pub fn limit(&self) -> Duration {
        let volumes = self.volume.iter().map(|entry| {
            let openers = entry.openers.iter().map(|opener| match opener {
                OpenerKind::Passphrase => entry.prompt_timeout_seconds + WORK_S,
                // The time of the servers, then the same for the TPM.
                OpenerKind::KeyServer if entry.cache_hours.is_some() => {
                    2 * (entry.timeout_seconds + WORK_S)
                }
                OpenerKind::KeyServer | OpenerKind::Keyring | OpenerKind::Tpm => {
                    entry.timeout_seconds + WORK_S
                }
            });
            entry.device_timeout_seconds + WORK_S + openers.sum::<u64>()
        });
        let swap = self.swap.iter();
        let swap = swap.map(|swap| swap.device_timeout_seconds + WORK_S);
        Duration::from_secs(volumes.chain(swap).sum())
    }

    /// Reads and checks a table. SR-8335 with the first entry that breaks a rule.
    fn read(text: &str) -> Result<Self, Error> {
        let bad = |what: String| Error::new(&code::VOLUME_TABLE, what);
        let table: Self = toml::from_str(text).map_err(|error| bad(error.to_string()))?;
        if table.volume.len() + table.swap.len() > ENTRIES_MAX {
            return Err(bad(format!("more than {ENTRIES_MAX} entries")));
        }
        let volumes = table.volume.iter().map(|entry| entry.name.as_str());
        let names: Vec<&str> = volumes
            .chain(table.swap.iter().map(|swap| swap.name.as_str()))
            .collect();
        for (index, name) in names.iter().enumerate() {
            check_name(name).map_err(|_| bad(format!("name {name:?}")))?;
            if names.iter().take(index).any(|before| before == name) {
                return Err(bad(format!("name {name:?} stands twice")));
            }
        }
        for entry in &table.volume {
            let waits = [
                entry.device_timeout_seconds,
                entry.timeout_seconds,
                entry.prompt_timeout_seconds,
            ];
            check_waits(&waits).map_err(|what| bad(format!("{}: {what}", entry.name)))?;
            if entry.openers.is_empty() || !(1..=100).contains(&entry.tries) {
                return Err(bad(format!("{}: openers or tries", entry.name)));
            }
            if let Some(hours) = entry.cache_hours {
                let of_server = entry.openers.contains(&OpenerKind::KeyServer);
                if !of_server || !(1..=CACHE_MAX_H).contains(&hours) {
                    let what = format!(
                        "{}: cache_hours is 1 to {CACHE_MAX_H}, for the opener keyserver",
                        entry.name
                    );
                    return Err(bad(what));
                }
            }
        }
        for swap in &table.swap {
            check_waits(&[swap.device_timeout_seconds])
                .map_err(|what| bad(format!("{}: {what}", swap.name)))?;
        }
        Ok(table)
    }
}

/// Checks that each time-out is from 1 to 3600 seconds, and returns an error text when one is not.
fn check_waits(waits: &[u64]) -> Result<(), String> {
    if waits.iter().all(|wait| (1..=WAIT_MAX_S).contains(wait)) {
        return Ok(());
    }
    Err(format!(
        "a time-out is 1 to {WAIT_MAX_S} seconds: a wait without a limit is not offered"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
[[volume]]
name = "data"
device = "UUID=9d1a0c1e-0000-4000-8000-000000000000"
openers = ["keyserver", "passphrase"]
timeout_seconds = 20

[[swap]]
name = "swap"
device = "/dev/disk/by-partuuid/1"
"#;

    #[test]
    fn the_table_as_the_reference_shows_it() {
        let table = Table::read(GOOD).unwrap();
        let volume = &table.volume[0];
        assert_eq!(
            volume.openers,
            [OpenerKind::KeyServer, OpenerKind::Passphrase]
        );
        assert_eq!(
            (
                volume.timeout_seconds,
                volume.prompt_timeout_seconds,
                volume.tries
            ),
            (20, 300, 3)
        );
        assert_eq!(table.swap[0].name, "swap");
        assert!(Table::read("").unwrap().volume.is_empty());
    }

    #[test]
    fn what_is_not_valid_is_refused_and_no_wait_is_without_limit() {
        let changes = [
            ("timeout_seconds = 20", "timeout_seconds = 0"),
            ("timeout_seconds = 20", "timeout_seconds = 3601"),
            ("timeout_seconds = 20", "timeout = 20"),
            ("timeout_seconds = 20", "tries = 0"),
            ("\"keyserver\", \"passphrase\"", ""),
            ("\"keyserver\"", "\"https://evil\""),
            ("name = \"data\"", "name = \"../x\""),
            ("name = \"data\"", "name = \"swap\""),
            ("timeout_seconds = 20", "cache_hours = 0"),
            ("timeout_seconds = 20", "cache_hours = 169"),
            (
                "\"keyserver\", \"passphrase\"]",
                "\"tpm\"]\ncache_hours = 1",
            ),
        ];
        for (from, to) in changes {
            let error = Table::read(&GOOD.replacen(from, to, 1)).unwrap_err();
            assert_eq!(error.code(), &code::VOLUME_TABLE, "{to}");
        }
    }

    #[test]
    fn a_table_is_read_whole_or_not_at_all() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("table");
        let put = |text: &[u8]| {
            strongroom_keyring::durable::replace(&path, text, 0o600).unwrap();
            Table::load(&path)
        };
        let mut text = GOOD.as_bytes().to_vec();
        text.resize(usize::try_from(TABLE_MAX).unwrap(), b'\n');
        assert_eq!(put(&text).unwrap().names().len(), 2);
        // What is cut off would be a comment or another volume: both are refused.
        let another = GOOD.replace("\"data\"", "\"more\"");
        for more in ["#", another.as_str()] {
            let longer = [text.as_slice(), more.as_bytes()].concat();
            let error = put(&longer).unwrap_err();
            assert_eq!(error.code(), &code::VOLUME_TABLE);
            assert!(error.detail().contains("longer than 1 MiB"), "{error}");
        }
        let error = put(b"# \xff").unwrap_err();
        assert_eq!(error.code(), &code::VOLUME_TABLE);
    }

    #[test]
    fn the_limit_is_the_sum_of_all_that_is_waited_for() {
        let mut table = Table::read(GOOD).unwrap();
        let volume = (30 + WORK_S) + (20 + WORK_S) + (300 + WORK_S);
        assert_eq!(table.limit().as_secs(), volume + 30 + WORK_S);
        let kept = Table::read(&GOOD.replacen("timeout", "cache_hours = 168\ntimeout", 1)).unwrap();
        assert_eq!(
            kept.limit() - table.limit(),
            Duration::from_secs(20 + WORK_S)
        );
        table.only("swap");
        assert_eq!(table.limit().as_secs(), 30 + WORK_S);
        assert_eq!(table.names(), [("swap".to_owned(), false)]);
        // Three volumes whose servers are down and where nobody types are all tried: longer than
        // fifteen minutes.
        let many = ["a", "b", "c"].map(|name| {
            GOOD.replace("\"data\"", &format!("\"{name}\""))
                .replace("\"swap\"", &format!("\"swap-{name}\""))
        });
        let table = Table::read(&many.concat()).unwrap();
        assert!(table.limit().as_secs() > 900);
        assert_eq!(Table::read("").unwrap().limit().as_secs(), 0);
    }
}
