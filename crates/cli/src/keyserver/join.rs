//! `strongroom keyserver join`: gives this host a certificate of the key server, and the
//! configuration to use it with.
//!
//! Invariants: the private key is on disk before the token is sent. The configuration is written
//! last, so incomplete files are never used. Nothing that exists is overwritten; with `--replace`
//! the configuration in use changes to the new files in one step, after which its former private
//! key is overwritten and removed.
//!
//! Must not: take the authority from the network; take a token from the command line.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_format::time::rfc3339;
use strongroom_keyring::pair::remove_key;
use strongroom_keyring::{KeySource, SourceContext, durable, paths};
use strongroom_keys_client::{
    DEFAULT_PATH, Enrolment, Files as FormerFiles, Node, VARIABLE, enrol,
};

use crate::context::Context;
use crate::failure::{Failure, note};
use crate::help::tail;
use crate::keys;

/// Files of this many joins can stand in one directory.
const JOINS_MAX: usize = 1000;

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
    pub(crate) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let config = Node::path(self.config.as_deref());
        let config = std::path::absolute(&config).map_err(|error| Failure::io(&config, &error))?;
        if config.symlink_metadata().is_ok() && !self.replace {
            return Err(Failure::new(&code::EXISTS, config.display().to_string()));
        }
        Node::check_servers(&self.servers)?;
        let authority = std::fs::read(&self.authority)
            .map_err(|error| Failure::open(&self.authority, &error))?;
        let token = self.token(context)?;
        let files = Files::beside(&config)?;
        let server = self.servers.first().map_or("", String::as_str);
        let enrolment = Enrolment {
            server,
            authority: &authority,
            node: &self.node,
            token: &token,
        };
        // Bad addresses are found before the token is used up.
        let text = configuration(&self.servers, &files);
        Node::check(&text)?;
        let mut kept = false;
        let enrolled = enrol::<Failure>(&enrolment, |key| {
            paths::create_private(&files.key, key.as_slice())?;
            kept = true;
            Ok(())
        });
        let enrolled = match enrolled {
            Ok(enrolled) => enrolled,
            Err(failure) => {
                let is_uncertain = failure.code() == &code::KEYSERVER_UNCERTAIN;
                if kept && !is_uncertain {
                    // No certificate was made for this key. That it stays would do no harm.
                    drop(std::fs::remove_file(&files.key));
                }
                return Err(failure);
            }
        };
        paths::create_new(&files.certificate, enrolled.certificate.as_bytes())?;
        paths::create_new(&files.authority, &authority)?;
        let former = FormerFiles::load(&config).ok();
        durable::replace(&config, text.as_bytes(), 0o644)
            .map_err(|error| Failure::io(&config, &error))?;
        // What was written is what will be used.
        let ends = Node::load(&config)?.validity().ends;
        if let Some(former) = former {
            forget(&config, &former)?;
        }
        note(&renewal(&config, ends));
        let (node, role) = (&self.node, enrolled.role);
        context
            .output
            .line(&format!("node {node} role {role}: {}", config.display()))
    }

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
        keys::passphrase(&source, &about, "--token-file FILE or --token-env VAR")
    }
}

/// When the certificate ends, and what has it renewed before. The timer that is installed renews
/// that of the usual configuration only.
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

/// Removes the files of the configuration that was replaced, the private key overwritten. What
/// stands elsewhere, or is named by another configuration beside it, stays.
fn forget(config: &Path, former: &FormerFiles) -> Result<(), Failure> {
    let beside = config.parent().unwrap_or_else(|| Path::new("/"));
    let others = configurations(beside)?;
    let is_free = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.parent() == Some(beside)
            && path.symlink_metadata().is_ok_and(|about| about.is_file())
            && !others.iter().any(|text| text.contains(&*quoted(&name)))
    };
    let next = former.pair().next();
    for path in [&former.key, &next, &former.certificate, &former.authority] {
        if is_free(path) {
            remove_key(path).map_err(|error| Failure::io(path, &error))?;
        } else if path == &former.key && path.exists() {
            let path = path.display();
            note(&format!(
                "{path}: the former private key stays: remove it yourself"
            ));
        }
    }
    Ok(())
}

/// The texts of all configurations in a directory.
fn configurations(directory: &Path) -> Result<Vec<String>, Failure> {
    let failed = |error: io::Error| Failure::io(directory, &error);
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|end| end == "toml") {
            texts.extend(std::fs::read_to_string(&path));
        }
    }
    Ok(texts)
}

/// The files of one join.
struct Files {
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    /// Names that nothing has yet: `node.key`, else `node-2.key` and so on. Makes the directory.
    fn beside(config: &Path) -> Result<Self, Failure> {
        let directory = config.parent().unwrap_or_else(|| Path::new("/"));
        std::fs::create_dir_all(directory).map_err(|error| Failure::io(directory, &error))?;
        for number in 1..=JOINS_MAX {
            let suffix = match number {
                1 => String::new(),
                _ => format!("-{number}"),
            };
            let files = Self {
                authority: directory.join(format!("authority{suffix}.pem")),
                certificate: directory.join(format!("node{suffix}.pem")),
                key: directory.join(format!("node{suffix}.key")),
            };
            let all = [&files.authority, &files.certificate, &files.key];
            if all.iter().all(|path| path.symlink_metadata().is_err()) {
                return Ok(files);
            }
        }
        let detail = format!("{}: files of earlier joins", directory.display());
        Err(Failure::new(&code::EXISTS, detail))
    }
}

/// The text of `node.toml`.
fn configuration(servers: &[String], files: &Files) -> String {
    let name = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        quoted(&name)
    };
    let servers: Vec<String> = servers.iter().map(|server| quoted(server)).collect();
    format!(
        "# Written by `strongroom keyserver join`; docs/spec/node.md says what may stand here.\nservers = [{}]\nauthority = {}\ncertificate = {}\nkey = {}\nrequest_timeout_seconds = 5\ntotal_timeout_seconds = 60\n",
        servers.join(", "),
        name(&files.authority),
        name(&files.certificate),
        name(&files.key),
    )
}

/// A TOML string. What would need an escape is refused when the text is checked.
fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}
