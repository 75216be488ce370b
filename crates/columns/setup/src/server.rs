//! The server: who runs it, where its files are, and what it has loaded.
//!
//! The server itself is asked, over its socket, with the rights of the user who runs it. Who that
//! is, the kernel says. What the server says is used with that user's rights only, because somebody
//! else may listen at a socket in a directory that all users can write to.
//!
//! Must not: change anything.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use strongroom_columns_proxy::conversion::server_error;
use strongroom_format::code;
use strongroom_keyring::Error;
use strongroom_launch::owner::{acting_as, user_name};
use strongroom_postgres_wire::client::{
    Config, Secret, Socket, StatementClient, TextRow, connect_local,
};

use crate::files::{above, in_the_way};
use crate::libraries::has_library;
use crate::options::Setup;
use crate::places::SOCKET;
use crate::shell::{shell_line, shell_word};
use crate::systemd;

/// The one version of PostgreSQL that the extension is for.
const MAJOR: &str = "15";
/// How long an answer may take: whoever listens could let root wait for ever.
const ANSWER_MAX: Duration = Duration::from_secs(120);
/// The database that a server has from the beginning.
const MAINTENANCE: &str = "postgres";
/// What is asked first: nothing that a database's owner has defined is to be found by its name.
const OWN_NAMES: &str = "SET search_path = pg_catalog, pg_temp";
/// The facts, in the order of [`Server::of`].
const FACTS: &str = "SELECT current_setting('data_directory'), current_setting('config_file'), \
    current_setting('server_version_num')::int / 10000, current_setting('port'), \
    current_setting('listen_addresses'), \
    current_setting('shared_preload_libraries'), current_setting('strongroom.zone', true), \
    pg_is_in_recovery(), \
    current_setting('max_replication_slots')::int > 0 AND current_setting('wal_level') <> 'minimal', \
    (SELECT setting FROM pg_config WHERE name = 'PKGLIBDIR'), \
    (SELECT setting FROM pg_config WHERE name = 'BINDIR'), \
    EXISTS (SELECT FROM pg_available_extensions WHERE name = 'strongroom_columns')";

/// A server, as it has described itself.
pub(crate) struct Server {
    /// The number of the user who runs it.
    pub(crate) owner: u32,
    /// That user's name.
    pub(crate) owner_name: String,
    /// Its data directory.
    pub(crate) data: PathBuf,
    /// Its main configuration file.
    pub(crate) configuration: PathBuf,
    /// Whether it is a standby.
    pub(crate) is_standby: bool,
    port: String,
    listens: String,
    libraries: String,
    zone: String,
    programs: PathBuf,
    socket: PathBuf,
}

impl Server {
    /// Asks the server at the socket. SR-8126 when it is of another version than 15, when the user
    /// is no superuser, when it has no replication slots, or when the data directory is not that
    /// of the user who listens; SR-8128 when the extension is not installed; SR-8122 when the
    /// server refuses; SR-6021, SR-5001.
    pub(crate) fn ask(setup: &Setup) -> Result<Self, Error> {
        let path = &setup.socket;
        let probe = connect_local(path).map_err(|error| {
            let why = format!(
                "{}: is the server running, and is this its socket?",
                path.display()
            );
            Error::io(why, error)
        })?;
        let owner = listener(&probe).map_err(|error| Error::on_path(path, error))?;
        if owner == 0 {
            return Err(in_the_way(
                path,
                "is root's: no PostgreSQL server listens there",
            ));
        }
        let owner_name = user_name(owner).ok_or_else(|| {
            in_the_way(
                path,
                &format!("is of user {owner}, whom the system does not know"),
            )
        })?;
        let mut client = connect(setup, owner, MAINTENANCE)?;
        let answer = client.run("SELECT current_setting('is_superuser')");
        let answer = answer.map_err(|error| server_error(&error))?;
        if answer.rows.first().and_then(|row| row.first()?.as_deref()) != Some("on") {
            let why = format!(
                "lets {} in, who is no superuser: name one with --user",
                setup.user
            );
            return Err(in_the_way(path, &why));
        }
        let answer = client.run(FACTS).map_err(|error| server_error(&error))?;
        let row = answer.rows.into_iter().next().unwrap_or_default();
        Self::of(row, owner, owner_name, path)
    }

