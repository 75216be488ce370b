//! A key server in the test's own process, with real TLS on a free port of the loopback interface,
//! and clients of every role.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConnection, StreamOwned};
use strongroom_crypto::SecretBytes;
use strongroom_keys_server::authority::parse_client_certificate;
use strongroom_keys_server::config::Config;
use strongroom_keys_server::http::Interface;
use strongroom_keys_server::init::{self, NewServer, RootSource};
use strongroom_keys_server::records::{Report, Role};
use strongroom_keys_server::serve::serve;
use strongroom_keys_server::server::Server;
use strongroom_keys_server::service::{NewToken, Peer, Service};
use strongroom_keys_server::tls;
use tokio::sync::watch;

use crate::common::tls_client;

/// The server, its files, its shares.
pub(crate) struct Running {
    /// Where its files are; removed with it.
    pub(crate) directory: tempfile::TempDir,
    /// Where the page is.
    pub(crate) address: SocketAddr,
    /// Where the API is.
    pub(crate) api: SocketAddr,
    /// The server itself.
    pub(crate) server: Arc<Server>,
    shares: Vec<SecretBytes>,
    stop: watch::Sender<bool>,
    runtime: Option<tokio::runtime::Runtime>,
}

/// A client's certificate and key, in PEM.
pub(crate) struct Credentials {
    /// The certificate.
    pub(crate) certificate: String,
    /// The private key.
    pub(crate) key: String,
}

/// What was answered.
pub(crate) struct Answered {
    /// Status.
    pub(crate) status: u16,
    /// Headers, with names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// The body.
    pub(crate) body: String,
}

impl Answered {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(one, _)| one == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl Running {
    /// A new server, sealed: two of three shares open it.
    pub(crate) fn sealed() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("server.toml");
        let made = init::init(&NewServer {
            config: path.clone(),
            store: "sqlite:store.db".to_owned(),
            names: vec!["localhost".to_owned(), "127.0.0.1".to_owned()],
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            page: None,
            root: RootSource::Shares {
                threshold: 2,
                shares: 3,
            },
        });
        let made = made.unwrap_or_else(|error| panic!("{error}"));
        let mut config = Config::read(&path).unwrap_or_else(|error| panic!("{error}"));
        // Tests ask more often than people do. Limits have tests of their own.
        config.limits.client_per_second = 100_000;
        config.limits.client_burst = 100_000;
        config.limits.address_per_second = 100_000;
        config.limits.address_burst = 100_000;
        let (tls_sender, tls) = watch::channel(tls::server_config(&config).unwrap());
        let server = Arc::new(Server::sealed(config).unwrap());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let (stop, stopped) = watch::channel(false);
        let tls_sender = Arc::new(tls_sender);
        let listens = |face| {
            let listening = tokio::net::TcpListener::bind(("127.0.0.1", 0));
            let listener = runtime.block_on(listening).unwrap();
            let address = listener.local_addr().unwrap();
            let served = Arc::clone(&server);
            let (tls, stopped, kept) = (tls.clone(), stopped.clone(), Arc::clone(&tls_sender));
            runtime.spawn(async move {
                // Kept, so that it does not count as a change of the certificates.
                let _kept = kept;
                serve(served, face, listener, tls, stopped).await;
            });
            address
        };
        let (address, api) = (listens(Interface::Page), listens(Interface::Api));
        Self {
            directory,
            address,
            api,
            server,
            shares: made.shares,
            stop,
            runtime: Some(runtime),
        }
    }

    /// A new server, open.
    pub(crate) fn open() -> Self {
        let running = Self::sealed();
        running.give_share(0);
        running.give_share(1);
        running
    }

    /// Gives one of the shares.
    pub(crate) fn give_share(&self, number: usize) {
        let text = std::str::from_utf8(self.shares[number].as_slice()).unwrap();
        let given = self.server.give_share(text.trim());
        given.unwrap_or_else(|error| panic!("{error}"));
    }

    /// What does the work.
    pub(crate) fn service(&self) -> Arc<Service> {
        self.server.service().unwrap()
    }

