//! `strongroom keyserver init`: makes a key server: root key, authority, certificates, store,
//! configuration.
//!
//! Must not: overwrite anything; keep the shares.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use strongroom_crypto::SecretBytes;
use strongroom_format::code;
use strongroom_keyring::{Provider, paths};
use strongroom_keys_server::config::Etcd;
use strongroom_keys_server::init::{NewServer, RootSource, init_with};
use strongroom_keys_server::names;

use crate::context::Context;
use crate::failure::{Failure, note};
use crate::help::tail;

/// Make a key server.
///
/// Beside the configuration it makes: the authority's certificate, which nodes need to join; the
/// server's certificate and key; the certificate, key and configuration of the first administrator
/// (admin.toml), to be moved to where administration is done.
#[derive(Args)]
#[command(after_help = tail!("  strongroom keyserver init --store /var/lib/strongroom/keys.db --shares 5 --threshold 3 --shares-out /root/shares --name keys.example.org"))]
pub(super) struct InitArgs {
    #[arg(
        long,
        value_name = "STORE",
        help = "The store: a file, which will be a sealed SQLite database, or etcd:URL,URL..."
    )]
    store: String,
    /// A name or address of the server; may be repeated. The first one is what clients use
    #[arg(long = "name", value_name = "HOST", required = true)]
    names: Vec<String>,
    /// Where to listen
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:8443")]
    address: SocketAddr,
    /// Where to show the fleet page to browsers; nowhere unless given. Nothing can be changed there
    #[arg(long, value_name = "IP:PORT")]
    page_address: Option<SocketAddr>,
    /// The configuration to write; server.toml beside the store unless given
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What delivers the root key, as `keyring init` takes it: `passphrase`, `env:VAR`,
    /// `file:PATH`, `command:CMD`, or one with a client
    #[arg(long, value_name = "PROVIDER", required_unless_present = "shares", conflicts_with_all = ["shares", "threshold"])]
    root_provider: Option<String>,
    /// Split the root key into so many shares, for as many custodians
    #[arg(long, value_name = "N", requires = "threshold", value_parser = clap::value_parser!(u8).range(2..=32))]
    shares: Option<u8>,
    /// So many of them are needed
    #[arg(long, value_name = "K", requires = "shares", value_parser = clap::value_parser!(u8).range(2..=32))]
    threshold: Option<u8>,
    /// The authority's certificate of etcd's members, for https:// addresses
    #[arg(long, value_name = "FILE")]
    etcd_authority: Option<PathBuf>,
    /// The certificate to show to etcd's members
    #[arg(long, value_name = "FILE", requires = "etcd_key")]
    etcd_certificate: Option<PathBuf>,
    /// Its private key
    #[arg(long, value_name = "FILE", requires = "etcd_certificate")]
    etcd_key: Option<PathBuf>,
    /// Directory for the shares, one file each, instead of standard output
    #[arg(long, value_name = "DIR", requires = "shares")]
    shares_out: Option<PathBuf>,
}

