//! `strongroom keyserver run`: the key server in the foreground.
//!
//! Must not: fork; write anything but its log to standard error.

use std::path::PathBuf;

use clap::Args;

use crate::allocator::ALLOCATOR;
use crate::failure::Failure;
use crate::help::tail;

/// Run the key server, until SIGTERM or Ctrl-C.
///
/// It logs one JSON object a line to standard error, tells a service manager when it is ready
/// (`sd_notify`), and takes new certificates, limits and policy at SIGHUP. It serves nothing until
/// the root key's provider has answered, or enough shares were given.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver run --config /var/lib/strongroom/server.toml"))]
pub(super) struct RunArgs {
    /// The configuration that `keyserver init` made
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

impl RunArgs {
    /// Makes the allocator wipe all memory that is freed, and runs the key server until a signal
    /// stops it. SR-8434 if the configuration is not valid, SR-8440 for a certificate or key that
    /// cannot be used, SR-5001 if its address or a file cannot be used.
    pub(super) fn run(self) -> Result<(), Failure> {
        // The buffers of TLS, HTTP and JSON hold shares, tokens and keys, and are freed as they
        // are.
        ALLOCATOR.switch_on();
        Ok(strongroom_keys_server::run::run(&self.config, |_| {})?)
    }
}