    /// A file that was made with the server.
    pub(crate) fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.directory.path().join(name)).unwrap()
    }

    /// The first administrator.
    pub(crate) fn admin(&self) -> Credentials {
        Credentials {
            certificate: self.file("admin.pem"),
            key: self.file("admin.key"),
        }
    }

    /// Enrols a client.
    pub(crate) fn enrolled(&self, name: &str, role: Role) -> Credentials {
        let service = self.service();
        let token = NewToken {
            node: name.to_owned(),
            role,
            keys: Vec::new(),
            may_create: role == Role::Node,
            may_destroy: false,
            keeps_rights: false,
            expires_s: 600,
        };
        let admin = peer(&self.admin());
        let token = service.create_token(&admin, &token);
        let token = token.unwrap_or_else(|error| panic!("{error}"));
        let key = rcgen::KeyPair::generate().unwrap();
        let request = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        let request = request.serialize_request(&key).unwrap().pem().unwrap();
        let enrolled = service.enroll("127.0.0.1", &token, &request);
        Credentials {
            certificate: enrolled.unwrap_or_else(|e| panic!("{e}")).certificate,
            key: key.serialize_pem(),
        }
    }

    /// Reports an object as this client.
    pub(crate) fn report(&self, client: &Credentials, id: &str, report: &Report) {
        let done = self.service().report(&peer(client), id, report);
        done.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Asks for a page over HTTPS.
    pub(crate) fn get(&self, client: Option<&Credentials>, path: &str) -> Answered {
        self.ask(client, &format!("GET {path} HTTP/1.1\r\n"), "")
    }

    /// Sends a request line with further headers, each with its line end, and a body.
    pub(crate) fn ask(&self, client: Option<&Credentials>, head: &str, body: &str) -> Answered {
        self.ask_at(self.address, client, head, body)
    }

    fn ask_at(
        &self,
        to: SocketAddr,
        client: Option<&Credentials>,
        head: &str,
        body: &str,
    ) -> Answered {
        let request = format!(
            "{head}Host: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = self.connected(to, client);
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // The end may come without TLS's own word for it; the length tells whether all of it is
        // there.
        drop(stream.read_to_end(&mut answer));
        answered(&answer)
    }

    /// Sends to the API a request line with headers, and a body.
    pub(crate) fn ask_api(&self, client: Option<&Credentials>, head: &str, body: &str) -> Answered {
        self.ask_at(self.api, client, head, body)
    }

    fn connected(
        &self,
        to: SocketAddr,
        client: Option<&Credentials>,
    ) -> StreamOwned<ClientConnection, TcpStream> {
        let authority = self.file("authority.pem");
        let client = client.map(|of| (of.certificate.as_str(), of.key.as_str()));
        let config = tls_client(authority.as_bytes(), client);
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(config, name).unwrap();
        StreamOwned::new(connection, TcpStream::connect(to).unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Nobody listens any more when serving has ended.
        let _ended = self.stop.send(true).is_err();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Who a client is to the service.
pub(crate) fn peer(client: &Credentials) -> Peer {
    let certificate = CertificateDer::from_pem_slice(client.certificate.as_bytes()).unwrap();
    Peer {
        certificate: Some(parse_client_certificate(&certificate).unwrap()),
        address: "127.0.0.1".to_owned(),
        ..Peer::default()
    }
}

/// A report on a volume of this name.
pub(crate) fn volume(name: &str) -> Report {
    let now = strongroom_keys_server::now();
    Report {
        kind: "volume".to_owned(),
        name: name.to_owned(),
        cipher: "aes-xts-plain64".to_owned(),
        key_id: "volumes".to_owned(),
        key_version: 1,
        created: now - 3600,
        rotated: None,
        backed_up: None,
        verified: None,
        shredded: None,
    }
}

/// Writes credentials where a browser finds them.
pub(crate) fn saved(directory: &Path, name: &str, client: &Credentials) {
    for (end, text) in [("pem", &client.certificate), ("key", &client.key)] {
        let mut file = std::fs::File::create(directory.join(format!("{name}.{end}"))).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }
}

fn answered(bytes: &[u8]) -> Answered {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no answer: {text:?}"));
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap();
    let headers = lines.map(|line| line.split_once(": ").unwrap());
    let headers: Vec<(String, String)> = headers
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    if let Some((_, length)) = length {
        assert_eq!(body.len(), length.parse::<usize>().unwrap(), "cut off");
    }
    Answered {
        status: status.parse().unwrap(),
        headers,
        body: body.to_owned(),
    }
}