impl InitArgs {
    /// Makes a key server: root key, store, certificates and configuration; prints the files.
    /// Shares of the root key are printed, or written into one private file each. Nothing that
    /// exists is overwritten. Errors: SR-8412 for a name of the server, SR-2020 for the provider,
    /// SR-1002 if one of the files exists, SR-8424 if the store holds a server already; the errors
    /// of the provider and the store; SR-5001 when the system reports an error.
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        names::check(&self.names)?;
        let (store, config) = self.places()?;
        let etcd = self.etcd()?;
        let root = match (self.root_provider, self.threshold, self.shares) {
            (Some(provider), ..) => RootSource::Provider(Provider::parse(&provider)?),
            (None, Some(threshold), Some(shares)) => RootSource::Shares { threshold, shares },
            _ => {
                return Err(Failure::usage(
                    "give --root-provider, or --shares and --threshold",
                ));
            }
        };
        if let Some(directory) = &self.shares_out {
            std::fs::create_dir_all(directory).map_err(|e| Failure::io(directory, &e))?;
            // A share that could not be written when the server is made would be lost.
            for number in 1..=self.shares.unwrap_or_default() {
                paths::check_new(&share_file(directory, number))?;
            }
        }
        let new = NewServer {
            config,
            store,
            names: self.names,
            address: self.address,
            page: self.page_address,
            root,
        };
        let made = init_with(&new, etcd)?;
        for (number, share) in (1..).zip(&made.shares) {
            match &self.shares_out {
                Some(directory) => {
                    let path = share_file(directory, number);
                    let bytes = with_line_end(share)?;
                    paths::create_private(&path, bytes.as_slice())?;
                    context
                        .output
                        .line(&format!("share {number}: {}", path.display()))?;
                }
                None => {
                    use std::io::Write as _;
                    let bytes = with_line_end(share)?;
                    let written = context.output.write_all(bytes.as_slice());
                    written.map_err(|e| Failure::output(&e))?;
                }
            }
        }
        if new.address.port() == 0 {
            note(
                "the system chooses the port each time the server starts: write one into `address` of the configuration, and into `servers` of admin.toml",
            );
        }
        if !made.shares.is_empty() {
            note("the shares are nowhere else: give each to its custodian, and keep none");
        }
        for file in &made.files {
            context.output.line(&format!("made {}", file.display()))?;
        }
        Ok(())
    }

    /// Returns the files for TLS with etcd, as absolute paths; `None` if neither an authority nor a
    /// certificate is named. SR-5001 without a working directory. The files are not read.
    fn etcd(&self) -> Result<Option<Etcd>, Failure> {
        let absolute = |path: &Option<PathBuf>| {
            let path = path
                .as_deref()
                .map(|path| std::path::absolute(path).map_err(|error| Failure::io(path, &error)));
            path.transpose()
        };
        let etcd = Etcd {
            authority: absolute(&self.etcd_authority)?,
            certificate: absolute(&self.etcd_certificate)?,
            key: absolute(&self.etcd_key)?,
            ..Etcd::default()
        };
        Ok((etcd.authority.is_some() || etcd.certificate.is_some()).then_some(etcd))
    }

    /// Returns the store as the configuration names it (`sqlite:FILE` or `etcd:...`) and the path
    /// for the configuration. SR-1002 if the store's file exists, SR-1001 for etcd without
    /// `--config` or a path that is not UTF-8; SR-5001 when the system reports an error.
    fn places(&self) -> Result<(String, PathBuf), Failure> {
        if self.store.starts_with("etcd:") {
            let missing = || Failure::usage("--store etcd:... needs --config FILE");
            return Ok((self.store.clone(), self.config.clone().ok_or_else(missing)?));
        }
        let named = PathBuf::from(self.store.strip_prefix("sqlite:").unwrap_or(&self.store));
        let file = std::path::absolute(&named).map_err(|e| Failure::io(&named, &e))?;
        if file.symlink_metadata().is_ok() {
            return Err(Failure::new(&code::EXISTS, file.display().to_string()));
        }
        let config = self
            .config
            .clone()
            .unwrap_or_else(|| file.with_file_name("server.toml"));
        let text = file.to_str().map(|text| format!("sqlite:{text}"));
        let text = text.ok_or_else(|| Failure::usage("the store's path is not UTF-8"))?;
        Ok((text, config))
    }
}

/// Returns the path of the file for this share.
fn share_file(directory: &Path, number: u8) -> PathBuf {
    directory.join(format!("share-{number}.txt"))
}

/// Returns a copy of the share with a line end, in memory that is wiped. SR-5001 if there is no
/// such memory.
fn with_line_end(share: &SecretBytes) -> Result<SecretBytes, Failure> {
    let len = share.len();
    let failed = |error: strongroom_crypto::CryptoError| Failure::new(&code::IO, error.to_string());
    let mut line = SecretBytes::with_capacity(len + 1).map_err(failed)?;
    line.as_mut_slice()[..len].copy_from_slice(share.as_slice());
    line.as_mut_slice()[len] = b'\n';
    Ok(line)
}
