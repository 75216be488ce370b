//! A keyring on the host with a volume that one of its keys opens, and a guest that has both keyring and recovery key.
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
    #[expect(clippy::disallowed_methods, reason = "a test's file")]
    pub fn new(room: &Path, size: &str) -> Self {
        let made = Self {
            room: room.to_owned(),
        };
        fs::write(made.at("root"), ROOT).expect("a file");
        let provider = format!("file:{}", made.at("root").display());
        made.strongroom(&["keyring", "init", "--provider", &provider]);
        let (data, recovery) = (made.at("data.img"), made.at("recovery"));
        let shown = |path: &Path| path.display().to_string();
        made.strongroom(&[
            "volume",
            "create",
            &shown(&data),
            "--size",
            size,
            "--key-id",
            "db-7",
            "--label",
            "db-7",
            "--recovery-out",
            &shown(&recovery),
        ]);
        made
    }

    /// A file of it.
    #[must_use]
    pub fn at(&self, name: &str) -> PathBuf {
        self.room.join(name)
    }

    /// Gives the guest the command, keyring, root key and recovery key.
    ///
    /// # Panics
    /// When they are not there.
    #[must_use]
    pub fn guest(&self) -> Guest {
        let mut guest = Guest::new().with_strongroom();
        // The keyring names its root key by a path of this host; the guest has it at the same place.
        guest.private(&self.at("root").display().to_string(), ROOT.as_bytes());
        guest.private(
            KEYRING_IN_GUEST,
            &fs::read(self.at("keyring")).expect("the keyring"),
        );
        guest.private(
            RECOVERY_IN_GUEST,
            &fs::read(self.at("recovery")).expect("the recovery key"),
        );
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
