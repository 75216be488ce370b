//! A key server in this process, on a free port, and a small client that sends the given bytes
//! without changing them.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::unwrap_in_result,
    reason = "a test that panics has failed, which is what it is for"
)]
#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each test binary uses a part of this module"
)]

pub(crate) mod service;
pub(crate) mod store;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::{Value, json};
use strongroom_keyring::Provider;
use strongroom_keys_server::config::Config;
use strongroom_keys_server::http::Interface;
use strongroom_keys_server::init::{NewServer, RootSource, init};
use strongroom_keys_server::serve::serve;
use strongroom_keys_server::server::Server;
use strongroom_keys_server::tls;
use strongroom_tls::{ServerCheck, TlsClient};
use tokio::sync::watch;

/// The longest wait for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The files of a server, as `init` created them, and its shares.
pub(crate) struct Installation {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) shares: Vec<String>,
}

impl Installation {
    /// A new server whose root key comes from the provider `file`.
    pub(crate) fn with_provider() -> Self {
        Self::with_provider_in(tempfile::tempdir().unwrap())
    }

    /// As [`Installation::with_provider`], in this directory.
    pub(crate) fn with_provider_in(directory: tempfile::TempDir) -> Self {
        let root = directory.path().join("root.key");
        std::fs::File::create(&root)
            .unwrap()
            .write_all(&[b'5'; 64])
            .unwrap();
        let provider = Provider::parse(&format!("file:{}", root.display())).unwrap();
        Self::create(directory, RootSource::Provider(provider))
    }

    /// A new server whose root key is in shares.
    pub(crate) fn with_shares(threshold: u8, shares: u8) -> Self {
        Self::create(
            tempfile::tempdir().unwrap(),
            RootSource::Shares { threshold, shares },
        )
    }

    fn create(directory: tempfile::TempDir, root: RootSource) -> Self {
        let new = NewServer {
            config: directory.path().join("server.toml"),
            store: "sqlite:keys.db".to_owned(),
            names: vec!["localhost".to_owned(), "127.0.0.1".to_owned()],
            address: "127.0.0.1:0".parse().unwrap(),
            page: None,
            root,
        };
        let made = init(&new).unwrap();
        let text = |share: &strongroom_crypto::SecretBytes| {
            String::from_utf8(share.as_slice().to_vec()).unwrap()
        };
        let shares = made.shares.iter().map(text).collect();
        Self { directory, shares }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Changes the text of the configuration.
    pub(crate) fn edit(&self, change: impl FnOnce(String) -> String) {
        let path = self.path("server.toml");
        let text = change(std::fs::read_to_string(&path).unwrap());
        std::fs::File::create(&path)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }
}

/// A server that runs until it is dropped.
pub(crate) struct Running {
    pub(crate) server: Arc<Server>,
    pub(crate) address: SocketAddr,
    authority: Vec<u8>,
    stop: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    /// Starts the server, sealed.
    pub(crate) fn sealed(installation: &Installation) -> Self {
        let config = Config::read(&installation.path("server.toml")).unwrap();
        let (_, tls_of) = watch::channel(tls::server_config(&config).unwrap());
        let server = Arc::new(Server::sealed(config).unwrap());
        let (stop, stopped) = watch::channel(false);
        let (tell, told) = std::sync::mpsc::channel();
        let shared = Arc::clone(&server);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                serve(shared, Interface::Api, listener, tls_of, stopped).await;
            });
        });
        let authority = std::fs::read(installation.path("authority.pem")).unwrap();
        Self {
            server,
            address: told.recv().unwrap(),
            authority,
            stop,
            thread: Some(thread),
        }
    }

    /// Starts the server, which its provider opens.
    pub(crate) fn open(installation: &Installation) -> Self {
        let running = Self::sealed(installation);
        running.server.unseal_by_provider().unwrap();
        running
    }

    /// A client with this certificate, or without one.
    pub(crate) fn client(&self, identity: Option<&Identity>) -> Client {
        Client::connect(self.address, &self.authority, identity).unwrap()
    }

    /// The first administrator.
    pub(crate) fn admin(&self, installation: &Installation) -> Client {
        self.client(Some(&Identity::from_files(installation, "admin")))
    }

    /// Enrols a client, and returns its certificate.
    pub(crate) fn enrol(&self, installation: &Installation, token: &Value) -> Identity {
        let made = self.admin(installation).post("/v1/tokens", token);
        assert_eq!(made.status, 201, "{}", made.text());
        let token = made.json()["token"].as_str().unwrap().to_owned();
        let (enrolled, identity) = self.enrol_with(&token);
        assert_eq!(enrolled.status, 201, "{}", enrolled.text());
        identity.unwrap()
    }

    /// Enrols a client with a token.
    pub(crate) fn enrol_with(&self, token: &str) -> (Answer, Option<Identity>) {
        let (key, request) = request("whatever");
        let answer = self
            .client(None)
            .post("/v1/enroll", &json!({"token": token, "csr": request}));
        let identity = (answer.status == 201).then(|| Identity {
            certificate: answer.json()["certificate"].as_str().unwrap().to_owned(),
            key,
        });
        (answer, identity)
    }

    /// Enrols a node that may create keys.
    pub(crate) fn node(&self, installation: &Installation, name: &str) -> Identity {
        let token = json!({"node": name, "role": "node", "may_create": true, "may_destroy": true, "expires_seconds": 600});
        self.enrol(installation, &token)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _told = self.stop.send(true);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// A new private key and a request for a certificate for it.
pub(crate) fn request(name: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    let request = params.serialize_request(&key).unwrap().pem().unwrap();
    (key.serialize_pem(), request)
}

/// A client's certificate and private key, in PEM.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Identity {
    pub(crate) fn from_files(installation: &Installation, name: &str) -> Self {
        let read = |end: &str| {
            std::fs::read_to_string(installation.path(&format!("{name}.{end}"))).unwrap()
        };
        Self {
            certificate: read("pem"),
            key: read("key"),
        }
    }
}

