//! `strongroom keyserver server-cert` and `break-glass`: what is done on the server's machine with
//! the root key, without a certificate.
//!
//! Must not: take a share from the command line; overwrite a file but the pair that is to be
//! replaced.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_inspect::time::rfc3339;
use strongroom_keyring::{Error, KeySource, SourceContext, durable, paths};
use strongroom_keys_client::Node;
use strongroom_keys_server::config::{Config, with_names};
use strongroom_keys_server::offline::Offline;

use super::admin::named;
use crate::context::Context;
use crate::failure::{Failure, note, warn};
use crate::help::tail;
use crate::keys;

/// Which server, and with what its root key comes.
#[derive(Args)]
struct RootOptions {
    /// The server's configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// A file that holds a custodian's share; may be repeated. They are asked for on the terminal
    /// unless given
    #[arg(long = "share-file", value_name = "FILE")]
    share_files: Vec<PathBuf>,
}

impl RootOptions {
    /// Opens the server's store with its root key. If that is split, the shares are read from the
    /// files that were named, or asked for at the terminal, as many as are needed.
    /// Errors: SR-8434 for the configuration; SR-8410, SR-8432 or SR-8441 for the shares; SR-8437
    /// if the root key does not fit; the errors of the provider and of the store.
    fn open(&self) -> Result<Offline, Failure> {
        let needed = Offline::shares_needed(&self.config)?;
        let sources: Vec<(KeySource, String)> = match (needed, self.share_files.is_empty()) {
            (0, true) => Vec::new(),
            (_, true) => (1..=needed)
                .map(|n| (KeySource::Ask, format!("Share {n} of {needed}")))
                .collect(),
            (_, false) => {
                let files = self.share_files.iter();
                files
                    .map(|file| (KeySource::File(file.clone()), "Share".to_owned()))
                    .collect()
            }
        };
        let shares = sources
            .into_iter()
            .map(|(source, prompt)| {
                let about = SourceContext {
                    prompt,
                    ..SourceContext::default()
                };
                let instead = format!("--share-file FILE {needed} times");
                keys::passphrase(&source, &about, &instead)
            })
            .collect::<Result<Vec<SecretBytes>, Error>>()?;
        Ok(Offline::open(&self.config, &shares)?)
    }
}

/// The server's own certificate, on the server's machine.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver server-cert renew --config /var/lib/strongroom/server.toml"))]
pub(super) struct ServerCertArgs {
    #[command(subcommand)]
    verb: CertVerb,
}

#[derive(Subcommand)]
enum CertVerb {
    /// Give a further server on the same store its first certificate, and the authority's.
    ///
    /// Its server.toml is there already, with the names and the address of that server, and its
    /// root key comes as the first one's does.
    #[command(after_help = tail!("  strongroom keyserver server-cert issue --config /var/lib/strongroom/server.toml"))]
    Issue(Change),
    /// Give the server another certificate, with a new private key. A server that runs takes it
    /// within a minute.
    ///
    /// Not needed while a server runs and is open: it renews its certificate itself when a third of
    /// its time is left. It is needed for another name, and for a server that was away for so long
    /// that its certificate has ended.
    #[command(after_help = tail!("  strongroom keyserver server-cert renew --config /var/lib/strongroom/server.toml --name keys-b.example.org"))]
    Renew(Change),
    /// Replace a private key of the server that others may have, and say until when the certificate
    /// to it is believed.
    #[command(after_help = tail!("  strongroom keyserver server-cert replace --config /var/lib/strongroom/server.toml"))]
    Replace(Change),
}

// No comment of this type's own: that of the verb is its help.
#[derive(Args)]
struct Change {
    /// A further name or address of this server, which is added to its server.toml; may be repeated
    #[arg(long = "name", value_name = "HOST")]
    names: Vec<String>,
    #[command(flatten)]
    root: RootOptions,
}

impl Change {
    /// Writes further names of the server, if any were given, into its configuration file, and
    /// opens its store. SR-8412 for an invalid name, SR-5001 if the file cannot be written; errors
    /// as [`RootOptions::open`].
    fn open(&self) -> Result<Offline, Failure> {
        if !self.names.is_empty() {
            let text = with_names(&self.root.config, &self.names)?;
            durable::replace(&self.root.config, text.as_bytes(), 0o644)
                .map_err(|error| Failure::io(&self.root.config, &error))?;
        }
        self.root.open()
    }
}