    /// Makes the server's description of the answer to [`FACTS`], and checks it. Errors: as
    /// [`Self::ask`].
    fn of(row: TextRow, owner: u32, owner_name: String, socket: &Path) -> Result<Self, Error> {
        let mut fields = row.into_iter().map(Option::unwrap_or_default);
        let mut next = || fields.next().unwrap_or_default();
        let (data, configuration) = (PathBuf::from(next()), PathBuf::from(next()));
        let (major, port, listens) = (next(), next(), next());
        let (libraries, zone, is_standby, has_slots) = (next(), next(), next(), next());
        let (library, programs, is_available) = (next(), PathBuf::from(next()), next());
        if major != MAJOR {
            let why = format!("is of a PostgreSQL {major}, and the extension is for {MAJOR}");
            return Err(in_the_way(socket, &why));
        }
        if has_slots != "t" {
            let why = "is of a server without replication slots, of which the extension needs one: set \
                max_replication_slots above 0 and wal_level to replica, and restart the server";
            return Err(in_the_way(socket, why));
        }
        let about = std::fs::metadata(&data).map_err(|error| Error::on_path(&data, error))?;
        if about.uid() != owner {
            let why = format!(
                "belongs to user {}, and the server runs as {owner}",
                about.uid()
            );
            return Err(in_the_way(&data, &why));
        }
        let library = Path::new(&library).join("strongroom_columns.so");
        if is_available != "t" || !library.is_file() {
            let detail = library.display().to_string();
            return Err(Error::new(&code::COLUMN_NOT_INSTALLED, detail));
        }
        Ok(Self {
            owner,
            owner_name,
            data,
            configuration,
            is_standby: is_standby == "t",
            port,
            listens,
            libraries,
            zone,
            programs,
            socket: socket.to_path_buf(),
        })
    }

    /// Returns whether the running server has loaded the library and knows the zone's socket.
    pub(crate) fn has_loaded(&self) -> bool {
        has_library(&self.libraries) && self.zone == SOCKET
    }

    /// Returns the version and the name of the cluster of postgresql-common, if it is one: its
    /// configuration is in `/etc/postgresql/VERSION/NAME`.
    pub(crate) fn cluster(&self) -> Option<(String, String)> {
        let below = self.configuration.strip_prefix("/etc/postgresql").ok()?;
        let mut parts = below.iter().map(|part| part.to_string_lossy().into_owned());
        let found = (parts.next()?, parts.next()?);
        (parts.next()? == "postgresql.conf").then_some(found)
    }

    /// Returns the command line that restarts the server.
    pub(crate) fn restart_command(&self) -> String {
        match self.cluster() {
            Some((version, name)) if systemd::is_managed() => shell_line(&[
                "systemctl",
                "restart",
                &format!("postgresql@{version}-{name}"),
            ]),
            Some((version, name)) => shell_line(&["pg_ctlcluster", &version, &name, "restart"]),
            None => {
                let (program, data) = (self.programs.join("pg_ctl"), self.data.display());
                let program = program.display().to_string();
                let user = &self.owner_name;
                let data = data.to_string();
                shell_line(&[
                    "runuser", "-u", user, "--", &program, "-D", &data, "restart",
                ])
            }
        }
    }

    /// Returns the command lines with which the owner of the data makes a key and starts a proxy.
    pub(crate) fn proxy_commands(&self) -> Vec<String> {
        let proxy = format!(
            "strongroom columns proxy --listen 127.0.0.1:6432 --server {} --key-id columns \
             --accept-process-attestation",
            shell_word(&self.address())
        );
        vec![
            String::from("strongroom keyring init --provider passphrase"),
            String::from("strongroom key create columns"),
            proxy,
        ]
    }

    /// Returns the address at which a proxy reaches the server: this machine's name if the server
    /// listens to others, otherwise 127.0.0.1; its socket if it listens at no port.
    fn address(&self) -> String {
        let listens = self.listens.split(',').map(str::trim);
        let mut listens = listens.filter(|address| !address.is_empty()).peekable();
        if listens.peek().is_none() {
            return self.socket.display().to_string();
        }
        let is_local = |address: &str| matches!(address, "localhost" | "127.0.0.1" | "::1");
        let host = if listens.all(is_local) {
            String::from("127.0.0.1")
        } else {
            let name = rustix::system::uname();
            name.nodename().to_string_lossy().into_owned()
        };
        format!("{host}:{}", self.port)
    }
}

/// Connects to a database of the server at `setup.socket`, acting as the operating system's user
/// with the number `owner`. SR-8126 if another user listens at the socket; SR-8122 if the server
/// refuses the login; SR-6021 if this process cannot act as that user; SR-5001 if the connection
/// fails.
pub(crate) fn connect(setup: &Setup, owner: u32, database: &str) -> Result<StatementClient, Error> {
    let path = &setup.socket;
    let connected = acting_as(owner, above(path), || {
        let stream = connect_local(path)?;
        let user = listener(&stream)?;
        Ok((stream, user))
    })?;
    let failed = |error: std::io::Error| Error::on_path(path, error);
    let (stream, user) = connected.map_err(failed)?;
    stream.set_read_timeout(Some(ANSWER_MAX)).map_err(failed)?;
    if user != owner {
        return Err(in_the_way(path, "became another user's meanwhile"));
    }
    let password = setup.password.as_ref();
    let password = password.map(|password| Secret::new(password.as_slice().to_vec()));
    let config = Config::without_tls(&setup.user, database, password);
    let client = StatementClient::on_socket(Socket::Local(stream), &config);
    let mut client = client.map_err(|error| server_error(&error))?;
    client
        .run(OWN_NAMES)
        .map_err(|error| server_error(&error))?;
    Ok(client)
}

/// Returns the number of the user who listens at the other end of a connection. The error is the
/// system's.
fn listener(stream: &std::os::unix::net::UnixStream) -> std::io::Result<u32> {
    Ok(socket_peercred(stream)?.uid.as_raw())
}
