//! Creating a key server: its root key, authority, certificates, store and configuration.
//!
//! Invariants:
//! - I1: No existing file is overwritten.
//! - I2: The configuration is written last, so that a server whose creation was interrupted cannot
//!   be started.
//! - I3: Files with private keys are readable by their owner only.
//!
//! Must not: write the root key anywhere but into a keyring; the caller gets it only as shares.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use strongroom_crypto::{SecretBytes, SecretKey, random16};
use strongroom_format::code;
use strongroom_format::hex::hex;
use strongroom_keyring::{Error, Keyring, Provider, durable};

use crate::authority::IssuedCertificate;
use crate::config::{Config, Etcd, Policy, Root};
use crate::keys::{Keys, ROOT_KEY_NAME, ServerId};
use crate::records::{Identity, Role};
use crate::service::write_initial_records;
use crate::{authority, names, now, shares, store};

/// The file of the keyring that holds the root key, in the directory of the configuration.
const KEYRING: &str = "root.keyring";
/// The name of the first administrator.
pub const ADMIN: &str = "admin";

/// The source of the root key.
pub enum RootSource {
    /// A keyring whose own root key comes from this provider.
    Provider(Provider),
    /// Shares.
    Shares {
        /// How many shares are needed.
        threshold: u8,
        /// How many shares there are.
        shares: u8,
    },
}

/// The settings of a server that is to be created.
pub struct NewServer {
    /// The path of the configuration. All other files are in its directory.
    pub config: PathBuf,
    /// `sqlite:FILE`, or `etcd:URL,URL...`.
    pub store: String,
    /// Names and addresses of the server. Clients use the first one.
    pub names: Vec<String>,
    /// The address on which it will listen.
    pub address: SocketAddr,
    /// The address of the fleet page; `None`: no fleet page.
    pub page: Option<SocketAddr>,
    /// The source of its root key.
    pub root: RootSource,
}

/// A server that was created.
pub struct CreatedServer {
    /// Its files, the configuration last.
    pub files: Vec<PathBuf>,
    /// The shares, if its root key is in shares. Only the caller has them.
    pub shares: Vec<SecretBytes>,
}

/// Checks that the server could be served: the fleet page has an address of its own, and the SQLite
/// store does not take the place of another file of the server. SR-8434 if not.
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

/// Creates a server: its root key, authority, certificates for itself and a first administrator,
/// store and files, the configuration last. Returns the files and, where the root key is in shares,
/// the shares, which nobody else has. After a failure, files that were written stay.
///
/// # Errors
/// SR-1002 when one of its files exists; SR-8412 for a name; SR-8434 for addresses, files or
/// numbers of shares that do not fit; SR-8424 when the store holds a server; SR-5001 when the
/// system reports an error; what the keyring, its provider or the store reports.
pub fn init(new: &NewServer) -> Result<CreatedServer, Error> {
    init_with(new, None)
}

/// Creates a server as [`init`] does, with the settings of etcd. Their paths are relative to the
/// directory of the configuration.
///
/// # Errors
/// SR-1002 when one of its files exists, and the others of [`init`]; SR-8440 for a file of `etcd`.
pub fn init_with(new: &NewServer, etcd: Option<Etcd>) -> Result<CreatedServer, Error> {
    let absolute = std::path::absolute(&new.config);
    let path = absolute.map_err(|error| Error::io(new.config.display().to_string(), error))?;
    let directory = path
        .parent()
        .unwrap_or_else(|| Path::new("/"))
        .to_path_buf();
    let path_of = |name: &str| directory.join(name);
    let admin_config = path_of("admin.toml");
    let files = [
        "authority.pem",
        "server.pem",
        "server.key",
        "admin.pem",
        "admin.key",
    ]
    .map(path_of);
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
    let authority = authority::create_authority(hex(&id).get(..8).unwrap_or_default())?;
    let days = Policy::default().server_certificate_days;
    let server = authority::issue_server_certificate(&authority, &new.names, days)?;
    let (root, root_config, shares) = create_root_key(&new.root, &id, &directory)?;
    let mut config = Config::new(
        &id,
        new.names.clone(),
        new.address,
        new.store.clone(),
        root_config,
    );
    config.directory.clone_from(&directory);
    config.page = new.page;
    config.etcd = etcd;
    let admin =
        authority::issue_client_certificate(&authority, ADMIN, config.policy.certificate_days)?;
    let identity = admin_identity(&admin)?;
    write_initial_records(
        store::open(&config, &root, true)?,
        &root,
        &id,
        &authority,
        (&admin.spki, &identity),
    )?;
    drop(root);
    let [authority_pem, server_pem, server_key, admin_pem, admin_key] = &files;
    write_new(authority_pem, authority.certificate.as_bytes(), 0o644)?;
    write_new(server_pem, server.certificate.as_bytes(), 0o644)?;
    write_new(server_key, server.key.as_bytes(), 0o600)?;
    write_new(admin_pem, admin.certificate.as_bytes(), 0o644)?;
    write_new(admin_key, admin.key.as_bytes(), 0o600)?;
    let client = node_config(&[config.url()], "authority.pem", ADMIN);
    write_new(&admin_config, client.as_bytes(), 0o644)?;
    write_new(&path, config.text()?.as_bytes(), 0o644)?;
    let files = files.into_iter().chain([admin_config, path]).collect();
    Ok(CreatedServer { files, shares })
}

/// Makes the identity of the first administrator, with this certificate. SR-5001 without random
/// numbers.
fn admin_identity(certificate: &IssuedCertificate) -> Result<Identity, Error> {
    Ok(Identity {
        name: ADMIN.to_owned(),
        role: Role::Admin,
        may_create: false,
        may_destroy: false,
        enrolled: now(),
        expires: certificate.expires,
        enrolment: Some(hex(&random16()?)),
        unused: false,
        certificate: Some(certificate.fingerprint.clone()),
    })
}

/// Creates the root key: in a new keyring in the directory, or in shares. Returns it, its section
/// of the configuration, and its shares, which are empty with a keyring. SR-2015 when there is a
/// keyring; SR-8434 for a threshold that does not fit; what the provider reports.
fn create_root_key(
    source: &RootSource,
    id: &ServerId,
    directory: &Path,
) -> Result<(SecretKey, Root, Vec<SecretBytes>), Error> {
    match source {
        RootSource::Provider(provider) => {
            let mut keyring = Keyring::init(&directory.join(KEYRING), provider)?;
            keyring.create_key(ROOT_KEY_NAME)?;
            let key = keyring.key(ROOT_KEY_NAME, None)?;
            let root = Root {
                check: hex(&Keys::check_value(&key, id)?),
                keyring: Some(KEYRING.into()),
                threshold: None,
                share_hashes: Vec::new(),
            };
            Ok((key, root, Vec::new()))
        }
        RootSource::Shares { threshold, shares } => {
            let key = SecretKey::generate()?;
            let (texts, hashes) = shares::split(&key, id, *threshold, *shares)?;
            let root = Root {
                check: hex(&Keys::check_value(&key, id)?),
                keyring: None,
                threshold: Some(*threshold),
                share_hashes: hashes.iter().map(|hash| hex(hash)).collect(),
            };
            Ok((key, root, texts))
        }
    }
}

/// Writes the text of the configuration with which a client uses its certificate. The paths in it
/// are relative to its directory.
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

/// Writes a new file with this mode, durably. SR-1002 when it exists; SR-5001 when the system
/// reports an error.
pub(crate) fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Error> {
    durable::create_new(path, bytes, mode).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Error::new(&code::EXISTS, path.display().to_string()),
        _ => Error::io(path.display().to_string(), error),
    })
}