impl ServerCertArgs {
    /// Issues, renews or replaces the certificate of the server in its files, and prints until when
    /// it is valid. `replace` notes until when the former one is still accepted.
    /// Errors: SR-1002 if `issue` finds a certificate or key, SR-8440 for the files, SR-8412 for a
    /// name; as [`RootOptions::open`].
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        match self.verb {
            CertVerb::Issue(change) => {
                let (files, ends) = change.open()?.issue()?;
                for file in files {
                    context.output.line(&format!("made {}", file.display()))?;
                }
                print_expiry(context, ends)
            }
            CertVerb::Renew(change) => {
                let ends = change.open()?.renew()?;
                print_expiry(context, ends)
            }
            CertVerb::Replace(change) => {
                let config = Config::read(&change.root.config)?;
                let (_, former) = strongroom_keys_server::tls::validity(&config)?;
                let ends = change.open()?.renew()?;
                let former = rfc3339(former);
                note(&format!(
                    "nodes accept the former key's certificate until {former}; until then, whoever has that key can impersonate this server to nodes whose connections they can redirect"
                ));
                print_expiry(context, ends)
            }
        }
    }
}

/// Prints when the certificate expires. `ends` is in seconds since the Unix epoch. SR-5001 if
/// standard output cannot be written.
fn print_expiry(context: &mut Context, ends: u64) -> Result<(), Failure> {
    let ends = rfc3339(ends);
    context.output.line(&format!("certificate until {ends}"))
}

/// Make an administrator when nobody can be one any more: with the root key, on the server's
/// machine.
///
/// Written to the audit log; servers that run on the store raise an alarm in their log and metrics.
/// An administrator of that name loses the certificate that there was; others keep theirs: revoke
/// who must not be one.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver break-glass admin-2 --config /var/lib/strongroom/server.toml --share-file s1 --share-file s2 --server https://keys.example.org:8443 --out /root/admin-2"))]
pub(super) struct BreakGlassArgs {
    /// The administrator's name
    name: String,
    /// An address of the server, for the configuration that is written; made of server.toml unless
    /// given
    #[arg(long = "server", value_name = "URL")]
    servers: Vec<String>,
    /// Directory for the configuration, the certificate and the private key
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    root: RootOptions,
}

impl BreakGlassArgs {
    /// Makes an administrator with the server's root key, writes its configuration, certificate and
    /// private key into new files, and prints that. Warns with SR-8472; the audit log records it.
    /// Errors: SR-2013 for the name, SR-8408 for an address, SR-1002 if a file exists, SR-8424 if
    /// the name is that of another client; as [`RootOptions::open`]; SR-5001 when the system
    /// reports an error.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let name = named(&self.name)?;
        let config = Config::read(&self.root.config)?;
        Node::check_servers(&self.servers)?;
        let file = |end: &str| self.out.join(format!("{name}.{end}"));
        let files = ["toml", "pem", "key", "authority.pem"].map(file);
        for path in &files {
            if path.symlink_metadata().is_ok() {
                return Err(Failure::new(&code::EXISTS, path.display().to_string()));
            }
        }
        std::fs::create_dir_all(&self.out).map_err(|error| Failure::io(&self.out, &error))?;
        let authority = config.path(&config.tls.authority);
        let authority =
            std::fs::read(&authority).map_err(|error| Failure::open(&authority, &error))?;
        let issued = self.root.open()?.break_glass(name)?;
        let servers = match self.servers.is_empty() {
            true => vec![config.url()],
            false => self.servers.clone(),
        };
        let text = strongroom_keys_server::init::node_config(
            &servers,
            &format!("{name}.authority.pem"),
            name,
        );
        let [toml, certificate, key, own_authority] = &files;
        paths::create_private(key, issued.key.as_bytes())?;
        paths::create_new(certificate, issued.certificate.as_bytes())?;
        paths::create_new(own_authority, &authority)?;
        paths::create_new(toml, text.as_bytes())?;
        warn(&code::SERVER_BREAK_GLASS, name);
        let ends = rfc3339(issued.expires);
        let toml = toml.display();
        context
            .output
            .line(&format!("administrator {name} until {ends}: {toml}"))
    }
}
