//! An authority, and servers with TLS that answer whatever a test wants: what a key server does,
//! and what it must not.
//!
//! Must not: be taken for the key server; crates/keys/server's tests run the client against that
//! one.
#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]
#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each test binary uses a part of this module"
)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, date_time_ymd,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

/// No wait of a test is longer: what must happen has happened by then, or the test fails.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Who issues certificates.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    pub(crate) fn server(&self, name: &str) -> Issued {
        self.issue(name, ExtendedKeyUsagePurpose::ServerAuth, |_| ())
    }

    pub(crate) fn client(&self, name: &str) -> Issued {
        self.issue(name, ExtendedKeyUsagePurpose::ClientAuth, |_| ())
    }

    pub(crate) fn expired(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> Issued {
        self.issue(name, usage, |params| {
            params.not_before = date_time_ymd(2001, 1, 1);
            params.not_after = date_time_ymd(2002, 1, 1);
        })
    }

    fn issue(
        &self,
        name: &str,
        usage: ExtendedKeyUsagePurpose,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Issued {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Issued {
            certificate,
            key: key.serialize_pem(),
        }
    }

    /// For the key of a certificate request.
    pub(crate) fn sign(&self, request: &str) -> String {
        let request = rcgen_request(request);
        request.signed_by(&self.issuer).unwrap().pem()
    }
}

/// The request as any authority reads it.
fn rcgen_request(pem: &str) -> rcgen::CertificateSigningRequestParams {
    rcgen::CertificateSigningRequestParams::from_pem(pem).unwrap()
}

/// A server of one port; each connection is a thread.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A connection under TLS.
pub(crate) type Tls = StreamOwned<ServerConnection, TcpStream>;

impl Server {
    /// Answers each request by `answer`, which gets the request's header and body, and may do what
    /// it likes.
    pub(crate) fn start(
        authority: &Authority,
        certificate: &Issued,
        answer: impl Fn(&str, &mut Tls) + Send + Sync + 'static,
    ) -> Self {
        let config = Arc::new(config(authority, certificate));
        Self::raw(move |socket, seen| {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut tls = StreamOwned::new(connection, socket);
            // A client that does not trust us is gone here.
            let Some(request) = request(&mut tls) else {
                return;
            };
            seen.lock().unwrap().push(request.clone());
            answer(&request, &mut tls);
            tls.conn.send_close_notify();
            drop(tls.flush());
        })
    }

    /// Does with each connection what it likes.
    pub(crate) fn raw(
        serve: impl Fn(TcpStream, &Mutex<Vec<String>>) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (serve, all) = (Arc::new(serve), Arc::clone(&seen));
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&connections));
        let thread = std::thread::spawn(move || {
            for socket in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                count.fetch_add(1, Ordering::SeqCst);
                let Ok(socket) = socket else { continue };
                socket.set_read_timeout(Some(LONG)).unwrap();
                socket.set_write_timeout(Some(LONG)).unwrap();
                let (serve, all) = (Arc::clone(&serve), Arc::clone(&all));
                std::thread::spawn(move || serve(socket, &all));
            }
        });
        Self {
            address,
            seen,
            connections,
            stop,
            thread: Some(thread),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.address.port())
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn config(authority: &Authority, certificate: &Issued) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    let pem = CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap();
    roots.add(pem).unwrap();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .unwrap();
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            CertificateDer::pem_slice_iter(certificate.certificate.as_bytes())
                .collect::<Result<_, _>>()
                .unwrap(),
            PrivateKeyDer::from_pem_slice(certificate.key.as_bytes()).unwrap(),
        )
        .unwrap()
}

/// The header and the body of a request. `None`: the connection ended first.
fn request(tls: &mut Tls) -> Option<String> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((header, body)) = text.split_once("\r\n\r\n") {
            let length = header
                .lines()
                .filter_map(|line| {
                    line.to_ascii_lowercase()
                        .strip_prefix("content-length:")?
                        .trim()
                        .parse()
                        .ok()
                })
                .next()
                .unwrap_or(0);
            if body.len() >= length {
                return Some(text);
            }
        }
        match tls.read(&mut piece) {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
        }
    }
}

/// A whole answer.
pub(crate) fn answer(tls: &mut Tls, status: u16, body: &str) {
    let text = format!(
        "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    drop(tls.write_all(text.as_bytes()));
}

/// The answer to a request for the material of `name`.
pub(crate) fn material(name: &str, version: u64, text: &str) -> String {
    format!(r#"{{"name":"{name}","version":{version},"material":"{text}"}}"#)
}

/// 32 bytes from 0 to 31.
pub(crate) const COUNTED: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// A node's directory; returns the configuration's path.
pub(crate) fn node(
    directory: &Path,
    servers: &[&str],
    authority: &Authority,
    more: &str,
) -> PathBuf {
    let issued = authority.client("node-1");
    node_with(directory, servers, &authority.pem, &issued, more)
}

pub(crate) fn node_with(
    directory: &Path,
    servers: &[&str],
    authority: &str,
    issued: &Issued,
    more: &str,
) -> PathBuf {
    let list: Vec<String> = servers.iter().map(|server| format!("{server:?}")).collect();
    let text = format!(
        "servers = [{}]\nauthority = \"authority.pem\"\ncertificate = \"node.pem\"\nkey = \"node.key\"\n{more}\n",
        list.join(", ")
    );
    put(&directory.join("authority.pem"), authority, 0o644);
    put(&directory.join("node.pem"), &issued.certificate, 0o644);
    put(&directory.join("node.key"), &issued.key, 0o600);
    let path = directory.join("node.toml");
    put(&path, &text, 0o644);
    path
}

pub(crate) fn put(path: &Path, text: &str, mode: u32) {
    strongroom_keyring::durable::replace(path, text.as_bytes(), mode).unwrap();
}
