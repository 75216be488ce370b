//! `strongroom keyserver renew`: renews this host's certificate before it ends, with a new private
//! key. A timer runs it daily.
//!
//! Invariants: a process that is killed at any moment leaves a pair of certificate and key that the
//! server accepts. The next run finishes a renewal that was interrupted, whether or not one is due.
//! When none is due, no server is called.
//!
//! Must not: wait without an end; touch another user's files.

use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use serde_json::json;
use strongroom_format::code;
use strongroom_inspect::time::rfc3339;
use strongroom_keys_client::{Node, Renewal, Validity};

use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Renew this host's certificate. It gets a new private key; the former one is overwritten.
///
/// The former certificate counts until the new one is used, so nothing is lost when this is killed
/// or the answer does not arrive. A certificate that has ended cannot be renewed: join again, with
/// a new token and `--replace`.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver renew --if-due\n  strongroom keyserver renew --if-due --then 'update-initramfs -u'"))]
pub(super) struct RenewArgs {
    #[arg(
        long,
        value_name = "FILE",
        help = "This host's configuration [default: STRONGROOM_NODE, else /etc/strongroom/node.toml]"
    )]
    node: Option<PathBuf>,
    /// Only when less than a third of the certificate's time is left
    #[arg(long)]
    if_due: bool,
    /// A command for /bin/sh, run when the new files are in place and the former certificate still
    /// counts
    #[arg(long, value_name = "COMMAND")]
    then: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl RenewArgs {
    /// Renews this host's certificate and private key, or finishes a renewal that was interrupted;
    /// runs the command of `--then` before the former certificate becomes invalid; prints when the
    /// certificate expires. With `--if-due`, does nothing while more than a third of its time is
    /// left.
    /// Errors: SR-8470 if it has expired, SR-8471 if the command fails; the errors of the
    /// configuration, its files and the request.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let config = Node::path(self.node.as_deref());
        let renewal = Renewal::begin(&config)?;
        if !renewal.is_unfinished() {
            let validity = Node::load(&config)?.validity();
            let now = strongroom_keys_server::now();
            if now > validity.ends {
                let (ended, now) = (rfc3339(validity.ends), rfc3339(now));
                let detail = format!("it ended at {ended}; this host's clock says {now}");
                return Err(Failure::new(&code::NODE_CERTIFICATE_ENDED, detail));
            }
            if self.if_due && !validity.is_due(now) {
                return self.report(context, false, validity);
            }
            renewal.ask()?;
        }
        renewal.place()?;
        if let Some(command) = &self.then {
            run(command)?;
        }
        renewal.finish()?;
        self.report(context, true, Node::load(&config)?.validity())
    }

    /// Prints whether the certificate was renewed and when it expires, as text or JSON. SR-5001 if
    /// standard output cannot be written.
    fn report(
        &self,
        context: &mut Context,
        renewed: bool,
        validity: Validity,
    ) -> Result<(), Failure> {
        let ends = rfc3339(validity.ends);
        match (self.json, renewed) {
            (true, _) => context
                .output
                .json(&json!({"renewed": renewed, "expires": validity.ends})),
            (false, true) => context.output.line(&format!("renewed until {ends}")),
            (false, false) => context.output.line(&format!("not due: it ends at {ends}")),
        }
    }
}

/// Runs a command with /bin/sh and waits for it. What it prints goes to standard error, because it
/// is no result of this program. SR-8471 if it cannot be started or fails.
fn run(command: &str) -> Result<(), Failure> {
    let failed = |why: String| Failure::new(&code::NODE_RENEWAL_COMMAND, why);
    let status = Command::new("/bin/sh")
        .args(["-c", command])
        .stdout(std::io::stderr())
        .status()
        .map_err(|error| failed(error.to_string()))?;
    match status.success() {
        true => Ok(()),
        false => Err(failed(status.to_string())),
    }
}
