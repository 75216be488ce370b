//! `strongroom keyserver revoke`: ends a client.
//!
//! Must not: decide who may; the server does.

use clap::Args;
use strongroom_keys_client::Method;

use super::admin::{ServerOptions, named};
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Revoke a client: its certificate no longer counts, at once, and its grants are gone.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver revoke --node admin.toml db-host-7"))]
pub(super) struct RevokeArgs {
    /// The client's name
    name: String,
    #[command(flatten)]
    server: ServerOptions,
}

impl RevokeArgs {
    /// Has the server revoke the client's certificate and remove its grants, and prints that.
    /// SR-2013 for an invalid name; SR-8400 or SR-8401 if the node's configuration or one of its
    /// files cannot be used; SR-8402 if no server answers; what the server refuses.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let path = format!("/v1/nodes/{}", named(&self.name)?);
        self.server.change(&Method::DELETE, &path, None)?;
        context.output.line(&format!("revoked {}", self.name))
    }
}
