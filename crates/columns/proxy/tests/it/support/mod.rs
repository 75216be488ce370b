//! A PostgreSQL server of the test's own, and a proxy before it. Shared by the integration tests.
#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]

pub(crate) mod harness;

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use strongroom_columns_proxy::keys::ColumnKeys;
use strongroom_columns_proxy::proxy::{Address, Config, PlaintextConstants, Proxy, Tls};
use strongroom_columns_proxy::relations::KnownRelations;
use strongroom_columns_proxy::sql::pins::PinnedColumn;
use strongroom_columns_zone::session::attest::Attester;
use strongroom_columns_zone::session::channel::{Channel, Prover};
use strongroom_crypto::SecretKey;
use strongroom_testing_support::account;
use strongroom_testing_support::process::checked;
use strongroom_testing_support::programs::{self, bindir};

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A server, stopped and removed when dropped.
pub(crate) struct Server {
    directory: PathBuf,
}

impl Server {
    /// Makes an instance and starts it on a UNIX socket.
    pub(crate) fn start(auth: &str) -> Self {
        Self::start_with(auth, "")
    }

    /// The same with further options for the server.
    pub(crate) fn start_with(auth: &str, more: &str) -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("strongroom-proxy-{}-{number}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o777)).unwrap();
        let server = Self { directory };
        let data = server.directory.join("data");
        let password = server.directory.join("password");
        checked(
            as_postgres("sh")
                .arg("-c")
                .arg(format!("echo secret > {}", password.display())),
        );
        checked(
            program("initdb")
                .arg("-D")
                .arg(&data)
                .arg("--no-sync")
                .arg("-A")
                .arg(auth)
                .arg("--locale=C")
                .arg("-E")
                .arg("UTF8")
                .arg("-U")
                .arg("postgres")
                .arg("--pwfile")
                .arg(&password),
        );
        let options = format!(
            "-c listen_addresses= -c unix_socket_directories={} -c fsync=off -c log_statement=all {more}",
            server.directory.display()
        );
        checked(
            program("pg_ctl")
                .arg("-D")
                .arg(&data)
                .arg("-w")
                .arg("-o")
                .arg(options)
                .arg("-l")
                .arg(server.directory.join("log"))
                .arg("start"),
        );
        server
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join(".s.PGSQL.5432")
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// What the server has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap()
    }

    /// Takes no connection by TCP without TLS from now on.
    pub(crate) fn only_with_tls(&self) {
        let data = self.directory.join("data");
        let rules = data.join("pg_hba.conf");
        let edit = format!("sed -i 's/^host /hostssl /' {}", rules.display());
        checked(as_postgres("sh").args(["-c", &edit]));
        checked(program("pg_ctl").arg("-D").arg(&data).arg("reload"));
    }

    /// A proxy before it, on another socket of the same directory: its port number.
    pub(crate) fn proxy(&self) -> u16 {
        proxy_before(Address::Unix(self.socket()), &self.directory)
    }
}

/// Starts a proxy in this process, listening in `directory` as PostgreSQL would on the port that is
/// returned.
pub(crate) fn proxy_before(server: Address, directory: &Path) -> u16 {
    proxy_with(server, directory, PlaintextConstants::Refuse)
}

/// The same, with columns that are confidential whatever the server says.
pub(crate) fn proxy_pinned(server: Address, directory: &Path, pinned: &[&str]) -> u16 {
    let parse = |text: &&str| PinnedColumn::parse(text).unwrap();
    let mut config = config(server, PlaintextConstants::Refuse);
    config.pinned = pinned.iter().map(parse).collect();
    started(config, directory)
}

/// The same, with what is to be done with constants that cannot be placed.
pub(crate) fn proxy_with(
    server: Address,
    directory: &Path,
    plaintext_constants: PlaintextConstants,
) -> u16 {
    started(config(server, plaintext_constants), directory)
}

/// A proxy's configuration that does not say yet where it listens.
pub(crate) fn config(server: Address, plaintext_constants: PlaintextConstants) -> Config {
    Config {
        listen: Vec::new(),
        server,
        keys: ColumnKeys::from_keys(&[SecretKey::generate().unwrap()]).unwrap(),
        terms: None,
        tls: Tls::default(),
        plaintext_constants,
        pinned: Vec::new(),
        adopted: std::collections::BTreeMap::new(),
        adopted_databases: std::collections::BTreeMap::new(),
        relations: std::sync::Arc::new(KnownRelations::in_memory()),
        connections_max: 200,
    }
}

/// Starts a proxy on a socket in the directory; its port.
pub(crate) fn started(mut config: Config, directory: &Path) -> u16 {
    let port = 6000 + u16::try_from(NUMBER.fetch_add(1, Ordering::Relaxed)).unwrap();
    config.listen = vec![Address::Unix(directory.join(format!(".s.PGSQL.{port}")))];
    let proxy = Proxy::bind(config).unwrap();
    std::fs::set_permissions(
        directory.join(format!(".s.PGSQL.{port}")),
        std::fs::Permissions::from_mode(0o777),
    )
    .unwrap();
    std::thread::spawn(move || proxy.run());
    port
}

impl Drop for Server {
    fn drop(&mut self) {
        let data = self.directory.join("data");
        let _stopped = program("pg_ctl")
            .arg("-D")
            .arg(data)
            .arg("-m")
            .arg("immediate")
            .arg("stop")
            .output();
        let _removed = std::fs::remove_dir_all(&self.directory);
    }
}

/// A program of PostgreSQL's, as its user.
fn program(name: &str) -> Command {
    as_postgres(programs::program(&bindir(), name))
}

/// Any program as PostgreSQL's user.
fn as_postgres(program: impl AsRef<OsStr>) -> Command {
    let mut command = account::command(program);
    command.current_dir("/");
    command
}

/// A client program of PostgreSQL's, over the socket in `directory`.
pub(crate) fn client(program: &str, directory: &Path, port: u16) -> Command {
    let mut command = Command::new(programs::program(&bindir(), program));
    command
        .env("PGHOST", directory)
        .env("PGPORT", port.to_string())
        .env("PGUSER", "postgres");
    command
        .env("PGPASSWORD", "secret")
        .env("PGDATABASE", "postgres");
    command
}

/// Runs psql on a script: what it prints, errors included.
pub(crate) fn psql(directory: &Path, port: u16, script: &str) -> String {
    use std::io::Write as _;
    use std::process::Stdio;
    let mut child = client("psql", directory, port)
        .args([
            "-X",
            "-q",
            "-v",
            "VERBOSITY=verbose",
            "-v",
            "SHOW_CONTEXT=never",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    let Output { stdout, stderr, .. } = child.wait_with_output().unwrap();
    format!(
        "{}---\n{}",
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr)
    )
}

/// Has the zone's end of a channel attest itself to a client, for a ring of number 1. `proofs` are
/// the ids of column keys and how each is proved, `identity` are store and incarnation.
pub(crate) fn attest(
    channel: &mut Channel,
    attester: &dyn Attester,
    proofs: (&[[u8; 16]], Prover<'_>),
    identity: ([u8; 16], [u8; 16]),
    nonce: [u8; 32],
) -> Vec<u8> {
    let provider = attester.provider();
    let begun = Channel::begin_attestation(provider, proofs, identity, 1, nonce).unwrap();
    let evidence = attester.evidence(begun.binding()).unwrap();
    channel.finish_attestation(begun, evidence)
}