/// A client's side of TLS: the server's authority, and the client's certificate and private key, in
/// PEM.
pub(crate) fn tls_client(authority: &[u8], identity: Option<(&str, &str)>) -> Arc<ClientConfig> {
    let authority = strongroom_tls::certificates(authority).unwrap();
    let check = ServerCheck::Authorities(strongroom_tls::authorities(authority).unwrap());
    let identity = identity.map(|(certificate, key)| {
        strongroom_tls::Identity::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap()
    });
    Arc::new(TlsClient::new(check).identity(identity).build().unwrap())
}

/// One connection.
pub(crate) struct Client {
    stream: StreamOwned<ClientConnection, TcpStream>,
}

/// A response.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{}", self.text()))
    }

    /// The code of the error.
    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// Asserts the status and the code of the error.
    pub(crate) fn refused(&self, status: u16, code: &str) {
        assert_eq!(
            (self.status, self.code().as_str()),
            (status, code),
            "{}",
            self.text()
        );
    }
}

impl Client {
    /// Connects and does the handshake. Returns its failure.
    pub(crate) fn connect(
        address: SocketAddr,
        authority: &[u8],
        identity: Option<&Identity>,
    ) -> std::io::Result<Self> {
        let identity = identity.map(|of| (of.certificate.as_str(), of.key.as_str()));
        let config = tls_client(authority, identity);
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(config, name).unwrap();
        let socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let mut stream = StreamOwned::new(connection, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Self { stream })
    }

    /// Sends these bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Reads one response.
    pub(crate) fn answer(&mut self) -> std::io::Result<Answer> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.lines();
        let status = lines
            .next()
            .unwrap()
            .split(' ')
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        let headers: BTreeMap<String, String> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let length = headers
            .get("content-length")
            .map_or(0, |text| text.parse().unwrap());
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok(Answer {
            status,
            headers,
            body,
        })
    }

    pub(crate) fn try_ask(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
    ) -> std::io::Result<Answer> {
        let mut bytes = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n").into_bytes();
        if method != "GET" {
            let kind = match method == "PUT" && path.starts_with("/v1/escrow/") {
                true => "octet-stream",
                false => "json",
            };
            write!(bytes, "Content-Type: application/{kind}\r\n")?;
        }
        if let Some(body) = body {
            write!(bytes, "Content-Length: {}\r\n", body.len())?;
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(body.unwrap_or_default());
        self.send(&bytes)?;
        self.answer()
    }

    pub(crate) fn ask(&mut self, method: &str, path: &str, body: Option<&[u8]>) -> Answer {
        self.try_ask(method, path, body).unwrap()
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.ask("GET", path, None)
    }

    pub(crate) fn delete(&mut self, path: &str) -> Answer {
        self.ask("DELETE", path, None)
    }

    pub(crate) fn post(&mut self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, Some(body.to_string().as_bytes()))
    }

    /// The material of a key, in base64.
    pub(crate) fn material(&mut self, name: &str, version: &str) -> String {
        let answer = self.get(&format!("/v1/keys/{name}/versions/{version}/material"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["material"].as_str().unwrap().to_owned()
    }
}

/// The bytes of every file below a directory.
pub(crate) fn all_bytes(directory: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let file = std::fs::read(&path).unwrap();
            // Space that was taken in advance is not looked through.
            let end = file
                .iter()
                .rposition(|byte| *byte != 0)
                .map_or(0, |at| at + 1);
            bytes.extend_from_slice(&file[..end]);
        }
    }
    bytes
}
