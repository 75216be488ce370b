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

// No comment of this type's own: that of the verb is its help.
#[derive(Args)]
pub(super) struct KeyNameArgs {
    /// The key's name
    name: String,
    #[command(flatten)]
    server: ServerOptions,
}

impl KeyNameArgs {
    /// Has the server make the key, and prints its name and version. SR-2013 for an invalid name;
    /// SR-8400 or SR-8401 if the node's configuration or one of its files cannot be used; SR-8402
    /// if no server answers; what the server refuses.
    pub(super) fn create(self, context: &mut Context) -> Result<(), Failure> {
        let body = json!({"name": named(&self.name)?});
        let made = self.server.change(&Method::POST, "/v1/keys", Some(&body))?;
        let version = plain(&made["version"]);
        context
            .output
            .line(&format!("{} version {version}", self.name))
    }

    /// Has the server make a new version of the key, and prints name and version. Errors as
    /// [`Self::create`].
    pub(super) fn rotate(self, context: &mut Context) -> Result<(), Failure> {
        let version = plain(&self.order("rotate")?["version"]);
        context
            .output
            .line(&format!("{} version {version}", self.name))
    }

    /// Has the server change the key's state by `action` (`disable`, `enable` or `restore`), and
    /// prints the new state. Errors as [`Self::create`].
    pub(super) fn switch(self, action: &str, context: &mut Context) -> Result<(), Failure> {
        let state = plain(&self.order(action)?["state"]);
        context.output.line(&format!("{} {state}", self.name))
    }

    /// Sends `action` for this key as a request that is not repeated, and returns the JSON of the
    /// response. Errors as [`Self::create`].
    fn order(&self, action: &str) -> Result<serde_json::Value, Failure> {
        let path = format!("/v1/keys/{}/{action}", named(&self.name)?);
        self.server.change(&Method::POST, &path, Some(&json!({})))
    }
}
