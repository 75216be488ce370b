//! `strongroom keyserver token`: a token with which one client is enrolled once.
//!
//! Must not: print a token that was asked to go into a file.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::json;
use strongroom_keyring::paths;
use strongroom_keys_client::Method;

use super::admin::{ServerOptions, malformed, named};
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;

/// Make a token for a client.
///
/// Used once, with `keyserver join` on the client's machine. A token for a client that is enrolled
/// already replaces its certificate; it keeps its grants, and what it may unless --may-create or
/// --may-destroy says something else.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver token --node admin.toml db-host-7 --may-create --out token"))]
pub(super) struct TokenArgs {
    /// The client's name
    name: String,
    /// What it will be
    #[arg(long, value_enum, default_value = "node")]
    role: RoleName,
    /// A key that is granted to it; may be repeated
    #[arg(long = "key", value_name = "NAME")]
    keys: Vec<String>,
    /// Let it make keys
    #[arg(long)]
    may_create: bool,
    /// Let it have keys destroyed that it makes or that are granted here
    #[arg(long)]
    may_destroy: bool,
    /// Life of the token in minutes
    #[arg(long, value_name = "MINUTES", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=43_200))]
    expires: u64,
    /// Write the token to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    server: ServerOptions,
}

#[derive(Clone, Copy, ValueEnum)]
enum RoleName {
    Node,
    Viewer,
    Admin,
}

impl TokenArgs {
    /// Has the server make an enrolment token, and prints it or writes it into a new file that only
    /// this user can read. SR-2013 for an invalid name, SR-1002 if the file exists, SR-8404 for a
    /// response without a token; SR-8400 or SR-8401 if the node's configuration or one of its files
    /// cannot be used; SR-8402 if no server answers; what the server refuses.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let role = match self.role {
            RoleName::Node => "node",
            RoleName::Viewer => "viewer",
            RoleName::Admin => "admin",
        };
        let mut body = json!({
            "node": named(&self.name)?,
            "role": role,
            "keys": self.keys,
            "expires_seconds": self.expires * 60,
        });
        // What is not said takes nothing from a node that is enrolled already.
        if self.may_create || self.may_destroy {
            body["may_create"] = self.may_create.into();
            body["may_destroy"] = self.may_destroy.into();
        }
        // Checked before the server makes a token: one that could not be written to the file would
        // be lost, and stay valid until it expires.
        if let Some(path) = &self.out {
            paths::check_new(path)?;
        }
        let answer = self
            .server
            .change(&Method::POST, "/v1/tokens", Some(&body))?;
        let token = answer["token"].as_str().ok_or_else(|| malformed("token"))?;
        match &self.out {
            None => context.output.line(token),
            Some(path) => {
                let line = format!("{token}\n");
                Ok(paths::create_private(path, line.as_bytes())?)
            }
        }
    }
}
