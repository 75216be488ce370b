//! `strongroom pg controldata -D DIR`: `pg_controldata` under the shield, and what the header adds
//! to it.
//!
//! Must not: change anything.

use clap::Args;
use strongroom_postgres_instance::chosen::ChosenKey;
use strongroom_postgres_instance::contents::check_control;
use strongroom_postgres_instance::control_data::ControlData;
use strongroom_postgres_instance::facts::{Facts, opener};

use super::directory::DirectoryOption;
use super::given::given_key;
use super::programs::BindirOption;
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
    /// Opens the header and the control file with the key, and prints what `pg_controldata` prints,
    /// then the fingerprint, the cipher and the key of the header.
    /// Errors: SR-7004 if the instance is not sealed, SR-2001 without a key, SR-7001 if the header
    /// and the control file do not belong together, SR-7018 if `pg_controldata` fails; the errors
    /// of the key.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let directory = self.directory.sealed()?;
        let bindir = self.bindir.find(directory.major())?;
        let chosen = ChosenKey::required(given_key(self.key, context), &directory)?;
        let object = chosen.open(&directory)?;
        check_control(&directory, &chosen.instance(&directory)?)?;
        let control = ControlData::read(&bindir, &directory, Some(&chosen))?;
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
