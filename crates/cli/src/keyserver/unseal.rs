//! `strongroom keyserver unseal`: gives one share of the root key.
//!
//! Must not: take a share from the command line.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use strongroom_format::code;
use strongroom_keyring::{KeySource, SourceContext};
use strongroom_keys_client::Method;

use super::admin::AnybodyOptions;
use super::status::in_words;
use crate::context::Context;
use crate::failure::Failure;
use crate::help::tail;
use crate::keys;

/// Give a share of the root key. With the last one that is needed, the server opens.
///
/// The share is what counts: no certificate is needed unless the server's configuration says
/// `unseal_certificate = true`. The server has to show one of its authority.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver unseal --server https://keys.example.org:8443 --authority authority.pem --share-file share-2.txt"))]
pub(super) struct UnsealArgs {
    /// The file that holds the share; asked for on the terminal unless given
    #[arg(long, value_name = "FILE")]
    share_file: Option<PathBuf>,
    #[command(flatten)]
    server: AnybodyOptions,
}

impl UnsealArgs {
    /// Fetches a share from the file or at the terminal, sends it to the server, and prints the
    /// server's status: open, or how many shares it still needs. SR-8432 if it is not a share; the
    /// errors of the source; SR-8400 or SR-8401 if the node's configuration or one of its files
    /// cannot be used; SR-8402 if no server answers; what the server refuses.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let source = self
            .share_file
            .clone()
            .map_or(KeySource::Ask, KeySource::File);
        let about = SourceContext {
            prompt: "Share".to_owned(),
            ..SourceContext::default()
        };
        let share = keys::passphrase(&source, &about, "--share-file FILE")?;
        let text = std::str::from_utf8(share.as_slice())
            .map_err(|_| Failure::new(&code::SERVER_SHARE, "not text"))?;
        let body = json!({"share": text});
        let client = self.server.client()?;
        let status = client.call(&Method::POST, "/v1/unseal", Some(&body), false)?;
        context.output.line(&in_words(&status))
    }
}
