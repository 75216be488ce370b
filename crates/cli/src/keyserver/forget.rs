//! `strongroom keyserver forget`: removes an object that no longer exists from the fleet page.
//!
//! Must not: touch a key, or the object itself.

use clap::Args;
use strongroom_format::code;
use strongroom_format::text::printable;
use strongroom_keys_client::Method;

use super::admin::{ServerOptions, hex_id};
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Forget objects that are no more, such as shredded volumes: they leave the fleet page.
///
/// Only what was reported of them is removed. An object that is still there comes back with the
/// next report of its node. A copy of its header stays until `volume shred` or its node removes it.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver forget --node admin.toml 0f3c9d1e4c434b0e9f2c6b1f3f0d8a11"))]
pub(super) struct ForgetArgs {
    /// The object's id, as the fleet page and the record of `volume shred` show it
    #[arg(value_name = "OBJECT", required = true)]
    ids: Vec<String>,
    #[command(flatten)]
    server: ServerOptions,
}

impl ForgetArgs {
    /// Has the server remove its records of these objects, one request each, and prints each one.
    /// Stops at the first error: SR-8457 for an id that is not 32 hexadecimal digits; SR-8400 or
    /// SR-8401 if the node's configuration or one of its files cannot be used; SR-8402 if no server
    /// answers; what the server refuses.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        for id in &self.ids {
            let address = hex_id(id, 32)
                .ok_or_else(|| Failure::new(&code::SERVER_NO_OBJECT, printable(id)))?;
            let path = format!("/v1/objects/{address}");
            self.server.change(&Method::DELETE, &path, None)?;
            context.output.line(&format!("forgot {id}"))?;
        }
        Ok(())
    }
}
