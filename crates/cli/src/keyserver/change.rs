//! `strongroom keyserver create`, `rotate`, `disable`, `enable`, `restore`: one key each, one
//! request each.
//!
//! Must not: decide who may; the server does.

use clap::Args;
use serde_json::json;
use strongroom_keys_client::Method;

use super::admin::{ServerOptions, named, plain};
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Make a key. A node gets it granted; an administrator grants it to whom it is for.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver create --node admin.toml db-7"))]
pub(super) struct CreateArgs {
    /// The key's name
    name: String,
    #[command(flatten)]
    server: ServerOptions,
}

/// Make a new version of a key. Older ones stay.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver rotate --node admin.toml db-7"))]
pub(super) struct RotateArgs {
    /// The key's name
    name: String,
    #[command(flatten)]
    server: ServerOptions,
}

/// Stop the delivery of a key.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver disable --node admin.toml db-7"))]
pub(super) struct DisableArgs {
    /// The key's name
    name: String,
    #[command(flatten)]
    server: ServerOptions,
}

/// Let a disabled key be delivered again.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver enable --node admin.toml db-7"))]
pub(super) struct EnableArgs {
    /// The key's name
    name: String,
    #[command(flatten)]
    server: ServerOptions,
}

/// Call off a key's destruction while there is time. It is disabled then.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver restore --node admin.toml db-7"))]
pub(super) struct RestoreArgs {
    /// The key's name
    name: String,
    #[command(flatten)]
    server: ServerOptions,
}

impl CreateArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let body = json!({"name": named(&self.name)?});
        let made = self.server.change(&Method::POST, "/v1/keys", Some(&body))?;
        let version = plain(&made["version"]);
        context
            .output
            .line(&format!("{} version {version}", self.name))
    }
}

impl RotateArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let path = format!("/v1/keys/{}/rotate", named(&self.name)?);
        let made = self.server.change(&Method::POST, &path, Some(&json!({})))?;
        let version = plain(&made["version"]);
        context
            .output
            .line(&format!("{} version {version}", self.name))
    }
}

impl DisableArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        switch(&self.server, &self.name, "disable", context)
    }
}

impl EnableArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        switch(&self.server, &self.name, "enable", context)
    }
}

impl RestoreArgs {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        switch(&self.server, &self.name, "restore", context)
    }
}

fn switch(
    server: &ServerOptions,
    name: &str,
    action: &str,
    context: &mut Context,
) -> Result<(), Failure> {
    let path = format!("/v1/keys/{}/{action}", named(name)?);
    let answer = server.change(&Method::POST, &path, Some(&json!({})))?;
    context
        .output
        .line(&format!("{name} {}", plain(&answer["state"])))
}
