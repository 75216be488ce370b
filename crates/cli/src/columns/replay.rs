//! `strongroom columns replay`: answers from a recording, in the place of the zone.
//!
//! Must not: need a key of values.

use std::path::{Path, PathBuf};

use clap::Args;
use strongroom_columns_zone::record::replay::{Record, Replaying};
use strongroom_columns_zone::sandbox::Sandbox;
use strongroom_format::code;
use strongroom_keyring::SourceContext;

use super::zone::allowed;
use crate::context::Context;
use crate::failure::{Failure, note};
use crate::help::tail;
use crate::key_options::KeyOptions;
use crate::keys;

/// Answer from a record, so that a recorded statement can be run again without the zone and without
/// a value.
///
/// The record is authenticated as a whole first. Then a superuser runs the recorded statement in a
/// new session, after SET strongroom.zone to the socket's path. What departs from the record is an
/// error.
#[derive(Args)]
#[command(after_help = tail!("  strongroom columns replay /srv/zone/records/slow.record --socket /run/strongroom/replay --user postgres --key-file /etc/strongroom/record.key"))]
pub(super) struct ReplayArgs {
    /// The record
    record: PathBuf,
    /// Socket that backends connect to
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// User whose processes may connect, by number or by name; the command's own unless given
    #[arg(long = "user", value_name = "USER")]
    users: Vec<String>,
    #[command(flatten)]
    key: KeyOptions,
}

impl ReplayArgs {
    /// Opens and authenticates the record, and serves its answers at the socket until a signal
    /// stops it; the socket's file is then removed. SR-1001 if there is no user of a name; SR-2041
    /// without a key, and the errors of the key; SR-8123 if the record is cut, changed or too long,
    /// and the errors of [`strongroom_keyring::Object::open`] if its header does not open; SR-5001
    /// if the record cannot be read, or for the list of users, the socket or the sandbox; SR-9001
    /// if the signal handler cannot be installed.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let users = allowed(&self.users)?;
        let key = keys::required(self.key, "a record")?;
        let opener = key.opener(&SourceContext {
            keyring: context.keyring.clone(),
            creating: false,
            prompt: format!("Passphrase of {}", self.record.display()),
        })?;
        let record = Record::open(&self.record, &opener)?;
        let calls = record.len();
        let about = |error: std::io::Error| Failure::io(&self.socket, &error);
        let replaying = Replaying::bind(record, users, &self.socket).map_err(about)?;
        let stopper = replaying.stopper();
        ctrlc::set_handler(move || stopper.stop())
            .map_err(|error| Failure::new(&code::BUG, error.to_string()))?;
        note(&format!(
            "{calls} operations, authentic; serving at {}",
            self.socket.display()
        ));
        let parent = self.socket.parent().unwrap_or_else(|| Path::new("."));
        let sandbox = Sandbox {
            directories: vec![parent.to_path_buf()],
            insist_on_locks: false,
            all_threads: true,
        };
        replaying.run(&sandbox).map_err(about)
    }
}
