//! A new key server: root key, authority, certificates, store, configuration.
//!
//! Invariants: I1, nothing that exists is overwritten; I2, the configuration is written last, so a server whose making was broken off
//! cannot be started; I3, private keys are files that nobody else may read.
//!
//! Must not: write the root key anywhere but into a keyring, or in shares to where the caller says.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use strongroom_crypto::{SecretBytes, SecretKey, random16};
use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_keyring::{Error, Keyring, Provider, durable};

use crate::config::{Config, Etcd, Policy, Root};
use crate::keys::{Keys, ServerId};
use crate::records::{Identity, Role};
use crate::server::ROOT_NAME;
use crate::service::found;
use crate::{authority, names, now, shares, store};

/// Name of the keyring that holds the root key, beside the configuration.
const KEYRING: &str = "root.keyring";
/// The first administrator.
pub const ADMIN: &str = "admin";

/// How the root key is to come.
pub enum RootWay {
    /// From a keyring, whose own root key this delivers.
    Provider(Provider),
    /// In shares.
    Shares {
        /// How many are needed.
        threshold: u8,
        /// How many there are.
        shares: u8,
    },
}

/// What is to be made.
pub struct NewServer {
    /// Where the configuration will be; everything else is beside it.
    pub config: PathBuf,
    /// `sqlite:FILE`, or `etcd:URL,URL...`.
    pub store: String,
    /// Names and addresses of the server, the one that clients use first.
    pub names: Vec<String>,
    /// Where it will listen.
    pub address: SocketAddr,
    /// Where the fleet page will be shown; nowhere unless given.
    pub page: Option<SocketAddr>,
    /// How the root key is to come.
    pub root: RootWay,
}

/// What was made.
pub struct Made {
    /// The files, the configuration last.
    pub files: Vec<PathBuf>,
    /// The shares, if there are any: nobody has them but the caller.
    pub shares: Vec<SecretBytes>,
}

/// Refuses what could not be served: two listeners on one address, a store in the place of another
/// file of the server.
fn check_places<'a>(
    new: &NewServer,
    directory: &Path,
    mut files: impl Iterator<Item = &'a PathBuf>,
) -> Result<(), Error> {
    let refused = |detail: String| Err(Error::new(&code::SERVER_CONFIG, detail));
    if new.page == Some(new.address) && new.address.port() != 0 {
        return refused(format!("page: {} is the server's own address", new.address));
    }
    let Some(store) = new.store.strip_prefix("sqlite:") else {
        return Ok(());
    };
    let store = directory.join(store);
    if store == directory.join(KEYRING) || files.any(|file| *file == store) {
        let shown = store.display();
        return refused(format!("store: {shown} is another file of the server"));
    }
    Ok(())
}

/// Makes a server.
///
/// # Errors
/// SR-1002 when something is there already; SR-8424 when the store holds a server; what the provider or the store reports.
pub fn init(new: &NewServer) -> Result<Made, Error> {
    init_with(new, None)
}

