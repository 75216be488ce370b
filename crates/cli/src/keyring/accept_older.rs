//! `strongroom keyring accept-older`: accepts an older copy of a keyring as the current one.
//!
//! Must not: do so unless the user says so.

use clap::Args;
use strongroom_keyring::Keyring;

use crate::context::Context;
use crate::failure::{Failure, note};
use crate::help::tail;

/// Go on with an older copy of a keyring, when the newest one is lost.
///
/// Keys and versions that were made since are not in it, and what they sealed does not open.
/// Versions that were retired since are active again: rotate every key afterwards.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyring accept-older"))]
pub(super) struct AcceptOlderArgs {}

impl AcceptOlderArgs {
    /// Makes this copy of the keyring count as the newest one, prints that, and notes that every
    /// key has to be rotated. If no newer copy is known on this host, changes nothing, prints that,
    /// and succeeds. The root key is needed. Errors: SR-2004 if there is no keyring; SR-2016 if
    /// another process keeps its lock for 10 seconds; the errors of opening it with its root key.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let Self {} = self;
        let path = context.keyring_path();
        let mut keyring = Keyring::open(&path)?;
        // It is what this command is for.
        let _said = strongroom_keyring::take_older_keyring_warning();
        let shown = path.display();
        if !keyring.accept_older()? {
            return context
                .output
                .line(&format!("{shown} is the newest copy that is known here"));
        }
        note("rotate every key now: `strongroom key list`, `strongroom key rotate NAME`");
        context.output.line(&format!("accepted {shown}"))
    }
}
