//! `strongroom pg controldata -D DIR`: `pg_controldata` under the shield, and what the header adds
//! to it.
//!
//! Must not: change anything.

use std::path::Path;

use clap::Args;

use super::chosen::ChosenKey;
use super::contents::check_control;
use super::directory::{Directory, DirectoryOption};
use super::facts::{Facts, opener};
use super::programs::BindirOption;
use super::shielded::Shielded;
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::key_options::KeyOptions;

/// Width of `pg_controldata`'s first column.
const COLUMN: usize = 38;

/// Show the control file of a sealed instance, with the fingerprint, cipher and key of its data
/// key.
///
/// As `pg_controldata`. The key is needed: the header is authenticated, the control file sealed.
#[derive(Args)]
#[command(after_help = tail!("  strongroom pg controldata -D /srv/pg/data"))]
pub(super) struct ControldataArgs {
    #[command(flatten)]
    pub(super) directory: DirectoryOption,
    #[command(flatten)]
    key: KeyOptions,
    #[command(flatten)]
    bindir: BindirOption,
}

impl ControldataArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let directory = self.directory.sealed()?;
        let bindir = self.bindir.find(directory.major())?;
        let chosen = ChosenKey::required(self.key, context, &directory)?;
        let object = chosen.open(&directory)?;
        check_control(&directory, &chosen.instance(&directory)?)?;
        let control = Control::read(&bindir, &directory, Some(&chosen))?;
        context.output.text(&control.text)?;
        let facts = Facts::of(object.header());
        let added = [
            ("Data encryption fingerprint:", facts.fingerprint),
            ("Data encryption cipher:", String::from(facts.cipher)),
            ("Data encryption key:", opener(object.opened_by())),
        ];
        for (name, value) in added {
            context.output.line(&format!("{name:<COLUMN$}{value}"))?;
        }
        Ok(())
    }
}

/// What `pg_controldata` prints.
pub(super) struct Control {
    text: String,
}

impl Control {
    /// Reads the control file through the shield.
    pub(super) fn read(
        bindir: &Path,
        directory: &Directory,
        chosen: Option<&ChosenKey>,
    ) -> Result<Self, Failure> {
        let program = bindir.join("pg_controldata");
        let mut shielded = Shielded::new(program, &[directory], chosen)?;
        shielded.command().arg("-D").arg(&directory.path);
        let text = shielded.output()?;
        Ok(Self { text })
    }

    /// The value of the line that begins with `name` and a colon.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
    }
}