/// As [`init`], with what is needed to reach etcd; its files are named from the directory of the configuration.
///
/// # Errors
/// As for [`init`]; SR-8440 for a file of `etcd`.
pub fn init_with(new: &NewServer, etcd: Option<Etcd>) -> Result<Made, Error> {
    let absolute = std::path::absolute(&new.config);
    let path = absolute.map_err(|error| Error::io(new.config.display().to_string(), error))?;
    let directory = path
        .parent()
        .unwrap_or_else(|| Path::new("/"))
        .to_path_buf();
    let made = |name: &str| directory.join(name);
    let admin_config = made("admin.toml");
    let files = [
        "authority.pem",
        "server.pem",
        "server.key",
        "admin.pem",
        "admin.key",
    ]
    .map(made);
    for file in files.iter().chain([&admin_config, &path]) {
        if file.symlink_metadata().is_ok() {
            return Err(Error::new(&code::EXISTS, file.display().to_string()));
        }
    }
    names::check(&new.names)?;
    check_places(new, &directory, files.iter().chain([&path, &admin_config]))?;
    std::fs::create_dir_all(&directory)
        .map_err(|error| Error::io(directory.display().to_string(), error))?;
    let id = random16()?;
    let authority = authority::create(hex(&id).get(..8).unwrap_or_default())?;
    let days = Policy::default().server_certificate_days;
    let server = authority::server(&authority, &new.names, days)?;
    let (root, way, shares) = root_key(&new.root, &id, &directory)?;
    let mut config = Config::new(&id, new.names.clone(), new.address, new.store.clone(), way);
    config.directory.clone_from(&directory);
    config.page = new.page;
    config.etcd = etcd;
    let admin = authority::client(&authority, ADMIN, config.policy.certificate_days)?;
    let identity = Identity {
        name: ADMIN.to_owned(),
        role: Role::Admin,
        may_create: false,
        may_destroy: false,
        enrolled: now(),
        expires: admin.expires,
        enrolment: Some(hex(&random16()?)),
        unused: false,
        certificate: Some(admin.fingerprint.clone()),
    };
    found(
        store::open(&config, &root, true)?,
        &root,
        &id,
        &authority,
        (&admin.spki, &identity),
    )?;
    drop(root);
    let [authority_pem, server_pem, server_key, admin_pem, admin_key] = &files;
    written(authority_pem, authority.certificate.as_bytes(), 0o644)?;
    written(server_pem, server.certificate.as_bytes(), 0o644)?;
    written(server_key, server.key.as_bytes(), 0o600)?;
    written(admin_pem, admin.certificate.as_bytes(), 0o644)?;
    written(admin_key, admin.key.as_bytes(), 0o600)?;
    let client = node_config(&[config.url()], "authority.pem", ADMIN);
    written(&admin_config, client.as_bytes(), 0o644)?;
    written(&path, config.text()?.as_bytes(), 0o644)?;
    let files = files.into_iter().chain([admin_config, path]).collect();
    Ok(Made { files, shares })
}

fn root_key(
    way: &RootWay,
    id: &ServerId,
    directory: &Path,
) -> Result<(SecretKey, Root, Vec<SecretBytes>), Error> {
    match way {
        RootWay::Provider(provider) => {
            let mut keyring = Keyring::init(&directory.join(KEYRING), provider)?;
            keyring.create_key(ROOT_NAME)?;
            let key = keyring.key(ROOT_NAME, None)?;
            let root = Root {
                check: hex(&Keys::check(&key, id)?),
                keyring: Some(KEYRING.into()),
                threshold: None,
                share_hashes: Vec::new(),
            };
            Ok((key, root, Vec::new()))
        }
        RootWay::Shares { threshold, shares } => {
            let key = SecretKey::generate()?;
            let (texts, hashes) = shares::split(&key, id, *threshold, *shares)?;
            let root = Root {
                check: hex(&Keys::check(&key, id)?),
                keyring: None,
                threshold: Some(*threshold),
                share_hashes: hashes.iter().map(|hash| hex(hash)).collect(),
            };
            Ok((key, root, texts))
        }
    }
}

/// The configuration with which an administrator's certificate is used; its files stand beside it.
#[must_use]
pub fn node_config(servers: &[String], authority: &str, name: &str) -> String {
    let servers: Vec<String> = servers
        .iter()
        .map(|server| format!("\"{server}\""))
        .collect();
    format!(
        "servers = [{}]\nauthority = \"{authority}\"\ncertificate = \"{name}.pem\"\nkey = \"{name}.key\"\n",
        servers.join(", ")
    )
}

fn written(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Error> {
    durable::create_new(path, bytes, mode).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Error::new(&code::EXISTS, path.display().to_string()),
        _ => Error::io(path.display().to_string(), error),
    })
}
