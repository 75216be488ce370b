//! The control file of a sealed instance, as `pg_controldata` prints it under the shield.
//!
//! Must not: change anything.

use std::path::Path;

use strongroom_keyring::Error;

use crate::chosen::ChosenKey;
use crate::directory::Directory;
use crate::shielded::Shielded;

/// What `pg_controldata` prints.
pub struct ControlData {
    /// The text, in English.
    pub text: String,
}

impl ControlData {
    /// Runs `pg_controldata` of `bindir` on the directory under the shield, and returns what it
    /// prints.
    ///
    /// # Errors
    /// SR-7018 when the program fails; SR-7017 without the library; those of the key's source.
    pub fn read(
        bindir: &Path,
        directory: &Directory,
        chosen: Option<&ChosenKey>,
    ) -> Result<Self, Error> {
        let program = bindir.join("pg_controldata");
        let mut shielded = Shielded::new(program, &[directory], chosen)?;
        shielded.command().arg("-D").arg(&directory.path);
        let text = shielded.output()?;
        Ok(Self { text })
    }

    /// Returns the value of the line that begins with `name` and a colon. `None` when there is no
    /// such line.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
    }
}
