//! A real nginx over TLS, on a port of this host, with a certificate of a private authority.
//! Stopped by its process id.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use strongroom_sqlite::RemoteOptions;
use strongroom_testing_support::port::free_port;

use crate::support::{remote, write};

const NGINX: &str = "/usr/sbin/nginx";

pub(crate) struct Nginx {
    child: Child,
    directory: tempfile::TempDir,
    pub(crate) port: u16,
}

/// A request as the log has it.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    pub(crate) status: u16,
    /// Bytes of the body.
    pub(crate) bytes: u64,
}

impl Nginx {
    /// Serves `root` over TLS.
    pub(crate) fn new(root: &Path) -> Self {
        assert!(
            Path::new(NGINX).exists(),
            "{NGINX} is needed: apt install nginx-light"
        );
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        certificates(directory.path());
        let port = free_port();
        let (here, served) = (directory.path().display(), root.display());
        let text = format!(
            "daemon off; master_process off; pid {here}/pid; error_log {here}/error.log warn;
             events {{ worker_connections 64; }}
             http {{
                log_format counts '$status $body_bytes_sent';
                access_log {here}/access.log counts;
                client_body_temp_path {here}/body; proxy_temp_path {here}/proxy; fastcgi_temp_path {here}/fastcgi;
                uwsgi_temp_path {here}/uwsgi; scgi_temp_path {here}/scgi;
                server {{
                    listen 127.0.0.1:{port} ssl;
                    ssl_certificate {here}/server.pem; ssl_certificate_key {here}/server.key;
                    root {served};
                    location /packed/ {{ alias {served}/; gzip on; gzip_types *; gzip_min_length 1; }}
                    location /moved/ {{ return 302 /; }}
                }}
             }}"
        );
        write(&at("nginx.conf"), text.as_bytes());
        let child = Command::new(NGINX)
            .arg("-c")
            .arg(at("nginx.conf"))
            .arg("-p")
            .arg(directory.path())
            .spawn()
            .unwrap();
        let nginx = Self {
            child,
            directory,
            port,
        };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "{}",
                nginx.errors()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        nginx
    }

    fn errors(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("error.log")).unwrap_or_default()
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("https://localhost:{}/{name}", self.port)
    }

    /// Options for the file `name`, that trust the private authority.
    pub(crate) fn remote(&self, name: &str) -> RemoteOptions {
        let mut options = remote(&self.url(name));
        options.ca = Some(self.ca());
        options
    }

    /// What was logged since the last call. nginx logs a request when it is through.
    pub(crate) fn logged(&self) -> Vec<Logged> {
        std::thread::sleep(Duration::from_millis(100));
        let path = self.directory.path().join("access.log");
        let text = std::fs::read_to_string(&path).unwrap();
        // nginx appends, so it goes on at the beginning.
        std::fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(0)
            .unwrap();
        let line = |line: &str| {
            let (status, bytes) = line.split_once(' ').unwrap();
            Logged {
                status: status.parse().unwrap(),
                bytes: bytes.parse().unwrap(),
            }
        };
        text.lines().map(line).collect()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Only if it is gone already is there an error.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// `ca.pem`, `other.pem` (of another authority), `server.pem` and `server.key`.
fn certificates(directory: &Path) {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let authority = |file: &str| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        write(&directory.join(file), certificate.pem().as_bytes());
        Issuer::new(params, key)
    };
    let ca = authority("ca.pem");
    authority("other.pem");
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned()];
    let certificate = CertificateParams::new(names)
        .unwrap()
        .signed_by(&key, &ca)
        .unwrap();
    write(&directory.join("server.pem"), certificate.pem().as_bytes());
    write(
        &directory.join("server.key"),
        key.serialize_pem().as_bytes(),
    );
}
