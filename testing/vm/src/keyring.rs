//! A keyring on the host with a volume that one of its keys opens, and a guest that has both
//! keyring and recovery key.
//!
//! Must not: be taken for how a platform does it; that is the key server's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::guest::Guest;
use crate::place;

const ROOT: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// Where the guest has its keyring.
pub const KEYRING_IN_GUEST: &str = "/root/.local/share/strongroom/keyring";
/// Where the guest has the recovery key.
pub const RECOVERY_IN_GUEST: &str = "/root/recovery";

/// A directory with a keyring, and a volume `data.img`.
#[derive(Debug)]
pub struct WithVolume {
    room: PathBuf,
}

impl WithVolume {
    /// Makes both in this directory.
    ///
    /// # Panics
    /// When the command fails.
    #[must_use]
    pub fn new(room: &Path, size: &str) -> Self {
        let recovery = room.join("recovery").display().to_string();
        Self::made(room, size, &["--recovery-out", &recovery])
    }

    /// The same without a recovery key, whose Argon2 takes emulated hardware half a minute each
    /// time.
    ///
    /// # Panics
    /// When the command fails.
    #[must_use]
    pub fn without_recovery(room: &Path, size: &str) -> Self {
        Self::made(room, size, &["--no-recovery"])
    }

    #[expect(clippy::disallowed_methods, reason = "a test's file")]
    fn made(room: &Path, size: &str, recovery: &[&str]) -> Self {
        let made = Self {
            room: room.to_owned(),
        };
        fs::write(made.at("root"), ROOT).expect("a file");
        let provider = format!("file:{}", made.at("root").display());
        made.strongroom(&["keyring", "init", "--provider", &provider]);
        let data = made.at("data.img").display().to_string();
        let what = ["volume", "create", &data, "--size", size];
        let key = ["--key-id", "db-7", "--label", "db-7"];
        made.strongroom(&[what.as_slice(), &key, recovery].concat());
        made
    }

    /// A file of it.
    #[must_use]
    pub fn at(&self, name: &str) -> PathBuf {
        self.room.join(name)
    }

    /// Gives the guest the command, keyring, root key, and the recovery key if there is one.
    ///
    /// # Panics
    /// When they are not there.
    #[must_use]
    pub fn guest(&self) -> Guest {
        let mut guest = Guest::new().with_strongroom();
        // The keyring names its root key by a path of this host; the guest has it at the same
        // place.
        guest.private(&self.at("root").display().to_string(), ROOT.as_bytes());
        guest.private(
            KEYRING_IN_GUEST,
            &fs::read(self.at("keyring")).expect("the keyring"),
        );
        if let Ok(recovery) = fs::read(self.at("recovery")) {
            guest.private(RECOVERY_IN_GUEST, &recovery);
        }
        guest
    }

    /// Runs the command on the host, with the keyring; returns what it said.
    ///
    /// # Panics
    /// When it fails.
    #[must_use]
    pub fn asked(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(place::command());
        command
            .args(arguments)
            .env_clear()
            .env("STRONGROOM_KEYRING", self.at("keyring"))
            .env("HOME", &self.room);
        let output = command.output().expect("the command can be started");
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(output.status.success(), "{arguments:?}: {text}");
        text
    }

    fn strongroom(&self, arguments: &[&str]) {
        drop(self.asked(arguments));
    }
}
