//! `strongroom keyserver join`: gives this host a certificate of the key server, and the
//! configuration to use it with.
//!
//! Must not: take a token from the command line.

use std::path::{Path, PathBuf};

use clap::Args;
use strongroom_crypto::SecretBytes;
use strongroom_inspect::time::rfc3339;
use strongroom_keyring::{KeySource, SourceContext};
use strongroom_keys_client::{DEFAULT_PATH, Join, Node, VARIABLE};

use crate::context::Context;
use crate::failure::{Failure, note};
use crate::help::tail;
use crate::keys;

/// Join this host to a key server.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver join https://keys-a:8443 https://keys-b:8443 --authority authority.pem --node db-7 --token-file token"))]
pub(crate) struct JoinArgs {
    /// The servers, in the order in which they are to be asked; the first one enrols
    #[arg(value_name = "URL", required = true)]
    servers: Vec<String>,
    /// The certificate of the key server's authority, brought here by a way that is trusted
    #[arg(long, value_name = "FILE")]
    authority: PathBuf,
    /// This node's name, as the token was made for
    #[arg(long, value_name = "NAME")]
    node: String,
    /// The file that holds the one-time token [default: it is asked for]
    #[arg(long, value_name = "FILE", conflicts_with = "token_env")]
    token_file: Option<PathBuf>,
    /// The environment variable that holds the one-time token
    #[arg(long, value_name = "VAR")]
    token_env: Option<String>,
    #[arg(
        long,
        value_name = "FILE",
        help = "The configuration to write; certificate and key stand beside it [default: STRONGROOM_NODE, else /etc/strongroom/node.toml]"
    )]
    config: Option<PathBuf>,
    /// Replace a configuration that is there
    #[arg(long)]
    replace: bool,
}

impl JoinArgs {
    /// Enrols this host at the first server with a token, writes private key, certificate,
    /// authority and configuration, and prints name, role and configuration. The certificate of an
    /// enrolment before is then no longer valid. Errors: SR-1002 if there is a configuration,
    /// without `--replace`; SR-8408 for an address; SR-1006 without the authority's file; the
    /// errors of the token and of the server; SR-5001 when the system reports an error.
    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let config = Node::path(self.config.as_deref());
        let (servers, node) = (self.servers.clone(), self.node.clone());
        let join = Join::prepare(&config, servers, &self.authority, node, self.replace)?;
        let joined = join.enrol(&self.token(context)?)?;
        if let Some(key) = joined.former_key {
            let key = key.display();
            note(&format!(
                "{key}: the former private key stays: remove it yourself"
            ));
        }
        note(&renewal(&joined.config, joined.ends));
        let (node, role, config) = (&self.node, joined.role, joined.config.display());
        context
            .output
            .line(&format!("node {node} role {role}: {config}"))
    }

    /// Fetches the one-time token from the file or the variable that was named, otherwise at the
    /// terminal. SR-1004 without a terminal; the errors of the source.
    fn token(&self, context: &Context) -> Result<SecretBytes, Failure> {
        let source = match (&self.token_file, &self.token_env) {
            (Some(path), _) => KeySource::File(path.clone()),
            (None, Some(variable)) => KeySource::Env(variable.clone()),
            (None, None) => KeySource::Ask,
        };
        let about = SourceContext {
            keyring: context.keyring.clone(),
            creating: false,
            prompt: "One-time token".to_owned(),
        };
        let instead = "--token-file FILE or --token-env VAR";
        Ok(keys::passphrase(&source, &about, instead)?)
    }
}

/// Returns text that says when the certificate expires (`ends`, in seconds since the Unix epoch)
/// and how it is renewed before. The timer that is installed renews only the one of the default
/// configuration.
fn renewal(config: &Path, ends: u64) -> String {
    let ends = rfc3339(ends);
    match config == Path::new(DEFAULT_PATH) {
        true => format!(
            "its certificate ends at {ends}; `systemctl enable --now strongroom-renew.timer` has it renewed in time"
        ),
        false => format!(
            "its certificate ends at {ends}; strongroom-renew.timer looks at {DEFAULT_PATH} only: have `strongroom keyserver renew --if-due --node {}` run every day, and give other commands the same --node, or set {VARIABLE}",
            config.display()
        ),
    }
}
