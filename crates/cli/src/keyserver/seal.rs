//! `strongroom keyserver seal`: has the server drop its keys from memory.
//!
//! Must not: decide who may; the server does.

use clap::Args;
use serde_json::json;
use strongroom_keys_client::Method;

use super::admin::ServerOptions;
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Seal the server. It serves nothing until shares are given, or it is started anew.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver seal --node admin.toml"))]
pub(super) struct SealArgs {
    #[command(flatten)]
    server: ServerOptions,
}

impl SealArgs {
    /// Has the server drop its keys from memory, and prints "sealed". Errors: SR-8400 or SR-8401 if
    /// the node's configuration or one of its files cannot be used; SR-8402 if no server answers;
    /// what the server refuses.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        self.server
            .change(&Method::POST, "/v1/seal", Some(&json!({})))?;
        context.output.line("sealed")
    }
}
